"""A copy of a table: asked for, served and taken, with tables that are lists of commits."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from applied_pair import COPIES as NAME
from applied_pair import AppliedPair
from fakes import (
    MANIFEST,
    STREAM,
    Target,
    commit,
    conflict,
    publish,
    schema,
)
from ledgers import mark

from spark_wan.apply.applier import ApplyResult
from spark_wan.apply.change import Change
from spark_wan.apply.replace import MOST_COMPARISONS
from spark_wan.apply.take import CopyTaker
from spark_wan.channels.base import Note
from spark_wan.errors import ManifestError, SourceUnreadableError
from spark_wan.ledger.folding import fold
from spark_wan.ledger.progress import origin_of
from spark_wan.log.stream_log import StreamLog
from spark_wan.sender.serve import CopyServer, PublishedTable
from spark_wan.steps import run
from spark_wan.wire.ack import Ack, Wanted
from spark_wan.wire.manifest import COPY, CopyOf, Manifest
from spark_wan.wire.mark import Mark
from spark_wan.wire.records import EpochRef

ORIGIN = origin_of(MANIFEST)
SERVE = ["copy.1 asked", "copy.2 planned", "copy.3 frames-written", "copy.4 manifest-added"]
TAKE = [
    "take.1 asked",
    "take.2 caught-up",
    "take.3 read",
    "take.4 resolved",
    "take.5 recorded",
    "take.6 written",
    "take.7 ledgered",
    "take.8 acked",
]


class Pair(AppliedPair):
    """The same, with what serves and takes copies."""

    def server(self) -> CopyServer:
        """A server that knows only what is durable."""
        settings = replace(self.newark.settings, stream=NAME, addressees=("seattle",))
        published = StreamLog(self.channel, STREAM)
        source, clock = self.newark.source, self.newark.clock
        table = PublishedTable(settings, published, source)
        return CopyServer(settings, self.copies, table, clock)

    def taker(self) -> CopyTaker:
        return CopyTaker("seattle", "orders", self.copies, self.target, self.ledger())

    def ask(self, request: str = "r1", **wanted: Any) -> None:
        ack = self.copies.ack("seattle") or Ack("seattle", NAME, "", 0)
        self.copies.put_ack(replace(ack, wanted=Wanted(request, **wanted)))

    def serve(self) -> Manifest | None:
        return run(self.server().round())

    def refusal(self, served: bool = False) -> str:
        """Return why the request is refused. Nothing of the rows is left in the channel."""
        manifest = self.copies.newest_manifest() if served else self.serve()
        assert manifest is not None and manifest.copy is not None
        assert not manifest.frames and self.channel.frames(NAME) == []
        assert manifest.copy.request == "r1" and manifest.copy.vector == ()
        assert self.serve() is None  # it is answered
        return str(manifest.copy.refused)

    def take(self) -> ApplyResult:
        result = run(self.taker().round())
        assert self.target.open_work == 0
        return result

    def copies_taken(self) -> list[Mark]:
        marks = (Mark.read(each.user_metadata, "seattle", "orders") for each in self.target.commits)
        return [each for each in marks if each is not None and each.replaced is not None]

    def synchronized(self) -> None:
        """The stream goes on behind the copy, and a later process sees the same."""
        assert self.apply().held is None
        self.newark.source.add()
        self.newark.rounds()
        for _ in range(2):
            result = self.apply()
            assert (result.held, result.cause) == (None, None)
        through = self.newark.source.newest().version
        ledger = self.ledger()
        ledger.catch_up(self.target)
        assert ledger.progress.through == {ORIGIN: through}


@pytest.fixture
def pair() -> Pair:
    return Pair()


def steps(generator: Any) -> list[str]:
    return list(generator)


def test_the_steps_are_these(pair: Pair) -> None:
    assert steps(pair.server().round()) == []
    pair.ask()
    assert steps(pair.server().round()) == SERVE
    assert steps(pair.taker().round()) == TAKE
    assert steps(pair.server().round()) == ["copy.5 removed"]
    assert_removed(pair)
    assert steps(pair.server().round()) == []
    assert steps(pair.taker().round()) == ["take.1 asked", "take.8 acked"]
    ack = pair.copies.ack("seattle")
    assert ack is not None and (ack.applied, ack.wanted, ack.held) == (2, None, None)


def assert_removed(pair: Pair) -> None:
    """The rows of a copy that was taken are gone. Its log goes on: a number is used once."""
    (epoch,) = pair.copies.since(0)
    assert pair.copies.reread(epoch).frames == ()


def test_a_copy_has_the_rows_of_one_version_and_says_which(pair: Pair) -> None:
    pair.newark.source.add()
    pair.ask()
    manifest = pair.serve()
    assert manifest is not None
    version = pair.newark.source.newest().version
    assert pair.newark.source.calls[-1] == f"snapshot {version}"
    assert (manifest.kind, manifest.last_version) == (COPY, version)
    assert manifest.copy == CopyOf("r1", ((*ORIGIN, version),))
    result = pair.take()
    assert (result.held, result.applied, result.epochs) == (None, 1, 1)
    (taken,) = pair.copies_taken()
    assert (taken.vector, taken.local) == (((*ORIGIN, version),), 0)
    pair.synchronized()
    assert pair.target.written == [[1], [1], [2]]  # nothing of it twice


def dropped(pair: Pair) -> None:
    pair.target.id, pair.target.commits = None, []


def replaced(pair: Pair) -> None:
    pair.target.id = "target-2"
    pair.target.commits = [commit(0), commit(1)]


def restored(pair: Pair) -> None:
    pair.target.put(None, "RESTORE")


def restored_and_written_to(pair: Pair) -> None:
    del pair.target.commits[1:]
    for _ in range(4):
        pair.target.put(None)


def ledger_lost(pair: Pair) -> None:
    pair.store.rows, pair.target.commits = [], [commit(7)]


def ledger_outdated(pair: Pair) -> None:
    pair.target.commits = [commit(7)]
    pair.target.put(mark(9).user_metadata())


def epochs_missing(pair: Pair) -> None:
    for _ in range(2):
        pair.newark.source.add()
        pair.newark.rounds()
    for epoch in pair.newark.log.since(0)[:-1]:
        pair.channel.trim_manifest(STREAM, epoch)


def column_dropped(pair: Pair) -> None:
    pair.target.columns = schema(id="long")
    gone = replace(commit(9, "DROP COLUMNS"), parameters={"columns": '["city"]'})
    pair.target.commits.append(replace(gone, version=pair.target.commits[-1].version + 1))
    pair.newark.source.add()
    pair.newark.rounds()


FAULTS = [
    column_dropped,
    dropped,
    replaced,
    restored,
    restored_and_written_to,
    ledger_lost,
    ledger_outdated,
    epochs_missing,
]


@pytest.mark.parametrize("fault", FAULTS, ids=[fault.__name__ for fault in FAULTS])
def test_a_copy_mends_it(pair: Pair, fault: Callable[[Pair], None]) -> None:
    """b06, f28, f32, f46: whatever the site lacks, it has afterwards."""
    fault(pair)
    assert pair.apply().needs is not None
    pair.ask()
    pair.serve()
    assert pair.take().held is None
    pair.synchronized()


@pytest.mark.parametrize("fault", FAULTS, ids=[fault.__name__ for fault in FAULTS])
@pytest.mark.parametrize("died", range(1, len(TAKE) + 1))
def test_a_receiver_that_dies_at_any_step_of_a_copy(
    fault: Callable[[Pair], None], died: int
) -> None:
    """Twice. Fails when a copy that is in the table is written once more."""
    pair = Pair()
    fault(pair)
    pair.apply()
    pair.ask()
    pair.serve()
    for _ in range(2):
        list(itertools.islice(pair.taker().round(), died))
        pair.target.open_work = 0
    pair.take()
    assert len(pair.copies_taken()) == 1
    pair.synchronized()


@pytest.mark.parametrize("died", range(1, len(SERVE) + 1))
def test_a_sender_that_dies_at_any_step_of_a_copy(pair: Pair, died: int) -> None:
    dropped(pair)
    pair.ask()
    for _ in range(2):
        list(itertools.islice(pair.server().round(), died))
    pair.serve()
    assert pair.take().held is None
    pair.synchronized()
    pair.serve()
    assert_removed(pair)


def test_rows_of_a_copy_that_was_never_finished_are_swept(pair: Pair) -> None:
    """A day later, with the next copy. Fails when a whole table stays in the channel for ever."""
    pair.ask()
    list(itertools.islice(pair.server().round(), SERVE.index("copy.3 frames-written") + 1))
    assert len(pair.channel.frames(NAME)) == 1
    pair.serve()
    assert len(pair.channel.frames(NAME)) == 2
    written = max(time for _, time in pair.channel.frames(NAME))
    pair.channel.now = lambda: written + 2 * 86_400  # type: ignore[method-assign]
    pair.take()
    pair.ask("r2")
    pair.serve()
    assert len(pair.channel.frames(NAME)) == 1


def test_rows_of_a_copy_that_was_never_finished_are_swept_without_another(pair: Pair) -> None:
    """A day later, when the server looks again. Fails when they stay until somebody asks."""
    pair.ask()
    list(itertools.islice(pair.server().round(), SERVE.index("copy.3 frames-written") + 1))
    pair.serve()
    pair.take()
    pair.serve()
    (unfinished,) = pair.channel.frames(NAME)
    pair.channel.now = lambda: unfinished[1] + 2 * 86_400  # type: ignore[method-assign]
    pair.serve()
    assert pair.channel.frames(NAME) == []


def test_what_a_server_that_dies_while_it_trims_leaves_is_removed(pair: Pair) -> None:
    """Fails when a copy stays in the channel behind the manifest that ends it."""
    pair.ask()
    pair.serve()
    pair.take()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(StreamLog, "trim", lambda *_: None)
        pair.serve()
    assert len(pair.copies.since(0)) == 2 and len(pair.channel.frames(NAME)) == 1
    pair.serve()
    assert_removed(pair)
    assert pair.channel.frames(NAME) == []


def test_two_servers_answer_a_request_once(pair: Pair) -> None:
    """Fails when the slower one writes the whole table once more, and removes the rows that are
    being read."""
    pair.ask()
    slow = pair.server().round()
    assert next(slow) == "copy.1 asked"
    pair.serve()
    run(slow)
    assert pair.copies.since(0) == [1]
    assert pair.take().epochs == 1
    pair.synchronized()


def test_an_ack_that_was_lost_is_written_again(pair: Pair) -> None:
    """f11. Fails when the rows of the copy stay in the channel because nobody says that they are
    taken."""
    pair.ask()
    pair.serve()
    pair.take()
    pair.channel.put_note(Note("ack", NAME, "seattle"), None)
    assert pair.take().epochs == 0
    pair.serve()
    assert_removed(pair)
    assert len(pair.copies_taken()) == 1


def test_no_copy_is_served_before_anything_is_published() -> None:
    """Fails when the site has a version to which the first snapshot of the stream does not fit."""
    pair = Pair(published=False)
    pair.ask()
    with pytest.raises(SourceUnreadableError, match="nothing of the table has been published"):
        pair.serve()
    pair.newark.rounds()
    assert pair.serve() is not None


def test_a_copy_has_a_number_that_another_receiver_has_not_used(pair: Pair) -> None:
    """It has taken one into a table that was dropped since. Fails when the number is counted from
    what this one remembers: the other one takes the copy for one that it knows."""
    other, this = pair.taker(), pair.taker()
    for receiver in (this, other):
        run(receiver.round())
        receiver.ledger.catch_up(pair.target)
    for receiver, name in ((other, "target-2"), (this, "target-3")):
        pair.target.id, pair.target.commits = name, [commit(0), commit(1)]
        pair.ask(name)
        pair.serve()
        assert run(receiver.round()).epochs == 1
    assert other.ledger.catch_up(pair.target) == this.ledger.last_apply + 1
    assert other.ledger.target_id == "target-3"
    pair.synchronized()


@pytest.mark.parametrize("first", range(1, len(TAKE)))
def test_two_receivers_take_one_copy(pair: Pair, first: int) -> None:
    """One waits after each step while the other takes it. Delta lets one number through."""
    pair.ask()
    pair.serve()
    slow = pair.taker().round()
    for _ in range(first):
        next(slow)
    run(pair.taker().round())
    run(slow)
    assert pair.target.open_work == 0
    pair.synchronized()


def test_a_conflict_with_another_writer_is_tried_again(pair: Pair) -> None:
    pair.ask()
    pair.serve()
    pair.target.before_write = [conflict, conflict]
    assert pair.take().held is None
    pair.synchronized()


def test_a_second_request_replaces_the_first(pair: Pair) -> None:
    """b79. The copy that answers the first is not taken any more."""
    pair.ask("r1")
    pair.serve()
    pair.ask("r2")
    assert pair.take().epochs == 0 and pair.copies_taken() == []
    second = pair.serve()
    assert second is not None and second.epoch == 2
    assert pair.copies.since(0) == [2]
    assert pair.take().epochs == 1
    pair.synchronized()


def test_a_copy_that_is_behind_the_table_is_asked_for_again(pair: Pair) -> None:
    """The site has applied more since it asked, and that is trimmed. Fails when the copy takes the
    table back: it would lack epochs that are no longer in the channel."""
    pair.ask()
    pair.serve()
    pair.newark.source.add()
    pair.newark.rounds()
    assert pair.apply().epochs == 1
    for epoch in pair.newark.log.since(0)[:-1]:
        pair.channel.trim_manifest(STREAM, epoch)
    result = pair.take()
    assert result.awaits_copy and "Another copy was asked for" in str(result.cause)
    assert pair.copies_taken() == []
    version = pair.newark.source.newest().version
    ack = pair.copies.ack("seattle")
    assert ack is not None and ack.wanted is not None
    assert ack.wanted.request != "r1" and ack.wanted.least == ((*ORIGIN, version),)
    pair.serve()
    result = pair.take()
    assert (result.awaits_copy, result.held, result.epochs) == (False, None, 1)
    pair.synchronized()


def test_a_copy_of_the_difference_is_one_from_the_request_on(pair: Pair) -> None:
    """Also of the request that is made again. Fails when one of them forgets it."""
    pair.ask(difference=True)
    manifest = pair.serve()
    assert manifest is not None and manifest.copy is not None and manifest.copy.difference
    pair.newark.source.add()
    pair.newark.rounds()
    assert pair.apply().epochs == 1
    assert pair.take().awaits_copy
    ack = pair.copies.ack("seattle")
    assert ack is not None and ack.wanted is not None and ack.wanted.difference


def test_dead_letters_of_copies_add_up(pair: Pair) -> None:
    """As the format says. Fails when each copy counts its own: a fold then takes those of the
    second for counted, and they count no more."""
    for letters in (3, 1):
        pair.target.letters_per_apply = letters
        pair.ask(f"r{letters}")
        pair.serve()
        pair.take()
    assert [each.applied[0].dead_letters for each in pair.copies_taken()] == [3, 4]


def test_a_fold_keeps_what_was_read_since_a_copy(pair: Pair) -> None:
    """Beside a position of before it, at a higher version. Fails when the fold keeps the highest
    position alone: log cleanup may have removed what the other one tells of."""
    for _ in range(30):
        pair.target.put(None, time=0)
    pair.apply()
    pair.ledger().catch_up(pair.target)
    del pair.target.commits[2:]
    for _ in range(2):
        pair.target.put(None)
    pair.ask()
    pair.serve()
    pair.take()
    pair.target.put(None, time=0)
    pair.ledger().catch_up(pair.target)
    before, since = pair.store.positions
    assert before.target_version > since.target_version
    assert run(fold(pair.store, "seattle", "orders", least=1)) > 0
    assert since in pair.store.positions


def test_nothing_is_taken_that_was_not_asked_for(pair: Pair) -> None:
    pair.ask("r1")
    pair.serve()
    pair.copies.put_ack(Ack("seattle", NAME, "", 0))
    assert pair.take().epochs == 0 and pair.copies_taken() == []


@pytest.mark.parametrize("removed", [False, True])
def test_a_running_receiver_takes_one_copy_after_another(pair: Pair, removed: bool) -> None:
    """Also when somebody has removed the stream in between, so that its numbers begin anew. Fails
    when it knows the first one's manifest by its number, and takes it for the second."""
    server, taker = pair.server(), pair.taker()
    for request in ("r1", "r2"):
        if removed:
            pair.channel.remove(NAME)
        pair.newark.source.add()
        pair.ask(request)
        run(server.round())
        assert run(taker.round()).epochs == 1
        run(server.round())
        assert run(taker.round()).epochs == 0
        assert_removed(pair)
    assert len(pair.copies_taken()) == 2
    pair.synchronized()


