"""What a site could not apply or send is read without Spark."""

from __future__ import annotations

import datetime
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake

import spark_wan
from spark_wan.errors import LedgerError, TopologyError
from spark_wan.events.dead_letters import row_payloads
from spark_wan.topology.model import Topology
from spark_wan.topology.parsing import parse_topology
from spark_wan.wire.ledger import DeadLetter, range_token

ROW = pa.RecordBatch.from_pydict(
    {
        "id": [5],
        "at": pa.array([datetime.datetime(2024, 5, 6, 7)], pa.timestamp("us", "UTC")),
        "day": pa.array([-800_000], pa.date32()),
        "tags": [["a", None]],
    }
)
VALUES = {
    "id": 5,
    "at": datetime.datetime(2024, 5, 6, 7, tzinfo=datetime.timezone.utc),
    "day": "-0221-09-04",
    "tags": ["a", None],
}
PLACE = ("newark.east.orders", "e", 7, "put", '{"id":5}', "null_in_key", '{"id": 5}')
SENT = DeadLetter("sender", "orders", *PLACE, row_payloads(ROW)[0])
APPLIED = replace(SENT, side="receiver", origin_version=8, token="t1")
_NUMBERS = ("origin_version", "payload", "at")
SCHEMA = pa.schema(
    [(name, pa.string()) for name in asdict(SENT) if name not in _NUMBERS]
    + [("version", pa.int32()), ("origin_version", pa.int64()), ("payload", pa.binary())]
    + [("at", pa.int64())]
)


@pytest.fixture
def topology(tmp_path: Path) -> Topology:
    return parse_topology(
        {
            "version": 1,
            "sites": {"newark": {"state": "./newark"}, "seattle": {"state": "./seattle"}},
            "senders": {"east": {"site": "newark", "remotes": ["seattle"], "channel": "./c"}},
            "tables": {
                name: {
                    "keys": ["id"],
                    "writers": ["newark"],
                    "senders": ["east"],
                    "at": {"newark": f"./n/{name}", "seattle": f"./s/{name}"},
                }
                for name in ("orders", "cities")
            },
        },
        str(tmp_path / "wan.yaml"),
    )


def write(topology: Topology, *letters: DeadLetter, tokens: tuple[str, ...], **more: Any) -> None:
    ledger = Path(topology.site("seattle").state) / "ledger"
    rows = [{**asdict(each), "version": 1, **more} for each in letters]
    schema = pa.schema([*SCHEMA, *((name, pa.string()) for name in more if name != "version")])
    write_deltalake(ledger / "dead_letters", pa.Table.from_pylist(rows, schema))
    applied = [(token, name) for name in ("orders", "cities") for token in (*tokens, None)]
    columns = [pa.array(each, pa.string()) for each in zip(*applied, strict=True)]
    write_deltalake(ledger / "applied", pa.table(columns, ["token", "table"]))


def test_letters_of_both_ends_are_read_with_their_rows(topology: Topology) -> None:
    """Of an apply that was not finished, none is. A later version may have added columns."""
    folded = replace(APPLIED, origin_version=9, token=range_token(1, 5))
    unfinished = replace(APPLIED, token="t2")
    other = replace(SENT, table="cities", payload=None)
    write(topology, folded, unfinished, APPLIED, SENT, other, tokens=("t1",), later="x")
    found = spark_wan.dead_letters(topology, "seattle")
    assert found == [other, SENT, APPLIED, folded]
    assert [letter.values for letter in found] == [None, VALUES, VALUES, VALUES]
    assert spark_wan.dead_letters(topology, "seattle", "cities") == [other]


def test_f42_a_ledger_of_an_earlier_version_has_fewer_columns(topology: Topology) -> None:
    """Until a job of the new version adds them. Fails when the command is of no use until then."""
    write(topology, SENT, tokens=())
    ledger = Path(topology.site("seattle").state) / "ledger/dead_letters"
    schema = SCHEMA.remove(SCHEMA.get_field_index("at"))
    rows = [{**asdict(SENT), "version": 1}]
    write_deltalake(
        ledger, pa.Table.from_pylist(rows, schema), mode="overwrite", schema_mode="overwrite"
    )
    assert spark_wan.dead_letters(topology, "seattle") == [SENT]


def test_newer_rows_of_another_table_disturb_nobody(topology: Topology) -> None:
    write(topology, SENT, tokens=())
    rows = [{**asdict(replace(SENT, table="cities")), "version": 2}]
    folder = Path(topology.site("seattle").state) / "ledger/dead_letters"
    write_deltalake(folder, pa.Table.from_pylist(rows, SCHEMA), mode="append")
    assert spark_wan.dead_letters(topology, "seattle", "orders") == [SENT]
    with pytest.raises(LedgerError, match="rows of version 2"):
        spark_wan.dead_letters(topology, "seattle")


def test_a_site_without_a_ledger_has_no_dead_letters(topology: Topology) -> None:
    assert spark_wan.dead_letters(topology, "newark") == []


def test_what_cannot_be_read_is_an_error(topology: Topology) -> None:
    write(topology, SENT, tokens=(), version=2)
    with pytest.raises(LedgerError, match=r"dead_letters has rows of version 2.*Update"):
        spark_wan.dead_letters(topology, "seattle")
    for log in (Path(topology.site("seattle").state) / "ledger/applied/_delta_log").iterdir():
        log.write_text("{")
    with pytest.raises(LedgerError, match="ledger/applied cannot be read"):
        spark_wan.dead_letters(topology, "seattle")
    for site, table in (("boston", None), ("newark", "order")):
        with pytest.raises(TopologyError):
            spark_wan.dead_letters(topology, site, table)
