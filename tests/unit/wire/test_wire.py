"""Frames and manifests: golden bytes are read forever, and damaged ones are refused."""

from __future__ import annotations

import base64
import json
import struct
from dataclasses import asdict, replace
from typing import Any

import pyarrow as pa
import pytest
from arrow_values import VALUES
from crc32c import crc32c
from fakes import HEADER, MANIFEST, STREAM, manifest

from spark_wan.errors import FrameError, ManifestError
from spark_wan.wire.frame import (
    FrameHeader,
    FrameRef,
    check_frame,
    decode_frame,
    encode_frame,
    frame_checksum,
)
from spark_wan.wire.manifest import Manifest, WriteRef, fingerprint
from spark_wan.wire.records import EpochRef, TableClock

WHERE = "channel/frame"

BATCH = pa.record_batch(
    {
        "_wan_op": pa.array([0, 1, 2] * 4, pa.int8()),
        "_wan_version": pa.array([7] * 12, pa.int64()),
        "id": pa.array(range(12), pa.int64()),
        "city": pa.array(["Ulm", "Bonn", None] * 4),
    }
)
FRAME = encode_frame(replace(HEADER, events=12), BATCH)

# --- golden bytes. Never change them; a new version gets its own beside them.

FRAME_V1 = base64.b64decode(
    """
V0FORgEAAAD7AAAAYAQAAAAAAAB7Im9yaWdpbiI6Im5ld2FyayIsInNlbnRfdG8iOlsic2VhdHRsZSJdLCJzdHJlYW0iOiJuZXdh
cmsuZWFzdC5vcmRlcnMiLCJ0YWJsZSI6Im9yZGVycyIsInRhYmxlX2lkIjoiMTExMTExMTEtMjIyMi0zMzMzLTQ0NDQtNTU1NTU1
NTU1NTU1Iiwic2VsZWN0aW9uIjoiYWxsIiwic2NoZW1hIjoiNjM0NDk3ZjYyYzlhZjE5MSIsImF0dGVtcHQiOiJiYmJiYmJiYmJi
YmJiYmJiYmJiYmJiYmJiYmJiYmJiYiIsImluZGV4IjowLCJldmVudHMiOjEyfWIyCar/////QAEAABAAAAAAAAoADAAGAAUACAAK
AAAAAAEEAAQAAACs////BAAAAAQAAADgAAAAlAAAAGQAAAAUAAAAEAAYAAgABgAHAAwAEAAUABAAAAAAAAEFFAAAADwAAAAgAAAA
BAAAAAAAAAAEAAAAY2l0eQAAAAAIAAgAAAAEAAgAAAAEAAAAVP///wAAAAEgAAAABAAEAAQAAACc////AAABAhAAAAAUAAAABAAA
AAAAAAACAAAAaWQAAIj///8AAAABQAAAAMj///8AAAECEAAAACAAAAAEAAAAAAAAAAwAAABfd2FuX3ZlcnNpb24AAAAAwP///wAA
AAFAAAAAEAAUAAgABgAHAAwAAAAQABAAAAAAAAECEAAAACAAAAAEAAAAAAAAAAcAAABfd2FuX29wAAgADAAIAAcACAAAAAAAAAEI
AAAA/////8AAAAAUAAAAAAAAAAwAGAAGAAUACAAMAAwAAAAAAgQAGAAAADgAAAAAAAAAAAAAAAgACAAAAAQACAAAABAAAAAMAB4A
EAAEAAgADAAMAAAAYAAAACQAAAAYAAAAAgAAAAAAAAAAAAAAAAAGAAgABwAGAAAAAAAAAQMAAAAAAAAAAAAAAAAAAAAAAAAAAAAA
AAAAAAAdAAAAAAAAACAAAAAAAAAAGAAAAAAAAAAAAAAAAQAAAAIAAAAAAAAAAAAAAAAAAAAMAAAAAAAAACi1L/0gDGEAAAAAAAAD
AAAABwAAAAAAAAcAAAAAAAAAKLUv/SAHOQAAVWxtQm9ubv////8wAQAAFAAAAAAAAAAMABgABgAFAAgADAAMAAAAAAMEABwAAADY
AAAAAAAAAAAAAAAMAB4AEAAEAAgADAAMAAAAsAAAACQAAAAYAAAADAAAAAAAAAAAAAAAAAAGAAgABwAGAAAAAAAAAQgAAAAAAAAA
AAAAAAAAAAAAAAAAAAAAAAAAAAAdAAAAAAAAACAAAAAAAAAAAAAAAAAAAAAgAAAAAAAAADYAAAAAAAAAWAAAAAAAAAAAAAAAAAAA
AFgAAAAAAAAANgAAAAAAAACQAAAAAAAAABMAAAAAAAAAqAAAAAAAAAArAAAAAAAAAAAAAAAEAAAADAAAAAAAAAAAAAAAAAAAAAwA
AAAAAAAAAAAAAAAAAAAMAAAAAAAAAAAAAAAAAAAADAAAAAAAAAAEAAAAAAAAAAwAAAAAAAAAKLUv/SAMYQAAAAECAAECAAECAAEC
AAAAYAAAAAAAAAAotS/9IGAtAQDwBwAHAAcABwAHAAcABwAHAAcABwAHAAcAAAAAAAAAC1QCAAMBAABgAAAAAAAAACi1L/0gYC0B
APAAAAEAAgADAAQABQAGAAcACAAJAAoACwAAAAAAAAALVAIAAwEAAAIAAAAAAAAAKLUv/SACEQAA2wYAAAAAADAAAAAAAAAAKLUv
/SAw1QAAkAAAAAABAAEAAQABAAAAAAAAAAMUAAcYFwEAAAAAAP////8AAAAA
"""
)

