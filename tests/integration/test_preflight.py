"""A check before the start finds what would hold the jobs, in their words, and changes nothing.

Tables with a fault each: at the source, and at the target. What the check says of each is compared
with what the job says that meets the fault afterwards.
"""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from pair import Pair
from sites import NEWARK, SEATTLE, Sites

import spark_wan
from spark_wan.cli import launcher
from spark_wan.cli.app import main
from spark_wan.errors import WanError
from spark_wan.rehearsal.findings import SOURCE, TARGET, Finding, Part, Preflight, Verdict
from spark_wan.sender.job import Sender

FEED = "TBLPROPERTIES (delta.enableChangeDataFeed = true)"
ROWS = "INSERT INTO {t} SELECT id, id * 2 AS x FROM range(5)"
PLAIN = (f"CREATE TABLE {{t}} (id BIGINT, x BIGINT) USING delta {FEED}", ROWS)
FROM_0: Mapping[str, Any] = {"start": {"version": 0}}


def files(folder: Path) -> dict[str, tuple[int, bytes]]:
    """Return everything below a folder: files with their times and content, and folders."""
    return {
        str(path.relative_to(folder)): (
            (path.stat().st_mtime_ns, path.read_bytes()) if path.is_file() else (0, b"")
        )
        for path in sorted(folder.rglob("*"))
    }


@contextmanager
def unchanged(folder: Path) -> Iterator[None]:
    """Check that the body changes nothing below a folder."""
    before = files(folder)
    yield
    after = files(folder)
    assert after.keys() == before.keys()
    assert [path for path in after if after[path] != before[path]] == []


def checked(spark: Any, sites: Sites, **options: Any) -> Preflight:
    """Run the check, which changes nothing."""
    with unchanged(sites.folder):
        return spark_wan.preflight(spark, sites.topology, **options)


def part(found: Preflight, kind: str, table: str) -> Part:
    names = {SOURCE: f"{NEWARK}.east.{table}", TARGET: table}
    (one,) = (each for each in found.parts if (each.kind, each.name) == (kind, names[kind]))
    return one


def worst(one: Part) -> list[Finding]:
    return [each for each in one.findings if each.verdict is one.verdict]


@dataclass(frozen=True)
class Fault:
    """A table that its job holds, and what is said of it."""

    says: str
    """A part of the message."""
    made: Sequence[str] = PLAIN
    """Statements on the table; ``{t}`` stands for its name, ``{p}`` for its path."""
    settings: Mapping[str, Any] = field(default_factory=dict)
    keys_only: bool = False
    """Only rows show it."""
    check: str = "start"
    target: Sequence[str] = ()
    """Statements on the table at the site that receives."""


