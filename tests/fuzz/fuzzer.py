"""Reads what nobody of ours has written: frames, manifests, acks, a site's state, logs of topics,
topology files.

    PYTHONPATH=.:tests:tests/support python tests/fuzz/fuzzer.py TARGET INPUTS SEED

Each input is valid but for something. The reader may take it, or refuse it with a WanError; it may
raise nothing else, and take no more memory than its limit. The address space of this process is
limited, too. On anything else the input is written to ``fuzz-<target>-<number>.bin``, and the error
says with which seed and number it came.
"""

from __future__ import annotations

import json
import os
import random
import resource
import struct
import sys
import tempfile
import traceback
import zlib
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import yaml
from crc32c import crc32c
from fakes import HEADER, STREAM, manifest, schema

from fuzz.mutations_of import as_json, mutated_bytes, mutated_value
from spark_wan.apply.plan import StreamPlanner
from spark_wan.channels.kafka import parts, seen_log
from spark_wan.channels.kafka.seen_log import SeenLog, State
from spark_wan.errors import LedgerError, NewerRecordError, WanError
from spark_wan.ledger.progress import Progress
from spark_wan.log.trust import ManifestRule
from spark_wan.topology.parsing import load_topology, parse_topology
from spark_wan.wire import topic_log
from spark_wan.wire.ack import Ack, Need
from spark_wan.wire.checkpoint import PublishedState, SenderCheckpoint
from spark_wan.wire.decisions import Decisions
from spark_wan.wire.frame import FrameRef, check_frame, decode_frame, encode_frame, frame_checksum
from spark_wan.wire.head import MARKER, Announcement, Head, check_marker
from spark_wan.wire.ledger import (
    FoldedIds,
    HistoryPosition,
    LedgerRow,
    Summary,
    decode_row,
    encode_row,
)
from spark_wan.wire.manifest import Manifest, WriteRef, fingerprint
from spark_wan.wire.mark import AppliedStream, Mark
from spark_wan.wire.receiver_record import ReceiverRecord
from spark_wan.wire.records import UNREADABLE, EpochRef, LongWork, TableClock
from spark_wan.wire.sender_record import SenderRecord
from spark_wan.wire.signature import KeyReference, Signer
from spark_wan.wire.topic_log import Operation
from spark_wan.wire.topic_state import parse_path

MAX_FRAME = 1 << 20
"""``max_frame_bytes`` of the frames here."""
MEMORY = 32 * MAX_FRAME
"""What this process may take beside what it has when it begins."""
KEY = KeyReference("env", "SPARK_WAN_FUZZ_KEY")
OTHER = KeyReference("env", "SPARK_WAN_OTHER_KEY")
VIA = EpochRef("denver.north.orders", "c" * 32, 5, "d" * 32)
SIGNER = Signer("newark", "east", (KEY,))
_FIXED = struct.Struct("<4sHHIQ")

Read = Callable[[bytes], object]
Target = tuple[Callable[[random.Random], Iterator[bytes]], Read]


# --- frames


def batches() -> list[pa.RecordBatch]:
    """Return batches of all shapes that frames have, and of some that they never have."""
    n = 24
    op = pa.array([0, 1, 2] * 8, pa.int8())
    version = pa.array([7] * n, pa.int64())
    city = pa.array(["Ulm", "Bonn", None] * 8)
    flat = {"_wan_op": op, "_wan_version": version, "id": pa.array(range(n), pa.int64())}
    found = [
        {**flat, "city": city},
        {**flat, "text": pa.array([chr(65 + i) * i for i in range(n)])},
        {**flat, "raw": pa.array([bytes([i]) * i for i in range(n)], pa.binary())},
        {**flat, "list": pa.array([[i, None] * (i % 3) for i in range(n)])},
        {**flat, "map": pa.array([[("a", i)] for i in range(n)], pa.map_("string", "int32"))},
        {**flat, "row": pa.array([{"a": i, "b": {"c": [str(i)]}} for i in range(n)])},
        {**flat, "d": pa.array([None] * n, pa.decimal128(38, 10)), "b": op.cast(pa.bool_())},
        {**flat, "t": version.cast(pa.timestamp("us")), "f": version.cast(pa.float64())},
        {**flat, "nothing": pa.nulls(n)},
        {"_wan_op": op, "codes": city.dictionary_encode()},
        {"_wan_op": op, "runs": pa.RunEndEncodedArray.from_arrays([n], ["a" * 100])},
        {"_wan_op": op, "view": city.cast(pa.string_view())},
        {"_wan_op": op, "deep": pa.array([[[[5]]]] * n)},
        {"_wan_op": op, "coded": pa.DictionaryArray.from_arrays([0] * n, pa.array([[1, 2]]))},
        {"_wan_op": op, "fixed": pa.array([b"abcd"] * n, pa.binary(4))},
        {"_wan_op": op, "union": pa.UnionArray.from_sparse(op, [version, city])},
    ]
    return [pa.record_batch(each) for each in found]


