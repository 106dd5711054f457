"""The change feed, without Spark: strings that need a check, and the session that reads it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

from spark_wan.capture.altered_values import JAVA_TIME, feed_settings, has_replacements, refused
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


@pytest.mark.parametrize("chosen", [{}, {JAVA_TIME: "false"}])
def test_a_session_gets_its_setting_back(chosen: dict[str, str]) -> None:
    session: Any = SimpleNamespace(conf=Conf(chosen))
    with pytest.raises(ZeroDivisionError), feed_settings(session):
        assert session.conf.values == {JAVA_TIME: "true"}
        raise ZeroDivisionError
    assert session.conf.values == chosen
