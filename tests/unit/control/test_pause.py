"""Pausing and resuming what a site sends: what the channels say afterwards, and what receivers,
senders and the status make of it."""

from __future__ import annotations

import threading
import uuid
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import receivers
from fakes import memory_channel

from spark_wan.channels import registry
from spark_wan.channels.base import Channel
from spark_wan.channels.registry import open_channel
from spark_wan.control.enforce import Enforcer
from spark_wan.control.keeper import CONTROL_INTERVAL, ControlKeeper
from spark_wan.control.verbs import ControlAnswer, pause, resume
from spark_wan.errors import ChannelError, LedgerError, OptionError, TopologyError
from spark_wan.log.heads import Heads
from spark_wan.log.notes import UNREADABLE_PAUSE, last_pause, pauses, put_pause
from spark_wan.log.notes import pause as pause_of
from spark_wan.runtime.scheduler import Next
from spark_wan.state.control import KEPT, ControlLog
from spark_wan.state.objects import StateObjects
from spark_wan.topology.model import Topology
from spark_wan.topology.parsing import parse_topology
from spark_wan.wire.control import PAUSE, RESUME, Control, Scope
from spark_wan.wire.head import Pause

ORDERS, CLICKS = "newark.east.orders", "newark.west.clicks"
FORWARDED = "seattle.north~newark.east.orders"
PAUSED = Pause(1, "ann at here", 5)


def world(folder: Path, *more: str, east: str = "", west: str = "") -> Topology:
    """newark sends orders (and ``more``) to seattle by east, and the events of a query by west;
    seattle forwards what it gets to denver. ``east``, ``west``: their channels; by default
    directories."""
    tables = {
        name: {
            "keys": ["id"],
            "writers": ["newark"],
            "senders": ["east", "north"],
            "at": {site: f"{folder}/{site}/{name}" for site in ("newark", "seattle", "denver")},
        }
        for name in ("orders", *more)
    }
    clicks = {
        "source": "sink",
        "writers": ["newark"],
        "senders": ["west"],
        "at": {"seattle": f"{folder}/seattle/clicks"},
    }
    senders = {
        "east": {"site": "newark", "remotes": ["seattle"], "channel": east or f"{folder}/east"},
        "west": {"site": "newark", "remotes": ["seattle"], "channel": west or f"{folder}/west"},
        "north": {"site": "seattle", "remotes": ["denver"], "channel": f"{folder}/north"},
    }
    content = {
        "version": 1,
        "sites": {each: {"state": f"{folder}/{each}/_wan"} for each in ("newark", "seattle")}
        | {"denver": {"state": f"{folder}/denver/_wan"}},
        "senders": senders,
        "tables": {**tables, "clicks": clicks},
    }
    return parse_topology(content, "wan.yaml")


def of(topology: Topology, sender: str) -> Channel:
    return open_channel(topology.sender(sender).channel)


def paused(channel: Channel) -> set[str]:
    """The streams of a channel that are paused."""
    return {stream for stream in pauses(channel) if pause_of(channel, stream) is not None}


def events(topology: Topology, sender: str) -> set[str]:
    """The streams of a sender's channel that are paused, without those of copies."""
    return {stream for stream in paused(of(topology, sender)) if "~copy~" not in stream}


def changed(answer: ControlAnswer) -> tuple[bool, int]:
    return answer.changed, answer.generation


# --- the verbs


def test_b18_a_site_is_paused_and_resumed(tmp_path: Path) -> None:
    topology = world(tmp_path)
    answer = pause(topology, "newark")
    assert (answer.streams, changed(answer)) == ((ORDERS, CLICKS), (True, 1))
    assert (events(topology, "east"), events(topology, "west")) == ({ORDERS}, {CLICKS})
    assert events(topology, "north") == set()  # that is what seattle sends
    note = pause_of(of(topology, "east"), ORDERS)
    assert note is not None
    assert (note.generation, " at " in note.by, note.capture) == (1, True, False)
    assert changed(resume(topology, "newark")) == (True, 2)
    assert paused(of(topology, "east")) | paused(of(topology, "west")) == set()


