"""The forwarder: from an inbound log to the next manifests of an outbound stream.

chicago receives newark's orders and sends them on to denver and seattle.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import chain
from typing import Any
from unittest.mock import Mock, patch

import pytest
from fakes import MANIFEST, Checkpoints, Clock, ack, manifest, memory_channel, publish, put_frame

from spark_wan.apply.plan import StreamPlan, StreamPlanner
from spark_wan.channels.base import Channel
from spark_wan.errors import (
    SYNC,
    ChannelError,
    FrameError,
    LogGapError,
    ManifestError,
    ManifestExists,
    QueueFullError,
    WanError,
)
from spark_wan.forward.forwarder import Forwarder
from spark_wan.forward.forwarding import Forwarding
from spark_wan.ledger.progress import Progress, origin_of
from spark_wan.log.inbound import InboundLog, reference
from spark_wan.log.stream_log import StreamLog
from spark_wan.log.writer import MOST_REFUSALS, LogWriter
from spark_wan.sender.acks import AckManager
from spark_wan.sender.queue import OutboundQueue
from spark_wan.sender.rate import SendRate
from spark_wan.steps import run
from spark_wan.topology.ack_policy import AckPolicy
from spark_wan.topology.model import QueueLimits, Topology
from spark_wan.topology.parsing import parse_topology
from spark_wan.wire.decisions import Decisions
from spark_wan.wire.manifest import CAPTURE, EVENTS, SNAPSHOT, Manifest
from spark_wan.wire.records import EpochRef

INBOUND = "newark.east.orders"
OUTBOUND = f"chicago.west~{INBOUND}"
TO_CHICAGO: dict[str, Any] = {"sent_to": ("chicago",), "addressees": ("chicago",)}


def topology(**senders: Any) -> Topology:
    sites = ("newark", "chicago", "denver", "seattle", "tacoma")
    senders = senders or {"west": ["denver", "seattle"], "north": ["tacoma"]}
    return parse_topology(
        {
            "version": 1,
            "sites": {site: {"state": f"/{site}"} for site in sites},
            "senders": {
                "east": {"site": "newark", "remotes": ["chicago"], "channel": "/east"},
                **{
                    name: {"site": "chicago", "remotes": remotes, "channel": f"/{name}"}
                    for name, remotes in senders.items()
                },
            },
            "tables": {
                "orders": {
                    "keys": ["id"],
                    "writers": ["newark"],
                    "senders": ["east", *senders],
                    "at": {
                        site: f"/{site}/orders"
                        for site in ("newark", "chicago", *chain(*senders.values()))
                    },
                }
            },
        },
        "wan.yaml",
    )


class Chicago:
    """An inbound and an outbound channel, and what is beside them; forwarders come and go."""

    def __init__(self) -> None:
        self.east, self.west = memory_channel(), memory_channel()
        self.inbound = StreamLog(self.east, INBOUND)
        self.checkpoints, self.clock = Checkpoints(), Clock()
        self.decisions = Decisions()
        self.topology = topology()

    def send(self, *epochs: int, **changes: Any) -> list[Manifest]:
        return publish(StreamLog(self.east, INBOUND), *epochs, **{**TO_CHICAGO, **changes})

    def new(self, inbound: Channel | None = None, outbound: Channel | None = None) -> Forwarder:
        """A forwarder that knows nothing but what is durable."""
        return Forwarder(
            self.topology,
            self.topology.table("orders"),
            self.topology.sender("west"),
            StreamLog(inbound or self.east, INBOUND),
            StreamLog(outbound or self.west, OUTBOUND),
            self.checkpoints,
            self.clock,
            lambda: self.decisions,
        )

    def forward(self) -> Forwarder:
        forwarder = self.new()
        run(forwarder.round())
        return forwarder

    def forwarded(self) -> list[Manifest]:
        log = StreamLog(self.west, OUTBOUND)
        return [log.read(epoch) for epoch in log.since(0)]

    def held(self, match: str, error: type[WanError] = LogGapError) -> None:
        """A round raises, appends nothing and leaves no frame."""
        before = self.west.epochs(), self.west.frames(OUTBOUND)
        for forwarder in (self.new(), self.new()):
            with pytest.raises(error, match=match):
                run(forwarder.round())
        assert (self.west.epochs(), self.west.frames(OUTBOUND)) == before

    def lose_log(self) -> None:
        self.west.trim(OUTBOUND, 1_000, [path for path, _ in self.west.frames(OUTBOUND)])

    def trim(self, through: int, *, newest: bool = False) -> None:
        """As the ack manager of newark does, once all have acked: ``newest`` loses its frames."""
        log = StreamLog(self.east, INBOUND)
        for epoch in log.since(0):
            if epoch <= through:
                paths = [frame.path for frame in log.read(epoch).frames]
                self.east.trim(INBOUND, epoch - 1 if newest and epoch == through else epoch, paths)


@pytest.fixture
def chicago() -> Chicago:
    return Chicago()


def limited(chicago: Chicago, limits: QueueLimits) -> Forwarder:
    """A forwarder of whose outbound stream only so much may wait."""
    forwarder = chicago.new()
    acks = AckManager(
        forwarder.outbound,
        chicago.checkpoints,
        AckPolicy.ALL,
        60_000,
        chicago.clock,
        chicago.topology.sender("west").remotes,
    )
    forwarder.queue = OutboundQueue(acks, limits)
    return forwarder


def check_whole(chicago: Chicago, epochs: list[int]) -> None:
    """Each inbound epoch is forwarded once, in order, with its frames byte for byte."""
    inbound, found = StreamLog(chicago.east, INBOUND), chicago.forwarded()
    assert [each.via and each.via.epoch for each in found] == epochs
    for outbound in found:
        assert outbound.via is not None
        original = inbound.read(outbound.via.epoch)
        frames = [chicago.east.get_frame(ref.path) for ref in original.frames]
        assert [chicago.west.get_frame(ref.path) for ref in outbound.frames] == frames


def test_frames_are_passed_on_byte_for_byte_and_the_manifest_says_where_they_go(
    chicago: Chicago,
) -> None:
    first, second = chicago.send(1, 2, frames=3)
    forwarder = chicago.forward()
    check_whole(chicago, [1, 2])
    found = chicago.forwarded()
    assert (forwarder.position, forwarder.counts.epochs) == ((first.log_id, 2), 2)
    assert (forwarder.counts.events, forwarder.counts.batches) == (6, 6)
    outbound, via = found[1], EpochRef(INBOUND, second.log_id, 2, second.fingerprint)
    assert (outbound.stream, outbound.epoch, outbound.via) == (OUTBOUND, 2, via)
    assert outbound.previous == found[0].fingerprint
    assert outbound.sent_to == ("chicago", "denver", "seattle", "tacoma")
    assert outbound.addressees == ("denver", "seattle")
    own = {"stream", "log_id", "epoch", "previous", "sent_to", "addressees", "frames", "via"}
    for name in {*Manifest.__dataclass_fields__} - own - {"created", "writes"}:
        assert getattr(outbound, name) == getattr(second, name), name
    assert not outbound.writes


def test_f34_sent_to_has_the_remotes_of_all_senders_of_the_site(chicago: Chicago) -> None:
    chicago.send(1, sent_to=("chicago", "seattle"))
    chicago.forward()
    (outbound,) = chicago.forwarded()
    assert outbound.sent_to == ("chicago", "denver", "seattle", "tacoma")
    assert outbound.addressees == ("denver",)


def steps_of(forwarder: Forwarder) -> list[str]:
    return list(forwarder.round())


STEPS = [f"forward.{n}" for n in (1, 2, 3, 4, 5)]


@pytest.mark.parametrize("crash", range(1, 9))
def test_a_crash_after_any_step_changes_nothing(chicago: Chicago, crash: int) -> None:
    """Of two epochs; frames without a manifest are left, as for any writer."""
    chicago.send(1, 2)
    steps = chicago.new().round()
    for _ in range(crash):
        next(steps)
    steps.close()
    chicago.forward()
    check_whole(chicago, [1, 2])


def test_the_steps_are_these(chicago: Chicago) -> None:
    chicago.send(1, 2)
    names = [step.split()[0] for step in chicago.new().round()]
    assert names == [*STEPS, *STEPS[2:]]


@pytest.mark.parametrize("steps", range(1, 9))
def test_two_receivers_that_forward_at_once(chicago: Chicago, steps: int) -> None:
    """One goes some steps, the other to its end, then the first to its end. No frame is left."""
    chicago.send(1, 2)
    first, second = chicago.new().round(), chicago.new().round()
    for _ in range(steps):
        next(first)
    run(second)
    run(first)
    check_whole(chicago, [1, 2])
    named = {ref.path for each in chicago.forwarded() for ref in each.frames}
    assert {path for path, _ in chicago.west.frames(OUTBOUND)} == named


def test_a_manifest_that_is_refused_again_and_again_holds_the_forwarding(chicago: Chicago) -> None:
    """Fails (without an end) when each refusal is taken for another receiver's epoch."""
    chicago.send(1)
    appended = Mock(side_effect=ManifestExists("it is there"))
    with patch.object(chicago.west, "append", appended):
        chicago.held(r"manifest 1 .* was refused 5 times")
    assert appended.call_count == 2 * MOST_REFUSALS
    chicago.forward()
    check_whole(chicago, [1])


