"""The commands ``send`` and ``receive``, as ``spark-wan`` and as jobs of spark-submit. No Spark."""

from __future__ import annotations

import re
import runpy
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from spark_wan.cli import jobs, options
from spark_wan.cli.app import COMMANDS, main, run_job
from spark_wan.cli.options import JobOptions
from spark_wan.errors import OptionError
from spark_wan.topology.model import Site
from spark_wan.topology.settings import settings_of

ROOT = Path(__file__).parents[3]
CONFIG = str(ROOT / "conf" / "two_sites.yaml")
SENDING = ("--config", CONFIG, "--site", "newark")
RECEIVING = ("--config", CONFIG, "--site", "seattle")

Run = Callable[..., int]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> Run:
    """Run ``main``, or ``run_job`` of a command, with these words; return the exit code."""

    def run(*words: str, job: str = "") -> int:
        monkeypatch.setattr(sys, "argv", [f"{job}.py" if job else "spark-wan", *words])
        with pytest.raises(SystemExit) as end:
            run_job(job) if job else main()
        return int(end.value.code or 0)

    return run


@pytest.fixture
def launched(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Any, JobOptions]]:
    """The senders and receivers that commands launch, with their options, in place of a start."""
    launched: list[tuple[Any, JobOptions]] = []

    def launch(kind: str, new_job: Callable[[Any], Any], options: JobOptions, **_: object) -> None:
        launched.append((new_job(None), options))

    monkeypatch.setattr(jobs, "launch", launch)
    return launched


