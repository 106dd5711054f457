"""Acks, marks, checkpoints and senders' records: what can be read is, the rest is none.

The golden bytes of marks are in tests/unit/ledger, those of checkpoints in tests/unit/state.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, fields, replace
from typing import ClassVar

import pytest
from fakes import STREAM, ack, memory_channel

from spark_wan.errors import NewerRecordError
from spark_wan.log.notes import put_ack
from spark_wan.log.stream_log import StreamLog
from spark_wan.wire.ack import Ack, Need
from spark_wan.wire.checkpoint import SenderCheckpoint
from spark_wan.wire.mark import LOCAL_ONLY, read_mark
from spark_wan.wire.receiver_record import NotApplied, ReceiverRecord
from spark_wan.wire.records import LongWork, known_names
from spark_wan.wire.sender_record import EndRequest, NotSent, SenderRecord

ACK_V1 = (
    b'{"version":1,"site":"seattle","stream":"newark.east.orders",'
    b'"incarnation":"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",'
    b'"applied":4,"held":5,"cause":"why","dead_letters":2}'
)
ACK_V2 = ACK_V1.replace(b'"version":1', b'"version":2').replace(b"incarnation", b"log_id")
NEEDS = b'"needs":{"why":"epochs","least":[["newark","11111111","all",29]],"since":1700000000000}'
ACK_V3 = b'{"version":3,"place":"seattle","of":"newark.east.orders","through":[4,2]}'
"""Made up."""


def test_b82_acks_of_both_versions_are_read_and_version_2_is_written() -> None:
    expected = Ack("seattle", STREAM, "a" * 32, 4, 5, "why", 2)
    assert Ack.decode(ACK_V1) == expected
    assert Ack.decode(ACK_V2) == expected
    assert expected.encode() == ACK_V2
    assert Ack.decode(ACK_V1.replace(b'"site"', b'"more":1,"site"')) == expected


def test_an_ack_with_a_need_is_read_and_written_the_same() -> None:
    need = Need("epochs", (("newark", "11111111", "all", 29),), 1_700_000_000_000)
    ack = Ack("seattle", STREAM, "a" * 32, 4, 5, "why", 2, needs=need)
    data = ACK_V2[:-1] + b"," + NEEDS + b"}"
    assert ack.encode() == data
    assert Ack.decode(data) == ack


@pytest.mark.parametrize(
    "data",
    [b"", b"{", b"[]", b"5", b"null", b"\xff", b"{}", b"[" * 100_000]
    + [
        ACK_V1.replace(b'"version":1', b'"version":0'),
        ACK_V1.replace(b'"version":1', b'"version":"3"'),
        ACK_V1.replace(b'"version":1', b'"version":true'),
        ACK_V2.replace(b'"site"', b'"requires":"held","site"'),
        ACK_V2.replace(b'"site"', b'"requires":[5],"site"'),
        ACK_V1.replace(b'"applied":4', b'"applied":"4"'),
    ]
    + [ACK_V1.replace(b'"site"', b'"sight"'), ACK_V1.replace(b'"applied":4,', b""), ACK_V1[:-1]]
    + [ACK_V1.replace(b'"applied":4', b'"applied":true')]
    + [
        ACK_V2.replace(b'"site"', wrong + b',"site"')
        for wrong in (
            b'"needs":"epochs"',
            NEEDS.replace(b"1700000000000", b"-1"),
            NEEDS.replace(b"1700000000000", b"9000000000000000000"),
            NEEDS.replace(b",29", b""),
            NEEDS.replace(b'"why":"epochs",', b""),
        )
    ],
)
def test_an_unreadable_ack_is_ignored(data: bytes) -> None:
    log = StreamLog(memory_channel(), STREAM)
    assert Ack.decode(data) is None
    put_ack(log.channel, STREAM, "seattle", data)
    ack(log, "denver", 1)
    assert list(log.acks()) == ["denver"]


@pytest.mark.parametrize(
    ("data", "what"),
    [
        (ACK_V3, "in version 3; this spark_wan reads versions 1 and 2"),
        (
            ACK_V2.replace(b'"site"', b'"requires":["forwarded","held"],"site"'),
            "it requires forwarded, unknown to this spark_wan",
        ),
    ],
    ids=["version 3", "requires"],
)
def test_f51_an_ack_of_a_newer_spark_wan_acks_nothing_and_says_why(data: bytes, what: str) -> None:
    """Fails when it is read without what it requires (then it may ack what is not forwarded), when
    it is ignored without a word, and when it ends the sender."""
    with pytest.raises(NewerRecordError, match=what):
        Ack.decode(data)
    log = StreamLog(memory_channel(), STREAM)
    put_ack(log.channel, STREAM, "seattle", data)
    ack(log, "denver", 1)
    acks = log.acks()
    assert acks["denver"].applied == 1
    newer = acks["seattle"]
    assert (newer.site, newer.stream, newer.log_id, newer.applied) == ("seattle", STREAM, "", 0)
    assert newer.held is not None
    for words in ("the ack of site seattle was written by a newer spark_wan", what, "Update"):
        assert words in str(newer.cause)


def test_f51_an_ack_whose_required_fields_are_known_is_read() -> None:
    data = ACK_V2.replace(b'"site"', b'"requires":["held","log_id"],"more":[1],"site"')
    assert Ack.decode(data) == Ack.decode(ACK_V2)


def test_an_ack_of_another_site_or_stream_is_ignored() -> None:
    log = StreamLog(memory_channel(), STREAM)
    put_ack(log.channel, STREAM, "denver", ACK_V1)
    put_ack(log.channel, STREAM, "seattle", ACK_V1.replace(b"east", b"west"))
    assert log.acks() == {}


def test_a_mark_is_found_in_user_metadata() -> None:
    assert read_mark(LOCAL_ONLY) == {"local_only": True}
    assert read_mark('{"job": "nightly", "spark_wan": {"site": "seattle"}}') == {"site": "seattle"}


@pytest.mark.parametrize(
    "text",
    [None, "", "nightly", "spark_wan", "{spark_wan", '{"job": "x"}', '["spark_wan"]', '"spark_wan"']
    + [json.dumps({"spark_wan": value}) for value in (None, 5, "x", [1])],
)
def test_user_metadata_without_a_mark_has_none(text: str | None) -> None:
    assert read_mark(text) is None


def test_json_that_is_nested_too_deeply_is_no_record() -> None:
    """Fails when RecursionError is raised: it would end a thread instead of holding a stream."""
    nested = "[" * 100_000
    assert Ack.decode(nested.encode()) is None
    assert SenderCheckpoint.decode(nested.encode()) is None
    assert read_mark('{"spark_wan":' + nested) is None


@pytest.mark.parametrize("levels", [201, 500, 900, 960, 984])
def test_json_that_python_reads_and_cannot_write_is_no_record(levels: int) -> None:
    """Fails when what was read is copied or signed later: RecursionError, out of a look at all
    streams of a job."""
    nested = "[" * levels + "]" * levels
    extra = f'"more":{nested},"site"'.encode()
    assert Ack.decode(ACK_V2.replace(b'"site"', extra)) is None
    assert read_mark('{"spark_wan":{"more":' + nested + "}}") is None
    few = f'"more":{"[" * 100 + "]" * 100},"site"'.encode()
    assert Ack.decode(ACK_V2.replace(b'"site"', few)) == Ack.decode(ACK_V2)


# --- senders' records

SENDER_V2 = (
    b'{"version":2,"stream":"newark.east.orders","began":1700000000000,"written":1700000000900,'
    b'"log_id":"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa","epoch":7,"through":41,"held":"why",'
    b'"replaced":true,"held_since":1700000000500,"epochs":3,"events":120,"batches":4,"bytes":4096,'
    b'"dead_letters":2,"duplicates":6,"waiting":8,"stopped":1700000000800,"next_within":3600000,"not_served":["tacoma"],"alert":"late",'
    b'"settings":"00112233445566778899aabbccddeeff","settings_generation":5}'
)
SENDER = SenderRecord(
    stream=STREAM,
    began=1_700_000_000_000,
    written=1_700_000_000_900,
    log_id="a" * 32,
    epoch=7,
    through=41,
    held="why",
    replaced=True,
    held_since=1_700_000_000_500,
    epochs=3,
    events=120,
    batches=4,
    bytes=4_096,
    dead_letters=2,
    duplicates=6,
    waiting=8,
    stopped=1_700_000_000_800,
    next_within=3_600_000,
    not_served=("tacoma",),
    alert="late",
    settings="00112233445566778899aabbccddeeff",
    settings_generation=5,
)


def test_a_golden_record_of_a_sender_is_read_and_written() -> None:
    assert SENDER.encode() == SENDER_V2
    assert SenderRecord.of(SENDER_V2, STREAM) == SENDER
    assert SenderRecord.of(SENDER_V2.replace(b'"epoch"', b'"more":[1],"epoch"'), STREAM) == SENDER
    least = b'{"version":2,"stream":"newark.east.orders","began":1,"written":2}'
    assert SenderRecord.of(least, STREAM) == SenderRecord(STREAM, 1, 2)


def test_a_senders_record_of_a_full_queue_is_read_and_written() -> None:
    data = SENDER_V2[:-1] + b',"queue_full":"9 GB wait","queue_full_since":1700000000700}'
    full = replace(SENDER, queue_full="9 GB wait", queue_full_since=1_700_000_000_700)
    assert (full.encode(), SenderRecord.of(data, STREAM)) == (data, full)
    loud = SenderRecord.of(data.replace(b"9 GB", b"9 GB \\u001b[31m"), STREAM)
    assert loud is not None and loud.queue_full is not None and loud.queue_full.isprintable()
    assert SenderRecord.of(data.replace(b"700}", b"700.5}"), STREAM) is None
    assert SenderRecord.of(data.replace(b":1700000000700", b":-7"), STREAM) is None


def test_a_senders_record_of_a_delay_is_read_and_written() -> None:
    data = SENDER_V2[:-1] + b',"delayed":4}'
    late = replace(SENDER, delayed=4)
    assert (late.encode(), SenderRecord.of(data, STREAM)) == (data, late)
    assert SenderRecord.of(data.replace(b":4}", b":-4}"), STREAM) is None


def test_a_senders_record_of_a_history_is_read_and_written() -> None:
    data = SENDER_V2[:-1] + b',"retention":604800000,"history_from":1700000000300}'
    kept = replace(SENDER, retention=604_800_000, history_from=1_700_000_000_300)
    assert (kept.encode(), SenderRecord.of(data, STREAM)) == (data, kept)
    assert kept.history_until == 1_700_604_800_300
    assert SENDER.history_until is None
    for wrong in (b'"retention":-1', b'"retention":"7 days"', b'"history_from":-1'):
        name = wrong.partition(b":")[0]
        lost = data.replace(name + b":604800000", wrong).replace(name + b":1700000000300", wrong)
        assert lost != data and SenderRecord.of(lost, STREAM) is None


def test_a_senders_record_of_what_was_not_sent_is_read_and_written() -> None:
    """A record of an earlier version does not have it: then it is 0."""
    names = [each.name for each in fields(NotSent)]
    counts = ",".join(f'"{name}":{n}' for n, name in enumerate(names, 1))
    data = SENDER_V2[:-1] + f',"not_sent":{{{counts}}}}}'.encode()
    counted = replace(SENDER, not_sent=NotSent(*range(1, len(names) + 1)))
    assert (counted.encode(), SenderRecord.of(data, STREAM)) == (data, counted)
    assert SENDER.not_sent == NotSent()
    later = data.replace(b'"local_only"', b'"asleep":7,"local_only"')
    assert SenderRecord.of(later, STREAM) == counted
    fewer = SENDER_V2[:-1] + b',"not_sent":{"received":3}}'
    assert SenderRecord.of(fewer, STREAM) == replace(SENDER, not_sent=NotSent(received=3))
    for wrong in (b"-3", b"3.5", b'"3"', b"null", b"true"):
        assert SenderRecord.of(fewer.replace(b"3}", wrong + b"}"), STREAM) is None


def test_a_senders_record_of_an_end_is_read_and_written() -> None:
    data = (
        SENDER_V2[:-1] + b',"control":7,"ending":{"by":"ann at here","kind":"version","point":41}}'
    )
    ended = replace(SENDER, control=7, ending=EndRequest("ann at here", "version", 41))
    assert (ended.encode(), SenderRecord.of(data, STREAM)) == (data, ended)
    loud = data.replace(b"ann at here", b"ann \\u001b[31m")
    record = SenderRecord.of(loud, STREAM)
    assert record is not None and record.ending is not None and record.ending.by.isprintable()
    for wrong in (b'"control":-2', b'"control":"7"'):
        assert SenderRecord.of(data.replace(b'"control":7', wrong), STREAM) is None


@pytest.mark.parametrize(
    "data",
    [b"", b"{", b"[]", b"null", b"\xff", b"{}", b"[" * 100_000, SENDER_V2[:-1]]
    + [SENDER_V2.replace(b"newark.east", b"newark.west"), SENDER_V2.replace(b'"began"', b'"x"')]
    + [SENDER_V2.replace(b'"epoch":7', b'"epoch":"7"'), SENDER_V2.replace(b":41", b":true")]
    + [SENDER_V2.replace(b'"why"', b"0"), SENDER_V2.replace(b'["tacoma"]', b"5")]
    + [SENDER_V2.replace(b'"late"', b"0"), SENDER_V2.replace(b"true", b"1")],
)
def test_an_unreadable_record_of_a_sender_is_none(data: bytes) -> None:
    """Fails when `status` would compute with what is no number."""
    assert SenderRecord.of(data, STREAM) is None


@pytest.mark.parametrize("time", ['"noon"', str(2**62), "-1"])
def test_a_record_of_a_sender_with_an_impossible_time_is_none(time: str) -> None:
    """Fails when `status` would show a time that no date can have."""
    data = SENDER_V2.replace(b":1700000000500", b":" + time.encode())
    assert SenderRecord.of(data, STREAM) is None


def test_f51_a_senders_record_of_a_newer_spark_wan_is_told_apart() -> None:
    for data in (
        SENDER_V2.replace(b'"version":2', b'"version":3'),
        SENDER_V2.replace(b'"epoch"', b'"requires":["paused"],"epoch"'),
    ):
        with pytest.raises(NewerRecordError):
            SenderRecord.of(data, STREAM)


CAPTURING = LongWork(3_000_000, 1_700_000_000_100, 74_300_000, 25)
WORK = b'"work":{"rows":3000000,"began":1700000000100,"bytes":74300000,"percent":25}'
RECEIVER_V2 = (
    b'{"version":2,"site":"seattle","stream":"newark.east.orders","began":1700000000000,'
    b'"written":1700000000900,"epochs":3,"events":120,"duplicates":6,"dead_letters":2,'
    b'"local_commits":4,%s,"stopped":1700000000800,"next_within":3600000}' % WORK
)
RECEIVER = ReceiverRecord(
    site="seattle",
    stream=STREAM,
    began=1_700_000_000_000,
    written=1_700_000_000_900,
    epochs=3,
    events=120,
    duplicates=6,
    dead_letters=2,
    local_commits=4,
    work=CAPTURING,
    stopped=1_700_000_000_800,
    next_within=3_600_000,
)


def test_work_that_takes_long_is_in_a_senders_record() -> None:
    """Without it, the bytes are those of before."""
    data = replace(SENDER, work=CAPTURING).encode()
    assert data == SENDER_V2.replace(b'"stopped"', b'%s,"stopped"' % WORK)
    assert SenderRecord.of(data, STREAM) == replace(SENDER, work=CAPTURING)


def test_a_golden_record_of_a_receiver_is_read_and_written() -> None:
    assert RECEIVER.encode() == RECEIVER_V2
    assert ReceiverRecord.of(RECEIVER_V2, STREAM, "seattle") == RECEIVER
    added = RECEIVER_V2.replace(b'"epochs"', b'"more":[1],"epochs"')
    assert ReceiverRecord.of(added, STREAM, "seattle") == RECEIVER
    least = b'{"version":2,"site":"a","stream":"b","began":1,"written":2}'
    assert ReceiverRecord.of(least, "b", "a") == ReceiverRecord("a", "b", 1, 2)
    assert ReceiverRecord("a", "b", 1, 2).encode().find(b"work") == -1


def test_a_receivers_record_of_what_was_not_applied_is_read_and_written() -> None:
    """A record of an earlier version does not have it: then it is 0."""
    counts = b'"superseded":1,"covered":2,"uncounted":3,"elsewhere":4'
    data = RECEIVER_V2[:-1] + b',"not_applied":{%s}}' % counts
    counted = replace(RECEIVER, not_applied=NotApplied(1, 2, 3, 4))
    assert (counted.encode(), ReceiverRecord.of(data, STREAM, "seattle")) == (data, counted)
    assert RECEIVER.not_applied == NotApplied()
    later = data.replace(counts, b'"asleep":7,' + counts)
    assert ReceiverRecord.of(later, STREAM, "seattle") == counted
    for wrong in (b"-2", b'"2"'):
        of = data.replace(b'"covered":2', b'"covered":' + wrong)
        assert ReceiverRecord.of(of, STREAM, "seattle") is None


def test_an_unreadable_record_of_a_receiver_is_none() -> None:
    """Fails when `status` would compute with what is no number, or show another's."""
    for data in (b"", b"{", b"[]", b"null", b"{}", RECEIVER_V2[:-1]):
        assert ReceiverRecord.of(data, STREAM, "seattle") is None
    for field, value in (
        (b'"seattle"', b'"other"'),
        (b'"newark.east.orders"', b'"other"'),
        (WORK, b'"work":7'),
    ):
        data = RECEIVER_V2.replace(field, value)
        assert ReceiverRecord.of(data, STREAM, "seattle") is None


