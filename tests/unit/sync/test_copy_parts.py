"""A copy in parts: one version, whatever happens between them, and nothing until all are there."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from applied_pair import COPIES as NAME
from applied_pair import AppliedPair
from fakes import STREAM, commit

from spark_wan.apply.applier import ApplyResult
from spark_wan.apply.take import CopyTaker
from spark_wan.errors import ManifestError, SourceError, SourceUnreadableError, StoppedError
from spark_wan.log.stream_log import StreamLog
from spark_wan.runtime import progress
from spark_wan.sender.serve import (
    LARGE_BYTES,
    LOOK_INTERVAL,
    MOST_PARTS,
    PACED_SECONDS,
    PARTS,
    CopyServer,
    PublishedTable,
)
from spark_wan.sender.serve import parts_of as number_of_parts
from spark_wan.steps import run
from spark_wan.wire.ack import Ack, Wanted
from spark_wan.wire.manifest import Manifest

PART = ["copy.3 frames-written", "copy.4 manifest-added"]
SERVE = ["copy.1 asked", "copy.2 planned", *PART * PARTS]


class Pair(AppliedPair):
    """newark's table is so large that a copy of it goes in parts."""

    def __init__(self) -> None:
        super().__init__()
        self.newark.source.size = LARGE_BYTES + 1
        self.pauses: list[float] = []

    def server(self, rate: int | None = None) -> CopyServer:
        """A server that knows only what is durable."""
        settings = replace(self.newark.settings, stream=NAME, addressees=("seattle",))
        published = StreamLog(self.channel, STREAM)
        table = PublishedTable(settings, published, self.newark.source)
        clock, pause = self.newark.clock, self.pauses.append
        return CopyServer(settings, self.copies, table, clock, rate=rate, pause=pause)

    def ask(self, request: str | None = "r1") -> None:
        """Ask for a copy; None: for none any more."""
        ack = self.copies.ack("seattle") or Ack("seattle", NAME, "", 0)
        wanted = None if request is None else Wanted(request)
        self.copies.put_ack(replace(ack, wanted=wanted))

    def serve_parts(self, number: int) -> None:
        """Serve so many parts, and die."""
        list(itertools.islice(self.server().round(), 2 + 2 * number))

    def take(self) -> ApplyResult:
        taker = CopyTaker("seattle", "orders", self.copies, self.target, self.ledger())
        result = run(taker.round())
        assert self.target.open_work == 0
        return result

    def read(self) -> list[str]:
        """Return which parts of which versions were read."""
        return [each for each in self.newark.source.calls if each.startswith("snapshot")]

    def parts(self) -> list[Manifest]:
        return [self.copies.reread(epoch) for epoch in self.copies.epochs()]

    def in_channel(self) -> set[str]:
        return {path for path, _ in self.channel.frames(NAME)}


@pytest.fixture
def pair() -> Pair:
    return Pair()


def of(manifest: Manifest | None) -> tuple[int, int]:
    assert manifest is not None and manifest.copy is not None
    return manifest.copy.part, manifest.copy.parts


def test_each_part_is_an_epoch_and_all_are_one_copy(pair: Pair) -> None:
    pair.ask()
    steps = pair.server().round()
    assert list(steps) == SERVE
    parts = pair.parts()
    assert [of(each) for each in parts] == [(number, PARTS) for number in range(1, PARTS + 1)]
    assert len({(each.last_version, each.table_id, each.identity) for each in parts}) == 1
    assert len(pair.in_channel()) == PARTS
    result = pair.take()
    assert (result.held, result.applied, result.epochs, result.events) == (None, 4, 4, 4)
    run(pair.server().round())
    assert pair.in_channel() == set()
    (last,) = pair.parts()
    assert last.frames == ()


@pytest.mark.parametrize("number", range(PARTS))
def test_nothing_is_taken_until_all_parts_are_there(pair: Pair, number: int) -> None:
    """Fails when the rows of the other parts vanish from the site's table."""
    pair.ask()
    pair.serve_parts(number)
    written = len(pair.target.commits)
    result = pair.take()
    assert (result.awaits_copy or number == 0) and result.held is None
    assert len(pair.target.commits) == written
    run(pair.server().round())
    assert pair.take().held is None
    assert len(pair.target.commits) == written + 1


