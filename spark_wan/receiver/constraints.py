"""What a target table demands of its rows beyond their types, judged before they are written.

A row that the table would refuse becomes a dead letter with its own cause; a table that could take no row, or that would change or double
rows, holds its stream, and the message names the column and the way out. Delta's rules, tried out:

- An insert gives columns that do not travel their default, their generated value or the next identity; an update keeps what is there, and
  computes generated columns anew. So what concerns such columns is judged against the row as it will be: the target is read by key for it, and
  only then.
- ``CHECK`` refuses null as it refuses false. An expression that raises (a cast, a division by zero) ends the whole write: the rows are found by
  halving, in a path that costs nothing as long as none raises.
- ``NOT NULL`` in a struct refuses a null struct too. In arrays and maps Delta declares it and does not enforce it, so it is enforced here.
- A generated column that travels must equal its expression. An identity column takes no values in an update, and with ``ALWAYS`` none at all.
- ``VARCHAR`` and ``CHAR`` refuse what is longer, trailing blanks included; ``CHAR`` pads what is shorter, which changes rows and makes one key of two.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from spark_wan.delta.dataframes import map_in_arrow
from spark_wan.delta.errors import ErrorKind, condition, error_text
from spark_wan.delta.sql import quoted, reference
from spark_wan.errors import SchemaError
from spark_wan.events.columns import CHAR_VARCHAR
from spark_wan.events.operations import OP, Operation

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.types import DataType, StructField, StructType

CAUSE = "_wan_cause"
MAX_RAISING = 50
"""So many rows for which a constraint raises an error are looked for, one by one, in an apply."""

_EVENT, _ROW, _THERE = "_wan_event", "_wan_row", "_wan_there"
_GENERATED, _IDENTITY = "delta.generationExpression", "delta.identity."
_CONSTRAINT = "delta.constraints."


@dataclass(frozen=True)
class Constraint:
    """What a row must not be, over the columns of the table as they will be."""

    cause: str
    broken: Column


@dataclass
class Constraints:
    """The constraints of a target for the rows of one stream."""

    where: str
    """The table and the site, for messages."""
    name: str
    """The table's, in SQL."""
    target: DataFrame
    keys: tuple[str, ...]
    carried: Mapping[str, str]
    """The target's names of the columns that travel -> the names in the rows."""
    each: list[Constraint] = field(default_factory=list)
    values: dict[str, Column] = field(default_factory=dict)
    """Columns that do not travel -> what an insert gives them."""
    generated: dict[str, str] = field(default_factory=dict)
    """Of these, those that Delta computes for updates too -> their expressions."""
    needed: set[str] = field(default_factory=set)
    """Columns that do not travel and are used by a constraint."""

    def judge(
        self, rows: DataFrame, keep: Callable[[DataFrame], DataFrame]
    ) -> tuple[DataFrame, int]:
        """The rows with :data:`CAUSE`, null for those that the table takes, and how many it does not take. ``keep`` persists a frame."""
        from pyspark.sql import functions as F

        judged = keep(self._judged(self._view(rows), {}))
        try:
            return judged, judged.where(F.col(CAUSE).isNotNull()).count()
        except Exception as error:
            if ErrorKind.CANCELLED.matches(error):
                raise
            # A constraint raises, or the rows themselves cannot be read: the next line tells.
            view = keep(self._view(rows))
            bounds = _bounds(view)
        judged = keep(self._judged(view, self._raising(view, bounds)))
        return judged, judged.where(F.col(CAUSE).isNotNull()).count()

    def widened(self, rows: DataFrame, columns: Sequence[str]) -> DataFrame:
        """``columns`` of rows, as wide as the target's: an append does not cast those that a constraint uses."""
        from pyspark.sql import functions as F

        types = {f.name.lower(): f.dataType for f in self.target.schema.fields}
        return rows.select(
            *(
                _wide(F.col(quoted(n)), rows.schema[n].dataType, types[n.lower()]).alias(n)
                for n in columns
            )
        )

    def declared(self, rows: DataFrame, columns: Sequence[str]) -> DataFrame:
        """``rows`` with fields and elements declared NOT NULL where the target's are, as MERGE demands: fields travel as nullable. They were
        judged, so none is null, but for those of a destroy, which are not written."""
        from pyspark.sql import functions as F
        from pyspark.sql.types import StructField, StructType

        fields = {f.name.lower(): f.dataType for f in self.target.schema.fields}
        strict = {name for name in columns if _has_not_null(fields[name.lower()])}
        if not strict:
            return rows
        schema = StructType(
            [
                StructField(
                    f.name,
                    _strict(f.dataType, fields[f.name.lower()]) if f.name in strict else f.dataType,
                )
                for f in rows.schema
            ]
        )
        written = F.col(OP) != int(Operation.DESTROY)
        return map_in_arrow(
            rows.select(
                *(
                    F.when(written, F.col(quoted(name))).alias(name)
                    if name in strict
                    else F.col(quoted(name))
                    for name in rows.columns
                )
            ),
            _as_they_are,
            schema,
        )

    # --- judging

    def _judged(self, view: DataFrame, raising: Mapping[int, str]) -> DataFrame:
        """The events of a view, each with its cause; for the rows in ``raising`` it is known."""
        from pyspark.sql import functions as F

        alive = F.col(OP) != int(Operation.DESTROY)
        safe = alive & ~F.col(_ROW).isin(list(raising)) if raising else alive
        known = [F.when(F.col(_ROW) == row, F.lit(cause)) for row, cause in raising.items()]
        cause = F.when(alive, F.coalesce(*known, self._cause(safe), F.lit(None).cast("string")))
        judged = self._computed(view, safe).select(f"{_EVENT}.*", F.col(_ROW), cause.alias(CAUSE))
        return (_worst_of_each(judged) if self._joins else judged).drop(_ROW)

    def _cause(self, safe: Column, first: int | None = None) -> Column:
        """What is wrong with a row, by all constraints or the ``first`` few, evaluated where it is ``safe``."""
        from pyspark.sql import functions as F

        # Nested, as Spark computes what stands beside an AND in several places before it.
        causes = (F.when(each.broken, F.lit(each.cause)) for each in self.each[:first])
        return F.when(safe, F.coalesce(*causes))

    @property
    def _joins(self) -> bool:
        return bool(self.keys and self.needed - set(self.generated))

    def _view(self, rows: DataFrame) -> DataFrame:
        """The columns of the table as they will be, by the target's names, beside the event itself and a number; without those that are computed."""
        from pyspark.sql import functions as F

        types = {f.name: f.dataType for f in self.target.schema.fields}
        event = F.struct(*(F.col(quoted(name)) for name in rows.columns)).alias(_EVENT)
        carried = [
            _wide(F.col(quoted(name)), rows.schema[name].dataType, types[own]).alias(own)
            for own, name in self.carried.items()
        ]
        view = rows.select(event, F.monotonically_increasing_id().alias(_ROW), F.col(OP), *carried)
        local = sorted(self.needed - set(self.generated))
        present = [self.values[name] for name in local]
        if self._joins:
            owns = {name.lower(): own for own, name in self.carried.items()}
            keys = [owns[key.lower()] for key in self.keys]
            there = self.target.select(
                *(F.col(quoted(key)).alias(f"_wan_k{n}") for n, key in enumerate(keys)),
                *(F.col(quoted(name)).alias(f"_wan_l{n}") for n, name in enumerate(local)),
                F.lit(True).alias(_THERE),
            )
            view = view.join(
                there,
                [F.col(quoted(key)) == F.col(f"_wan_k{n}") for n, key in enumerate(keys)],
                "left",
            )
            present = [
                F.when(F.col(_THERE), F.col(f"_wan_l{n}")).otherwise(default)
                for n, default in enumerate(present)
            ]
        return view.select(
            *(F.col(name) for name in (_EVENT, _ROW, OP)),
            *(F.col(quoted(own)) for own in self.carried),
            *(
                value.cast(types[name]).alias(name)
                for name, value in zip(local, present, strict=True)
            ),
        )

    def _computed(self, view: DataFrame, safe: Column) -> DataFrame:
        """A view with the columns that Delta computes, where it is ``safe``: they may raise."""
        from pyspark.sql import functions as F

        types = {f.name: f.dataType for f in self.target.schema.fields}
        computed = sorted(self.needed & set(self.generated))
        columns = (
            F.when(safe, F.expr(self.generated[name]).cast(types[name])).alias(name)
            for name in computed
        )
        return view.select("*", *columns)

    # --- constraints that raise

    def _raising(self, view: DataFrame, bounds: Sequence[tuple[int, int]]) -> dict[int, str]:
        """The rows, by their numbers, for which a constraint raises, each with its cause; found by halving."""
        found: dict[int, str] = {}
        waiting = [(low, high) for low, high in bounds if self._error(view, low, high) is not None]
        while waiting:
            low, high = waiting.pop()
            if low == high:
                found[low] = self._cause_of(view, low)
                if len(found) > MAX_RAISING:
                    raise SchemaError(
                        f"{self.where}: {found[low]} is raised, and the like for {MAX_RAISING} other rows of one apply. The stream is held. Let "
                        "the expression give false or null for them (try_cast, try_divide, try_element_at), or drop it: ALTER TABLE "
                        f"{self.name} DROP CONSTRAINT …"
                    )
                continue
            middle = (low + high) // 2
            left = self._error(view, low, middle) is not None
            if left:
                waiting.append((low, middle))
            if not left or self._error(view, middle + 1, high) is not None:
                waiting.append((middle + 1, high))
        return found

    def _cause_of(self, view: DataFrame, row: int) -> str:
        """The first constraint that raises for a row, and what."""
        low, high = 1, len(self.each)
        while low < high:
            middle = (low + high) // 2
            if self._error(view, row, row, middle) is None:
                low = middle + 1
            else:
                high = middle
        error = self._error(view, row, row, low)
        what = "an error" if error is None else condition(error) or error_text(error)
        return f"{self.each[low - 1].cause}: {what}"

    def _error(
        self, view: DataFrame, low: int, high: int, first: int | None = None
    ) -> Exception | None:
        """What the constraints raise for the rows from one number to another."""
        from pyspark.sql import functions as F

        safe = (F.col(OP) != int(Operation.DESTROY)) & F.col(_ROW).between(low, high)
        try:
            self._computed(view, safe).select(F.count(self._cause(safe, first))).collect()
        except Exception as error:
            if ErrorKind.CANCELLED.matches(error):
                raise
            return error
        return None