def test_a_record_of_a_receiver_with_impossible_numbers_is_none() -> None:
    """Fails when `status` would show a time that no date can have, or 400% done."""
    far = b"%d" % 2**62
    for number, impossible in (
        (b'"events":120', b'"events":-1'),
        (b'"began":1700000000000', b'"began":' + far),
        (b'"written":1700000000900', b'"written":' + far),
        (b'"began":1700000000100', b'"began":-1'),
        (b'"percent":25', b'"percent":101'),
        (b'"rows":3000000', b'"rows":-1'),
        (b'"bytes":74300000', b'"bytes":-1'),
    ):
        data = RECEIVER_V2.replace(number, impossible)
        assert data != RECEIVER_V2
        assert ReceiverRecord.of(data, STREAM, "seattle") is None, data


def test_f51_a_receivers_record_of_a_newer_spark_wan_is_told_apart() -> None:
    for data in (
        RECEIVER_V2.replace(b'"version":2', b'"version":3'),
        RECEIVER_V2.replace(b'"epochs"', b'"requires":["work.unit"],"epochs"'),
    ):
        with pytest.raises(NewerRecordError):
            ReceiverRecord.of(data, STREAM, "seattle")


ESCAPES = ["\x1b[2J", "\x9b31m", "\u202e", "\u2066", "\x07", "\r", "\x00"]
"""They clear a terminal, colour it, or turn the direction of what follows."""


