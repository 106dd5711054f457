"""The ack manager: what counts as done, what is announced again, what is trimmed, in which
order."""

from __future__ import annotations

from dataclasses import replace

import pytest
from fakes import MANIFEST, STREAM, manifest, publish, put_frame
from managed_stream import TIMEOUT, ManagedStream, watched
from unit.ledger.test_read_dead_letters import APPLIED

from spark_wan.errors import LogGapError, ManifestError
from spark_wan.log.heads import Heads
from spark_wan.log.notes import announce, head, put_ack, put_refused
from spark_wan.log.stream_log import StreamLog
from spark_wan.sender.acks import NO_ACKS_POLL_INTERVAL
from spark_wan.sender.sweep import Sweep
from spark_wan.steps import run
from spark_wan.topology.ack_policy import AckPolicy
from spark_wan.wire.checkpoint import PublishedState, SenderCheckpoint
from spark_wan.wire.refused import RefusedEvents

# --- policies


def test_an_epoch_is_done_when_the_policy_is_met() -> None:
    stream = ManagedStream(1, 2, sites=("denver", "seattle"))
    stream.ack("seattle", 2)
    stream.ack("denver", 1)
    stream.round()
    assert stream.manager.done(manifest(1, addressees=("denver", "seattle")))
    assert not stream.manager.done(manifest(2, addressees=("denver", "seattle")))
    assert stream.manager.acked_by(manifest(2)) == {"seattle"}


def test_f40_an_ack_for_another_log_does_not_count() -> None:
    """Fails when the log_id of an ack is not compared."""
    stream = ManagedStream(1, 2)
    stream.ack("seattle", 2, log_id="another")
    state = stream.round()
    assert (state.backlog, stream.left()) == (2, ([1, 2], 4))


# --- trimming


def test_f51_an_ack_of_a_newer_spark_wan_trims_nothing_and_is_announced_to() -> None:
    """The site may hold or forward in a way that this version does not know. Fails when such an ack
    ends the round, and when it counts."""
    stream = ManagedStream(1, 2, sites=("denver", "seattle"))
    newer = b'{"version":3,"site":"seattle","through":2}'
    put_ack(stream.log.channel, STREAM, "seattle", newer)
    stream.ack("denver", 2)
    state = stream.round()
    stream.clock.pass_seconds(TIMEOUT + 1)
    stream.round()
    assert (state.backlog, stream.left(), stream.announced()) == (2, ([1, 2], 4), [(1, 1)])
    assert "Update spark_wan at the sender's site" in str(state.acks["seattle"].cause)
    assert not stream.manager.done(manifest(1, addressees=("denver", "seattle")))


def test_epochs_acked_by_all_are_trimmed_and_the_newest_manifest_stays() -> None:
    stream = ManagedStream(1, 2, 3)
    stream.ack("seattle", 3)
    state = stream.round()
    assert stream.left() == ([3], 0)
    assert (state.backlog, state.oldest) == (0, 3)
    assert state.newest is not None and state.newest.epoch == 3


def test_an_epoch_that_one_site_has_not_acked_is_not_trimmed() -> None:
    """Invariant 3. Fails when the slowest site is not waited for."""
    stream = ManagedStream(1, 2, 3, sites=("denver", "seattle"))
    stream.ack("seattle", 3)
    state = stream.round()
    assert (stream.left(), state.backlog) == (([1, 2, 3], 6), 3)
    stream.ack("denver", 1)
    state = stream.round()
    assert (stream.left(), state.backlog, state.oldest) == (([2, 3], 4), 2, 2)


def test_the_policy_none_does_not_trim_an_epoch_that_a_site_has_not_acked() -> None:
    """`none` is for writers that do not wait. Fails when trimming asks the policy alone."""
    stream = ManagedStream(1, 2, sites=("denver", "seattle"), policy=AckPolicy.NONE)
    stream.round()
    stream.ack("seattle", 2)
    stream.round()
    assert stream.left() == ([1, 2], 4)
    assert stream.manager.done(manifest(2))


