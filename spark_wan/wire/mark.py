"""The mark of a commit: what a receiver applied in it, or that it stays at its site."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from spark_wan.errors import LedgerError
from spark_wan.wire.records import Origin, known_fields, upgraded

MARK = "spark_wan"
"""The key in a commit's ``userMetadata`` (a JSON object) under which spark_wan leaves its marks."""

LOCAL_ONLY = json.dumps({MARK: {"local_only": True}})
"""``userMetadata`` of a commit that must stay at its own site: ``df.write.option("userMetadata", LOCAL_ONLY)``."""


def read_mark(user_metadata: str | None) -> dict[str, Any] | None:
    """The mark that spark_wan (or a user, :data:`LOCAL_ONLY`) left in a commit's ``userMetadata``, or None."""
    if not user_metadata or MARK not in user_metadata:
        return None
    try:
        content = json.loads(user_metadata)
    except ValueError:
        return None
    mark = content.get(MARK) if isinstance(content, dict) else None
    return mark if isinstance(mark, dict) else None


MARK_VERSION = 2


@dataclass(frozen=True)
class Mark:
    """What one commit to a target table applied: epochs through ``epoch`` of a stream, the origin's versions through
    ``through`` (-1 for a user's stream). ``events`` counts rows after netting per key."""

    site: str
    table: str
    apply: int
    token: str
    origin: str
    table_id: str
    selection: str
    through: int
    stream: str
    log_id: str
    epoch: int
    fingerprint: str
    """Of the manifest of ``epoch``."""
    ids: bool
    """Of a user's stream: its events have IDs."""
    dead_letters: int = 0
    """How many of the stream's events became dead letters here, this apply and all before it."""
    columns: tuple[str, ...] = ()
    """All columns and fields that were applied to the table, by this apply and all before it."""
    moved: Mapping[str, str | None] = field(default_factory=dict)
    """Those of them that are not where they were in the table: their place, or None (see :class:`AppliedColumns`)."""
    new_ids: int | None = None
    """How many event IDs were recorded under this apply; None: not known (marks of version 0.1.0), or the stream has none."""
    ids_until: int | None = None
    """The newest event time among them, in microseconds; None: one of them has none, and is kept for ever."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "columns", tuple(self.columns))  # JSON has lists

    def content(self) -> dict[str, object]:
        """What is written of it. What came later than 0.1.0 is left out when there is nothing to say."""
        later: dict[str, object] = {"columns": (), "moved": {}, "new_ids": None, "ids_until": None}
        return {
            name: value
            for name, value in asdict(self).items()
            if name not in later or value != later[name]
        }

    def user_metadata(self) -> str:
        return json.dumps(
            {MARK: {"version": MARK_VERSION, **self.content()}}, separators=(",", ":")
        )

    @property
    def key(self) -> Origin:
        return (self.origin, self.table_id, self.selection)

    @classmethod
    def of(cls, content: Mapping[str, Any]) -> Mark:
        """Return the mark that a record of version 1 or 2 tells of. Raises TypeError when fields are missing."""
        return cls(**known_fields(cls, upgraded(content)))

    @classmethod
    def read(cls, user_metadata: str | None, site: str, table: str) -> Mark | None:
        """The mark that ``site`` left for ``table``, or None. Raises LedgerError for a version from the future."""
        found = read_mark(user_metadata)
        if found is None or found.get("site") != site or found.get("table") != table:
            return None
        if found.get("version") not in (1, MARK_VERSION):
            raise LedgerError(
                f"{table}: a commit carries a mark of version {found.get('version')}; this spark_wan reads versions 1 and {MARK_VERSION}. "
                "Update spark_wan at this site."
            )
        try:
            return cls.of(found)
        except TypeError as error:
            raise LedgerError(
                f"{table}: a commit carries a mark that spark_wan did not write ({error})."
            ) from error
