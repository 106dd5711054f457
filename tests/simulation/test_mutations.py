"""What is taken out of the core, the simulation finds."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest
import seeds
from hypothesis import Phase

from simulation.machine import Forwarded, Replication
from simulation.schedules import FIXED_SEED, mutations, simulate
from spark_wan.apply.applier import ApplyResult, TableApplier
from spark_wan.apply.change import Change
from spark_wan.apply.plan import PlannedEpoch
from spark_wan.apply.site_ack import SiteAck
from spark_wan.channels.object_store import ObjectStoreChannel
from spark_wan.datasource.events import EventsWriter
from spark_wan.errors import LogGapError
from spark_wan.events.operations import ID
from spark_wan.forward import forwarder as forwarder_module
from spark_wan.forward.forwarder import Forwarder
from spark_wan.ledger.ledger import Ledger
from spark_wan.log.stream_log import StreamLog
from spark_wan.sender.acks import AckManager
from spark_wan.sender.publish import CaptureSettings
from spark_wan.sender.sweep import OrphanSearch, Sweep
from spark_wan.steps import Steps
from spark_wan.wire.ack import Ack
from spark_wan.wire.manifest import Manifest
from spark_wan.wire.mark import Mark

BEGIN = int(seeds.GIVEN or FIXED_SEED)


class AcksBeforeItApplies(TableApplier):
    """Acks what was planned, and then applies it."""

    def _apply(
        self, epochs: Sequence[PlannedEpoch], number: int, outcome: ApplyResult
    ) -> Steps[None]:
        self._ack(replace(outcome, applied=epochs[-1].manifest.epoch), None)
        yield from super()._apply(epochs, number, outcome)


class TakesTheNumberLate(TableApplier):
    """Does not fix the apply number at step 1: takes the next one right before the write."""

    def _mark(self, change: Change, apply_number: int) -> Mark:
        return super()._mark(change, self.ledger.catch_up(self.target) or 1)


def ack_before_apply(patch: pytest.MonkeyPatch) -> None:
    patch.setattr("simulation.processes.TableApplier", AcksBeforeItApplies)


def number_not_fixed(patch: pytest.MonkeyPatch) -> None:
    patch.setattr("simulation.processes.TableApplier", TakesTheNumberLate)


def digest_ignored(patch: pytest.MonkeyPatch) -> None:
    """All writes of a (query, batch) look equal."""
    patch.setattr("spark_wan.datasource.events.combine", lambda digests: "the same")


def replay_not_recognised(patch: pytest.MonkeyPatch) -> None:
    """No two writes of a (query, batch) look equal."""
    digests = itertools.count()
    patch.setattr("spark_wan.datasource.events.combine", lambda parts: str(next(digests)))


def trimmed_before_acked(patch: pytest.MonkeyPatch) -> None:
    patch.setattr("spark_wan.sender.acks.AckManager._all_acked", lambda manager, manifest: True)


def stray_taken_for_a_gap(patch: pytest.MonkeyPatch) -> None:
    """What a frozen writer leaves where the log was trimmed is taken for the beginning of a log
    with a gap."""
    real = StreamLog.whole_and_below

    def without_strays(
        log: StreamLog, listed: Sequence[int] | None = None
    ) -> tuple[list[int], list[int]]:
        whole, below = real(log, listed)
        if below:
            raise LogGapError(f"the log goes from {below[-1]} to {whole[0]}")
        return whole, below

    patch.setattr(StreamLog, "whole_and_below", without_strays)


def acks_of_another_stream(patch: pytest.MonkeyPatch) -> None:
    """What sites have acked of another stream, perhaps on another channel, counts for this one."""
    own = AckManager.read_acks
    managers: dict[tuple[int, str], AckManager] = {}

    def acks(manager: AckManager) -> Mapping[str, Ack]:
        managers[id(manager.checkpoints), manager.log.stream] = manager
        others = (
            ack
            for (site, stream), other in managers.items()
            if site == id(manager.checkpoints) and stream != manager.log.stream
            for ack in own(other).values()
        )
        newest = max((ack.applied for ack in others), default=0)
        last = manager.log.newest_manifest()
        assert last is not None
        found = own(manager)
        return {
            site: Ack(site, last.stream, last.log_id, min(last.epoch, max(newest, ack.applied)))
            for site in manager.served
            if (ack := found.get(site, Ack(site, last.stream, last.log_id, 0)))
        }

    patch.setattr(AckManager, "read_acks", acks)


def ledger_of_another_table(patch: pytest.MonkeyPatch) -> None:
    """All tables of a site have the ledger of its first one."""
    patch.setattr(
        "simulation.processes.Ledger",
        lambda site, table, store, clock: Ledger(site, min(store.tables), store, clock=clock),
    )


def other_senders_forgotten(patch: pytest.MonkeyPatch) -> None:
    """A manifest names only the remotes of its own sender as those who get the rows."""
    settings = CaptureSettings

    def of_one_sender(**fields: Any) -> CaptureSettings:
        return settings(**{**fields, "sent_to": fields["addressees"]})

    patch.setattr("simulation.processes.CaptureSettings", of_one_sender)


def swept_by_the_sites_clock(patch: pytest.MonkeyPatch) -> None:
    """The age of frames is counted from the clock of the site that sweeps, not the store's."""
    old_frames = Sweep.old_frames

    def by_own_clock(sweep: Sweep, older_than: float) -> Any:
        with pytest.MonkeyPatch.context() as inner:
            inner.setattr(
                "simulation.channels.WatchedChannel.now", lambda channel: sweep.acks.clock() / 1000
            )
            return old_frames(sweep, older_than)

    patch.setattr(Sweep, "old_frames", by_own_clock)