def test_both_take_turns_at_every_step(chicago: Chicago) -> None:
    chicago.send(1, 2, 3)
    both = [chicago.new().round(), chicago.new().round()]
    while both:
        for steps in list(both):
            if next(steps, None) is None:
                both.remove(steps)
    check_whole(chicago, [1, 2, 3])


def test_what_is_trimmed_after_another_receiver_has_forwarded_it_holds_nothing(
    chicago: Chicago,
) -> None:
    chicago.send(1, 2)
    late = chicago.new()
    steps = late.round()
    next(steps)
    next(steps)
    chicago.forward()
    chicago.trim(2, newest=True)
    run(steps)
    assert late.position == (MANIFEST.log_id, 2)
    assert [each.epoch for each in chicago.forwarded()] == [1, 2]


def test_new_epochs_follow(chicago: Chicago) -> None:
    chicago.send(1)
    forwarder = chicago.forward()
    chicago.trim(1, newest=True)
    chicago.send(2, 3)
    run(forwarder.round())
    assert [each.via and each.via.epoch for each in chicago.forwarded()] == [1, 2, 3]


# --- the outbound log


def test_f17_a_lost_outbound_log_is_not_replaced_silently(chicago: Chicago) -> None:
    chicago.send(1)
    chicago.forward()
    chicago.lose_log()
    chicago.held("is gone; it was at manifest 1")


