"""``clean``: what it says beforehand, and what the control log says afterwards."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from fakes import ack, put_frame
from test_ends import control_of, log_of, published
from test_pause import CLICKS, ORDERS, world

from spark_wan.cli.app import main
from spark_wan.control.keeper import ControlKeeper
from spark_wan.control.verbs import Waiting, clean, pause, resume, waiting
from spark_wan.errors import ChannelError, OptionError, TopologyError
from spark_wan.topology.model import Topology
from spark_wan.wire.control import Clean, Control


def backlog(topology: Topology, stream: str = ORDERS) -> None:
    """Three epochs, of which seattle has acked one."""
    log = log_of(topology, stream)
    log.channel.ensure_prepared()
    for through in range(3):
        frame = put_frame(log.channel, stream=stream, write=f"{through:032x}", rows=5)
        published(log, through, frames=(frame,), addressees=("seattle",))
    newest = log.newest_manifest()
    assert newest is not None
    ack(log, "seattle", 1, newest.log_id)


def wanted(topology: Topology, table: str = "orders") -> tuple[Clean, ...]:
    keeper = ControlKeeper(topology, topology.site("newark"))
    return keeper.wanted("east", table).cleans


def test_b23_what_is_dropped_is_named_and_the_request_recorded(tmp_path: Path) -> None:
    """For the streams of its scope alone, beside pauses and ends. Fails when a pause forgets it."""
    topology = world(tmp_path, "prices")
    backlog(topology)
    size = sum(log_of(topology).read(epoch).bytes for epoch in (2, 3))
    newest = log_of(topology).newest_manifest()
    assert newest is not None
    [lost] = waiting(topology, "newark")
    assert lost == Waiting(ORDERS, newest.log_id, "seattle", 2, 3, events=10, bytes=size)
    answer = clean(topology, "newark", table="orders")
    assert (answer.changed, answer.generation, answer.waiting) == (True, 1, (lost,))
    assert answer.streams == (ORDERS,)
    [found] = wanted(topology)
    assert (found.generation, found.remote) == (1, None)
    assert found.sites == ((ORDERS, newest.log_id, "seattle", 3),)
    assert found.dropped(newest) == {"seattle": 3}
    assert found.dropped(replace(newest, log_id="another")) == {}
    assert wanted(topology, "prices") == ()
    pause(topology, "newark")
    resume(topology, "newark")
    assert wanted(topology) == (found,)
    clean(topology, "newark", table="orders", remote="seattle")
    assert [each.remote for each in wanted(topology)] == [None, "seattle"]
    clean(topology, "newark", table="orders", remote="seattle")
    assert [each.generation for each in wanted(topology)] == [1, 5]
    clean(topology, "newark")
    assert [each.table for each in control_of(topology)[1].cleans] == [None]


def test_where_nothing_waits_nothing_is_asked_for(tmp_path: Path) -> None:
    """Fails when a later backlog is dropped by it."""
    topology = world(tmp_path)
    backlog(topology)
    newest = log_of(topology).newest_manifest()
    assert newest is not None
    ack(log_of(topology), "seattle", 3, newest.log_id)
    for remote in (None, "denver"):
        answer = clean(topology, "newark", remote=remote)
        assert (answer.changed, answer.generation, answer.waiting) == (False, 0, ())
    assert wanted(topology) == ()


def test_b76_what_sites_could_not_get_again_is_not_dropped(tmp_path: Path) -> None:
    """The events of a query, and what a site forwards."""
    topology = world(tmp_path)
    backlog(topology, CLICKS)
    with pytest.raises(OptionError, match="No table here has its events"):
        clean(topology, "newark", table="clicks")
    with pytest.raises(OptionError, match="it is forwarded"):
        clean(topology, "seattle")
    with pytest.raises(TopologyError, match="did you mean 'seattle'"):
        clean(topology, "newark", remote="seatle")
    with pytest.raises(TopologyError, match="did you mean 'orders'"):
        clean(topology, "newark", table="order")
    assert control_of(topology)[0] == 0


def test_what_waits_has_to_be_known(tmp_path: Path) -> None:
    topology = world(tmp_path)
    backlog(topology)
    for file in (tmp_path / "east" / "log" / ORDERS).glob("*3.json"):
        file.write_bytes(b"damaged")
    with pytest.raises(ChannelError, match=r"what waits in newark\.east\.orders is not known"):
        clean(topology, "newark")


def test_entries_of_earlier_versions_have_none_and_those_without_look_the_same() -> None:
    """Fails when an earlier version cannot read an entry that cleans nothing."""
    plain = Control("pause", by="ann", at=1)
    assert b"cleans" not in plain.encode()
    record = json.loads(Control(cleans=(Clean(None, None, None, (), 2, "ann", 5),)).encode())
    assert record["cleans"] == [
        {
            **{"sender": None, "table": None, "remote": None, "sites": []},
            **{"generation": 2, "by": "ann", "at": 5},
        }
    ]
    assert "requires" not in record
    assert Control.decode(plain.encode(), "here") == plain


Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def topology(tmp_path: Path) -> Topology:
    topology = world(tmp_path)
    backlog(topology)
    return topology


@pytest.fixture
def run(
    topology: Topology,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> Run:
    """Run the command; return its exit code, what it printed, and its errors."""
    config = tmp_path / "wan.yaml"
    sites = {name: {"state": site.state} for name, site in topology.sites.items()}
    senders = {
        name: {"site": each.site, "remotes": [*each.remotes], "channel": each.channel}
        for name, each in topology.senders.items()
        if name == "east"
    }
    orders = topology.table("orders")
    at = {name: orders.location(name) for name in ("newark", "seattle")}
    tables = {"orders": {"keys": ["id"], "writers": ["newark"], "senders": ["east"], "at": at}}
    content = {"version": 1, "sites": sites, "senders": senders, "tables": tables}
    config.write_text(yaml.safe_dump(content))

    def run_command(*words: str) -> tuple[int, str, str]:
        argv = ["spark-wan", "clean", "--config", str(config), "--site", "newark", *words]
        monkeypatch.setattr(sys, "argv", argv)
        with pytest.raises(SystemExit) as end:
            main()
        out, err = capsys.readouterr()
        return int(end.value.code or 0), out, " ".join(err.split())

    return run_command


def test_an_operator_is_asked_first(topology: Topology, run: Run) -> None:
    """With what would be lost. Fails when a slip drops it."""
    code, _, err = run()
    assert code == 1 and "Drop 10 events that wait?" in err and "add --yes" in err
    assert f"{ORDERS} -> seattle: epochs 2 to 3, 10 events" in err
    assert wanted(topology) == ()
    code, out, _ = run("--yes", "--remote", "seattle")
    assert code == 0 and out.startswith(
        f"dropped, once the sender notices: {ORDERS} -> seattle: epochs 2 to 3, 10 events, "
    )
    assert len(wanted(topology)) == 1
    code, out, _ = run("--yes", "--output", "json")
    document = json.loads(out)
    assert (document["verb"], document["waiting"][0]["events"]) == ("clean", 10)


def test_what_comes_while_an_operator_reads_the_question_is_not_dropped(
    topology: Topology, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Fails when what waits is looked up again after the yes."""

    def confirm(command: str, yes: bool, question: str) -> None:
        assert "Drop 10 events that wait?" in question
        log = log_of(topology)
        frame = put_frame(log.channel, stream=ORDERS, write=f"{3:032x}", rows=5)
        published(log, 3, frames=(frame,), addressees=("seattle",))

    monkeypatch.setattr("spark_wan.cli.control.confirm", confirm)
    code, out, _ = run()
    assert code == 0 and "epochs 2 to 3, 10 events" in out
    [asked] = wanted(topology)
    assert [epoch for *_, epoch in asked.sites] == [3]


