"""What spark_wan logs: which fields messages carry, and that a line of JSON is one, always."""

from __future__ import annotations

import ast
import json
import logging
import random
import re
import sys
import threading
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from logged import calls, keywords, sources

import spark_wan
from spark_wan import messages
from spark_wan.channels.parallel import in_order
from spark_wan.errors import OptionError
from spark_wan.messages import (
    FIELDS,
    MAX_TEXT,
    SUBJECTS,
    JsonFormatter,
    MessageLog,
    at_site,
    configure_logging,
    log_everything,
    log_handler,
    message_log,
    role_of,
    without_secrets,
)

OF_PYTHON = {"exc_info", "stack_info", "stacklevel"}
OTHERS_LOGGERS = {"messages.py", "cli/launcher.py", "channels/kafka/causes.py"}
"""Modules that set up the loggers of libraries."""

MESSAGES = list(calls())
SERIOUS = [(where, call) for where, level, call in MESSAGES if level not in ("debug", "info")]


def test_messages_are_found() -> None:
    """Fails when this test no longer sees the calls that it checks."""
    assert len(SERIOUS) >= 40 and len(MESSAGES) - len(SERIOUS) >= 20


@pytest.mark.parametrize(("where", "call"), SERIOUS, ids=[where for where, _ in SERIOUS])
def test_a_warning_says_what_it_is_about_and_what_to_do(where: str, call: ast.Call) -> None:
    """``cause``: the text of an error, which says what to do itself."""
    given = keywords(call)
    assert set(SUBJECTS) & {*given}
    assert {"what_to_do", "cause"} & {*given}
    if "what_to_do" in given and "cause" not in given:
        assert ast.unparse(given["what_to_do"]) != "None"


@pytest.mark.parametrize(
    ("where", "level", "call"), MESSAGES, ids=[where for where, *_ in MESSAGES]
)
def test_a_message_has_known_fields_and_an_event(where: str, level: str, call: ast.Call) -> None:
    """Fails when a field is misspelt, which would be an error while the message is logged."""
    given = keywords(call)
    assert {*given} - {None} <= {*FIELDS, *OF_PYTHON}
    if level != "debug":
        event = given["event"]
        assert isinstance(event, ast.Constant) and re.fullmatch("[a-z]+(-[a-z]+)*", event.value)
    # The advice is added to the template of the message, so values in it are shown as they are.
    template = call.args[1 if level == "log" else 0]
    assert isinstance(template, ast.Constant) and isinstance(template.value, str)
    assert template.value.count("%") == len(call.args) - (2 if level == "log" else 1)


def test_no_module_logs_past_the_fields() -> None:
    for file, tree in sources():
        for node in ast.walk(tree):
            if isinstance(node, ast.Call):
                name = ast.unparse(node.func)
                assert name != "print" or file.startswith(("cli/", "demo/", "local/")), file
                is_logging = re.fullmatch(r"logging\.(getLogger|\w+)", name) is not None
                assert not is_logging or file in OTHERS_LOGGERS, f"{file}:{node.lineno}"


# --- lines of JSON


def written(record: logging.LogRecord) -> str:
    return JsonFormatter().format(record)


class Unspeakable(Exception):
    """An error whose text cannot be had."""

    def __str__(self) -> str:
        raise RuntimeError("no text")

    __repr__ = __str__


class Heard(logging.Handler):
    """Keeps the lines of a logger."""

    def __init__(self, formatter: logging.Formatter | None = None) -> None:
        super().__init__()
        self.setFormatter(formatter or JsonFormatter())
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(self.format(record))

    @property
    def last(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.lines[-1])
        return found


LOGGER = logging.Logger("spark_wan.sender.test", logging.DEBUG)
"""No other handler listens: pytest's cannot take what is logged here."""
LOG = MessageLog(LOGGER, {})


@pytest.fixture
def heard() -> Iterator[Heard]:
    """What is logged."""
    handler = Heard()
    LOGGER.addHandler(handler)
    yield handler
    LOGGER.removeHandler(handler)