def test_a_stream_without_addressees_is_trimmed_at_once() -> None:
    stream = ManagedStream(1, 2, sites=())
    assert stream.round().backlog == 0
    assert stream.left() == ([2], 0)


def test_what_is_done_is_trimmed_at_once() -> None:
    """Fails when each epoch is trimmed by itself: a site that was away for a day has thousands."""
    stream = ManagedStream(1, 2, 3)
    frames = [frame.path for epoch in (1, 2, 3) for frame in stream.log.read(epoch).frames]
    stream.ack("seattle", 3)
    stream.round()
    trims = [call for call in stream.calls if call[0].startswith("trim")]
    assert trims == [("trim", 2, frames)]


@pytest.mark.parametrize("left", [1, 6, 100])
def test_a_long_backlog_is_trimmed_as_far_as_it_is_done(left: int) -> None:
    """Read in parts that grow. Fails when a part is skipped, or trimmed though it is not done."""
    stream = ManagedStream(*range(1, 121))
    stream.ack("seattle", 120 - left)
    state = stream.round()
    assert (stream.left()[0], state.oldest) == (list(range(121 - left, 121)), 121 - left)
    assert all(
        stream.log.channel.frame_time(frame.path) is not None
        for epoch in stream.left()[0]
        for frame in stream.log.read(epoch).frames
    )


