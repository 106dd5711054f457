"""Too many dead letters in an epoch: neither end collects or records them; the stream is held."""

from __future__ import annotations

import json
from contextlib import nullcontext
from typing import Any

import pyarrow as pa
import pytest
from capturing import capture_task, changes, delta_source, orders
from fakes import HEADER, STREAM, LedgerRows, Target, conflict, memory_channel, publish

from spark_wan.apply.applier import TableApplier
from spark_wan.apply.change import Change
from spark_wan.errors import DeadLettersError, SourceError
from spark_wan.ledger.ledger import Ledger
from spark_wan.log.stream_log import StreamLog
from spark_wan.steps import run


def task_rows(*batches: pa.RecordBatch, most: int = 3) -> list[tuple[str, Any]]:
    task = capture_task(max_dead_letters=most)
    return [
        (row["kind"], json.loads(row["content"]))
        for batch in task(iter(batches))
        for row in batch.to_pylist()
    ]


@pytest.mark.parametrize(
    "keys", [(None, None, None, 1, 2), (1, 1, 2, 2, 3, 3)], ids=["null in key", "key twice"]
)
def test_a_task_returns_dead_letters_up_to_the_maximum(keys: tuple[int | None, ...]) -> None:
    kinds = [kind for kind, _ in task_rows(changes(*keys)) if kind != "duplicates"]
    assert kinds == ["dead"] * 3 + ["frames"]


@pytest.mark.parametrize("most", [0, 3])
@pytest.mark.parametrize("keys", [(None,) * 50, (1,) * 50, (1, 1, 2, 2, 3, 3, 4, 4)])
def test_a_task_returns_one_example_above_the_maximum(
    keys: tuple[int | None, ...], most: int
) -> None:
    """Besides the frames, to be trimmed. Fails without ``CaptureTask._too_many``."""
    found = dict(task_rows(changes(*keys), changes(98, 99), most=most))
    assert set(found) <= {"too many", "frames"}
    assert found["too many"].startswith(
        ("null_in_key in version 7: {", "duplicate_key in version 7: {")
    )


def test_a_task_with_too_many_dead_letters_ends_early() -> None:
    """It does not read the rows after those that hold the stream."""
    read = []

    def batches() -> Any:
        for n in range(5):
            read.append(n)
            yield changes(*[None] * 4)

    assert [kind for kind, _ in task_rows(*batches(), most=3)] == ["too many"]
    read.clear()
    task = capture_task(max_dead_letters=3)
    assert len(list(task(batches()))) == 1
    assert read == [0]


class Frame:
    """As much of a DataFrame as publishing needs; its tasks return ``answers``, without hashes."""

    def __init__(self, *answers: tuple[str, str]) -> None:
        self.answers = answers

    def collect(self) -> list[tuple[str, str, None]]:
        return [(*answer, None) for answer in self.answers]


@pytest.mark.parametrize(
    ("one_task", "most", "message"),
    [
        (True, 3, ("orders: more than 3 rows", "`max_dead_letters`")),
        (False, 3, ("orders: more than 3 rows", "`max_dead_letters`")),
        (True, 0, ("orders: some rows", "`on_failure` is retry", "set it to dead_letter")),
    ],
)
def test_the_sender_holds_and_advises(
    monkeypatch: pytest.MonkeyPatch, one_task: bool, most: int, message: tuple[str, ...]
) -> None:
    """Whether one task has too many or all together; nothing is recorded, and no frame stays."""
    import spark_wan.capture.source as module

    monkeypatch.setattr(module, "watched_jobs", lambda *_: nullcontext(lambda: None))
    channel, recorded = memory_channel(), []
    path = channel.put_frame(STREAM, "a" * 32, 0, b"frame")
    frames = {
        "frames": [{"path": path, "rows": 1, "bytes": 5, "checksum": 0}],
        "versions": [7],
        "split": False,
    }
    dead = [(kind, json.dumps(content)) for kind, content in task_rows(changes(None, None))]
    answers = (
        [task_rows(changes(*[None] * 9))[0]]
        if one_task
        else [(k, json.loads(c)) for k, c in dead * 2]
    )
    answers = [(kind, json.dumps(content)) for kind, content in [*answers, ("frames", frames)]]
    monkeypatch.setattr(module, "map_in_arrow", lambda *_: Frame(*answers))
    monkeypatch.setattr(module, "select_columns", lambda names: names)
    rows: Any = type(
        "Rows", (), {"repartition": lambda s, *_: s, "sortWithinPartitions": lambda s, *_: s}
    )()
    source = delta_source(None, orders(max_dead_letters=most), channel, recorded.append)
    with pytest.raises(SourceError) as error:
        source._publish(rows, HEADER, 1)
    for part in (*message, "null_in_key in version 7", '"city 0"'):
        assert part in str(error.value)
    assert not recorded
    assert not list(channel.frames(STREAM))