@pytest.mark.parametrize("name", ["send", "receive"])
def test_a_job_takes_the_options_of_its_command(
    run: Run, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    """Fails when one of them declares options of its own."""
    assert run(name, "--help") == 0
    command = capsys.readouterr().out
    assert run("--help", job=name) == 0
    job = capsys.readouterr().out
    assert f"Usage: {name}.py [OPTIONS]" in job
    assert job.partition("Options:")[2] == command.partition("Options:")[2]


def test_settings_of_the_site_are_the_defaults_of_the_commands(
    run: Run, launched: list[tuple[Any, JobOptions]], tmp_path: Path
) -> None:
    config = tmp_path / "wan.yaml"
    text = Path(CONFIG).read_text()
    text = text.replace("# receive_interval: 500ms ", "receive_interval: 2s ")
    text = text.replace("# receive_parallel: 2 ", "receive_parallel: 3 ")
    text = text.replace("# receive_max_bytes: 256MiB ", "receive_max_bytes: 1MiB ")
    text = text.replace("# send_parallel: 2 ", "send_parallel: 5 ")
    config.write_text(text)
    assert run("send", "--config", str(config), "--site", "newark") == 0
    assert run("receive", "--config", str(config), "--site", "seattle") == 0
    (sender, _), (receiver, _) = launched
    assert sender.parallel == 5
    assert (receiver.interval, receiver.parallel, receiver.max_bytes) == (2.0, 3, 1 << 20)


@pytest.mark.parametrize("as_job", [False, True])
def test_options_win_over_the_settings_of_the_site(
    run: Run, launched: list[tuple[Any, JobOptions]], as_job: bool
) -> None:
    def command(name: str, *words: str) -> int:
        return run(*words, job=name) if as_job else run(name, *words)

    limits = ("--interval", "250ms", "--parallel", "4", "--max-bytes", "8MiB")
    assert command("send", *SENDING, "--parallel", "3", "--table", "flights") == 0
    assert command("receive", *RECEIVING, *limits, "--available-now") == 0
    (sender, sending), (receiver, receiving) = launched
    assert (sender.parallel, [table.name for _, table in sender.streams]) == (3, ["flights"])
    assert (receiver.interval, receiver.parallel, receiver.max_bytes) == (0.25, 4, 8 << 20)
    assert [options.submitted for options in (sending, receiving)] == [as_job, as_job]
    assert [options.available_now for options in (sending, receiving)] == [False, True]


def test_without_options_and_settings_there_are_defaults(
    run: Run, launched: list[tuple[Any, JobOptions]]
) -> None:
    assert run("send", *SENDING) == run("receive", *RECEIVING) == 0
    (sender, _), (receiver, _) = launched
    assert sender.parallel == 2
    assert (receiver.interval, receiver.parallel, receiver.max_bytes) == (0.5, 2, 256 << 20)


def test_a_log_file_is_refused_under_spark_submit(
    run: Run, launched: list[tuple[Any, JobOptions]]
) -> None:
    """Spark's own log is configured there. Fails when the file is named and never written."""
    assert run(*SENDING, "--log-file", "log", job="send") == run("send", *SENDING) == 0
    (_, submitted), (_, local) = launched
    with pytest.raises(OptionError, match="--log-file is for a local session"):
        submitted.session_settings()
    assert local.session_settings() == {}


def test_a_log_that_cannot_be_written_is_a_wrong_option(
    run: Run,
    launched: list[tuple[Any, JobOptions]],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    """The default file too: the cache folder may be another user's."""
    in_the_way = tmp_path / "file"
    in_the_way.touch()
    monkeypatch.setattr(options, "log_path", lambda _: in_the_way / "log")
    assert run("send", *SENDING) == 0
    assert run("send", *SENDING, "--log-file", str(in_the_way / "log"), "--verbose") == 0
    assert run("send", *SENDING, "--verbose") == 0
    (_, default), (_, named), (_, verbose) = launched
    for each in (default, named):
        with pytest.raises(OptionError, match=f"cannot be written to {in_the_way}/log"):
            each.log_path("sender")
    assert verbose.log_path("sender") is None


@pytest.mark.parametrize(
    ("option", "value", "problem"),
    [
        ("--interval", "0", "must be above 0, not '0'"),
        ("--interval", "soon", "must be seconds or a duration such as 500ms"),
        ("--parallel", "0", "must be 1 or more, not 0"),
        ("--parallel", "many", "must be a whole number, not 'many'"),
        ("--max-bytes", "8 parsecs", "must be a size such as"),
    ],
)
def test_b75_an_option_out_of_range_is_wrong_usage(
    run: Run, capsys: pytest.CaptureFixture[str], option: str, value: str, problem: str
) -> None:
    assert run("receive", *RECEIVING, option, value) == 2
    assert f"Invalid value for '{option}': {problem}" in capsys.readouterr().err


OF_THE_SITE = {
    "priority",
    "signing_keys",
    "accept_from",
    "max_frame_bytes",
    "retry_timeout",
    "sync",
    "sync_after",
    "auto_init",
    "sync_from",
    "sync_timeout",
    "max_copies",
    "standby_after",
}


def test_the_help_texts_are_those_of_the_settings(
    run: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("send", "--help") == run("receive", "--help") == 0
    printed = " ".join(capsys.readouterr().out.split())
    for name, setting in settings_of(Site).items():
        if name in OF_THE_SITE:
            continue  # of the site, whatever job runs
        assert f"{setting.help} Default: {name} of the site." in printed


@pytest.mark.parametrize("name", ["send", "receive"])
def test_a_job_refuses_settings_of_a_local_session(
    run: Run, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    site = {"send": "newark", "receive": "seattle"}[name]
    words = ("--config", CONFIG, "--site", site, "--conf", "spark.master=local[2]")
    assert run(*words, job=name) == 1
    assert capsys.readouterr().err == (
        "spark-wan: --conf is for a local session; pass it to spark-submit instead\n"
    )


def test_a_setting_of_the_local_session_without_a_value_is_refused(
    run: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("send", *SENDING, "--conf", "spark.master") == 1
    assert "--conf 'spark.master' is not understood; write <key>=<value>" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["send", "receive"])
def test_a_standby_that_is_to_end_is_refused(
    run: Run, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    """Fails when a run that a timer starts waits for ever beside another one."""
    words = {"send": SENDING, "receive": RECEIVING}[name]
    assert run(name, *words, "--standby", "--available-now") == 1
    assert "--standby waits until it is needed, and --available-now ends: leave one out" in (
        capsys.readouterr().err
    )


@pytest.mark.parametrize("name", ["send", "receive"])
def test_jobs_parse_their_arguments_without_spark(name: str) -> None:
    """Fails when anything that the command line imports imports pyspark."""
    job = ROOT / "jobs" / f"{name}.py"
    code = f"import runpy, sys; sys.modules['pyspark'] = None; sys.argv = ['{name}.py', '--help']; "
    code += f"runpy.run_path({str(job)!r}, run_name='__main__')"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT)
    assert (done.returncode, done.stderr) == (0, "")
    assert "--available-now" in done.stdout


@pytest.mark.parametrize("name", ["send", "receive"])
def test_a_wrong_topology_is_refused_without_spark(name: str, tmp_path: Path) -> None:
    """Fails when the class is imported first: importing the receiver imports pyspark."""
    code = "import sys; sys.modules['pyspark'] = None; from spark_wan.cli.app import main; main()"
    words = [name, "--config", str(tmp_path / "none.yaml"), "--site", "newark"]
    done = subprocess.run([sys.executable, "-c", code, *words], capture_output=True, text=True)
    assert done.returncode == 1
    assert done.stderr.startswith(f"spark-wan: {tmp_path}/none.yaml: cannot be read")


def test_a_machine_without_spark_is_told_what_to_install() -> None:
    code = "import sys; sys.modules['pyspark'] = None; from spark_wan.cli.app import main; main()"
    words = ["receive", "--config", "conf/two_sites.yaml", "--site", "seattle"]
    done = subprocess.run(
        [sys.executable, "-c", code, *words], capture_output=True, text=True, cwd=ROOT
    )
    assert done.returncode == 1
    assert done.stderr.startswith("spark-wan: this needs pyspark")
    assert re.search(
        r": pip install 'pyspark[^']+' 'delta-spark[^']+' 'pandas[^']+'\n$", done.stderr
    )


def test_jobs_start_nothing_when_they_are_imported() -> None:
    for name in ("send", "receive"):
        runpy.run_path(str(ROOT / "jobs" / f"{name}.py"))


def test_every_command_prints_for_scripts(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    for name in COMMANDS:
        assert run(name, "--help") == 0
        assert "--output" in capsys.readouterr().out


def test_no_command_prints_the_options_of_a_store(
    run: Run, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """They may be secrets. Fails when ``validate`` prints a topology as it was read."""
    content = (
        "version: 1\n"
        "sites:\n"
        "  newark: {state: s3a://b/n, storage: {secret_access_key: hush-1}}\n"
        "  seattle: {state: ./s}\n"
        "senders:\n"
        "  east:\n"
        "    site: newark\n"
        "    remotes: [seattle]\n"
        "    channel: kafka://b1:9092/wan\n"
        "    storage:\n"
        "      kafka.security.protocol: SASL_SSL\n"
        "      kafka.sasl.mechanism: PLAIN\n"
        "      kafka.sasl.jaas.config: >-\n"
        "        org.apache.kafka.common.security.plain.PlainLoginModule required\n"
        '        username="u" password="hush-2";\n'
        "tables:\n"
        "  orders:\n"
        "    {keys: [id], writers: [newark], senders: [east], at: {newark: ./o, seattle: ./p}}\n"
    )
    (tmp_path / "wan.yaml").write_text(content)
    for output in ("text", "json"):
        words = ("--config", str(tmp_path / "wan.yaml"), "--output", output)
        assert run("validate", *words) == 0
        run("topology", *words)
        printed = "".join(capsys.readouterr())
        assert "hush" not in printed
        assert "orders" in printed