def bombs() -> list[pa.RecordBatch]:
    """Return batches that are small in a channel, and large once they are unpacked."""
    zeros = pa.array(np.zeros(10_000_000, np.int8))
    text = pa.DictionaryArray.from_arrays([0] * 500, pa.array(["a" * 100_000]))
    return [
        pa.record_batch({"_wan_op": zeros}),
        pa.record_batch({"_wan_op": zeros[:500], "text": text}),
        pa.record_batch({"_wan_op": zeros[:500], "text": text.dictionary_decode()}),
        pa.record_batch({"nothing": pa.nulls(2**22)}),
    ]


def payload(batch: pa.RecordBatch, codec: str | None) -> bytes:
    options = pa.ipc.IpcWriteOptions(compression=codec)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema, options=options) as writer:
        writer.write_batch(batch)
    return bytes(sink.getvalue())


def frame_of(header: bytes, content: bytes) -> bytes:
    start = _FIXED.pack(b"WANF", 2, 0, len(header), len(content)) + header
    return start + struct.pack("<I", crc32c(content, crc32c(start))) + content


def frames(chance: random.Random) -> Iterator[bytes]:
    seeds = []
    for batch in [*batches(), *bombs()]:
        header = json.loads(json.dumps(vars(replace(HEADER, events=batch.num_rows))))
        for codec in ("zstd", "lz4", None):
            if codec is not None or batch.nbytes < 10_000:
                seeds.append((header, payload(batch, codec)))
    whole = [encode_frame(replace(HEADER, events=b.num_rows), b) for b in batches()[:9]]
    contents = [content for _, content in seeds]
    yield from whole
    yield from (frame_of(json.dumps(header).encode(), content) for header, content in seeds)
    while True:
        kind = chance.random()
        header, content = chance.choice(seeds)
        if kind < 0.1:
            yield mutated_bytes(chance, chance.choice(whole), whole)
        elif kind < 0.2:
            yield frame_of(as_json(chance, mutated_value(chance, header)), content)
        else:
            changed = mutated_bytes(chance, content, contents)
            if kind > 0.95:
                header = {**header, "events": chance.choice((0, 1, 2**40, 2**62))}
            yield frame_of(json.dumps(header).encode(), changed)


def read_frame(data: bytes) -> object:
    try:
        checksum = frame_checksum(data)
    except WanError:
        checksum = 0
    ref = FrameRef("f", 1, len(data), checksum)
    check_frame(data, "frame", ref)
    try:
        _, events = decode_frame(data, "frame", ref, MAX_FRAME)
    except WanError as error:
        assert not isinstance(error.__cause__, MemoryError), error
        raise
    for column in events.columns:
        column.validate(full=True)
    return encode_frame(HEADER, events)


# --- manifests


def manifests(chance: random.Random) -> Iterator[bytes]:
    frame = FrameRef(f"frames/{STREAM}/{'b' * 32}-00000.frame", 12, 1395, 2852729442, "d" * 64)
    whole = manifest(
        2,
        frames=(frame, frame),
        commits=({"version": 10, "time": 1_699_999_999_000, "clock": 5},),
        writes=(WriteRef("q", "7", "1:0"),),
        clock=TableClock(7, 8),
        via=VIA,
    )
    nested = {"type": "struct", "fields": [{"name": "a", "type": schema(), "nullable": True}]}
    events = manifest(1, kind="events", first_version=-1, last_version=-1)
    seeds = [whole, manifest(1), events, replace(whole, schema=nested)]
    data = [each.encode() for each in (*seeds, *(seed.signed_by(SIGNER) for seed in seeds))]
    yield from data
    while True:
        one = chance.choice(data)
        if chance.random() < 0.1:
            yield mutated_bytes(chance, one, data)
            continue
        body = one.partition(b"\n")[2]
        if chance.random() < 0.7:
            body = as_json(chance, mutated_value(chance, json.loads(body)))
        else:
            body = mutated_bytes(chance, body, data)
        version = chance.choice((1, 2, 2, 2, 2, 3, 10**30))
        yield f"WANM {version} {crc32c(body):08x}\n".encode() + body


