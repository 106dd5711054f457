"""Dead letters are listed, replayed and discarded; a letter is handled once somebody says so."""

from __future__ import annotations

import json
import shutil
import sys
from dataclasses import replace
from pathlib import Path
from unittest.mock import patch

import pyarrow as pa
import pytest
from deltalake import write_deltalake
from ledgers import mark
from topologies import two_sites
from unit.ledger.test_read_dead_letters import APPLIED, SENT, topology, write
from unit.wire.test_ledger_rows import SUMMARY

from spark_wan.channels.registry import open_channel
from spark_wan.cli.app import main
from spark_wan.errors import LedgerError, OptionError, TopologyError
from spark_wan.events.dead_letters import ID_USED_AGAIN
from spark_wan.log.notes import acks, put_refused
from spark_wan.log.stream_log import StreamLog
from spark_wan.state.handled import HandledLetters
from spark_wan.sync.letters import LONG_ROW, Chosen, discard, letters, replay, reported
from spark_wan.topology.model import Topology, copied_stream
from spark_wan.topology.parsing import parse_topology
from spark_wan.topology.signing import receiving_trust
from spark_wan.units import milliseconds
from spark_wan.wire.handled import Handled
from spark_wan.wire.ledger import DeadLetter, LedgerRecord, LedgerRow, encode_row, range_token
from spark_wan.wire.refused import RefusedEvents

__all__ = ["topology"]  # a fixture
NOW = 1_700_000_000_000
CHECKS = Chosen(cause="check")
FIRST = replace(APPLIED, event_id="a1", at=NOW)
SECOND = replace(
    APPLIED,
    event_id="a2",
    at=NOW + 60_000,
    cause="CHECK positive",
    origin_version=9,
    key='{"id":6}',
)
OLD = replace(APPLIED, event_id="a0", at=None, origin_version=1, key='{"id":7}')
HANDLED_V1 = (
    b'{"version":1,"what":"discarded","by":"ann at here","at":5,"why":"a test",'
    b'"letters":[["receiver","newark.east.orders","a1"]]}'
)


def chain(folder: Path) -> Topology:
    """newark sends to denver and to seattle, and denver to seattle, which therefore has two sites
    to ask."""
    senders = {
        "east": {"site": "newark", "remotes": ["denver"], "channel": "./c"},
        "west": {"site": "newark", "remotes": ["seattle"], "channel": "./w"},
        "on": {"site": "denver", "remotes": ["seattle"], "channel": "./d"},
    }
    sites = ("newark", "denver", "seattle")
    orders = {
        "keys": ["id"],
        "writers": ["newark"],
        "senders": [*senders],
        "at": {site: f"./{site}/orders" for site in sites},
    }
    for channel in ("c", "w", "d"):
        (folder / channel).mkdir()
    content = {
        "version": 1,
        "sites": {site: {"state": f"./{site}/_wan"} for site in sites},
        "senders": senders,
        "tables": {"orders": orders},
    }
    return parse_topology(content, str(folder / "wan.yaml"))


def ids(topology: Topology, **more: object) -> list[str]:
    found = letters(topology, "seattle", Chosen(**more))  # type: ignore[arg-type]
    return [each.letter.event_id for each in found]


def test_letters_are_chosen_by_table_time_and_cause(topology: Topology) -> None:
    """One of an earlier version has no time: it is in every choice by time. Fails when a letter is
    overlooked."""
    write(topology, FIRST, SECOND, OLD, tokens=("t1",))
    assert ids(topology) == ["a0", "a1", "a2"]
    assert ids(topology, table="cities") == []
    assert ids(topology, since=NOW + 1) == ["a0", "a2"]
    assert ids(topology, cause="check") == ["a2"]
    assert ids(topology, events=["a1", "a9"]) == ["a1"]
    with pytest.raises(TopologyError):
        ids(topology, table="order")


