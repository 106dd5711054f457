"""What README and the other pages claim, as far as it can be checked without Spark."""

from __future__ import annotations

import ast
import configparser
import importlib.metadata
import json
import logging
import re
import shlex
from dataclasses import fields
from pathlib import Path
from typing import get_args

import pytest
import typer.main
import yaml
from logged import calls, keywords, loggers, sources
from pages import names_in, section, table_rows

import spark_wan
from spark_wan.cli.app import COMMANDS, command_line
from spark_wan.cli.output import JsonOutput
from spark_wan.control.ends import StreamEnd
from spark_wan.datasource.options import SinkOptions
from spark_wan.demo.display import FourSitesSummary, JoiningSummary, TwoSitesSummary
from spark_wan.local.java import OLDEST_JAVA
from spark_wan.messages import FIELDS, ROLES, JsonFormatter
from spark_wan.messages import VERSION as MESSAGE_VERSION
from spark_wan.receiver.stream import TableStatus
from spark_wan.rehearsal.findings import CHECKS, LinkCheck, Part, Preflight, Verdict, ok
from spark_wan.runtime.progress import Progress
from spark_wan.sender.outbound_stream import StreamStatus
from spark_wan.status.reports import (
    STATES,
    ChannelReport,
    PauseReport,
    ReceiverReport,
    SenderReport,
    SiteReport,
    StreamReport,
)
from spark_wan.sync.findings import Comparison, Difference, Repair
from spark_wan.sync.undone import Undone, UndoneRow
from spark_wan.topology import parsing
from spark_wan.topology.ack_policy import AckPolicy
from spark_wan.topology.model import Sender, Site, Table
from spark_wan.topology.parsing import load_topology
from spark_wan.topology.values import OnQueueLimit
from spark_wan.wire import control, decisions, handled, ledger, records, topic_log, topic_state
from spark_wan.wire import head as head_format
from spark_wan.wire.receiver_record import NotApplied
from spark_wan.wire.sender_record import NotSent