def test_f17_nor_when_the_checkpoint_is_lost_too(chicago: Chicago) -> None:
    chicago.send(1)
    chicago.forward()
    (outbound,) = chicago.forwarded()
    ack(StreamLog(chicago.west, OUTBOUND), "denver", 1, outbound.log_id)
    chicago.lose_log()
    chicago.checkpoints.kept.clear()
    chicago.held("is gone; sites have acked it")


def test_f17_a_new_outbound_log_begins_once_the_user_says_so(chicago: Chicago) -> None:
    chicago.send(1, 2)
    chicago.forward()
    lost = chicago.forwarded()[0].log_id
    chicago.lose_log()
    chicago.held(f"spark-wan decide orders@{lost}=new-log")
    chicago.decisions = Decisions(new_logs=frozenset({lost}))
    chicago.forward()
    check_whole(chicago, [1, 2])
    assert chicago.forwarded()[0].log_id != lost


def test_an_outbound_log_that_was_restored_to_an_older_state(chicago: Chicago) -> None:
    chicago.send(1, 2)
    chicago.forward()
    chicago.west.trim_manifest(OUTBOUND, 2)
    chicago.held("ends at manifest 1, but it was at 2")


def test_acks_beyond_the_outbound_log_hold_it_without_a_checkpoint(chicago: Chicago) -> None:
    chicago.send(1, 2)
    chicago.forward()
    (outbound, _) = chicago.forwarded()
    ack(StreamLog(chicago.west, OUTBOUND), "denver", 2, outbound.log_id)
    chicago.west.trim_manifest(OUTBOUND, 2)
    chicago.checkpoints.kept.clear()
    chicago.held("sites have acked more")


def test_a_log_of_another_writer_under_that_name(chicago: Chicago) -> None:
    chicago.send(1)
    publish(StreamLog(chicago.west, OUTBOUND), 1)
    chicago.held("was not forwarded: another program writes this stream")


# --- the inbound log