SOURCES = {
    "sound": Fault("", PLAIN),
    "absent": Fault("there is no Delta table at", ()),
    "no_feed": Fault(
        "its change feed is off", ("CREATE TABLE {t} (id BIGINT, x BIGINT) USING delta", ROWS)
    ),
    "late_feed": Fault(
        "keeps no change feed for the versions",
        (
            "CREATE TABLE {t} (id BIGINT, x BIGINT) USING delta",
            ROWS,
            "ALTER TABLE {t} SET TBLPROPERTIES (delta.enableChangeDataFeed = true)",
        ),
        FROM_0,
    ),
    "reserved": Fault(
        "belong to spark_wan",
        (f"CREATE TABLE {{t}} (id BIGINT, _wan_x BIGINT) USING delta {FEED}",),
    ),
    "other_key": Fault("key column 'idd' is not there", settings={"keys": ["idd"]}),
    "double_key": Fault(
        "floating-point numbers do not compare exactly",
        (f"CREATE TABLE {{t}} (id DOUBLE, x BIGINT) USING delta {FEED}", ROWS),
    ),
    "start_later": Fault("its newest is 1", settings={"start": {"version": 9}}),
    "truncated": Fault("is a TRUNCATE", (*PLAIN, "TRUNCATE TABLE {t}"), FROM_0),
    "file_gone": Fault("cannot be read now", (*PLAIN, "rm part-*.parquet")),
    "log_gone": Fault(
        "are no longer in the table's history",
        (*PLAIN, ROWS, "checkpoint", "rm _delta_log/00000000000000000000.json"),
        FROM_0,
    ),
    "updated": Fault(
        "changes rows other than by inserting",
        (*PLAIN, "UPDATE {t} SET x = 7 WHERE id = 1"),
        {"keys": [], **FROM_0},
        keys_only=True,
    ),
    "null_keys": Fault(
        "have no usable key",
        (*PLAIN, "INSERT INTO {t} SELECT CAST(NULL AS BIGINT), id FROM range(3)"),
        {"max_dead_letters": 2},
        keys_only=True,
    ),
    "bad_text": Fault(
        "text that is not valid UTF-8",
        (
            f"CREATE TABLE {{t}} (id BIGINT, x STRING) USING delta {FEED}",
            "INSERT INTO {t} SELECT 1, CAST(X'FF' AS STRING)",
        ),
        keys_only=True,
    ),
}
TARGETS = {
    "sound": Fault("", target=("CREATE TABLE {t} (id BIGINT, x BIGINT) USING delta",)),
    "another_type": Fault(
        "cannot be reconciled", target=("CREATE TABLE {t} (id BIGINT, x DATE) USING delta",)
    ),
    "narrower": Fault(
        "are narrower than at the origin",
        target=("CREATE TABLE {t} (id BIGINT, x INT) USING delta",),
    ),
    "not_null": Fault(
        "an insert would leave it null",
        target=("CREATE TABLE {t} (id BIGINT, x BIGINT, own STRING NOT NULL) USING delta",),
    ),
    "char_key": Fault(
        "Values would be padded with blanks",
        (
            f"CREATE TABLE {{t}} (id STRING, x BIGINT) USING delta {FEED}",
            "INSERT INTO {t} SELECT CAST(id AS STRING), id FROM range(5)",
        ),
        target=("CREATE TABLE {t} (id CHAR(5), x BIGINT) USING delta",),
    ),
    "identity": Fault(
        "takes no values",
        target=("CREATE TABLE {t} (id BIGINT, x BIGINT GENERATED ALWAYS AS IDENTITY) USING delta",),
    ),
    "refusing": Fault(
        "So many are no accident",
        settings={"max_dead_letters": 2},
        target=(
            "CREATE TABLE {t} (id BIGINT, x BIGINT) USING delta",
            "ALTER TABLE {t} ADD CONSTRAINT big CHECK (x > 100)",
        ),
        keys_only=True,
    ),
}

NOT_ADDED = {
    "odd_name": Fault(
        "cannot take new columns as they are at the origin",
        (
            "CREATE TABLE {t} (id BIGINT, `a b` BIGINT) USING delta TBLPROPERTIES "
            "(delta.enableChangeDataFeed = true, 'delta.columnMapping.mode' = 'name')",
            ROWS,
        ),
        target=("CREATE TABLE {t} (id BIGINT) USING delta",),
    ),
    "ntz": Fault(
        "cannot take new columns as they are at the origin",
        (
            f"CREATE TABLE {{t}} (id BIGINT, at TIMESTAMP_NTZ) USING delta {FEED}",
            "INSERT INTO {t} SELECT id, TIMESTAMP_NTZ '2024-05-06 07:08:09' FROM range(5)",
        ),
        target=("CREATE TABLE {t} (id BIGINT) USING delta",),
    ),
}
"""Targets that Delta gives no such columns."""


def make(spark: Any, place: str, statements: Sequence[str]) -> None:
    """Make a table at a path, and damage it."""
    for statement in statements:
        if statement.startswith("rm "):
            gone = [*Path(place).glob(statement[3:])]
            assert gone
            for file in gone:
                file.unlink()
        elif statement == "checkpoint":
            DeltaTable(place).create_checkpoint()
        else:
            spark.sql(statement.replace("{t}", f"delta.`{place}`")).collect()


def pair_of(folder: Path, faults: Mapping[str, Fault]) -> Pair:
    return Pair.of(folder, {name: dict(fault.settings) for name, fault in faults.items()})


