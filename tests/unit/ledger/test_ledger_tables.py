"""The ledger's tables, with a session that keeps its views in a dict."""

from __future__ import annotations

import re
from types import SimpleNamespace
from typing import Any

import pytest

from spark_wan.delta.sessions import CurrentSession
from spark_wan.errors import LedgerError
from spark_wan.ledger import tables as ledger_tables
from spark_wan.ledger.store import DeltaLedgerStore
from spark_wan.ledger.tables import LedgerTables

SESSION = CurrentSession(SimpleNamespace(range=lambda _: None))
"""One that answers."""


def test_dead_letters_of_two_streams_are_recorded_concurrently() -> None:
    """Streams record concurrently in one session.

    With one view name for all, the second stream's letters are added twice, the first one's not.
    """
    views: dict[str, list[Any]] = {}
    added: list[list[Any]] = []

    def sql(statement: str) -> Any:
        if not added and len(views) == 1:
            tables.merge_dead_letters([{"event_id": "b"}])  # just before the first stream's MERGE
        [view] = re.findall(r"USING (\w+) s", statement)
        added.append(views[view])
        return SimpleNamespace(collect=list)

    def frame(values: list[Any], schema: str) -> Any:
        return SimpleNamespace(createOrReplaceTempView=lambda name: views.update({name: values}))

    session: Any = SimpleNamespace(
        sql=sql,
        createDataFrame=frame,
        catalog=SimpleNamespace(dropTempView=lambda name: views.pop(name)),
    )
    tables = LedgerTables(CurrentSession(session), "/state")
    tables.merge_dead_letters([{"event_id": "a"}])
    assert [[value for value in row if value in ("a", "b")] for rows in added for row in rows] == [
        ["b"],
        ["a"],
    ]
    assert views == {}


class ProtocolChangedException(Exception):
    """Named like delta-spark's: the class name tells the error."""


def test_a_table_created_by_another_receiver_at_the_same_moment_is_used(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Fails when Delta's conflict ends the slower of two receivers that start at a new site."""
    made: set[str] = set()
    monkeypatch.setattr(ledger_tables, "table_exists", lambda _, location: location in made)

    def save(location: str) -> None:
        if not location.startswith("/lost"):
            made.add(location)
        raise ProtocolChangedException("an empty directory")

    saver = SimpleNamespace(save=save)
    writer = SimpleNamespace(mode=lambda _: SimpleNamespace(options=lambda **_: saver))
    frame = SimpleNamespace(write=SimpleNamespace(format=lambda _: writer))
    session: Any = SimpleNamespace(createDataFrame=lambda *_: frame)

    def load(_: object, location: str) -> Any:
        columns = ledger_tables.SCHEMAS[location.rpartition("/")[2]].split(", ")
        return SimpleNamespace(columns=[column.split()[0] for column in columns])

    monkeypatch.setattr(ledger_tables, "load", load)
    LedgerTables(CurrentSession(session), "/state").ensure()
    assert len(made) == len(ledger_tables.SCHEMAS)
    with pytest.raises(ProtocolChangedException):
        LedgerTables(CurrentSession(session), "/lost").ensure()


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (
            "[DELTA_PATH_DOES_NOT_EXIST] file:/lake/seattle/_wan/ledger/event_ids doesn't exist",
            True,
        ),
        ("[FAILED_READ_FILE] file:/lake/seattle/_wan/ledger/applied/part-0.parquet", True),
        ("[FAILED_READ_FILE] file:/lake/seattle/clicks/part-0.parquet", False),
        ("[FAILED_READ_FILE] file:/lake/ledger/event_ids_2/part-0.parquet", False),
    ],
)
def test_an_error_that_names_the_ledger_is_recognised(text: str, told: bool) -> None:
    """Also when a whole table is missing.

    Fails when only its files count: the target would be reported as missing.
    """
    tables = LedgerTables(SESSION, "/lake/seattle/_wan")
    assert tables.is_named_in(ValueError(text)) is told


def test_an_error_while_the_ledger_is_read_is_a_ledger_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Delta's errors do not always name the table.

    Fails when the error is raised as it is: it would be reported for the target.
    """

    def load(*_: object) -> None:
        raise ValueError(
            "[DELTA_VERSIONS_NOT_CONTIGUOUS] Versions (Vector(0, 2)) are not contiguous"
        )

    monkeypatch.setattr(ledger_tables, "load", load)
    with pytest.raises(
        LedgerError,
        match=r"ledger at /lake/_wan/ledger/ cannot be read.*stop this site's receivers",
    ):
        LedgerTables(SESSION, "/lake/_wan").read("event_ids")


@pytest.mark.parametrize(
    ("version", "error"),
    [
        (1, "/lake/_wan/ledger/applied has a mark that cannot be read.*Update spark_wan"),
        (3, "has rows of version 3; this spark_wan reads versions up to 2. Update spark_wan"),
    ],
)
def test_an_unreadable_mark_in_the_ledger_is_reported(
    monkeypatch: pytest.MonkeyPatch, version: int, error: str
) -> None:
    """So are rows of a newer version, before their marks are read."""
    tables = LedgerTables(SESSION, "/lake/_wan")
    row = {
        "version": version,
        "target_id": "target-1",
        "target_version": 3,
        "mark": '{"site": "seattle"}',
    }
    frame = SimpleNamespace(where=lambda _: SimpleNamespace(collect=lambda: [row]))
    monkeypatch.setattr(tables, "read", lambda _: frame)
    monkeypatch.setattr("pyspark.sql.functions.col", lambda _: "table")
    with pytest.raises(LedgerError, match=error):
        DeltaLedgerStore(tables).load("orders")
