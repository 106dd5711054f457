"""The columns that a site has applied, and where they are in its table now.

Delta shows the identity of a column in no DataFrame, but the table's history tells of every change to it: a column stays the same column until a commit
renames, drops or replaces it. So the ledger follows each applied column from commit to commit, and a mark carries the result: a column that is added
under an old name is another column.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from spark_wan.delta.commits import Commit
from spark_wan.errors import SchemaError, anew
from spark_wan.events.columns import SchemaJson, column_paths
from spark_wan.wire.mark import Mark


@dataclass(frozen=True)
class AppliedColumns:
    """Columns and nested fields, as :func:`spark_wan.events.columns.column_paths` writes them -> where each is in the target now: under its own name, under
    another one, or nowhere any more (None)."""

    places: Mapping[str, str | None] = field(default_factory=dict)

    @classmethod
    def of(cls, mark: Mark) -> AppliedColumns:
        """What a mark says."""
        return cls({**{path: path for path in mark.columns}, **mark.moved})

    @property
    def columns(self) -> tuple[str, ...]:
        return tuple(self.places)

    @property
    def moved(self) -> dict[str, str | None]:
        """Those that are not where they were."""
        return {path: place for path, place in self.places.items() if place != path}

    def with_columns(self, paths: Iterable[str]) -> AppliedColumns:
        """With those that an apply writes."""
        return AppliedColumns({**{path: path for path in paths}, **self.places})

    def after(self, commit: Commit) -> AppliedColumns:
        """After a commit of the target that has no mark."""
        if not commit.moves_columns:
            return self
        return AppliedColumns(
            {
                path: place if place is None else commit.place_of(place)
                for path, place in self.places.items()
            }
        )

    def after_mark(self, marked: AppliedColumns) -> AppliedColumns:
        """After a marked commit. A column that its writer still took for where it was may have been written under its old name, by then another
        column's: whatever is renamed later, it never has all of its values again."""
        places = dict(self.places)
        for path, place in marked.places.items():
            known = places.get(path, path)
            places[path] = (
                None if known != path and place == path else place if known == path else known
            )
        return AppliedColumns(places)

    def check(
        self,
        existing: SchemaJson,
        travelling: SchemaJson,
        table: str,
        site: str,
        sql_name: str,
        users: bool = False,
    ) -> None:
        """Raise SchemaError when a travelling column that was applied is not in the target any more, or is another one there. ``users``: of a user's
        stream."""
        there = set(column_paths(existing))
        told: dict[str, str] = {}
        back: list[str] = []
        renamed_only = True
        for path in column_paths(travelling):
            if path not in self.places or any(path.startswith(f"{parent}.") for parent in told):
                continue
            place = self.places[path]
            if place is None:
                again = ", and another column has its name now" if path in there else ""
                told[path] = f"{path} was dropped, or was written to after it was renamed{again}"
                renamed_only = False
            elif place != path:
                told[path] = f"{path} is named {place} now"
                new_name = _last_part(path)
                back.append(f"ALTER TABLE {sql_name} RENAME COLUMN {_sql(place)} TO {new_name}")
            elif path not in there:
                told[path] = f"{path} is gone"
                renamed_only = False
        if not told:
            return
        rename = (
            f"Rename back ({'; '.join(back)}), and the stream goes on. Or "
            if renamed_only
            else "The way out: "
        )
        ways = f"{rename}{anew(users)}."
        raise SchemaError(
            f"{table}: columns that were applied at site {site} are not there as they were: {'; '.join(told.values())}. They are not added again, since "
            f"they would be empty. The stream is held. {ways}"
        )


def _parts(path: str) -> list[str]:
    """The names in a path; one with dots is in backticks.

    >>> _parts("a.`b.c`.d")
    ['a', 'b.c', 'd']
    """
    parts: list[str] = []
    rest = path
    while rest:
        if rest.startswith("`") and (end := rest.find("`.", 1)) > 0:
            parts.append(rest[1:end])
            rest = rest[end + 2 :]
        elif rest.startswith("`") and rest.endswith("`") and len(rest) > 1:
            parts.append(rest[1:-1])
            rest = ""
        else:
            part, _, rest = rest.partition(".")
            parts.append(part)
    return parts


def _sql(path: str) -> str:
    return ".".join("`" + part.replace("`", "``") + "`" for part in _parts(path))


def _last_part(path: str) -> str:
    return "`" + _parts(path)[-1].replace("`", "``") + "`"