RULES = [
    ManifestRule("seattle", sender, origin, {"newark": (KEY, OTHER)}, {"newark": names}, accepted)
    for sender, origin in (("newark", "newark"), (None, None))
    for names in (frozenset({"east"}), frozenset[str]())
    for accepted in (None, ("newark",))
]


def read_manifest(data: bytes) -> object:
    found = Manifest.decode(data, "manifest")
    again = Manifest.decode(found.encode(), "again")
    assert again.stream == found.stream and again.frames == found.frames
    sizes = (found.rows, found.bytes, found.through, found.highest_stamp, found.fingerprint)
    refusals = [rule.refusal(found) for rule in RULES]
    log: Any = SimpleNamespace(
        stream=STREAM, read=lambda _: found, peek=lambda _: found, accepts=lambda _: False
    )
    planner = StreamPlanner(log, "seattle", Progress(), {}, 10**6, 200)
    return sizes, refusals, planner.plan([found.epoch])


# --- acks and other records


def acks(chance: random.Random) -> Iterator[bytes]:
    need = Need("epochs", (("newark", "an id", "all", 5),), 7)
    one = Ack("seattle", STREAM, "a" * 32, 7, 8, "a cause", 3, 1, needs=need)
    signed = one.signed_by(Signer("seattle", "", (KEY,)))
    work = LongWork(8, 5, 7, 25)
    record = SenderRecord(STREAM, 5, 6, "a" * 32, not_served=("tacoma",), alert="x", through=5)
    receiver = ReceiverRecord("seattle", STREAM, 5, 6, 1, 2, 3, 4, 5, work, 7, 8)
    records = (record, replace(record, work=work), receiver)
    data = [one.encode(), signed.encode(), *(each.encode() for each in records)]
    yield from data
    while True:
        each = chance.choice(data)
        if chance.random() < 0.3:
            yield mutated_bytes(chance, each, data)
        else:
            yield as_json(chance, mutated_value(chance, json.loads(each)))


def read_ack(data: bytes) -> object:
    read = [Ack.of(data, "seattle", STREAM), Ack.of(data, "seattle", STREAM, (OTHER, KEY))]
    for ack in read:
        assert ack is None or (ack.in_table >= 0 and ack.encode())
    return read, SenderRecord.of(data, STREAM), ReceiverRecord.of(data, STREAM, "seattle")


# --- what a site keeps, and hints in a channel


def states(chance: random.Random) -> Iterator[bytes]:
    clock = TableClock(7, 8)
    published = PublishedState(9, "abc@123", "id", ("id",), schema(), clock)
    part = AppliedStream("newark", "id", "all", 9, STREAM, "a" * 32, 1, "f" * 32, True, 3, 4, 5, 6)
    mark = Mark("seattle", "orders", 3, "t", (part, replace(part, via=VIA)), ("a",), {"a": None})
    ids = FoldedIds("newark", 2, 7, 30, None)
    summary = Summary(
        *("target-1", 9, 7, "t7", 2, (("newark", "id", "all", 69),)),
        *(((STREAM, "a" * 32, 7, "f" * 24),), {STREAM: 2}, (False, True), ("id",), {"a": None}),
        *((ids,), ((1, 1),)),
    )
    rows = [summary, summary.as_claim(), HistoryPosition("t", 9, "x@1", {"a": "b"})]
    data = [
        Decisions({7: "skip"}, frozenset({"a" * 32})).encode(),
        SenderCheckpoint("a" * 32, 7, {"seattle": 6}, published, 5).encode(),
        mark.user_metadata().encode(),
        Head(7, "f" * 32).encode(),
        Announcement(7, 2).encode(),
        MARKER,
        *(encode_row(row)["mark"].encode() for row in (*rows, LedgerRow("t", 9, mark))),
    ]
    yield from data
    while True:
        one = chance.choice(data)
        if chance.random() < 0.3:
            yield mutated_bytes(chance, one, data)
        else:
            yield as_json(chance, mutated_value(chance, json.loads(one)))


