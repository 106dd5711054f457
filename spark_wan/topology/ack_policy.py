"""Ack policies: whose acks a sender waits for with ``block_on_ack``.

Trimming needs more than the policy: all addressees that are still served must have acked.
"""

from __future__ import annotations

from collections.abc import Set
from enum import Enum

from spark_wan.topology.values import one_of


class AckPolicy(str, Enum):
    """A policy, by its name in the topology.

    To add a policy, add its name here and its rule to :meth:`met`.
    """

    NONE = "none"
    """No acks are needed."""
    ALL = "all"
    """Every site that the epoch was sent to."""

    def met(self, acked: Set[str], addressees: Set[str]) -> bool:
        """Return whether the acks of the sites ``acked`` are enough."""
        return self is AckPolicy.NONE or addressees <= acked


PLANNED = ("quorum", "one", "one_peer", "all_peers")
"""Policies of a later version."""
POLICY_NAMES = " or ".join(policy.value for policy in AckPolicy)


def parse_ack_policy(value: object) -> AckPolicy:
    """Return the ack policy with that name; ValueError otherwise."""
    if value in PLANNED:
        raise ValueError(f"{value!r} is not available in this version, use {POLICY_NAMES}")
    return AckPolicy(one_of(value, [policy.value for policy in AckPolicy]))
