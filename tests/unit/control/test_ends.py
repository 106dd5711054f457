"""``drain`` and ``stop_at``: what the control log says afterwards, and what the answer tells of the
streams, while a sender and receivers act on it."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
from fakes import ack, manifest
from test_pause import CLICKS, FORWARDED, ORDERS, changed, events, of, world

from spark_wan.channels import registry
from spark_wan.control.ends import StreamEnd
from spark_wan.control.keeper import ControlKeeper
from spark_wan.control.verbs import drain, pause, resume, stop_at
from spark_wan.errors import AckTimeoutError, ChannelError, OptionError, TopologyError
from spark_wan.log.notes import put_receiver_record, put_sender_record
from spark_wan.log.stream_log import StreamLog
from spark_wan.state.control import ControlLog
from spark_wan.status.reports import (
    DRAINING,
    FINISHED,
    LATE,
    STOPPED,
    StreamReport,
    read_status,
)
from spark_wan.status.wait import wait_for_ack
from spark_wan.topology.model import Topology
from spark_wan.units import milliseconds
from spark_wan.wire.control import AT_TIME, AT_VERSION, NEWEST, Control, End
from spark_wan.wire.manifest import Manifest
from spark_wan.wire.receiver_record import ReceiverRecord
from spark_wan.wire.records import EpochRef, TableClock
from spark_wan.wire.sender_record import EndRequest, SenderRecord


def log_of(topology: Topology, stream: str = ORDERS) -> StreamLog:
    return StreamLog(of(topology, stream.partition("~")[0].split(".")[1]), stream)


def published(log: StreamLog, through: int, **more: Any) -> Manifest:
    """Append an epoch through a version of the source."""
    last = log.newest_manifest()
    epoch = last.epoch + 1 if last is not None else 1
    previous = last.fingerprint if last is not None else ""
    table = log.stream.rpartition(".")[2]
    fields = {"last_version": through, "stream": log.stream, "table": table, "previous": previous}
    return log.append(manifest(epoch, **{**fields, **more}))


def end(log: StreamLog, control: int) -> Manifest:
    """What the sender does at the end."""
    last = log.newest_manifest()
    assert last is not None
    through = last.last_version
    more = {"addressees": last.addressees, "end": True, "control": control}
    return published(log, through, first_version=through + 1, **more)


def control_of(topology: Topology, site: str = "newark") -> tuple[int, Control]:
    return ControlLog(topology.site(site).state).read()


def wanted(topology: Topology, table: str, sender: str = "east") -> End | None:
    keeper = ControlKeeper(topology, topology.site("newark"))
    ending = keeper.wanted(sender, table).ending
    return ending.end if ending is not None else None


def reported(topology: Topology, stream: str = ORDERS) -> StreamReport:
    found = [each for channel in read_status(topology) for each in channel.streams]
    return next(each for each in found if each.stream == stream)


class Acting:
    """Does one thing at each look of a verb that waits, as jobs would."""

    def __init__(self, *does: Callable[[], object]) -> None:
        self.does, self.seen = list(does), list[str]()

    def __call__(self, ends: Sequence[StreamEnd]) -> None:
        self.seen += [each.waits_for for each in ends if each.waits_for is not None]
        if self.does:
            self.does.pop(0)()


# --- drain


def test_b19_a_drain_ends_once_all_sites_have_acked_the_end(tmp_path: Path) -> None:
    """Fails when it ends with the ack of an epoch, or with an end that nobody has acked."""
    topology = world(tmp_path)
    log = log_of(topology)
    published(log, 7)
    record = SenderRecord(ORDERS, began=1, written=1, epoch=1, through=7, waiting=3)
    acting = Acting(
        lambda: put_sender_record(log.channel, record),
        lambda: put_sender_record(log.channel, replace(record, waiting=0, delayed=3)),
        lambda: (published(log, 10), end(log, 1)),
        lambda: ack(log, "seattle", 2),
        lambda: ack(log, "seattle", 3),
    )
    answer = drain(topology, "newark", table="orders", timeout=60, progress=acting)
    assert (answer.arrived, answer.verb, changed(answer)) == (True, "drain", (True, 1))
    assert answer.ends == (StreamEnd(ORDERS, "orders", True, 10, 3, (), None),)
    assert acting.seen == [
        "no sender of newark has said anything of it: check that one runs; "
        "seattle has acked nothing: check that its receiver runs",
        "the sender of newark has not ended it: version 7 so far, and 3 commits wait; "
        "seattle has acked nothing: check that its receiver runs",
        "the sender of newark has not ended it: version 7 so far, and 3 commits wait until they "
        "are as old as its `delay`; seattle has acked nothing: check that its receiver runs",
        "seattle has acked nothing: check that its receiver runs",
        "seattle has not acked epoch 3",
    ]
    assert wanted(topology, "orders") == End(NEWEST)


def test_b27_a_drain_ends_with_its_time_out_and_says_what_it_waits_for(tmp_path: Path) -> None:
    """Fails when it hangs, or counts a stream that is held as done."""
    topology = world(tmp_path)
    log = log_of(topology)
    published(log, 7)
    record = SenderRecord(ORDERS, began=1, written=1, epoch=1, through=7, held="the feed is off")
    put_sender_record(log.channel, record)
    ack(log, "seattle", 0, held=1, cause="the table is gone")
    answer = drain(topology, "newark", timeout=0)
    assert not answer.arrived
    [orders, clicks] = answer.ends
    assert orders.waits_for == (
        "newark holds it: the feed is off; seattle holds it at epoch 1: the table is gone"
    )
    assert (orders.missing, clicks.arrived) == (("seattle",), True)
    put_sender_record(log.channel, replace(record, held=None, stopped=5))
    ack(log, "seattle", 0)
    put_receiver_record(log.channel, ReceiverRecord("seattle", ORDERS, 1, 1, stopped=5))
    answer = drain(topology, "newark", table="orders", timeout=0)
    assert answer.ends[0].waits_for == (
        "the sender of newark was stopped: start it; the receiver of seattle was stopped: start it"
    )


def test_what_is_not_captured_is_only_waited_for(tmp_path: Path) -> None:
    """What was in the channel then: a query that goes on to write would keep it waiting for ever.
    What the site forwards is waited for where it is forwarded."""
    topology = world(tmp_path)
    clicks = log_of(topology, CLICKS)
    published(clicks, -1, kind="events", first_version=-1)
    published(log_of(topology), 7)
    acting = Acting(
        lambda: published(clicks, -1, kind="events", first_version=-1),
        lambda: ack(clicks, "seattle", 1),
    )
    answer = drain(topology, "newark", table="clicks", timeout=60, progress=acting)
    assert answer.ends == (StreamEnd(CLICKS, "clicks", True, None, 1, (), None),)
    answer = drain(topology, "seattle", timeout=0)
    assert [each.stream for each in answer.ends] == ["seattle.north~newark.east.orders"]
    assert answer.arrived  # nothing is forwarded yet


def test_a_stream_that_has_nothing_to_send_has_ended(tmp_path: Path) -> None:
    """Once its sender has looked since the request. Fails when what it said before counts."""
    topology = world(tmp_path)
    channel = of(topology, "east")
    record = SenderRecord(ORDERS, began=1, written=1)
    put_sender_record(channel, record)
    assert not drain(topology, "newark", table="orders", timeout=0).arrived
    later = stop_at(topology, "newark", 9, table="orders", timeout=0)
    put_sender_record(channel, replace(record, control=9))
    assert not later.arrived
    assert not stop_at(topology, "newark", 9, table="orders", timeout=0).arrived
    for more, arrived in (
        ({"control": 1}, False),
        ({"control": 9, "held": "why"}, False),
        ({"control": 9, "waiting": 2}, False),
        ({"control": 9}, True),
    ):
        put_sender_record(channel, replace(record, **more))  # type: ignore[arg-type]
        assert drain(topology, "newark", table="orders", timeout=0).arrived is arrived


def test_a_drain_resumes_what_is_paused(tmp_path: Path) -> None:
    """Fails when it waits for sites that take nothing."""
    topology = world(tmp_path)
    pause(topology, "newark", capture=True)
    drain(topology, "newark", table="orders", timeout=0)
    assert (events(topology, "east"), events(topology, "west")) == (set(), {CLICKS})
    pause(topology, "newark", table="orders")
    assert events(topology, "east") == {ORDERS}
    assert wanted(topology, "orders") == End(NEWEST)  # a pause does not let it go on


def test_a_drain_that_is_asked_for_again_is_a_new_one(tmp_path: Path) -> None:
    topology = world(tmp_path)
    log = log_of(topology)
    published(log, 7)
    end(log, 1)
    ack(log, "seattle", 2)
    assert changed(drain(topology, "newark", table="orders", timeout=0)) == (True, 2)
    answer = drain(topology, "newark", table="orders", timeout=0)
    assert (changed(answer), answer.ends[0].ended) == ((True, 3), False)
    end(log, 3)
    ack(log, "seattle", 3)
    assert resume(topology, "newark").changed


def test_a_channel_that_does_not_answer_is_waited_for(tmp_path: Path) -> None:
    topology = world(tmp_path)
    log = log_of(topology)
    published(log, 7)
    stops = [True]

    def notes(*asked: Any) -> Any:
        if stops[0]:
            raise ChannelError("no route to host")
        return original(*asked)

    kind = type(log.channel)
    original = kind.epochs

    def begin() -> None:
        kind.epochs = notes  # type: ignore[method-assign,assignment]

    def go_on() -> None:
        stops[0] = False
        end(log, 1)
        ack(log, "seattle", 2)

    acting = Acting(begin, go_on)
    try:
        assert drain(topology, "newark", table="orders", timeout=60, progress=acting).arrived
    finally:
        kind.epochs = original  # type: ignore[method-assign]


def test_topics_that_nobody_has_made_yet_have_nothing_to_wait_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those of a query that has never run. Of what is captured, the sender has to say so. Fails
    when a drain of the site waits for them, or a stop is refused."""
    monkeypatch.setitem(registry.CHANNELS, "topics", "fake_broker:FakeTopicChannel")
    topology = world(tmp_path, west=f"topics://{uuid.uuid4().hex}")
    log = log_of(topology)
    published(log, 7)
    acting = Acting(lambda: (end(log, 1), ack(log, "seattle", 2)))
    answer = drain(topology, "newark", timeout=60, progress=acting)
    assert {each.stream: each.arrived for each in answer.ends} == {ORDERS: True, CLICKS: True}
    topology = world(tmp_path / "new", west="", east=f"topics://{uuid.uuid4().hex}")
    answer = stop_at(topology, "newark", 9, table="orders", timeout=0)
    [waits] = answer.ends
    assert (answer.changed, answer.arrived) == (True, False)
    assert waits.waits_for is not None