def sender_holds(spark: Any, pair: Pair) -> dict[str, str | None]:
    """Run the sender, and return why it holds each table."""
    handle = Sender(spark, pair.topology, NEWARK).start(available_now=True)
    with suppress(WanError):
        handle.await_termination()
    return {status.table: status.held for status in handle.status()}


def told(one: Part, fault: Fault) -> str:
    """Return what the check says of a fault, once."""
    (finding,) = worst(one)
    assert one.verdict is Verdict.FAILED and fault.says in finding.text, one
    return finding.text


def test_what_holds_a_sender_is_found_before(spark: Any, tmp_path: Path) -> None:
    pair = pair_of(tmp_path / "wan", SOURCES)
    for name, fault in SOURCES.items():
        make(spark, pair.path(name, NEWARK), fault.made)
    quick, whole = checked(spark, pair, keys=False), checked(spark, pair)
    held = sender_holds(spark, pair)
    for name, fault in SOURCES.items():
        one = part(whole, SOURCE, name)
        if not fault.says:
            assert held[name] is None and one.verdict is Verdict.OK, (held[name], one)
            continue
        text = told(one, fault)
        # Of a table that is not there, it says by which statement that was found out.
        assert text.partition(" (")[0] == str(held[name]).partition(" (")[0], name
        assert name == "absent" or text == held[name], name
        if not fault.keys_only:
            told(part(quick, SOURCE, name), fault)
    assert whole.verdict is Verdict.FAILED
    failed = {link.table for link in whole.links if link.verdict is Verdict.FAILED}
    assert failed == SOURCES.keys() - {"sound"}


@pytest.mark.parametrize("sent", [False, True], ids=["by the source", "by the log"])
def test_what_holds_a_receiver_is_found_before(spark: Any, tmp_path: Path, sent: bool) -> None:
    pair = pair_of(tmp_path / "wan", TARGETS)
    for name, fault in TARGETS.items():
        make(spark, pair.path(name, NEWARK), fault.made)
        make(spark, pair.path(name, SEATTLE), fault.target)
    if sent:
        pair.send(spark)
    whole = checked(spark, pair)
    quick = checked(spark, pair, keys=False) if sent else None
    if not sent:
        pair.send(spark)
    held = {name: status.held for name, status in pair.apply(spark).items()}
    for name, fault in TARGETS.items():
        one = part(whole, TARGET, name)
        if not fault.says:
            assert held[name] is None and one.verdict is Verdict.OK, (held[name], one)
            continue
        assert fault.says in (held[name] or ""), name
        text = told(one, fault)
        assert text == held[name], name
        if quick is not None and not fault.keys_only:
            assert told(part(quick, TARGET, name), fault) == text, name


def test_columns_that_delta_would_not_add_are_found_before(spark: Any, tmp_path: Path) -> None:
    pair = pair_of(tmp_path / "wan", NOT_ADDED)
    for name, fault in NOT_ADDED.items():
        make(spark, pair.path(name, NEWARK), fault.made)
        make(spark, pair.path(name, SEATTLE), fault.target)
    found = checked(spark, pair, keys=False)
    pair.send(spark)
    held = {name: status.held for name, status in pair.apply(spark).items()}
    for name, fault in NOT_ADDED.items():
        assert fault.says in (held[name] or ""), name
        # What the job holds with has Delta's own message in the middle.
        text = told(part(found, TARGET, name), fault)
        assert str(held[name]).endswith(text[text.index("The stream is held.") :]), name