def begin_anew(chicago: Chicago, **changes: Any) -> Manifest:
    chicago.east.trim(INBOUND, 1_000, [path for path, _ in chicago.east.frames(INBOUND)])
    log = StreamLog(chicago.east, INBOUND)
    changes = {"log_id": "c" * 32, "stream": INBOUND, **TO_CHICAGO, **changes}
    begun = manifest(1, frames=(put_frame(chicago.east),), **changes)
    log.append(begun)
    return begun


def test_an_inbound_log_of_a_table_that_begins_anew_goes_on_by_versions(chicago: Chicago) -> None:
    chicago.send(1)
    forwarder = chicago.forward()
    begun = begin_anew(chicago, first_version=10, last_version=19, start=False)
    run(forwarder.round())
    assert forwarder.through(begun.log_id) == 1 and forwarder.through(MANIFEST.log_id) == 0
    assert [each.epoch for each in chicago.forwarded()] == [1, 2]
    assert [each.last_version for each in chicago.forwarded()] == [9, 19]


def test_an_inbound_log_of_a_user_stream_that_begins_anew_waits_for_the_user(
    chicago: Chicago,
) -> None:
    events: dict[str, Any] = {"kind": EVENTS, "first_version": -1, "last_version": -1}
    chicago.send(1, **events)
    chicago.forward()
    begun = begin_anew(chicago, **events, start=True)
    chicago.held(f"spark-wan decide orders@{begun.log_id}=new-log")
    chicago.decisions = Decisions(new_logs=frozenset({begun.log_id}))
    assert chicago.forward().through(begun.log_id) == 1
    assert [each.epoch for each in chicago.forwarded()] == [1, 2]


def test_an_inbound_log_that_was_restored_to_an_older_state(chicago: Chicago) -> None:
    chicago.send(1, 2)
    chicago.forward()
    chicago.east.trim_manifest(INBOUND, 2)
    chicago.held("ends at manifest 1, but it was forwarded through 2")


def test_an_inbound_log_with_a_gap(chicago: Chicago) -> None:
    """The sites behind see it by the versions, and ask for a copy. Fails when they get nothing
    more."""
    chicago.send(1)
    chicago.forward()
    chicago.send(2, 3)
    chicago.trim(2)
    chicago.forward()
    before, after = chicago.forwarded()
    assert (before.epoch, after.epoch) == (1, 2)
    assert after.first_version > before.last_version + 1


def test_a_users_log_with_a_gap(chicago: Chicago) -> None:
    """Nobody would see what is missing."""
    events = {"kind": EVENTS, "first_version": -1, "last_version": -1}
    chicago.send(1, **events)
    chicago.forward()
    chicago.send(2, 3, **events)
    chicago.trim(2)
    chicago.held("begins at manifest 3, but it was forwarded only through 1: those between")


def test_an_inbound_log_that_was_rewritten(chicago: Chicago) -> None:
    chicago.send(1)
    chicago.forward()
    chicago.east.trim_manifest(INBOUND, 1)
    chicago.send(1, created=5)
    chicago.held("manifest 1 is not the one that was forwarded")
    chicago.send(2)
    chicago.trim(1)
    chicago.held("manifest 2 is not the one that was forwarded, or does not follow it.*begin-anew")


def test_the_way_out_of_a_rewritten_inbound_log(chicago: Chicago) -> None:
    """As its message says: what is forwarded begins anew, behind which sites go on by versions."""
    chicago.send(1)
    chicago.forward()
    lost = chicago.forwarded()[0].log_id
    log = StreamLog(chicago.east, INBOUND)
    chicago.east.trim_manifest(INBOUND, 1)
    log.append(manifest(1, stream=INBOUND, first_version=10, last_version=19, **TO_CHICAGO))
    chicago.held("manifest 1 is not the one that was forwarded.*begin-anew")
    chicago.lose_log()
    chicago.held(f"spark-wan decide orders@{lost}=new-log")
    chicago.decisions = Decisions(new_logs=frozenset({lost}))
    chicago.forward()
    (begun,) = chicago.forwarded()
    assert (begun.epoch, begun.first_version) == (1, 10)


def test_f20_a_corrupt_frame_is_not_passed_on(chicago: Chicago) -> None:
    (sent,) = chicago.send(1, frames=2)
    path = sent.frames[1].path
    data = bytearray(chicago.east.get_frame(path))
    data[-1] ^= 1
    chicago.east.put(path, bytes(data))  # type: ignore[attr-defined]
    chicago.held("altered: checksum", FrameError)


