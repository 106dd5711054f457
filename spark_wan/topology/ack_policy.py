"""Ack policies: which sites must have an epoch before a writer calls it permanent.

A policy ends a wait (``block_on_ack``, :func:`spark_wan.wait_for_ack`) and decides nothing else:
an epoch is trimmed once every addressee that is still served has acked it, whatever the policy.
"""

from __future__ import annotations

from collections.abc import Collection, Set
from enum import Enum

from spark_wan.topology.values import one_of


class AckPolicy(str, Enum):
    """A policy, by its name in the topology. A *peer* is a site with a priority above 0.

    To add a policy, add its name here, its rule to :meth:`met` and :meth:`needs`, and what can
    make it pointless to :meth:`problem`.
    """

    NONE = "none"
    """No acks are needed."""
    ONE = "one"
    """Any site that the epoch was sent to."""
    QUORUM = "quorum"
    """More than half of the peers that the epoch was sent to and the sender's own site, which has
    the epoch and counts if it is a peer."""
    ALL = "all"
    """Every site that the epoch was sent to."""
    ONE_PEER = "one_peer"
    """Any peer that the epoch was sent to."""
    ALL_PEERS = "all_peers"
    """Every peer that the epoch was sent to."""

    def met(
        self,
        acked: Collection[str],
        addressees: Collection[str],
        site: str,
        never_primary: Collection[str] = (),
    ) -> bool:
        """Return whether the acks of the sites ``acked`` are enough.

        Args:
            acked: Sites that have acked the epoch. Those that are no addressees do not count.
            addressees: Sites that the epoch was sent to from ``site``, and that are still served.
            site: The sender's own site.
            never_primary: Sites with priority 0. All others are peers.
        """
        sent, has = set(addressees), set(acked) & set(addressees)
        if self in (AckPolicy.ONE_PEER, AckPolicy.ALL_PEERS):
            sent, has = sent.difference(never_primary), has.difference(never_primary)
        if self in (AckPolicy.ONE, AckPolicy.ONE_PEER):
            return bool(has)
        if self in (AckPolicy.ALL, AckPolicy.ALL_PEERS):
            return sent == has
        if self is AckPolicy.QUORUM:
            electable = {site, *sent}.difference(never_primary)
            return len(electable & {site, *has}) >= _majority(electable)
        return True

    def needs(self, remotes: Collection[str], site: str, never_primary: Collection[str]) -> str:
        """Return the policy of a sender with what it asks for, for people.

        >>> AckPolicy.QUORUM.needs(["seattle", "denver"], "newark", [])
        'quorum: 2 of newark, seattle, denver'
        """
        if self is AckPolicy.NONE:
            return "none"
        if self is AckPolicy.QUORUM:
            electable = [each for each in (site, *remotes) if each not in never_primary]
            return f"quorum: {_majority(electable)} of {', '.join(electable)}"
        if self in (AckPolicy.ONE_PEER, AckPolicy.ALL_PEERS):
            remotes = [each for each in remotes if each not in never_primary]
        return f"{self.value}: {', '.join(remotes)}"

    def problem(
        self, remotes: Collection[str], site: str, never_primary: Collection[str]
    ) -> str | None:
        """Return why a sender with these remotes can never meet the policy, or why that would
        promise nothing, and what to do; None when it is fine."""
        peers: Set[str] = set(remotes).difference(never_primary)
        if peers or self not in (AckPolicy.QUORUM, AckPolicy.ONE_PEER, AckPolicy.ALL_PEERS):
            return None
        if self is AckPolicy.QUORUM:
            if site not in never_primary:
                return None  # the quorum is the site itself
            why = f"can never be met: neither {site!r} nor a remote"
        else:
            meaning = "can never be met" if self is AckPolicy.ONE_PEER else "would promise nothing"
            why = f"{meaning}: no remote"
        return (
            f"{self.value} {why} ({', '.join(remotes)}) is a peer, as their priority is 0; give "
            "one a priority of 1 or more, or choose one, all or none"
        )


def _majority(electable: Collection[str]) -> int:
    return len(electable) // 2 + 1


POLICY_NAMES = ", ".join(policy.value for policy in AckPolicy)


def parse_ack_policy(value: object) -> AckPolicy:
    """Return the ack policy with that name; ValueError otherwise."""
    return AckPolicy(one_of(value, [policy.value for policy in AckPolicy]))
