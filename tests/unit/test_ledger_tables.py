"""The ledger's tables, with a session that keeps its views in a dict."""

from __future__ import annotations

import re
from types import SimpleNamespace
from typing import Any

import pytest

from spark_wan import ledger_tables
from spark_wan.ledger_tables import LedgerTables


def test_dead_letters_of_two_streams_do_not_take_each_others_place() -> None:
    """Streams record at the same time, in one session. With a view of one name for all, the second stream's letters are added twice, and
    the first one's not at all."""
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
        sql=sql, createDataFrame=frame, catalog=SimpleNamespace(dropTempView=lambda name: views.pop(name))
    )
    tables = LedgerTables(session, "/state")
    tables.merge_dead_letters([{"event_id": "a"}])
    assert [[value for value in row if value in ("a", "b")] for rows in added for row in rows] == [["b"], ["a"]]
    assert views == {}


class ProtocolChangedException(Exception):
    """As delta-spark names it: told by its class."""


def test_a_table_that_another_receiver_makes_at_the_same_moment_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fails when the slower of two receivers that begin together at a new site ends with Delta's conflict."""
    made: set[str] = set()
    monkeypatch.setattr(ledger_tables, "table_id", lambda _, location: "id" if location in made else None)

    def save(location: str) -> None:
        if not location.startswith("/lost"):
            made.add(location)
        raise ProtocolChangedException("an empty directory")

    writer = SimpleNamespace(mode=lambda _: SimpleNamespace(save=save))
    frame = SimpleNamespace(write=SimpleNamespace(format=lambda _: writer))
    session: Any = SimpleNamespace(createDataFrame=lambda *_: frame)
    LedgerTables(session, "/state").ensure()
    assert len(made) == len(ledger_tables.SCHEMAS)
    with pytest.raises(ProtocolChangedException):
        LedgerTables(session, "/lost").ensure()