MANIFEST_V1 = (
    b"WANM 1 e70bd670\n"
    b'{"stream":"newark.east.orders","incarnation":"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa","number":2,"previous":"0011223344556677","kind":"capture",'
    b'"origin":"newark","sent_to":["seattle"],"addressees":["seattle"],"table":"orders",'
    b'"table_id":"11111111-2222-3333-4444-555555555555","selection":"all","keys":["id"],'
    b'"schema":{"type":"struct","fields":[{"name":"id","type":"long","nullable":true,"metadata":{}},'
    b'{"name":"city","type":"string","nullable":true,"metadata":{}}]},"first":10,"last":19,"start":false,'
    b'"commits":[{"version":10,"time":1699999999000},{"version":12,"time":1699999999500}],'
    b'"identity":"0123456789abcdef01234567","frames":[{"path":'
    b'"frames/newark.east.orders/bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb-00000.frame","rows":12,"bytes":1395,'
    b'"checksum":2852729442}],"disjoint":true,"generation":0,"created":1700000000000,'
    b'"writes":[{"query":"q","batch":"7","digest":"1:0:00000000000000000000000000000000"}]}'
)
MANIFEST_V2 = (
    b"WANM 2 6f5a380f\n"
    b'{"stream":"newark.east.orders","log_id":"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa","epoch":2,"previous":"0011223344556677","kind":"capture",'
    + MANIFEST_V1[MANIFEST_V1.index(b'"origin"') : MANIFEST_V1.index(b'"first"')]
    + b'"first_version":10,"last_version":19,'
    + MANIFEST_V1[MANIFEST_V1.index(b'"start"') : MANIFEST_V1.index(b'"generation"')]
    + MANIFEST_V1[MANIFEST_V1.index(b'"created"') :]
)
MANIFEST_V3 = b'WANM 3 00000000\n{"log":["newark","east","orders"],"parts":[]}'
"""Made up."""
CLOCKED_V2 = (
    b"WANM 2 17a0bc39\n"
    + MANIFEST_V2[MANIFEST_V2.index(b"{") : -1].replace(
        b'"time":1699999999500', b'"time":1699999999500,"clock":1700000000007'
    )
    + b',"clock":{"stamp":1700000000009,"time":1699999999600},'
    b'"via":{"stream":"denver.north.orders","log_id":"cccccccccccccccccccccccccccccccc","epoch":5,'
    b'"fingerprint":"dddddddddddddddddddddddddddddddd"}}'
)
ENDED_V2 = (
    b"WANM 2 d47e6a09\n" + MANIFEST_V2[MANIFEST_V2.index(b"{") : -1] + b',"control":7,"end":true}'
)
READ_V1 = manifest(
    2,
    previous="0011223344556677",
    commits=(
        {"version": 10, "time": 1_699_999_999_000},
        {"version": 12, "time": 1_699_999_999_500},
    ),
    frames=(FrameRef(f"frames/{STREAM}/{'b' * 32}-00000.frame", 12, 1395, 2852729442),),
    writes=(WriteRef("q", "7", "1:0:" + "0" * 32),),
)


