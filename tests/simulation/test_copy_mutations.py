"""What is taken out of copies, the simulation finds."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import seeds
from hypothesis import Phase

from simulation.copying import Copied, CopiedFromPeers
from simulation.peers import LedgerEventIds, ReadIds
from simulation.schedules import FIXED_SEED, mutations, simulate
from simulation.sources import CapturedSource
from spark_wan.apply.change import Change
from spark_wan.apply.replace import CopyWriter
from spark_wan.apply.take import CopyTaker
from spark_wan.errors import WanError
from spark_wan.ledger.ledger import Ledger
from spark_wan.log.writer import LogWriter
from spark_wan.sender.publish import Publisher
from spark_wan.sender.serve import CopyServer
from spark_wan.steps import Steps
from spark_wan.sync.automatic import Synchronizer
from spark_wan.wire.manifest import COPY, CopyOf, Manifest
from spark_wan.wire.mark import Mark

BEGIN = int(seeds.GIVEN or FIXED_SEED)


def vector_of_another_version(patch: pytest.MonkeyPatch) -> None:
    """A copy names the version that is the newest when its rows are written."""
    read = CapturedSource.snapshot

    def snapshot(source: CapturedSource, version: int, *args: Any) -> Any:
        return read(source, max(version - 1, source.table.log.begins), *args)

    patch.setattr(CapturedSource, "snapshot", snapshot)


def rows_of_two_versions(patch: pytest.MonkeyPatch) -> None:
    """Half of a copy's files are read at its version, and half at the one before."""
    read = CapturedSource.snapshot

    def snapshot(source: CapturedSource, version: int, *args: Any) -> Any:
        before = max(version - 1, source.table.log.begins)
        first, second = read(source, version, *args), read(source, before, *args)
        half = len(first.frames) // 2
        return replace(first, frames=first.frames[:half] + second.frames[half:])

    patch.setattr(CapturedSource, "snapshot", snapshot)


def half_a_copy(patch: pytest.MonkeyPatch) -> None:
    """A copy without its last frame."""
    following = LogWriter.following

    def shortened(writer: LogWriter, *args: Any, **fields: Any) -> Manifest:
        if fields.get("kind") == COPY:
            fields["frames"] = fields["frames"][:-1]
        return following(writer, *args, **fields)

    patch.setattr(LogWriter, "following", shortened)


def parts_of_two_versions(patch: pytest.MonkeyPatch) -> None:
    """A server that goes on with a copy reads the newest version."""
    begun = CopyServer._begun

    def newest(server: CopyServer, *asked: Any) -> Any:
        plan = begun(server, *asked)
        if plan is None:
            return None
        cut = server.source.cut()
        return replace(plan, cut=replace(plan.cut, version=cut.version, identity=cut.identity))

    patch.setattr(CopyServer, "_begun", newest)