def test_b20_a_verb_may_be_repeated(tmp_path: Path) -> None:
    """Fails when each one is an entry, or takes the note of the first away."""
    topology = world(tmp_path)
    assert changed(resume(topology, "newark")) == (False, 0)
    pause(topology, "newark", table="orders")
    before = pause_of(of(topology, "east"), ORDERS)
    assert changed(pause(topology, "newark", table="orders")) == (False, 1)
    assert pause_of(of(topology, "east"), ORDERS) == before
    assert changed(resume(topology, "newark", table="clicks")) == (False, 1)
    assert changed(pause(topology, "newark", table="orders", capture=True)) == (True, 2)
    assert changed(pause(topology, "newark")) == (True, 3)  # clicks were not
    assert changed(resume(topology, "newark")) == (True, 4)
    assert changed(resume(topology, "newark", table="orders")) == (False, 4)


def test_of_two_requests_about_a_stream_the_later_counts(tmp_path: Path) -> None:
    topology = world(tmp_path, "prices")
    pause(topology, "newark", sender="east")
    resume(topology, "newark", table="orders")
    assert events(topology, "east") == {"newark.east.prices"}
    pause(topology, "newark")
    assert events(topology, "east") == {ORDERS, "newark.east.prices"}
    _, control = ControlLog(topology.site("newark").state).read()
    assert [each.scope for each in control.rules] == [Scope()]
    resume(topology, "newark", sender="east", table="prices")
    assert events(topology, "east") == {ORDERS}
    resume(topology, "newark")
    _, control = ControlLog(topology.site("newark").state).read()
    assert (control.rules, events(topology, "east")) == ((), set())


def test_what_a_site_forwards_is_paused_there(tmp_path: Path) -> None:
    topology = world(tmp_path)
    assert pause(topology, "seattle", sender="north").streams == (FORWARDED,)
    assert (events(topology, "north"), events(topology, "east")) == ({FORWARDED}, set())


def test_copies_wait_with_the_stream(tmp_path: Path) -> None:
    """Fails when a paused link takes a whole table."""
    topology = world(tmp_path)
    pause(topology, "newark", table="orders")
    assert paused(of(topology, "east")) == {ORDERS, f"{ORDERS}~copy~seattle"}


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"site": "newerk"}, "newark"),
        ({"sender": "eastt"}, "east"),
        ({"table": "order"}, "orders"),
        ({"sender": "north"}, "runs at site seattle, not at newark"),
        ({"sender": "east", "table": "clicks"}, "sender east does not send table clicks"),
        ({"site": "denver"}, "site denver does not send anything"),
    ],
)
def test_b74_what_is_not_there_is_refused_and_nothing_changes(
    tmp_path: Path, given: dict[str, str], message: str
) -> None:
    topology = world(tmp_path)
    with pytest.raises(TopologyError, match=message):
        pause(topology, **{"site": "newark", **given})  # type: ignore[arg-type]
    assert ControlLog(topology.site("newark").state).read() == (0, Control())


def test_the_capture_of_a_query_is_not_paused(tmp_path: Path) -> None:
    with pytest.raises(
        OptionError, match=r"no sender of site newark captures clicks.*Stop the query"
    ):
        pause(world(tmp_path), "newark", table="clicks", capture=True)


# --- the log


