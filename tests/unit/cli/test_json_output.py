"""The JSON of commands is a contract: each document has a version, and the fields on the page."""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pages import section, table_rows

from spark_wan.apply.adopt import Adoption
from spark_wan.apply.replace import Outcome
from spark_wan.cli.options import Format
from spark_wan.cli.output import JsonOutput, open_output
from spark_wan.control.decide import DecisionAnswer, RecordedDecision
from spark_wan.control.ends import StreamEnd
from spark_wan.control.verbs import ControlAnswer, Waiting
from spark_wan.demo.display import FourSitesSummary, JoiningSummary, TwoSitesSummary
from spark_wan.drawing.graph import graph_of
from spark_wan.errors import WanError
from spark_wan.rehearsal.findings import Preflight
from spark_wan.status.check import Level, Problem
from spark_wan.status.watch import Alert
from spark_wan.sync.backup import Cut
from spark_wan.sync.findings import Comparison
from spark_wan.sync.letters import Letter, Replay, Reported
from spark_wan.sync.undone import Undone
from spark_wan.topology.parsing import load_topology
from spark_wan.topology.routes import served_by
from spark_wan.version import OUTPUT_VERSION
from spark_wan.wire.certificate import Certificate
from spark_wan.wire.ledger import DeadLetter

TOPOLOGY = load_topology(Path(__file__).parents[3] / "conf" / "minimal.yaml")
FLIGHTS = TOPOLOGY.table("flights")
BY = next(iter(served_by(TOPOLOGY, FLIGHTS, TOPOLOGY.sender("east"))))
VECTOR = ("newark", "an id", "all", 9)
END = StreamEnd("a", "t", True, version=1, epoch=1, missing=(), waits_for=None)


def sample(kind: type, **given: Any) -> Any:
    """An object with some value in each field that has no default."""
    values: dict[str, Any] = {"str": "x", "int": 1, "bool": True}
    made = {
        field.name: values.get(str(field.type).partition(" | ")[0])
        for field in dataclasses.fields(kind)
        if field.init and field.default is dataclasses.MISSING
    }
    return kind(**{**made, **given})


def backup(**more: Any) -> Certificate:
    made: Certificate = sample(Certificate, vector=(VECTOR,), files=(), schema={}, keys=(), **more)
    return made


def asked(verb: str, **more: Any) -> Callable[[JsonOutput], None]:
    answer = ControlAnswer(verb, "newark", ("a",), True, 1, **more)
    return lambda out: out.controlled(answer)


PRINTED: dict[str, list[Callable[[JsonOutput], None]]] = {
    "validate": [
        lambda out: out.valid_topology(TOPOLOGY),
        lambda out: out.invalid_topology("file", ["a mistake"]),
    ],
    "topology": [
        lambda out: out.graph("file", graph_of(TOPOLOGY)),
        lambda out: out.picture(Path("file")),
    ],
    "status": [lambda out: out.status([], "file")],
    "check": [
        lambda out: out.checked([Problem(Level.WARNING, "acks", "x", "a channel")]),
        lambda out: out.alert(Alert(Problem(Level.WARNING, "acks", "x", "a channel"))),
    ],
    "pause": [asked("pause")],
    "drain": [asked("drain", unpaused=("ann",), point="version 1", ends=(END,))],
    "clean": [asked("clean", waiting=(sample(Waiting),))],
    "decide": [lambda out: out.decided([sample(DecisionAnswer)], [sample(DecisionAnswer)])],
    "decisions": [lambda out: out.decisions([sample(RecordedDecision)])],
    "dead-letters list": [
        lambda out: out.letters([Letter(sample(DeadLetter), None)], Reported([], 0, []))
    ],
    "dead-letters show": [lambda out: out.letter([Letter(sample(DeadLetter), None)])],
    "dead-letters replay": [lambda out: out.replayed([Replay("t", BY, True, 1)], "seattle")],
    "dead-letters discard": [lambda out: out.discarded([])],
    "preflight": [lambda out: out.preflight(Preflight(()))],
    "sync": [
        lambda out: out.copy_requested(BY),
        lambda out: out.copy_cancelled("t", "seattle", True),
    ],
    "verify": [lambda out: out.compared([Comparison("t", "seattle", "newark")], [])],
    "undo": [lambda out: out.undone(Undone("t", "newark", 1, 2), True)],
    "backup": [
        lambda out: out.backup_made(backup(), "place"),
        lambda out: out.backup_planned("t", "newark", "place", sample(Cut, vector=VECTOR)),
    ],
    "adopt": [
        lambda out: out.backup_adopted(Adoption(backup(), Outcome.WRITTEN, True), "s", "p", False)
    ],
    "remove": [lambda out: out.removed("a", ["channel"])],
    "any, if it fails": [lambda out: out.error(WanError("no"))],
}
"""What each command prints. The others of a row on the page print the same."""


def documents(command: str, capsys: pytest.CaptureFixture[str]) -> Iterator[dict[str, Any]]:
    out = open_output(Format.JSON)
    assert isinstance(out, JsonOutput)
    for prints in PRINTED[command]:
        prints(out)
        (line,) = capsys.readouterr().out.splitlines()
        yield json.loads(line)


def listed() -> dict[str, str]:
    head, *rows = table_rows(section("monitoring.md", "The JSON of other commands"))
    assert head == ["command", "fields"]
    return {row[0].replace("`", "").partition(",")[0]: row[1] for row in rows}


def test_the_page_has_each_command_that_prints_json() -> None:
    assert {*listed()} == {name.partition(",")[0] for name in PRINTED} | {"demo"}


def test_the_fields_of_the_demo_are_on_the_page() -> None:
    """It prints them itself."""
    kinds = (TwoSitesSummary, FourSitesSummary, JoiningSummary)
    printed = {field.name for kind in kinds for field in dataclasses.fields(kind)}
    assert {*re.findall(r"`([a-z_]+)`", listed()["demo"])} == printed


@pytest.mark.parametrize("command", PRINTED)
def test_a_document_has_its_version_and_the_fields_on_the_page(
    command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Fails when a field is added, renamed or dropped, and the contract does not say so."""
    described = listed()[command.partition(",")[0]]
    if described.startswith("the same;"):
        described = f"{listed()['pause']}; {described}"
    names = {*re.findall(r"`([a-z_]+)`", described)}
    printed = set[str]()
    for document in documents(command, capsys):
        assert next(iter(document)) == "v" and document.pop("v") == OUTPUT_VERSION
        printed |= {*document}
    assert printed <= names
    inner = names - printed
    assert inner <= nested(command, capsys) | {"stop", "unpaused", "point"}


def nested(command: str, capsys: pytest.CaptureFixture[str]) -> set[str]:
    """The names of fields within the lists of a document, at any depth."""

    def within(value: Any) -> Iterator[str]:
        if isinstance(value, dict):
            for name, each in value.items():
                yield name
                yield from within(each)
        elif isinstance(value, list):
            for each in value:
                yield from within(each)

    return {name for document in documents(command, capsys) for name in within(document)}


def test_each_method_that_prints_a_document_is_tested_here() -> None:
    """Fails when a new command prints JSON that the page does not have."""
    of_jobs = {"job_event", "standby", "work", "sender_progress", "receiver_progress", "work_ended"}
    of_others = {"renewed_status", "ending"}
    methods = {name for name, each in vars(JsonOutput).items() if callable(each) and name[0] != "_"}
    source = Path(__file__).read_text()
    assert {name for name in methods if f"out.{name}(" not in source} == of_jobs | of_others