@pytest.mark.parametrize("died", range(1, len(SERVE) + 1))
def test_a_server_that_dies_goes_on_with_the_next_part(pair: Pair, died: int) -> None:
    """Twice. Fails when a part that is in the log is read again."""
    pair.ask()
    for _ in range(2):
        list(itertools.islice(pair.server().round(), died))
    run(pair.server().round())
    assert [of(each)[0] for each in pair.parts()] == [1, 2, 3, 4]
    again = (1, 2) if SERVE[died - 1] == PART[0] else (0,)
    assert len(pair.read()) - PARTS in again
    assert {each.split(",")[0] for each in pair.read()} == {"snapshot 1"}
    assert pair.take().held is None


def test_the_writer_goes_on_while_a_copy_is_served(pair: Pair) -> None:
    """All parts are of the version of the first. Fails when a busy table is never copied."""
    pair.ask()
    for step in pair.server().round():
        if step in PART:
            pair.newark.source.add()
            pair.newark.rounds()
    last = pair.parts()[-1]
    assert of(last) == (PARTS, PARTS) and last.last_version == 1
    assert pair.take().held is None
    assert pair.apply().held is None
    ledger = pair.ledger()
    ledger.catch_up(pair.target)
    assert list(ledger.progress.through.values()) == [pair.newark.source.newest().version]


def test_a_version_that_cannot_be_read_any_more_is_given_up(pair: Pair) -> None:
    """VACUUM has taken files of it. The copy begins anew, with the newest version. Fails when parts
    of two versions are taken for one copy, or earlier parts stay in the channel."""
    pair.ask()
    pair.serve_parts(2)
    snapshot = pair.newark.source.snapshot

    def vacuumed(version: int, *more: Any) -> Any:
        if version == 1:
            raise SourceError("files of version 1 are gone")
        return snapshot(version, *more)

    pair.newark.source.snapshot = vacuumed  # type: ignore[method-assign]
    pair.newark.source.add()
    run(pair.server().round())
    parts = pair.parts()
    assert [of(each)[0] for each in parts] == [1, 2, 3, 4]
    assert {each.last_version for each in parts} == {2}
    assert pair.in_channel() == {frame.path for each in parts for frame in each.frames}
    assert pair.take().held is None


def test_a_source_that_is_another_one_between_parts_is_refused(pair: Pair) -> None:
    pair.ask()
    pair.serve_parts(2)
    pair.newark.source.commits[1] = replace(commit(1), time=5)
    manifest = run(pair.server().round())
    assert manifest is not None and manifest.copy is not None and manifest.copy.refused
    assert pair.in_channel() == set()


def test_another_request_between_parts_replaces_the_first(pair: Pair) -> None:
    pair.ask()
    steps = pair.server().round()
    for step in steps:
        if step == PART[1] and len(pair.read()) == 2:
            pair.ask("r2")
    assert len(pair.read()) == 2, "the rest of the first copy was read"
    run(pair.server().round())
    parts = pair.parts()
    assert [of(each)[0] for each in parts] == [1, 2, 3, 4]
    assert {each.copy.request for each in parts if each.copy} == {"r2"}
    assert len(pair.in_channel()) == PARTS


@pytest.mark.parametrize("number", [1, PARTS])
def test_the_rows_of_a_copy_that_is_not_wanted_any_more_are_removed(
    pair: Pair, number: int
) -> None:
    """Fails when a whole table stays in the channel until somebody asks again."""
    pair.ask()
    pair.serve_parts(number)
    pair.ask(None)
    assert list(pair.server().round()) == ["copy.5 removed"]
    assert pair.in_channel() == set()
    assert list(pair.server().round()) == []


def other_version(manifest: Manifest) -> Manifest:
    return replace(manifest, last_version=0)


def other_request(manifest: Manifest) -> Manifest:
    assert manifest.copy is not None
    return replace(manifest, copy=replace(manifest.copy, request="r0"))


def same_part(manifest: Manifest) -> Manifest:
    assert manifest.copy is not None
    return replace(manifest, copy=replace(manifest.copy, part=1))


@pytest.mark.parametrize("forged", [other_version, other_request, same_part])
def test_parts_of_two_copies_are_not_taken_for_one(
    pair: Pair, forged: Callable[[Manifest], Manifest]
) -> None:
    pair.ask()
    pair.serve_parts(1)
    (first,) = pair.parts()
    assert first.copy is not None
    for number in range(2, PARTS + 1):
        last = pair.parts()[-1]
        copy = replace(first.copy, part=number)
        part = replace(first, epoch=number, previous=last.fingerprint, copy=copy)
        pair.copies.append(forged(part) if number == 2 else part)
    written = len(pair.target.commits)
    result = pair.take()
    assert result.held is not None and "is not part" in str(result.cause)
    assert len(pair.target.commits) == written


