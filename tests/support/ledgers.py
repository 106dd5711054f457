"""What tests of the ledger share: marks of one stream, a target with such commits, a ledger."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

import pytest
from fakes import MANIFEST, STREAM, Clock, LedgerRows, Target, memory_channel

from spark_wan.errors import WanError
from spark_wan.ledger.ledger import Ledger
from spark_wan.ledger.progress import origin_of
from spark_wan.wire.mark import AppliedStream, Mark

APPLIED = AppliedStream(
    origin="newark",
    table_id=MANIFEST.table_id,
    selection="all",
    through=9,
    stream=STREAM,
    log_id=MANIFEST.log_id,
    epoch=1,
    fingerprint=MANIFEST.fingerprint,
    ids=False,
)
MARK = Mark(
    site="seattle",
    table="orders",
    apply=1,
    token="t1",
    applied=(APPLIED,),
)
ORIGIN = origin_of(MANIFEST)
PLACE = (STREAM, MANIFEST.log_id)


def mark(apply: int, **changes: Any) -> Mark:
    """Mark of apply n, through epoch n and version 10 n - 1, unless changed.

    Changes of one field may be of the mark or of the stream that it applied.
    """
    own = {each.name for each in fields(Mark)}
    part = {name: value for name, value in changes.items() if name not in own}
    applied = replace(APPLIED, **{"through": 10 * apply - 1, "epoch": apply, **part})
    changes = {name: value for name, value in changes.items() if name in own}
    return replace(MARK, **{"apply": apply, "token": f"t{apply}", "applied": (applied,), **changes})


def target(*marks: Mark) -> Target:
    """A target with a marked commit for each mark."""
    made = Target(memory_channel())
    for each in marks:
        made.put(each.user_metadata(), "MERGE")
    return made


def ledger(store: LedgerRows | None = None, **more: Any) -> Ledger:
    """The ledger as a new process loads it."""
    return Ledger(
        "seattle",
        "orders",
        store if store is not None else LedgerRows(),
        **{"clock": Clock(), **more},
    )


def held(found: Ledger, table: Target, error: type[WanError], match: str) -> None:
    """Assert that the ledger refuses the table: now, again, and after a restart."""
    for each in (found, found, ledger(found.store)):  # type: ignore[arg-type]
        with pytest.raises(error, match=match):
            each.catch_up(table)


def of_earlier_version(table: Target, store: LedgerRows) -> None:
    """Make the marks of a target and its ledger such as an earlier spark_wan would have written."""
    fields: dict[str, Any] = {"vector": None, "logs": None, "local": None}
    for place, each in enumerate(table.commits):
        found = Mark.read(each.user_metadata, "seattle", "orders")
        if found is not None:
            text = replace(found, **fields).user_metadata()
            table.commits[place] = replace(each, user_metadata=text)
    store.rows = [replace(row, mark=replace(row.mark, **fields)) for row in store.rows]
