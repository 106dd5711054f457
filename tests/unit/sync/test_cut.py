"""Which versions of a table at two sites have to be equal, and which sites can be compared."""

from __future__ import annotations

import json
from typing import Any

import pytest

from spark_wan.delta.commits import Commit
from spark_wan.errors import CompareError, TopologyError
from spark_wan.sync.cut import compared_sites, compared_table, cut_of
from spark_wan.topology.model import Topology
from spark_wan.topology.parsing import parse_topology
from spark_wan.wire.mark import LOCAL_ONLY, AppliedStream, Mark

ORIGIN, OTHER = "an id", "another id"


@pytest.fixture(scope="module")
def topology() -> Topology:
    """newark writes orders for chicago and denver, and clicks by a sink; alone is at newark."""
    sites = ("newark", "chicago", "denver")
    table: dict[str, Any] = {"keys": ["id"], "writers": ["newark"], "senders": ["east"]}
    everywhere = {site: f"/{site}/t" for site in sites}
    remote = {site: f"/{site}/clicks" for site in sites[1:]}
    return parse_topology(
        {
            "version": 1,
            "sites": {site: {"state": f"/{site}"} for site in (*sites, "boston")},
            "senders": {
                "east": {"site": "newark", "remotes": ["chicago", "denver"], "channel": "/c"}
            },
            "tables": {
                "orders": {**table, "at": everywhere},
                "clicks": {**table, "source": "sink", "at": remote},
            },
        },
        "wan.yaml",
    )


def applied(through: int, table_id: str = ORIGIN, origin: str = "newark") -> AppliedStream:
    names = {"stream": "newark.east.orders", "log_id": "a" * 32, "fingerprint": "f" * 32}
    return AppliedStream(origin, table_id, "all", through, epoch=1, ids=False, **names)


def commit(version: int, operation: str = "WRITE", metadata: str | None = None) -> Commit:
    return Commit(version, 0, operation, {}, {}, metadata)


def marked(
    version: int, through: int, table_id: str = ORIGIN, *, old: bool = False, **changes: Any
) -> Commit:
    vector = None if old else (("newark", table_id, "all", through),)
    fields: dict[str, Any] = {"vector": vector, "logs": () if vector else None, **changes}
    part = applied(through, table_id)
    mark = Mark("chicago", "orders", version, f"token {version}", (part,), **fields)
    return commit(version, "MERGE", mark.user_metadata())


@pytest.mark.parametrize("old", [False, True], ids=["vector", "mark of 0.1.0"])
def test_the_newest_mark_says_which_version_a_site_has(topology: Topology, old: bool) -> None:
    commits = [commit(0, "CREATE TABLE"), marked(1, 3, old=old), marked(2, 7, old=old)]
    cut = cut_of(commits, "chicago", topology.table("orders"), ORIGIN)
    assert (cut.origin_version, cut.target_version, cut.local) == (7, 2, 0)


def test_commits_of_others_after_the_newest_mark_are_compared_and_counted(
    topology: Topology,
) -> None:
    """Fails when the marked version is compared: what a user did since is not found."""
    local = [commit(2), commit(3, "OPTIMIZE"), commit(4, "DELETE", LOCAL_ONLY)]
    cut = cut_of([marked(1, 7), *local], "chicago", topology.table("orders"), ORIGIN)
    assert (cut.origin_version, cut.target_version, cut.local) == (7, 4, 2)


def test_the_vector_of_several_tables_of_the_origin(topology: Topology) -> None:
    vector = (("newark", OTHER, "all", 90), ("newark", ORIGIN, "all", 4))
    cut = cut_of([marked(1, 4, vector=vector)], "chicago", topology.table("orders"), ORIGIN)
    assert cut.origin_version == 4


@pytest.mark.parametrize(
    ("commits", "match"),
    [
        ([commit(0)], "no commit at site chicago says what is applied there"),
        ([marked(3, 7, vector=())], "names nothing that comes from newark"),
        ([marked(3, 7, OTHER)], "has the rows of another table at newark.*another id"),
    ],
    ids=["no mark", "another origin", "another table"],
)
def test_what_has_no_cut(topology: Topology, commits: list[Commit], match: str) -> None:
    with pytest.raises(CompareError, match=match):
        cut_of(commits, "chicago", topology.table("orders"), ORIGIN)


def test_a_mark_of_another_site_or_table_is_none(topology: Topology) -> None:
    content = json.loads(marked(1, 7).user_metadata or "")
    for field, value in (("site", "denver"), ("table", "other")):
        other = {"spark_wan": {**content["spark_wan"], field: value}}
        with pytest.raises(CompareError, match="no commit at site chicago"):
            table = topology.table("orders")
            cut_of([commit(1, "MERGE", json.dumps(other))], "chicago", table, ORIGIN)


def test_all_other_sites_are_compared_or_those_that_are_named(topology: Topology) -> None:
    table = compared_table(topology, "orders")
    assert compared_sites(topology, table, None) == ("chicago", "denver")
    assert compared_sites(topology, table, ["denver", "denver"]) == ("denver",)


@pytest.mark.parametrize(
    ("site", "match"),
    [
        ("chicagoo", "did you mean 'chicago'"),
        ("newark", "site newark writes table orders.*Name other sites: chicago, denver"),
        ("boston", "table orders is not at site boston. It is at: chicago, denver"),
    ],
)
def test_sites_that_cannot_be_compared(topology: Topology, site: str, match: str) -> None:
    table = compared_table(topology, "orders")
    with pytest.raises(TopologyError, match=match):
        compared_sites(topology, table, ["chicago", site])


def test_a_table_of_a_sink_cannot_be_compared(topology: Topology) -> None:
    with pytest.raises(CompareError, match=r"clicks is written by a sink.*cannot be verified yet"):
        compared_table(topology, "clicks")