def test_a_frame_that_is_larger_than_the_site_allows_is_not_read(chicago: Chicago) -> None:
    """Its manifest says so. Fails (takes the memory) when only a receiver that applies looks."""
    (sent,) = chicago.send(1)
    chicago.forward()
    huge = replace(sent.frames[0], bytes=5 << 30)
    following = manifest(2, frames=(huge,), previous=sent.fingerprint, **TO_CHICAGO)
    StreamLog(chicago.east, INBOUND).append(following)
    reads = Mock(side_effect=AssertionError)
    with patch.object(chicago.east, "get_frame", reads):
        chicago.held("max_frame_bytes of this site allows", FrameError)
    reads.assert_not_called()


def test_f20_a_missing_frame_holds_the_stream(chicago: Chicago) -> None:
    chicago.send(1)
    (second,) = chicago.send(2)
    chicago.east.trim_frames(INBOUND, [second.frames[0].path])
    forwarder = chicago.new()
    with pytest.raises(FrameError, match="the frame that a manifest names is not there"):
        run(forwarder.round())
    assert forwarder.position == (MANIFEST.log_id, 1)
    check = [each.via and each.via.epoch for each in chicago.forwarded()]
    assert check == [1]


def test_a_manifest_for_another_table(chicago: Chicago) -> None:
    chicago.send(1, table="prices")
    chicago.held("is for table prices, not orders", ManifestError)


# --- what is not for this site, or goes to no other


def test_what_goes_to_no_other_site_needs_no_log_and_no_requests(chicago: Chicago) -> None:
    nowhere = ("chicago", "denver", "seattle")
    chicago.send(1, sent_to=nowhere)
    forwarder = chicago.forward()
    assert forwarder.position == (MANIFEST.log_id, 1)
    chicago.send(2, sent_to=nowhere)
    assert steps_of(forwarder) == []
    assert forwarder.position == (MANIFEST.log_id, 2)
    assert not chicago.west.epochs()
    chicago.send(3)
    run(forwarder.round())
    assert [each.via and each.via.epoch for each in chicago.forwarded()] == [3]


def test_what_is_not_for_this_site_is_not_forwarded_but_counted(chicago: Chicago) -> None:
    chicago.send(1)
    chicago.send(2, addressees=("boston",))
    chicago.send(3)
    chicago.forward()
    found = chicago.forwarded()
    assert [each.via and each.via.epoch for each in found] == [1, 2, 3]
    assert (found[1].addressees, found[1].frames) == ((), ())


def test_b72_epochs_that_go_to_no_site_from_here_are_counted_once(chicago: Chicago) -> None:
    """Before there is a log, a round sees them again and again. Fails when they count each time,
    or when they count as forwarded."""
    nowhere = ("chicago", "denver", "seattle")
    chicago.send(1, sent_to=nowhere)
    forwarder = chicago.forward()
    chicago.send(2, sent_to=nowhere)
    run(forwarder.round())
    assert (forwarder.counts.epochs, forwarder.counts.elsewhere) == (0, 2)
    chicago.send(3)
    run(forwarder.round())
    assert (forwarder.counts.epochs, forwarder.counts.elsewhere) == (1, 2)
    chicago.send(4, addressees=("boston",))
    run(forwarder.round())
    assert forwarder.counts.elsewhere == 3


# --- a sender that is attached later


def planned(chicago: Chicago, progress: Progress | None = None, site: str = "denver") -> StreamPlan:
    """What a site does with what chicago forwards."""
    log = StreamLog(chicago.west, OUTBOUND)
    inbound = InboundLog(log, "orders")
    planner = StreamPlanner(inbound, site, progress or Progress(), {}, 1 << 20, 100)
    return planner.plan(log.since(0))


def test_a_sender_that_is_attached_while_the_log_is_whole_sends_all_of_it(
    chicago: Chicago,
) -> None:
    """Sites have acked it, and nothing is trimmed yet."""
    chicago.send(1, 2)
    ack(chicago.inbound, "chicago", 2)
    chicago.forward()
    check_whole(chicago, [1, 2])
    assert [each.manifest.epoch for each in planned(chicago).new] == [1, 2]