def test_b36_what_was_discarded_is_listed_no_more(topology: Topology) -> None:
    """It stays in the ledger, with who did it, when and why. Fails when another stream's letter of
    the same event goes with it."""
    twin = replace(FIRST, stream="newark.west.orders")
    write(topology, FIRST, SECOND, twin, tokens=("t1",))
    [first] = [each for each in letters(topology, "seattle") if each.letter == FIRST]
    discard(topology, "seattle", [first], "a test")
    assert ids(topology) == ["a2", "a1"]
    [found] = [each for each in letters(topology, "seattle", Chosen(handled=True)) if each.handled]
    assert found.letter == FIRST and found.handled is not None
    assert (found.handled.what, found.handled.why) == ("discarded", "a test")
    assert " at " in found.handled.by and found.handled.at


def applied(topology: Topology, *rows: LedgerRecord) -> None:
    """Add marks to the ledger."""
    folder = Path(topology.site("seattle").state) / "ledger/applied"
    table = pa.Table.from_pylist([{"table": "orders", **encode_row(row)} for row in rows])
    write_deltalake(folder, table, mode="append", schema_mode="merge")


def superseded(topology: Topology) -> dict[str, str]:
    """Event IDs of letters that need nothing any more, and why."""
    found = letters(topology, "seattle", Chosen(handled=True))
    said = {each.letter.event_id: each.handled for each in found if each.handled is not None}
    assert all((done.what, done.by) == ("superseded", "") for done in said.values())
    return {event: done.why for event, done in said.items()}


def test_b36_a_later_event_of_a_row_supersedes_those_before_it(topology: Topology) -> None:
    """Of the same stream and key. Fails when an operator mends a row by an event that the source
    has replaced, or when an event whose ID was used before counts as one of the row."""
    later = replace(FIRST, event_id="b1", origin_version=FIRST.origin_version + 1)
    twin = replace(FIRST, event_id="b2", stream="newark.west.orders")
    reused = replace(later, event_id="b3", origin_version=99, cause=ID_USED_AGAIN)
    keyless = [replace(FIRST, event_id=f"b{n}", key=None, origin_version=n) for n in (4, 5)]
    sent = [replace(SENT, event_id=f"b{n}", origin_version=n) for n in (6, 7)]
    write(topology, FIRST, later, twin, reused, SECOND, *keyless, *sent, tokens=("t1",))
    assert superseded(topology) == {"a1": "a later event of the row was refused, too"}
    assert "a1" not in ids(topology) and len(ids(topology)) == 8


def test_b36_a_copy_supersedes_the_letters_before_it(topology: Topology) -> None:
    """It has their rows as they are at the source, or has refused them again. Fails when they stay
    open though somebody has got a copy by another way than a replay."""
    kinds = {"before": "t1", "at": "t2", "behind": "t3"}
    kinds |= {"folded": range_token(1, 3), "both": range_token(3, 9)}
    rows = [
        replace(FIRST, event_id=name, token=token, key=f'{{"id":{n}}}')
        for n, (name, token) in enumerate(kinds.items())
    ]
    write(topology, *rows, tokens=())
    marks = mark(4, token="t1"), mark(5, token="t2", replaced=1), mark(6, token="t3")
    applied(topology, *(LedgerRow("target-1", 9, each) for each in marks))
    assert superseded(topology) == dict.fromkeys(
        ("before", "folded"), "a copy of the table has come since"
    )


def test_a_fold_keeps_letters_before_a_copy_apart(topology: Topology) -> None:
    """A summary still says which apply took the copy."""
    rows = [replace(FIRST, event_id=each, token=f"marked {each}") for each in ("1-4", "5-7")]
    write(topology, *(replace(each, key=each.token) for each in rows), tokens=())
    applied(topology, replace(SUMMARY, copied=5), replace(SUMMARY, copied=99).as_claim())
    assert list(superseded(topology)) == ["1-4"]


def test_a_letter_that_comes_again_is_a_new_one(topology: Topology) -> None:
    """With the same event ID: a row that was refused again, or another event under a used ID. Fails
    when it is hidden by what was done about the first."""
    write(topology, FIRST, OLD, tokens=("t1",))
    discard(topology, "seattle", letters(topology, "seattle"))
    assert ids(topology) == []
    [done] = {each.handled for each in letters(topology, "seattle", Chosen(handled=True))}
    assert done is not None
    again = replace(FIRST, at=done.at + 1, token="t2")
    ledger = Path(topology.site("seattle").state) / "ledger"
    shutil.rmtree(ledger)
    write(topology, FIRST, OLD, again, tokens=("t1", "t2"))
    assert [each.letter for each in letters(topology, "seattle")] == [again]


