"""The record of the events that a site could not apply: what fits, who signed it, what is read."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from unit.ledger.test_read_dead_letters import APPLIED

from spark_wan.errors import NewerRecordError, UntrustedError
from spark_wan.wire.refused import (
    MOST_BYTES,
    MOST_CHARACTERS,
    MOST_EVENTS,
    RefusedEvents,
)
from spark_wan.wire.signature import KeyReference, Signer

STREAM = APPLIED.stream
LETTER = replace(APPLIED, event_id="a1", at=7)
RECORD = RefusedEvents.of_letters("seattle", STREAM, [LETTER], 9)
GOLDEN = (
    b'{"version":2,"site":"seattle","stream":"newark.east.orders","open":1,"events":[{"event_id":'
    b'"a1","origin_version":8,"operation":"put","key":"{\\"id\\":5}","cause":"null_in_key","row":'
    b'"{\\"id\\": 5}","at":7}],"written":9}'
)


def read(data: bytes, keys: tuple[KeyReference, ...] = ()) -> RefusedEvents | None:
    return RefusedEvents.of(data, STREAM, "seattle", keys)


def key(folder: Path, name: str) -> tuple[KeyReference, ...]:
    (folder / name).write_text(name * 40)
    return (KeyReference("file", str(folder / name)),)


def test_a_golden_record_is_read_and_written() -> None:
    assert (RECORD.encode(), read(GOLDEN)) == (GOLDEN, RECORD)
    assert read(GOLDEN.replace(b'"open"', b'"more":1,"open"')) == RECORD
    with pytest.raises(NewerRecordError, match="more"):
        read(GOLDEN.replace(b'"open"', b'"more":1,"requires":["more"],"open"'))


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (b'"site":"seattle"', b'"site":"denver"'),
        (b'"stream":"newark', b'"stream":"boston'),
        (b'"open":1', b'"open":0'),
        (b'"written":9', b'"written":-1'),
        (b'"at":7', b'"at":-7'),
        (b'"at":7', b'"at":"7"'),
        (b"[{", b"{"),
    ],
)
def test_what_is_damaged_is_as_if_it_were_lost(old: bytes, new: bytes) -> None:
    assert GOLDEN.count(old) == 1 and read(GOLDEN.replace(old, new)) is None


def test_texts_are_those_that_a_terminal_may_show() -> None:
    escape = GOLDEN.replace(b"null_in_key", b"\\u001b[31m").replace(b"a1", b"\\u001bx")
    found = read(escape)
    assert found is not None
    assert "\x1b" not in found.events[0].cause + found.events[0].event_id


def test_a_record_has_as_many_of_the_newest_as_fit() -> None:
    """However many there are, and however long. Fails when one grows with them: those of all
    streams of a channel on Kafka are in memory."""
    many = [replace(LETTER, event_id=f"e{n}") for n in range(MOST_EVENTS + 3)]
    record = RefusedEvents.of_letters("seattle", STREAM, many, 9)
    assert record.open == MOST_EVENTS + 3
    assert [each.event_id for each in record.events] == [f"e{n}" for n in range(MOST_EVENTS)]
    long = [replace(each, key="k" * 3_000, cause="c" * 3_000) for each in many]
    record = RefusedEvents.of_letters("seattle", STREAM, long, 9)
    assert len(record.encode()) <= MOST_BYTES and record.events[0].event_id == "e0"
    assert (record.open, read(record.encode())) == (MOST_EVENTS + 3, record)
    huge = replace(LETTER, cause="c" * MOST_BYTES, key="k" * MOST_BYTES)
    [event] = RefusedEvents.of_letters("seattle", STREAM, [huge], 9).events
    assert len(event.cause) == len(event.key or "") == MOST_CHARACTERS + 2


def test_a_long_row_is_left_out_whole() -> None:
    """What is cut is no JSON."""
    fits, long = "r" * MOST_CHARACTERS, "r" * (MOST_CHARACTERS + 1)
    letters = [replace(LETTER, row=fits), replace(LETTER, row=long)]
    record = RefusedEvents.of_letters("seattle", STREAM, letters, 9)
    assert [each.row for each in record.events] == [fits, None]


def test_only_the_site_itself_is_believed(tmp_path: Path) -> None:
    """Where it has keys. Fails when another site's word is shown as its own."""
    keys, others = key(tmp_path, "a"), key(tmp_path, "b")
    signed = RECORD.signed_by(Signer("seattle", "", keys))
    assert read(signed.encode(), keys) == RECORD == read(signed.encode())
    forged = {
        "no signature": RECORD.encode(),
        "another key": RECORD.signed_by(Signer("seattle", "", others)).encode(),
        "another site": RECORD.signed_by(Signer("denver", "", keys)).encode(),
        "altered": signed.encode().replace(b"null_in_key", b"no_reason"),
        "an ack": replace(
            RECORD, signature=Signer("seattle", "", keys).sign("ack", json.loads(GOLDEN))
        ).encode(),
    }
    for how, data in forged.items():
        with pytest.raises(UntrustedError, match="same topology and keys"):
            assert not read(data, keys), how
    (tmp_path / "a").unlink()
    with pytest.raises(UntrustedError, match="cannot be checked"):
        read(signed.encode(), keys)