@pytest.mark.parametrize("kind", [CAPTURE, SNAPSHOT, EVENTS])
def test_a_sender_that_is_attached_after_the_log_was_trimmed_asks_for_a_copy(
    chicago: Chicago, kind: str
) -> None:
    """At once: the first epoch says that there was something before it."""
    versions = {"first_version": -1, "last_version": -1} if kind == EVENTS else {}
    chicago.send(1, kind=CAPTURE if kind == SNAPSHOT else kind, **versions)
    chicago.send(2, kind=kind, **versions)
    ack(chicago.inbound, "chicago", 2)
    chicago.trim(2, newest=True)
    chicago.forward()
    (begun,) = chicago.forwarded()
    assert (begun.via and begun.via.epoch, begun.frames, begun.start) == (2, (), False)
    plan = planned(chicago)
    assert plan.held == 1 and not plan.new
    advice = "began in the middle" if kind == EVENTS else SYNC
    assert plan.cause is not None and advice in plan.cause
    chicago.send(3, kind=CAPTURE if kind == SNAPSHOT else kind, **versions)
    chicago.forward()
    assert [each.epoch for each in chicago.forwarded()] == [1, 2]
    assert planned(chicago).held == 1


@pytest.mark.parametrize("in_table", [3, 1, 0])
def test_a_sender_that_is_attached_after_the_ack_was_lost_asks_for_a_copy(
    chicago: Chicago, in_table: int
) -> None:
    """The receiver has written it again: it counts nothing, because nothing is forwarded. Fails
    when the forwarder waits for ever for frames that were trimmed. If the site's table lacks their
    rows, the frames were not trimmed but lost."""
    chicago.send(1)
    chicago.send(2)
    chicago.trim(2, newest=True)
    chicago.send(3)
    ack(chicago.inbound, "chicago", 0, ahead=in_table)
    if in_table < 2:
        chicago.held("the frame that a manifest names is not there", FrameError)
        return
    chicago.forward()
    begun, third = chicago.forwarded()
    assert (begun.via and begun.via.epoch, begun.frames, begun.start) == (2, (), False)
    assert third.via and third.via.epoch == 3 and third.frames
    plan = planned(chicago)
    assert plan.held == 1 and plan.cause is not None and SYNC in plan.cause


def test_frames_that_this_site_lacks_were_lost_and_not_trimmed(chicago: Chicago) -> None:
    """Fails when the forwarder leaves out what the site has not applied."""
    for sent in chicago.send(1, 2):
        chicago.east.trim_frames(INBOUND, [frame.path for frame in sent.frames])
    chicago.send(3)
    ack(chicago.inbound, "chicago", 0, ahead=1)
    chicago.held("the frame that a manifest names is not there", FrameError)
    ack(chicago.inbound, "chicago", 0, ahead=2)
    chicago.forward()
    assert [each.via and each.via.epoch for each in chicago.forwarded()] == [2, 3]


def test_an_epoch_without_frames_before_those_that_were_trimmed_hides_nothing(
    chicago: Chicago,
) -> None:
    """Its trim was interrupted: the manifests are there. Fails with a frame that is not there."""
    chicago.send(1, frames=0)
    for sent in chicago.send(2):
        chicago.east.trim_frames(INBOUND, [frame.path for frame in sent.frames])
    chicago.send(3)
    ack(chicago.inbound, "chicago", 0, ahead=3)
    chicago.forward()
    assert [each.via and each.via.epoch for each in chicago.forwarded()] == [2, 3]


@pytest.mark.parametrize(("through", "new"), [(19, [2]), (25, [2]), (9, [])])
def test_a_site_that_has_what_came_before_goes_on(
    chicago: Chicago, through: int, new: list[int]
) -> None:
    """And one that lacks some of it is held."""
    chicago.send(1, 2)
    ack(chicago.inbound, "chicago", 2)
    chicago.trim(2, newest=True)
    chicago.send(3)
    chicago.forward()
    progress = Progress({origin_of(MANIFEST): through})
    plan = planned(chicago, progress)
    assert [each.manifest.epoch for each in plan.new] == new
    assert (plan.held is None) == bool(new)