def test_a_replay_asks_the_site_that_writes_the_table(tmp_path: Path) -> None:
    """One that has the row refused itself would leave it out. Fails when the first site is asked
    that has a copy."""
    topology = chain(tmp_path)
    write(topology, replace(FIRST, stream="denver.on~newark.east.orders"), tokens=("t1",))
    [done] = replay(topology, "seattle", letters(topology, "seattle"))
    assert done.by.sender.site == "newark"


def test_nothing_is_asked_for_if_one_table_is_not_served(topology: Topology) -> None:
    gone = replace(FIRST, table="cities", stream="newark.east.cities", event_id="c1")
    write(topology, FIRST, gone, tokens=("t1",))
    (Path(topology.file).parent / "c").mkdir()
    with (
        patch("spark_wan.sync.letters.serving_sites", side_effect=TopologyError("not served")),
        pytest.raises(TopologyError),
    ):
        replay(topology, "seattle", letters(topology, "seattle"))
    assert len(ids(topology)) == 2


def test_a_replay_asks_for_the_rows_that_differ(topology: Topology) -> None:
    """Of each table once. Fails when a letter's row is written over what came after it."""
    other = replace(FIRST, table="cities", stream="newark.east.cities", event_id="c1")
    write(topology, FIRST, SECOND, other, tokens=("t1",))
    (Path(topology.file).parent / "c").mkdir()
    cities, orders = replay(topology, "seattle", letters(topology, "seattle"))
    assert [(each.table, each.letters, each.difference) for each in (cities, orders)] == [
        ("cities", 1, True),
        ("orders", 2, True),
    ]
    channel = open_channel(topology.sender("east").channel)
    found = acks(channel, orders.by.stream)
    assert copied_stream(orders.by.stream) is not None
    wanted = json.loads(found["seattle"])["wanted"]
    assert wanted["difference"] is True and wanted["request"]
    assert ids(topology) == []
    done = [each.handled for each in letters(topology, "seattle", Chosen(handled=True))]
    assert {each.what for each in done if each is not None} == {"replayed"}


def tell(topology: Topology, *told: DeadLetter, more: int = 0) -> None:
    """Write what seattle says that it could not apply of the stream of orders."""
    sender = topology.sender("east")
    channel = open_channel(sender.channel)
    channel.ensure_prepared()
    trust = receiving_trust(topology, "seattle", sender.channel)
    log = StreamLog(channel, FIRST.stream, trust(FIRST.stream))
    record = RefusedEvents.of_letters("seattle", FIRST.stream, told, NOW)
    log.put_refused(replace(record, open=record.open + more))


def test_a_site_lists_what_others_could_not_apply_of_what_it_sends(topology: Topology) -> None:
    """Chosen as its own are. Fails when they pass for those of the site, whose ledger has none."""
    (Path(topology.file).parent / "c").mkdir()
    none = reported(topology, "newark")
    assert (none.letters, none.more, none.problems) == ([], 0, [])
    tell(topology, SECOND, replace(FIRST, row="r" * 9_000), more=5)
    found = reported(topology, "newark")
    assert (found.more, found.problems) == (5, [])
    assert [(each.letter.event_id, each.site) for each in found.letters] == [
        ("a2", "seattle"),
        ("a1", "seattle"),
    ]
    assert found.letters[0].letter == replace(SECOND, payload=None, token=None)
    assert found.letters[1].letter.row == LONG_ROW
    assert [each.letter.event_id for each in reported(topology, "newark", CHECKS).letters] == ["a2"]
    assert reported(topology, "newark", Chosen(table="cities")).letters == []
    assert reported(topology, "seattle").letters == []
    assert letters(topology, "newark") == []


def test_a_channel_that_is_not_mounted_here_is_not_created(topology: Topology) -> None:
    """Fails when an empty folder takes its place, and nobody notices that it is missing."""
    write(topology, FIRST, tokens=("t1",))
    found = reported(topology, "newark")
    assert len(found.problems) == 1 and "is not there" in found.problems[0]
    discard(topology, "seattle", letters(topology, "seattle"))
    assert not (Path(topology.file).parent / "c").exists()