@pytest.mark.parametrize("escape", ESCAPES)
def test_no_record_moves_the_cursor_of_who_reads_the_status(escape: str) -> None:
    """Fails when texts of others reach a terminal as they are."""
    cause = f"held: {escape}gone\nRestore it: 東京 é"
    need = Need(cause, (), 5)
    ack = Ack.decode(replace(Ack.decode(ACK_V2), cause=cause, needs=need).encode())  # type: ignore[type-var]
    data = replace(SENDER, held=cause, alert=escape, not_served=(escape, "tacoma")).encode()
    sender = SenderRecord.of(data, STREAM)
    assert ack is not None and sender is not None
    shown = cause.replace(escape[0], "\ufffd")
    assert (ack.cause, sender.held) == (shown, shown)
    assert ack.needs == replace(need, why=shown)
    assert sender.alert == escape.replace(escape[0], "\ufffd")
    assert sender.not_served == (sender.alert, "tacoma")


@dataclass(frozen=True)
class Inner:
    rows: int
    unit: ClassVar[str] = "rows"


@dataclass(frozen=True)
class Outer:
    clock: int
    frames: list[Inner]
    FORMAT: ClassVar[int] = 2


def test_the_names_that_a_record_may_require_are_its_fields() -> None:
    """Fails when a constant of the class counts: a record that requires its name would be read."""
    assert known_names(Outer) == {"clock", "frames", "frames.rows"}