def test_an_epoch_without_events_names_a_new_remote_at_once(chicago: Chicago) -> None:
    """Fails when it waits for the next inbound epoch: until then nobody sees that the site lacks
    something."""
    chicago.send(1)
    chicago.forward()
    before = chicago.topology
    chicago.topology = topology(west=["denver", "seattle", "tacoma"])
    assert chicago.forward().through(MANIFEST.log_id) == 1
    first, naming = chicago.forwarded()
    assert naming.addressees == ("denver", "seattle", "tacoma")
    assert naming.sent_to == ("chicago", "denver", "seattle", "tacoma")
    assert (naming.frames, naming.start, naming.via) == ((), False, first.via)
    assert naming.first_version == first.last_version + 1
    assert planned(chicago, site="tacoma").held == 2
    assert planned(chicago).held is None
    chicago.forward()
    chicago.topology = before  # a site that leaves needs no word
    chicago.forward()
    assert len(chicago.forwarded()) == 2
    chicago.send(2)
    chicago.forward()
    assert [each.via and each.via.epoch for each in chicago.forwarded()] == [1, 1, 2]


@pytest.mark.parametrize("is_deeper", [False, True])
def test_a_user_stream_that_is_forwarded_twice_names_its_root(
    chicago: Chicago, is_deeper: bool
) -> None:
    """The epoch as its origin wrote it. Fails when a copy from a site in another place of the
    network does not tell a site how far it is."""
    events: dict[str, Any] = {"kind": EVENTS, "first_version": -1, "last_version": -1}
    via = EpochRef("boston.b.newark.east.orders", "e" * 32, 5, "of boston's manifest")
    root = replace(via, stream="newark.east.orders", epoch=4) if is_deeper else None
    chicago.send(1, **events, via=via, root=root)
    chicago.forward()
    [manifest] = chicago.forwarded()
    assert manifest.root == (root or via)
    assert Manifest.decode(manifest.encode(), "here").root == manifest.root


def test_a_user_stream_names_no_new_remote_without_events(chicago: Chicago) -> None:
    """Its receivers look at the newest epoch, whomever it was sent to."""
    chicago.send(1, kind=EVENTS, first_version=-1, last_version=-1)
    chicago.forward()
    chicago.topology = topology(west=["denver", "seattle", "tacoma"])
    chicago.forward()
    assert len(chicago.forwarded()) == 1


# --- faults of the channels


class Failing:
    """A channel that refuses some calls."""

    def __init__(self, inner: Channel, *methods: str) -> None:
        self._inner, self._methods = inner, methods

    def __getattr__(self, name: str) -> Any:
        if name in self._methods:
            raise ChannelError(f"{name} is refused")
        return getattr(self._inner, name)


@pytest.mark.parametrize("method", ["put_frame", "append"])
def test_a_channel_that_refuses_holds_this_forwarding_until_it_answers(
    chicago: Chicago, method: str
) -> None:
    chicago.send(1, 2)
    refusing: Any = Failing(chicago.west, method)
    with pytest.raises(ChannelError, match=f"{method} is refused"):
        run(chicago.new(outbound=refusing).round())
    chicago.forward()
    check_whole(chicago, [1, 2])


def test_frames_of_a_copy_that_fails_are_removed(chicago: Chicago) -> None:
    chicago.send(1, frames=3)
    steps: Iterator[str] = chicago.new().round()
    next(steps)
    chicago.east.trim_frames(INBOUND, [StreamLog(chicago.east, INBOUND).read(1).frames[2].path])
    with pytest.raises(FrameError):
        list(steps)
    assert not chicago.west.frames(OUTBOUND)


def test_frames_that_were_copied_too_long_ago_are_copied_again(chicago: Chicago) -> None:
    """A sweep may take them before the manifest names them."""
    chicago.send(1)
    steps = chicago.new().round()
    while not next(steps).startswith("forward.3"):
        pass
    (before,) = chicago.west.frames(OUTBOUND)
    chicago.clock.pass_seconds(90_000)
    chicago.west.now = lambda: before[1] + 90_000  # type: ignore[method-assign]
    list(steps)
    (outbound,) = chicago.forwarded()
    assert outbound.frames[0].path != before[0]


def test_the_position_is_that_of_the_log_that_was_forwarded(chicago: Chicago) -> None:
    assert chicago.new().through("x") is None
    forwarder = replace(chicago.new(), position=("a", 5))
    assert (forwarder.through("a"), forwarder.through("b")) == (5, 0)


