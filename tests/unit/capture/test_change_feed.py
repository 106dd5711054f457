"""The change feed, without Spark: strings that need a check, and the session that reads it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

from spark_wan.capture.change_feed import JAVA_TIME, feed_session, has_replacements, refused
from spark_wan.delta.sessions import interrupt
from spark_wan.errors import UnreadableChangeError

REPLACED = "a\ufffdb"
SCHEMA = {"fields": [{"name": "id", "type": "long"}, {"name": "no.te`", "type": "string"}]}


@pytest.mark.parametrize(
    ("values", "kind", "expected"),
    [
        ([REPLACED], pa.string(), True),
        (["plain"] * 9 + [REPLACED], pa.large_string(), True),
        ([["a", None], None, [REPLACED]], pa.list_(pa.string()), True),
        ([[("a", 1)], [(REPLACED, 2)]], pa.map_(pa.string(), pa.int64()), True),
        (
            [[("a", [{"of": REPLACED}])]],
            pa.map_(pa.string(), pa.list_(pa.struct([("of", pa.string())]))),
            True,
        ),
        (["Zürich 東京", "", None], pa.string(), False),
        ([["a"]], pa.list_(pa.string()), False),
        ([REPLACED.encode()], pa.binary(), False),
        ([0xBDBFEF], pa.int64(), False),
    ],
)
def test_replacement_characters_are_detected_at_any_depth(
    values: Any, kind: pa.DataType, expected: bool
) -> None:
    array = pa.array(values, kind)
    batch = pa.record_batch({"id": pa.array(range(len(values))), "value": array})
    assert has_replacements(batch) is expected
    assert has_replacements(batch.slice(0, 0)) in (False, expected)


def test_the_error_names_column_and_version() -> None:
    """It is part of the text of a Spark error."""
    error = RuntimeError(
        "Job aborted.\n"
        "[USER_RAISED_EXCEPTION] spark_wan: refused text 1 42 SQLSTATE: P0001\n\tat org"
    )
    refusal = refused(error, "orders", SCHEMA)
    assert isinstance(refusal, UnreadableChangeError)
    assert refusal.version == 42
    assert "orders: column 'no.te`' has text that is not valid UTF-8 in version 42." in str(refusal)
    assert refused(RuntimeError("[USER_RAISED_EXCEPTION] too large"), "orders", SCHEMA) is None


# --- the session ----------------------------------------------------------------------------------


class Conf:
    def __init__(self, values: dict[str, str]) -> None:
        self.values = dict(values)

    def get(self, name: str, default: str | None = None) -> str | None:
        return self.values.get(name, default)

    def set(self, name: str, value: str) -> None:
        self.values[name] = value

    def unset(self, name: str) -> None:
        del self.values[name]


class Session:
    def __init__(self, **values: str) -> None:
        self.conf = Conf(values)
        self.tags: set[str] = set()
        self.interrupted: list[str] = []
        self.ended: list[str] = []
        self.clones: list[Session] = []
        self.client = SimpleNamespace(
            release_session=lambda: self.ended.append("released"),
            close=lambda: self.ended.append("closed"),
        )

    def getTags(self) -> set[str]:
        return set(self.tags)

    def addTag(self, tag: str) -> None:
        self.tags.add(tag)

    def interruptTag(self, tag: str) -> None:
        assert not self.ended
        self.interrupted.append(tag)

    def cloneSession(self) -> Session:
        clone = type(self)(**self.conf.values)
        self.clones.append(clone)
        return clone


class RemoteSession(Session):
    __module__ = "pyspark.sql.connect.session"


@pytest.mark.parametrize("chosen", [{}, {JAVA_TIME: "false"}])
def test_a_classic_session_gets_its_setting_back(chosen: dict[str, str]) -> None:
    session: Any = Session(**chosen)
    with pytest.raises(ZeroDivisionError), feed_session(session) as used:
        assert used is session
        assert session.conf.values == {JAVA_TIME: "true"}
        raise ZeroDivisionError
    assert session.conf.values == chosen


def test_a_remote_session_is_not_changed() -> None:
    """The feed is read in a copy, which an interrupt reaches and which is released at the end."""
    session: Any = RemoteSession(zone="UTC")
    session.addTag("sender")
    with pytest.raises(ZeroDivisionError), feed_session(session):
        (clone,) = session.clones
        assert clone.conf.values == {"zone": "UTC", JAVA_TIME: "true"}
        assert clone.tags == {"sender"}
        interrupt(session, "sender")
        raise ZeroDivisionError
    interrupt(session, "sender")
    assert (session.interrupted, clone.interrupted) == (["sender", "sender"], ["sender"])
    assert clone.ended == ["released", "closed"]
    assert session.conf.values == {"zone": "UTC"}
