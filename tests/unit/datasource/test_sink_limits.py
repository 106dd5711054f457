"""How many rows an epoch of a user stream may have, and how doubled IDs and keys are found among
them."""

from __future__ import annotations

import numpy as np
import pytest
from event_sink import Sink, randomly, row
from hypothesis import given
from hypothesis import strategies as st

from spark_wan.datasource.events import count_duplicates
from spark_wan.datasource.options import SinkOptions
from spark_wan.errors import EventError, OptionError


def test_a_task_with_too_many_rows_is_refused_before_it_writes_them_all() -> None:
    """The driver would run out of checkpoint over the hashes of its IDs and keys."""
    sink = Sink(max_rows=3)
    with pytest.raises(
        EventError,
        match=r"one epoch has 4 rows or more; maxRows allows 3\. Nothing of it was sent\. "
        "Write less at a time",
    ):
        sink.task(*(row(f"e{n}", n) for n in range(4)), batches=2)
    assert sink.commit([sink.task(*(row(f"e{n}", n) for n in range(3)))]) is not None


def test_tasks_with_too_many_rows_together_are_refused() -> None:
    sink = Sink(max_rows=3)
    parts = [sink.task(row("e1", 1), row("e2", 2)), sink.task(row("e3", 3), row("e4", 4))]
    with pytest.raises(EventError, match=r"one epoch has 4 rows or more; maxRows allows 3\."):
        sink.commit(parts)
    assert sink.log.since(0) == []


def test_f19_an_event_that_cannot_fit_is_refused_with_its_id() -> None:
    """Whoever writes the query has to decide: nothing of the micro-batch is sent."""
    sink = Sink(batch_bytes=1_000, max_frame_bytes=10_000)
    with pytest.raises(
        EventError,
        match=r"the event e2 is too large: 20,\d{3} bytes; max_frame_bytes is 10,000 at the "
        r"sender\. Nothing was sent\. .* raise max_frame_bytes of the receiving sites, then max",
    ):
        sink.task(row("e1", 1), row("e2", 2, "x" * 20_000))
    assert sink.log.since(0) == []


def test_a_replay_of_an_appended_epoch_ignores_the_limit_of_rows() -> None:
    sink = Sink()
    rows = [row(f"e{n}", n) for n in range(4)]
    first = sink.write(*rows)
    parts = [sink.task(*rows[:2]), sink.task(*rows[2:])]
    sink.options = Sink(max_rows=3).options
    assert sink.commit(parts) == first


def test_maxrows_is_a_number_of_rows() -> None:
    options = {
        "channel": "/c",
        "site": "a",
        "remotes": "b",
        "table": "t",
        "key": "id",
        "eventId": "e",
    }
    assert SinkOptions.parse(options).max_rows == 10_000_000
    assert SinkOptions.parse({**options, "maxRows": "50000000"}).max_rows == 50_000_000
    for invalid in ("0", "-1", "many", "1.5"):
        with pytest.raises(OptionError, match="option maxRows"):
            SinkOptions.parse({**options, "maxRows": invalid})


PAIRS = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), max_size=12)


@randomly
@given(st.lists(PAIRS, max_size=4))
def test_duplicate_hashes_are_counted_over_all_tasks(parts: list[list[tuple[int, int]]]) -> None:
    """Also where hashes agree in one half only."""
    every = [pair for part in parts for pair in part]
    assert count_duplicates([np.array(part, "u8").tobytes() for part in parts]) == len(every) - len(
        set(every)
    )