def constraints_of(
    spark: SparkSession,
    table: str,
    site: str,
    location: str,
    target: DataFrame,
    travelling: StructType,
    keys: tuple[str, ...],
    written: Callable[[], Mapping[str, Any]],
    lengths: bool,
) -> Constraints | None:
    """The constraints of a table for rows with the columns ``travelling``; None when each such row can be written as it is.

    ``written`` gives the table's columns as its log has them, which alone tells of generated columns. ``lengths``: judge also those of chars and
    varchars that the origin has declared alike, which only a writer that does not enforce them can break. Raises SchemaError."""
    return _Reader(spark, table, site, location, target, travelling, keys, written, lengths).read()


@dataclass
class _Reader:
    spark: SparkSession
    table: str
    site: str
    location: str
    target: DataFrame
    travelling: StructType
    keys: tuple[str, ...]
    written: Callable[[], Mapping[str, Any]]
    lengths: bool

    def read(self) -> Constraints | None:
        from pyspark.sql import functions as F

        self.where, self.name = f"{self.table}: at site {self.site}", reference(self.location)
        fields = {f.name: f for f in self.target.schema.fields}
        names = {f.name.lower(): f for f in self.travelling.fields}
        carried = {name: names[name.lower()].name for name in fields if name.lower() in names}
        properties = {
            row[0]: row[1] for row in self.spark.sql(f"SHOW TBLPROPERTIES {self.name}").collect()
        }
        metadata: dict[str, Mapping[str, Any]] = {}
        if _may_compute_columns(properties):
            metadata = {
                entry["name"]: entry.get("metadata") or {} for entry in self.written()["fields"]
            }
        generated = {
            name: str(found[_GENERATED]) for name, found in metadata.items() if _GENERATED in found
        }
        identity = {
            name
            for name, found in metadata.items()
            if any(key.startswith(_IDENTITY) for key in found)
        }
        for name in identity & set(carried):
            self._check_identity(name, bool(metadata[name].get(f"{_IDENTITY}allowExplicitInsert")))
        found = Constraints(self.where, self.name, self.target, self.keys, carried)
        for name, own in fields.items():
            if name not in carried:
                default = own.metadata.get("CURRENT_DEFAULT")
                value = F.expr(default) if default is not None else F.lit(None)
                found.values[name] = value.cast(own.dataType)
        found.generated = {name: text for name, text in generated.items() if name not in carried}

        def add(cause: str, broken: Column, *uses: str) -> None:
            found.needed.update(uses)
            found.each.append(Constraint(cause, broken))

        plain = []
        for name, own in fields.items():
            if name in identity and name not in carried:
                continue
            broken = list(_nulls(name, own.nullable, own.dataType, F.col(quoted(name))))
            if name in carried:
                declared, origin = _declared(own), _declared(names[name.lower()])
                self._check_char(name, declared, origin)
                if self.lengths or declared != origin:
                    broken += _too_long(name, declared, F.col(quoted(name)))
                for cause, column in broken:
                    add(cause, column)
            elif name in found.generated:
                for cause, column in [
                    *broken,
                    *_too_long(name, _declared(own), F.col(quoted(name))),
                ]:
                    add(cause, column, name, *self._local(found.generated[name], carried))
                # Its error alone would be in the way: no value has a length below 0.
                text = f"generated column {name}: {found.generated[name]}"
                evaluated = F.length(F.to_json(F.struct(F.col(quoted(name))))) < 0
                add(text, evaluated, name, *self._local(found.generated[name], carried))
            elif broken:
                plain.append((name, broken))
        self._check_plain(found, plain)
        for name, text in generated.items():
            if name in carried:
                differs = ~F.col(quoted(name)).eqNullSafe(F.expr(text).cast(fields[name].dataType))
                uses = self._local(text, carried)
                self._check_no_identity(f"generated column {name}", uses, identity)
                add(f"generated column {name}: not equal to {text}", differs, *uses)
        for key, text in sorted(properties.items()):
            if key.startswith(_CONSTRAINT):
                cause = f"CHECK {key.removeprefix(_CONSTRAINT)}: {text}"
                uses = self._local(text, carried, cause)
                self._check_no_identity(cause, uses, identity)
                for name in list(uses):
                    if name in found.generated:
                        uses += self._local(found.generated[name], carried)
                add(cause, ~F.coalesce(F.expr(text), F.lit(False)), *uses)
        return found if found.each else None

    def _local(
        self, text: str, carried: Mapping[str, str], what: str = "generated column"
    ) -> list[str]:
        """The columns that an expression uses and that do not travel."""
        from pyspark.sql import functions as F

        def resolves(names: Sequence[str]) -> Exception | None:
            try:
                _ = (
                    self.target.select(*(F.col(quoted(name)) for name in names))
                    .select(F.expr(text))
                    .schema
                )
            except Exception as error:
                if ErrorKind.CANCELLED.matches(error):
                    raise
                return error
            return None

        every = [f.name for f in self.target.schema.fields]
        error = resolves(every)
        if error is not None:
            raise SchemaError(
                f"{self.where}: {what} cannot be evaluated ({error_text(error)}), so rows cannot be judged by it. The stream is held. "
                f"Drop it (ALTER TABLE {self.name} DROP CONSTRAINT …), or make what it uses known to the receiver's session."
            )
        if resolves([name for name in every if name in carried]) is None:
            return []
        return [
            name
            for name in every
            if name not in carried
            and resolves([each for each in every if each != name]) is not None
        ]

    # --- what no row can satisfy

    def _check_identity(self, name: str, by_default: bool) -> None:
        if by_default and (not self.keys or name.lower() in {key.lower() for key in self.keys}):
            return
        kind = "BY DEFAULT" if by_default else "ALWAYS"
        why = "takes values in inserts only" if by_default else "takes no values"
        raise SchemaError(
            f"{self.where}: column {name} is GENERATED {kind} AS IDENTITY here and travels, but such a column {why}. The stream is held. "
            f"Replace the table here by one whose column {name} is no identity (a copy: CREATE TABLE … AS SELECT)."
        )

    def _check_no_identity(self, what: str, uses: Sequence[str], identity: set[str]) -> None:
        for name in uses:
            if name in identity:
                raise SchemaError(
                    f"{self.where}: {what} uses the identity column {name}, whose value is not known before the row is written, so rows cannot be "
                    f"judged by it. The stream is held. Drop the constraint (ALTER TABLE {self.name} DROP CONSTRAINT …), or let it use other columns."
                )

    def _check_char(self, name: str, here: DataType, origin: DataType) -> None:
        for path, own, theirs in _chars(name, here, origin):
            key = "key " if name.lower() in {each.lower() for each in self.keys} else ""
            raise SchemaError(
                f"{self.where}: {key}column {path} is {own} here and {theirs} at the origin. Values would be padded with blanks, so that "
                "rows differ and keys that end in blanks are taken for one another or never found. The stream is held. Change the column here: "
                f"ALTER TABLE {self.name} ALTER COLUMN {quoted(name)} TYPE STRING (blanks that are there stay: UPDATE with rtrim), or replace the table here by one "
                f"whose column {name} is as at the origin."
            )

    def _check_plain(
        self, found: Constraints, plain: Sequence[tuple[str, Sequence[tuple[str, Column]]]]
    ) -> None:
        """A column that does not travel, is neither generated nor identity, and must not be null: its default decides, for all inserts."""
        from pyspark.sql import functions as F

        if not plain:
            return
        row = self.spark.range(1).select(*(found.values[name].alias(name) for name, _ in plain))
        told = row.select(
            *(F.coalesce(column, F.lit(False)) for _, broken in plain for _, column in broken)
        ).collect()[0]
        verdicts = iter(told)
        for name, broken in plain:
            for cause, _ in broken:
                if next(verdicts):
                    raise SchemaError(
                        f"{self.where}: {cause}: the column does not travel, and an insert would leave it null. The stream is held. Give it a "
                        f"default (ALTER TABLE {self.name} SET TBLPROPERTIES ('delta.feature.allowColumnDefaults' = 'supported'), then "
                        f"ALTER COLUMN {quoted(name)} SET DEFAULT …), or allow nulls (ALTER COLUMN {quoted(name)} DROP NOT NULL)."
                    )


