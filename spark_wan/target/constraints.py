"""The constraints of a target table: what it demands of its rows beyond their types.

A row that the table would refuse becomes a dead letter with its own cause
(:mod:`spark_wan.target.judge`). A table that could take no row, or that would change or double
rows, holds its stream; the message names the column and the way out. Delta's rules, as tested:

- An insert gives columns that do not travel their default, their generated value or the next
  identity. An update keeps their values, and computes generated columns again. So constraints on
  such columns are judged against the row as it will be: only then the target is read, by key.
- ``CHECK`` refuses null like false. An expression that raises (a cast, a division by zero) ends the
  whole write: the rows are found by bisection, which costs nothing as long as none raises.
- ``NOT NULL`` in a struct refuses a null struct too. In arrays and maps Delta declares it without
  enforcing it, so it is enforced here.
- A generated column that travels must equal its expression. An identity column takes no values in
  an update, and with ``ALWAYS`` none at all.
- ``VARCHAR`` and ``CHAR`` refuse longer values, trailing blanks included. ``CHAR`` pads shorter
  ones, which changes rows and makes two keys one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from functools import cached_property
from itertools import starmap
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import DataType, StructField, StructType

from spark_wan.delta.dataframes import select_columns
from spark_wan.delta.errors import ErrorKind, error_text
from spark_wan.delta.sql import quoted
from spark_wan.delta.tables import load, newest_commit
from spark_wan.errors import SchemaError
from spark_wan.ledger.interfaces import TargetName
from spark_wan.target.column_rules import chars, declared, nulls, too_long_values
from spark_wan.target.partitions import longest_folder, unstorable

_GENERATED, _IDENTITY = "delta.generationExpression", "delta.identity."
_CONSTRAINT = "delta.constraints."


@dataclass(frozen=True)
class Constraint:
    """A condition that no row may meet, over the columns of the table as they will be."""

    cause: str
    broken: Column
    uses: Sequence[str] = ()
    """Columns that do not travel and that it uses."""
    expression: str | None = None
    """The SQL expression that it evaluates, of a CHECK or a generated column."""


@dataclass(frozen=True)
class Constraints:
    """The constraints of a target for the rows of one stream."""

    name: TargetName
    target: DataFrame
    keys: tuple[str, ...]
    _: KW_ONLY
    carried: Mapping[str, str]
    """The target's names of the columns that travel -> the names in the rows."""
    values: Mapping[str, Column]
    """Columns that do not travel -> what an insert gives them."""
    generated: Mapping[str, str]
    """Those of them that Delta computes for updates too -> their expressions."""
    all: Sequence[Constraint]

    @cached_property
    def needed(self) -> set[str]:
        """Columns that do not travel and are used by a constraint."""
        return {name for each in self.all for name in each.uses}

    @property
    def joins(self) -> bool:
        """Whether rows are judged together with columns that only the target has."""
        return bool(self.keys and self.needed - set(self.generated))