def test_the_sender_lists_what_is_left_and_nothing_else(topology: Topology) -> None:
    """Also of letters that were not in the record, and of other tables with the same event IDs.
    Fails when what was handled is counted as open for ever, or what is open vanishes."""
    (Path(topology.file).parent / "c").mkdir()
    many = [replace(FIRST, event_id=f"e{n}", at=NOW + n) for n in range(80)]
    twin = replace(FIRST, table="cities", stream="newark.east.cities", event_id="e3")
    write(topology, *many, twin, tokens=("t1",))
    tell(topology, *reversed(many))
    assert reported(topology, "newark").more == 30
    discard(topology, "seattle", letters(topology, "seattle", Chosen(table="cities")))
    assert reported(topology, "newark").more == 30
    discard(topology, "seattle", letters(topology, "seattle", Chosen(events=["e79"])))
    found = reported(topology, "newark")
    assert (found.more, len(found.letters)) == (29, 50)
    assert found.letters[0].letter.event_id == "e78"
    discard(topology, "seattle", letters(topology, "seattle"))
    found = reported(topology, "newark")
    assert (found.more, found.letters) == (0, [])


def test_a_letter_that_has_a_later_time_than_the_clock_is_handled_too(topology: Topology) -> None:
    """The clocks of the receiver and of who discards it differ."""
    late = replace(FIRST, at=milliseconds() + 3_600_000)
    write(topology, late, tokens=("t1",))
    discard(topology, "seattle", letters(topology, "seattle"))
    assert ids(topology) == []


def test_what_cannot_be_told_is_said(topology: Topology) -> None:
    """And the rest is listed. Fails when one stream that cannot be read hides the others."""
    (Path(topology.file).parent / "c").mkdir()
    tell(topology, FIRST)
    channel = open_channel(topology.sender("east").channel)
    newer = b'{"version":2,"requires":["more"]}'
    put_refused(channel, "newark.east.cities", "seattle", newer)
    found = reported(topology, "newark")
    assert [each.letter.event_id for each in found.letters] == ["a1"]
    assert len(found.problems) == 1 and "requires more" in found.problems[0]
    put_refused(channel, "newark.east.cities", "seattle", b"damaged")
    assert reported(topology, "newark").problems == []


def test_a_letter_that_was_handled_is_taken_out_of_what_the_sender_lists(
    topology: Topology,
) -> None:
    (Path(topology.file).parent / "c").mkdir()
    write(topology, FIRST, SECOND, tokens=("t1",))
    tell(topology, SECOND, FIRST)
    chosen = letters(topology, "seattle", Chosen(events=["a1"]))
    with pytest.raises(OptionError, match="give --site seattle, where its ledger can be read"):
        replay(topology, "newark", reported(topology, "newark").letters)
    discard(topology, "seattle", chosen)
    assert [each.letter.event_id for each in reported(topology, "newark").letters] == ["a2"]
    replay(topology, "seattle", letters(topology, "seattle"))
    assert reported(topology, "newark").letters == []


def test_a_letter_is_discarded_though_its_sender_cannot_be_told(
    topology: Topology, caplog: pytest.LogCaptureFixture
) -> None:
    write(topology, FIRST, tokens=("t1",))
    (Path(topology.file).parent / "c").mkdir()
    newer = b'{"version":2,"requires":["more"]}'
    put_refused(open_channel(topology.sender("east").channel), FIRST.stream, "seattle", newer)
    discard(topology, "seattle", letters(topology, "seattle"))
    assert ids(topology) == []
    assert "its sender is not told that something was done" in caplog.text


def test_what_a_sender_could_not_send_is_mended_at_the_source(topology: Topology) -> None:
    write(topology, SENT, FIRST, tokens=("t1",))
    with pytest.raises(OptionError, match="mend its row in orders"):
        replay(topology, "seattle", letters(topology, "seattle"))
    assert len(ids(topology)) == 2


def test_a_golden_entry_is_read_and_written(tmp_path: Path) -> None:
    entry = Handled("discarded", "ann at here", 5, "a test", (("receiver", FIRST.stream, "a1"),))
    assert (entry.encode(), Handled.decode(HANDLED_V1, "here")) == (HANDLED_V1, entry)
    more = HANDLED_V1.replace(b'"what"', b'"more":1,"what"')
    assert Handled.decode(more, "here") == entry
    log = HandledLetters(str(tmp_path))
    assert log.load() == {}
    log.add(entry)
    later = replace(entry, what="replayed", at=6)
    log.add(later)
    assert log.load() == {("receiver", FIRST.stream, "a1"): later}