@pytest.mark.parametrize("before", [True, False])
def test_requests_about_other_tables_do_not_keep_a_drain_waiting(
    tmp_path: Path, before: bool
) -> None:
    """Which make the control log longer: before it, and while it waits. Fails when it waits for the
    newest number."""
    topology = world(tmp_path, "prices")
    log = log_of(topology)
    published(log, 7)
    stop_at(topology, "newark", 7, table="orders")

    def act() -> None:
        pause(topology, "newark", table="prices")
        end(log, 1)
        ack(log, "seattle", 2)

    if before:
        act()
    acting = Acting(*([] if before else [act]))
    found = stop_at(topology, "newark", 7, table="orders", timeout=30, progress=acting)
    assert found.arrived


def test_a_drain_says_that_somebody_has_resumed_or_paused_it(tmp_path: Path) -> None:
    """Fails when it blames the jobs."""
    topology = world(tmp_path)
    published(log_of(topology), 7)
    ack(log_of(topology), "seattle", 1)
    acting = Acting(
        lambda: pause(topology, "newark", capture=True),
        lambda: resume(topology, "newark"),
        lambda: None,
    )
    drain(topology, "newark", table="orders", timeout=2, progress=acting)
    assert "it was paused by" in acting.seen[1] and "it was resumed by" in acting.seen[2]