def test_a_line_has_the_fields_of_its_message(heard: Heard) -> None:
    with at_site("newark"):
        LOG.warning(
            "%s: epoch %d is late",
            "a.b.t",
            3,
            event="overdue",
            stream="a.b.t",
            epoch=3,
            what_to_do="Wait until 50% are there.",
        )
    found = heard.last
    time = found.pop("time")
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", time)
    assert found == {
        "v": 1,
        "level": "WARNING",
        "role": "sender",
        "logger": "spark_wan.sender.test",
        "thread": threading.current_thread().name,
        "message": "a.b.t: epoch 3 is late. Wait until 50% are there.",
        "event": "overdue",
        "stream": "a.b.t",
        "site": "newark",
        "epoch": 3,
        "what_to_do": "Wait until 50% are there.",
    }
    LOG.info("100% done", event="published", what_to_do=None)
    assert heard.last["message"] == "100% done" and "what_to_do" not in heard.last


def test_a_message_names_the_site_of_its_job_in_the_threads_of_requests_too(heard: Heard) -> None:
    """Each with its own. Fails when the record of a stream is not written, and no one can tell
    where."""
    with at_site("newark"):
        list(in_order(lambda n: LOG.info("x", event="published", epoch=n), [1, 2, 3]))
    sites = [json.loads(line).get("site") for line in heard.lines]
    assert sites == ["newark"] * 3
    LOG.info("y", event="published")
    assert "site" not in heard.last
    with at_site("newark"):
        LOG.info("y", event="published", site="seattle")
    assert heard.last["site"] == "seattle"


def test_the_role_of_a_logger() -> None:
    names = ("spark_wan.sender.acks", "spark_wan.apply", "spark_wan", "kafka.conn", "root")
    assert [role_of(name) for name in names] == ["sender", "apply", "spark_wan", "kafka", "root"]


ODD = [
    "",
    "a\nb",
    "\r\n\t\0\x1b[31m",
    "\u2028\u2029",
    "\udcff\ud800x",
    "日本",
    '"\\',
    "%s %d",
    "\x85",
]


@pytest.mark.parametrize("seed", range(40))
def test_whatever_is_logged_is_one_object_on_one_line(heard: Heard, seed: int) -> None:
    """Fails when a line cannot be read, or one message takes two."""
    chance = random.Random(seed)
    values = [*ODD, None, Unspeakable(), float("nan"), float("inf"), 10**30, b"\xff", object()]
    values += [{"a\n": float("nan"), 2: [Unspeakable()]}, (1, "\ud800"), "x" * 300_000]

    def value() -> Any:
        return chance.choice(values)

    fields = {name: value() for name in chance.sample(FIELDS, 6) if name != "what_to_do"}
    template = chance.choice(["%s: %s", "%s", "%d: %s", "no values", "%s %s %s"])
    args = [value() for _ in range(chance.randrange(4))]
    try:
        raise chance.choice([Unspeakable, ValueError, UnicodeError])(chance.choice(ODD)) from (
            chance.choice([Unspeakable(), KeyError("\ud800"), None])
        )
    except Exception as error:
        caught = error
    LOG.error(template, *args, exc_info=chance.choice([caught, False]), **fields)
    (line,) = heard.lines
    assert line.isascii() and len(line.splitlines()) == 1
    line.encode("ascii").decode("utf-8")

    def refuse(constant: str) -> Any:
        raise AssertionError(f"{constant} is no JSON")

    found = json.loads(line, parse_constant=refuse)
    assert found["level"] == "ERROR" and found["role"] == "sender"
    json.dumps(found, ensure_ascii=False).encode("utf-8")  # no half of a surrogate pair
    assert len(line) < 40 * MAX_TEXT


def test_half_of_a_surrogate_pair_is_shown_as_text(heard: Heard) -> None:
    """Fails when a strict reader of JSON refuses the line."""
    LOG.warning("%s", "a\ud800", event="held", settings={"b\ud800": ["c\udc00"]})
    assert heard.last["message"] == "a\\ud800"
    assert heard.last["settings"] == {"b\\ud800": ["c\\udc00"]}


def test_a_message_that_cannot_be_shown_is_a_line_all_the_same(heard: Heard) -> None:
    LOG.error(
        "%s: %s", "a.b.t", Unspeakable(), event="held", stream="a.b.t", exc_info=Unspeakable()
    )
    assert heard.last["message"] == "%s: %s (its values cannot be shown: RuntimeError)"
    assert heard.last["stream"] == "a.b.t"
    assert heard.last["exception"]["class"] == "Unspeakable"
    assert heard.last["exception"]["text"] == "(cannot be shown: RuntimeError)"
    text = Heard(messages.TextFormatter())
    text.handle(logging.makeLogRecord({"msg": "%s: %s", "args": ("a.b.t", Unspeakable())}))
    assert "%s: %s (its values cannot be shown: RuntimeError)" in text.lines[0]