@dataclass(frozen=True)
class ConstraintReader:
    """Reads the constraints of a target for rows with the columns ``travelling``."""

    name: TargetName
    location: str
    target: DataFrame
    travelling: StructType
    _: KW_ONLY
    keys: tuple[str, ...]
    properties: Mapping[str, str]
    """The table's properties."""
    partitioned: Sequence[str]
    """The table's partition columns."""
    logged: Callable[[], Mapping[str, Any]]
    """Reads the table's columns from its log: Spark does not show which are generated."""
    refused: bool
    """The table has refused a row, so also judge by what rows seldom break: values of partition
    columns; and chars and varchars declared alike at the origin, which only a writer that does not
    enforce them can break."""

    def read(self) -> Constraints | None:
        """Return the constraints; None when every row can be written as it is.

        Raises SchemaError for constraints that no row can satisfy.
        """
        self._check_identities()
        rules = (
            self._of_columns,
            self._of_partition_columns,
            self._of_generated_columns,
            self._of_checks,
        )
        constraints = Constraints(
            self.name,
            self.target,
            self.keys,
            carried=self._carried,
            values=self._values,
            generated=self._computed,
            all=[constraint for rule in rules for constraint in rule()],
        )
        if constraints.joins:
            # Spark evaluates what it has cached once more when the table is written to in this
            # application, or an executor is lost. A row that counted as valid must not count as
            # refused then: it would be neither written nor a dead letter.
            version = newest_commit(self.target.sparkSession, self.location).version
            pinned = load(self.target.sparkSession, self.location, versionAsOf=version)
            constraints = replace(constraints, target=pinned)
        return constraints if constraints.all else None

    def _of_columns(self) -> Iterator[Constraint]:
        """NOT NULL and lengths. Columns that neither travel nor are computed keep their values, and
        new rows have their defaults."""
        for own in self._fields.values():
            if own.name in self._carried:
                yield from self._of_carried_column(own)
            elif own.name in self._computed:
                yield from self._of_computed_column(own)
        self._check_defaults()

    def _of_carried_column(self, own: StructField) -> Iterator[Constraint]:
        here, at_origin = declared(own), declared(self._origin[own.name.lower()])
        self._check_char(own.name, here, at_origin)
        broken = nulls(own)
        if self.refused or here != at_origin:
            broken += too_long_values(own)
        yield from starmap(Constraint, broken)

    def _of_computed_column(self, own: StructField) -> Iterator[Constraint]:
        expression = self._computed[own.name]
        uses = (own.name, *self._local(expression))
        for cause, broken in [*nulls(own), *too_long_values(own)]:
            yield Constraint(cause, broken, uses)
        # Evaluates the expression, which may raise: no value has a length below 0.
        evaluated = F.length(F.to_json(F.struct(F.col(quoted(own.name))))) < 0
        yield Constraint(f"generated column {own.name}: {expression}", evaluated, uses)

    def _of_partition_columns(self) -> Iterator[Constraint]:
        if not self.refused or not self.partitioned:
            return
        longest = longest_folder(self.target.sparkSession, self.location, self.properties)
        for name in self.partitioned:
            if name in self._carried:
                lost = unstorable(name, self._fields[name].dataType, longest)
                yield from starmap(Constraint, lost)

    def _of_generated_columns(self) -> Iterator[Constraint]:
        """Those that travel must equal their expressions."""
        for name, text in self._generated.items():
            if name in self._carried:
                value = F.expr(text).cast(self._fields[name].dataType)
                uses = self._local(text)
                self._check_no_identity(f"generated column {name}", uses)
                cause = f"generated column {name}: not equal to {text}"
                yield Constraint(cause, ~F.col(quoted(name)).eqNullSafe(value), uses, text)

    def _of_checks(self) -> Iterator[Constraint]:
        for key, text in sorted(self.properties.items()):
            if key.startswith(_CONSTRAINT):
                cause = f"CHECK {key.removeprefix(_CONSTRAINT)}: {text}"
                uses = self._local(text, cause)
                self._check_no_identity(cause, uses)
                for name in list(uses):
                    if name in self._computed:
                        uses += self._local(self._computed[name])
                yield Constraint(cause, ~F.coalesce(F.expr(text), F.lit(False)), uses, text)

    @cached_property
    def _fields(self) -> dict[str, StructField]:
        return {f.name: f for f in self.target.schema.fields}

    @cached_property
    def _origin(self) -> dict[str, StructField]:
        """The columns that travel, by their names in lower case."""
        return {f.name.lower(): f for f in self.travelling.fields}

    @cached_property
    def _carried(self) -> dict[str, str]:
        origin = self._origin
        return {name: origin[name.lower()].name for name in self._fields if name.lower() in origin}

    @cached_property
    def _metadata(self) -> dict[str, Mapping[str, Any]]:
        """What the table's log says of each column, if Delta may compute some."""
        if not may_compute_columns(self.properties):
            return {}
        return {entry["name"]: entry.get("metadata") or {} for entry in self.logged()["fields"]}

    @cached_property
    def _generated(self) -> dict[str, str]:
        """Columns that Delta computes -> their expressions."""
        of_all = self._metadata.items()
        return {name: str(entry[_GENERATED]) for name, entry in of_all if _GENERATED in entry}

    @cached_property
    def _computed(self) -> dict[str, str]:
        """The generated columns that do not travel."""
        generated = self._generated.items()
        return {name: text for name, text in generated if name not in self._carried}

    @cached_property
    def _identities(self) -> set[str]:
        of_all = self._metadata.items()
        return {name for name, entry in of_all if any(key.startswith(_IDENTITY) for key in entry)}

    @cached_property
    def _values(self) -> dict[str, Column]:
        return {
            name: F.expr(own.metadata.get("CURRENT_DEFAULT", "NULL")).cast(own.dataType)
            for name, own in self._fields.items()
            if name not in self._carried
        }

    def _local(self, expression: str, what: str = "generated column") -> list[str]:
        """Return the columns that an expression uses and that do not travel."""

        def error_with(names: Sequence[str]) -> Exception | None:
            try:
                _ = self.target.select(*select_columns(names)).select(F.expr(expression)).schema
            except Exception as error:
                if ErrorKind.CANCELLED.matches(error):
                    raise
                return error
            return None

        names = list(self._fields)
        error = error_with(names)
        if error is not None:
            raise SchemaError(
                f"{self.name.where}: {what} cannot be evaluated ({error_text(error)}), so rows "
                "cannot be judged by it. The stream is held. Drop it "
                f"(ALTER TABLE {self.name.sql_name} DROP CONSTRAINT …), or make what it uses known "
                "to the receiver's session."
            )
        if error_with([name for name in names if name in self._carried]) is None:
            return []
        return [
            name
            for name in names
            if name not in self._carried and error_with([n for n in names if n != name]) is not None
        ]

    def _check_identities(self) -> None:
        """Check that a write can give the identity columns that travel their values."""
        for name in self._identities & set(self._carried):
            by_default = bool(self._metadata[name].get(f"{_IDENTITY}allowExplicitInsert"))
            if by_default and (not self.keys or self._is_key(name)):
                continue
            kind = "BY DEFAULT" if by_default else "ALWAYS"
            why = "takes values in inserts only" if by_default else "takes no values"
            raise SchemaError(
                f"{self.name.where}: column {name} is GENERATED {kind} AS IDENTITY here and "
                f"travels, but such a column {why}. The stream is held. Replace the table here by "
                f"one whose column {name} is no identity (a copy: CREATE TABLE … AS SELECT)."
            )

    def _check_no_identity(self, what: str, uses: Sequence[str]) -> None:
        for name in self._identities.intersection(uses):
            raise SchemaError(
                f"{self.name.where}: {what} uses the identity column {name}, whose value is not "
                "known before the row is written, so rows cannot be judged by it. The stream is "
                f"held. Drop the constraint (ALTER TABLE {self.name.sql_name} DROP CONSTRAINT …), "
                "or let it use other columns."
            )

    def _check_char(self, name: str, here: DataType, origin: DataType) -> None:
        for path, own, theirs in chars(name, here, origin):
            key = "key " if self._is_key(name) else ""
            raise SchemaError(
                f"{self.name.where}: {key}column {path} is {own} here and {theirs} at the origin. "
                "Values would be padded with blanks, so that rows differ and keys that end in "
                "blanks are taken for one another or never found. The stream is held. Change "
                f"the column here: ALTER TABLE {self.name.sql_name} ALTER COLUMN {quoted(name)} "
                "TYPE STRING (blanks that are there stay: UPDATE with rtrim), or replace the "
                f"table here by one whose column {name} is as at the origin."
            )

    def _check_defaults(self) -> None:
        """Check that an insert leaves no NOT NULL column null that does not travel."""
        given = {*self._carried, *self._generated, *self._identities}
        violations = [
            (own.name, *violation)
            for own in self._fields.values()
            if own.name not in given
            for violation in nulls(own)
        ]
        if not violations:
            return
        names = dict.fromkeys(name for name, _, _ in violations)
        row = self.target.sparkSession.range(1).select(
            *(self._values[name].alias(name) for name in names)
        )
        (verdicts,) = row.select(
            *(F.coalesce(column, F.lit(False)) for _, _, column in violations)
        ).collect()
        for (name, cause, _), broken in zip(violations, verdicts, strict=True):
            if broken:
                raise SchemaError(
                    f"{self.name.where}: {cause}: the column does not travel, and an insert would "
                    "leave it null. The stream is held. Give it a default "
                    f"(ALTER TABLE {self.name.sql_name} SET TBLPROPERTIES "
                    "('delta.feature.allowColumnDefaults' = 'supported'), then ALTER COLUMN "
                    f"{quoted(name)} SET DEFAULT …), or allow nulls (ALTER COLUMN {quoted(name)} "
                    "DROP NOT NULL)."
                )

    def _is_key(self, name: str) -> bool:
        return name.lower() in {key.lower() for key in self.keys}


def may_compute_columns(properties: Mapping[str, str]) -> bool:
    """Whether the table's protocol allows generated or identity columns.

    By their features, or by a version from before features.
    """
    features = ("delta.feature.generatedColumns", "delta.feature.identityColumns")
    return any(name in properties for name in features) or properties.get(
        "delta.minWriterVersion"
    ) in ("4", "5", "6")
