"""``preflight`` as a command, with a faked check: what it prints, and how it ends."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from topologies import two_sites

import spark_wan
from spark_wan.cli.app import command_line
from spark_wan.rehearsal.findings import (
    Finding,
    LinkCheck,
    Part,
    Preflight,
    failed,
    ok,
    unknown,
    warning,
)

Run = Callable[..., tuple[int, str, str]]


def checked(*findings: Finding) -> Preflight:
    state = Part("state", "newark", "newark", "/newark/_wan", (ok("state", "it can be read"),))
    target = Part("target", "orders", "seattle", "main.sales.orders", findings)
    links = (
        LinkCheck("newark.east.orders", "orders", "newark", "seattle", (state, target)),
        LinkCheck("newark.east.orders", "orders", "newark", "tacoma", (state,)),
    )
    return Preflight(links)


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Run the command without a session; return its exit code, what it printed, and its errors."""
    config = two_sites(tmp_path, "memory://x")

    @contextmanager
    def session(*_: object, **__: object) -> Iterator[None]:
        yield None

    monkeypatch.setattr("spark_wan.cli.preflight.session_of", session)

    def run_command(found: Preflight | None, *words: str) -> tuple[int, str, str]:
        def check(spark: None, topology: object, **options: Any) -> Preflight:
            assert found is not None
            asked.append(options)
            return found

        monkeypatch.setattr(spark_wan, "preflight", check, raising=False)
        given = ["preflight", "--config", str(config), *words]
        with pytest.raises(SystemExit) as ended:
            command_line()(args=given, prog_name="spark-wan")
        out, err = capsys.readouterr()
        return int(ended.value.code or 0), out, err

    asked: list[dict[str, Any]] = []
    run_command.asked = asked  # type: ignore[attr-defined]
    return run_command


@pytest.mark.parametrize(
    ("finding", "code"),
    [
        (ok("table", "seen"), 0),
        (unknown("table", "out of sight"), 0),
        (warning("table", "has rows"), 0),
        (failed("table", "no Delta table"), 1),
    ],
)
def test_only_what_has_failed_ends_it_with_an_error(run: Run, finding: Finding, code: int) -> None:
    ended, out, _ = run(checked(finding))
    assert ended == code
    verdict = finding.verdict.value
    assert f"{verdict:<8} target orders at seattle: main.sales.orders" in out
    assert f"  table: {finding.text}" in out
    assert f"{verdict:<8} newark.east.orders -> seattle" in out


def test_each_part_is_printed_once_and_links_are_counted(run: Run) -> None:
    _, out, _ = run(checked(warning("table", "has rows")))
    assert out.count("state newark") == 1
    assert out.splitlines()[-1] == "2 links: 1 ok, 1 warning"


def test_the_json_has_links_and_the_numbers_of_their_parts(run: Run) -> None:
    code, out, _ = run(checked(failed("table", "no Delta table")), "--output", "json")
    content = json.loads(out)
    assert (code, content["verdict"]) == (1, "failed")
    assert [(link["site"], link["verdict"], link["parts"]) for link in content["links"]] == [
        ("seattle", "failed", [0, 1]),
        ("tacoma", "ok", [0]),
    ]
    assert content["parts"][1]["findings"] == [
        {"check": "table", "verdict": "failed", "text": "no Delta table"}
    ]


def test_its_options_reach_the_check(run: Run) -> None:
    words = ("--site", "seattle", "--sender", "east", "--table", "orders", "--no-keys", "--probe")
    assert run(checked(), *words)[0] == 0
    expected = {"site": "seattle", "senders": ["east"], "tables": ["orders"]}
    assert run.asked == [{**expected, "keys": False, "probe": True}]  # type: ignore[attr-defined]


def test_a_wrong_name_is_refused_before_spark_starts(run: Run) -> None:
    code, _, err = run(None, "--site", "seatle")
    assert code == 1 and "did you mean 'seattle'" in err
    assert run(None, "--frobnicate")[0] == 2