ROOT = Path(__file__).parents[2]
DECISIONS = sorted((ROOT / "docs" / "decisions").glob("*.md"))
PAGES = [*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md"), *DECISIONS, ROOT / "bench/README.md"]


@pytest.fixture(scope="module")
def setup_cfg() -> configparser.ConfigParser:
    parser = configparser.ConfigParser()
    parser.read(ROOT / "setup.cfg")
    return parser


def read_all() -> str:
    return "\n".join(page.read_text() for page in PAGES)


def anchors(page: Path) -> set[str]:
    """The anchors that GitHub gives to a page's headings."""
    headings = re.findall(r"^#+ (.*)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading).lower().replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_leads_somewhere(page: Path) -> None:
    for link in re.findall(r"\]\(([^)]+)\)", page.read_text()):
        if not link.startswith("https://"):
            path, _, anchor = link.partition("#")
            target = (page.parent / path) if path else page
            assert target.exists(), link
            assert not anchor or anchor in anchors(target), link


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_prose_has_at_most_100_columns(page: Path) -> None:
    lines = page.read_text().splitlines()
    assert [line for line in lines if len(line) > 100 and not line.startswith("|")] == []


@pytest.mark.parametrize("page", DECISIONS, ids=lambda page: page.stem[:4])
def test_a_decision_has_its_number_and_four_parts(page: Path) -> None:
    text = page.read_text()
    assert text.startswith(f"# {page.stem[:4]}: ")
    assert re.findall(r"^## (.*)$", text, re.MULTILINE) == [
        "Context",
        "Decision",
        "What else was tried and measured",
        "Consequences",
    ]


def test_decisions_are_numbered_without_gaps() -> None:
    assert [int(page.stem[:4]) for page in DECISIONS] == list(range(1, len(DECISIONS) + 1))


def test_the_commands_on_the_pages_exist_with_their_options() -> None:
    commands = typer.main.get_command(command_line()).commands
    lines = re.findall(r"(?:^    |`)spark-wan ([a-z][^`\n]*)", read_all(), re.MULTILINE)
    assert len(lines) >= 8
    for line in lines:
        name, *words = shlex.split(line.replace(" [", ""), comments=True)
        command = commands[name]
        while words and words[0] in getattr(command, "commands", ()):
            command = command.commands[words.pop(0)]
        valid = {option for parameter in command.params for option in parameter.opts}
        assert {word for word in words if word.startswith("--")} <= valid, line


def test_the_targets_and_jobs_on_the_pages_exist() -> None:
    targets = re.findall(r"^([a-z]+):.*## ", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert set(re.findall(r"(?:^    |`)make ([a-z]+)", read_all(), re.MULTILINE)) <= set(targets)
    for job in re.findall(r"\bjobs/\w+\.py", read_all()):
        assert (ROOT / job).is_file()


def test_the_readme_names_the_versions_and_extras_of_the_package(
    setup_cfg: configparser.ConfigParser,
) -> None:
    readme = (ROOT / "README.md").read_text()
    (python,) = re.findall(r"Python (\d\.\d+) or newer", readme)
    assert setup_cfg["options"]["python_requires"] == f">={python}"
    assert f"Java {OLDEST_JAVA} or newer" in readme
    (extras,) = re.findall(r"pip install -c constraints.txt '\.\[([\w,]+)\]'", readme)
    assert set(extras.split(",")) <= set(setup_cfg["options.extras_require"])


def test_the_extra_spark_has_what_pyspark_needs_for_arrow(
    setup_cfg: configparser.ConfigParser,
) -> None:
    """``mapInArrow`` wants pandas, which pyspark requires only with its extra ``sql``."""
    ours = setup_cfg["options"]["install_requires"], setup_cfg["options.extras_require"]["spark"]
    lines = [line for line in "\n".join(ours).splitlines() if line and not line.startswith("#")]
    required = importlib.metadata.requires("pyspark") or []
    wanted = {project(line) for line in required if line.endswith('extra == "sql"')}
    assert "pandas" in wanted and wanted <= {project(line) for line in lines}


def project(requirement: str) -> str:
    """Return the name of the project that a requirement names."""
    return re.split(r"[^\w-]", requirement, maxsplit=1)[0].lower()


def test_the_topology_of_the_readme_is_valid(tmp_path: Path) -> None:
    (block,) = re.findall(r"```yaml\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    file = tmp_path / "topology.yaml"
    for channel in ("s3://wan-channel/east", "./channel", "gs://b/c", "abfs://c@a/x", "az://c/x"):
        file.write_text(block.replace("s3://wan-channel/east", channel))
        assert load_topology(file).table("orders").keys == ("id",)


@pytest.mark.parametrize(
    "state",
    ["./state", "/Volumes/a/b/c", "/dbfs/a", "s3://b/s", "s3a://b/s", "gs://b/s", "abfs://c@a/s"]
    + ["abfss://c@a.dfs.core.windows.net/s"],
)
def test_a_state_may_be_where_the_operations_page_says(tmp_path: Path, state: str) -> None:
    text = (ROOT / "conf" / "minimal.yaml").read_text().replace("./newark/_wan", state)
    (tmp_path / "topology.yaml").write_text(text)
    assert state.strip("./") in load_topology(tmp_path / "topology.yaml").site("newark").state


def test_the_options_on_the_page_of_user_streams_exist() -> None:
    text = (ROOT / "docs" / "user-streams.md").read_text()
    names = set(re.findall(r'\.option\("(\w+)"', text)) | {"channel", "remotes", "key", "state"}
    assert "formerRemotes" in text
    fields = {re.sub("_(.)", lambda m: m[1].upper(), name) for name in SinkOptions.__annotations__}
    assert names | {"site", "formerRemotes", "newLog"} <= fields | {"config", "sender"}


def test_the_page_of_the_benchmark_has_the_figures_of_its_results() -> None:
    page = (ROOT / "bench" / "README.md").read_text()
    figures = json.loads((ROOT / "bench" / "results" / "end_to_end.json").read_text())
    for name, value in figures.items():
        if name.endswith(("_per_s", "_mib")):
            assert f"{value:,}" in page, name
        elif name.endswith(("_outside_merge_s", "_per_event")):
            assert f" {value} " in page, name
    assert f"**{figures['spark_wan_to_floor']:.2f}: missed**" in page
    section = page[page.index("## Sites behind sites") : page.index("## The ledger's growth")]
    figures = json.loads((ROOT / "bench" / "results" / "forwarding.json").read_text())
    for name, value in figures.items():
        if name not in ("python", "cpus"):
            assert f"| {value} |" in section, name
    section = page[page.index("## Over Kafka") : page.index("## Many small tables")]
    figures = json.loads((ROOT / "bench" / "results" / "kafka.json").read_text())
    for name, value in figures.items():
        if name not in ("python", "cpus"):
            assert f" {value:,} " in section, name


# --- the pages for operators


@pytest.mark.parametrize(
    ("heading", "kind"),
    [
        ("A channel", ChannelReport),
        ("A stream", StreamReport),
        ("A pause", PauseReport),
        ("A sender", SenderReport),
        ("A site", SiteReport),
        ("A receiver", ReceiverReport),
    ],
)
def test_the_fields_of_status_on_the_page_are_those_that_are_printed(
    heading: str, kind: type
) -> None:
    """``status --output json`` prints all fields of these (``cli/output.py``)."""
    head, *rows = table_rows(section("monitoring.md", heading))
    assert head == ["field", "type", "meaning"]
    assert [row[0] for row in rows] == [f"`{field.name}`" for field in fields(kind)]
    for row, field in zip(rows, fields(kind), strict=True):
        assert ("null" in row[1]) == ("None" in str(field.type)), field.name


@pytest.mark.parametrize(
    ("heading", "kind", "what", "prefix"),
    [
        ("What a sender does not send", NotSent, "sent", "not_sent"),
        ("What a receiver does not apply", NotApplied, "applied", "not_applied"),
    ],
)
def test_the_reasons_on_the_page_are_those_that_are_counted(
    heading: str, kind: type, what: str, prefix: str
) -> None:
    """Each is in the table that leads from a row to where it has stopped. Fails when a count is
    printed, and no page says what it means."""
    head, *rows = table_rows(section("monitoring.md", heading))
    assert head == ["field", "counts", f"why they were not {what}"]
    names = [each.name for each in fields(kind)]
    assert [row[0] for row in rows] == [f"`{name}`" for name in names]
    way = section("monitoring.md", "Where is my row?")
    named = {name for row in table_rows(way) for name in names_in(row[1])}
    units = {"no_rows", "uncounted"}  # has no row; is no place
    assert {f"{prefix}.{name}" for name in names} - named == {
        f"{prefix}.{name}" for name in units if name in names
    }


def test_the_counts_on_the_way_of_a_row_are_fields_of_the_status() -> None:
    kinds = {"sender": SenderReport, "receiver": ReceiverReport, "not_sent": NotSent}
    kinds |= {"not_applied": NotApplied, "": SiteReport}
    head, *rows = table_rows(section("monitoring.md", "Where is my row?"))
    assert head == ["the row", "count", "look at"]
    for row in rows:
        for name in names_in(row[1]):
            of, _, field = name.rpartition(".")
            assert field in {each.name for each in fields(kinds[of])}, name


def test_the_states_of_a_link_on_the_pages_are_those_that_exist() -> None:
    (state,) = (
        row for row in table_rows(section("monitoring.md", "A site")) if row[0] == "`state`"
    )
    assert names_in(state[2]) == set(STATES)
    _, *rows = table_rows(section("operations.md", "How far behind each site is"))
    assert tuple(row[0].strip("`") for row in rows) == STATES


def test_the_events_of_jobs_on_the_page_have_the_fields_of_their_status() -> None:
    rows = {row[0]: row[1] for row in table_rows(section("monitoring.md", "Logs"))}
    for who, kind in (("a sender", StreamStatus), ("a receiver", TableStatus)):
        listed = re.findall(r"`(\w+)`", rows[f"`progress`, of {who}"])
        assert listed == [field.name for field in fields(kind)]


def test_the_page_has_the_exit_codes_of_every_command() -> None:
    _, *rows = table_rows(section("monitoring.md", "Exit codes"))
    assert set().union(*(names_in(row[0]) for row in rows)) == {*COMMANDS, "dead-letters"}


def test_the_json_of_a_preflight_on_the_page_is_what_is_printed(
    capsys: pytest.CaptureFixture[str],
) -> None:
    part = Part("state", "newark", "newark", "/newark", (ok("state", "it can be read"),))
    link = LinkCheck("newark.east.orders", "orders", "newark", "seattle", (part,))
    JsonOutput().preflight(Preflight((link,)))
    content = json.loads(capsys.readouterr().out)
    for heading, printed in (
        ("The object of `preflight`", content),
        ("A link of `preflight`", content["links"][0]),
        ("A part", content["parts"][0]),
    ):
        head, *rows = table_rows(section("monitoring.md", heading))
        assert head == ["field", "type", "meaning"]
        assert [row[0] for row in rows] == [f"`{name}`" for name in printed], heading
    rows = [*table_rows(section("monitoring.md", "A finding"))]
    split = rows.index(["kind", "checks"])
    assert [row[0] for row in rows[1:split]] == [
        f"`{name}`" for name in content["parts"][0]["findings"][0]
    ]
    assert {
        row[0].strip("`"): tuple(re.findall("`([^`]+)`", row[1])) for row in rows[split + 1 :]
    } == (CHECKS)
    verdicts = [row[0].strip("`") for row in table_rows(section("how-to.md", "Before you start"))]
    assert verdicts[1:] == [each.value for each in Verdict]


def test_the_service_files_on_the_page_are_what_they_are_for() -> None:
    """That they run is for systemd and Kubernetes to say."""
    text = (ROOT / "docs" / "monitoring.md").read_text()
    (unit,) = re.findall(r"```ini\n(.*?)```", text, re.DOTALL)
    parser = configparser.ConfigParser(strict=False)
    parser.optionxform = str  # type: ignore[assignment, method-assign]
    parser.read_string(unit)
    assert parser["Service"]["KillMode"] == "mixed"
    (manifest,) = re.findall(r"```yaml\n(.*?)```", text, re.DOTALL)
    spec = yaml.safe_load(manifest)["spec"]
    assert (spec["replicas"], spec["strategy"]) == (1, {"type": "Recreate"})
    (container,) = spec["template"]["spec"]["containers"]
    commands = typer.main.get_command(command_line()).commands
    for words in (parser["Service"]["ExecStart"].split(), container["args"]):
        name, *options = words[1:]
        valid = {option for parameter in commands[name].params for option in parameter.opts}
        assert {word for word in options if word.startswith("-")} <= valid, words


def test_the_versions_of_formats_on_the_page_are_those_of_the_code() -> None:
    head, *rows = table_rows(section("upgrade.md", "Formats"))
    assert head[:6] == ["format", "where", "written by", "read by", "written", "read"]
    versions = {row[0]: (row[4], row[5]) for row in rows}
    record = str(records.VERSION), ", ".join(map(str, range(1, records.VERSION + 1)))
    of_records = ("frame", "manifest", "ack", "mark", "sender's checkpoint")
    of_records += ("sender's record", "receiver's record", "refused events", "heartbeat")
    of_records += ("sign of life",)
    through = ", ".join(map(str, range(1, ledger.SUMMARY_VERSION + 1)))
    assert versions == dict.fromkeys(of_records, record) | {
        "head, announcement": (str(head_format.VERSION),) * 2,
        "pause": (str(head_format.VERSION),) * 2,
        "what was done about dead letters": (str(handled.VERSION),) * 2,
        "channel marker": (str(head_format.VERSION),) * 2,
        "Kafka operation": (str(topic_log.VERSION),) * 2,
        "Kafka checkpoint": (str(topic_state.VERSION),) * 2,
        "ledger row": (str(ledger.LEDGER_VERSION), through),
        "ledger summary": (str(ledger.SUMMARY_VERSION), through),
        "decision": (str(decisions.VERSION),) * 2,
        "control entry": (str(control.VERSION),) * 2,
        "topology file": (str(parsing.VERSION),) * 2,
    }


def test_the_settings_in_tables_of_the_page_of_sizes_exist_with_their_defaults() -> None:
    """A setting of a site, sender or table is written ``name`` with its default behind it."""
    defaults = {
        field.name: field.default for kind in (Site, Sender, Table) for field in fields(kind)
    }
    sizes = {"KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "": 1}
    head, *rows = table_rows(section("sizing.md", "Settings that bound memory"))
    assert head == ["setting", "default", "bounds"]
    assert len(rows) >= 6
    for setting, default, _ in rows:
        number, _, unit = default.replace(",", "").partition(" ")
        assert defaults[setting.strip("`")] == int(number) * sizes[unit], setting


def test_the_names_with_underscores_on_the_pages_exist() -> None:
    """Settings, fields of statuses, tables and columns of the ledger, and the Python API."""
    reports = (ChannelReport, StreamReport, PauseReport, SenderReport, SiteReport, ReceiverReport)
    kinds = (Site, Sender, Table, *reports, NotSent, NotApplied)
    known = {field.name for kind in (*kinds, StreamStatus, TableStatus) for field in fields(kind)}
    for table, columns in ledger.SCHEMAS.items():
        known |= {table, *(column.split()[0] for column in columns.split(", "))}
    known |= {*spark_wan.__all__, *(policy.value for policy in AckPolicy)}
    known |= {*get_args(OnQueueLimit)}
    # A module, a function of another one, causes of dead letters, a setting of Databricks, and and
    # fields that are computed when they are printed.
    known |= {"spark_wan", "local_session", "duplicate_key", "too_large", "max_concurrent_runs"}
    known |= {"spark_log", "on_need", "on_alert", "is_over", "at_ms", "stream_begun", *FIELDS}
    of_demo = (TwoSitesSummary, FourSitesSummary, JoiningSummary)
    known |= {field.name for kind in (StreamEnd, *of_demo) for field in fields(kind)}
    known |= {"rows_per_s", "left_ms", *(field.name for field in fields(Progress))}
    found = (Comparison, Difference, Repair, Undone, UndoneRow)
    known |= {"dry_run", *(field.name for kind in found for field in fields(kind))}
    pages = sorted((ROOT / "docs").glob("*.md"))
    assert len(pages) >= 13
    for page in pages:
        names = set(re.findall(r"`([a-z]+(?:_[a-z]+)+)(?=[`:])", page.read_text()))
        assert names <= known, f"{page.name}: {sorted(names - known)}"


# --- logs


def test_the_roles_on_the_page_are_the_packages_that_log() -> None:
    found = {file.split("/")[0] for file, tree in sources() if loggers(tree)}
    assert found == {*ROLES}
    head, *rows = table_rows(section("monitoring.md", "Levels for each role"))
    assert head == ["logger", "what it does"]
    assert rows == [[f"`spark_wan.{role}`", does] for role, does in sorted(ROLES.items())]


def test_the_fields_of_a_line_on_the_page_are_those_that_are_written() -> None:
    head, *rows = table_rows(section("monitoring.md", "The lines of a JSON log"))
    assert head == ["field", "type", "meaning"]
    record = logging.makeLogRecord(
        {"name": "x", "msg": "x", "exc_info": (ValueError, ValueError(), None)}
    )
    vars(record).update(dict.fromkeys(FIELDS, "x"))
    assert [row[0] for row in rows] == [
        f"`{name}`" for name in json.loads(JsonFormatter().format(record))
    ]
    assert rows[0][2].endswith(f"{MESSAGE_VERSION}")


def test_the_events_on_the_page_are_those_of_the_code() -> None:
    found: dict[str, set[str]] = {}
    for _, level, call in calls():
        event = keywords(call).get("event")
        if isinstance(event, ast.Constant):
            shown = {"exception": "error", "log": "warning"}.get(level, level)
            found.setdefault(event.value, set()).add(shown)
    head, *rows = table_rows(section("monitoring.md", "Events of the log"))
    assert head == ["`event`", "level", "when"]
    listed = {row[0].strip("`"): {*row[1].split(", ")} for row in rows}
    assert listed == found | {"failed": {"error"}}
    assert [row[0] for row in rows] == sorted(row[0] for row in rows)
