"""Dates and times at the edges of calendars, replicated and compared to the bit."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import cycle
from pathlib import Path
from typing import Any

import exact
import pyarrow as pa
import pyarrow.parquet as pq
from pair import Pair
from sites import NEWARK, SEATTLE

ZONE = "spark.sql.session.timeZone"
OLD_FILES = {
    "spark.sql.parquet.datetimeRebaseModeInWrite": "LEGACY",
    "spark.sql.parquet.int96RebaseModeInWrite": "LEGACY",
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MILLIS",
}
"""With these, Spark writes files as its versions before 3 did: other dates, and milliseconds."""


@contextmanager
def having(spark: Any, values: Mapping[str, str]) -> Iterator[None]:
    """Change settings of a session for a while."""
    before = {name: spark.conf.get(name) for name in values}
    for name, value in values.items():
        spark.conf.set(name, value)
    try:
        yield
    finally:
        for name, value in before.items():
            spark.conf.set(name, value)


def merge(
    spark: Any, pair: Pair, table: str, rows: pa.Table, on: str, deleted: Sequence[int] = ()
) -> None:
    """Merge in one commit: matching rows are updated, or deleted when ``on`` is in ``deleted``; the
    others are inserted.
    """
    file = pair.folder / f"{table}-{len(list(pair.folder.glob('*.parquet')))}.parquet"
    pq.write_table(rows, file)
    delete_clause = (
        f"WHEN MATCHED AND t.{on} IN ({', '.join(map(str, deleted))}) THEN DELETE "
        if deleted
        else ""
    )
    pair.sql(
        spark,
        table,
        f"MERGE INTO {{t}} t USING parquet.`{file}` s ON t.{on} = s.{on} {delete_clause}"
        "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *",
    )


def assert_exact(
    pair: Pair, table: str, expected: pa.Table, chars: Mapping[str, int] | None = None
) -> None:
    """Check that both sites have the expected rows, to the bit, as deltalake and pyarrow read
    them. Only ``chars`` may be stored with or without padding.
    """

    def rows(table: pa.Table) -> dict[Any, dict[str, Any]]:
        for name, length in (chars or {}).items():
            texts = pa.array([text.ljust(length) for text in table[name].to_pylist()])
            table = table.set_column(table.schema.get_field_index(name), name, texts)
        return exact.rows(table, "id")

    expected_rows = rows(expected)
    for site in (NEWARK, SEATTLE):
        arrived = rows(exact.read(pair.path(table, site)))
        assert sorted(arrived) == sorted(expected_rows), f"{table} at {site}"
        for number, row in expected_rows.items():
            different = {
                name: (value, arrived[number][name])
                for name, value in row.items()
                if arrived[number][name] != value
            }
            assert not different, f"{table} at {site}, row {number}: {different}"


_MORE = pa.list_(pa.struct([("at", exact.INSTANT)]))
DATES = pa.schema(
    {
        "id": pa.int64(),
        **{"day": exact.DATE, "at": exact.INSTANT, "wall": exact.WALL},
        **{"a_day": exact.DATE, "an_at": exact.INSTANT, "a_wall": exact.WALL},
        **{"days": pa.list_(exact.DATE), "ats": pa.list_(exact.INSTANT)},
        "by_day": pa.map_(exact.DATE, exact.INSTANT),
        "by_at": pa.map_(exact.INSTANT, pa.list_(exact.DATE)),
        "record": pa.struct([("day", exact.DATE), ("more", _MORE)]),
    }
)


def dated(number: int, day: int, moment: int, key: tuple[int, int, int]) -> dict[str, Any]:
    beside, later = day + 1, moment + 1
    return {
        "id": number,
        **dict(zip(("day", "at", "wall"), key, strict=True)),
        **{"a_day": day, "an_at": moment, "a_wall": moment},
        **{"days": [day, None, beside], "ats": [moment, later]},
        **{"by_day": [(day, moment), (beside, None)], "by_at": [(moment, [day]), (later, [])]},
        "record": {"day": day, "more": [{"at": moment}, None]},
    }


def carry_dates(spark: Any, folder: Path, zones: Sequence[str]) -> int:
    """Replicate dates and times, one epoch under each time zone of the sender, and check them;
    return the number of rows at the end.
    """
    pair = Pair.of(folder, {"dates": {"keys": ["day", "at", "wall"]}})
    pair.make(
        spark, "dates", ", ".join(f"{field.name} {exact.name(field.type)}" for field in DATES)
    )
    places = [(day, 0, 0) for day in exact.DAYS if day]
    places += [(0, moment, 0) for moment in dict.fromkeys(exact.MOMENTS) if moment]
    places += [(0, 0, moment) for moment in dict.fromkeys(exact.MOMENTS) if moment]
    values = zip(cycle(exact.DAYS), cycle(exact.MOMENTS), strict=True)
    state = {
        number: dated(number, day, moment, key)
        for number, (key, (day, moment)) in enumerate(zip(places, values, strict=False))
    }
    apart = max(exact.DAYS) + 10

    def commit(changed: list[dict[str, Any]], deleted: Sequence[int] = ()) -> None:
        merge(spark, pair, "dates", pa.Table.from_pylist(changed, schema=DATES), "id", deleted)

    later = [state.pop(number) for number in list(state) if number % 3 == 2]
    commit(list(state.values()))
    pair.replicate(spark)
    assert_exact(pair, "dates", pa.Table.from_pylist(list(state.values()), schema=DATES))
    for turn, zone in enumerate(zones):
        inserted = later[turn :: len(zones)]
        chosen = [number for number in state if number % len(zones) == turn]
        deleted, moved, updated = chosen[::3], chosen[1::3], chosen[2::3]
        state.update((row["id"], row) for row in inserted)
        for number in updated:
            row = state[number]
            state[number] = dated(
                number, row["a_day"] + 1, row["an_at"] - 1, (row["day"], row["at"], row["wall"])
            )
        for number in moved:
            day, at, wall = (state[number][name] for name in ("day", "at", "wall"))
            key = (day, at, wall + apart * exact.DAY) if day else (day + number + apart, at, wall)
            state[number] = {**state[number], **dict(zip(("day", "at", "wall"), key, strict=True))}
        with having(spark, {ZONE: zone}):
            commit([state[row] for row in (*updated, *moved, *deleted)] + inserted, deleted)
            (status,) = pair.send(spark)
            assert (status.held, status.dead_letters) == (None, 0)
        for number in deleted:
            del state[number]
        with having(spark, {ZONE: zones[turn - 1], **(OLD_FILES if turn % 2 else {})}):
            pair.apply(spark)
        assert_exact(pair, "dates", pa.Table.from_pylist(list(state.values()), schema=DATES))
    return len(state)
