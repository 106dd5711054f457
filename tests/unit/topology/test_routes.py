"""Supported topologies: exactly those in which each site that has a table gets each event once.

The verdict about random graphs is compared with a simulation that knows nothing of routes: sites
with inboxes, which pass events on by the rule of the manifests.
"""

from __future__ import annotations

import random
from collections import Counter, deque
from typing import Any

import pytest

from spark_wan.errors import TopologyError
from spark_wan.topology.model import Topology
from spark_wan.topology.parsing import parse_topology
from spark_wan.topology.routes import reached, streams_of

GRAPHS = 10_000


def topology_of(edges: dict[str, list[list[str]]], **table: Any) -> dict[str, Any]:
    """The topology with a sender for each list of remotes. The first site writes the table."""
    sites = list(edges)
    senders = {
        f"{site}{number}": {"site": site, "remotes": remotes, "channel": f"./{site}{number}"}
        for site, all_remotes in edges.items()
        for number, remotes in enumerate(all_remotes)
    }
    return {
        "version": 1,
        "sites": {site: {"state": f"./{site}/_wan"} for site in sites},
        "senders": senders,
        "tables": {
            "t": {
                "keys": ["k"],
                "writers": [sites[0]],
                "senders": list(senders),
                "at": {site: f"./{site}/t" for site in sites},
                **table,
            }
        },
    }


def arrivals(edges: dict[str, list[list[str]]], writer: str, most: int = 50) -> Counter[str]:
    """How often each site gets one event."""
    found: Counter[str] = Counter()
    everything = {site: {r for remotes in edges[site] for r in remotes} for site in edges}
    inbox = deque([(writer, frozenset[str]())])
    while inbox and found.total() < most:
        site, sent_to = inbox.popleft()
        for remotes in edges[site]:
            for remote in remotes:
                if remote != writer and remote not in sent_to:
                    found[remote] += 1
                    inbox.append((remote, sent_to | everything[site]))
    return found


def random_graph(choose: random.Random) -> dict[str, list[list[str]]]:
    sites = "abcdefg"[: choose.randint(2, 7)]
    dense = choose.random() ** 2
    edges: dict[str, list[list[str]]] = {}
    for site in sites:
        remotes = [each for each in sites if each != site and choose.random() < dense]
        choose.shuffle(remotes)
        cut = choose.randint(0, len(remotes))
        edges[site] = [part for part in (remotes[:cut], remotes[cut:]) if part]
    if not any(edges.values()):
        edges[sites[0]] = [[sites[1]]]
    return edges


def ways(topology: Topology) -> Counter[str]:
    """How often each site gets one event, by the streams of the topology."""
    streams = streams_of(topology, topology.table("t"))
    return Counter(site for stream in streams for site in stream.addressees)


def test_the_verdict_is_that_of_a_simulation() -> None:
    """Also of trees with a few edges more, since few random graphs are supported."""
    accepted = 0
    for seed in range(GRAPHS):
        choose = random.Random(seed)
        edges = random_graph(choose)
        if seed % 2:
            sites = list(edges)
            edges = {site: [] for site in sites}
            for place, site in enumerate(sites[1:], 1):
                edges[choose.choice(sites[:place])].append([site])
            if choose.random() < 0.5:
                start, end = choose.sample(sites, 2)
                edges[start].append([end])
        found = arrivals(edges, next(iter(edges)))
        expected = all(found[site] == 1 for site in list(edges)[1:])
        try:
            topology = parse_topology(topology_of(edges), "wan.yaml")
        except TopologyError as error:
            assert not expected, f"seed {seed}: {edges}: {error}"
            assert "would get every event twice" in str(error) or "would never get" in str(error)
        else:
            assert expected, f"seed {seed}: {edges}"
            accepted += 1
            assert ways(topology) == found, f"seed {seed}: {edges}"
    assert 1_000 < accepted < GRAPHS - 1_000


SUPPORTED = {
    "pair": {"a": [["b"]], "b": [["a"]]},
    "star": {"a": [["b", "c"], ["d"]], "b": [["a"]], "c": [["a"]], "d": [["a"]]},
    "star, written at a ray": {"b": [["a"]], "a": [["b", "c"], ["d"]], "c": [["a"]], "d": [["a"]]},
    "chain": {"a": [["b"]], "b": [["c"], ["a"]], "c": [["d"], ["b"]], "d": [["c"]]},
    "ring": {"a": [["b"]], "b": [["c"]], "c": [["d"]], "d": [["a"]]},
    "mesh": {
        "a": [["b", "c", "d"]],
        "b": [["a", "c", "d"]],
        "c": [["a", "b"], ["d"]],
        "d": [["a"]],
    },
    "ring of three, both ways": {"a": [["b"], ["c"]], "b": [["a"], ["c"]], "c": [["a"], ["b"]]},
    "mesh with rays": {
        "x": [["a"]],
        "a": [["b", "c"], ["x"]],
        "b": [["a", "c"], ["y"]],
        "c": [["a", "b"]],
        "y": [["b"]],
    },
}


@pytest.mark.parametrize("name", SUPPORTED)
def test_b10_b11_f34_supported_topologies(name: str) -> None:
    edges: Any = SUPPORTED[name]
    for writer in edges:
        turned = {writer: edges[writer], **edges}
        parse_topology(topology_of(turned), "wan.yaml")


