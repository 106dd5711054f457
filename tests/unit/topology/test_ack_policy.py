"""Ack policies: one predicate over sites, and policies that a sender can never meet."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain, combinations

import pytest
from topologies import refusal, topology

from spark_wan.topology.ack_policy import AckPolicy

REMOTES = ("denver", "seattle", "tacoma")
TWO = (
    ("senders.east.remotes", ["seattle", "denver"]),
    ("tables.flights.at.denver", "./denver/flights"),
    ("tables.readings.at.denver", "./denver/readings"),
)


def subsets(sites: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    return chain.from_iterable(combinations(sites, size) for size in range(len(sites) + 1))


def is_enough(policy: str, acked: tuple[str, ...], sent: tuple[str, ...], zero: set[str]) -> bool:
    """The definition of each policy, counted by hand. The sender's site is newark."""
    answers = [site in acked for site in sent]
    peers = [site in acked for site in sent if site not in zero]
    having = peers + ([] if "newark" in zero else [True])
    return {
        "none": True,
        "one": answers.count(True) > 0,
        "quorum": having.count(True) >= len(having) // 2 + 1,
        "all": answers.count(False) == 0,
        "one_peer": peers.count(True) > 0,
        "all_peers": peers.count(False) == 0,
    }[policy]


@pytest.mark.parametrize("policy", list(AckPolicy))
def test_a_policy_is_a_predicate_over_sites(policy: AckPolicy) -> None:
    """For all sets of up to three remotes, of sites with priority 0, and of acks, also those of a
    site that the epoch was not sent to."""
    seen = set()
    for sent in subsets(REMOTES):
        for never_primary in subsets(("newark", *REMOTES)):
            for acked in subsets((*REMOTES, "stranger")):
                met = policy.met(acked, sent, "newark", never_primary)
                assert met is is_enough(policy, acked, sent, set(never_primary)), (
                    sent,
                    never_primary,
                    acked,
                )
                seen.add(met)
    assert seen == ({True} if policy is AckPolicy.NONE else {True, False})


@pytest.mark.parametrize("policy", list(AckPolicy))
def test_more_acks_never_undo_a_policy(policy: AckPolicy) -> None:
    """A wait looks for the lowest epoch that does not meet the policy, so a later epoch, which
    fewer sites have acked, must not meet it either."""
    for never_primary in subsets(("newark", *REMOTES)):
        for acked in subsets(REMOTES):
            for site in acked:
                fewer = [each for each in acked if each != site]
                if policy.met(fewer, REMOTES, "newark", never_primary):
                    assert policy.met(acked, REMOTES, "newark", never_primary)


@pytest.mark.parametrize("policy", list(AckPolicy))
def test_b75_a_policy_that_no_acks_can_meet_or_that_promises_nothing_is_refused(
    policy: AckPolicy,
) -> None:
    """Whatever the priorities: of all other policies, all acks meet them."""
    for sent in subsets(REMOTES):
        for never_primary in subsets(("newark", *REMOTES)):
            if not sent:
                continue
            can_be_met = policy.met(sent, sent, "newark", never_primary)
            empty = policy is AckPolicy.ALL_PEERS and set(sent) <= set(never_primary)
            refused = policy.problem(sent, "newark", never_primary) is not None
            assert refused is (not can_be_met or empty), (sent, never_primary)


@pytest.mark.parametrize(
    ("policy", "zero", "why"),
    [
        ("quorum", ["newark", "seattle", "denver"], "can never be met: neither 'newark' nor a "),
        ("one_peer", ["seattle", "denver"], "can never be met: no remote (seattle, denver)"),
        ("all_peers", ["seattle", "denver"], "would promise nothing: no remote (seattle, denver)"),
    ],
)
def test_b75_a_topology_with_such_a_policy_is_refused_by_file_and_key(
    policy: str, zero: list[str], why: str
) -> None:
    priorities = [(f"sites.{site}.priority", 0) for site in zero]
    message = refusal(*TWO, ("senders.east.ack_policy", policy), *priorities)
    line = message.splitlines()[0]
    assert line.startswith(f"/etc/wan/topology.yaml: senders.east.ack_policy: {policy} {why}")
    assert line.endswith("give one a priority of 1 or more, or choose one, all or none")
    one_more = topology(*TWO, ("senders.east.ack_policy", policy), *priorities[:-1])
    assert one_more.sender("east").ack_policy == policy


def test_the_policy_of_a_sender_that_only_forwards_does_not_matter() -> None:
    """Nobody waits for it. Fails when a relay that is no peer, to one that is none, is refused."""
    loaded = topology(
        ("sites.seattle.priority", 0),
        ("sites.denver.priority", 0),
        ("senders.back.remotes", ["denver"]),
        ("tables.flights.senders", ["east", "back"]),
        ("tables.flights.at.denver", "./denver/flights"),
    )
    assert loaded.sender("back").ack_policy is AckPolicy.QUORUM


def test_the_default_is_a_quorum() -> None:
    assert topology().sender("east").ack_policy is AckPolicy.QUORUM
    assert topology(("sites.seattle.priority", 0)).never_primary == {"seattle"}


@pytest.mark.parametrize(
    ("policy", "needs"),
    [
        ("none", "none"),
        ("one", "one: seattle, denver"),
        ("quorum", "quorum: 2 of newark, seattle"),
        ("all", "all: seattle, denver"),
        ("one_peer", "one_peer: seattle"),
        ("all_peers", "all_peers: seattle"),
    ],
)
def test_a_policy_says_whose_acks_it_needs(policy: str, needs: str) -> None:
    assert AckPolicy(policy).needs(["seattle", "denver"], "newark", ["denver"]) == needs
