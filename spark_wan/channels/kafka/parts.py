"""Operations of several records of which not all parts have come, kept within limits.

Anyone who may write to the topic can begin operations and never end them. What is dropped follows
from the records since the last ``begin``, which voids all parts, and from those alone. So readers
agree, wherever they began to read. The writer of an operation that was dropped gets no verdict on
it, and writes it again (:meth:`~spark_wan.channels.kafka.channel.TopicChannel.submit`).
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from spark_wan.wire.manifest import MAX_MANIFEST_BYTES
from spark_wan.wire.topic_log import MAX_HEAD_BYTES, Operation, Part, joined

MAX_STATE_BYTES = 1 << 30
"""Size of the state in a checkpoint, decompressed, at most."""
MAX_OPERATION_BYTES = MAX_HEAD_BYTES + MAX_MANIFEST_BYTES
"""Size of an operation that is no checkpoint, at most."""
MAX_UNFINISHED_BYTES = 2 * MAX_OPERATION_BYTES
"""Size of all of them that are not whole yet, at most."""
MAX_CHECKPOINT_BYTES = MAX_STATE_BYTES + 2**20
"""Size of a checkpoint, and of all checkpoints that are not whole yet, at most."""
PART_BYTES = 300
"""What a part takes beside its data."""

_CHECKPOINT = re.compile(rb'WANO \d{1,9} [0-9a-f]{8}\n\{"kind":"checkpoint",')


@dataclass
class Unfinished:
    """The first parts of an operation."""

    is_checkpoint: bool
    """Whether it begins like one."""
    parts: list[Part] = field(default_factory=list)
    size: int = 0


class UnfinishedOperations:
    """The operations whose parts have not all come, the oldest first."""

    def __init__(self) -> None:
        self._unfinished: dict[str, Unfinished] = {}
        self._sizes = {False: 0, True: 0}
        """Of those that are no checkpoints, and of checkpoints."""

    def void(self) -> None:
        """Drop all."""
        self._unfinished.clear()
        self._sizes = {False: 0, True: 0}

    def add(self, part: Part, where: str) -> Operation | None:
        """Take the next part, and return the operation that it makes whole, if it does."""
        known = self._unfinished.get(part.id)
        came = len(known.parts) if known is not None else 0
        if part.number < came:  # a request that was repeated
            return None
        if part.number > came:  # its first parts were voided
            self._drop(part.id)
            return None
        if known is None:
            is_checkpoint = _CHECKPOINT.match(part.data) is not None
            known = self._unfinished[part.id] = Unfinished(is_checkpoint)
        known.parts.append(part)
        known.size += len(part.data) + PART_BYTES
        self._sizes[known.is_checkpoint] += len(part.data) + PART_BYTES
        self._keep_within_limits(part.id, known)
        if len(known.parts) < part.of or part.id not in self._unfinished:
            return None
        self._drop(part.id)
        return joined(known.parts, where)

    def _keep_within_limits(self, identity: str, added: Unfinished) -> None:
        of_one, of_all = (
            (MAX_CHECKPOINT_BYTES, MAX_CHECKPOINT_BYTES)
            if added.is_checkpoint
            else (MAX_OPERATION_BYTES, MAX_UNFINISHED_BYTES)
        )
        if added.size - PART_BYTES * len(added.parts) > of_one or added.size > of_all:
            self._drop(identity)
        while self._sizes[added.is_checkpoint] > of_all:
            self._drop(
                next(
                    other
                    for other, each in self._unfinished.items()
                    if other != identity and each.is_checkpoint == added.is_checkpoint
                )
            )

    def _drop(self, identity: str) -> None:
        dropped = self._unfinished.pop(identity, None)
        if dropped is not None:
            self._sizes[dropped.is_checkpoint] -= dropped.size
