"""``spark-wan`` as a process, as users start it. For ``jobs/*.py``, see ``cluster``."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import default_channel
import pytest
import yaml
from sites import NEWARK, SEATTLE, Sites
from waiting import DEADLINE

from spark_wan.local.classes import QUICK

ROOT = Path(__file__).parents[2]
CLI = (sys.executable, "-m", "spark_wan.cli")
SPARK_FREE = "import sys; sys.modules['pyspark'] = None; from spark_wan.cli.app import main; main()"
"""``spark-wan`` where an import of pyspark fails."""


def spark_wan(*words: object, code: int = 0) -> subprocess.CompletedProcess[str]:
    """Run a command that needs no Spark, and check its exit code."""
    done = _run([sys.executable, "-c", SPARK_FREE, *map(str, words)])
    assert done.returncode == code, done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    return done


def _run(command: Sequence[str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, capture_output=True, text=True, timeout=2 * DEADLINE)


def json_lines(text: str) -> list[dict[str, Any]]:
    """Parse the JSON objects that a command printed, one per line."""
    return [json.loads(line) for line in text.splitlines()]


# --- without Spark


@pytest.mark.core
def test_validate_lists_every_stream() -> None:
    out = spark_wan("validate", "--config", ROOT / "conf" / "two_sites.yaml").stdout
    assert "is valid: 2 sites" in out
    flights = ROOT / "conf" / "newark" / "flights"
    assert f"sends flights from {flights} to seattle as newark.east.flights" in " ".join(
        out.split()
    )
    assert "receives  flights from newark into" in out


@pytest.mark.core
def test_validate_names_the_sink_of_a_user_stream(tmp_path: Path) -> None:
    topology = yaml.safe_load((ROOT / "conf" / "two_sites.yaml").read_text())
    readings = topology["tables"]["readings"]
    topology["tables"]["readings"] = {
        **readings,
        "source": "sink",
        "at": {"seattle": "./seattle/readings"},
    }
    del topology["tables"]["readings"]["start"]
    (tmp_path / "wan.yaml").write_text(yaml.safe_dump(topology))
    out = spark_wan("validate", "--config", tmp_path / "wan.yaml").stdout
    assert "sends     readings from a sink to seattle as newark.east.readings" in out


@pytest.mark.core
def test_validate_prints_json() -> None:
    (answer,) = json_lines(
        spark_wan("validate", "-c", ROOT / "conf" / "two_sites.yaml", "-o", "json").stdout
    )
    assert answer["valid"] is True
    assert [(stream["stream"], stream["to"]) for stream in answer["streams"]] == [
        ("newark.east.flights", ["seattle"]),
        ("newark.east.readings", ["seattle"]),
    ]


@pytest.fixture
def invalid(tmp_path: Path) -> Path:
    """A topology with two mistakes."""
    text = (ROOT / "conf" / "two_sites.yaml").read_text()
    file = tmp_path / "invalid.yaml"
    file.write_text(
        text.replace("remotes: [seattle]", "remotes: [seatle]").replace(
            "ack_policy: quorum", "ack_policy: quorom"
        )
    )
    return file


@pytest.mark.core
def test_validate_lists_every_problem_and_fails(invalid: Path) -> None:
    lines = spark_wan("validate", "--config", invalid, code=1).stdout.splitlines()
    assert any(
        "senders.east.remotes[0]: unknown site 'seatle'; did you mean 'seattle'?" in line
        for line in lines
    )
    assert any("senders.east.ack_policy" in line for line in lines)


@pytest.mark.core
def test_validate_prints_problems_as_json(invalid: Path) -> None:
    (answer,) = json_lines(
        spark_wan("validate", "--config", invalid, "--output", "json", code=1).stdout
    )
    assert answer["valid"] is False
    assert all(problem.startswith(str(invalid)) for problem in answer["problems"])


@pytest.mark.core
def test_status_of_a_new_topology_reports_nothing_published(wan: Sites) -> None:
    config = wan.folder / "wan.yaml"
    if default_channel.KIND == "kafka":  # topics that are not there may have been lost
        out = spark_wan("status", "--config", config, code=1).stdout
        assert "The topics are not there: start the sender, which makes them" in out
        assert not default_channel.contents(wan.channel())
        return
    out = spark_wan("status", "--config", config).stdout
    assert "newark.east.orders  nothing published yet" in out
    assert not (wan.folder / "channel").exists()
    assert not default_channel.contents(wan.channel())


@pytest.mark.core
@pytest.mark.channels("directory", "s3")
def test_status_names_foreign_files(wan: Sites) -> None:
    wan.channel().put("notes.txt", b"")  # type: ignore[attr-defined]
    config = wan.folder / "wan.yaml"
    assert (
        "notes.txt is in the channel and not spark_wan's"
        in spark_wan("status", "--config", config).stdout
    )
    (answer,) = json_lines(
        spark_wan("status", "--config", config, "--site", SEATTLE, "--output", "json").stdout
    )
    assert ["notes.txt"] in [channel["foreign"] for channel in answer["channels"]]


@pytest.mark.core
@pytest.mark.parametrize("command", ["send", "receive", "status"])
def test_an_error_is_one_line_and_exit_code_1(command: str, tmp_path: Path) -> None:
    site = [] if command == "status" else ["--site", NEWARK]
    done = spark_wan(command, "--config", tmp_path / "none.yaml", *site, code=1)
    assert done.stdout == ""
    assert done.stderr == (
        f"spark-wan: {tmp_path}/none.yaml: cannot be read (No such file or directory); "
        "give the path of a topology file\n"
    )


@pytest.mark.core
def test_an_error_is_printed_as_json(tmp_path: Path) -> None:
    (answer,) = json_lines(
        spark_wan("status", "--config", tmp_path / "none.yaml", "--output", "json", code=1).stdout
    )
    assert (answer["event"], answer["type"]) == ("error", "TopologyError")


@pytest.mark.core
def test_an_invalid_decision_is_refused_before_spark_starts(sites: Callable[..., Sites]) -> None:
    config = sites().folder / "wan.yaml"
    done = spark_wan(
        "send", "--config", config, "--site", NEWARK, "--decide", "orders@3=later", code=1
    )
    assert "--decide 'orders@3=later' is not understood" in done.stderr


@pytest.mark.core
def test_a_site_with_nothing_to_send_is_refused_before_spark_starts(
    sites: Callable[..., Sites],
) -> None:
    done = spark_wan("send", "--config", sites().folder / "wan.yaml", "--site", SEATTLE, code=1)
    assert "site seattle has nothing to send" in done.stderr


@pytest.mark.core
def test_invalid_usage_is_exit_code_2() -> None:
    spark_wan("send", code=2)


@pytest.mark.core
def test_the_demo_refuses_a_directory_that_it_did_not_create(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("ten years of work")
    done = spark_wan("demo", "--directory", tmp_path, code=1)
    assert "was not made by the demo" in done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.txt"]


# --- with Spark


@pytest.mark.core
def test_a_command_sends_what_is_there(spark: Any, wan: Sites) -> None:
    """It ends once nothing is left to send, and the status shows it."""
    config = wan.folder / "wan.yaml"
    wan.change(10)
    words = ["send", "--config", str(config), "--sender", "east", "--available-now"]
    words += ["--site", NEWARK, "--conf", "spark.master=local[2]"]
    sent = _run([*CLI, *words, "--conf", f"spark.driver.extraJavaOptions={QUICK}"])
    assert sent.returncode == 0, sent.stdout + sent.stderr
    for text in ("newark.east.orders: ", "newark.east.readings: ", f"sender at {NEWARK} finished"):
        assert text in sent.stdout
    wan.apply(spark)
    wan.assert_equal()

    wan.channel("events").ensure_prepared()  # no sender does; topics that are absent are a problem
    (answer,) = json_lines(
        spark_wan("status", "--config", config, "--site", SEATTLE, "--output", "json").stdout
    )
    (east,) = [each for each in answer["channels"] if each["url"] == wan.channel().url]
    backlog = {stream["table"]: stream["sites"][0]["backlog_epochs"] for stream in east["streams"]}
    assert backlog == {"orders": 0, "readings": 0}
    for stream in east["streams"]:
        sender = stream["sender"]
        assert sender["epochs"] == stream["epoch"] > 0
        assert (sender["held"], sender["other_settings"]) == (None, False)


def test_b32_the_demo_with_four_sites_kills_the_one_that_forwards(tmp_path: Path) -> None:
    """Twenty days. Each other site has newark's rows, and got each event once.

    Nothing else runs `demo/four_sites.py`; ``unit/demo`` checks the steps after which it kills.
    """
    words = ["demo", "--sites", "4", "--directory", str(tmp_path / "demo")]
    done = _run([*CLI, *words, "--days", "20", "--output", "json"])
    assert done.returncode == 0, done.stdout + done.stderr
    (summary,) = json_lines(done.stdout)
    assert (summary["equal"], summary["kills"]) == (True, 2)
    assert list(summary["tables"]) == ["chicago", "denver", "seattle"]
    for tables in summary["tables"].values():
        rows = {table["table"]: table["rows"] for table in tables}
        assert rows["flights"] > 10_000
    assert [summary["duplicates"][site] for site in ("denver", "seattle")] == [0, 0]


def test_b77_the_demo_with_a_site_that_joins_and_one_that_loses_a_table(tmp_path: Path) -> None:
    """Twenty days. Nothing else sends SIGHUP to a running job, or runs `demo/joining.py`."""
    words = ["demo", "--join", "--directory", str(tmp_path / "demo")]
    done = _run([*CLI, *words, "--days", "20", "--output", "json"])
    assert done.returncode == 0, done.stdout + done.stderr
    (summary,) = json_lines(done.stdout)
    assert summary["equal"] is True
    assert summary["copies"]["seattle"] == ["flights"] and len(summary["copies"]["portland"]) == 5


def test_the_demo_kills_a_receiver_and_loses_nothing(tmp_path: Path) -> None:
    """Twenty days. Fails (0 discarded) when the plan does not count known epochs that were never
    acked.
    """
    words = ["demo", "--directory", str(tmp_path / "demo"), "--days", "20", "--output", "json"]
    done = _run([*CLI, *words])
    assert done.returncode == 0, done.stdout + done.stderr
    (summary,) = json_lines(done.stdout)
    assert summary["equal"] is True
    rows = {table["table"]: table["rows"] for table in summary["tables"]}
    assert rows["flights"] > 10_000
    assert summary["events"] > 2 * rows["flights"]
    assert summary["redelivered"] >= summary["duplicates_discarded"] > 0
