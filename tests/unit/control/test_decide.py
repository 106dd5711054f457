"""Decisions from the command line: which are early, which can be taken back, and who gave them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from fakes import ack, publish
from test_ends import log_of
from test_pause import CLICKS, ORDERS
from test_pause import world as paused_world

from spark_wan.control.decide import decide, decisions, early_decisions, withdraw
from spark_wan.errors import ChannelError, OptionError, TopologyError
from spark_wan.log.notes import put_sender_record
from spark_wan.state.decisions import StoredDecisions
from spark_wan.status.reports import read_status
from spark_wan.topology.model import Topology
from spark_wan.wire.decisions import Decisions
from spark_wan.wire.sender_record import SenderRecord

HELD = SenderRecord(
    ORDERS,
    began=1,
    written=1,
    held="orders: version 12 is a TRUNCATE. Decide once with `spark-wan decide "
    "orders@12=distribute` (or `=skip`)",
)
LOG = "b" * 32


def world(folder: Path) -> Topology:
    """Sites whose jobs have run here: they have made their states."""
    topology = paused_world(folder)
    for site in topology.sites.values():
        Path(site.state).mkdir(parents=True, exist_ok=True)
    return topology


def stored(topology: Topology, site: str = "newark", table: str = "orders") -> Decisions:
    return StoredDecisions(topology.site(site).state).load(table)


def test_a_decision_about_what_is_held_is_recorded_with_who_gave_it(tmp_path: Path) -> None:
    topology = world(tmp_path)
    put_sender_record(log_of(topology).channel, HELD)
    [answer] = decide(topology, "newark", ["orders@12=skip"])
    assert (answer.changed, answer.early) == (True, False)
    assert stored(topology) == Decisions({12: "skip"})
    [recorded] = decisions(topology, "newark")
    assert (recorded.decision, recorded.held) == ("orders@12=skip", True)
    assert recorded.by is not None and " at " in recorded.by and recorded.at_ms
    [answer] = decide(topology, "newark", ["orders@12=skip"])
    assert not answer.changed
    assert len(StoredDecisions(topology.site("newark").state).entries("orders")) == 1
    [answer] = decide(topology, "newark", ["orders@12=distribute"])  # another one counts
    assert answer.changed and stored(topology) == Decisions({12: "distribute"})


@pytest.mark.parametrize(
    ("site", "decision"),
    [
        ("newark", "orders@1=skip"),
        ("newark", "orders@120=skip"),
        ("newark", "orders@13=skip"),
        ("newark", "clicks@12=skip"),
        ("newark", "orders@12=resync"),
        ("newark", "orders@12=no-restore"),
        ("seattle", "orders@12=skip"),
    ],
)
def test_a_decision_about_what_is_not_held_is_refused(
    tmp_path: Path, site: str, decision: str
) -> None:
    """It names what is held. Fails when a slip of a digit skips a later TRUNCATE silently."""
    topology = world(tmp_path)
    put_sender_record(log_of(topology).channel, HELD)
    with pytest.raises(OptionError, match="--early") as refused:
        decide(topology, site, ["orders@12=skip", decision] if site == "newark" else [decision])
    if (site, decision[:6]) == ("newark", "orders"):
        assert "version 12 is a TRUNCATE" in str(refused.value)
    assert stored(topology) == stored(topology, site, decision.partition("@")[0]) == Decisions()
    assert early_decisions(topology, site, [decision]) == [decision]
    [answer] = decide(topology, site, [decision], early=True)
    assert answer.early and answer.changed
    assert early_decisions(topology, site, [decision]) == []  # it is recorded
    assert early_decisions(topology, "newark", ["orders@12=skip"]) == []


def test_a_decision_of_a_receiver_is_about_what_it_holds(tmp_path: Path) -> None:
    """Also of a stream of a query, about a log."""
    topology = world(tmp_path)
    for stream, cause in (
        (ORDERS, "decide: `spark-wan decide orders@13=no-restore`"),
        (CLICKS, f"`spark-wan decide clicks@{LOG}=new-log`"),
    ):
        log = log_of(topology, stream)
        publish(log, 1)
        ack(log, "seattle", 0, held=1, cause=cause)
    texts = ["orders@13=no-restore", f"clicks@{LOG}=new-log"]
    assert [each.early for each in decide(topology, "seattle", texts)] == [False, False]
    found = {each.decision for each in decisions(topology, "seattle")}
    assert found == {*texts}
    assert [each.decision for each in decisions(topology, "seattle", "orders")] == texts[:1]
    with pytest.raises(OptionError):
        decide(topology, "newark", texts[:1])


def test_a_decision_is_taken_back(tmp_path: Path) -> None:
    """All that was decided about a version, and nothing of another one. Fails when a decision that
    was given by mistake stays for ever."""
    topology = world(tmp_path)
    texts = ["orders@12=skip", "orders@12=resync", "orders@13=skip", f"orders@{LOG}=new-log"]
    decide(topology, "newark", texts, early=True)
    [answer] = withdraw(topology, "newark", ["orders@12"])
    assert (answer.decision, answer.changed) == ("orders@12", True)
    assert stored(topology) == Decisions({13: "skip"}, frozenset((LOG,)))
    [answer] = withdraw(topology, "newark", [f"orders@{LOG}=new-log"])
    assert answer.changed and stored(topology) == Decisions({13: "skip"})
    [answer] = withdraw(topology, "newark", ["orders@12"])
    assert not answer.changed
    decide(topology, "newark", ["orders@12=distribute"], early=True)
    assert stored(topology).operations == {12: "distribute", 13: "skip"}


def test_what_is_not_understood_records_nothing(tmp_path: Path) -> None:
    topology = world(tmp_path)
    for wrong in ("orders@12", "orders=skip", "orders@12=drop"):
        with pytest.raises(OptionError, match="is not understood"):
            decide(topology, "newark", ["orders@12=skip", wrong], early=True)
    for place in ("orders", "@12", "orders@"):
        with pytest.raises(OptionError, match="is not understood"):
            withdraw(topology, "newark", [place])
    with pytest.raises(TopologyError, match="orders"):
        decide(topology, "newark", ["orders@12=skip", "order@12=skip"], early=True)
    with pytest.raises(TopologyError, match="orders"):
        withdraw(topology, "newark", ["order@12"])
    assert stored(topology) == Decisions() and decisions(topology, "newark") == []


def test_decisions_of_an_earlier_version_are_listed_without_a_name(tmp_path: Path) -> None:
    topology = world(tmp_path)
    StoredDecisions(topology.site("newark").state).record("orders", Decisions({12: "skip"}))
    [recorded] = decisions(topology, "newark")
    assert (recorded.by, recorded.at_ms, recorded.held) == (None, None, False)


def test_a_channel_that_cannot_be_read_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A hold there is not known. Fails when that looks like a decision about nothing."""
    topology = world(tmp_path)
    channel = log_of(topology).channel
    put_sender_record(channel, replace(HELD, held=None))

    def refused(*asked: object) -> None:
        raise ChannelError("no route to host")

    monkeypatch.setattr(type(channel), "epochs", refused)
    with pytest.raises(OptionError, match="east cannot be read, so a hold there is not known"):
        decide(topology, "newark", ["orders@12=skip"])


