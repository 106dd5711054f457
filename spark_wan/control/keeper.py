"""What a running job of a site does about control: it reads the control log now and then, has the
channels say what that wants, and knows which captures are paused."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from spark_wan.control.enforce import Enforcer
from spark_wan.errors import WanError
from spark_wan.messages import Refusals, message_log
from spark_wan.runtime.scheduler import Activity, Next
from spark_wan.state.control import ControlLog
from spark_wan.topology.model import Site, Topology
from spark_wan.wire.control import Control, Rule, Scope, WantedEnd

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = message_log(__name__)

CONTROL_INTERVAL = 5.0
"""Seconds between looks at the control log. One costs a request to the state."""

CHANNELS_INTERVAL = 120.0
"""Seconds between comparisons with the channels, if the control log has nothing new. One costs a
request to each channel of the site's senders."""


@dataclass(eq=False)
class ControlKeeper(Activity):
    """Keeps the channels of a site's senders as its control log wants them."""

    topology: Topology
    site: Site
    changed: Callable[[], None] = lambda: None
    """Called when the control log has an entry that is new to this job."""
    clock: Callable[[], float] = time.monotonic
    """Seconds."""
    _told: int = 0
    """The generation that this job was told of last."""
    _refused: Refusals = field(default_factory=Refusals)
    _compared: tuple[int, float] | None = None
    """The generation that the channels were compared with last, and when."""

    def __post_init__(self) -> None:
        self.name = f"control of site {self.site.name}"
        log_of_site = ControlLog(self.site.state, self.site.storage)
        self._enforcer = Enforcer(self.topology, self.site.name, log_of_site)

    def look(self, spark: SparkSession) -> Next:
        if self._compared is not None and self.clock() - self._compared[1] < CHANNELS_INTERVAL:
            with suppress(WanError):  # the comparison will say so
                if self._enforcer.read()[0] == self._compared[0]:
                    return Next(CONTROL_INTERVAL)
        before = self._told
        self.enforce()
        self._told = self._enforcer.generation
        if self._told != before:
            self._log_newest()
            self.changed()
        return Next(CONTROL_INTERVAL)

    def _log_newest(self) -> None:
        control = self._enforcer.control
        if control is not None and self._told:
            log.info(
                "%s: request %d: %s of sender %s, table %s, by %s",
                self.name,
                self._told,
                control.verb,
                control.sender or "any",
                control.table or "any",
                control.by,
                event="control-request",
                site=self.site.name,
                table=control.table,
            )

    def enforce(self) -> None:
        """Read the log, and have the channels say what it wants. What cannot be read or written is
        logged, and tried again with the next look: what was paused before stays so."""
        try:
            self._compared = self._enforcer.enforce(), self.clock()
            self._refused.end()
        except WanError as error:
            log.log(
                self._refused.level(),
                "%s: %s",
                self.name,
                error,
                event="control-not-kept",
                site=self.site.name,
                cause=str(error),
            )
            self._compared = None

    def check_known(self) -> None:
        """Read the log, if that has never succeeded: nobody knows yet whether the capture is
        paused. Raises ChannelError, LedgerError."""
        if self._enforcer.control is None:
            self._enforcer.read()

    def pause_of(self, sender: str, table: str) -> Rule | None:
        """Return what pauses a stream; None: nothing, as far as is known."""
        control = self._enforcer.control
        rule = control.pause_of(sender, table) if control is not None else None
        return rule or self._enforcer.unasked.get(Scope(sender, table))

    def wanted(self, sender: str, table: str) -> WantedEnd:
        """Read what is wanted of a stream, beside a pause. One request. Raises ChannelError,
        LedgerError."""
        generation, control = self._enforcer.read()
        return control.wanted(sender, table, generation)

    def wanted_before(self, sender: str, table: str) -> WantedEnd:
        """Return what was wanted of it when the log was read last."""
        generation, control = self._enforcer.generation, self._enforcer.control or Control()
        return control.wanted(sender, table, generation)