FRAME_V2 = FRAME_V1.replace(b"WANF\x01", b"WANF\x02").replace(
    b"}\x62\x32\x09\xaa", b"}\x79\xf0\x46\xc6"
)
"""Version 2 has another number, and so another checksum."""


def test_b82_a_golden_frame_of_version_2_is_read() -> None:
    header, batch = decode_frame(FRAME_V2, WHERE)
    assert header == replace(HEADER, events=12)
    assert batch.equals(BATCH)


def test_b82_a_golden_frame_of_version_1_is_read() -> None:
    header, batch = decode_frame(FRAME_V1, WHERE, READ_V1.frames[0])
    assert header == replace(HEADER, events=12)
    assert batch.equals(BATCH)
    assert batch.schema.names == ["_wan_op", "_wan_version", "id", "city"]


def test_a_frame_has_the_layout_of_version_2() -> None:
    """All but the payload, which belongs to Arrow and zstd, is pinned to the byte."""
    head = (
        b'{"origin":"newark","sent_to":["seattle"],"stream":"newark.east.orders","table":"orders",'
        b'"table_id":"11111111-2222-3333-4444-555555555555","selection":"all","schema":"634497f62c9af191",'
        b'"attempt":"' + b"b" * 32 + b'","index":0,"events":12}'
    )
    start = 20 + len(head)
    payload = FRAME[start + 4 :]
    assert FRAME[:start] == struct.pack("<4sHHIQ", b"WANF", 2, 0, len(head), len(payload)) + head
    assert FRAME[start : start + 4] == struct.pack("<I", crc32c(FRAME[:start] + payload))
    assert frame_checksum(FRAME) == crc32c(FRAME[:start] + payload)


def test_any_arrow_implementation_reads_the_payload() -> None:
    start = FRAME.index(b"}") + 5
    assert pa.ipc.open_stream(FRAME[start:]).read_all().num_rows == 12


def test_b82_a_manifest_of_version_2_is_read_and_written_the_same() -> None:
    assert Manifest.decode(MANIFEST_V2, WHERE) == READ_V1
    assert READ_V1.encode() == MANIFEST_V2


def test_a_manifest_with_a_clock_and_of_a_forwarded_epoch_is_read_and_written_the_same() -> None:
    earlier, later = READ_V1.commits
    clocked = replace(
        READ_V1,
        commits=(earlier, {**later, "clock": 1_700_000_000_007}),
        clock=TableClock(1_700_000_000_009, 1_699_999_999_600),
        via=EpochRef("denver.north.orders", "c" * 32, 5, "d" * 32),
    )
    assert Manifest.decode(CLOCKED_V2, WHERE) == clocked
    assert clocked.encode() == CLOCKED_V2


def test_the_highest_stamp_of_a_manifest_is_of_what_it_carries() -> None:
    """Of its commits; if they have none, of the commits without rows that it stands for."""
    clocked = Manifest.decode(CLOCKED_V2, WHERE)
    assert clocked.highest_stamp == 1_700_000_000_007
    assert replace(clocked, commits=()).highest_stamp == 1_700_000_000_009
    assert READ_V1.highest_stamp is None


def test_a_golden_manifest_with_an_end_is_read_and_written() -> None:
    ended = replace(READ_V1, control=7, end=True)
    assert (ended.encode(), Manifest.decode(ENDED_V2, WHERE)) == (ENDED_V2, ended)