def no_position_recorded(patch: pytest.MonkeyPatch) -> None:
    """A ledger does not record how far it has read an idle target."""
    patch.setattr(Ledger, "_record_position", lambda ledger, newer, target: None)


def quiet_commits_not_recorded(patch: pytest.MonkeyPatch) -> None:
    """However old they are."""
    patch.setattr("spark_wan.sender.publish.record_after", lambda log_retention: 1 << 60)


def gap_unchecked(patch: pytest.MonkeyPatch) -> None:
    """What log cleanup has removed of a target is taken for nothing."""
    patch.setattr(Ledger, "_check_gap", lambda *_: None)


def newest_trimmed(patch: pytest.MonkeyPatch) -> None:
    """A log in which everything is acked is trimmed to its end."""
    trim = StreamLog.trim

    def whole(log: StreamLog, through: int, frames: Iterable[str]) -> None:
        newest = log.newest_manifest()
        at_end = newest is not None and newest.epoch == through + 1
        trim(log, through + 1 if at_end else through, frames)

    patch.setattr(StreamLog, "trim", whole)


def nothing_trimmed(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(StreamLog, "trim", lambda log, through, frames: None)


def orphans_left(patch: pytest.MonkeyPatch) -> None:
    """Frames that no manifest names are never removed."""
    patch.setattr(Sweep, "old_frames", lambda sweep, older_than: OrphanSearch(set()))


class MarksTheOrigin(TableApplier):
    """Writes the site into its marks that the rows come from."""

    def _mark(self, change: Change, apply_number: int) -> Mark:
        return replace(super()._mark(change, apply_number), site=change.newest.origin)


class CountsADeadLetter(TableApplier):
    """Counts an event of each apply as a dead letter."""

    def _mark(self, change: Change, apply_number: int) -> Mark:
        mark = super()._mark(change, apply_number)
        (part,) = mark.applied
        return replace(mark, applied=(replace(part, dead_letters=part.dead_letters + 1),))


def marked_as_the_origins(patch: pytest.MonkeyPatch) -> None:
    patch.setattr("simulation.processes.TableApplier", MarksTheOrigin)


def dead_letters_counted(patch: pytest.MonkeyPatch) -> None:
    patch.setattr("simulation.processes.TableApplier", CountsADeadLetter)


def manifests_overwritten(patch: pytest.MonkeyPatch) -> None:
    """A store that creates an object does not look whether there is one."""

    def create(channel: ObjectStoreChannel, path: str, data: bytes) -> bool:
        channel.put(path, data)
        return True

    patch.setattr(ObjectStoreChannel, "create", create)


def ids_used_again(patch: pytest.MonkeyPatch) -> None:
    """The seventh event of a user's stream has the ID of the first one, and so on."""
    columns = EventsWriter._event_columns

    def renamed(writer: EventsWriter, rows: pa.RecordBatch) -> pa.RecordBatch:
        events = columns(writer, rows)
        ids = pa.array([f"event {n % 6}" for n in rows.column("n").to_pylist()])
        return events.set_column(events.schema.get_field_index(ID), ID, ids)

    patch.setattr(EventsWriter, "_event_columns", renamed)


MUTATIONS = {
    stray_taken_for_a_gap: "does not come to rest|the log goes from",
    ack_before_apply: "acks .* but the marks",
    number_not_fixed: "goes back|should hold",
    digest_ignored: "events, sent|should hold",
    replay_not_recognised: "is an equal replay",
    trimmed_before_acked: "is trimmed, but",
    acks_of_another_stream: "is trimmed, but",
    ledger_of_another_table: "applies rows of|is held, although|at rest",
    other_senders_forgotten: "goes from",
    swept_by_the_sites_clock: "names frames that are not",
    no_position_recorded: "is held, although",
    quiet_commits_not_recorded: "is held, although",
    gap_unchecked: "goes back|should hold",
    newest_trimmed: "the newest, is trimmed",
    nothing_trimmed: "is acked or orphaned, and still there",
    orphans_left: "is acked or orphaned, and still there",
    ids_used_again: "came with two contents",
    marked_as_the_origins: "applies rows of",
    dead_letters_counted: "have dead letters",
    manifests_overwritten: "was overwritten",
}


SLOW = (gap_unchecked, quiet_commits_not_recorded, other_senders_forgotten, stray_taken_for_a_gap)
"""They take more schedules than `make test` has time for."""


@pytest.mark.parametrize("mutation", mutations(MUTATIONS, SLOW))
def test_mutations_are_found(
    mutation: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the check that is meant for it. Most within 50 schedules, some after hundreds."""
    mutation(monkeypatch)
    with pytest.raises((AssertionError, LogGapError), match=MUTATIONS[mutation]):
        simulate(Replication, 3_000, Phase.generate, begin=BEGIN)


# --- of forwarding


def forwarded_without_sent_to(patch: pytest.MonkeyPatch) -> None:
    """What is forwarded names those who had it before, and nobody else."""
    patch.setattr(
        "spark_wan.forward.forwarder.forwarded_sent_to",
        lambda topology, table, site, sent_to: tuple(sent_to),
    )


def own_remotes_as_sent_to(patch: pytest.MonkeyPatch) -> None:
    """What is forwarded names the remotes of the sender that forwards it, and not those of the
    other senders of its site."""
    following = Forwarder._following

    def of_one_sender(forwarder: Forwarder, *args: Any) -> Manifest:
        with pytest.MonkeyPatch.context() as inner:
            inner.setattr(
                "spark_wan.forward.forwarder.forwarded_sent_to",
                lambda topology, table, site, sent_to: tuple(
                    sorted({*sent_to, *forwarder.sender.remotes})
                ),
            )
            return following(forwarder, *args)

    patch.setattr(Forwarder, "_following", of_one_sender)


def sent_back(patch: pytest.MonkeyPatch) -> None:
    """A forwarder sends to all remotes of its sender, whoever had it."""
    patch.setattr(
        Forwarder, "addressees", lambda forwarder, manifest: tuple(forwarder.sender.remotes)
    )


def acked_before_forwarded(patch: pytest.MonkeyPatch) -> None:
    """An ack says what is applied."""
    patch.setattr(SiteAck, "_lower", lambda answer, applied: applied)


def epochs_skipped(patch: pytest.MonkeyPatch) -> None:
    """A forwarder takes the newest epoch, as if a restart had made it forget the others."""
    after = forwarder_module.epochs_after
    patch.setattr(forwarder_module, "epochs_after", lambda *args: after(*args)[-1:])
    patch.setattr(forwarder_module, "next_manifest", lambda log, epoch, before: log.read(epoch))


def frames_of_another_epoch(patch: pytest.MonkeyPatch) -> None:
    """A forwarder names the frames of the first epoch that it copied."""
    copied = Forwarder._copy
    first: dict[str, Any] = {}

    def copy(forwarder: Forwarder, manifest: Manifest) -> Any:
        frames = copied(forwarder, manifest)
        return first.setdefault(forwarder.outbound.stream, frames)

    patch.setattr(Forwarder, "_copy", copy)


FORWARDING_MUTATIONS = {
    forwarded_without_sent_to: "goes from",
    own_remotes_as_sent_to: "goes from",
    sent_back: "goes from",
    acked_before_forwarded: "acks .*, but .* has forwarded through",
    epochs_skipped: "is forwarded after epoch",
    frames_of_another_epoch: "has other frames than came|names frames that are not",
}


@pytest.mark.parametrize("mutation", FORWARDING_MUTATIONS, ids=lambda mutation: mutation.__name__)
def test_mutations_of_forwarding_are_found(
    mutation: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Within 500 schedules."""
    mutation(monkeypatch)
    with pytest.raises((AssertionError, LogGapError), match=FORWARDING_MUTATIONS[mutation]):
        simulate(Forwarded, 500, Phase.generate, begin=BEGIN)