def test_a_request_that_is_made_while_a_copy_is_taken_stays(pair: Pair) -> None:
    """b79. Fails when the answer to the first request replaces the second."""
    pair.ask("r1")
    pair.serve()
    taking = pair.taker().round()
    while next(taking) != "take.6 written":
        pass
    pair.ask("r2")
    run(taking)
    ack = pair.copies.ack("seattle")
    assert ack is not None and ack.wanted == Wanted("r2")
    assert pair.take().awaits_copy
    pair.serve()
    assert pair.take().epochs == 1
    pair.synchronized()


def test_the_table_waits_until_a_copy_that_was_asked_for_is_there(pair: Pair) -> None:
    """Otherwise the next one would be too old again. Fails when a round without one forgets it."""
    pair.ask("r1")
    pair.serve()
    pair.ask("r2")
    taker = pair.taker()
    for _ in range(2):
        assert run(taker.round()).awaits_copy and taker.is_awaited()
    pair.serve()
    assert not run(taker.round()).awaits_copy and not taker.is_awaited()


def source_restored(pair: Pair) -> None:
    """And written to again, beyond what was published."""
    del pair.newark.source.commits[1:]
    for _ in range(4):
        pair.newark.source.add(time=7)


def source_replaced(pair: Pair) -> None:
    pair.newark.source.id = "another"