def test_a_site_that_the_sender_does_not_know_yet_has_nothing(tmp_path: Path) -> None:
    """Fails when a drain says that all has arrived at a site that was added to the topology."""
    topology = world(tmp_path)
    log = log_of(topology)
    published(log, 7, addressees=("tacoma",))
    acting = Acting(lambda: end(log, 1))
    [found] = drain(topology, "newark", table="orders", timeout=1, progress=acting).ends
    assert found.missing == ("seattle",)
    assert "seattle is not known to the sender yet" in (found.waits_for or "")


def test_more_than_was_asked_for_is_told(tmp_path: Path) -> None:
    topology = world(tmp_path)
    log = log_of(topology)
    stop_at(topology, "newark", 5, table="orders")
    published(log, 7)
    end(log, 1)
    ack(log, "seattle", 2)
    with pytest.raises(OptionError, match="published through version 7 already"):
        stop_at(topology, "newark", 5, table="orders", timeout=0)
    stop_at(topology, "newark", 9, table="orders")
    assert drain(topology, "newark", table="orders", timeout=0).ends[0].waits_for is not None


def test_a_lost_control_log_ends_no_pause_of_other_tables(tmp_path: Path) -> None:
    """Whatever number an end has. Fails when what was delivered in spite of it cannot be taken
    back."""
    topology = world(tmp_path, "prices")
    log = log_of(topology)
    pause(topology, "newark", table="prices")
    drain(topology, "newark", table="orders", timeout=0)
    published(log, 7)
    end(log, 2)
    for entry in (Path(topology.site("newark").state) / "control").iterdir():
        entry.unlink()
    assert changed(resume(topology, "newark", table="orders")) == (True, 3)
    assert events(topology, "east") == {"newark.east.prices"}


