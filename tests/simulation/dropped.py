"""Sites that are dropped, and get copies in place of what they lack: by themselves, or because
somebody asks; from the writer, or from a site on the way that may have been dropped, too."""

from __future__ import annotations

from hypothesis import strategies as st

from simulation.copies import CopyWorld
from simulation.copying import AsksForCopies
from simulation.limits import DroppingWorld, Limited


class DroppedWorld(CopyWorld, DroppingWorld):
    """A world in which sites that were dropped get copies. Copies are not in the queues."""


class Dropped(Limited, AsksForCopies):
    """Queues are full, and sites ask for copies, at any moment."""

    shapes = st.sampled_from(
        ["one remote site", "two remote sites", "two senders", "chain", "star"] * 2
        + ["ring", "ring both ways", "mesh", "two senders forward"]
    )
    kinds = ("keyed", "keyless")
    syncs = st.sampled_from(["manual", "auto"])
    worlds = DroppedWorld