def keys_changed(pair: Pair) -> None:
    pair.newark.settings = replace(pair.newark.settings, keys=("city",))


@pytest.mark.parametrize("fault", [source_restored, source_replaced, keys_changed])
def test_no_copy_of_a_source_that_is_not_the_published_one_is_served(
    pair: Pair, fault: Callable[[Pair], None]
) -> None:
    """Its rows match no version that the events tell of. Fails when only the events are held."""
    fault(pair)
    pair.ask()
    assert "no copy is served: the source is not the table" in pair.refusal()


def test_a_source_that_cannot_be_read_now_is_no_refusal(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is tried again. Fails when the site that asks has to ask another one."""

    def fail() -> None:
        raise SourceUnreadableError("slow down")

    monkeypatch.setattr(pair.newark.source, "newest", fail)
    pair.ask()
    with pytest.raises(SourceUnreadableError):
        pair.serve()
    assert pair.copies.since(0) == []


@pytest.mark.parametrize("most", [None, 1], ids=["in sight", "far behind"])
def test_no_copy_goes_around_a_hold_of_the_sender(pair: Pair, most: int | None) -> None:
    """A TRUNCATE that is not published yet, perhaps behind more commits than the history returns at
    once. Fails when the site gets the emptied table."""
    pair.newark.source.most = most
    for _ in range(2):
        pair.newark.source.add()
    pair.newark.source.add("TRUNCATE")
    pair.ask()
    with pytest.raises(SourceUnreadableError, match="is a TRUNCATE, which is not published"):
        pair.serve()
    assert pair.copies.since(0) == []


def test_a_refused_copy_is_not_taken(pair: Pair) -> None:
    """Another site is asked; the last one says why there is no copy. Fails when the table is
    emptied."""
    table_id = pair.newark.source.id
    source_replaced(pair)
    pair.ask()
    pair.serve()
    before, asked = len(pair.target.commits), []
    held = pair.take()
    assert held.held is not None and "no site serves a copy of the table now" in str(held.cause)
    ack = pair.copies.ack("seattle")
    assert ack is not None and ack.wanted is not None and ack.held is not None
    taker = pair.taker()
    taker.refused = lambda wanted, cause: asked.append((wanted.request, cause)) is None
    assert run(taker.round()).held is None
    ack = pair.copies.ack("seattle")
    assert ack is not None and (ack.wanted, ack.held) == (None, None)
    assert [request for request, _ in asked] == ["r1"]
    assert len(pair.target.commits) == before
    # A refusal ends with the next request.
    pair.newark.source.id = table_id
    pair.ask("r2")
    pair.serve()
    assert pair.take().held is None
    assert pair.copies_taken()


def test_a_copy_of_an_earlier_source_is_not_taken_from_a_peer(pair: Pair) -> None:
    """The site has rows of a later source table already. Fails when the table goes back."""
    pair.ask()
    pair.serve()
    taker = pair.taker()
    taker.ledger.catch_up(pair.target)
    later = {**taker.ledger.progress.through, ("newark", "a later one", "all"): 3}
    newest = pair.copies.newest_manifest()
    assert newest is not None
    for from_writer in (True, False):
        writer = replace(taker._writer, from_writer=from_writer)
        writer.ledger.progress.through = dict(later)
        assert writer._has_more(newest) is not from_writer


def test_a_source_that_is_replaced_while_it_is_copied(pair: Pair) -> None:
    pair.ask()
    serving = pair.server().round()
    while next(serving) != "copy.3 frames-written":
        pass
    source_replaced(pair)
    run(serving)
    assert "no copy is served" in pair.refusal(served=True)


def test_a_copy_of_another_site_or_sender_is_not_taken(pair: Pair) -> None:
    """It may be signed by a site that has a key, and name the request. Fails when it is taken."""
    pair.ask()
    served = pair.serve()
    assert served is not None
    for wrong in (
        {"via": EpochRef("x.y.orders", "a" * 32, 1, "f" * 32)},
        {"addressees": ("seattle", "tacoma")},
        {"copy": CopyOf("r1", ((*ORIGIN, 900),))},
    ):
        log = pair.copies
        newest = log.newest_manifest()
        assert newest is not None
        fields = {"epoch": newest.epoch + 1, "previous": newest.fingerprint, **wrong}
        log.append(replace(served, **fields))
        assert "is no copy that the sender" in str(pair.take().cause)
    assert pair.copies_taken() == []


def test_a_table_that_another_one_has_its_rows_in_is_not_replaced(pair: Pair) -> None:
    other = replace(mark(1), table="invoices", site="seattle")
    pair.target.id = "target-2"
    pair.target.commits = [commit(0), commit(1, user_metadata=other.user_metadata())]
    pair.ask()
    pair.serve()
    assert "rows that were applied as table invoices" in str(pair.take().cause)


def test_local_commits_before_a_copy_do_not_count(pair: Pair) -> None:
    pair.target.put(None)
    pair.ask()
    pair.serve()
    pair.take()
    ledger = pair.ledger()
    ledger.catch_up(pair.target)
    assert ledger.known_local == 0


def compared(target: Target, others: int) -> None:
    """The next writes find what differs in an earlier version; so many are late."""
    write = target.write

    def late(change: Change, mark: Mark) -> None:
        change.compared = True
        if others > len(target.written) - before:
            target.put(None)
        write(change, mark)

    before = len(target.written)
    target.write = late  # type: ignore[method-assign]


@pytest.mark.parametrize("others", [0, 1, 2])
def test_what_comes_while_a_table_is_compared_is_compared_too(pair: Pair, others: int) -> None:
    """Fails when a row that somebody wrote between the comparison and the write stays for ever."""
    pair.ask()
    pair.serve()
    compared(pair.target, others)
    assert pair.take().held is None
    assert len(pair.copies_taken()) == 1 + others
    ledger = pair.ledger()
    ledger.catch_up(pair.target)
    assert ledger.known_local == 0
    pair.synchronized()


@pytest.mark.parametrize("step", ["take.6 written", "take.7 ledgered"])
def test_a_table_is_compared_once_more_after_a_crash(pair: Pair, step: str) -> None:
    """Fails when the row that came in between is forgotten with the process."""
    pair.ask()
    pair.serve()
    compared(pair.target, 1)
    list(itertools.islice(pair.taker().round(), TAKE.index(step) + 1))
    pair.target.__dict__.pop("write")
    assert pair.take().held is None
    assert len(pair.copies_taken()) == 2
    assert pair.ledger().catch_up(pair.target) == 4


def test_a_table_that_is_written_to_all_the_time_gets_its_copy(pair: Pair) -> None:
    """The others' commits count, so the site serves no copy."""
    pair.ask()
    pair.serve()
    compared(pair.target, 99)
    assert pair.take().held is None
    assert len(pair.copies_taken()) == MOST_COMPARISONS
    ledger = pair.ledger()
    ledger.catch_up(pair.target)
    assert ledger.known_local == 1


def test_what_belongs_to_a_copy_is_recorded_once(pair: Pair) -> None:
    """Fails when each write that fails leaves the event IDs of a whole table."""
    pair.ask()
    pair.serve()
    pair.target.before_write += [conflict, conflict]
    recorded = len(pair.target.recorded)
    assert pair.take().held is None
    assert len(pair.target.recorded) == recorded + 1
    assert pair.copies_taken()[-1].token == pair.target.recorded[-1][1]


def test_a_copy_names_the_version_of_the_table_that_is_there(pair: Pair) -> None:
    """Fails when it is the last version of the table before, and what comes while the copy is
    written does not count."""
    for _ in range(5):
        pair.newark.source.add()
        pair.newark.rounds()
        pair.apply()
    pair.target.id, pair.target.commits = "target-2", [commit(0, "CREATE TABLE"), commit(1)]
    pair.ask()
    pair.serve()
    compared(pair.target, 1)
    assert pair.take().held is None
    first, second = pair.copies_taken()
    assert (first.replaced, second.replaced) == (1, 3)


def test_what_came_while_a_copy_was_written_counts_for_a_new_ledger(pair: Pair) -> None:
    """Of a table that is not the one that the ledger knows."""
    pair.target.id, pair.target.commits = "target-2", [commit(0, "CREATE TABLE"), commit(1)]
    pair.ask()
    pair.serve()
    pair.target.before_write.append(lambda: pair.target.put(None))
    steps = pair.taker().round()
    assert "take.6 written" in list(itertools.islice(steps, TAKE.index("take.6 written") + 1))
    ledger = pair.ledger()
    ledger.catch_up(pair.target)
    assert (ledger.known_local, ledger.late_commits) == (1, 1)


def test_a_copy_that_has_too_little_is_not_served(pair: Pair) -> None:
    """The source was restored to an older state: the site has more."""
    pair.ask(least=((*ORIGIN, 50),))
    assert "asks for a copy that has version 50 of the table at site newark" in pair.refusal()


def test_what_an_earlier_source_had_is_not_asked_of_the_writer(pair: Pair) -> None:
    """Its table is the one that counts. Fails when a replaced source serves nobody."""
    pair.ask(least=(("newark", "an earlier one", "all", 900), (*ORIGIN, 0)))
    served = pair.serve()
    assert served is not None and served.frames


def test_rows_of_a_copy_are_no_events_and_events_no_copy(pair: Pair) -> None:
    """Fails when a forged manifest in another log is applied as what it is not."""
    copy = {"kind": COPY, "copy": CopyOf("r1", ((*ORIGIN, 40),))}
    log = StreamLog(pair.channel, STREAM)
    newest = log.newest_manifest()
    assert newest is not None
    epoch, log_id = newest.epoch + 1, newest.log_id
    publish(log, epoch, first_version=2, last_version=40, log_id=log_id, **copy)
    assert "is of kind copy, which does not belong" in str(pair.apply().cause)
    pair.ask()
    publish(pair.copies, 1)
    assert "is of kind capture, which does not belong" in str(pair.take().cause)
    assert pair.copies_taken() == []


def test_a_manifest_without_what_its_kind_needs_is_none() -> None:
    whole = replace(MANIFEST, kind=COPY, copy=CopyOf("r1", ((*ORIGIN, 3),)))
    assert Manifest.decode(whole.encode(), "here") == whole
    for wrong in (replace(whole, copy=None), replace(whole, kind="capture")):
        with pytest.raises(ManifestError, match="copy is"):
            Manifest.decode(wrong.encode(), "here")


def test_a_ledger_is_folded_over_a_copy(pair: Pair) -> None:
    """Fails when marks of the table before the copy stay for ever, or count."""
    replaced(pair)
    pair.ask()
    pair.serve()
    pair.take()
    for _ in range(3):
        pair.newark.source.add()
        pair.newark.rounds()
        pair.apply()
    assert run(fold(pair.store, "seattle", "orders", least=2)) > 0
    assert len({row.target_id for row in pair.store.load("orders")}) == 1
    pair.synchronized()


def test_a_position_of_before_a_copy_does_not_count_after_a_fold(pair: Pair) -> None:
    """It is behind the versions that the table has now. Fails when the sum of the marks forgets
    that there was a copy: the table seems to be restored."""
    for _ in range(30):
        pair.target.put(None, time=0)
    pair.apply()
    pair.ledger().catch_up(pair.target)
    assert pair.store.positions[-1].target_version > 30
    kept = [*pair.store.positions]
    del pair.target.commits[2:]
    for _ in range(2):
        pair.target.put(None)
    pair.ask()
    pair.serve()
    pair.take()
    pair.newark.source.add()
    pair.newark.rounds()
    pair.apply()
    assert run(fold(pair.store, "seattle", "orders", least=1)) > 0
    pair.store.positions = kept
    pair.synchronized()


def test_a_copy_into_a_table_with_fewer_versions_than_the_one_before(pair: Pair) -> None:
    """Fails when the ledger goes on from the newest version that any mark has."""
    for _ in range(9):
        pair.newark.source.add()
        pair.newark.rounds()
        pair.apply()
    dropped(pair)
    pair.ask()
    pair.serve()
    assert pair.take().held is None
    pair.synchronized()


def test_what_was_read_of_the_table_before_a_copy_does_not_count(pair: Pair) -> None:
    """A position behind the versions that the table has now. Fails when it holds the table."""
    for _ in range(30):
        pair.target.put(None, time=0)
    pair.apply()
    ledger = pair.ledger()
    ledger.catch_up(pair.target)
    assert pair.store.positions
    del pair.target.commits[2:]
    for _ in range(2):
        pair.target.put(None)
    pair.ask()
    pair.serve()
    assert pair.take().held is None
    pair.synchronized()
