"""Every setting of Spark SQL and Delta, changed in the user's session or in the application: rows
of every type arrive as they are. Those that a job takes over are changed, too.

What a setting accepts is asked of Spark: each is set to a value that no setting has, and the error
names the type or the options.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import exact
import pyarrow as pa
import pytest
from dates import assert_exact, merge
from deltalake import DeltaTable
from pair import Pair
from sites import NEWARK, SEATTLE

from spark_wan import Receiver, Sender
from spark_wan.errors import WanError
from spark_wan.ledger.tables import LOG_RETENTION
from spark_wan.wire.ledger import SCHEMAS

ROWS, EXAMPLES = 30, 12
"""Rows that each turn adds; different values of each column, which the rows take in turn."""
TURNS = 3
"""As many as let most settings have each of their values."""
PROPERTIES = {
    "appendOnly": "true",
    "checkpointPolicy": "v2",
    "columnMapping.mode": "name",
    "dataSkippingNumIndexedCols": "0",
    "enableChangeDataFeed": "true",
    "enableDeletionVectors": "true",
    "enableInCommitTimestamps": "true",
    "enableRowTracking": "true",
    "enableTypeWidening": "true",
    "minReaderVersion": "3",
    "minWriterVersion": "7",
    "randomizeFilePrefixes": "true",
}
"""Defaults of properties of tables, which no list of Delta's settings has."""
OF_A_WRITE = {
    "spark.databricks.delta.commitInfo.userMetadata": "the user's",
    "spark.databricks.delta.write.txnAppId": "the user's",
    "spark.databricks.delta.write.txnVersion": "1000000",
}
UNAVAILABLE = {"and", "brotli", "hive", "lzo"}
"""Options that need more than Spark."""
OPTIONS = re.compile(r"(?:one of:?|[Vv]alid values are) (.*?)\.? SQLSTATE")


def entries(spark: Any) -> dict[str, str]:
    """Return all settings of Spark SQL and of Delta that a session can change, with defaults."""
    jvm = spark._jvm.org.apache.spark.sql
    getattr(getattr(jvm.delta.sources, "DeltaSQLConf$"), "MODULE$")  # registers Delta's
    found = {}
    listed = getattr(getattr(jvm.internal, "SQLConf$"), "MODULE$").getConfigEntries().iterator()
    while listed.hasNext():
        entry = listed.next()
        found[entry.key()] = entry.defaultValueString()
    return found