def read_state(data: bytes) -> object:
    """With each reader. What is read is written, and read as the same."""
    readers: tuple[Callable[[bytes], Any], ...]
    readers = (Head.of, Announcement.of, SenderCheckpoint.decode)
    for read in readers:
        with suppress(NewerRecordError):
            found = read(data)
            assert found is None or read(found.encode()).encode() == found.encode()
    with suppress(NewerRecordError, *UNREADABLE):
        check_marker(data)
    with suppress(NewerRecordError, *UNREADABLE):
        row = decode_row("t", 9, data.decode(errors="surrogateescape"), 7)
        again = encode_row(row)
        assert decode_row("t", 9, again["mark"], again.get("apply")) == row
    with suppress(LedgerError):
        Mark.read(data.decode(errors="replace"), "seattle", "orders")
    decisions = Decisions.decode(data, "decisions")
    assert Decisions.decode(decisions.encode(), "again") == decisions
    return decisions


# --- the log of a channel on topics


def logs(chance: random.Random) -> Iterator[bytes]:
    """Yield logs: records with their lengths. One record of each is wrong."""
    channel = "c" * 32
    first = Operation(topic_log.CHANNEL, channel, id=channel)
    frame = f"frames/{STREAM}/{'b' * 32}-00000@0:3+0:4"
    other = f"frames/{STREAM}/{'b' * 32}-00001@1:3"

    def fields(epoch: int, *frames: str) -> dict[str, Any]:
        previous = fingerprint(b"m%d" % (epoch - 1)) if epoch > 1 else ""
        return {"stream": STREAM, "epoch": epoch, "previous": previous, "frames": frames}

    begin = Operation(topic_log.BEGIN, channel)
    state = State(channel)
    state.apply(Operation(topic_log.MANIFEST, channel, fields(1, other), b"m1"))
    trim = {"stream": STREAM, "through": 1, "fingerprint": fingerprint(b"m1")}
    move = {"path": frame, "from": [[0, 3], [0, 4]], "to": [[1, 7], [1, 8]]}
    valid = [
        Operation(topic_log.MANIFEST, channel, fields(1, frame), b"m1"),
        Operation(topic_log.MOVE, channel, move),
        Operation(topic_log.MANIFEST, channel, fields(2, other), b"m2"),
        Operation(topic_log.ANNOUNCE, channel, {"stream": STREAM, "epoch": 1, "attempt": 1}),
        Operation(topic_log.SENDER, channel, {"stream": STREAM}, b"record"),
        Operation(topic_log.TRIM, channel, trim),
        Operation(topic_log.FLOOR, channel, {"floors": [[1, 3]]}),
        Operation(topic_log.DISCARD, channel, {"frames": [other]}),
        begin,
        Operation(topic_log.CHECKPOINT, channel, {"begin": begin.id, "offset": 9}, state.encode()),
        Operation(topic_log.WITHDRAW, channel, {"stream": STREAM}),
        Operation(topic_log.MANIFEST, channel, fields(3), b"m3"),
    ]
    whole = [each.encode() for each in valid]
    large = zlib.compress(bytes(64 * MAX_FRAME))
    while True:
        wrong = chance.randrange(len(valid))
        records = [first.encode()] if chance.random() < 0.8 else []
        for number, operation in enumerate(valid):
            if number != wrong:
                records += operation.records(chance.choice((100, 10_000)))
            elif chance.random() < 0.2:
                records.append(mutated_bytes(chance, whole[number], whole))
            else:
                head = {"kind": operation.kind, "id": operation.id, "channel": channel}
                payload = operation.payload
                if operation.kind == topic_log.CHECKPOINT and chance.random() < 0.7:
                    content = json.loads(zlib.decompress(payload))
                    payload = zlib.compress(as_json(chance, mutated_value(chance, content)))
                    content = {**head, **operation.fields}
                else:
                    content = mutated_value(chance, {**head, **operation.fields})
                body = as_json(chance, content) + b"\n" + payload
                records.append(f"WANO 1 {crc32c(body):08x}\n".encode() + body)
        for number in range(chance.choice((0, 0, 40))):  # operations that nobody ends
            data = chance.choice((b"", bytes(50_000)))
            start = b'WANO 1 00000000\n{"kind":"checkpoint",' if chance.random() < 0.5 else b""
            line = b"WANP 1 %032x 0 %d %08x\n" % (number, 10**9 - 1, crc32c(start + data))
            records.insert(chance.randrange(1, len(records)), line + start + data)
        if chance.random() < 0.01:  # a small record that is large once it is decompressed
            records.append(replace(valid[9], payload=large).encode())
        yield b"".join(struct.pack("<I", len(each)) + each for each in records)


