"""The constraints of a target table: what it demands of its rows beyond their types.

A row that the table would refuse becomes a dead letter with its own cause
(:mod:`spark_wan.target.judge`). A table that could take no row, or that would change or double
rows, holds its stream; the message names the column and the way out. Delta's rules, as tested:

- An insert gives columns that do not travel their default, their generated value or the next
  identity. An update keeps their values, and computes generated columns again. So constraints on
  such columns are judged against the row as it will be: only then the target is read, by key.
- ``CHECK`` refuses null like false. An expression that raises (a cast, a division by zero) ends the
  whole write: the rows are found by halving, which costs nothing as long as none raises.
- ``NOT NULL`` in a struct refuses a null struct too. In arrays and maps Delta declares it without
  enforcing it, so it is enforced here.
- A generated column that travels must equal its expression. An identity column takes no values in
  an update, and with ``ALWAYS`` none at all.
- ``VARCHAR`` and ``CHAR`` refuse longer values, trailing blanks included. ``CHAR`` pads shorter
  ones, which changes rows and makes two keys one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import (
    ArrayType,
    CharType,
    DataType,
    MapType,
    StructField,
    StructType,
    VarcharType,
)

from spark_wan.delta.dataframes import select_columns
from spark_wan.delta.errors import ErrorKind, error_text
from spark_wan.delta.sql import quoted
from spark_wan.errors import SchemaError
from spark_wan.events.columns import CHAR_VARCHAR
from spark_wan.ledger.records import TargetName
from spark_wan.target.judge import Constraints
from spark_wan.target.partitions import unstorable

_GENERATED, _IDENTITY = "delta.generationExpression", "delta.identity."
_CONSTRAINT = "delta.constraints."


@dataclass(frozen=True)
class ConstraintReader:
    """Reads the constraints of a target for rows with the columns ``travelling``."""

    spark: SparkSession
    name: TargetName
    target: DataFrame
    travelling: StructType
    keys: tuple[str, ...]
    properties: Mapping[str, str]
    """The table's properties."""
    logged: Callable[[], Mapping[str, Any]]
    """Reads the table's columns from its log: Spark does not show which are generated."""
    pinned: Callable[[], DataFrame]
    """Returns the target at its newest version, and no later one."""
    partitioned: Sequence[str]
    """Partition columns whose values are judged: the table has refused a row."""
    longest_folder: Callable[[], int | None]
    """Returns how long the names of the table's folders may be (:func:`longest_folder`)."""
    lengths: bool
    """Also check chars and varchars declared alike at the origin.

    Only a writer that does not enforce them can break these.
    """

    @property
    def where(self) -> str:
        return f"{self.name.table}: at site {self.name.site}"

    def read(self) -> Constraints | None:
        """Return the constraints; None when every row can be written as it is.

        Raises SchemaError for constraints that no row can satisfy.
        """
        fields = {f.name: f for f in self.target.schema.fields}
        origin = {f.name.lower(): f for f in self.travelling.fields}
        carried = {name: origin[name.lower()].name for name in fields if name.lower() in origin}
        properties = self.properties
        metadata: dict[str, Mapping[str, Any]] = {}
        if may_compute_columns(properties):
            metadata = {
                entry["name"]: entry.get("metadata") or {} for entry in self.logged()["fields"]
            }
        generated = {
            name: str(entry[_GENERATED]) for name, entry in metadata.items() if _GENERATED in entry
        }
        identity = {
            name
            for name, entry in metadata.items()
            if any(key.startswith(_IDENTITY) for key in entry)
        }
        for name in identity & set(carried):
            self._check_identity(name, bool(metadata[name].get(f"{_IDENTITY}allowExplicitInsert")))
        values = {}
        for name, own in fields.items():
            if name not in carried:
                default = own.metadata.get("CURRENT_DEFAULT")
                value = F.expr(default) if default is not None else F.lit(None)
                values[name] = value.cast(own.dataType)
        computed = {name: text for name, text in generated.items() if name not in carried}
        constraints = Constraints(self.name, self.target, self.keys, carried, values, computed)
        optional = []
        for name, own in fields.items():
            if name in carried:
                self._add_carried(constraints, own, origin[name.lower()])
            elif name in computed:
                self._add_computed(constraints, own)
            elif name not in identity and (broken := _nulls(own)):
                optional.append((name, broken))
        self._check_defaults(constraints, optional)
        longest = self.longest_folder() if self.partitioned else None
        for name in self.partitioned:
            if name in carried:
                for cause, lost in unstorable(name, fields[name].dataType, longest):
                    constraints.add(cause, lost)
        for name, text in generated.items():
            if name in carried:
                differs = ~F.col(quoted(name)).eqNullSafe(F.expr(text).cast(fields[name].dataType))
                uses = self._local(text, carried)
                self._check_no_identity(f"generated column {name}", uses, identity)
                cause = f"generated column {name}: not equal to {text}"
                constraints.add(cause, differs, *uses, expression=text)
        for key, text in sorted(properties.items()):
            if key.startswith(_CONSTRAINT):
                cause = f"CHECK {key.removeprefix(_CONSTRAINT)}: {text}"
                uses = self._local(text, carried, cause)
                self._check_no_identity(cause, uses, identity)
                for name in list(uses):
                    if name in computed:
                        uses += self._local(computed[name], carried)
                broken_check = ~F.coalesce(F.expr(text), F.lit(False))
                constraints.add(cause, broken_check, *uses, expression=text)
        if constraints.joins:
            # Spark evaluates what it has cached once more when the table is written to in this
            # application, or an executor is lost. A row that counted as valid must not count as
            # refused then: it would be neither written nor a dead letter.
            constraints.target = self.pinned()
        return constraints if constraints.all else None

    def _add_carried(self, constraints: Constraints, own: StructField, origin: StructField) -> None:
        declared, at_origin = _declared(own), _declared(origin)
        self._check_char(own.name, declared, at_origin)
        broken = _nulls(own)
        if self.lengths or declared != at_origin:
            broken += _too_long_values(own)
        for cause, column in broken:
            constraints.add(cause, column)

    def _add_computed(self, constraints: Constraints, own: StructField) -> None:
        """Add the constraints of a generated column that does not travel."""
        expression = constraints.generated[own.name]
        uses = (own.name, *self._local(expression, constraints.carried))
        for cause, column in [*_nulls(own), *_too_long_values(own)]:
            constraints.add(cause, column, *uses)
        # Evaluates the expression, which may raise: no value has a length below 0.
        evaluated = F.length(F.to_json(F.struct(F.col(quoted(own.name))))) < 0
        constraints.add(f"generated column {own.name}: {expression}", evaluated, *uses)

    def _local(
        self, expression: str, carried: Mapping[str, str], what: str = "generated column"
    ) -> list[str]:
        """Return the columns that an expression uses and that do not travel."""

        def error_with(names: Sequence[str]) -> Exception | None:
            try:
                _ = self.target.select(*select_columns(names)).select(F.expr(expression)).schema
            except Exception as error:
                if ErrorKind.CANCELLED.matches(error):
                    raise
                return error
            return None

        names = [f.name for f in self.target.schema.fields]
        error = error_with(names)
        if error is not None:
            raise SchemaError(
                f"{self.where}: {what} cannot be evaluated ({error_text(error)}), so rows cannot "
                "be judged by it. The stream is held. Drop it "
                f"(ALTER TABLE {self.name.sql_name} DROP CONSTRAINT …), or make what it uses known "
                "to the receiver's session."
            )
        if error_with([name for name in names if name in carried]) is None:
            return []
        return [
            name
            for name in names
            if name not in carried and error_with([n for n in names if n != name]) is not None
        ]

    def _check_identity(self, name: str, by_default: bool) -> None:
        if by_default and (not self.keys or self._is_key(name)):
            return
        kind = "BY DEFAULT" if by_default else "ALWAYS"
        why = "takes values in inserts only" if by_default else "takes no values"
        raise SchemaError(
            f"{self.where}: column {name} is GENERATED {kind} AS IDENTITY here and travels, but "
            f"such a column {why}. The stream is held. Replace the table here by one whose column "
            f"{name} is no identity (a copy: CREATE TABLE … AS SELECT)."
        )

    def _check_no_identity(self, what: str, uses: Sequence[str], identity: set[str]) -> None:
        for name in uses:
            if name in identity:
                raise SchemaError(
                    f"{self.where}: {what} uses the identity column {name}, whose value is not "
                    "known before the row is written, so rows cannot be judged by it. The stream "
                    "is held. Drop the constraint "
                    f"(ALTER TABLE {self.name.sql_name} DROP CONSTRAINT …), or let it use other "
                    "columns."
                )

    def _check_char(self, name: str, here: DataType, origin: DataType) -> None:
        for path, own, theirs in _chars(name, here, origin):
            key = "key " if self._is_key(name) else ""
            raise SchemaError(
                f"{self.where}: {key}column {path} is {own} here and {theirs} at the origin. "
                "Values would be padded with blanks, so that rows differ and keys that end in "
                "blanks are taken for one another or never found. The stream is held. Change "
                f"the column here: ALTER TABLE {self.name.sql_name} ALTER COLUMN {quoted(name)} "
                "TYPE STRING (blanks that are there stay: UPDATE with rtrim), or replace the "
                f"table here by one whose column {name} is as at the origin."
            )

    def _check_defaults(
        self, constraints: Constraints, columns: Sequence[tuple[str, list[Violation]]]
    ) -> None:
        """Check that the defaults of NOT NULL columns that do not travel are not null."""
        if not columns:
            return
        row = self.spark.range(1).select(
            *(constraints.values[name].alias(name) for name, _ in columns)
        )
        violations = [(name, *violation) for name, broken in columns for violation in broken]
        (verdicts,) = row.select(
            *(F.coalesce(column, F.lit(False)) for _, _, column in violations)
        ).collect()
        for (name, cause, _), broken in zip(violations, verdicts, strict=True):
            if broken:
                raise SchemaError(
                    f"{self.where}: {cause}: the column does not travel, and an insert would leave "
                    "it null. The stream is held. Give it a default "
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


Violation = tuple[str, Column]
"""A cause, and whether a row has it."""
Rule = Callable[[str, DataType, Column, bool], Iterator[Violation]]
"""From the path, type, value and nullability of a column, field or element."""


def _nulls(own: StructField) -> list[Violation]:
    """Return where a column must not be null, at every depth."""

    def null(path: str, kind: DataType, value: Column, nullable: bool) -> Iterator[Violation]:
        if not nullable:
            yield f"null in NOT NULL column {path}", value.isNull()

    return _violations(null, own, own.dataType)


def _too_long_values(own: StructField) -> list[Violation]:
    """Return where a column's text must not be longer than declared, at every depth."""

    def too_long(path: str, kind: DataType, value: Column, nullable: bool) -> Iterator[Violation]:
        if isinstance(kind, (CharType, VarcharType)):
            yield f"too long for {kind.simpleString()} column {path}", F.length(value) > kind.length

    return _violations(too_long, own, _declared(own))


def _violations(rule: Rule, own: StructField, kind: DataType) -> list[Violation]:
    value = F.col(quoted(own.name))
    return list(_walk(rule, own.name, kind, value, own.nullable, inside=False))


def _walk(
    rule: Rule, path: str, kind: DataType, value: Column, nullable: bool, inside: bool
) -> Iterator[Violation]:
    """Apply a rule at every depth of a column. ``inside``: inside an array or a map."""

    def in_any(array: Column, part: str, kind: DataType, nullable: bool) -> Iterator[Violation]:
        return _in_any(
            array,
            lambda item: _walk(rule, f"{path}.{part}", kind, item, nullable, inside=True),
        )

    yield from rule(path, kind, value, nullable)
    if isinstance(kind, StructType):
        for f in kind.fields:
            item = value.getField(f.name)
            below = _walk(rule, f"{path}.{f.name}", f.dataType, item, f.nullable, inside)
            # Delta refuses a null struct with NOT NULL fields, but not inside arrays and maps.
            yield from (
                (cause, value.isNotNull() & broken if inside else broken) for cause, broken in below
            )
    elif isinstance(kind, ArrayType):
        yield from in_any(value, "element", kind.elementType, kind.containsNull)
    elif isinstance(kind, MapType):
        yield from in_any(F.map_keys(value), "key", kind.keyType, True)
        yield from in_any(F.map_values(value), "value", kind.valueType, kind.valueContainsNull)


def _in_any(array: Column, judge: Callable[[Column], Iterator[Violation]]) -> Iterator[Violation]:
    """Return what ``judge`` finds in any element of an array."""

    def broken_at(place: int) -> Callable[[Column], Column]:
        return lambda item: F.coalesce([*judge(item)][place][1], F.lit(False))

    for place, (cause, _) in enumerate(judge(F.lit(None))):
        yield cause, F.exists(array, broken_at(place))


def _chars(path: str, here: DataType, origin: DataType) -> Iterator[tuple[str, str, str]]:
    """Yield the chars here that are something else at the origin, at every depth."""
    if isinstance(here, CharType):
        if here != origin:
            yield path, here.simpleString(), origin.simpleString()
    elif isinstance(here, StructType) and isinstance(origin, StructType):
        theirs = {f.name.lower(): f.dataType for f in origin.fields}
        for f in here.fields:
            if f.name.lower() in theirs:
                yield from _chars(f"{path}.{f.name}", f.dataType, theirs[f.name.lower()])
    elif isinstance(here, ArrayType) and isinstance(origin, ArrayType):
        yield from _chars(f"{path}.element", here.elementType, origin.elementType)
    elif isinstance(here, MapType) and isinstance(origin, MapType):
        yield from _chars(f"{path}.key", here.keyType, origin.keyType)
        yield from _chars(f"{path}.value", here.valueType, origin.valueType)


def _declared(entry: StructField) -> DataType:
    """Return a column's type with the lengths of its chars and varchars."""
    text = (entry.metadata or {}).get(CHAR_VARCHAR)
    return DataType.fromDDL(text) if text else entry.dataType
