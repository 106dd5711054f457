"""The sum of a table's oldest marks, which replaces them in the ledger."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from itertools import pairwise
from typing import Any

from spark_wan.ledger.event_ids import FoldedIds


@dataclass(frozen=True)
class Summary:
    """What the marks of applies 1 to ``apply`` come to: a row of ``applied`` of version 2.

    A claim (``claimed``) announces the next summary: it says which applies are being folded, and
    counts for nothing else.
    """

    target_id: str
    target_version: int
    """The target's version with the newest of the marks."""
    apply: int
    """The newest of the marks."""
    token: str
    """That one's."""
    number: int
    """Of this fold of the table, from 1. The summary with the highest number counts."""
    through: tuple[tuple[str, str, str, int], ...]
    """(origin, table ID, selection, version); see :class:`spark_wan.ledger.progress.Progress`."""
    logs: tuple[tuple[str, str, int, str], ...]
    """(stream, log ID, epoch, fingerprint)."""
    dead_letters: Mapping[str, int]
    """Per stream."""
    user_streams: tuple[bool, ...]
    """The kinds of streams: whether user streams."""
    columns: tuple[str, ...]
    moved: Mapping[str, str | None]
    """See :class:`spark_wan.wire.mark.Mark`."""
    ids: tuple[FoldedIds, ...] = ()
    lost: tuple[tuple[int, int], ...] = ()
    """Ranges of applies whose marks were lost before they were folded."""
    claimed: bool = field(default=False, compare=False)

    @property
    def lost_applies(self) -> list[int]:
        return [number for first, last in self.lost for number in range(first, last + 1)]

    def as_claim(self) -> Summary:
        return replace(self, claimed=True)

    def accepted(self) -> Summary:
        """Return the summary that a claim announces."""
        return replace(self, claimed=False)

    def encode(self) -> str:
        """Return the JSON for the column ``mark``. The row's columns have the first fields."""
        content = asdict(self)
        for name in ("target_id", "target_version", "apply", "claimed"):
            del content[name]
        return json.dumps({"claim" if self.claimed else "summary": content})

    @classmethod
    def decode(
        cls, target_id: str, target_version: int, apply: int, content: Mapping[str, Any]
    ) -> Summary:
        """Return the summary or claim with the decoded JSON of the column ``mark``.

        Raises TypeError or KeyError when a field is missing.
        """
        claimed = "claim" in content
        fields = dict(content["claim" if claimed else "summary"])
        for name in ("through", "logs", "lost"):
            fields[name] = tuple(tuple(entry) for entry in fields[name])
        for name in ("user_streams", "columns"):
            fields[name] = tuple(fields[name])
        fields["ids"] = tuple(FoldedIds(**entry) for entry in fields["ids"])
        return cls(target_id, target_version, apply, **fields, claimed=claimed)


def ranges(numbers: Iterable[int]) -> tuple[tuple[int, int], ...]:
    """Return ascending numbers as ranges.

    >>> ranges([1, 2, 3, 7])
    ((1, 3), (7, 7))
    """
    ordered = list(numbers)
    if not ordered:
        return ()
    gaps = [(before, after) for before, after in pairwise(ordered) if after != before + 1]
    firsts = [ordered[0], *(after for _, after in gaps)]
    lasts = [*(before for before, _ in gaps), ordered[-1]]
    return tuple(zip(firsts, lasts, strict=True))
