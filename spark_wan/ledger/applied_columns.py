"""The columns that a site has applied, and where they are in its table now.

A DataFrame does not show the identity of a Delta column, but the table's history has every change
to it: a column stays the same column until a commit renames, drops or replaces it. So the ledger
follows each applied column from commit to commit, and a mark carries the result: a column that is
added under an old name is another column.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from spark_wan.delta.commits import Commit
from spark_wan.errors import COLUMNS, SchemaError, copy_advice
from spark_wan.events.columns import SchemaJson, column_paths
from spark_wan.ledger.interfaces import TargetName
from spark_wan.wire.mark import Mark


@dataclass(frozen=True)
class AppliedColumns:
    """Applied columns and nested fields -> their places in the target now, None for deleted ones.

    Paths are as :func:`spark_wan.events.columns.column_paths` writes them.
    """

    places: Mapping[str, str | None] = field(default_factory=dict)

    @classmethod
    def of(cls, mark: Mark) -> AppliedColumns:
        return cls({**{path: path for path in mark.columns}, **mark.moved})

    @property
    def columns(self) -> tuple[str, ...]:
        return tuple(self.places)

    @property
    def moved(self) -> dict[str, str | None]:
        """Those that are not at their old place."""
        return {path: place for path, place in self.places.items() if place != path}

    def with_columns(self, paths: Iterable[str]) -> AppliedColumns:
        """Add those that an apply writes."""
        return AppliedColumns({**{path: path for path in paths}, **self.places})

    def after(self, commit: Commit) -> AppliedColumns:
        """Return the columns after a commit of the target without a mark."""
        if not commit.moves_columns:
            return self
        return AppliedColumns(
            {
                path: place if place is None else commit.place_of(place)
                for path, place in self.places.items()
            }
        )

    def after_mark(self, marked: AppliedColumns) -> AppliedColumns:
        """Return the columns after a marked commit.

        If its writer did not know yet that a column was moved, it may have written the values
        under the old name, by then another column's. Whatever is renamed later, no column has all
        of the values again.
        """
        places = dict(self.places)
        for path, place in marked.places.items():
            known = places.get(path, path)
            if known == path:
                places[path] = place
            elif place == path:
                places[path] = None
        return AppliedColumns(places)

    def check(
        self,
        existing: SchemaJson,
        travelling: SchemaJson,
        target: TargetName,
        users: bool = False,
    ) -> None:
        """Raise SchemaError when a travelling column that was applied is moved or deleted.

        ``users``: the columns are those of a user stream.
        """
        there = set(column_paths(existing))
        causes: dict[str, str] = {}
        renames: list[str] = []
        for path in column_paths(travelling):
            if path not in self.places or any(path.startswith(f"{parent}.") for parent in causes):
                continue
            place = self.places[path]
            if place is None:
                other = ", and another column has its name now" if path in there else ""
                causes[path] = f"{path} was dropped, or was written to after it was renamed{other}"
            elif place != path:
                causes[path] = f"{path} is named {place} now"
                old_name = _sql_parts(path)[-1]
                renames.append(
                    f"ALTER TABLE {target.sql_name} RENAME COLUMN "
                    f"{'.'.join(_sql_parts(place))} TO {old_name}"
                )
            elif path not in there:
                causes[path] = f"{path} is gone"
        if not causes:
            return
        renamed_only = len(renames) == len(causes)
        first = (
            f"Rename back ({'; '.join(renames)}), and the stream goes on. Or "
            if renamed_only
            else "To resolve this, "
        )
        raise SchemaError(
            f"{target.table}: columns applied at site {target.site} are no longer as they were: "
            f"{'; '.join(causes.values())}. They are not added again, since they would be empty. "
            f"The stream is held. {first}{copy_advice(users)}.",
            needs=None if renamed_only else COLUMNS,
        )


def _sql_parts(path: str) -> list[str]:
    """Return the names in a path, quoted for SQL; a name with dots is in backticks.

    >>> _sql_parts("a.`b.c`.d")
    ['`a`', '`b.c`', '`d`']
    """
    names = re.findall(r"(?s)(?:^|\.)(?:`(.*?)`(?=\.|$)|([^.]*))", path)
    return ["`" + (dotted or plain).replace("`", "``") + "`" for dotted, plain in names]