def test_a_long_message_is_cut_and_says_so(heard: Heard) -> None:
    """Collectors split lines that are too long. Of a stack the end says what was raised."""
    LOG.warning("x" * 1_000_000, event="held", cause="y" * 20_000)
    assert heard.last["message"].endswith("xxx … (1,000,000 characters)")
    assert len(heard.last["message"]) < MAX_TEXT + 40
    assert heard.last["cause"].endswith("y … (20,000 characters)")
    try:
        raise ValueError("a" + "b" * 100_000 + "the end")
    except ValueError as error:
        LOG.warning("x", event="held", exc_info=error)
    assert heard.last["exception"]["text"].startswith("abbb")
    stack = heard.last["exception"]["stack"]
    assert stack.endswith("bbbthe end\n") and len(stack) < MAX_TEXT + 40


def test_an_error_has_its_class_its_text_and_its_stack(heard: Heard) -> None:
    try:
        raise KeyError("t") from ValueError("why")
    except KeyError:
        LOG.exception("x", event="unexpected-error")
    error = heard.last["exception"]
    assert (error["class"], error["text"]) == ("KeyError", "'t'")
    assert "ValueError: why" in error["stack"] and 'raise KeyError("t")' in error["stack"]
    LOG.error("x", event="held", exc_info=True)  # none is handled
    assert "exception" not in heard.last


# --- secrets


SECRET = "hunter2/+=Zq"
SECRETIVE = [
    "s3://ann:{}@bucket/x",
    "https://{}@host/path",
    "https://host/x?sv=2024&sig={}&se=1",
    "https://b.s3.amazonaws.com/k?X-Amz-Signature={}&X-Amz-Date=1",
    "https://b/k?X-Amz-Security-Token={}",
    "https://storage.googleapis.com/b/k?X-Goog-Signature={}",
    "Authorization: Bearer {}",
    "{{'authorization': 'Basic {}'}}",
    'sasl.jaas.config=x username="u" password="{}";',
    "aws_secret_access_key={}",
    "{{'aws_secret_access_key': '{}', 'region': 'eu'}}",
    '{{"account_key": "{}"}}',
    "AccountName=a;AccountKey={};EndpointSuffix=core.windows.net",
    "SharedAccessSignature sig={}",
    "sas_token={}",
    "session_token: {}",
    "client_secret={}",
    "fs.azure.account.oauth2.client.secret={}",
    "kafka.ssl.key.password = {}",
]


@pytest.mark.parametrize("template", SECRETIVE)
def test_what_looks_like_a_secret_is_in_no_line(heard: Heard, template: str) -> None:
    """Libraries may put it into their errors: of a message, a field, an error and its stack; also
    where a text is cut."""
    secret = SECRET.replace("/", "%2F") if "://" in template else SECRET
    told = f"before {template.format(secret)} behind"
    text = Heard(messages.TextFormatter())
    LOGGER.addHandler(text)
    try:
        for message in (told, "x" * (MAX_TEXT - 60) + told, told + "x" * 20_000):
            LOG.error("%s", message, event="held", cause=message, exc_info=ValueError(message))
    finally:
        LOGGER.removeHandler(text)
    for line in [*heard.lines, *text.lines]:
        assert "hunter2" not in line and "Zq" not in line
    assert "before " in heard.lines[0] and " behind" in heard.lines[0]


@pytest.mark.parametrize(
    "text",
    [
        "The broker refuses the login: check user name, password and kafka.sasl.mechanism.",
        "abfs://container@account.dfs.core.windows.net/path",
        "newark.east.orders: epoch 3, to name sites: seattle",
        "signing_keys: env:NAME cannot be read",
        "columns id=3, token count, keys: a",
        "apply 7 has the token: 3 marks",
        "s3://bucket/a:b@c",
    ],
)
def test_what_is_no_secret_is_shown(text: str) -> None:
    shown = without_secrets(text)
    assert shown == text or text.startswith("apply 7")


