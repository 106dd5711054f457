"""Log messages: the fields that they carry, and how they are written, as text or as lines of JSON.

A module logs with ``log = message_log(__name__)``, whose calls take fields as keyword arguments:

    log.warning(
        "%s: epoch %d is not acked", stream, epoch,
        event="overdue", stream=stream, epoch=epoch, what_to_do="Check that its receiver runs.",
    )

A warning or an error names its event, what it is about (a stream; else a table, a channel or a
site), and what to do: with ``what_to_do``, which is added to the text, or with ``cause``, the text
of an error that says so itself (:mod:`spark_wan.errors`).

The loggers are named as the modules, so the logger of a package, ``spark_wan.sender``, is that of a
*role*. The object of a line of JSON, and what the fields mean, is in ``docs/monitoring.md``.
"""

from __future__ import annotations

import json
import logging
import math
import re
import sys
import threading
import traceback
from collections.abc import Callable, Iterator, MutableMapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from spark_wan.errors import OptionError, nearest

VERSION = 1
"""Version of the lines of JSON. It rises when a field means something else, or is gone."""
FORMATS = "text", "json"
LEVELS = "DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL"
MAX_TEXT = 10_000
"""Characters of a text in a line, at most: of a longer message the begin, of a stack the end."""
_KEPT = MAX_TEXT - 50
_MAX_READ = 8 * MAX_TEXT
"""Characters of a text that are searched for secrets, at most."""

ROOT = "spark_wan"
ROLES = {
    "apply": "applies epochs and copies to tables",
    "backup": "makes and adopts backups",
    "capture": "reads change feeds",
    "channels": "reads and writes channels",
    "cli": "the commands",
    "control": "keeps what `pause`, `drain` and `stop` ask for",
    "datasource": '`format("wan")`: sink and source',
    "delta": "reads Delta's logs, sets up sessions",
    "forward": "sends on what the site receives",
    "ledger": "the ledger of the site",
    "log": "reads and appends the logs of streams",
    "receiver": "the receiver: its channels and streams",
    "runtime": "the jobs: start, stop, long work",
    "sender": "the sender: its streams, acks, copies",
    "status": "watches the streams of a topology",
    "sync": "copies of tables: asked for, compared, undone",
    "target": "writes tables",
}
"""The packages that log, and what each does. ``spark_wan.<role>`` is the logger of a role."""

SUBJECTS = "stream", "table", "channel", "site"
"""What a message may be about. Of a stream all else is known."""
FIELDS = (
    "event",
    *SUBJECTS,
    "kind",
    "epoch",
    "version",
    "cause",
    "what_to_do",
    "work",
    "rows",
    "bytes",
    "share",
    "rows_per_s",
    "left_ms",
    "seconds",
    "streams",
    "channels",
    "settings",
    "versions",
)
"""What a call may pass, beside what the logging of Python takes."""

_site: ContextVar[str | None] = ContextVar("spark_wan_site", default=None)
"""The site of the job whose thread this is."""


if TYPE_CHECKING:
    _Adapter = logging.LoggerAdapter[logging.Logger]
else:
    _Adapter = logging.LoggerAdapter  # takes no type argument before Python 3.11


@contextmanager
def at_site(site: str) -> Iterator[None]:
    """Have messages of this thread name the site whose job runs here, unless they name one."""
    token = _site.set(site)
    try:
        yield
    finally:
        _site.reset(token)


class MessageLog(_Adapter):
    """The logger of a module. Its calls take :data:`FIELDS` as keyword arguments; records have them
    as attributes."""

    def process(
        self, msg: Any, kwargs: MutableMapping[str, Any]
    ) -> tuple[Any, MutableMapping[str, Any]]:
        fields = {name: kwargs.pop(name) for name in FIELDS if name in kwargs}
        fields.setdefault("site", _site.get())
        advice = fields.get("what_to_do")
        if advice:
            # Most messages end with the text of an error, and most of these with a period.
            cause = str(fields.get("cause", ""))
            ends = msg.endswith(".") or (msg.endswith("%s") and cause.endswith("."))
            end = "" if ends else "."
            msg = f"{msg}{end} {advice.replace('%', '%%') if '%' in msg else advice}"
        kwargs["extra"] = {name: value for name, value in fields.items() if value is not None}
        return msg, kwargs


def message_log(name: str) -> MessageLog:
    """Return the logger of a module."""
    return MessageLog(logging.getLogger(name), {})


@dataclass
class Refusals:
    """Whether something was refused the last time that it was tried. It is tried again and again,
    so of refusals in a row one is a warning."""

    again: bool = False

    def __bool__(self) -> bool:
        return self.again

    def level(self) -> int:
        """Take note of a refusal, and return the level at which it is logged."""
        level = logging.DEBUG if self.again else logging.WARNING
        self.again = True
        return level

    def end(self) -> None:
        """Take note that it was not refused."""
        self.again = False


def role_of(logger: str) -> str:
    """Return the role of a logger: of one of spark_wan its package, else its library.

    >>> role_of("spark_wan.sender.acks"), role_of("kafka.conn")
    ('sender', 'kafka')
    """
    root, _, rest = logger.partition(".")
    return rest.partition(".")[0] if root == ROOT and rest else root


