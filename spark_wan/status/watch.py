"""Calls back when something goes wrong with a topology's streams, and when it is over. No Spark.

>>> def told(alert: Alert) -> None:
...     print("over:" if alert.is_over else alert.problem.level.value, alert.problem.text)
>>> with watch(load_topology("conf/two_sites.yaml"), told, site="newark"):
...     handle.await_termination()
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType

from spark_wan.errors import OptionError
from spark_wan.messages import message_log
from spark_wan.status.check import Checker, Level, Limits, Problem
from spark_wan.topology.model import Topology

log = message_log(__name__)

INTERVAL = 60.0
"""Seconds from one check to the next."""
STOP_TIMEOUT = 10.0
"""Seconds for which a stop waits for a check, or a callback, that is under way."""
_RANKS = {Level.WARNING: 0, Level.UNKNOWN: 1, Level.CRITICAL: 2}

Key = tuple[str, str, str, str]
"""What makes two problems the same one: kind, channel, stream and site."""


@dataclass(frozen=True)
class Alert:
    """A problem that is new or has become worse, or one that is over."""

    problem: Problem
    """As it was found; of one that is over, as it was found last."""
    is_over: bool = False


def watch(
    topology: Topology,
    on_alert: Callable[[Alert], object] | None = None,
    *,
    site: str | None = None,
    limits: Limits | None = None,
    every: float = INTERVAL,
) -> Watch:
    """Start to check the streams of a topology again and again, in a thread of this process.

    Beside running jobs or alone: like :func:`spark_wan.check`, it reads the channels and nothing
    else, and changes nothing.

    Args:
        topology: Who sends what to whom.
        on_alert: Called, in that thread, for each problem that the first check finds, that is new
            since, or whose level has become worse; and once it is over. Not again while it goes on.
            An error in it is logged, and the watch goes on.
        site: Only the streams of this site.
        limits: What is still right; default: :class:`~spark_wan.status.check.Limits`.
        every: Seconds from the end of one check to the begin of the next. Also the time in which
            dead letters are counted.

    Returns:
        The running watch. Stop it, or use it as a context manager.

    Raises:
        OptionError: ``every`` is not above 0.
        TopologyError: the site is unknown.

    Example::

        def page(alert):
            if alert.problem.level is Level.CRITICAL and not alert.is_over:
                call_somebody(alert.problem.text)

        with spark_wan.watch(topology, page):
            sender.await_termination()
    """
    return Watch(topology, on_alert, site=site, limits=limits, every=every).start()


class Watch:
    """A watch of a topology's streams: see :func:`watch`, which starts one.

    Each alert is also logged, unless that is turned off: ``problem-found``, as an error if it is
    critical and else as a warning, and ``problem-over``.
    """

    def __init__(
        self,
        topology: Topology,
        on_alert: Callable[[Alert], object] | None = None,
        *,
        site: str | None = None,
        limits: Limits | None = None,
        every: float = INTERVAL,
        logs: bool = True,
    ) -> None:
        """``logs``: whether each alert is logged, too."""
        if not every > 0:
            raise OptionError(f"watch: every is {every}; give more than 0 seconds.")
        self.every, self._logs = every, logs
        self._site = site
        self._on_alert = on_alert
        self._checker = Checker(topology, site, limits)
        self._known: Mapping[Key, Problem] = {}
        self._failed: str | None = None
        """Why the last check failed; None: it did not."""
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="spark-wan-watch", daemon=True)

    def start(self) -> Watch:
        """Start. A watch can be started once."""
        self._thread.start()
        return self

    @property
    def problems(self) -> list[Problem]:
        """What is wrong by the last check, the worst first. Empty before the first one."""
        return sorted(self._known.values(), key=lambda each: -_RANKS[each.level])

    @property
    def is_active(self) -> bool:
        """Whether it goes on, or a check or a callback is still under way."""
        return self._thread.is_alive()

    def stop(self, timeout: float = STOP_TIMEOUT) -> bool:
        """Stop. No callback begins after that, and nothing is said to be over.

        Waits for a check or a callback that is under way, at most ``timeout`` seconds, and returns
        whether it has ended. ``on_alert`` may call it: then nothing is waited for.
        """
        self._stopped.set()
        if self._thread is threading.current_thread():
            return False
        if self._thread.ident is not None:
            self._thread.join(timeout)
        return not self._thread.is_alive()

    def __enter__(self) -> Watch:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stop()

    def _run(self) -> None:
        while not self._stopped.is_set():
            self.look()
            self._stopped.wait(self.every)

    def look(self) -> None:
        """Check once, and tell what has changed."""
        try:
            found = self._checker.check()
        except Exception as error:
            if str(error) != self._failed:
                log.exception(
                    "the streams cannot be checked: %s",
                    error,
                    event="watch-failed",
                    site=self._site,
                    what_to_do="It is tried again; what is wrong meanwhile is not told.",
                )
            self._failed = str(error)
            return
        self._failed = None
        self._known, alerts = changes(self._known, found)
        for alert in alerts:
            if self._stopped.is_set():
                return
            if self._logs:
                _log(alert)
            self._tell(alert)

    def _tell(self, alert: Alert) -> None:
        if self._on_alert is None:
            return
        try:
            self._on_alert(alert)
        except Exception:
            problem = alert.problem
            log.exception(
                "%s: the function that is told of problems has failed",
                problem.stream or problem.channel,
                event="listener-failed",
                stream=problem.stream or None,
                channel=problem.channel,
                what_to_do="Correct the function that is passed as on_alert.",
            )


def changes(
    known: Mapping[Key, Problem], found: Sequence[Problem]
) -> tuple[Mapping[Key, Problem], list[Alert]]:
    """Return the problems after a check, and what is to be told of them. ``known``: those before.

    While a channel or a log cannot be read, that alone is told: what was wrong there goes on, and
    what seems to be wrong besides may come of it.
    """
    unread = [each for each in found if each.kind == "channel" and each.level is Level.UNKNOWN]

    def is_hidden(problem: Problem) -> bool:
        return problem not in unread and any(
            each.channel == problem.channel and each.stream in ("", problem.stream)
            for each in unread
        )

    now: dict[Key, Problem] = {}
    for each in found:
        key = _key(each)
        if not is_hidden(each) and (key not in now or _is_worse(each, now[key])):
            now[key] = each
    kept = {key: each for key, each in known.items() if key not in now and is_hidden(each)}
    told = [
        Alert(each) for key, each in now.items() if key not in known or _is_worse(each, known[key])
    ]
    over = [
        Alert(each, is_over=True)
        for key, each in known.items()
        if key not in now and key not in kept
    ]
    return {**kept, **now}, told + over


def _key(problem: Problem) -> Key:
    return problem.kind, problem.channel, problem.stream, problem.site


def _is_worse(problem: Problem, than: Problem) -> bool:
    return _RANKS[problem.level] > _RANKS[than.level]


def _log(alert: Alert) -> None:
    problem = alert.problem
    where = problem.stream or problem.channel
    if alert.is_over:
        log.info(
            "%s: no longer: %s: %s",
            where,
            problem.kind,
            problem.text,
            event="problem-over",
            kind=problem.kind,
            stream=problem.stream or None,
            channel=problem.channel,
            site=problem.site or None,
        )
    elif problem.level is Level.CRITICAL:
        log.error(
            "%s: %s: %s",
            where,
            problem.kind,
            problem.text,
            event="problem-found",
            kind=problem.kind,
            stream=problem.stream or None,
            channel=problem.channel,
            site=problem.site or None,
            cause=problem.text,
        )
    else:
        log.warning(
            "%s: %s: %s",
            where,
            problem.kind,
            problem.text,
            event="problem-found",
            kind=problem.kind,
            stream=problem.stream or None,
            channel=problem.channel,
            site=problem.site or None,
            cause=problem.text,
        )