def other_values(probe: Any, name: str, default: str) -> list[str]:
    """Return values of a setting other than its default, by what Spark says of a wrong one."""
    try:
        probe.conf.set(name, "?!")
    except Exception as error:
        text = str(error).partition("\n")[0]
    else:
        probe.conf.unset(name)  # any text: the name of a class, a path, a format
        return []
    if "STATIC" in text:
        return []
    if "TIME_ZONE" in text:
        return ["America/New_York", "Africa/Monrovia"]
    if "a/an 'boolean'" in text:
        return ["false" if default == "true" else "true"]
    if options := OPTIONS.search(text):
        words = re.findall(r"[\w-]+", options[1])
        return [each for each in words if each not in UNAVAILABLE and each != default]
    number = re.fullmatch(r"(\d+)(\D*)", default)
    candidates = ["3", "1", "0.5"]  # not 0: whoever sets it has no queries that run
    if number:
        size, unit = int(number[1]), number[2]
        candidates = [f"{each}{unit}" for each in (2 * size + 1, max(1, size // 2))]
    accepted = []
    for value in candidates:
        with suppress(Exception):
            probe.conf.set(name, value)
            accepted.append(value)
    probe.conf.unset(name)
    return accepted


def changes(spark: Any, turn: int) -> dict[str, str]:
    """Return another value of each setting; a later turn has other ones where there are several."""
    probe = spark.newSession()
    found = dict(OF_A_WRITE)
    for name, default in entries(spark).items():
        if values := other_values(probe, name, default):
            found[name] = values[turn % len(values)]
    defaults = "spark.databricks.delta.properties.defaults."
    return {**found, **{f"{defaults}{name}": value for name, value in PROPERTIES.items()}}


@contextmanager
def of_the_application(spark: Any, values: Mapping[str, str]) -> Iterator[None]:
    """Give every new session other settings, as ``spark-defaults.conf`` does."""
    conf = spark.sparkContext._jsc.sc().conf()
    before = {name: conf.get(name) for name in values if conf.contains(name)}
    for name, value in values.items():
        conf.set(name, value)
    try:
        yield
    finally:
        for name in values:
            conf.remove(name)
        for name, value in before.items():
            conf.set(name, value)


class Rows:
    """Rows of every type in a table with keys and in one without, and what happens to them."""

    def __init__(self, pair: Pair, spark: Any) -> None:
        self.pair, self.spark = pair, spark
        kinds = [*exact.LEAVES, *exact.generated(exact.types(), 6)]
        fields = [("id", pa.int64()), *((f"c{n}", kind) for n, kind in enumerate(kinds))]
        self.schema = pa.schema(fields)
        self.drawn = {
            name: [None, *exact.generated(exact.values(kind), EXAMPLES)]
            for name, kind in fields[1:]
        }
        self.keyed: dict[int, dict[str, Any]] = {}
        self.keyless: dict[int, dict[str, Any]] = {}
        self.turn = 0
        columns = ", ".join(f"{name} {exact.name(kind)}" for name, kind in fields)
        for table in ("keyed", "keyless"):
            pair.make(spark, table, columns)

    def row(self, number: int) -> dict[str, Any]:
        drawn = self.drawn.items()
        places = range(number + self.turn, number + self.turn + 7 * len(drawn), 7)
        values = {name: each[n % len(each)] for n, (name, each) in zip(places, drawn, strict=True)}
        return {"id": number, **values}

    def change(self) -> None:
        """Insert into both tables; update and delete rows of the one with keys."""
        self.turn += 1
        new = {n: self.row(n) for n in range(ROWS * self.turn, ROWS * (self.turn + 1))}
        deleted = [n for n in self.keyed if n % 5 == self.turn]
        self.keyed |= {n: self.row(n) for n in self.keyed if n % 3 == 0} | new
        self.keyless |= new
        merge(self.spark, self.pair, "keyed", self.table(self.keyed), "id", deleted)
        merge(self.spark, self.pair, "keyless", self.table(new), "id")
        for number in deleted:
            del self.keyed[number]

    def table(self, rows: Mapping[int, Mapping[str, Any]]) -> pa.Table:
        return pa.Table.from_pylist([dict(row) for row in rows.values()], self.schema)

    def replicate(self, session: Any) -> None:
        """In sessions of their own, as jobs do."""
        topology = self.pair.topology
        Sender(session, topology, NEWARK).start(available_now=True).await_termination()
        Receiver(session, topology, SEATTLE).start(available_now=True).await_termination()

    def assert_equal(self) -> None:
        """And that the ledger has each apply, in tables that can be folded."""
        assert_exact(self.pair, "keyed", self.table(self.keyed))
        assert_exact(self.pair, "keyless", self.table(self.keyless))
        ledger = self.pair.folder / SEATTLE / "_wan" / "ledger"
        applied = self.pair.table("_wan/ledger/applied", SEATTLE, ["table"])["table"].to_pylist()
        assert Counter(applied) == {"keyed": self.turn, "keyless": self.turn}
        for name in SCHEMAS:
            assert DeltaTable(ledger / name).metadata().configuration == LOG_RETENTION


@pytest.fixture(scope="module")
def rows(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> Rows:
    tables = {"keyed": {}, "keyless": {"keys": []}}
    return Rows(Pair.of(tmp_path_factory.mktemp("settings") / "wan", tables), spark)


@pytest.mark.parametrize("turn", range(TURNS))
def test_no_setting_of_the_users_session_decides_what_arrives(
    spark: Any, rows: Rows, turn: int
) -> None:
    """All of them at once. Fails when a job takes over a setting that changes values."""
    user = spark.newSession()
    for name, value in changes(spark, turn).items():
        with suppress(Exception):  # two may exclude each other
            user.conf.set(name, value)
    rows.change()
    rows.replicate(user)
    rows.assert_equal()


@pytest.mark.parametrize("turn", range(TURNS))
def test_no_setting_of_the_application_decides_what_arrives(
    spark: Any, rows: Rows, turn: int
) -> None:
    """Fails when a session of a job has what is not taken over, since each new session has it."""
    rows.change()
    with of_the_application(spark, changes(spark, turn)):
        rows.replicate(spark)
    rows.assert_equal()


IGNORE = ("spark.sql.files.ignoreMissingFiles", "spark.sql.files.ignoreCorruptFiles")


@pytest.mark.parametrize("published", [False, True], ids=["snapshot", "commits"])
@pytest.mark.parametrize("damage", ["missing", "corrupt"])
def test_files_that_are_gone_or_damaged_are_not_left_out(
    spark: Any, tmp_path: Path, damage: str, published: bool
) -> None:
    """Of a first snapshot, and of commits that are not sent yet. Fails (their rows never arrive,
    and the stream goes on) when the user's settings to ignore them reach the capture."""
    user = spark.newSession()
    for name in IGNORE:
        user.conf.set(name, "true")
    pair = Pair.of(tmp_path / "wan", {"orders": {}})
    pair.make(spark, "orders", "id bigint, item string")
    if published:
        pair.sql(spark, "orders", "INSERT INTO {t} VALUES (1, 'pear')")
        pair.replicate(spark)
    known = set(pair.path("orders").rglob("*.parquet"))
    pair.sql(spark, "orders", "INSERT INTO {t} VALUES (10, 'plum'), (11, 'fig')")
    file = min(set(pair.path("orders").rglob("*.parquet")) - known)
    kept = file.read_bytes()
    file.with_name(f".{file.name}.crc").unlink()
    file.write_bytes(kept[: len(kept) // 2])
    if damage == "missing":
        file.unlink()
    before = pair.numbers("orders")
    with pytest.raises(WanError, match=r"VACUUM or log cleanup|cannot be read now"):
        Sender(user, pair.topology, NEWARK).start(available_now=True).await_termination()
    assert pair.numbers("orders") == before
    file.write_bytes(kept)
    pair.replicate(user)
    pair.assert_same(spark, "orders")