@pytest.mark.parametrize("data", [MANIFEST_V1, MANIFEST_V2, CLOCKED_V2], ids=["v1", "v2", "stamps"])
def test_b82_the_fingerprint_is_of_the_bytes_that_were_read(data: bytes) -> None:
    """Fails when it is encoded again: the manifest after one of version 1 would not follow it."""
    found = Manifest.decode(data, WHERE)
    assert found.fingerprint == fingerprint(data)


def test_rows_and_bytes_of_a_manifest_are_those_of_its_frames() -> None:
    both = replace(READ_V1, frames=READ_V1.frames * 2)
    assert (both.rows, both.bytes) == (24, 2790)


# --- damage --------------------------------------------------------------------------


def test_every_altered_byte_of_a_frame_is_detected() -> None:
    """Fails when the checksum is not compared in check_frame: most bytes then pass."""
    for place in range(len(FRAME_V1)):
        for flip in (0x01, 0x80, 0xFF):
            altered = bytearray(FRAME_V1)
            altered[place] ^= flip
            with pytest.raises(FrameError, match=WHERE):
                check_frame(bytes(altered), WHERE)


def test_a_frame_truncated_at_any_length_is_detected() -> None:
    for length in range(len(FRAME_V1)):
        with pytest.raises(FrameError, match=WHERE):
            decode_frame(FRAME_V1[:length], WHERE)
    with pytest.raises(FrameError, match="overlong"):
        decode_frame(FRAME_V1 + b"\0", WHERE)


def test_every_altered_byte_of_a_manifest_is_detected() -> None:
    """Fails when the checksum is not compared in Manifest.decode."""
    for place in range(len(MANIFEST_V1)):
        for flip in (0x01, 0x29, 0xFF):
            altered = bytearray(MANIFEST_V1)
            altered[place] ^= flip
            with pytest.raises(ManifestError, match=WHERE):
                Manifest.decode(bytes(altered), WHERE)


def test_a_manifest_truncated_at_any_length_is_detected() -> None:
    for length in range(len(MANIFEST_V1)):
        with pytest.raises(ManifestError, match=WHERE):
            Manifest.decode(MANIFEST_V1[:length], WHERE)


@pytest.mark.parametrize(
    "foreign", [b"", b"x", b"PAR1" * 100, b"WANF", b"{}", b"\0" * 64, b"WANM 1 00000000\n{}"]
)
def test_foreign_bytes_are_neither_frame_nor_manifest(foreign: bytes) -> None:
    with pytest.raises(FrameError):
        decode_frame(foreign, WHERE)
    with pytest.raises(ManifestError):
        Manifest.decode(foreign, WHERE)


def test_a_frame_other_than_the_named_one_is_detected() -> None:
    """It is intact, but not the one that the manifest names.

    Fails when the manifest's checksum is not compared.
    """
    other = encode_frame(replace(HEADER, events=12, index=1), BATCH)
    check_frame(other, WHERE)
    with pytest.raises(FrameError, match="its manifest"):
        check_frame(other, WHERE, READ_V1.frames[0])


def frame_of(header: bytes, payload: bytes, version: int = 2, flags: int = 0) -> bytes:
    """Return a frame with a correct checksum, whatever its content."""
    start = struct.pack("<4sHHIQ", b"WANF", version, flags, len(header), len(payload)) + header
    return start + struct.pack("<I", crc32c(start + payload)) + payload


def manifest_of(body: bytes, version: int = 2) -> bytes:
    return f"WANM {version} {crc32c(body):08x}\n".encode() + body


def test_an_unknown_version_is_refused_by_name() -> None:
    for version, what in (
        (0, "version 0"),
        (3, "written by a newer spark_wan, in version 3; this spark_wan reads versions 1 and 2"),
        (65535, "written by a newer spark_wan, in version 65535"),
    ):
        with pytest.raises(FrameError, match=f"frame {what}.*Update"):
            decode_frame(frame_of(b"{}", b"", version), WHERE)
        with pytest.raises(ManifestError, match=f"manifest {what}.*Update"):
            Manifest.decode(manifest_of(b"{}", version), WHERE)
    with pytest.raises(ManifestError, match=r"newer spark_wan, in version 3.*Update"):
        Manifest.decode(MANIFEST_V3, WHERE)


