"""Options that several commands share, and how commands take them."""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Annotated, Any, TypeVar

import typer

from spark_wan.control.decide import early_decisions
from spark_wan.errors import OptionError, WanError
from spark_wan.local.cache import log_path
from spark_wan.messages import message_log
from spark_wan.state.decisions import parse_decisions
from spark_wan.topology.model import Topology
from spark_wan.topology.parsing import load_topology
from spark_wan.topology.settings import settings_of
from spark_wan.wire.decisions import Decisions

log = message_log(__name__)

T = TypeVar("T")

SUBMITTED = "submitted"
"""The context object of a command that runs as a job under spark-submit."""


class Format(str, Enum):
    """How a command prints."""

    TEXT = "text"
    JSON = "json"


Repeated = list[str] | None
"""The type of an option that may be repeated."""

Config = Annotated[
    Path, typer.Option("--config", "-c", metavar="FILE", help="Read this topology file.")
]
OutputFormat = Annotated[
    Format, typer.Option("--output", "-o", help="Print text for people, or JSON for scripts.")
]


LogFormat = Annotated[
    Format,
    typer.Option(
        "--log-format",
        help="Log text, or a JSON object per line. What Spark prints is then in a file of its own.",
    ),
]
Conf = Annotated[
    Repeated,
    typer.Option(
        metavar="KEY=VALUE", help="Set a property of the local Spark session. May be repeated."
    ),
]
Verbose = Annotated[
    bool,
    typer.Option(
        "--verbose", "-v", help="Log more. Without --log-file, the log goes to standard error."
    ),
]
LogFile = Annotated[
    Path | None,
    typer.Option(
        help="File to append the log of the local session to. Default: one in the cache folder,"
        " named when the job starts."
    ),
]


def parsed(parse: Callable[[str], T]) -> Callable[[str], T]:
    """Return the parser of an option whose text a function of :mod:`spark_wan.units` reads."""

    def parser(text: str) -> T:
        try:
            return parse(text)
        except ValueError as problem:
            raise typer.BadParameter(str(problem)) from None

    return parser


def _writable(find: Callable[[], Path]) -> Path:
    """Return a path that can be appended to. Raises OptionError."""
    try:
        path = find()
        path.open("ab").close()
    except OSError as error:
        raise OptionError(
            f"the log cannot be written to {error.filename} ({error.strerror}). Name a file "
            "with --log-file, or log to standard error with --verbose."
        ) from None
    return path


class WithSession:
    """What a command with a Spark session asks of its options."""

    context: typer.Context
    conf: Conf
    verbose: Verbose
    log_file: LogFile
    log_format: Format = Format.TEXT

    @property
    def submitted(self) -> bool:
        """Whether the session is that of spark-submit."""
        return bool(self.context.obj == SUBMITTED)

    def log_name(self, kind: str) -> str:
        """Return the name of the default file for the log of a kind of work."""
        return kind

    def log_path(self, kind: str) -> Path | None:
        """Return the file for the log of a local session; None: standard error. Raises OptionError
        if it cannot be written."""
        if self.log_file is None and self.verbose:
            return None
        return _writable(lambda: self.log_file or log_path(self.log_name(kind)))

    def spark_log_path(self, kind: str, log_file: Path | None) -> Path | None:
        """Return the file for what Spark prints in a local session whose log is in ``log_file``;
        None: standard error. Lines of JSON are kept apart from it. Raises OptionError if it cannot
        be written."""
        if self.log_format is Format.TEXT:
            return log_file
        if log_file is None:
            return _writable(lambda: log_path(f"{self.log_name(kind)}.spark"))
        return _writable(lambda: log_file.with_name(f"{log_file.stem}.spark{log_file.suffix}"))

    def session_settings(self) -> dict[str, Any]:
        """Return the settings in ``--conf``. Raises OptionError for what is no setting, and for
        options of a local session under spark-submit."""
        settings = {}
        for text in self.conf or ():
            name, equals, value = text.partition("=")
            if not equals:
                raise OptionError(f"--conf {text!r} is not understood; write <key>=<value>")
            settings[name] = value
        if settings and self.submitted:
            raise OptionError("--conf is for a local session; pass it to spark-submit instead")
        if self.log_file is not None and self.submitted:
            raise OptionError("--log-file is for a local session; configure Spark's log instead")
        return settings