def test_a_backlog_of_several_pages_is_trimmed_page_by_page(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Fails when only what one page has is known: the newest epoch, or that there is more to do."""
    stream, watch = watched(*range(1, 11), monkeypatch=monkeypatch, page=4)
    stream.ack("seattle", 10)
    rounds = 0
    while stream.manager.due():
        watch.look()
        state = stream.round()
        rounds += 1
        assert state.newest is not None and state.newest.epoch == 10
    assert (rounds, stream.left()) == (3, ([10], 0))


def test_f24_acks_are_checkpointed_before_anything_is_trimmed() -> None:
    """Fails when the checkpoint is saved after the trimming: a channel that is lost in between is
    not found out."""
    stream = ManagedStream(1, 2)
    stream.ack("seattle", 2)
    stream.round()
    assert [call[0] for call in stream.calls if call[0] != "put_note"] == ["save", "trim"]
    assert stream.checkpoints.kept[STREAM] == SenderCheckpoint(
        "a" * 32, 2, {"seattle": 2}, PublishedState.by(manifest(2))
    )


def test_the_next_round_repairs_a_crash_after_any_step() -> None:
    steps = 0
    while True:
        stream = ManagedStream(1, 2, 3)
        stream.ack("seattle", 2)
        rounds = stream.manager.round()
        seen = [step for _, step in zip(range(steps), rounds, strict=False)]
        rounds.close()
        numbers, _ = stream.left()
        assert stream.log.since(0) == numbers
        for epoch in numbers:
            if epoch > 2:
                assert all(
                    stream.log.channel.get_frame(frame.path)
                    for frame in stream.log.read(epoch).frames
                )
        stream.manager = stream.new()
        stream.round()
        assert stream.left() == ([3], 2)
        if len(seen) < steps:
            break
        steps += 1
    assert steps > 4


def test_nothing_is_removed_twice() -> None:
    """Idle: no writes. Fails when the frames of the newest manifest are trimmed in every round."""
    stream = ManagedStream(1)
    stream.ack("seattle", 1)
    stream.round()
    stream.calls.clear()
    stream.round()
    assert stream.calls == []
    publish(stream.log, 2, addressees=stream.sites)
    stream.ack("seattle", 2)
    stream.round()
    assert stream.left() == ([2], 0)


def test_a_new_log_with_the_old_number_is_trimmed_too() -> None:
    stream = ManagedStream(1)
    stream.ack("seattle", 1)
    stream.round()
    stream.log.channel.trim_manifest(STREAM, 1)
    publish(stream.log, 1, log_id="b" * 32, addressees=stream.sites)
    stream.ack("seattle", 1, log_id="b" * 32)
    stream.round()
    assert stream.left() == ([1], 0)


def test_two_ack_managers_at_once_cost_requests_and_nothing_else() -> None:
    """One lists, the other trims. Fails when a manifest that is gone since it was listed is an
    error."""
    stream = ManagedStream(1, 2, 3)
    stream.ack("seattle", 3)
    slow = stream.manager.round()
    assert next(slow) == "acks.1 acks-read"
    run(stream.new().round())
    run(slow)
    assert stream.left() == ([3], 0)


def test_f20_a_manifest_that_cannot_be_read_stops_the_trimming() -> None:
    stream = ManagedStream()
    publish(stream.log, 1, 2, 3)
    stream.log.channel.trim_manifest(STREAM, 2)
    stream.log.channel.append(STREAM, 2, b"WANM altered")
    stream.log.forget()
    stream.ack("seattle", 3)
    with pytest.raises(ManifestError, match="manifest 2"):
        stream.round()
    assert stream.left()[0] == [1, 2, 3]


def test_f20_what_is_below_a_manifest_that_cannot_be_read_is_trimmed() -> None:
    """Fails when an altered manifest that is not to be trimmed yet is read, and stops the rest."""
    stream = ManagedStream(1, 2, 3, 4, 5)
    stream.log.channel.trim_manifest(STREAM, 4)
    stream.log.channel.append(STREAM, 4, b"WANM altered")
    stream.log.forget()
    stream.ack("seattle", 1)
    stream.round()
    assert stream.left()[0] == [2, 3, 4, 5]
    stream.ack("seattle", 3)
    stream.round()
    assert stream.left()[0] == [3, 4, 5]
    with pytest.raises(ManifestError, match="manifest 4"):
        stream.round()


# --- strays


def stray(stream: ManagedStream, epoch: int) -> str:
    """What a writer leaves that was frozen inside append(), overtaken and killed: a manifest and
    its frame."""
    frame = put_frame(stream.log.channel)
    left = manifest(epoch, identity="stray", log_id="c" * 32, frames=(frame,))
    stream.log.channel.append(STREAM, epoch, left.encode())
    return frame.path


@pytest.mark.parametrize("applied", [3, 4])
def test_f47_strays_are_removed_and_hold_nothing(applied: int) -> None:
    """Fails when the ack manager takes a stray for a gap (the stream is held forever), or trims
    its frames: the writer may still go on, and name them in the next manifest that it adds."""
    stream = ManagedStream(1, 2, 3, 4)
    stream.ack("seattle", 3)
    stream.round()
    assert stream.left()[0] == [4]
    frame = stray(stream, 2)
    stream.ack("seattle", applied)
    stream.round()
    assert stream.left()[0] == [4]
    assert stream.log.channel.get_frame(frame)


def test_f47_a_stray_right_below_the_log_is_not_taken_for_an_acked_epoch() -> None:
    """It has the place of an epoch that was just trimmed. Fails when its frames are
    trimmed as that epoch's."""
    stream = ManagedStream(1, 2, 3)
    stream.ack("seattle", 1)
    stream.round()
    assert stream.left()[0] == [2, 3]
    frame = stray(stream, 1)
    stream.round()
    assert stream.left()[0] == [2, 3]
    assert stream.log.channel.get_frame(frame)


def test_f55_a_manifest_that_is_missing_before_it_was_acked_is_reported() -> None:
    """Invariant 2. It is announced all the same: a site whose ack was lost would ack again.
    Fails when strays are removed whatever was acked."""
    stream = ManagedStream(1, 2, 3, 4)
    stream.ack("seattle", 1)
    stream.round()
    stream.log.channel.trim_manifest(STREAM, 3)
    for _ in range(2):
        with pytest.raises(LogGapError, match=r"goes from 2 to 4.*acked: {'seattle': 1}"):
            stream.round()
        stream.clock.pass_seconds(TIMEOUT)
    assert stream.left()[0] == [2, 4]
    assert stream.announced() == [(2, 1)]


def test_f47_a_late_manifest_of_a_lost_log_above_a_new_one_is_reported(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its writer was frozen inside append while the log was lost, and killed right after. Fails
    when the new log's manifests are removed as strays."""
    stream = ManagedStream()
    publish(stream.log, 1, 2, 3, log_id="b" * 32, created=MANIFEST.created + 1)
    stream.log.channel.append(STREAM, 10, manifest(10, previous="of 9").encode())
    stream.ack("seattle", 9)
    with pytest.raises(
        LogGapError,
        match=r"manifest 10 .* another log than those through 3, which began later.* "
        "Delete manifest 10",
    ):
        stream.round()
    assert stream.left()[0] == [1, 2, 3, 10]


# --- sites that are served no more


def test_f52_a_site_taken_out_of_the_topology_does_not_stop_the_trimming(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Only present remotes count, and the log names the others, once. Fails when all addressees of
    a manifest are waited for."""
    stream = ManagedStream(1, 2, 3, sites=("denver", "seattle"))
    stream.ack("seattle", 2)
    stream.ack("denver", 1)
    state = stream.round()
    assert (stream.left()[0], state.not_served) == ([2, 3], ())
    stream.manager.served = ("seattle",)
    with caplog.at_level("WARNING"):
        states = [stream.round() for _ in range(3)]
    assert (stream.left()[0], states[-1].not_served, states[-1].backlog) == ([3], ("denver",), 1)
    named = [record.getMessage() for record in caplog.records if "denver" in record.getMessage()]
    assert len(named) == 1 and "acked epoch 1 of 3" in named[0] and "needs a copy" in named[0]
    stream.ack("seattle", 3)
    stream.round()
    assert stream.left() == ([3], 0)
    assert stream.manager.done(manifest(3, addressees=("denver", "seattle")))


@pytest.mark.parametrize("known", [True, False])
def test_f52_a_site_that_a_newer_sender_serves_is_waited_for(
    caplog: pytest.LogCaptureFixture, known: bool
) -> None:
    """denver is new; a sender with the topology from before goes on beside the one that serves it,
    or begins after it. Fails when any site that an ack manager does not serve is taken for gone:
    what denver needs is trimmed."""
    stream = ManagedStream(1, 2)
    if known:
        stream.round()
    publish(stream.log, 3, 4, addressees=("denver", "seattle"))
    stream.ack("seattle", 4)
    with caplog.at_level("WARNING"):
        states = [stream.round() for _ in range(2)]
    logged = [record.getMessage() for record in caplog.records if "denver" in record.getMessage()]
    assert len(logged) == 1
    if known:
        assert stream.left() == ([3, 4], 2)
        assert (states[-1].not_served, states[-1].backlog) == ((), 2)
        assert "another sender has appended epoch 4 for site denver" in logged[0]
        publish(stream.log, 5)  # its own again: denver was taken out
        stream.ack("seattle", 5)
        stream.round()
        assert stream.left() == ([5], 0)
    else:
        assert stream.left() == ([4], 0)  # so it was before this one began


# --- checkpoint


def test_acks_in_the_checkpoint_never_go_back() -> None:
    stream = ManagedStream(1, 2, 3)
    stream.ack("seattle", 2)
    stream.round()
    stream.ack("seattle", 1)
    stream.round()
    assert stream.checkpoints.kept[STREAM].acked == {"seattle": 2}


def test_an_unchanged_checkpoint_is_not_written() -> None:
    stream = ManagedStream(1, 2)
    stream.ack("seattle", 1)
    stream.round()
    stream.calls.clear()
    stream.round()
    assert [call for call in stream.calls if call[0] == "save"] == []


def test_the_checkpoint_of_another_log_is_left_alone() -> None:
    """The publisher finds out about that; an ack manager that wrote over it would hide it."""
    stream = ManagedStream(1)
    stream.checkpoints.kept[STREAM] = SenderCheckpoint("another", 9, {"seattle": 9})
    stream.ack("seattle", 1)
    stream.round()
    assert stream.checkpoints.kept[STREAM] == SenderCheckpoint("another", 9, {"seattle": 9})


def test_a_checkpoint_of_an_older_version_is_completed() -> None:
    """It knows nothing of what was published. Fails when it stays so while the table is idle: a new
    log in place of a lost one would be compared with nothing."""
    stream = ManagedStream(1, 2)
    stream.checkpoints.kept[STREAM] = SenderCheckpoint("a" * 32, 2, {"seattle": 0})
    stream.round()
    assert stream.checkpoints.kept[STREAM].published == PublishedState.by(manifest(2))


# --- announcing again


def test_an_overdue_epoch_is_announced_again_with_its_attempt() -> None:
    stream = ManagedStream(1, 2, 3)
    stream.ack("seattle", 1)
    assert not stream.round().overdue
    stream.clock.pass_seconds(TIMEOUT - 1)
    assert not stream.round().overdue
    assert stream.announced() == []
    stream.clock.pass_seconds(1)
    assert stream.round().overdue
    assert stream.announced() == [(2, 1)]
    stream.round()
    assert stream.announced() == [(2, 1)]
    stream.clock.pass_seconds(TIMEOUT)
    stream.round()
    assert stream.announced() == [(2, 2)]


def test_progress_restarts_the_timeout() -> None:
    stream = ManagedStream(1, 2, 3)
    stream.ack("seattle", 1)
    stream.round()
    stream.clock.pass_seconds(TIMEOUT - 1)
    stream.ack("seattle", 2)
    stream.round()
    stream.clock.pass_seconds(TIMEOUT - 1)
    assert not stream.round().overdue
    stream.clock.pass_seconds(1)
    stream.round()
    assert stream.announced() == [(3, 1)]


def test_announcements_of_acked_epochs_are_withdrawn() -> None:
    stream = ManagedStream(1, 2)
    stream.ack("seattle", 1)
    stream.round()
    stream.clock.pass_seconds(TIMEOUT)
    stream.round()
    assert stream.announced() == [(2, 1)]
    stream.ack("seattle", 2)
    state = stream.round()
    assert (stream.announced(), state.overdue) == ([], False)


def test_attempts_go_on_after_a_restart() -> None:
    stream = ManagedStream(1, 2)
    stream.ack("seattle", 1)
    announce(stream.log.channel, STREAM, 2, 6)
    stream.round()
    stream.clock.pass_seconds(TIMEOUT)
    stream.round()
    assert stream.announced() == [(2, 7)]


def test_f43_without_any_ack_nothing_is_announced_and_the_poll_is_every_5_seconds() -> None:
    """b14: a sender may start before its remote exists."""
    stream = ManagedStream(1)
    assert stream.manager.due()
    state = stream.round()
    assert state.backlog == 1
    assert not stream.manager.due()
    stream.clock.pass_seconds(NO_ACKS_POLL_INTERVAL / 1000 - 0.001)
    assert not stream.manager.due()
    stream.clock.pass_seconds(0.001)
    assert stream.manager.due()
    stream.clock.pass_seconds(TIMEOUT)
    assert stream.round().overdue
    assert stream.announced() == []
    stream.ack("seattle", 1)
    stream.clock.pass_seconds(5)
    stream.round()
    assert stream.manager.due()
    assert stream.left() == ([1], 0)


def test_one_slow_site_is_enough_to_announce_again() -> None:
    stream = ManagedStream(1, 2, sites=("denver", "seattle"))
    stream.ack("seattle", 2)
    stream.round()
    stream.clock.pass_seconds(TIMEOUT)
    stream.round()
    assert stream.announced() == [(1, 1)]


def test_the_readers_are_told_of_an_epoch_whose_writer_died_before() -> None:
    """Its manifest is there, and no head. Fails when only its own process tells them: they would
    find it minutes later."""
    stream = ManagedStream(1)
    second = manifest(2, previous=stream.log.read(1).fingerprint)
    stream.log.channel.append(STREAM, 2, second.encode())
    assert head(stream.log.channel, STREAM) == 1
    reader = Heads(stream.log.channel)
    before = reader.tags()
    for _ in range(2):
        stream.round()
    assert head(stream.log.channel, STREAM) == 2
    heads = reader.tags()
    assert heads != before
    stream.log = StreamLog(stream.log.channel, STREAM)
    run(stream.new().round())
    assert reader.tags() == heads


def test_an_empty_stream_needs_no_work() -> None:
    stream = ManagedStream()
    state = stream.round()
    assert (state.newest, state.backlog, stream.calls) == (None, 0, [])


def test_a_clock_that_is_set_back_stops_nothing() -> None:
    """Fails when a time in the future is waited for: no acks, no announcements and no sweep until
    then."""
    stream = ManagedStream(1)
    stream.round()
    sweep = Sweep(stream.manager)
    sweep.run_when_due()
    assert not stream.manager.due()
    stream.clock.pass_seconds(-86_400)
    assert stream.manager.due()
    assert stream.new().due()
    before = stream.checkpoints.kept[STREAM].swept
    sweep.run_when_due()
    assert stream.checkpoints.kept[STREAM].swept == before - 86_400_000
    stream.ack("seattle", 0)
    stream.round()
    stream.clock.pass_seconds(-86_400)
    assert stream.round().overdue


def test_f17_an_ack_beyond_the_end_of_the_log_does_not_count() -> None:
    """The log was restored to an older state and written to again; the ack is older.
    Fails when it counts: the only copy of what was written again is trimmed, though no site has
    applied it."""
    stream = ManagedStream(1, 2, 3)
    stream.ack("seattle", 7)
    state = stream.round()
    assert (stream.left(), state.backlog) == (([1, 2, 3], 6), 3)
    assert not stream.manager.done(state.newest)


def test_a_log_is_announced_to_a_site_that_has_acked_another_log_of_its_name() -> None:
    """A new log replaced a lost one: nothing else would wake a receiver that has seen as high
    epochs."""
    stream = ManagedStream(1, 2)
    stream.ack("seattle", 9, log_id="another")
    stream.round()
    stream.clock.pass_seconds(TIMEOUT)
    stream.round()
    assert stream.announced() == [(1, 1)]


# --- what sites could not apply


def test_b36_the_log_names_an_event_that_a_site_could_not_apply(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Once, with its cause, and without its row. What was counted before the start is not news.
    Fails when only the count rises."""
    stream = ManagedStream(1, 2, 3)
    stream.ack("seattle", 1, dead_letters=2)
    stream.round()
    assert caplog.messages == []
    letter = replace(APPLIED, event_id="a7", cause="CHECK positive: (amount >= 0)", row="secret")
    stream.log.put_refused(RefusedEvents.of_letters("seattle", STREAM, [letter], 9))
    stream.ack("seattle", 2, dead_letters=5)
    stream.round()
    stream.round()
    [message] = caplog.messages
    assert message == (
        f"{STREAM}: site seattle could not apply 3 more of its events, 5 in all; the newest is "
        "event a7 of version 8: CHECK positive: (amount >= 0). They are dead letters: `spark-wan "
        "dead-letters list --site seattle` shows their rows and causes."
    )
    put_refused(stream.log.channel, STREAM, "seattle", b"damaged")
    stream.ack("seattle", 3, dead_letters=6)
    stream.round()
    assert "could not apply 1 more of its events, 6 in all. They" in caplog.messages[-1]