def taken_before_the_last_part(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(
        "spark_wan.apply.take._answers",
        lambda manifest, wanted: manifest.copy.request == wanted.request,
    )
    only_the_last_part(patch)


def only_the_last_part(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(CopyTaker, "_parts", lambda taker, last: [last])


def swap_keeps_the_old_vector(patch: pytest.MonkeyPatch) -> None:
    mark = CopyWriter._mark

    def kept(writer: CopyWriter, *args: Any) -> Mark:
        return replace(mark(writer, *args), vector=writer.ledger.progress.vector)

    patch.setattr(CopyWriter, "_mark", kept)


def rows_are_added(patch: pytest.MonkeyPatch) -> None:
    """The rows of a copy come to those that are there."""
    patch.setattr(Change, "is_copy", False)


def taken_though_the_table_has_more(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(CopyWriter, "_has_more", lambda writer, manifest: False)


def others_do_not_wait(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(CopyTaker, "is_awaited", lambda taker: False)


def request_not_compared(patch: pytest.MonkeyPatch) -> None:
    patch.setattr("spark_wan.apply.take._answers", lambda manifest, wanted: True)


def answered_without_a_copy(patch: pytest.MonkeyPatch) -> None:
    def nothing(taker: CopyTaker, *_: Any) -> Steps[None]:
        yield "take.2 caught-up"

    patch.setattr(CopyTaker, "_take", nothing)


def never_removed(patch: pytest.MonkeyPatch) -> None:
    def nothing(server: CopyServer) -> Steps[None]:
        yield "copy.5 removed"

    patch.setattr(CopyServer, "_end", nothing)


def numbers_used_again(patch: pytest.MonkeyPatch) -> None:
    """With a copy, its stream is removed: the next one has its number."""
    end = CopyServer._end

    def whole(server: CopyServer) -> Steps[None]:
        yield from end(server)
        server.log.trim(server.log.newest_epoch(), ())

    patch.setattr(CopyServer, "_end", whole)


def answered_twice(patch: pytest.MonkeyPatch) -> None:
    """A server does not see that another one was faster."""
    serve = CopyServer._serve

    def again(server: CopyServer, *asked: Any) -> Steps[Manifest]:
        end = server._writer.end

        def unanswered() -> Any:
            found = end()
            last = found.last
            if last is None or last.copy is None:
                return found
            hidden = replace(last, copy=CopyOf("", ()))
            hidden.__dict__["fingerprint"] = last.fingerprint
            return replace(found, last=hidden)

        with pytest.MonkeyPatch.context() as inner:
            inner.setattr(server._writer, "end", unanswered)
            return (yield from serve(server, *asked))

    patch.setattr(CopyServer, "_serve", again)


def hold_without_a_need(patch: pytest.MonkeyPatch) -> None:
    """Errors do not say that a copy helps."""
    patch.setattr(WanError, "__init__", _without_needs)


def _without_needs(error: WanError, *args: object, needs: str | None = None) -> None:
    Exception.__init__(error, *args)
    error.needs = None


def ledger_goes_on_before_the_copy(patch: pytest.MonkeyPatch) -> None:
    """A ledger that does not fit its table is not begun anew with a copy."""
    patch.setattr(Ledger, "_begin_with_newer_copy", lambda ledger, target: False)


def number_used_twice(patch: pytest.MonkeyPatch) -> None:
    """A copy into a table that the ledger does not know has the first number."""
    patch.setattr(Ledger, "number_of_copy", lambda ledger, target: (1, -1))


def no_epoch_for_a_joiner(patch: pytest.MonkeyPatch) -> None:
    """A site that joins is not told that it lacks what was sent before."""
    patch.setattr(Publisher, "_new_sites", lambda publisher, last: set())


# --- from sites that have one themselves


def a_dirty_site_serves(patch: pytest.MonkeyPatch) -> None:
    """Somebody has written to its table."""
    patch.setattr("spark_wan.receiver.copies.doubts", lambda ledger: ())


def no_ids_in_copies(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(LedgerEventIds, "cut", lambda ids, ledger: ReadIds(()))


def asks_though_it_has_own_rows(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Ledger, "has_own_rows", lambda ledger, target: False)


def nobody_else_is_asked(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Synchronizer, "refused", lambda asks, stream, wanted, cause: False)


def positions_are_not_copied(patch: pytest.MonkeyPatch) -> None:
    """A site does not know which epochs are in the copy."""
    mark = CopyWriter._mark

    def without(writer: CopyWriter, manifest: Manifest, *args: Any) -> Mark:
        copy = manifest.copy
        assert copy is not None
        hidden = replace(manifest, copy=replace(copy, logs=()))
        return mark(writer, hidden, *args)

    patch.setattr(CopyWriter, "_mark", without)


MUTATIONS = {
    vector_of_another_version: "should hold",
    rows_of_two_versions: "should hold",
    half_a_copy: "should hold",
    parts_of_two_versions: "should hold|does not come to rest",
    taken_before_the_last_part: "should hold",
    only_the_last_part: "should hold",
    swap_keeps_the_old_vector: "should hold|goes back|a copy of version .* is taken, acked",
    rows_are_added: "should hold|goes back",
    taken_though_the_table_has_more: "a copy of version .* is taken, acked",
    others_do_not_wait: "waits for a copy, but",
    request_not_compared: "is taken, asked|has no copy for it",
    answered_without_a_copy: "has no copy for it",
    never_removed: "is acked or orphaned, and still there",
    numbers_used_again: "the newest, is trimmed",
    answered_twice: "once more",
    hold_without_a_need: "is held|does not come to rest",
    ledger_goes_on_before_the_copy: "is held|does not come to rest",
    number_used_twice: "is held|does not come to rest|should hold|version",
    no_epoch_for_a_joiner: "does not name",
}
OF_PEERS = {
    a_dirty_site_serves: "should hold",
    no_ids_in_copies: "should hold",
    asks_though_it_has_own_rows: "has rows of its own",
    nobody_else_is_asked: "held after copies",
    positions_are_not_copied: "should hold|held after copies|a copy of version .* is taken, acked",
}


SLOW = (
    request_not_compared,
    hold_without_a_need,
    ledger_goes_on_before_the_copy,
    number_used_twice,
    parts_of_two_versions,
    no_epoch_for_a_joiner,
)
"""They take more schedules than `make test` has time for."""


@pytest.mark.parametrize("mutation", mutations((*MUTATIONS, *OF_PEERS), of_rest=(*SLOW, *OF_PEERS)))
def test_mutations_of_copies_are_found(
    mutation: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Within 500 schedules."""
    mutation(monkeypatch)
    with pytest.raises(AssertionError, match=(MUTATIONS | OF_PEERS)[mutation]):
        simulate(
            CopiedFromPeers if mutation in OF_PEERS else Copied, 500, Phase.generate, begin=BEGIN
        )
