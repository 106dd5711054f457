"""A copy of the table of a user stream: its first part has the event IDs."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from applied_pair import COPIES as NAME
from applied_pair import AppliedPair
from fakes import memory_channel, publish

from spark_wan.apply.applier import ApplyResult
from spark_wan.apply.plan import gap_behind
from spark_wan.apply.take import CopyTaker
from spark_wan.capture.ranges import ALL_PARTS, CaptureResult, Part
from spark_wan.errors import TargetError
from spark_wan.events.operations import EVENT_ID_COLUMNS
from spark_wan.log.stream_log import StreamLog
from spark_wan.sender.serve import LARGE_BYTES, PARTS, CopyServer, Cut
from spark_wan.steps import run
from spark_wan.wire.ack import Ack, Wanted
from spark_wan.wire.frame import FrameHeader
from spark_wan.wire.manifest import (
    COPY,
    EVENT_IDS,
    EVENTS,
    ROWS,
    USER_TABLE_ID,
    CopyOf,
    Manifest,
)
from spark_wan.wire.records import VersionRef

LOG = ("newark.sink.orders", "f" * 32, 7, "of the manifest")
PART = ["copy.3 frames-written", "copy.4 manifest-added"]


@dataclass
class Events:
    """The table of a user stream at a site that has it, with rows as of newark's fake source."""

    pair: Pair
    size: int | None = 1_000
    log: tuple[str, str, int, str] = LOG
    calls: list[str] = field(default_factory=list)
    is_source = False

    def cut(self) -> Cut:
        self.calls.append("cut")
        source, read = self.pair.newark.source, VersionRef("a table", 3, "")
        schema = source.schema_at(0)
        return Cut(USER_TABLE_ID, -1, "", schema, (), read, (self.log,), 99, self.write_ids)

    def check(self, cut: Cut) -> None:
        assert cut.logs == (self.log,) and cut.floor == 99

    def amount(self, cut: Cut) -> tuple[int, int | None]:
        return 3, self.size

    def write(self, cut: Cut, header: FrameHeader, part: Part) -> CaptureResult:
        self.calls.append(f"rows {part.number} of {part.of}")
        return self.pair.newark.source.snapshot(0, cut.schema, header, part)

    def write_ids(self, header: FrameHeader) -> CaptureResult:
        self.calls.append("ids")
        return self.pair.newark.source.snapshot(0, EVENT_ID_COLUMNS, header, ALL_PARTS)


class Pair(AppliedPair):
    def __init__(self) -> None:
        super().__init__(published=False)
        self.events = Events(self)

    def server(self) -> CopyServer:
        settings = replace(self.newark.settings, stream=NAME, addressees=("seattle",))
        return CopyServer(settings, self.copies, self.events, self.newark.clock)

    def ask(self, request: str = "r1") -> None:
        ack = self.copies.ack("seattle") or Ack("seattle", NAME, "", 0)
        self.copies.put_ack(replace(ack, wanted=Wanted(request)))

    def take(self, **settings: Any) -> ApplyResult:
        taker = CopyTaker("seattle", "orders", self.copies, self.target, self.ledger(), **settings)
        return run(taker.round())

    def parts(self) -> list[Manifest]:
        return [self.copies.reread(epoch) for epoch in self.copies.epochs()]

    def forge(self, parts: list[Manifest]) -> None:
        """Somebody puts other manifests in place of those of the copy."""
        for epoch in self.copies.epochs():
            self.channel.trim_manifest(NAME, epoch)
        previous = ""
        for each in parts:
            previous = self.copies.append(replace(each, previous=previous)).fingerprint


@pytest.fixture
def pair() -> Pair:
    return Pair()


def contents(manifests: list[Manifest]) -> list[str]:
    return [each.copy.content for each in manifests if each.copy is not None]


def test_the_first_part_has_the_event_ids(pair: Pair) -> None:
    pair.ask()
    assert list(pair.server().round()) == ["copy.1 asked", "copy.2 planned", *PART * 2]
    ids, rows = pair.parts()
    assert contents([ids, rows]) == [EVENT_IDS, ROWS]
    assert (ids.schema, rows.schema) == (EVENT_ID_COLUMNS, pair.newark.source.schema_at(0))
    assert {each.last_version for each in (ids, rows)} == {-1}
    for each in (ids, rows):
        # A site with an earlier spark_wan must not take the IDs for rows.
        assert b'"requires":["copy.part","copy.content"]' in each.encode()
        assert each.copy is not None and (each.copy.logs, each.copy.floor) == ((LOG,), 99)
    result = pair.take()
    assert (result.held, result.applied, result.epochs) == (None, 2, 2)
    ledger = pair.ledger()
    ledger.catch_up(pair.target)
    positions = ledger.progress.positions
    assert positions == {LOG[:2]: 7, (NAME, rows.log_id): 2}
    assert ledger.progress.through == {}