@pytest.mark.parametrize("version", [1, 2])
def test_f51_unknown_fields_of_a_header_are_ignored(version: int) -> None:
    more = {**FIELDS, "color": "red", "requires": ["sent_to", "index"]}
    found = check_frame(frame_of(json.dumps(more).encode(), b"", version), WHERE)
    assert found == replace(HEADER, events=12)


@pytest.mark.parametrize("version", [1, 2])
def test_f51_unknown_fields_of_a_manifest_are_ignored(version: int) -> None:
    """At every depth. Fails when they are errors: the release after this one could add none."""
    more = {
        **BODY,
        "color": "red",
        "frames": [{**BODY["frames"][0], "color": "red"}],
        "writes": [{**BODY["writes"][0], "color": "red"}],
        "clock": {"stamp": 7, "time": 6, "color": "red"},
        "via": {"stream": "s", "log_id": "l", "epoch": 1, "fingerprint": "f", "color": "red"},
        "requires": ["clock", "clock.stamp", "via", "frames.rows", "commits.clock", "log_id"],
    }
    found = Manifest.decode(manifest_of(json.dumps(more).encode(), version), WHERE)
    assert found == replace(READ_V1, clock=TableClock(7, 6), via=EpochRef("s", "l", 1, "f"))


@pytest.mark.parametrize(
    ("more", "what"),
    [
        ({"color": "red", "requires": ["keys", "color"]}, "it requires color, unknown to this"),
        ({"requires": ["a", "frames.cipher"]}, "it requires a, frames.cipher, unknown to this"),
        ({"kind": "seal"}, "its kind is 'seal', unknown to this"),
    ],
    ids=["a field", "a nested field", "a kind"],
)
def test_f51_a_manifest_that_requires_what_is_unknown_is_refused(
    more: dict[str, Any], what: str
) -> None:
    """Fails when it is read all the same: it means something else than what this version reads."""
    data = manifest_of(json.dumps({**BODY, **more}).encode())
    with pytest.raises(
        ManifestError, match=f"{WHERE}: written by a newer spark_wan: {what}.*Update"
    ):
        Manifest.decode(data, WHERE)


def test_f51_a_frame_that_requires_what_is_unknown_is_refused() -> None:
    head = json.dumps({**FIELDS, "cipher": "x", "requires": ["cipher"]}).encode()
    with pytest.raises(
        FrameError, match=rf"{WHERE}: its header was written by a newer.* requires cipher.*Update"
    ):
        check_frame(frame_of(head, b""), WHERE)


def test_unknown_flags_are_refused() -> None:
    head = json.dumps(asdict(replace(HEADER, events=12))).encode()
    payload = FRAME[FRAME.index(b"}") + 5 :]
    assert decode_frame(frame_of(head, payload), WHERE)[1].equals(BATCH)
    with pytest.raises(FrameError, match="flags 0x1"):
        decode_frame(frame_of(head, payload, flags=1), WHERE)


FIELDS = asdict(replace(HEADER, events=12))
BODY = asdict(READ_V1)


@pytest.mark.parametrize(
    "fields",
    [
        *(
            {name: value for name, value in FIELDS.items() if name != left_out}
            for left_out in FIELDS
        ),
        {**FIELDS, "sent_to": 5},
        {**FIELDS, "requires": "sent_to"},
        [],
        None,
        "text",
    ],
)
def test_a_header_with_missing_or_malformed_fields_is_refused(fields: Any) -> None:
    with pytest.raises(FrameError, match="header cannot be read"):
        check_frame(frame_of(json.dumps(fields).encode(), b""), WHERE)