# --- secrets

_HIDDEN = "…"
_NAMES = (
    r"sig|signature|x-(?:amz|goog)-(?:signature|credential|security-token)|awsaccesskeyid"
    r"|[\w.-]*(?:password|passwd|secret|private[._-]?key|access[._-]?key(?:[._-]?id)?|api[._-]?key)"
    r"|[\w.-]*(?:secret|account|sas)[._-]?key(?:\.[\w.-]+)?|[\w.-]*\.sas\.[\w.-]+"
    r"|[\w.-]*(?:sas|session|access|security|bearer|refresh)[._-]?token(?:\.[\w.-]+)?|token"
)
_SECRETS = [
    (re.compile(pattern, re.IGNORECASE), text)
    for pattern, text in (
        # With a password. abfs://container@account has none.
        (r"(?<=://)([^/\s:@\"']{1,200}):[^/\s@\"']{1,2000}@", rf"\1:{_HIDDEN}@"),
        (r"(?<=http://|ttps://)[^/\s:@\"']{1,2000}@", f"{_HIDDEN}@"),
        (
            r"(authorization[\"']?\s{0,5}[:=]\s{0,5}[\"']?)(?:[a-z][\w-]*\s+)?[^\s\"',}]+",
            rf"\1{_HIDDEN}",
        ),
        (rf"(?<![\w.-])({_NAMES})([\"']?\s{{0,5}}[:=]\s{{0,5}})\"[^\"]*\"?", rf"\1\2{_HIDDEN}"),
        (rf"(?<![\w.-])({_NAMES})([\"']?\s{{0,5}}[:=]\s{{0,5}})'[^']*'?", rf"\1\2{_HIDDEN}"),
        (
            rf"(?<![\w.-])({_NAMES})([\"']?\s{{0,5}}[:=])(?!\s*…)\s{{0,5}}[^\s\"'&,;)}}\]]+",
            rf"\1\2{_HIDDEN}",
        ),
    )
]


def without_secrets(text: str) -> str:
    """Return a text without what looks like credentials: those of URLs and of signed requests, and
    the values of settings that are named as secrets are.

    spark_wan puts none into its messages. Stores and libraries may, in the texts of their errors.

    >>> without_secrets("s3://ann:pass@host/x, sig=abc%2F&se=1, account_key='k', abfs://c@a/x")
    's3://ann:…@host/x, sig=…&se=1, account_key=…, abfs://c@a/x'
    """
    for pattern, replacement in _SECRETS:
        text = pattern.sub(replacement, text)
    return text


# --- formats


class TextFormatter(logging.Formatter):
    """Lines for people, without secrets."""

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)s %(name)s: %(message)s")

    def format(self, record: logging.LogRecord) -> str:
        try:
            line = super().format(record)
        except Exception:  # as of a str() that raises
            told = {**vars(record), "msg": _message(record), "args": None}
            line = super().format(logging.makeLogRecord(told))
        return _unicode(without_secrets(line))


class JsonFormatter(logging.Formatter):
    """One line of JSON for each record, whatever is in it."""

    def format(self, record: logging.LogRecord) -> str:
        fields: dict[str, Any] = {
            "v": VERSION,
            "time": _time(record.created),
            "level": record.levelname,
            "role": role_of(record.name),
            "logger": record.name,
            "thread": record.threadName,
            "message": _message(record),
        }
        for name in FIELDS:
            if (value := getattr(record, name, None)) is not None:
                fields[name] = value
        error = record.exc_info[1] if isinstance(record.exc_info, tuple) else None
        if error is not None:
            fields["exception"] = _exception(error)
        # ASCII: no encoding of a terminal or a file can refuse or break it.
        return json.dumps({name: _plain(value) for name, value in fields.items()})


def _time(seconds: float) -> str:
    """Return a time in ISO 8601, in UTC, with milliseconds."""
    time = datetime.fromtimestamp(seconds, timezone.utc)
    return time.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _message(record: logging.LogRecord) -> str:
    try:
        return record.getMessage()
    except Exception as error:  # a placeholder without value, a str() that raises
        template = _text_of(lambda: str(record.msg))
        return f"{template} (its values cannot be shown: {type(error).__name__})"


def _exception(error: BaseException) -> dict[str, str]:
    stack = _text_of(lambda: "".join(traceback.format_exception(error)), _end_of)
    return {"class": type(error).__name__, "text": _text_of(lambda: str(error)), "stack": stack}


def _text_of(make: Callable[[], str], cut: Callable[[str], str] | None = None) -> str:
    try:
        return (cut or _begin_of)(make())
    except Exception as error:
        return f"(cannot be shown: {type(error).__name__})"


def _begin_of(text: str) -> str:
    """Return the begin of a text, without secrets."""
    shown = without_secrets(text[:_MAX_READ])
    if len(shown) <= MAX_TEXT and len(text) <= _MAX_READ:
        return shown
    return f"{shown[:_KEPT]} … ({len(text):,} characters)"