def refusal(edges: dict[str, list[list[str]]], **table: Any) -> str:
    with pytest.raises(TopologyError) as error:
        parse_topology(topology_of(edges, **table), "wan.yaml")
    return str(error.value)


RING_OF_FOUR = {"a": [["b"], ["d"]], "b": [["c"], ["a"]], "c": [["d"], ["b"]], "d": [["a"], ["c"]]}


def test_f34_a_ring_of_four_both_ways_is_refused_with_both_paths() -> None:
    message = refusal(RING_OF_FOUR)
    assert "tables.t.senders: site 'c' would get every event twice" in message
    assert "(a -> a0 -> b -> b0 -> c; a -> a1 -> d -> d1 -> c)" in message


def test_duplicates_may_be_allowed() -> None:
    topology = parse_topology(topology_of(RING_OF_FOUR, allow_duplicates=True), "wan.yaml")
    assert ways(topology) == {"b": 1, "c": 2, "d": 1}


def test_with_duplicates_allowed_a_site_that_gets_nothing_is_still_refused() -> None:
    message = refusal({**RING_OF_FOUR, "e": []}, allow_duplicates=True)
    assert "tables.t.at.e: site 'e' would never get the table" in message


def test_too_many_ways_are_refused() -> None:
    ladder = {f"s{n}": [[f"l{n}"], [f"r{n}"]] for n in range(12)}
    ladder |= {f"{side}{n}": [[f"s{n + 1}"]] for n in range(12) for side in "lr"}
    message = refusal({**ladder, "s12": []}, allow_duplicates=True)
    assert "more than 1000 streams" in message


def test_the_missing_sender_is_named() -> None:
    edges = {"a": [["b"]], "b": [], "c": []}
    assert "attach a sender that serves it, at a site that has it (a, b)" in refusal(edges)
    edges = {"a": [["b"]], "b": [["c"]], "c": []}
    assert "attach sender 'b0' (b -> c)" in refusal(edges, senders=["a0"])
    edges = {"a": [["b"]], "b": [], "c": [["d"]], "d": []}
    assert "its senders are at c, where the table never arrives: attach a sender that serves c" in (
        refusal(edges)
    )


def test_a_forwarder_must_have_the_table() -> None:
    edges = {"a": [["b"]], "b": [["c"]], "c": []}
    message = refusal(edges, at={"a": "./a/t", "c": "./c/t"})
    assert "tables.t.at.b: is missing, but sender 'b0' there forwards the table" in message


def test_a_users_query_goes_out_by_one_sender() -> None:
    """What the other sender at the writer serves is not in its sent-to, so b forwards to c too."""
    edges = {"a": [["b"], ["c"]], "b": [["c"]], "c": []}
    parse_topology(topology_of(edges), "wan.yaml")
    message = refusal(edges, source="sink")
    assert "site 'c' would get every event twice" in message
    assert "(a -> a1 -> c; a -> a0 -> b -> b0 -> c)" in message


def test_names_of_forwarded_streams() -> None:
    edges = {"a": [["b"]], "b": [["c"]], "c": [["d"]], "d": []}
    topology = parse_topology(topology_of(edges), "wan.yaml")
    names = [stream.name for stream in streams_of(topology, topology.table("t"))]
    assert names == ["a.a0.t", "b.b0~a.a0.t", "c.c0~b.b0~a.a0.t"]


def test_a_name_that_is_too_long_for_a_file_is_refused() -> None:
    long = "x" * 120
    message = refusal({"a": [["b"]], "b": [[long]], long: [["d"]], "d": []})
    assert "would have a name of 254 characters, more than 240" in message


def test_two_forwarded_streams_of_one_name_are_refused() -> None:
    data = topology_of({"a": [["b", "b.c"]], "b": [["d"]], "b.c": [["e"]], "d": [], "e": []})
    senders = data["senders"]
    senders["c.s"] = {**senders.pop("b0"), "channel": "./shared"}
    senders["s"] = {**senders.pop("b.c0"), "channel": "./shared"}
    data["tables"]["t"]["senders"] = list(senders)
    with pytest.raises(TopologyError, match=r"would be 'b\.c\.s~a\.a0\.t', as for sender"):
        parse_topology(data, "wan.yaml")


def test_a_frame_must_not_be_too_large_for_sites_to_which_it_is_forwarded() -> None:
    """Frames are forwarded as they are. Fails without ``_check_forwarded_size``: the last site
    holds the stream."""
    content = topology_of({"a": [["b"]], "b": [["c"]], "c": []})
    content["sites"]["c"]["max_frame_bytes"] = "64MiB"
    content["senders"]["b0"]["max_frame_bytes"] = "64MiB"
    with pytest.raises(TopologyError) as error:
        parse_topology(content, "t.yaml")
    assert (
        "senders.a0.max_frame_bytes: 1073741824 is more than site 'c' receives "
        "(a -> a0 -> b -> b0 -> c); set it to 67108864, or raise sites.c.max_frame_bytes"
    ) in str(error.value)
    content["senders"]["a0"]["max_frame_bytes"] = "64MiB"
    topology = parse_topology(content, "t.yaml")
    assert reached(topology, topology.table("t"), topology.sender("a0")) == ["b", "c"]
    assert reached(topology, topology.table("t"), topology.sender("b0")) == []