def test_who_does_not_know_of_parts_refuses_one(pair: Pair) -> None:
    """Fails when an older receiver takes the first part for the copy."""
    pair.ask()
    pair.serve_parts(1)
    (part,) = pair.parts()
    assert b'"requires":["copy.part"]' in part.encode()
    pair.newark.source.size = 1_000
    pair.ask("r2")
    run(pair.server().round())
    assert b"requires" not in pair.parts()[-1].encode()
    wrong = part.encode().replace(b'"part":1', b'"part":9')
    with pytest.raises(ManifestError):
        Manifest.decode(wrong, "here")


@pytest.mark.parametrize(
    ("size", "rate", "number"),
    [
        (None, None, 1),
        (None, 10, 1),
        (LARGE_BYTES, None, 1),
        (LARGE_BYTES + 1, None, PARTS),
        (10**15, None, PARTS),
        (0, 10, 1),
        (600, 10, 1),
        (601, 10, 2),
        (10**15, 10, MOST_PARTS),
    ],
)
def test_the_number_of_parts(size: int | None, rate: int | None, number: int) -> None:
    assert number_of_parts(size, rate) == number


def test_parts_keep_to_the_rate(pair: Pair) -> None:
    """What a part took counts; there is nothing to wait for behind the last one."""
    pair.newark.source.size = 4 * 10 * PACED_SECONDS
    pair.ask()
    server = pair.server(rate=10)
    for step in server.round():
        if step == PART[0]:
            pair.newark.clock.pass_seconds(0.5)
    sizes = [each.bytes for each in pair.parts()]
    assert len(sizes) == 4
    assert sum(pair.pauses) == pytest.approx(sum(size / 10 - 0.5 for size in sizes[:-1]))
    assert 0 < max(pair.pauses) <= LOOK_INTERVAL


def test_a_copy_that_is_withdrawn_while_the_server_waits_ends(pair: Pair) -> None:
    """Fails when it keeps its place until the wait of an hour is over."""
    pair.newark.source.size = 2 * PACED_SECONDS
    pair.ask()
    server = pair.server(rate=1)

    def withdrawn(seconds: float) -> None:
        pair.pauses.append(seconds)
        pair.ask(None)

    server.pause = withdrawn
    run(server.round())
    assert pair.pauses == [LOOK_INTERVAL]
    assert len(pair.read()) == 1


def test_a_version_that_stays_unreadable_is_given_up_for_a_newer_one(pair: Pair) -> None:
    """A file of it is damaged. Fails when the copy goes on with that version for ever."""
    pair.ask()
    pair.serve_parts(2)
    snapshot, server = pair.newark.source.snapshot, pair.server()

    def damaged(version: int, *more: Any) -> Any:
        if version == 1:
            raise SourceUnreadableError("a file is damaged")
        return snapshot(version, *more)

    pair.newark.source.snapshot = damaged  # type: ignore[method-assign]
    with pytest.raises(SourceUnreadableError):
        run(server.round())
    pair.newark.source.add()
    run(server.round())
    assert {each.last_version for each in pair.parts()} == {2}
    assert pair.take().held is None


def test_a_copy_whose_addressees_changed_between_parts_begins_anew(pair: Pair) -> None:
    """All its parts must say the same."""
    pair.ask()
    pair.serve_parts(2)
    server = pair.server()
    server.settings = replace(server.settings, sent_to=("seattle", "denver"))
    run(server.round())
    assert [of(each)[0] for each in pair.parts()] == [1, 2, 3, 4]
    assert {each.sent_to for each in pair.parts()} == {("seattle", "denver")}


def test_a_job_that_is_stopped_between_parts_ends(pair: Pair) -> None:
    pair.ask()
    server = pair.server(rate=1)

    def stopped(seconds: float) -> None:
        raise StoppedError("stopped")

    server.pause = stopped
    pair.newark.source.size = 120
    with pytest.raises(StoppedError):
        run(server.round())
    assert [of(each) for each in pair.parts()] == [(1, 2)]


def test_how_much_of_a_copy_is_done(pair: Pair) -> None:
    pair.ask()
    shares = []
    for step in pair.server().round():
        if step == PART[1]:
            (work,) = progress.works()
            shares.append(work.progress().share)
            assert (work.begun.work, work.begun.stream) == ("copying", NAME)
    assert shares == [0.0, 0.25, 0.5, 0.75]
    assert progress.works() == []