@dataclass(frozen=True)
class TableOptions(WithSession):
    """Options of commands that read one table with Spark, and end."""

    context: typer.Context
    config: Config
    table: Annotated[
        str, typer.Option("--table", metavar="TABLE", help="Name of the table in the topology.")
    ]
    limit: Annotated[
        int, typer.Option(min=0, metavar="ROWS", help="Print so many rows as examples.")
    ] = 20
    conf: Conf = None
    verbose: Verbose = False
    log_file: LogFile = None
    output: OutputFormat = Format.TEXT


@dataclass(frozen=True)
class SessionOptions(WithSession):
    """Options of commands that work at one site with Spark."""

    context: typer.Context
    config: Config
    site: Annotated[str, typer.Option(metavar="SITE", help="Work at this site.")]
    conf: Conf = None
    verbose: Verbose = False
    log_file: LogFile = None
    output: OutputFormat = Format.TEXT

    def log_name(self, kind: str) -> str:
        return f"{kind}-{self.site}"


@dataclass(frozen=True)
class JobOptions(SessionOptions):
    """Options of ``send`` and ``receive``."""

    log_format: LogFormat = Format.TEXT
    sender: Annotated[
        Repeated, typer.Option(metavar="SENDER", help="Use only this sender. May be repeated.")
    ] = None
    available_now: Annotated[
        bool, typer.Option("--available-now", help="Process the available data, then exit.")
    ] = False
    standby: Annotated[
        bool,
        typer.Option(
            "--standby",
            help="Wait while another job does the same work, and take over within standby_after of"
            " the site once it gives no sign of life.",
        ),
    ] = False
    decide: Annotated[
        Repeated,
        typer.Option(
            metavar="DECISION",
            help="Decide about a held stream, as its message says: TABLE@LOG=new-log; for a sender"
            " TABLE@VERSION=distribute, =skip or =resync, for a receiver =no-restore. It is"
            " recorded in the state of the site, so give it once. May be repeated.",
        ),
    ] = None

    def read(self) -> tuple[Topology, dict[str, Decisions]]:
        """Return the topology and the decisions. Raises TopologyError, OptionError."""
        if self.standby and self.available_now:
            raise OptionError(
                "--standby waits until it is needed, and --available-now ends: leave one out. To "
                "process the available data from several machines now and then, leave out "
                "--standby: runs at the same time do no harm."
            )
        topology, decisions = load_topology(self.config), parse_decisions(self.decide or ())
        with suppress(WanError):  # the job will say what it cannot read
            for early in early_decisions(topology, self.site, self.decide or ()):
                log.warning(
                    "--decide %s: nothing is held there at site %s. It is recorded, and counts "
                    "once something is.",
                    early,
                    self.site,
                    event="early-decision",
                    site=self.site,
                    table=early.partition("@")[0],
                    what_to_do="`spark-wan decide --withdraw` takes it back.",
                )
        return topology, decisions


def takes(kind: type) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a command the fields of the dataclass ``kind`` as options, before its own.

    Typer reads options from a signature. The command gets the object as its first argument.
    """
    shared = inspect.signature(kind, eval_str=True).parameters

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        _, *own = inspect.signature(command, eval_str=True).parameters.values()

        @functools.wraps(command)
        def run(**values: Any) -> None:
            command(kind(**{name: values.pop(name) for name in shared}), **values)

        by_name = inspect.Parameter.KEYWORD_ONLY  # so that required ones may follow others
        signature = inspect.Signature([p.replace(kind=by_name) for p in (*shared.values(), *own)])
        run.__signature__ = signature  # type: ignore[attr-defined]
        return run

    return decorate


def setting_option(flag: str, kind: type, name: str) -> Any:
    """Return the option ``flag`` for a setting of ``kind``, with its help text and its parser."""
    setting = settings_of(kind)[name]
    help = f"{setting.help} Default: {name} of the {kind.__name__.lower()}."
    metavar = flag.strip("-").replace("-", "_").upper()
    return typer.Option(flag, parser=parsed(setting.parse_text), metavar=metavar, help=help)


def confirm(command: str, yes: bool, question: str) -> None:
    """Ask before something is lost. Raises OptionError unless somebody says yes, or has with
    ``--yes``."""
    if yes:
        return
    if not sys.stdin.isatty():
        raise OptionError(f"{command}: {question} Nothing was done: add --yes.")
    if not typer.confirm(question, err=True):
        raise OptionError(f"{command}: nothing was done.")