@pytest.mark.parametrize("died", range(2 * PARTS + 4))
def test_a_server_that_dies_reads_the_ids_once_more_only_before_the_rows(
    pair: Pair, died: int
) -> None:
    """A part with IDs does not say what columns the rows have."""
    pair.events.size = LARGE_BYTES + 1
    pair.ask()
    list(itertools.islice(pair.server().round(), died))
    run(pair.server().round())
    rows = [f"rows {number} of {PARTS}" for number in range(1, PARTS + 1)]
    has_rows = died >= 6  # asked, planned, two steps for the IDs, two for rows
    assert pair.events.calls.count("cut") == (2 if 2 <= died < 6 else 1)
    assert pair.events.calls.count("ids") == (2 if 3 <= died < 6 else 1)
    assert {*rows} <= {*pair.events.calls}
    assert not has_rows or pair.events.calls.count(rows[0]) == 1
    assert contents(pair.parts()) == [EVENT_IDS, *[ROWS] * PARTS]
    assert pair.take().held is None
    run(pair.server().round())
    (last,) = pair.parts()
    assert last.frames == ()


def test_a_copy_that_has_less_than_the_site_is_not_taken(pair: Pair) -> None:
    """Fails when events that the site has vanish, of which the channel has none any more."""
    pair.ask()
    run(pair.server().round())
    assert pair.take().held is None
    pair.events.log = (*LOG[:2], 6, LOG[3])
    pair.ask("r2")
    run(pair.server().round())
    written = len(pair.target.commits)
    result = pair.take()
    assert result.awaits_copy and "has applied more than the copy" in str(result.cause)
    assert len(pair.target.commits) == written
    pair.events.log = (*LOG[:2], 8, LOG[3])
    run(pair.server().round())
    assert pair.take().held is None
    assert len(pair.target.commits) == written + 1


@pytest.mark.parametrize("part", [0, 1])
def test_parts_that_say_something_else_of_their_content_are_not_taken(
    pair: Pair, part: int
) -> None:
    """Fails when event IDs are taken for rows, or rows for event IDs."""
    pair.ask()
    run(pair.server().round())
    parts = pair.parts()
    wrong = parts[part]
    assert wrong.copy is not None
    content = {EVENT_IDS: ROWS, ROWS: EVENT_IDS}[wrong.copy.content]
    parts[part] = replace(wrong, copy=replace(wrong.copy, content=content))
    pair.forge(parts)
    written = len(pair.target.commits)
    result = pair.take()
    assert result.held is not None and "of the copy that ends with" in str(result.cause)
    assert len(pair.target.commits) == written


def test_a_copy_that_is_asked_for_again_has_what_the_site_has(pair: Pair) -> None:
    """Fails when a server that is behind serves one full copy after the other."""
    pair.ask()
    run(pair.server().round())
    assert pair.take().held is None
    pair.events.log = (*LOG[:2], 6, LOG[3])
    pair.ask("r2")
    run(pair.server().round())
    assert pair.take().awaits_copy
    run(pair.server().round())
    last = pair.copies.newest_manifest()
    assert last is not None and last.copy is not None
    assert "asks for a copy that has epoch 7 of newark.sink.orders" in str(last.copy.refused)


@pytest.mark.parametrize("asks", [False, True])
def test_a_copy_behind_which_the_stream_would_be_held_is_not_taken(pair: Pair, asks: bool) -> None:
    pair.ask()
    run(pair.server().round())
    causes: list[str] = []

    def ask_next(wanted: Wanted, cause: str) -> bool:
        causes.append(cause)
        return asks

    written = len(pair.target.commits)
    result = pair.take(gap_behind=lambda copy: "epoch 9 is missing", refused=ask_next)
    assert causes == ["epoch 9 is missing"] and len(pair.target.commits) == written
    assert (result.held is None) == asks
    assert pair.take(gap_behind=lambda copy: None).held is None


def test_a_copy_without_rows_is_not_taken(pair: Pair) -> None:
    pair.ask()
    run(pair.server().round())
    ids, _ = pair.parts()
    assert ids.copy is not None
    pair.forge([replace(ids, copy=replace(ids.copy, parts=1))])
    result = pair.take()
    assert result.held is not None and "ends a copy without rows" in str(result.cause)


@pytest.mark.parametrize(("copied", "fits"), [(1, False), (2, True), (3, True)])
def test_a_stream_goes_on_behind_a_copy_that_has_what_is_trimmed(copied: int, fits: bool) -> None:
    channel = memory_channel()
    log = StreamLog(channel, LOG[0])
    events = {"kind": EVENTS, "table_id": USER_TABLE_ID, "first_version": -1, "last_version": -1}
    publish(log, 1, 2, 3, **events)
    prints = {epoch: log.read(epoch).fingerprint for epoch in (1, 2, 3)}
    for epoch in (1, 2):
        channel.trim_manifest(log.stream, epoch)
    last = log.newest_manifest()
    assert last is not None
    copy = CopyOf("r1", logs=((log.stream, last.log_id, copied, prints[copied]),))
    manifest = replace(last, kind=COPY, copy=copy)
    new_logs: set[str] = set()
    found = gap_behind(manifest, [log], "seattle", ("newark",), lambda: new_logs)
    assert (found is None) == fits
    assert fits or "were removed before this site read them" in str(found)
    new_logs.add(last.log_id)
    assert (gap_behind(manifest, [log], "seattle", ("newark",), lambda: new_logs) is None) == fits


def test_a_server_that_has_nothing_says_so(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse() -> Cut:
        raise TargetError("it needs a copy itself")

    monkeypatch.setattr(pair.events, "cut", refuse)
    pair.ask()
    run(pair.server().round())
    (refusal,) = pair.parts()
    assert refusal.copy is not None and refusal.copy.refused == "it needs a copy itself"
    assert b"requires" not in refusal.encode()