@pytest.mark.parametrize("header", [b"", b"{", b"\xff\xfe", b"[" * 100_000])
def test_a_header_that_is_not_json_is_refused(header: bytes) -> None:
    with pytest.raises(FrameError, match="header cannot be read"):
        check_frame(frame_of(header, b""), WHERE)


def test_a_header_is_read_as_it_was_written() -> None:
    assert FrameHeader.from_json(json.dumps(FIELDS).encode()) == replace(HEADER, events=12)


@pytest.mark.parametrize(
    "fields",
    [
        *(
            {name: value for name, value in BODY.items() if name != left_out}
            for left_out in BODY
            if left_out
            not in (
                *("writes", "clock", "via", "root", "copy", "control", "end", "dropped"),
                "signature",
            )
        ),
        {**BODY, "frames": [{"path": "p"}]},
        {**BODY, "frames": None},
        {**BODY, "clock": {"stamp": 7}},
        {**BODY, "clock": 7},
        {**BODY, "via": {"stream": "s"}},
        {**BODY, "root": {"stream": "s"}},
        {**BODY, "requires": {"keys": 1}},
        {**BODY, "requires": [1]},
        {**BODY, "commits": [5]},
        {**BODY, "writes": [{"query": "q"}]},
        {**BODY, "keys": 5},
        [],
        None,
        5,
    ],
)
def test_a_manifest_with_missing_or_malformed_fields_is_refused(fields: Any) -> None:
    """Its checksum is correct. Fails when Manifest.decode lets KeyError and TypeError through."""
    with pytest.raises(ManifestError, match="cannot be read"):
        Manifest.decode(manifest_of(json.dumps(fields).encode()), WHERE)


@pytest.mark.parametrize("body", [b"", b"{", b"\xff\xfe", b"[" * 100_000])
def test_a_manifest_that_is_not_json_is_refused(body: bytes) -> None:
    with pytest.raises(ManifestError, match="cannot be read"):
        Manifest.decode(manifest_of(body), WHERE)


@pytest.mark.parametrize("levels", [201, 500, 900, 960, 984])
@pytest.mark.parametrize("field", ["schema", "more"])
def test_a_manifest_that_is_nested_too_deeply_is_refused(field: str, levels: int) -> None:
    """Python reads it, and fails when it compares or writes it: out of a look at all streams."""
    nested = "{}"
    for _ in range(levels - 1):
        nested = f'{{"type":{nested}}}'
    body = json.dumps({**BODY, field: "HERE"}).replace('"HERE"', nested)
    with pytest.raises(ManifestError, match="cannot be read"):
        Manifest.decode(manifest_of(body.encode()), WHERE)


def test_a_column_whose_name_is_not_utf_8_is_refused() -> None:
    """Found by the fuzzer. Arrow reads it, and raises UnicodeDecodeError when it is asked for."""
    payload = FRAME[FRAME.index(b"}") + 5 :]
    assert b"city" in payload
    damaged = frame_of(json.dumps(FIELDS).encode(), payload.replace(b"city", b"ci\xf0y"))
    with pytest.raises(FrameError, match="payload is not an Arrow IPC stream"):
        decode_frame(damaged, WHERE)