class RefusingTarget(Target):
    """A target that cannot apply some rows of each epoch."""

    def __init__(self, channel: Any, most: int, **letters: int) -> None:
        super().__init__(channel)
        self.most, self.letters = (
            most,
            {int(name.removeprefix("epoch")): n for name, n in letters.items()},
        )

    def resolve(self, change: Change) -> None:
        change.dead_letters = sum(
            self.letters.get(epoch.manifest.epoch, 0) for epoch in change.epochs
        )
        if change.dead_letters > self.most:
            raise DeadLettersError(f"{change.dead_letters} dead letters")


def applied(target: RefusingTarget, log: StreamLog) -> tuple[int, int | None]:
    applier = TableApplier(
        "seattle", "orders", log, target, Ledger("seattle", "orders", LedgerRows())
    )
    while True:
        outcome = run(applier.round())
        if not outcome.again:
            return outcome.applied, outcome.held


def test_epochs_that_exceed_the_maximum_only_together_are_applied() -> None:
    """In parts. Fails when ``TableApplier._apply_valid`` does not split them."""
    channel = memory_channel()
    log = StreamLog(channel, STREAM)
    publish(log, 1, 2, 3, 4, 5, 6, 7)
    target = RefusingTarget(channel, 3, **{f"epoch{n}": 2 for n in range(1, 8)})
    assert applied(target, log) == (7, None)
    assert [n for numbers in target.written for n in numbers] == [1, 2, 3, 4, 5, 6, 7]
    assert target.open_work == 0


@pytest.mark.parametrize(
    "letters",
    [{"epoch1": 2, "epoch2": 2, "epoch3": 2}, {"epoch4": 2, "epoch5": 2}],
    ids=["before it", "after it"],
)
def test_a_bad_frame_after_too_many_dead_letters_is_the_cause(letters: dict[str, int]) -> None:
    """Epochs before a bad frame are applied, in parts if needed.

    Fails when one search for a valid part ends the other: the stream is held at its first epoch,
    and no message names the frame.
    """
    channel = memory_channel()
    log = StreamLog(channel, STREAM)
    bad = publish(log, 1, 2, 3, 4, 5)[3].frames[0].path
    channel.trim_frames(STREAM, [bad])
    target = RefusingTarget(channel, 3, **letters)
    assert applied(target, log) == (3, 4)
    assert bad in str(log.acks()["seattle"].cause)
    assert [n for numbers in target.written for n in numbers] == [1, 2, 3]
    assert target.open_work == 0


class VanishingFrameTarget(RefusingTarget):
    """A target that refuses its first epochs, while one of their frames is deleted."""

    def __init__(self, channel: Any, most: int, path: str, **letters: int) -> None:
        super().__init__(channel, most, **letters)
        self.path = path

    def resolve(self, change: Change) -> None:
        self.channel.trim_frames(STREAM, [self.path])
        super().resolve(change)


def test_a_frame_deleted_while_epochs_are_split_is_the_cause() -> None:
    """Fails when only the search for a bad frame handles it: the stream is held at its valid first
    epoch.
    """
    channel = memory_channel()
    log = StreamLog(channel, STREAM)
    bad = publish(log, 1, 2, 3, 4)[1].frames[0].path
    target = VanishingFrameTarget(channel, 3, bad, epoch1=2, epoch2=2, epoch3=2)
    assert applied(target, log) == (1, 2)
    assert bad in str(log.acks()["seattle"].cause)
    assert (target.written, target.open_work) == ([[1]], 0)


@pytest.mark.parametrize("bad", [False, True], ids=["dead letters", "a bad frame"])
def test_a_conflict_while_a_part_is_applied_starts_over(bad: bool) -> None:
    """With another writer of the table.

    Fails when it counts as an unexpected error: the stream is held though a retry succeeds.
    """
    channel = memory_channel()
    log = StreamLog(channel, STREAM)
    published = publish(log, 1, 2, 3, 4)
    target = RefusingTarget(channel, 3, **({} if bad else {f"epoch{n}": 2 for n in range(1, 5)}))
    if bad:
        channel.trim_frames(STREAM, [published[2].frames[0].path])
    target.before_write = [conflict]
    assert applied(target, log) == ((2, 3) if bad else (4, None))
    assert [n for numbers in target.written for n in numbers] == ([1, 2] if bad else [1, 2, 3, 4])
    assert target.open_work == 0


def test_an_epoch_that_exceeds_the_maximum_alone_is_held() -> None:
    channel = memory_channel()
    log = StreamLog(channel, STREAM)
    publish(log, 1, 2, 3, 4, 5, 6, 7)
    target = RefusingTarget(channel, 3, epoch1=1, epoch5=4)
    assert applied(target, log) == (4, 5)
    assert [n for numbers in target.written for n in numbers] == [1, 2, 3, 4]
    assert len(target.recorded) == len(target.written)
    ack = log.acks()["seattle"]
    assert (ack.applied, ack.held, ack.cause) == (4, 5, "4 dead letters")
    target.letters[5] = 0  # whatever refused the rows refuses them no more
    assert applied(target, log) == (7, None)