def test_who_answers_an_older_question_takes_nothing_of_a_newer_request(tmp_path: Path) -> None:
    """Two operators at once. Fails when what only the first was told of is not dropped."""
    topology = world(tmp_path)
    backlog(topology)
    log = log_of(topology)
    shown = waiting(topology, "newark")
    frame = put_frame(log.channel, stream=ORDERS, write=f"{3:032x}", rows=5)
    published(log, 3, frames=(frame,), addressees=("seattle",))
    clean(topology, "newark")
    clean(topology, "newark", shown=shown)
    [found] = wanted(topology)
    assert (found.generation, [epoch for *_, epoch in found.sites]) == (2, [4])


def test_what_a_site_was_dropped_for_is_not_named_again(tmp_path: Path) -> None:
    """Fails when the epochs are those since its ack."""
    topology = world(tmp_path)
    backlog(topology)
    log = log_of(topology)
    published(log, 3, addressees=("seattle",), dropped={"seattle": 3})
    frame = put_frame(log.channel, stream=ORDERS, write=f"{4:032x}", rows=5)
    published(log, 4, frames=(frame,), addressees=("seattle",), dropped={"seattle": 3})
    [lost] = waiting(topology, "newark")
    assert (lost.first, lost.last, lost.events) == (4, 5, 5)