@pytest.mark.parametrize(
    ("data", "what"),
    [
        (b"{", "cannot be read"),
        (HANDLED_V1.replace(b'"a1"', b"1"), "cannot be read"),
        (HANDLED_V1.replace(b'"version":1', b'"version":2'), "Update spark_wan"),
        (HANDLED_V1.replace(b'"what"', b'"requires":["until"],"what"'), "Update spark_wan"),
    ],
)
def test_f51_f55_an_unreadable_entry_is_an_error(data: bytes, what: str) -> None:
    """It names the file. Fails when letters come back, or are gone, silently."""
    with pytest.raises(LedgerError, match=f"handled/1: .*{what}"):
        Handled.decode(data, "handled/1")


# --- the command


@pytest.fixture
def config(topology: Topology) -> str:
    config = two_sites(Path(topology.file).parent, "./c")
    (config.parent / "c").mkdir()
    return str(config)


def run(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    config: str,
    verb: str,
    *words: str,
    at: str = "seattle",
) -> tuple[int, str, str]:
    argv = ["spark-wan", "dead-letters", verb, "--config", config, "--site", at, *words]
    monkeypatch.setattr(sys, "argv", argv)
    with pytest.raises(SystemExit) as end:
        main()
    out, err = capsys.readouterr()
    return int(end.value.code or 0), out, err


def test_an_operator_lists_shows_replays_and_discards(
    topology: Topology,
    config: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Nothing is done without a yes, or to what was not named. Fails when a slip discards all."""

    def command(verb: str, *words: str, at: str = "seattle") -> tuple[int, str, str]:
        return run(monkeypatch, capsys, config, verb, *words, at=at)

    assert command("list")[:2] == (0, "no dead letters\n")
    write(topology, FIRST, SECOND, tokens=("t1",))
    code, out, _ = command("list")
    assert code == 0 and [line.split()[0] for line in out.splitlines()] == ["event", "a1", "a2"]
    code, out, _ = command("show", "a2")
    assert code == 0 and "cause: CHECK positive\n" in out and 'row: {"id": 5}\n' in out
    for verb in ("discard", "replay"):
        assert command(verb)[0] == 1  # nothing is named
        code, _, err = command(verb, "a1", "a9", "--yes")
        assert code == 1 and "no dead letter a9" in " ".join(err.split())
        code, _, err = command(verb, "a1")
        assert code == 1 and "add --yes" in err
    code, _, err = command("discard", "a", "--yes")
    assert code == 1 and "has 2 dead letters a: name more" in " ".join(err.split())
    code, out, _ = command("discard", "a1", "--yes", "--why", "a test")
    assert (code, out) == (0, "a1: discarded\n")
    code, out, _ = command("replay", "--cause", "check", "--yes")
    assert code == 0 and "seattle asks newark for the rows that differ of orders" in out
    assert command("list")[:2] == (0, "no dead letters\n")
    tell(topology, SECOND, more=4)
    code, out, _ = command("list", at="newark")
    assert code == 0 and "at seattle:\n" in out and "CHECK positive" in out
    assert "and at least 4 older ones at the sites: list them there" in out
    code, out, _ = command("show", "a2", at="newark")
    assert code == 0 and "site: seattle\n" in out and 'row: {"id": 5}\n' in out
    code, _, err = command("discard", "a2", "--yes", at="newark")
    assert code == 1 and "give --site seattle" in " ".join(err.split())
    code, out, _ = command("list", "--output", "json", at="newark")
    found = json.loads(out)
    assert ([each["site"] for each in found["reported"]], found["more"]) == (["seattle"], 4)
    code, out, _ = command("list", "--all", "--output", "json")
    found = json.loads(out)["dead_letters"]
    assert [(each["event_id"], each["handled"]["what"]) for each in found] == [
        ("a1", "discarded"),
        ("a2", "replayed"),
    ]
    assert found[0]["at_ms"] == NOW and found[0]["handled"]["why"] == "a test"