def _may_compute_columns(properties: Mapping[str, str]) -> bool:
    """Whether the table's protocol allows generated or identity columns: by their features, or by a version from before features."""
    features = ("delta.feature.generatedColumns", "delta.feature.identityColumns")
    return any(name in properties for name in features) or properties.get(
        "delta.minWriterVersion"
    ) in ("4", "5", "6")


def _nulls(
    path: str, nullable: bool, kind: DataType, value: Column, *, inside: bool = False
) -> Iterator[tuple[str, Column]]:
    """What must not be null in a column and is, at every depth, each with its cause."""
    from pyspark.sql import functions as F
    from pyspark.sql.types import ArrayType, MapType, StructType

    if not nullable:
        yield f"null in NOT NULL column {path}", value.isNull()
    if isinstance(kind, StructType):
        for each in kind.fields:
            below = _nulls(
                f"{path}.{each.name}",
                each.nullable,
                each.dataType,
                value.getField(each.name),
                inside=inside,
            )
            # Delta refuses a null struct with such fields, but not where it does not look.
            yield from (
                (cause, value.isNotNull() & broken if inside else broken) for cause, broken in below
            )
    elif isinstance(kind, ArrayType):
        yield from _in_each(
            value,
            lambda item: _nulls(
                f"{path}.element", kind.containsNull, kind.elementType, item, inside=True
            ),
        )
    elif isinstance(kind, MapType):
        keys, values = F.map_keys(value), F.map_values(value)
        yield from _in_each(
            keys, lambda item: _nulls(f"{path}.key", True, kind.keyType, item, inside=True)
        )
        yield from _in_each(
            values,
            lambda item: _nulls(
                f"{path}.value", kind.valueContainsNull, kind.valueType, item, inside=True
            ),
        )