# --- stop


def test_b21_a_stop_is_recorded_and_does_not_wait(tmp_path: Path) -> None:
    topology = world(tmp_path)
    answer = stop_at(topology, "newark", 12, table="orders")
    assert (answer.verb, answer.ends, answer.arrived, changed(answer)) == (
        "stop",
        (),
        True,
        (True, 1),
    )
    assert wanted(topology, "orders") == End(AT_VERSION, 12)
    assert changed(stop_at(topology, "newark", 12, table="orders")) == (False, 1)
    at = datetime(2026, 3, 1, 22, 5, tzinfo=timezone(timedelta(hours=1)))
    stop_at(topology, "newark", at, sender="east")
    assert wanted(topology, "orders") == End(AT_TIME, int(at.timestamp() * 1000))
    assert not stop_at(topology, "newark", at, sender="east", timeout=0).arrived


@pytest.mark.parametrize(
    ("at", "table", "what"),
    [
        (6, "orders", "published through version 7 already"),
        (6, None, "name it"),
        (-1, "orders", "give a version"),
        (True, "orders", "give a version"),
        (datetime(2001, 1, 1, tzinfo=timezone.utc), "orders", "a commit before that time"),
        (datetime(2026, 3, 1), "orders", "no time zone"),
        (9, "clicks", "a query of yours writes it"),
    ],
)
def test_b76_a_stop_that_cannot_be_kept_is_refused(
    tmp_path: Path, at: Any, table: str | None, what: str
) -> None:
    """And nothing is recorded of it. Fails when a cut-over point is promised that has passed."""
    topology = world(tmp_path)
    published(log_of(topology), 7, clock=TableClock(5, 1_700_000_000_000))
    with pytest.raises(OptionError, match=what):
        stop_at(topology, "newark", at, table=table)
    assert control_of(topology)[0] == 0
    assert changed(stop_at(topology, "newark", 7, table="orders")) == (True, 1)


@pytest.mark.parametrize("timeout", [-1.0, float("nan")])
def test_b75_a_time_out_that_is_none_is_refused(tmp_path: Path, timeout: float) -> None:
    topology = world(tmp_path)
    for ask in (
        lambda: drain(topology, "newark", timeout=timeout),
        lambda: stop_at(topology, "newark", 9, table="orders", timeout=timeout),
    ):
        with pytest.raises(OptionError, match="timeout is"):
            ask()
    assert control_of(topology)[0] == 0


def test_what_is_not_there_is_refused_with_the_nearest_name(tmp_path: Path) -> None:
    topology = world(tmp_path)
    with pytest.raises(TopologyError, match="orders"):
        drain(topology, "newark", table="order")
    with pytest.raises(TopologyError, match="newark"):
        stop_at(topology, "newwark", 9, table="orders")


