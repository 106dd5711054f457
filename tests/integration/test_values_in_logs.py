"""No row, no key of a row and no key to sign with is in a log at INFO and above."""

from __future__ import annotations

import logging
import random
from pathlib import Path
from typing import Any

import pytest
from pair import Pair
from seeds import seed
from sites import NEWARK, SEATTLE

from spark_wan.errors import StreamsHeldError
from spark_wan.messages import JsonFormatter, TextFormatter

LETTERS = "bcdfghjklmnpqrstvwxz"


class Lines(logging.Handler):
    """What a log at INFO has, as text and as JSON, with the stacks of errors."""

    def __init__(self) -> None:
        super().__init__(logging.INFO)
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines += [each.format(record) for each in (TextFormatter(), JsonFormatter())]


def test_no_value_of_a_row_is_in_the_log(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows are sent, changed, deleted, refused by a constraint, and not sent for want of a key;
    then the source is truncated, which holds the stream. Fails when a message quotes what it is
    about."""
    chance = random.Random(seed())
    secrets: list[str] = []

    def value() -> str:
        secrets.append("".join(chance.choices(LETTERS, k=14)))
        return secrets[-1]

    monkeypatch.setenv("WAN_KEY_OF_THE_TEST", value() * 3)
    pair = Pair.of(tmp_path / "pair", {"people": {}})
    for site in (NEWARK, SEATTLE):
        pair.set_site(site, signing_keys=["env:WAN_KEY_OF_THE_TEST"])
    pair.make(spark, "people", "id STRING, name STRING, born DATE, weight DECIMAL(20, 3)")
    log, handler = logging.getLogger("spark_wan"), Lines()
    before = log.level
    log.addHandler(handler)
    log.setLevel(logging.INFO)

    def people(count: int) -> list[str]:
        rows = [(value(), value()) for _ in range(count)]
        number = chance.randrange(10**12, 10**13)
        secrets.append(str(number))
        told = ", ".join(f"('{k}', '{v}', DATE'1977-03-12', {number}.125)" for k, v in rows)
        pair.sql(spark, "people", f"INSERT INTO {{t}} VALUES {told}")
        return [key for key, _ in rows]

    try:
        first, second, third, *_ = people(5)
        pair.send(spark)
        pair.receive(spark)
        there = pair.name("people", SEATTLE)
        spark.sql(f"ALTER TABLE {there} ADD CONSTRAINT short CHECK (length(name) < 15)")
        pair.sql(spark, "people", f"UPDATE {{t}} SET name = '{value()}' WHERE id = '{first}'")
        pair.sql(spark, "people", f"UPDATE {{t}} SET name = '{value()}xx' WHERE id = '{second}'")
        pair.sql(spark, "people", f"DELETE FROM {{t}} WHERE id = '{third}'")
        without_key = f"(NULL, '{value()}', NULL, 1)"
        pair.sql(spark, "people", f"INSERT INTO {{t}} VALUES {without_key}")
        people(3)
        [sent] = pair.send(spark)
        applied = pair.receive(spark)["people"]
        assert sent.dead_letters and applied.dead_letters
        pair.sql(spark, "people", "TRUNCATE TABLE {t}")
        with pytest.raises(StreamsHeldError):
            pair.send(spark)
    finally:
        log.removeHandler(handler)
        log.setLevel(before)
    assert len(handler.lines) > 20 and any('"held"' in line for line in handler.lines)
    found = [line for line in handler.lines for each in secrets if each in line]
    assert found == [] and not any("1977" in line for line in handler.lines)
