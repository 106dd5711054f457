"""``backup`` and ``adopt`` as commands, with faked work: what they print, and how they end."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from fakes import MANIFEST, schema
from topologies import two_sites

from spark_wan.apply.adopt import Adoption
from spark_wan.apply.replace import Outcome
from spark_wan.backup import job
from spark_wan.cli import launcher
from spark_wan.cli.app import command_line
from spark_wan.errors import BackupError
from spark_wan.sync.backup import Cut
from spark_wan.wire.certificate import BackedUp, BackupFile, Certificate

CERTIFICATE = Certificate(
    backup="c" * 32,
    site="newark",
    table="orders",
    source=BackedUp(MANIFEST.table_id, 7, "x@1"),
    vector=(("newark", MANIFEST.table_id, "all", 7),),
    keys=("id",),
    schema=schema(),
    files=(BackupFile("part-00000.parquet", 2_500_000, "2" * 64),),
    rows=30_000,
    unique=True,
    created=1,
)
Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Run a command without a session, and return its exit code and what it printed."""
    config = two_sites(tmp_path, "memory://x")

    @contextmanager
    def session(*_: object) -> Iterator[None]:
        yield None

    monkeypatch.setattr(launcher, "_session_at", session)
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}

    def run_command(*words: str) -> tuple[int, str, str]:
        command, *options = words
        given = [command, "--config", str(config), "--table", "orders", *options]
        try:
            with pytest.raises(SystemExit) as ended:
                command_line()(args=given, prog_name="spark-wan")
        finally:
            for number, handler in handlers.items():
                signal.signal(number, handler)
        out, err = capsys.readouterr()
        return int(ended.value.code or 0), out, err

    return run_command


def returns(monkeypatch: pytest.MonkeyPatch, name: str, result: object) -> list[tuple[Any, ...]]:
    """Let a function of the job return something, or raise it; return what it is called with."""
    calls: list[tuple[Any, ...]] = []

    def call(_: object, topology: object, *given: Any) -> object:
        calls.append(given)
        if isinstance(result, BaseException):
            raise result
        return result

    monkeypatch.setattr(job, name, call)
    return calls


def test_a_backup_says_what_it_has(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = returns(monkeypatch, "make_backup", CERTIFICATE)
    code, out, _ = run("backup", "--site", "newark", "--to", "/disk/orders")
    assert (code, calls) == (0, [("orders", "newark", "/disk/orders")])
    assert "backed up orders at newark to /disk/orders: 30,000 rows, version 7 of newark" in out
    _, out, _ = run("backup", "--site", "newark", "--to", "/disk/orders", "-o", "json")
    made = json.loads(out)
    assert (made["rows"], made["through"], made["written"]) == (30_000, 7, True)


def test_a_dry_run_of_a_backup(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    cut = Cut(CERTIFICATE.source, CERTIFICATE.vector[0], schema(), 30_000, 1)
    returns(monkeypatch, "plan_backup", cut)
    returns(monkeypatch, "make_backup", AssertionError("written"))
    _, out, _ = run("backup", "--site", "newark", "--to", "/d", "--dry-run")
    assert "would back up orders at newark to /d: 30,000 rows" in out and "Nothing was" in out
    _, out, _ = run("backup", "--site", "newark", "--to", "/d", "--dry-run", "-o", "json")
    assert json.loads(out)["written"] is False


@pytest.mark.parametrize(
    ("adoption", "text", "written"),
    [
        (Adoption(CERTIFICATE, Outcome.WRITTEN, True), "Its stream goes on behind it", True),
        (Adoption(CERTIFICATE, Outcome.KNOWN, True), "has this backup already", False),
        (Adoption(CERTIFICATE, Outcome.WRITTEN, False), "start: {version: 8}", True),
        (Adoption(CERTIFICATE, Outcome.WRITTEN, True, 1_200), "1,200 became dead letters", True),
    ],
    ids=["written", "known", "no log yet", "letters"],
)
def test_an_adoption_says_what_became_of_it(
    run: Run, monkeypatch: pytest.MonkeyPatch, adoption: Adoption, text: str, written: bool
) -> None:
    calls = returns(monkeypatch, "adopt_backup", adoption)
    code, out, _ = run("adopt", "--site", "seattle", "--from", "/disk/orders")
    assert (code, calls) == (0, [("orders", "seattle", "/disk/orders")])
    assert text in out
    _, out, _ = run("adopt", "--site", "seattle", "--from", "/disk/orders", "-o", "json")
    done = json.loads(out)
    assert (done["written"], done["known"]) == (written, adoption.is_known)
    assert (done["stream_begun"], done["dead_letters"]) == (adoption.begun, adoption.dead_letters)


def test_a_dry_run_of_an_adoption(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    returns(monkeypatch, "plan_adoption", Adoption(CERTIFICATE, Outcome.WRITTEN, True))
    returns(monkeypatch, "adopt_backup", AssertionError("written"))
    _, out, _ = run("adopt", "--site", "seattle", "--from", "/d", "--dry-run")
    assert "orders at seattle would be replaced by 30,000 rows" in out and "Nothing was" in out
    _, out, _ = run("adopt", "--site", "seattle", "--from", "/d", "--dry-run", "-o", "json")
    assert json.loads(out)["written"] is False


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (BackupError("file x is missing"), "file x is missing"),
        (ValueError("a bug"), "adopt ended with an error: a bug"),
    ],
)
def test_an_error_ends_the_command(
    run: Run, monkeypatch: pytest.MonkeyPatch, error: Exception, text: str
) -> None:
    returns(monkeypatch, "adopt_backup", error)
    code, out, err = run("adopt", "--site", "seattle", "--from", "/d")
    assert (code, out) == (1, "") and text in err


def test_a_signal_ends_the_command(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """Exit code 1: it is not done. Fails when a script takes it for done."""

    def interrupted(*_: object) -> None:
        signal.raise_signal(signal.SIGTERM)

    monkeypatch.setattr(job, "make_backup", interrupted)
    code, _, err = run("backup", "--site", "newark", "--to", "/d")
    assert code == 1 and "backup was interrupted, and is not done. Begin again." in err


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (("adopt", "--site", "newark", "--from", "/d"), "newark writes table orders, and adopts"),
        (("backup", "--site", "newrak", "--to", "/d"), "did you mean 'newark'"),
    ],
    ids=["writer", "unknown"],
)
def test_what_makes_no_sense_is_refused_before_spark_starts(
    run: Run, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...], text: str
) -> None:
    monkeypatch.setattr(launcher, "_session_at", None)
    code, _, err = run(*words)
    assert code == 1 and text in err