def test_what_has_changed_since_it_was_sent_is_found(spark: Any, tmp_path: Path) -> None:
    names = ("replaced", "keys_changed", "renamed", "target_gone", "target_restored", "log_lost")
    pair = Pair.of(tmp_path / "wan", {name: {} for name in names})
    mapped = (
        "TBLPROPERTIES (delta.enableChangeDataFeed = true, 'delta.columnMapping.mode' = 'name')"
    )
    for name in names:
        create = f"CREATE TABLE {{t}} (id BIGINT, x BIGINT) USING delta {mapped}"
        make(spark, pair.path(name, NEWARK), (create, ROWS))
    pair.replicate(spark)
    assert checked(spark, pair).verdict is Verdict.OK
    shutil.rmtree(pair.path("replaced", NEWARK))
    make(spark, pair.path("replaced", NEWARK), PLAIN)
    make(spark, pair.path("renamed", NEWARK), ("ALTER TABLE {t} RENAME COLUMN x TO y",))
    shutil.rmtree(pair.path("target_gone", SEATTLE))
    make(spark, pair.path("target_restored", SEATTLE), ("RESTORE TABLE {t} TO VERSION AS OF 0",))
    for folder in ("log", "heads"):
        for path in (pair.folder / "channel-east" / folder).glob("*log_lost*"):
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    set_keys(pair, "keys_changed", ["x"])
    found = checked(spark, pair)
    held = sender_holds(spark, pair)
    for name in ("replaced", "keys_changed", "renamed", "log_lost"):
        (finding,) = worst(part(found, SOURCE, name))
        assert finding.verdict is Verdict.FAILED and finding.text == held[name], name
    for name, says in (
        ("target_gone", "the table is missing at site seattle"),
        ("target_restored", "is a RESTORE"),
    ):
        one = part(found, TARGET, name)
        assert one.verdict is Verdict.FAILED and says in worst(one)[0].text, one


def set_keys(pair: Pair, table: str, keys: list[str]) -> None:
    import yaml

    file = pair.folder / "wan.yaml"
    content = yaml.safe_load(file.read_text())
    content["tables"][table]["keys"] = keys
    file.write_text(yaml.safe_dump(content))


def test_what_somebody_should_know_is_a_warning(spark: Any, tmp_path: Path) -> None:
    pair = Pair.of(
        tmp_path / "wan",
        {"twins": {}, "short": {}, "paused": {}, "own_rows": {}, "odd_place": {}, "added": {}},
    )
    for name in ("short", "paused", "own_rows", "odd_place", "added"):
        make(spark, pair.path(name, NEWARK), PLAIN)
    make(spark, pair.path("twins", NEWARK), (*PLAIN, ROWS))
    short = "'delta.deletedFileRetentionDuration' = 'interval 1 days'"
    make(spark, pair.path("short", NEWARK), (f"ALTER TABLE {{t}} SET TBLPROPERTIES ({short})",))
    make(spark, pair.path("own_rows", SEATTLE), PLAIN)
    make(spark, pair.path("added", SEATTLE), ("CREATE TABLE {t} (id BIGINT) USING delta",))
    odd = Path(pair.path("odd_place", SEATTLE))
    odd.mkdir(parents=True)
    (odd / "notes.txt").write_text("not a table")
    spark_wan.pause(pair.topology, NEWARK, table="paused")
    found = checked(spark, pair)
    for kind, name, says in (
        (SOURCE, "twins", "the keys are not unique: 5 keys have several rows"),
        (SOURCE, "short", "delta.deletedFileRetentionDuration is interval 1 days"),
        (SOURCE, "paused", "paused is paused by "),
        (TARGET, "own_rows", "the table has rows, and no receiver has applied to it"),
        (TARGET, "odd_place", "has files that are not a Delta table's"),
    ):
        one = part(found, kind, name)
        assert one.verdict is Verdict.WARNING and says in worst(one)[0].text, one
    columns = [each.text for each in part(found, TARGET, "added").findings]
    assert "would be added: x" in columns
    assert found.verdict is Verdict.WARNING


