"""States and channels are looked at, and nothing is made."""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from topologies import topology

from spark_wan.channels.base import Channel
from spark_wan.channels.objects import MARKER_PATH
from spark_wan.channels.registry import open_channel
from spark_wan.rehearsal.findings import Finding, Part, Verdict
from spark_wan.rehearsal.places import can_be_read, check_channel, check_state, obstacle
from spark_wan.state.decisions import StoredDecisions
from spark_wan.topology.model import Sender, Site
from spark_wan.wire.decisions import Decisions
from spark_wan.wire.signature import KeyReference


def site(folder: Path, **settings: Any) -> Site:
    return replace(topology().site("newark"), state=str(folder), **settings)


def sender(url: str) -> Sender:
    return replace(topology().sender("east"), channel=url)


def by_check(part: Part) -> dict[str, Finding]:
    return {each.check: each for each in part.findings}


def everything(folder: Path) -> list[str]:
    return sorted(str(path) for path in folder.rglob("*"))


def test_a_state_that_is_not_there_is_not_made(tmp_path: Path) -> None:
    part = check_state(site(tmp_path / "a" / "b"), ["orders"], is_here=True)
    assert part.verdict is Verdict.OK and everything(tmp_path) == []


def test_a_state_that_cannot_be_made_has_failed(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    part = check_state(site(tmp_path / "file" / "b"), [], is_here=True)
    assert part.verdict is Verdict.FAILED and "file is no directory" in part.findings[0].text


def test_a_directory_of_another_site_is_unknown(tmp_path: Path) -> None:
    part = check_state(site(tmp_path / "a"), [], is_here=False)
    assert part.verdict is Verdict.UNKNOWN


def test_a_directory_that_cannot_be_written_is_found_without_a_write(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "access", lambda path, mode: Path(path) != tmp_path)
    assert obstacle(tmp_path / "a" / "b") == f"{tmp_path} cannot be written to"
    part = check_state(site(tmp_path), [], is_here=True)
    assert by_check(part)["state"].text == "it can be read"
    assert part.verdict is Verdict.FAILED
    assert check_state(site(tmp_path), [], is_here=False).verdict is Verdict.OK


def test_what_was_asked_for_and_decided_is_read(tmp_path: Path) -> None:
    place = site(tmp_path / "state")
    decisions = StoredDecisions(place.state)
    decisions.record("flights", Decisions({12: "skip"}))
    assert check_state(place, ["flights", "readings"], is_here=True).verdict is Verdict.OK
    (entry,) = (tmp_path / "state" / "decisions" / "flights").iterdir()
    entry.write_text("{")
    part = check_state(place, ["flights"], is_here=True)
    assert by_check(part)["decisions"].verdict is Verdict.FAILED


def test_a_control_log_of_a_newer_version_has_failed(tmp_path: Path) -> None:
    (tmp_path / "control").mkdir()
    (tmp_path / "control" / f"{1:020d}.json").write_text('{"version": 99}')
    part = check_state(site(tmp_path), [], is_here=True)
    assert "Update spark_wan at this site" in by_check(part)["control"].text
    assert part.verdict is Verdict.FAILED


def test_keys_are_read_and_never_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WAN_KEY", "s" * 40)
    references = (KeyReference("env", "WAN_KEY"), KeyReference("file", str(tmp_path / "none")))
    part = check_state(site(tmp_path, signing_keys=references), [], is_here=True)
    first, second = (each for each in part.findings if each.check == "signing keys")
    assert first.verdict is Verdict.OK and "s" * 40 not in str(part)
    assert second.verdict is Verdict.FAILED and "cannot be read" in second.text


# --- channels


def test_a_channel_that_is_not_there_is_not_made(tmp_path: Path) -> None:
    part = check_channel(sender(str(tmp_path / "a" / "channel")), [], probe=True)
    assert part.verdict is Verdict.OK and everything(tmp_path) == []
    (tmp_path / "file").write_text("")
    part = check_channel(sender(str(tmp_path / "file" / "channel")), [], probe=True)
    assert part.verdict is Verdict.FAILED and not can_be_read(part)


def test_a_channel_is_listed_and_not_written(tmp_path: Path) -> None:
    channel = open_channel(str(tmp_path / "channel"))
    channel.prepare()
    channel.append("newark.east.orders", 1, b"{}")
    before = everything(tmp_path)
    part = check_channel(
        sender(channel.url), ["newark.east.orders", "newark.east.readings"], probe=False
    )
    found = by_check(part)
    assert found["streams"].text == "1 of 2 streams have begun"
    assert found["write"].text.startswith("not tried") and "clock" not in found
    assert part.verdict is Verdict.OK and everything(tmp_path) == before


def test_a_probe_writes_and_leaves_nothing(tmp_path: Path) -> None:
    part = check_channel(sender(str(tmp_path)), [], probe=True)
    assert by_check(part)["write"].text == "a probe file was written and deleted"
    assert part.verdict is Verdict.OK and everything(tmp_path) == []


def test_files_of_others_in_a_channel_that_nobody_has_begun_are_named(tmp_path: Path) -> None:
    (tmp_path / "report.csv").write_text("")
    part = check_channel(sender(str(tmp_path)), [], probe=False)
    assert part.verdict is Verdict.WARNING and "report.csv" in part.findings[0].text
    assert can_be_read(part)


@pytest.mark.parametrize(
    ("marker", "says"),
    [('{"version": 99}', "Update spark_wan here"), ("hello", "was not written by spark_wan")],
)
def test_a_channel_of_another_version_or_program_has_failed(
    tmp_path: Path, marker: str, says: str
) -> None:
    (tmp_path / MARKER_PATH).write_text(marker)
    part = check_channel(sender(str(tmp_path)), [], probe=False)
    assert says in part.findings[0].text
    assert part.verdict is Verdict.FAILED and not can_be_read(part)


@pytest.mark.parametrize(
    ("ahead", "verdict"),
    [(0, Verdict.OK), (59, Verdict.OK), (75, Verdict.WARNING), (-75, Verdict.WARNING)],
    ids=["equal", "a little", "ahead", "behind"],
)
def test_a_clock_that_is_a_minute_off_is_a_warning(ahead: float, verdict: Verdict) -> None:
    channel = open_channel(f"memory://{uuid.uuid4().hex}")
    channel.now = lambda: 1_000.0 + ahead  # type: ignore[method-assign]
    clock: Callable[[], float] = lambda: 1_000.0  # noqa: E731
    part = check_channel(sender(channel.url), [], probe=True, clock=clock)
    assert by_check(part)["clock"].verdict is verdict


def test_a_channel_that_refuses_a_probe_has_failed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    channel = open_channel(str(tmp_path))

    def refuse(url: str, storage: object) -> Channel:
        return channel

    (tmp_path / "wan-writable").mkdir()
    (tmp_path / "wan-writable" / "x").write_text("")
    part = check_channel(sender(str(tmp_path)), [], probe=True, open_=refuse)
    assert by_check(part)["write"].verdict is Verdict.FAILED
