"""How far sites are with a log, by its newest manifest and their acks.

Acks are cumulative. So what follows from them is monotone along the log, and the lowest epoch to
which it applies is found with few reads, however long the log is.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping, Sequence

from spark_wan.log.stream_log import StreamLog
from spark_wan.wire.ack import Ack
from spark_wan.wire.manifest import Manifest


def is_about(newest: Manifest, ack: Ack) -> bool:
    """Whether an ack is about the log that ends with ``newest``. One beyond its end is older: the
    log was restored to an earlier state since."""
    return ack.log_id == newest.log_id and ack.applied <= newest.epoch


def acked_through(
    newest: Manifest,
    acks: Mapping[str, Ack],
    sites: Iterable[str] | None = None,
    *,
    log_read_first: bool = False,
) -> dict[str, int]:
    """Return the epoch through which each site has acked a log; 0: no ack for this log.

    Args:
        newest: The newest manifest of the log.
        acks: By site.
        sites: Default: the addressees of the newest manifest.
        log_read_first: The log was read before the acks, and may have grown in between. Then an ack
            beyond its end counts.
    """

    def through(ack: Ack | None) -> int:
        if ack is None:
            return 0
        counts = ack.log_id == newest.log_id if log_read_first else is_about(newest, ack)
        return ack.applied if counts else 0

    chosen = newest.addressees if sites is None else sites
    return {site: through(acks.get(site)) for site in chosen}


def waited_through(newest: Manifest, acked: Mapping[str, int]) -> dict[str, int]:
    """Return through which epoch nobody waits for each site any more: it has acked that, or the log
    goes on without it. ``acked``: through which epoch each site has."""
    return {site: max(epoch, newest.dropped.get(site, 0)) for site, epoch in acked.items()}


def lowest(
    log: StreamLog, epochs: Sequence[int], condition: Callable[[Manifest], bool]
) -> Manifest | None:
    """Return the manifest of the lowest of ``epochs`` (ascending) that meets a condition; None: no
    epoch does.

    All above it must meet the condition too, and those that are trimmed must not. The first that is
    read is in the middle, and each read halves what is left.
    """
    found: dict[int, Manifest] = {}

    def meets(epoch: int) -> bool:
        (manifest,) = log.read_each([epoch])
        if manifest is None or not condition(manifest):
            return False
        found[epoch] = manifest
        return True

    bisect_left(epochs, True, key=meets)
    return found[min(found)] if found else None