def test_two_operators_at_once_each_decide_by_what_the_other_did(tmp_path: Path) -> None:
    """Fails when one entry replaces the other, or is lost."""
    topology = world(tmp_path, *(f"t{n}" for n in range(8)))
    threads = [
        threading.Thread(target=pause, args=(topology, "newark"), kwargs={"table": f"t{n}"})
        for n in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    generation, control = ControlLog(topology.site("newark").state).read()
    assert generation == 8
    assert {each.table for each in control.rules} == {f"t{n}" for n in range(8)}
    Enforcer(topology, "newark", ControlLog(topology.site("newark").state)).enforce()
    assert events(topology, "east") == {f"newark.east.t{n}" for n in range(8)}


def test_an_entry_is_added_to_what_is_there_then(tmp_path: Path) -> None:
    log, other = ControlLog(str(tmp_path)), ControlLog(str(tmp_path))
    turns: list[int] = []

    def decide(generation: int, before: Control) -> Control:
        turns.append(generation)
        if len(turns) == 1:
            other.add(lambda n, c: c.following(PAUSE, Scope(), generation=n, by="", at=0))
        return before.following(RESUME, Scope(), generation=generation, by="", at=0)

    assert log.add(decide) and turns == [1, 2]
    assert log.read()[1].rules == ()


def test_the_log_does_not_grow_for_ever(tmp_path: Path) -> None:
    log = ControlLog(str(tmp_path))
    for verb in (PAUSE, RESUME) * (KEPT // 2 + 5):
        log.add(lambda n, c, v=verb: c.following(v, Scope(), generation=n, by="", at=0))  # type: ignore[misc]
    assert len(list((tmp_path / "control").iterdir())) == KEPT
    assert ControlLog(str(tmp_path)).read()[0] == KEPT + 10


def test_a_damaged_entry_is_an_error_and_what_is_paused_stays_so(tmp_path: Path) -> None:
    topology = world(tmp_path)
    pause(topology, "newark")
    [entry] = (tmp_path / "newark/_wan/control").iterdir()
    entry.write_text("{}")
    keeper = ControlKeeper(topology, topology.site("newark"))
    keeper.enforce()
    assert events(topology, "east") == {ORDERS}
    with pytest.raises(LedgerError, match="control log cannot be read"):
        resume(topology, "newark")


@pytest.mark.parametrize("verb", ["pause", "resume"])
def test_a_lost_control_log_resumes_nothing(tmp_path: Path, verb: str) -> None:
    """Until somebody asks anew. Fails when a job takes the pause away, or when a resume is not
    above the lost entries, or does nothing: by what is left of the log, nothing is paused."""
    topology = world(tmp_path)
    for _ in range(2):
        pause(topology, "newark")
        resume(topology, "newark")
    pause(topology, "newark")
    for entry in (tmp_path / "newark/_wan/control").iterdir():
        entry.unlink()
    ControlKeeper(topology, topology.site("newark")).enforce()
    assert events(topology, "east") == {ORDERS}
    if verb == "resume":
        assert changed(resume(topology, "newark")) == (True, 6)
        assert events(topology, "east") == set()
    else:
        assert changed(pause(topology, "newark")) == (True, 6)
        assert events(topology, "east") == {ORDERS}


# --- channels


def test_a_channel_that_does_not_answer_keeps_no_other_from_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor the capture from its pause. Fails when the first error ends the look."""
    topology = world(tmp_path)
    east, notes = of(topology, "east"), type(of(topology, "east")).notes

    def refused(channel: Any, *asked: Any) -> Any:
        if channel is east:
            raise ChannelError("no route to host")
        return notes(channel, *asked)

    monkeypatch.setattr(type(east), "notes", refused)
    for verb, there in ((pause, {CLICKS}), (resume, set())):
        with pytest.raises(ChannelError, match="no route"):
            verb(topology, "newark")
        assert events(topology, "west") == there
    with pytest.raises(ChannelError, match="no route"):
        pause(topology, "newark", sender="east", capture=True)
    keeper = ControlKeeper(topology, topology.site("newark"))
    keeper.enforce()
    rule = keeper.pause_of("east", "orders")
    assert rule is not None and rule.capture


def test_topics_that_nobody_has_made_yet_are_not_missed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Those of a query that has never run. Fails when each job of the site warns of them and asks
    every five seconds; and when a pause that they do not say passes for one."""
    monkeypatch.setitem(registry.CHANNELS, "topics", "fake_broker:FakeTopicChannel")
    topology = world(tmp_path, west=f"topics://{uuid.uuid4().hex}")
    keeper = ControlKeeper(topology, topology.site("newark"))
    keeper.look(None)  # type: ignore[arg-type]
    assert (keeper._compared is not None, caplog.records) == (True, [])
    assert changed(resume(topology, "newark")) == (False, 0)
    with pytest.raises(ChannelError):
        pause(topology, "newark")
    assert events(topology, "east") == {ORDERS}
    keeper.enforce()
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    of(topology, "west").ensure_prepared()
    keeper.enforce()
    assert events(topology, "west") == {CLICKS}


def test_a_wider_pause_holds_for_what_comes_later(tmp_path: Path) -> None:
    """Fails when it is left out, because all streams of today are paused already."""
    topology = world(tmp_path)
    for table in ("orders", "clicks"):
        pause(topology, "newark", table=table)
    assert changed(pause(topology, "newark")) == (True, 3)
    later = world(tmp_path, "prices")
    ControlKeeper(later, later.site("newark")).enforce()
    assert events(later, "east") == {ORDERS, "newark.east.prices"}


def test_a_stream_that_has_left_the_topology_is_resumed_with_the_others(tmp_path: Path) -> None:
    """What it has in the channel is delivered then. Fails when it stays paused for ever."""
    before, after = world(tmp_path, "prices"), world(tmp_path)
    pause(before, "newark", sender="east")
    pause(before, "seattle")
    gone = {"newark.east.prices", "newark.east.prices~copy~seattle"}
    ControlKeeper(after, after.site("newark")).enforce()
    assert gone <= paused(of(after, "east"))
    resume(after, "newark")
    resume(after, "seattle")
    assert (paused(of(after, "east")), paused(of(after, "north"))) == (set(), set())


def test_what_was_read_is_not_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A thousand paused streams cost a request for each channel. Fails when each costs one, too."""
    topology = world(tmp_path)
    pause(topology, "newark")
    keeper = ControlKeeper(topology, topology.site("newark"))
    keeper.enforce()
    monkeypatch.setattr("spark_wan.control.enforce.last_pause", None)
    keeper.enforce()
    assert events(topology, "east") == {ORDERS}


def test_an_idle_look_costs_a_request_for_the_log_and_one_for_each_channel(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every two minutes, for each job of the site."""
    topology = world(tmp_path)
    pause(topology, "newark")
    keeper = ControlKeeper(topology, topology.site("newark"))
    keeper.enforce()
    asked: list[str] = []
    listed, notes = StateObjects.numbers, type(of(topology, "east")).notes

    def numbers(objects: StateObjects, name: str) -> list[int]:
        asked.append("state")
        return listed(objects, name)

    def counted(channel: Any, *given: Any) -> Any:
        asked.append(channel.url.rpartition("/")[2])
        return notes(channel, *given)

    monkeypatch.setattr(StateObjects, "numbers", numbers)
    monkeypatch.setattr(type(of(topology, "east")), "notes", counted)
    keeper.enforce()
    assert asked == ["state", "east", "west"]


def test_a_lost_log_is_rebuilt_from_the_channels_that_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Fails when a request is refused for a pause of another channel that may not be read."""
    topology = world(tmp_path)
    pause(topology, "newark")
    for entry in (tmp_path / "newark/_wan/control").iterdir():
        entry.unlink()
    east, note = of(topology, "east"), type(of(topology, "east")).note

    def refused(channel: Any, asked: Any) -> Any:
        if channel is east and asked.kind == "pause":
            raise ChannelError("403")
        return note(channel, asked)

    with monkeypatch.context() as patch:
        patch.setattr(type(east), "note", refused)
        with pytest.raises(ChannelError, match="403"):
            resume(topology, "newark", table="clicks")
    assert (events(topology, "west"), events(topology, "east")) == (set(), {ORDERS})


# --- jobs


def test_a_stream_that_is_added_later_is_paused_too(tmp_path: Path) -> None:
    pause(world(tmp_path), "newark", sender="east")
    later = world(tmp_path, "prices")
    keeper = ControlKeeper(later, later.site("newark"))
    keeper.enforce()
    assert events(later, "east") == {ORDERS, "newark.east.prices"}
    assert keeper.pause_of("east", "prices") is not None
    assert keeper.pause_of("west", "clicks") is None


def test_a_pause_that_has_ended_is_kept_for_a_day(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Until then it says since when acks are owed. Fails when it is deleted at once, or never."""
    topology = world(tmp_path)
    pause(topology, "newark", table="orders")
    resume(topology, "newark", table="orders")
    before = last_pause(of(topology, "east"), ORDERS)
    assert before is not None and before.until is not None
    keeper = ControlKeeper(topology, topology.site("newark"))
    keeper.enforce()
    assert last_pause(of(topology, "east"), ORDERS) == before
    later = before.until + 86_460_000
    monkeypatch.setattr("spark_wan.control.enforce.milliseconds", lambda: later)
    keeper.enforce()
    assert pauses(of(topology, "east")) == {}


def test_f55_a_lost_control_log_ends_no_pause_that_nobody_asks_about(tmp_path: Path) -> None:
    """Also of the capture. Fails when a request for one table resumes all others."""
    topology = world(tmp_path, "prices")
    pause(topology, "newark", sender="east", capture=True)
    for entry in (tmp_path / "newark/_wan/control").iterdir():
        entry.unlink()
    keeper = ControlKeeper(topology, topology.site("newark"))
    keeper.enforce()
    rule = keeper.pause_of("east", "orders")
    assert rule is not None and rule.capture
    resume(topology, "newark", table="prices")
    assert events(topology, "east") == {ORDERS}
    keeper.enforce()
    rule = keeper.pause_of("east", "orders")
    assert rule is not None and rule.capture
    assert keeper.pause_of("east", "prices") is None


def test_a_pass_with_an_older_entry_undoes_no_newer_pause(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It takes a while, and another one is faster."""
    topology = world(tmp_path)
    pause(topology, "newark")
    log = ControlLog(topology.site("newark").state)
    log.add(lambda n, c: c.following(RESUME, Scope(), generation=n, by="", at=0))
    read, asked = Enforcer._read, list[int]()
    written: list[Pause | None] = []
    put = put_pause

    def slowly(*given: Any) -> Any:
        found = read(*given)
        if not asked:
            asked.append(1)
            pause(topology, "newark")
        return found

    def counted(channel: Channel, stream: str, new: Pause | None) -> None:
        written.append(new)
        put(channel, stream, new)

    monkeypatch.setattr(Enforcer, "_read", slowly)
    monkeypatch.setattr("spark_wan.control.enforce.put_pause", counted)
    Enforcer(topology, "newark", log).enforce()
    assert (events(topology, "east"), log.read()[0]) == ({ORDERS}, 3)
    assert [new for new in written if new is None or new.until is not None] == []


def test_a_pause_whose_note_was_deleted_comes_back(tmp_path: Path) -> None:
    topology = world(tmp_path)
    pause(topology, "newark")
    put_pause(of(topology, "east"), ORDERS, None)
    ControlKeeper(topology, topology.site("newark")).enforce()
    assert events(topology, "east") == {ORDERS}


def test_a_job_goes_on_where_the_state_does_not_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    topology = world(tmp_path)
    pause(topology, "newark", table="orders", capture=True)
    keeper = ControlKeeper(topology, topology.site("newark"))
    keeper.enforce()

    def refused(*_: Any) -> Any:
        raise ChannelError("403")

    monkeypatch.setattr(ControlLog, "read", refused)
    for _ in range(2):
        keeper.look(None)  # type: ignore[arg-type]
    rule = keeper.pause_of("east", "orders")
    assert rule is not None and rule.capture
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    new = ControlKeeper(topology, topology.site("newark"))
    assert new.look(None) == Next(CONTROL_INTERVAL)  # type: ignore[arg-type]
    with pytest.raises(ChannelError, match="403"):  # nobody knows whether it is paused
        new.check_known()


# --- receivers


def test_b18_b19_a_receiver_takes_nothing_of_a_paused_stream_and_all_of_it_later() -> None:
    """The others go on. Fails when a pause is not looked at."""
    channel = memory_channel()
    here = receivers.receiver(channel)
    for table in ("orders", "prices"):
        receivers.send(channel, table, 1)
    here.apply()
    put_pause(channel, "orders", PAUSED)
    for table in ("orders", "prices"):
        receivers.send(channel, table, 2, 3)
    here.apply()
    assert (receivers.acked(channel, "orders"), receivers.acked(channel, "prices")) == (1, 3)
    assert here.held() == {"orders": None, "prices": None}
    put_pause(channel, "orders", None)
    here.apply()
    assert receivers.acked(channel, "orders") == 3


def test_a_receiver_ends_with_the_apply_that_it_has_begun() -> None:
    """A backlog may take hours. Fails when everything that was listed before is applied."""
    channel = memory_channel()
    receivers.send(channel, "orders", 1, 2, 3, 4)
    rounds: list[str] = []

    def before(table: str) -> None:
        rounds.append(table)
        if len(rounds) == 2:
            put_pause(channel, "orders", PAUSED)
            here.channel.look(None)  # type: ignore[arg-type]

    here = receivers.receiver(channel, before)
    here.apply()
    assert receivers.acked(channel, "orders") == 2
    here.apply()
    assert receivers.acked(channel, "orders") == 2
    put_pause(channel, "orders", replace(PAUSED, until=9))
    here.apply()
    assert receivers.acked(channel, "orders") == 4


def test_what_a_table_was_given_before_the_pause_is_left() -> None:
    channel = memory_channel()
    receivers.send(channel, "orders", 1)
    here = receivers.receiver(channel)
    here.channel.look(None)  # type: ignore[arg-type]
    put_pause(channel, "orders", PAUSED)
    here.apply()
    assert receivers.acked(channel, "orders") == 0
    put_pause(channel, "orders", None)
    here.apply()
    assert receivers.acked(channel, "orders") == 1


def test_a_new_receiver_takes_nothing_of_a_paused_stream() -> None:
    channel = memory_channel()
    receivers.send(channel, "orders", 1)
    put_pause(channel, "orders", PAUSED)
    here = receivers.receiver(channel)
    here.apply()
    assert here.held() == {}
    put_pause(channel, "orders", None)
    here.apply()
    assert receivers.acked(channel, "orders") == 1


def test_a_pause_that_cannot_be_read_is_one() -> None:
    """It is newer, or damaged. Fails when it is taken for none."""
    channel = memory_channel()
    for data in (b"", b"{", b'{"version": 9}'):
        channel.put_note(_note(), data)
        heads = Heads(channel)
        heads.tags()
        assert heads.paused == {"orders"}
        assert pause_of(channel, "orders") == UNREADABLE_PAUSE
    written = replace(PAUSED, capture=True)
    put_pause(channel, "orders", written)
    assert pause_of(channel, "orders") == written


def test_a_pause_that_may_not_be_read_stops_no_other_stream(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    channel = memory_channel()
    for table in ("orders", "prices"):
        receivers.send(channel, table, 1)
    put_pause(channel, "orders", replace(PAUSED, until=9))
    here, note = receivers.receiver(channel), channel.note

    def refused(asked: Any) -> Any:
        if asked.kind == "pause":
            raise ChannelError("403")
        return note(asked)

    with monkeypatch.context() as patch:
        patch.setattr(channel, "note", refused)
        here.apply()
        assert (receivers.acked(channel, "orders"), receivers.acked(channel, "prices")) == (0, 1)
    here.apply()
    assert receivers.acked(channel, "orders") == 1


def _note() -> Any:
    from spark_wan.channels.base import Note

    return Note("pause", "orders")
