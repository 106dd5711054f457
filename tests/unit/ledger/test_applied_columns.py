"""Applied columns are followed through the target's history.

One that is renamed, dropped or replaced by another column holds its stream.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from fakes import STREAM, LedgerRows, Target, commit, memory_channel, publish, schema
from hypothesis import given, settings
from hypothesis import strategies as st

from spark_wan.apply.applier import ApplyResult, TableApplier
from spark_wan.delta.commits import Commit
from spark_wan.events.columns import column_paths
from spark_wan.ledger.applied_columns import AppliedColumns
from spark_wan.ledger.interfaces import TargetName
from spark_wan.ledger.ledger import Ledger
from spark_wan.log.stream_log import StreamLog
from spark_wan.steps import run
from spark_wan.wire.ledger import LedgerRow
from spark_wan.wire.mark import Mark

NAMES = ("a", "b", "c", "d")


def ddl(version: int, operation: str, **parameters: Any) -> Commit:
    texts = {
        name: value if isinstance(value, str) else json.dumps(value)
        for name, value in parameters.items()
    }
    return replace(commit(version, operation), parameters=texts, metrics={})


@dataclass
class Site:
    """A target with column identities of its own, and the applier of a stream.

    ``travelling``: the columns of the stream.
    """

    travelling: tuple[str, ...] = ("id", "a", "b")
    number: int = 0
    next_id: int = 10
    ids: dict[str, int] = field(default_factory=dict)
    applied: dict[str, int] = field(default_factory=dict)
    """What the test itself remembers: column -> its identity when it was applied."""
    done: int = 0

    def __post_init__(self) -> None:
        self.log = StreamLog(memory_channel(), STREAM)
        self.target = Target(self.log.channel, columns=schema(id="long"))
        self.ids["id"] = 1
        self.store = LedgerRows()
        self.restart()

    def restart(self) -> None:
        self.applier = TableApplier(
            "seattle", "orders", self.log, self.target, Ledger("seattle", "orders", self.store)
        )

    def lose_ledger(self) -> None:
        self.store.rows.clear()
        self.restart()

    def execute(self, operation: str, **parameters: Any) -> None:
        self.target.commits.append(
            ddl(self.target.commits[-1].version + 1, operation, **parameters)
        )
        self.target.columns = schema(**dict.fromkeys(self.ids, "long"))

    def rename(self, old: str, new: str) -> None:
        self.ids = {new if name == old else name: identity for name, identity in self.ids.items()}
        self.execute("RENAME COLUMN", oldColumnPath=old, newColumnPath=new)

    def drop(self, name: str) -> None:
        del self.ids[name]
        self.execute("DROP COLUMNS", columns=[name])

    def add(self, name: str) -> None:
        self.next_id += 1
        self.ids[name] = self.next_id
        self.execute("ADD COLUMNS", columns=[{"column": {"name": name}}])

    def replace_with(self, *names: str) -> None:
        """What is not named is dropped."""
        self.ids = {name: self.ids[name] for name in names}
        self.execute("REPLACE COLUMNS", columns=[{"name": name} for name in names])

    def publish(self) -> None:
        self.number += 1
        publish(self.log, self.number, schema=schema(**dict.fromkeys(self.travelling, "long")))

    def apply(self) -> ApplyResult:
        outcome = run(self.applier.round())
        for entry in self.target.columns["fields"]:
            if entry["name"] not in self.ids:  # the receiver has added it
                self.next_id += 1
                self.ids[entry["name"]] = self.next_id
        for number in range(self.done + 1, outcome.applied + 1):
            columns = (entry["name"] for entry in self.log.read(number).schema["fields"])
            ids = {name.lower(): identity for name, identity in self.ids.items()}
            self.applied = {**{name: ids[name] for name in columns}, **self.applied}
        self.done = outcome.applied
        return outcome


@pytest.fixture
def site() -> Site:
    """One epoch with the columns id, a and b is applied, another waits."""
    site = Site()
    site.publish()
    assert site.apply().applied == 1
    site.publish()
    return site


def assert_held(site: Site, told: str) -> None:
    """Assert a hold: now, again, after a restart, and after the ledger is lost."""
    written = list(site.target.written)
    columns = site.target.columns
    for before in (lambda: None, lambda: None, site.restart, site.lose_ledger):
        before()
        outcome = site.apply()
        assert outcome.held == site.number and told in str(outcome.cause), outcome.cause
        assert "for a copy run `spark-wan sync`" in str(outcome.cause)
    assert (site.target.written, site.target.columns) == (written, columns)


def test_f46_a_column_renamed_at_the_target_holds_the_stream_until_it_is_renamed_back(
    site: Site,
) -> None:
    """It is not added again without its values."""
    site.rename("a", "label")
    assert_held(site, "a is named label now")
    assert "ALTER TABLE `orders` RENAME COLUMN `label` TO `a`" in str(site.apply().cause)
    site.rename("label", "a")
    assert site.apply().applied == 2


def test_f46_a_column_dropped_at_the_target_holds_the_stream(site: Site) -> None:
    site.drop("a")
    assert_held(site, "a was dropped")


def test_f46_a_column_added_under_the_old_name_is_another_one(site: Site) -> None:
    """Its name and type are right, but it lacks the values."""
    site.drop("a")
    site.add("a")
    assert_held(
        site,
        "a was dropped, or was written to after it was renamed, and another column has its name "
        "now",
    )


def test_f46_columns_that_swap_names_hold_the_stream(site: Site) -> None:
    site.rename("a", "t")
    site.rename("b", "a")
    site.rename("t", "b")
    assert_held(site, "a is named b now; b is named a now")


def test_f46_replaced_columns_hold_the_stream(site: Site) -> None:
    site.replace_with("id", "b")
    site.add("a")
    assert_held(site, "a was dropped")


def test_f46_a_missing_column_that_the_history_does_not_mention_holds_the_stream(
    site: Site,
) -> None:
    """An overwrite with another schema names no columns in the history."""
    del site.ids["a"]
    site.execute("WRITE", mode="Overwrite")
    assert_held(site, "a is gone")


def test_f46_a_renamed_key_column_holds_the_stream(site: Site) -> None:
    site.rename("id", "number")
    assert_held(site, "id is named number now")


def test_case_order_and_columns_of_the_target_alone_do_not_matter(site: Site) -> None:
    site.add("mine")
    site.drop("mine")
    site.rename("a", "t")
    site.rename("t", "A")
    site.ids = dict(reversed(site.ids.items()))
    site.execute("CHANGE COLUMN", column={"name": "b"}, position="FIRST")
    site.execute("SET TBLPROPERTIES", properties={"delta.columnMapping.mode": "name"})
    assert site.apply().applied == 2


def test_a_column_that_exists_before_it_travels_is_used(site: Site) -> None:
    """A local user added it, or a receiver that was killed before it applied.

    If it is dropped before it travels, the receiver adds it again.
    """
    site.add("c")
    site.travelling = ("id", "a", "b", "c")
    site.publish()
    assert (site.apply().applied, site.apply().applied) == (2, 3)
    site.drop("c")
    site.publish()
    assert_held(site, "c was dropped")


def test_an_apply_of_another_stream_in_between_does_not_hide_a_rename(site: Site) -> None:
    """The first commit after the rename is an epoch that does not carry the column."""
    site.rename("a", "label")
    other = Site()
    other.target, other.store, other.travelling = site.target, site.store, ("id", "b")
    other.log = StreamLog(site.log.channel, "newark.west.orders")
    other.restart()
    columns = schema(id="long", b="long")
    publish(other.log, 1, schema=columns, table_id="9" * 36, origin="newark-west")
    other.ids = site.ids
    outcome = other.apply()
    assert (outcome.applied, outcome.held) == (1, None), outcome.cause
    assert_held(site, "a is named label now")
    site.rename("label", "a")
    assert site.apply().applied == 2


def test_renaming_back_does_not_undo_an_apply_planned_before_the_rename(
    site: Site,
) -> None:
    """Between plan and write the column was renamed, and another one added under its name.

    That one has the values.
    """

    def meanwhile() -> None:
        site.rename("a", "label")
        site.add("a")

    site.target.before_write.append(meanwhile)
    assert site.apply().applied == 2
    site.publish()
    site.drop("a")
    site.rename("label", "a")
    assert_held(site, "a was dropped, or was written to after it was renamed")


def test_marks_without_columns_are_read_and_followed_from_then_on() -> None:
    """A ledger from before columns were recorded has such marks."""
    site = Site()
    site.publish()
    site.apply()
    old = replace(
        Mark.read(site.target.commits[-1].user_metadata, "seattle", "orders"), columns=(), moved={}
    )  # type: ignore[type-var]
    assert old is not None and '"columns"' not in old.user_metadata()
    site.target.commits[-1] = replace(site.target.commits[-1], user_metadata=old.user_metadata())
    site.store.rows[:] = [LedgerRow("target-1", site.target.commits[-1].version, old)]
    site.restart()
    site.publish()
    assert site.apply().applied == 2
    site.drop("b")
    site.publish()
    assert_held(site, "b was dropped")


def test_the_mark_of_a_table_with_columns_is_read_and_written_the_same() -> None:
    """Golden bytes of the fields that a table with applied columns has."""
    site = Site()
    site.publish()
    site.apply()
    site.rename("a", "label")
    text = str(site.target.commits[1 if site.target.commits[1].user_metadata else 2].user_metadata)
    mark = Mark.read(text, "seattle", "orders")
    assert mark is not None and mark.user_metadata() == text
    mark = replace(mark, vector=None, logs=None, local=None)
    assert mark.user_metadata().endswith('"dead_letters":0}],"columns":["id","a","b"]}}')
    moved = replace(mark, moved={"a": "label", "b": None})
    assert moved.user_metadata().endswith(
        '"columns":["id","a","b"],"moved":{"a":"label","b":null}}}'
    )
    assert Mark.read(moved.user_metadata(), "seattle", "orders") == moved


def test_a_change_of_columns_that_the_history_does_not_explain_holds_the_stream(site: Site) -> None:
    site.execute("DROP COLUMNS")
    assert_held(site, "the table's history does not say of which columns")


def nested(**fields: Any) -> dict[str, Any]:
    return {"type": "struct", "fields": schema(**fields)["fields"]}


TRAVELLING = schema(
    id="long",
    **{
        "s": nested(x="long", y="long"),
        "list": {"type": "array", "elementType": nested(x="long"), "containsNull": True},
        "map": {
            "type": "map",
            "keyType": "string",
            "valueType": nested(x="long"),
            "valueContainsNull": True,
        },
        "a.b": nested(x="long"),
    },  # type: ignore[arg-type]
)


@pytest.mark.parametrize(
    ("operation", "parameters", "told"),
    [
        ("RENAME COLUMN", {"oldColumnPath": "s.x", "newColumnPath": "s.z"}, "s.x is named s.z now"),
        ("RENAME COLUMN", {"oldColumnPath": "s", "newColumnPath": "t"}, "s is named t now"),
        ("RENAME COLUMN", {"oldColumnPath": "`a.b`", "newColumnPath": "a"}, "`a.b` is named a now"),
        (
            "RENAME COLUMN",
            {"oldColumnPath": "`a.b`.x", "newColumnPath": "`a.b`.y"},
            "`a.b`.x is named `a.b`.y now",
        ),
        (
            "RENAME COLUMN",
            {"oldColumnPath": "list.element.x", "newColumnPath": "list.element.y"},
            "list.element.x is named",
        ),
        ("DROP COLUMNS", {"columns": ["Map.value.X"]}, "map.value.x was dropped"),
        ("DROP COLUMNS", {"columns": ["s"]}, "s was dropped"),
        ("DROP COLUMNS", {"columns": ["sx", "lis"]}, None),
    ],
)
def test_f46_a_moved_nested_field_is_reported_once(
    operation: str, parameters: dict[str, Any], told: str | None
) -> None:
    """Only the outermost moved field is named."""
    before = AppliedColumns().with_columns(column_paths(TRAVELLING))
    after = before.after(ddl(5, operation, **parameters))
    try:
        after.check(TRAVELLING, TRAVELLING, TargetName("orders", "seattle", "delta.`/o`"))
    except Exception as error:
        assert told is not None and f"as they were: {told}" in str(error)
        assert ";" not in str(error).split("as they were: ")[1].split(". They are")[0]
    else:
        assert told is None


@settings(max_examples=200, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.sampled_from(("rename", "drop", "add", "epoch", "apply", "restart", "lose")),
            st.integers(0, 9),
            st.integers(0, 9),
        ),
        max_size=25,
    )
)
def test_f46_random_changes_never_apply_a_column_to_another_one(
    steps: list[tuple[str, int, int]],
) -> None:
    """Random changes of columns between applies, with restarts and lost ledgers.

    The result is compared with column identities that the test itself keeps.
    """
    site = Site()
    site.publish()
    site.apply()
    for step, one, other in steps:
        names = [name for name in site.ids if name != "id"]
        free = [name for name in NAMES if name not in site.ids]
        if step == "rename" and names and free:
            site.rename(names[one % len(names)], free[other % len(free)])
        elif step == "drop" and names:
            site.drop(names[one % len(names)])
        elif step == "add" and free:
            site.add(free[other % len(free)])
        elif step == "epoch":
            if one % 3 == 0 and "c" not in site.travelling:
                site.travelling = (*site.travelling, "c")
            site.publish()
        elif step == "restart":
            site.restart()
        elif step == "lose":
            site.lose_ledger()
        elif step == "apply":
            waiting = [site.log.read(number) for number in range(site.done + 1, site.number + 1)]
            first = [entry["name"] for entry in waiting[0].schema["fields"]] if waiting else []
            same = all(
                site.ids.get(name) == identity
                for name, identity in site.applied.items()
                if name in first
            )
            written = len(site.target.written)
            outcome = site.apply()
            assert (outcome.held is None) == (same or not waiting), outcome.cause
            assert (len(site.target.written) > written) == (same and bool(waiting))