def test_a_stop_of_what_cannot_be_read_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may have passed. Fails when the version is recorded unseen."""
    topology = world(tmp_path)

    def refused(*asked: object) -> None:
        raise ChannelError("no route to host")

    monkeypatch.setattr(type(log_of(topology).channel), "stream_epochs", refused)
    with pytest.raises(ChannelError, match="no route"):
        stop_at(topology, "newark", 9, table="orders")
    assert control_of(topology)[0] == 0


def test_a_stop_names_what_is_captured_alone(tmp_path: Path) -> None:
    """Fails when it says of a query that it ends."""
    at = datetime(2030, 1, 1, tzinfo=timezone.utc)
    assert stop_at(world(tmp_path), "newark", at).streams == (ORDERS,)


# --- resume


def test_b25_an_ended_stream_is_resumed(tmp_path: Path) -> None:
    """Also one of several, and whose end the control log no longer knows. Fails when its sender
    still finds an end that nobody has gone beyond."""
    topology = world(tmp_path, "prices")
    log = log_of(topology)
    drain(topology, "newark", timeout=0)
    published(log, 7)
    last = end(log, 1)
    keeper = ControlKeeper(topology, topology.site("newark"))
    assert keeper.wanted("east", "orders").has_ended(last)
    assert changed(resume(topology, "newark", table="orders")) == (True, 2)
    assert not keeper.wanted("east", "orders").has_ended(last)
    assert wanted(topology, "prices") == End(NEWEST)
    assert changed(resume(topology, "newark", table="orders")) == (False, 2)
    drain(topology, "newark", table="orders", timeout=0)
    end(log, 3)
    for entry in (Path(topology.site("newark").state) / "control").iterdir():
        entry.unlink()
    last = end(log, 40)
    assert keeper.wanted("east", "orders").has_ended(last)
    assert changed(resume(topology, "newark", table="orders")) == (True, 41)
    assert not keeper.wanted("east", "orders").has_ended(last)
    assert changed(resume(topology, "newark", table="orders")) == (False, 41)


def test_a_request_of_another_table_ends_no_end_of_a_lost_log(tmp_path: Path) -> None:
    """However many there are. Fails when a number is enough to go on."""
    topology = world(tmp_path, "prices")
    log = log_of(topology)
    published(log, 7)
    last = end(log, 2)
    for _ in range(3):
        pause(topology, "newark", table="prices")
        resume(topology, "newark", table="prices")
    keeper = ControlKeeper(topology, topology.site("newark"))
    assert keeper.wanted("east", "orders").generation > 2
    assert keeper.wanted("east", "orders").has_ended(last)


# --- what the status says


def test_the_status_of_a_stream_that_ends(tmp_path: Path) -> None:
    topology = world(tmp_path)
    log = log_of(topology)
    published(log, 7, created=milliseconds())
    record = SenderRecord(ORDERS, began=1, written=1, epoch=1, through=7)
    put_sender_record(log.channel, record)
    assert (reported(topology).sites[0].state, reported(topology).ending) == (LATE, None)
    asked = EndRequest("ann at here", NEWEST)
    put_sender_record(log.channel, replace(record, control=1, ending=asked))
    for applied in (0, 1):
        ack(log, "seattle", applied)
        report = reported(topology)
        assert (report.sites[0].state, report.ending and report.ending.version) == (DRAINING, None)
    end(log, 1)
    assert reported(topology).sites[0].state == DRAINING
    ack(log, "seattle", 2)
    stopped = replace(record, control=1, ending=asked, stopped=milliseconds())
    for there in (stopped, replace(stopped, stopped=None)):
        put_sender_record(log.channel, there)
        report = reported(topology)
        assert report.sites[0].state == FINISHED
        assert report.ending is not None
        assert (report.ending.by, report.ending.version) == ("ann at here", 7)
    put_sender_record(log.channel, replace(record, control=2))  # it was resumed
    report = reported(topology)
    assert (report.ending, report.sites[0].state) == (None, "up to date")


def test_the_status_knows_what_no_sender_has_said(tmp_path: Path) -> None:
    """From the control log of the site. Fails when a stream that was resumed, and whose sender
    nobody has started again, looks finished for ever."""
    topology = world(tmp_path)
    log = log_of(topology)
    published(log, 7, created=milliseconds())
    ack(log, "seattle", 1)
    record = SenderRecord(ORDERS, began=1, written=1, epoch=1, through=7)
    put_sender_record(log.channel, record)
    drain(topology, "newark", table="orders", timeout=0)
    assert reported(topology).sites[0].state == DRAINING
    end(log, 1)
    ack(log, "seattle", 2)
    asked, now = EndRequest("ann at here", NEWEST), milliseconds()
    put_sender_record(log.channel, replace(record, control=1, ending=asked, stopped=now))
    assert reported(topology).sites[0].state == FINISHED
    resume(topology, "newark")
    report = reported(topology)
    assert (report.sites[0].state, report.ending) == (STOPPED, None)


def test_an_end_that_is_to_come_hides_nothing(tmp_path: Path) -> None:
    """Fails when a link is `draining` for months."""
    topology = world(tmp_path)
    log = log_of(topology)
    published(log, 7, created=milliseconds())
    put_sender_record(log.channel, SenderRecord(ORDERS, began=1, written=1, epoch=1, through=7))
    stop_at(topology, "newark", 9, table="orders")
    report = reported(topology)
    assert (report.sites[0].state, report.ending and report.ending.kind) == (LATE, AT_VERSION)
    ack(log, "seattle", 1)
    assert reported(topology).sites[0].state == "up to date"


def test_nobody_waits_for_an_ack_of_what_is_behind_an_end(tmp_path: Path) -> None:
    """It says so at once. Fails when it waits for its time-out."""
    topology = world(tmp_path)
    log = log_of(topology)
    published(log, 7)
    end(log, 1)
    ack(log, "seattle", 2)
    record = SenderRecord(ORDERS, 1, 1, ending=EndRequest("ann at here", NEWEST))
    put_sender_record(log.channel, record)
    with pytest.raises(AckTimeoutError, match="was ended with version 7"):
        wait_for_ack(topology, "orders", 8, timeout=600)
    assert wait_for_ack(topology, "orders", 7, timeout=600) == {"newark", "seattle"}
    put_sender_record(log.channel, replace(record, ending=None))  # it was resumed
    with pytest.raises(AckTimeoutError, match="not met within 0 s"):
        wait_for_ack(topology, "orders", 8, timeout=0)


def test_what_is_not_ended_does_not_look_so(tmp_path: Path) -> None:
    """What a query writes, or a site forwards, goes on. Fails when it is `draining` for ever."""
    topology = world(tmp_path)
    clicks, forwarded = log_of(topology, CLICKS), log_of(topology, FORWARDED)
    published(clicks, -1, kind="events", first_version=-1)
    via = EpochRef(ORDERS, "a" * 32, 1, "f")
    published(forwarded, 7, via=via, addressees=("denver",))
    ack(clicks, "seattle", 1)
    ack(forwarded, "denver", 1)
    for site in ("newark", "seattle"):
        drain(topology, site, timeout=0)
    for stream in (CLICKS, FORWARDED):
        report = reported(topology, stream)
        assert (report.sites[0].state, report.ending) == ("up to date", None)


def test_an_end_is_no_ack(tmp_path: Path) -> None:
    """Under no policy has a version been published that was not. Fails when a writer relies on
    it."""
    topology = world(tmp_path)
    log = log_of(topology)
    published(log, 7)
    end(log, 1)
    for policy in ("none", "all"):
        with pytest.raises(AckTimeoutError, match=r"cannot be met now.*was ended with version 7"):
            wait_for_ack(topology, "orders", 99, policy, timeout=0)


def test_b76_a_time_that_has_passed_is_refused_by_what_was_sent(tmp_path: Path) -> None:
    """Also where the log has no clock yet. Fails when a cut-over point is promised that is behind
    what the sites have."""
    topology = world(tmp_path)
    log = log_of(topology)
    published(log, 7, commits=({"version": 7, "time": 1_700_000_000_000},))
    with pytest.raises(OptionError, match="a commit before that time"):
        stop_at(topology, "newark", datetime(2001, 1, 1, tzinfo=timezone.utc), table="orders")
    assert control_of(topology)[0] == 0