def _too_long(path: str, kind: DataType, value: Column) -> Iterator[tuple[str, Column]]:
    """Texts that are longer than declared, at every depth, each with its cause."""
    from pyspark.sql import functions as F
    from pyspark.sql.types import ArrayType, CharType, MapType, StructType, VarcharType

    if isinstance(kind, (CharType, VarcharType)):
        yield f"too long for {kind.simpleString()} column {path}", F.length(value) > kind.length
    elif isinstance(kind, StructType):
        for each in kind.fields:
            yield from _too_long(f"{path}.{each.name}", each.dataType, value.getField(each.name))
    elif isinstance(kind, ArrayType):
        yield from _in_each(
            value, lambda item: _too_long(f"{path}.element", kind.elementType, item)
        )
    elif isinstance(kind, MapType):
        yield from _in_each(
            F.map_keys(value), lambda item: _too_long(f"{path}.key", kind.keyType, item)
        )
        yield from _in_each(
            F.map_values(value), lambda item: _too_long(f"{path}.value", kind.valueType, item)
        )


def _in_each(
    array: Column, judge: Callable[[Column], Iterator[tuple[str, Column]]]
) -> Iterator[tuple[str, Column]]:
    """What ``judge`` finds in any element of an array."""
    from pyspark.sql import functions as F

    def broken_at(place: int) -> Callable[[Column], Column]:
        return lambda item: F.coalesce([*judge(item)][place][1], F.lit(False))

    for place, (cause, _) in enumerate(judge(F.lit(None))):
        yield cause, F.exists(array, broken_at(place))