def test_secrets_are_searched_for_in_linear_time() -> None:
    """Fails (takes minutes) when a pattern tries all ways to divide a text."""
    for text in (
        "a" * 80_000,
        "://" * 30_000,
        "password" * 10_000,
        "token= " * 12_000,
        "a.-" * 30_000,
    ):
        without_secrets(text)


# --- configuration


@pytest.fixture
def logging_as_before(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Undo what is set up for the process."""
    kept = [
        (logger, [*logger.handlers], logger.level, logger.propagate)
        for logger in (logging.getLogger(), logging.getLogger("spark_wan"))
    ]
    hooks = sys.excepthook, threading.excepthook
    yield
    logging.captureWarnings(False)
    sys.excepthook, threading.excepthook = hooks
    for logger, handlers, level, propagate in kept:
        for handler in {*logger.handlers} - {*handlers}:
            handler.close()
        logger.handlers[:], logger.propagate = handlers, propagate
        logger.setLevel(level)


pytestmark = pytest.mark.usefixtures("logging_as_before")


def test_a_library_is_told_how_to_log_with_one_call(tmp_path: Path) -> None:
    """And again: the second call replaces the first."""
    first, second = tmp_path / "a.log", tmp_path / "b.log"
    spark_wan.configure_logging("json", file=first, level="debug")
    spark_wan.configure_logging("json", file=second)
    logging.getLogger("spark_wan.ledger").setLevel("ERROR")
    try:
        message_log("spark_wan.ledger.x").warning("quiet", event="held")
        message_log("spark_wan.sender.x").info("loud", event="published")
        message_log("spark_wan.sender.x").debug("not told")
        logging.getLogger("another").error("the application's")
    finally:
        logging.getLogger("spark_wan.ledger").setLevel(logging.NOTSET)
    assert first.read_text() == ""
    assert [json.loads(line)["message"] for line in second.read_text().splitlines()] == ["loud"]


def test_without_a_file_the_log_is_on_standard_error(capsys: pytest.CaptureFixture[str]) -> None:
    configure_logging(level=logging.WARNING)
    message_log("spark_wan.sender.x").warning("%s", "told\udcff", event="held")
    out, err = capsys.readouterr()
    assert out == "" and err.endswith(" WARNING spark_wan.sender.x: told\\udcff\n")


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"format": "yaml"}, "format: 'yaml' is unknown; known: json, text"),
        ({"format": "jsno"}, "format: 'jsno' is unknown; did you mean 'json'?"),
        ({"level": "WARN!"}, "level: 'WARN!' is unknown; did you mean 'WARNING'?"),
        ({"file": "{tmp}/none/a.log"}, "the log cannot be written to .*none/a.log .No such file"),
    ],
)
def test_what_cannot_be_configured_is_refused_and_changes_nothing(
    tmp_path: Path, options: dict[str, str], problem: str
) -> None:
    before = [*logging.getLogger("spark_wan").handlers]
    given = {name: value.format(tmp=tmp_path) for name, value in options.items()}
    with pytest.raises(OptionError, match=problem):
        configure_logging(**given)
    assert logging.getLogger("spark_wan").handlers == before


def test_what_python_would_print_is_in_the_lines_too(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Warnings, and errors that end a thread or the process. Fails when standard error is no longer
    one object per line."""
    file = tmp_path / "log"
    log_everything(log_handler("json", file), logging.WARNING)
    warnings.showwarning("look\nout", UserWarning, "x.py", 1)

    def die() -> None:
        raise ValueError("in a thread")

    thread = threading.Thread(target=die)
    thread.start()
    thread.join()
    try:
        raise KeyError("in the process")
    except KeyError as error:
        sys.excepthook(KeyError, error, error.__traceback__)
    told = [json.loads(line) for line in file.read_text().splitlines()]
    assert [each["role"] for each in told] == ["py", "cli", "cli"]
    assert "look\nout" in told[0]["message"]
    assert [each["exception"]["text"] for each in told[1:]] == ["in a thread", "'in the process'"]
    assert capsys.readouterr().err == ""


def test_the_log_of_a_process_is_set_up_again(tmp_path: Path) -> None:
    """Fails when each line is written twice."""
    for _ in range(2):
        log_everything(log_handler("json", tmp_path / "log"), logging.INFO)
    message_log("spark_wan.sender.x").info("x", event="published")
    assert len((tmp_path / "log").read_text().splitlines()) == 1
