"""Stage *judge*: finds the events that the target would refuse, each with its cause."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F
from pyspark.sql.types import AtomicType, DataType

from spark_wan.delta.dataframes import first_of, select_columns
from spark_wan.delta.errors import ErrorKind, condition, error_text
from spark_wan.delta.sql import quoted
from spark_wan.errors import SchemaError
from spark_wan.events.operations import OP, Operation
from spark_wan.target.constraints import Constraint, Constraints
from spark_wan.target.rows import CAUSE, EventRows
from spark_wan.target.zones import SAMPLE, may_depend_on_zone, valid_elsewhere

MAX_RAISING = 50
"""Maximum number of rows in an apply for which a constraint may raise an error."""

_EVENT, _ROW, _THERE = "_wan_event", "_wan_row", "_wan_there"


def judge(rows: EventRows) -> EventRows:
    """Make dead letters of the events that the target refuses.

    Raises SchemaError when not the rows are wrong, but the constraint or the time zone.
    """
    if rows.constraints is None:
        return rows
    judged, refused = Judge(rows.constraints).judge(rows.frame, rows.persist)
    if refused:
        rows = rows.without(judged.where(F.col(CAUSE).isNotNull()))
    return replace(rows, frame=judged.where(F.col(CAUSE).isNull()).drop(CAUSE))


@dataclass(frozen=True)
class Judge:
    """Judges rows by the constraints ``by``."""

    by: Constraints

    def judge(
        self, rows: DataFrame, persist: Callable[[DataFrame], DataFrame]
    ) -> tuple[DataFrame, int]:
        """Return the rows with the column :data:`CAUSE`, and how many the target refuses."""
        judged = persist(self._judged(self._view(rows), {}))
        try:
            return judged, self._refused(judged)
        except SchemaError:
            raise
        except Exception as error:
            if ErrorKind.CANCELLED.matches(error):
                raise
            # Either a constraint raises, or the next line fails too: the rows cannot be read.
            view = persist(self._view(rows))
            bounds = _bounds(view)
        judged = persist(self._judged(view, self._raising(view, bounds)))
        return judged, self._refused(judged)

    def _refused(self, judged: DataFrame) -> int:
        """Return how many rows are refused. Raises SchemaError if most of a sample would be valid
        in the time zone of who wrote them: then not the rows are wrong."""
        refused = judged.where(F.col(CAUSE).isNotNull())
        count = refused.count()
        expressions = {each.cause: each for each in self.by.all if each.expression}
        if not count or not expressions:
            return count
        causes = refused.where(F.col(CAUSE).isin(list(expressions))).groupBy(CAUSE).count()
        for cause, rows in causes.collect():
            if self._depends_on_zone(refused.where(F.col(CAUSE) == cause), expressions[cause]):
                raise SchemaError(
                    f"{self.by.name.where}: {cause}: for {rows} rows of one "
                    "apply. They would be valid in another time zone: receivers compute in UTC, "
                    "and the writers at the origin seemingly did not. The stream is held. Drop the "
                    f"constraint here (ALTER TABLE {self.by.name.sql_name} DROP CONSTRAINT …); for "
                    "a generated column, replace the table here by one whose column is not "
                    "generated (a copy: CREATE TABLE … AS SELECT). Or let the origin's writers set "
                    "spark.sql.session.timeZone to UTC, and change the rows once more."
                )
        return count

    def _depends_on_zone(self, refused: DataFrame, constraint: Constraint) -> bool:
        view = self._computed(self._view(refused.drop(CAUSE)), F.lit(True))
        text = (str(constraint.expression) + constraint.cause).lower().replace("``", "`")
        # The others need not be of a type that can be collected.
        used = [name for name in view.columns if name.lower() in text and name != _EVENT]
        sample = view.select(*select_columns(used)).limit(SAMPLE)
        if not may_depend_on_zone(sample.schema, text):
            return False
        rows = sample.toArrow()
        valid = valid_elsewhere(refused.sparkSession, rows, sample.schema, constraint.broken)
        return 2 * valid > rows.num_rows

    def _judged(self, view: DataFrame, raising: Mapping[int, str]) -> DataFrame:
        """Return the events of a view with their causes, those of rows in ``raising`` as given."""
        alive = F.col(OP) != int(Operation.DESTROY)
        safe = alive & ~F.col(_ROW).isin(list(raising)) if raising else alive
        known = [F.when(F.col(_ROW) == row, F.lit(cause)) for row, cause in raising.items()]
        cause = F.when(alive, F.coalesce(*known, self._cause(safe), F.lit(None).cast("string")))
        judged = self._computed(view, safe).select(f"{_EVENT}.*", F.col(_ROW), cause.alias(CAUSE))
        return (_first_cause_per_event(judged) if self.by.joins else judged).drop(_ROW)

    def _cause(self, safe: Column, first: int | None = None) -> Column:
        """Return the cause by all constraints, or the ``first`` few, evaluated where ``safe``."""
        # Nested, since Spark may evaluate the right side of an AND before the left one.
        causes = (F.when(each.broken, F.lit(each.cause)) for each in self.by.all[:first])
        return F.when(safe, F.coalesce(*causes))

    def _view(self, rows: DataFrame) -> DataFrame:
        """Return the table's columns as they will be, beside each event and a row number.

        Columns have the target's names. Those that Delta computes are left out.
        """
        types = {f.name: f.dataType for f in self.by.target.schema.fields}
        event = F.struct(*select_columns(rows.columns)).alias(_EVENT)
        carried = [
            widened(F.col(quoted(name)), rows.schema[name].dataType, types[own]).alias(own)
            for own, name in self.by.carried.items()
        ]
        view = rows.select(event, F.monotonically_increasing_id().alias(_ROW), F.col(OP), *carried)
        local = sorted(self.by.needed - set(self.by.generated))
        values = [self.by.values[name] for name in local]
        if self.by.joins:
            owns = {name.lower(): own for own, name in self.by.carried.items()}
            keys = [owns[key.lower()] for key in self.by.keys]
            there = self.by.target.select(
                *(F.col(quoted(key)).alias(f"_wan_k{n}") for n, key in enumerate(keys)),
                *(F.col(quoted(name)).alias(f"_wan_l{n}") for n, name in enumerate(local)),
                F.lit(True).alias(_THERE),
            )
            view = view.join(
                there,
                [F.col(quoted(key)) == F.col(f"_wan_k{n}") for n, key in enumerate(keys)],
                "left",
            )
            values = [
                F.when(F.col(_THERE), F.col(f"_wan_l{n}")).otherwise(default)
                for n, default in enumerate(values)
            ]
        return view.select(
            _EVENT,
            _ROW,
            OP,
            *select_columns(list(self.by.carried)),
            *(
                value.cast(types[name]).alias(name)
                for name, value in zip(local, values, strict=True)
            ),
        )

    def _computed(self, view: DataFrame, safe: Column) -> DataFrame:
        """Add the columns that Delta computes, where it is ``safe``: they may raise."""
        types = {f.name: f.dataType for f in self.by.target.schema.fields}
        columns = (
            F.when(safe, F.expr(self.by.generated[name]).cast(types[name])).alias(name)
            for name in sorted(self.by.needed & set(self.by.generated))
        )
        return view.select("*", *columns)

    def _raising(self, view: DataFrame, bounds: Sequence[tuple[int, int]]) -> dict[int, str]:
        """Find the rows for which a constraint raises, by bisection: row number -> cause."""
        raising: dict[int, str] = {}
        for low, high in bounds:
            # Mostly one row raises: the first one is looked for, then whether there are others.
            while low <= high and self._error(view, low, high) is not None:
                row = self._first_raising(view, low, high)
                raising[row] = self._cause_of(view, row)
                if len(raising) > MAX_RAISING:
                    raise SchemaError(
                        f"{self.by.name.where}: {raising[row]} is raised, "
                        f"and the like for {MAX_RAISING} other rows of one apply. The stream is "
                        "held. Let the expression give false or null for them (try_cast, "
                        "try_divide, try_element_at), or drop it: ALTER TABLE "
                        f"{self.by.name.sql_name} DROP CONSTRAINT …"
                    )
                low = row + 1
        return raising

    def _first_raising(self, view: DataFrame, low: int, high: int) -> int:
        """Return the first row of those from ``low`` to ``high``, one of which raises."""
        while low < high:
            middle = (low + high) // 2
            if self._error(view, low, middle) is None:
                low = middle + 1
            else:
                high = middle
        return low

    def _cause_of(self, view: DataFrame, row: int) -> str:
        """Return the first constraint that raises for a row, and its error."""
        low, high = 1, len(self.by.all)
        while low < high:
            middle = (low + high) // 2
            if self._error(view, row, row, middle) is None:
                low = middle + 1
            else:
                high = middle
        error = self._error(view, row, row, low)
        text = "an error" if error is None else condition(error) or error_text(error)
        return f"{self.by.all[low - 1].cause}: {text}"

    def _error(
        self, view: DataFrame, low: int, high: int, first: int | None = None
    ) -> Exception | None:
        """Return what the constraints raise for the rows ``low`` to ``high``."""
        part = F.col(_ROW).between(low, high)
        safe = (F.col(OP) != int(Operation.DESTROY)) & part
        # Of a view that is cached, a filter reads the part alone. It does not make what is computed
        # safe: Spark may move it.
        computed = self._computed(view.where(part), safe)
        try:
            computed.select(F.count(self._cause(safe, first))).collect()
        except Exception as error:
            if ErrorKind.CANCELLED.matches(error):
                raise
            return error
        return None


def widened(value: Column, kind: DataType, target: DataType) -> Column:
    """Cast a value to its target's wider type: ``a + b`` may fit there and not here."""
    return value.cast(target) if isinstance(target, AtomicType) and kind != target else value


def _first_cause_per_event(judged: DataFrame) -> DataFrame:
    """Keep one row per event: a key may be in the target twice, and one refused row is enough."""
    return first_of(judged, Window.partitionBy(_ROW).orderBy(F.col(CAUSE).desc_nulls_last()))


def _bounds(view: DataFrame) -> list[tuple[int, int]]:
    """Return the first and the last row number of each partition."""
    ranges = view.groupBy(F.shiftright(_ROW, 33)).agg(F.min(_ROW), F.max(_ROW)).collect()
    return sorted((row[1], row[2]) for row in ranges)