def _chars(path: str, here: DataType, origin: DataType) -> Iterator[tuple[str, str, str]]:
    """Chars here that are something else at the origin, at every depth."""
    from pyspark.sql.types import ArrayType, CharType, MapType, StructType

    if isinstance(here, CharType):
        if here != origin:
            yield path, here.simpleString(), origin.simpleString()
    elif isinstance(here, StructType) and isinstance(origin, StructType):
        theirs = {f.name.lower(): f.dataType for f in origin.fields}
        for each in here.fields:
            if each.name.lower() in theirs:
                yield from _chars(f"{path}.{each.name}", each.dataType, theirs[each.name.lower()])
    elif isinstance(here, ArrayType) and isinstance(origin, ArrayType):
        yield from _chars(f"{path}.element", here.elementType, origin.elementType)
    elif isinstance(here, MapType) and isinstance(origin, MapType):
        yield from _chars(f"{path}.key", here.keyType, origin.keyType)
        yield from _chars(f"{path}.value", here.valueType, origin.valueType)


def _declared(entry: StructField) -> DataType:
    """A column's type with the lengths of its chars and varchars."""
    from pyspark.sql.types import DataType

    text = (entry.metadata or {}).get(CHAR_VARCHAR)
    return DataType.fromDDL(text) if text else entry.dataType