def _end_of(text: str) -> str:
    """Return the end of a text, without secrets."""
    shown = without_secrets(text[-_MAX_READ:])
    if len(shown) <= MAX_TEXT and len(text) <= _MAX_READ:
        return shown
    return f"({len(text):,} characters) … {shown[-_KEPT:]}"


def _plain(value: Any) -> Any:
    """Return a value as every reader of JSON takes it."""
    if value is None or isinstance(value, bool | int):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {_plain(str(name)): _plain(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    return _unicode(_text_of(lambda: str(value)))


def _unicode(text: str) -> str:
    """Return a text without halves of surrogate pairs, which encoders and readers may refuse."""
    return text.encode("utf-8", "backslashreplace").decode()


# --- configuration


def configure_logging(
    format: str = "text", *, level: str | int = "INFO", file: str | Path | None = None
) -> None:
    """Have spark_wan log to standard error, or to a file. A second call replaces the first.

    Without it, the messages go to the handlers of the application, as those of any library. What
    other libraries log is left to the application.

    Args:
        format: ``text``, or ``json``: one object per line.
        level: The lowest level that is logged, ``DEBUG`` to ``CRITICAL``, or its number. For one
            role: ``logging.getLogger("spark_wan.sender").setLevel("DEBUG")``.
        file: File to append to; default: standard error.

    Raises:
        OptionError: the format or the level is unknown, or the file cannot be written.

    >>> configure_logging("xml")
    Traceback (most recent call last):
    ...
    spark_wan.errors.OptionError: format: 'xml' is unknown; known: json, text
    """
    number = _level(level)
    handler = log_handler(format, file)
    own = logging.getLogger(ROOT)
    _replace(own, handler)
    own.propagate = False  # else the application's handlers would write each message again
    own.setLevel(number)


def _level(level: str | int) -> int:
    if isinstance(level, int):
        return level
    if level.upper() not in LEVELS:
        raise OptionError(f"level: {level!r} is unknown; {nearest(level, LEVELS)}")
    number: int = getattr(logging, level.upper())
    return number


def log_handler(format: str, file: str | Path | None = None) -> logging.Handler:
    """Return what writes records to a file; None: to standard error. Raises OptionError."""
    if format not in FORMATS:
        raise OptionError(f"format: {format!r} is unknown; {nearest(format, FORMATS)}")
    handler: logging.Handler
    if file is None:
        handler = logging.StreamHandler()
    else:
        try:
            handler = logging.FileHandler(file, encoding="utf-8", errors="backslashreplace")
        except OSError as error:
            raise OptionError(
                f"the log cannot be written to {file} ({error.strerror}). Name a file in a folder "
                "that is there and may be written to."
            ) from None
    handler.setFormatter(JsonFormatter() if format == "json" else TextFormatter())
    handler.set_name(_HANDLER)
    return handler


_HANDLER = "spark_wan"
"""The name of the handler that is replaced by the next call."""


def _replace(logger: logging.Logger, handler: logging.Handler) -> None:
    for each in [*logger.handlers]:
        if each.get_name() == _HANDLER:
            logger.removeHandler(each)
            each.close()
    logger.addHandler(handler)


def log_everything(handler: logging.Handler, level: int) -> None:
    """Have a process log with this handler, its libraries too; in JSON also what Python would print
    by itself: warnings, and errors that end a thread or the process."""
    _replace(logging.getLogger(), handler)
    logging.getLogger().setLevel(level)
    if isinstance(handler.formatter, JsonFormatter):
        logging.captureWarnings(True)
        sys.excepthook = _log_uncaught
        threading.excepthook = _log_uncaught_in_thread


def is_on_standard_error() -> bool:
    """Whether a log of the process is written there."""
    handlers = [each for name in ("", ROOT) for each in logging.getLogger(name).handlers]
    streams = (each.stream for each in handlers if isinstance(each, logging.StreamHandler))
    return any(stream is sys.stderr for stream in streams)


def _log_uncaught(
    kind: type[BaseException], error: BaseException, stack: TracebackType | None
) -> None:
    message_log(f"{ROOT}.cli").critical(
        "ended by an unexpected error (%s)",
        kind.__name__,
        exc_info=(kind, error, stack),
        event="crashed",
        site=_site.get(),
        what_to_do="Start it again. If it ends again, report the error with its stack.",
    )


def _log_uncaught_in_thread(args: threading.ExceptHookArgs) -> None:
    if args.exc_value is not None and not isinstance(args.exc_value, SystemExit):
        _log_uncaught(args.exc_type, args.exc_value, args.exc_traceback)


def error_line(error: BaseException) -> str:
    """Return the line of JSON for an error that ends a command."""
    fields = {"event": "failed", "cause": str(error), "site": _site.get()}
    return JsonFormatter().format(
        logging.makeLogRecord(
            {
                "name": f"{ROOT}.cli",
                "levelno": logging.ERROR,
                "levelname": "ERROR",
                "msg": "%s",
                "args": (str(error),),
                **fields,
            }
        )
    )