def test_what_another_site_has_may_be_out_of_sight(spark: Any, tmp_path: Path) -> None:
    pair = Pair.of(tmp_path / "wan", {"orders": {}})
    make(spark, pair.path("orders", NEWARK), PLAIN)
    here = checked(spark, pair, site=NEWARK)
    assert {each.kind: each.verdict for each in here.parts if each.site == SEATTLE} == {
        "state": Verdict.UNKNOWN,
        TARGET: Verdict.UNKNOWN,
    }
    assert here.verdict is Verdict.UNKNOWN
    # A table that can be seen is judged with the ledger of its site, or not at all.
    make(spark, pair.path("orders", SEATTLE), PLAIN)
    (finding,) = part(checked(spark, pair, site=NEWARK), TARGET, "orders").findings
    assert finding.verdict is Verdict.UNKNOWN and "the ledger of site seattle" in finding.text
    shutil.rmtree(pair.path("orders", NEWARK))
    there = checked(spark, pair, site=SEATTLE)
    assert part(there, SOURCE, "orders").verdict is Verdict.UNKNOWN
    assert part(checked(spark, pair), SOURCE, "orders").verdict is Verdict.FAILED


def test_a_channel_that_cannot_be_read_is_one_failure(spark: Any, tmp_path: Path) -> None:
    pair = Pair.of(tmp_path / "wan", {"orders": {}})
    make(spark, pair.path("orders", NEWARK), PLAIN)
    (pair.folder / "channel-east").mkdir()
    (pair.folder / "channel-east" / "wan-channel.json").write_text("hello")
    found = checked(spark, pair, keys=False)
    assert {each.kind: each.verdict for each in found.parts if each.kind != "state"} == {
        "channel": Verdict.FAILED,
        SOURCE: Verdict.UNKNOWN,
        TARGET: Verdict.UNKNOWN,
    }


def test_what_a_job_has_held_is_told_once(spark: Any, tmp_path: Path) -> None:
    pair = Pair.of(tmp_path / "wan", {"orders": FROM_0})
    make(spark, pair.path("orders", NEWARK), (*PLAIN, "TRUNCATE TABLE {t}"))
    assert "is a TRUNCATE" in str(sender_holds(spark, pair)["orders"])
    one = part(checked(spark, pair, keys=False), SOURCE, "orders")
    assert [each.check for each in one.findings] == ["start"]
    spark_wan.decide(pair.topology, NEWARK, ["orders@2=skip"])
    one = part(checked(spark, pair, keys=False), SOURCE, "orders")
    assert one.verdict is Verdict.WARNING and one.findings[0].verdict is Verdict.OK
    assert "the sender held it last" in one.findings[-1].text


def test_a_probe_leaves_nothing_behind_and_no_table_is_made(spark: Any, wan: Sites) -> None:
    wan.change(10)
    wan.send(spark)
    found = checked(spark, wan, probe=True, keys=False, senders=["east"])
    assert part(found, TARGET, "orders").findings[1].text.endswith("the next epoch can be applied")
    (channel,) = (each for each in found.parts if each.kind == "channel")
    checks = {each.check: each for each in channel.findings}
    assert checks["write"].text == "a probe file was written and deleted"
    assert checks["clock"].verdict is Verdict.OK


def test_the_command(
    spark: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """In the session of the test. Exits with 1 for what failed, and with 0 for a warning."""
    pair = Pair.of(tmp_path / "wan", {"orders": {}, "absent": {}})
    make(spark, pair.path("orders", NEWARK), (*PLAIN, ROWS))
    monkeypatch.setattr(launcher, "_has_session", lambda options: True)

    def run(*words: str) -> tuple[int, str]:
        config = str(pair.folder / "wan.yaml")
        monkeypatch.setattr(sys, "argv", ["spark-wan", "preflight", "--config", config, *words])
        with unchanged(pair.folder), pytest.raises(SystemExit) as ended:
            main()
        return int(ended.value.code or 0), capsys.readouterr().out

    code, out = run("--output", "json")
    content = json.loads(out)
    assert (code, content["verdict"]) == (1, "failed")
    assert {link["table"]: link["verdict"] for link in content["links"]} == {
        "orders": "warning",
        "absent": "failed",
    }
    code, out = run("--table", "orders", "--no-keys")
    assert code == 0 and "newark.east.orders -> seattle" in out and "1 link: 1 ok" in out
    code, out = run("--table", "orders")
    assert code == 0 and "1 link: 1 warning" in out
    assert run("--table", "nobody")[0] == 1
    assert run("--frobnicate")[0] == 2