def test_a_decision_has_the_name_of_who_made_it_count(tmp_path: Path) -> None:
    """Not of who decided the same before it was taken back. Fails when ann is asked about what carl
    did."""
    topology = world(tmp_path)
    log = StoredDecisions(topology.site("newark").state)

    def who() -> dict[str, str | None]:
        return {each.decision: each.by for each in decisions(topology, "newark")}

    log.record("orders", Decisions({12: "skip", 13: "skip"}), by="ann", at=1)
    log.record("orders", Decisions(withdrawn=frozenset(("12",))), by="bob", at=2)
    log.record("orders", Decisions({12: "skip"}), by="carl", at=3)
    assert who() == {"orders@12=skip": "carl", "orders@13=skip": "ann"}
    log.record("orders", Decisions({13: "distribute"}), by="dan", at=4)
    log.record("orders", Decisions({13: "skip"}), by="eve", at=5)
    assert who() == {"orders@12=skip": "carl", "orders@13=skip": "eve"}


def test_a_state_that_is_not_there_is_not_made(tmp_path: Path) -> None:
    """No job would see what is recorded there. Fails when the command says that it is recorded."""
    topology = paused_world(tmp_path)
    put_sender_record(log_of(topology).channel, HELD)
    for ask in (
        lambda: decide(topology, "newark", ["orders@12=skip"]),
        lambda: withdraw(topology, "newark", ["orders@12"]),
        lambda: decisions(topology, "newark"),
    ):
        with pytest.raises(OptionError, match="is not there"):
            ask()
    publish(log_of(topology), 1)
    read_status(topology)
    assert not Path(topology.site("newark").state).exists()


def test_a_stream_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    """What its sites hold is not known."""
    topology = world(tmp_path)
    log = log_of(topology)
    publish(log, 1, 2)
    [path] = (tmp_path / "east" / "log" / ORDERS).glob("*1.json")
    path.write_text("{")
    with pytest.raises(OptionError, match=f"{ORDERS} cannot be read"):
        decide(topology, "seattle", ["orders@12=no-restore"])
