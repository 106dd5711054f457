"""The ledger's tables, with a session that keeps its views in a dict."""

from __future__ import annotations

import re
from types import SimpleNamespace
from typing import Any

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