def _has_not_null(kind: DataType) -> bool:
    """Whether something inside a type must not be null."""
    from pyspark.sql.types import ArrayType, MapType, StructType

    if isinstance(kind, StructType):
        return any(not each.nullable or _has_not_null(each.dataType) for each in kind.fields)
    if isinstance(kind, ArrayType):
        return not kind.containsNull or _has_not_null(kind.elementType)
    if isinstance(kind, MapType):
        return (
            not kind.valueContainsNull
            or _has_not_null(kind.keyType)
            or _has_not_null(kind.valueType)
        )
    return False


def _strict(kind: DataType, wanted: DataType) -> DataType:
    """A type, its fields in their order, with NOT NULL where ``wanted`` has it."""
    from pyspark.sql.types import ArrayType, MapType, StructField, StructType

    if isinstance(kind, StructType) and isinstance(wanted, StructType):
        theirs = {each.name.lower(): each for each in wanted.fields}
        return StructType(
            [
                StructField(f.name, _strict(f.dataType, own.dataType), own.nullable)
                if (own := theirs.get(f.name.lower())) is not None
                else f
                for f in kind.fields
            ]
        )
    if isinstance(kind, ArrayType) and isinstance(wanted, ArrayType):
        return ArrayType(_strict(kind.elementType, wanted.elementType), wanted.containsNull)
    if isinstance(kind, MapType) and isinstance(wanted, MapType):
        key, value = (
            _strict(kind.keyType, wanted.keyType),
            _strict(kind.valueType, wanted.valueType),
        )
        return MapType(key, value, wanted.valueContainsNull)
    return kind


def _wide(value: Column, has: DataType, wanted: DataType) -> Column:
    """A value as the target's column will hold it, which may be wider: ``a + b`` may fit there and not here."""
    from pyspark.sql.types import AtomicType

    return value.cast(wanted) if isinstance(wanted, AtomicType) and has != wanted else value


def _worst_of_each(judged: DataFrame) -> DataFrame:
    """One row for each event: a key may be there more than once, and one row that refuses is enough."""
    from pyspark.sql import Window
    from pyspark.sql import functions as F

    window = Window.partitionBy(_ROW).orderBy(F.col(CAUSE).desc_nulls_last())
    return (
        judged.withColumn("_wan_place", F.row_number().over(window))
        .where("_wan_place = 1")
        .drop("_wan_place")
    )


def _bounds(numbered: DataFrame) -> list[tuple[int, int]]:
    """The first and the last number of the rows of each partition."""
    from pyspark.sql import functions as F

    found = numbered.groupBy(F.shiftright(_ROW, 33)).agg(F.min(_ROW), F.max(_ROW)).collect()
    return sorted((row[1], row[2]) for row in found)


def _as_they_are(batches: Any) -> Any:
    return batches
