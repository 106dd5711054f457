"""What ``verify`` and ``undo`` print, and what they refuse before Spark starts."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
import typer

from spark_wan.cli.app import main
from spark_wan.cli.options import Format
from spark_wan.cli.output import Output, open_output
from spark_wan.cli.verify import _end
from spark_wan.sync.findings import Comparison, Difference, Kind, Repair
from spark_wan.sync.undone import Action, Undone, UndoneRow

ROOT = Path(__file__).parents[3]
CONFIG = str(ROOT / "conf" / "two_sites.yaml")
EQUAL = Comparison("orders", "seattle", "newark", 41, 9, origin_rows=5, target_rows=5)
DIFFERENT = Comparison(
    "orders",
    "denver",
    "newark",
    38,
    7,
    share=0.05,
    origin_rows=5,
    target_rows=4,
    counts={Kind.MISSING: 2, Kind.EXTRA: 1, Kind.DIFFERS: 1},
    columns={"amount": 1},
    only_at_origin=("gone",),
    examples=(
        Difference(Kind.MISSING, '{"id":12}', (), 1, 0, "amount [0] is too small"),
        Difference(Kind.DIFFERS, '{"id":40}', ("amount",)),
    ),
    notes=("2 commits of others",),
)
BROKEN = Comparison("orders", "boston", "newark", problem="boston: its files are gone.")


@pytest.fixture(params=list(Format))
def out(request: pytest.FixtureRequest) -> Output:
    return open_output(request.param)


@pytest.mark.parametrize(
    ("found", "repairs", "code"),
    [
        ([EQUAL], [], 0),
        ([EQUAL, DIFFERENT], [], 3),
        ([DIFFERENT, BROKEN], [], 1),
        ([DIFFERENT], [Repair("orders", "denver", problem="nobody serves it")], 1),
        ([DIFFERENT], [Repair("orders", "denver", "a stream")], 3),
    ],
)
def test_the_exit_code_says_what_was_found(
    out: Output, found: list[Comparison], repairs: list[Repair], code: int
) -> None:
    if not code:
        _end(out, found, repairs)
        return
    with pytest.raises(typer.Exit) as end:
        _end(out, found, repairs)
    assert end.value.exit_code == code


def test_a_comparison_as_text(capsys: pytest.CaptureFixture[str]) -> None:
    repairs = [Repair("orders", "denver", "newark.east.orders~copy~denver")]
    open_output(Format.TEXT).compared([EQUAL, DIFFERENT, BROKEN], repairs)
    lines = [line.rstrip() for line in capsys.readouterr().out.splitlines()]
    assert lines[0] == "seattle: equal to version 41 of orders at newark; 5 rows"
    assert lines[1] == (
        "denver: DIFFERS from version 38 of orders at newark; 5% of the keys, 4 rows, 5 there; "
        "2 missing, 1 too many, 1 with other values"
    )
    assert lines[2:4] == [
        "  rows that differ, by column: amount (1)",
        "  columns that only newark has: gone",
    ]
    assert lines[5].split("  ")[1:] == ['{"id":12}', "missing at denver", "amount [0] is too small"]
    assert "differs in amount" in lines[6] and lines[7] == "  2 commits of others."
    assert lines[8] == "boston: not compared: boston: its files are gone."
    assert lines[9].startswith("denver: asks for a copy of orders, by the stream newark.east.")
    assert "Nothing is written yet" in lines[9]


def test_a_comparison_for_scripts(capsys: pytest.CaptureFixture[str]) -> None:
    repair = Repair("orders", "denver", "a stream", dry_run=True)
    open_output(Format.JSON).compared([EQUAL, DIFFERENT], [repair])
    printed = json.loads(capsys.readouterr().out)
    assert printed["equal"] is False
    one, two = printed["sites"]
    assert (one["equal"], one["repair"], one["problem"]) == (True, None, None)
    assert two["counts"] == {"missing": 2, "extra": 1, "differs": 1}
    assert (two["examples"][0]["kind"], two["examples"][0]["row"]) == ("missing", '{"id":12}')
    assert two["repair"]["dry_run"] is True and two["repair"]["stream"] == "a stream"


@pytest.mark.parametrize(
    ("done", "dry_run", "expected"),
    [
        (
            Undone("orders", "newark", 3, 5, 9, {Action.SET_BACK: 2, Action.DELETE: 1}),
            False,
            "version 9 undoes versions 3 to 5 of orders at newark: rows set back: 2, rows deleted:"
            " 1. Senders publish it as any commit.",
        ),
        (
            Undone("orders", "newark", 3, 3, None, {Action.INSERT: 2}, 1),
            True,
            "would undo version 3 of orders at newark: rows inserted again: 2; 1 changed again "
            "since: without --force it is refused. Nothing was written.",
        ),
        (
            Undone("orders", "newark", 3, 3),
            False,
            "nothing to undo: no row is other than it was before version 3 of orders at newark. "
            "Nothing was written.",
        ),
    ],
)
def test_an_undo_as_text(
    capsys: pytest.CaptureFixture[str], done: Undone, dry_run: bool, expected: str
) -> None:
    open_output(Format.TEXT).undone(done, dry_run)
    assert capsys.readouterr().out.strip() == expected


def test_an_undo_for_scripts(capsys: pytest.CaptureFixture[str]) -> None:
    rows = (UndoneRow('{"id":1}', Action.SET_BACK, True),)
    done = Undone("orders", "newark", 3, 5, None, {Action.SET_BACK: 1}, 1, rows)
    open_output(Format.JSON).undone(done, True)
    printed: dict[str, Any] = json.loads(capsys.readouterr().out)
    assert printed["counts"] == {"set back": 1} and printed["dry_run"] is True
    assert printed["examples"] == [{"key": '{"id":1}', "action": "set back", "changed_since": True}]


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (("verify", "--table", "flight"), 1, "did you mean 'flights'"),
        (("verify", "--table", "flights", "--sites", "newark"), 1, "site newark writes table"),
        (("verify", "--table", "flights", "--sample", "0"), 2, "--sample"),
        (("verify", "--table", "flights", "--rate", "fast"), 1, "--rate must be a size such as"),
        (("verify", "--table", "flights", "--dry-run"), 1, "--dry-run is for --repair"),
        (("undo", "--table", "readings", "--versions", "3"), 1, "readings has no keys"),
        (("undo", "--table", "flights", "--versions", "a"), 1, "write A-B, or A for one version"),
    ],
)
def test_what_is_wrong_is_refused_before_spark_starts(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    words: tuple[str, ...],
    code: int,
    message: str,
) -> None:
    def session_of(*_: object) -> Any:
        raise AssertionError("a session was started")

    for command in ("verify", "undo"):
        monkeypatch.setattr(sys.modules[f"spark_wan.cli.{command}"], "session_of", session_of)
    name, *options = words
    monkeypatch.setattr(sys, "argv", ["spark-wan", name, "--config", CONFIG, *options])
    with pytest.raises(SystemExit) as end:
        main()
    assert end.value.code == code
    assert message in " ".join(capsys.readouterr().err.split())