@pytest.mark.parametrize(
    "batch",
    [
        pa.record_batch({"a": pa.array(["a" * 400_000] * 5)}),
        pa.record_batch({"a": pa.DictionaryArray.from_arrays([0] * 50, ["a" * 50_000])}),
        pa.record_batch({"a": pa.nulls(100_000)}),
    ],
    ids=["text", "dictionary", "nulls"],
)
@pytest.mark.parametrize("codec", ["zstd", "lz4", None])
def test_a_frame_that_unpacks_to_too_much_is_refused(
    batch: pa.RecordBatch, codec: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before it is unpacked: only to a dictionary does Arrow come at all. Fails (takes as much as a
    frame says) without the check of what it declares, of its rows, or of its dictionaries."""
    sink = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(compression=codec)
    with pa.ipc.new_stream(sink, batch.schema, options=options) as writer:
        writer.write_batch(batch)
    header = json.dumps({**FIELDS, "events": batch.num_rows}).encode()
    data = frame_of(header, bytes(sink.getvalue()))
    with monkeypatch.context() as patch:
        if not pa.types.is_dictionary(batch.schema.types[0]):
            patch.delattr(pa.ipc, "open_stream")
        with pytest.raises(FrameError, match=r"it would unpack to .* max_frame_bytes .* 1,000,000"):
            decode_frame(data, WHERE, None, 1_000_000)
    assert decode_frame(data, WHERE)[1].num_rows == batch.num_rows


def test_a_length_that_lies_is_refused() -> None:
    """A buffer says that it unpacks to less than it has, or to more."""
    batch = pa.record_batch({"a": pa.array([7] * 100_000, pa.int64())})
    frame = encode_frame(replace(HEADER, events=100_000), batch)
    at = frame.index(struct.pack("<q", 800_000) + b"\x28\xb5\x2f\xfd")  # zstd's magic
    start = frame.index(b"}") + 5
    for said in (8, 799_999, 800_001, 2**40, -2, -(2**63)):
        payload = frame[start:at] + struct.pack("<q", said) + frame[at + 8 :]
        header = json.dumps({**FIELDS, "events": 100_000}).encode()
        with pytest.raises(FrameError, match=r"its payload is not|it would unpack to"):
            decode_frame(frame_of(header, payload), WHERE, None, 1_700_000)


@pytest.mark.parametrize(
    "payload", [b"", b"\0" * 100, b"Arrow" * 20, FRAME[FRAME.index(b"}") + 5 :][:200]]
)
def test_a_payload_that_is_not_an_arrow_stream_is_refused(payload: bytes) -> None:
    with pytest.raises(FrameError, match="payload is not an Arrow IPC stream"):
        decode_frame(frame_of(json.dumps(FIELDS).encode(), payload), WHERE)


def test_a_payload_with_another_number_of_rows_is_refused() -> None:
    with pytest.raises(FrameError, match="12 rows where its header says 11"):
        decode_frame(encode_frame(replace(HEADER, events=11), BATCH), WHERE)


# --- what travels -------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", VALUES)
def test_values_of_every_type_survive(kind: str) -> None:
    batch = pa.record_batch({"x": VALUES[kind]})
    _, found = decode_frame(encode_frame(replace(HEADER, events=3), batch), WHERE)
    assert found.schema.equals(batch.schema)
    assert [str(value) for value in found.column("x")] == [
        str(value) for value in batch.column("x")
    ]
    if kind in ("float", "double"):
        words = pa.int32() if kind == "float" else pa.int64()
        assert found.column("x").view(words).equals(batch.column("x").view(words))


def test_repeated_strings_travel_as_dictionaries_and_arrive_as_strings() -> None:
    repeating = pa.record_batch(
        {"x": pa.array([f"a rather long city name {n % 3}" for n in range(3000)])}
    )
    distinct = pa.record_batch(
        {"x": pa.array([f"a rather long city name {n}" for n in range(3000)])}
    )
    for batch in (repeating, distinct):
        _, found = decode_frame(encode_frame(replace(HEADER, events=3000), batch), WHERE)
        assert found.equals(batch)
    frame = encode_frame(replace(HEADER, events=3000), repeating)
    sent = pa.ipc.open_stream(frame[frame.index(b"}") + 5 :]).read_next_batch()
    assert pa.types.is_dictionary(sent.schema.field("x").type)


def test_a_batch_without_rows_or_columns_survives() -> None:
    for batch in (BATCH.slice(0, 0), pa.record_batch({"x": pa.array([], pa.string())})):
        _, found = decode_frame(encode_frame(HEADER, batch), WHERE)
        assert found.equals(batch)


def test_a_slice_is_sent_without_the_rows_around_it() -> None:
    part = BATCH.slice(3, 4)
    _, found = decode_frame(encode_frame(replace(HEADER, events=4), part), WHERE)
    assert found.equals(part)


def test_the_manifest_of_the_fakes_survives() -> None:
    assert Manifest.decode(MANIFEST.encode(), WHERE) == MANIFEST