def read_log(data: bytes) -> object:
    """Both from the beginning and from the checkpoint. What counts can be written and read."""
    seen_log.MAX_STATE_BYTES = MAX_FRAME
    parts.MAX_OPERATION_BYTES = parts.MAX_UNFINISHED_BYTES = MAX_FRAME // 2
    parts.MAX_CHECKPOINT_BYTES = MAX_FRAME // 2
    at, records = 0, []
    while at < len(data):
        (size,) = struct.unpack_from("<I", data, at)
        records.append(data[at + 4 : at + 4 + size])
        at += 4 + size
    seen = SeenLog("log")
    for offset, record in enumerate(records):
        seen.add(offset, record)
        assert sum(seen._unfinished._sizes.values()) <= MAX_FRAME
    for path, places in seen.state.frames.items():
        assert parse_path(path) is not None
        assert all(0 <= part < 2**31 and 0 <= offset < 2**63 for part, offset in places)
    encoded = seen.state.encode()
    assert State.decode(encoded).encode() == encoded
    return seen.state.lowest_alive()


# --- topologies


def topologies(chance: random.Random) -> Iterator[bytes]:
    conf = Path(__file__).parents[2] / "conf"
    texts = [path.read_bytes() for path in sorted(conf.glob("minimal.yaml"))]
    plain = [yaml.safe_load(path.read_bytes()) for path in sorted(conf.rglob("*.yaml"))]
    harm = [
        b"a: &a [x, x]\nb: &b [*a, *a]\n",
        b"{<<: {a: 1}, ? [a] : b}\n",
        b"- !!timestamp 2020-13-45\n- !!int ''\n- !!float .\n- !!binary '*'\n- 1:60:60\n",
        b"!!set {a, b}\n--- \n%YAML 9.9\n...\n",
        b"? {a: b}\n: !!omap [a: 1]\n!!pairs [a]\n",
    ]
    yield from texts
    yield from harm
    while True:
        if chance.random() < 0.9:
            # As parsed: without YAML it is a hundred times as fast.
            yield b"json:" + as_json(chance, mutated_value(chance, chance.choice(plain)))
        else:
            one = chance.choice((*texts, *harm))
            yield mutated_bytes(chance, one, [*texts, *harm])


def read_topology(data: bytes) -> object:
    if data.startswith(b"json:"):
        try:
            content = json.loads(data[5:])
        except (ValueError, RecursionError):
            return None
        return parse_topology(content, "wan.yaml")
    with tempfile.NamedTemporaryFile(dir="/dev/shm" if os.path.isdir("/dev/shm") else None) as file:
        file.write(data)
        file.flush()
        return load_topology(file.name)


TARGETS: dict[str, Target] = {
    "frames": (frames, read_frame),
    "manifests": (manifests, read_manifest),
    "acks": (acks, read_ack),
    "states": (states, read_state),
    "logs": (logs, read_log),
    "topologies": (topologies, read_topology),
}


def main(target: str, inputs: int, seed: int) -> int:
    os.environ |= {KEY.place: "k" * 32, OTHER.place: "o" * 32}
    make, read = TARGETS[target]
    generated = make(random.Random(f"{target} {seed}"))
    first = next(generated)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10
    size = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (size + 32 * MEMORY, size + 32 * MEMORY))
    refused = 0
    data = first
    for number in range(inputs):
        data = first if number == 0 else next(generated)
        try:
            read(data)
        except WanError:
            refused += 1
        except BaseException:
            found = Path(f"fuzz-{target}-{number}.bin")
            found.write_bytes(data)
            traceback.print_exc()
            print(f"{target}: input {number} of seed {seed}, see {found.absolute()}")
            return 1
    taken = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10) - before
    print(f"{target}: {inputs:,} inputs of seed {seed}, {refused:,} refused; {taken >> 20} MiB")
    if taken > MEMORY:
        print(f"{target}: more memory than {MEMORY >> 20} MiB")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3])))