def test_b18_nothing_of_a_paused_stream_is_forwarded_and_all_of_it_later() -> None:
    """Also in the middle of a backlog. Fails when a round that has begun goes on to its end."""
    chicago = Chicago()
    chicago.send(1, 2, 3)
    forwarder = chicago.new()
    forwarder.is_paused = lambda: len(chicago.forwarded()) >= 2
    run(forwarder.round())
    assert [each.epoch for each in chicago.forwarded()] == [1, 2]
    for paused, forwarded in ((True, 2), (False, 3)):
        forwarder.is_paused = lambda paused=paused: paused  # type: ignore[misc]
        run(forwarder.round())
        assert len(chicago.forwarded()) == forwarded


def test_what_a_pause_has_left_is_forwarded_when_it_ends() -> None:
    """Though the log has not changed. Fails when only a new listing wakes the forwarding."""
    woken: list[int] = []
    forwarding = Forwarding(Chicago().new(), lambda: woken.append(1))
    forwarding.pause(True)
    forwarding.is_due = True  # a round has ended early
    forwarding.pause(True)
    assert woken == []
    forwarding.pause(False)
    forwarding.pause(False)
    assert woken == [1]


# --- limits of the queue


def test_nothing_is_forwarded_while_the_queue_is_full(chicago: Chicago) -> None:
    """What waits is not acked at newark, so its sender waits, too. Fails when a site that sends on
    takes whatever comes."""
    epochs = chicago.send(1, 2, 3)
    forwarder = limited(chicago, QueueLimits(bytes=epochs[0].bytes + 1))
    with pytest.raises(QueueFullError, match="wait for denver, which has acked epoch 0 of 2"):
        run(forwarder.round())
    assert forwarder.through(epochs[0].log_id) == 2
    assert forwarder.queue is not None and forwarder.queue.is_full()
    newest = chicago.forwarded()[-1]
    for site in ("denver", "seattle"):
        ack(forwarder.outbound, site, 1, newest.log_id)
    assert not forwarder.queue.is_full()
    run(forwarder.round())
    check_whole(chicago, [1, 2, 3])


def test_forwarding_goes_on_without_a_site_that_lags(
    chicago: Chicago, caplog: pytest.LogCaptureFixture
) -> None:
    """It says so once that is done. Fails when what is forwarded next does not follow what was, or
    a site is said to be dropped that is not."""
    epochs = chicago.send(1, 2, 3)
    limits = QueueLimits(bytes=epochs[0].bytes, policy="drop_reader")
    forwarder = limited(chicago, limits)
    with patch.object(forwarder, "_make_room", lambda last: _same(last)):
        run(forwarder.round())
    newest = chicago.forwarded()[-1]
    ack(forwarder.outbound, "denver", 3, newest.log_id)
    chicago.send(4)
    again = limited(chicago, limits)
    with pytest.raises(QueueFullError):  # the site may ack yet
        run(again.round())
    chicago.clock.pass_seconds(60)
    with patch.object(LogWriter, "append", side_effect=ChannelError("out of reach")):
        with pytest.raises(ChannelError):
            run(again.round())
    assert caplog.messages == []
    run(again.round())
    [said] = caplog.messages
    assert "goes on without site seattle: what it has not acked through epoch 3" in said
    dropped, following = chicago.forwarded()[-2:]
    assert (dict(dropped.dropped), dropped.frames) == ({"seattle": 3}, ())
    assert (dropped.via, following.via) == (newest.via, reference(chicago.inbound.read(4)))
    assert dropped.addressees == following.addressees == newest.addressees


def test_what_is_forwarded_keeps_to_the_rate_of_its_sender(chicago: Chicago) -> None:
    """The rest is left for later. Fails when a site that sends on sends all at once."""
    chicago.send(1, 2, 3)
    now = [1_000.0]
    forwarder = chicago.new()
    forwarder.rate = SendRate(rows=1, clock=lambda: now[0])
    for seconds, sent in ((0, 2), (0, 2), (1, 3)):
        now[0] += seconds
        run(forwarder.round())
        assert (len(chicago.forwarded()), forwarder.left) == (sent, sent < 3)
    check_whole(chicago, [1, 2, 3])


def _same(last: Manifest) -> Iterator[str]:
    """Make no room."""
    yield from ()
    return last
