"""What a running job of a site does about control: it reads the control log now and then, has the
channels say what that wants, and knows which captures are paused."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING

from spark_wan.control.enforce import Enforcer
from spark_wan.errors import WanError
from spark_wan.runtime.scheduler import Activity, Next
from spark_wan.state.control import ControlLog
from spark_wan.topology.model import Site, Topology
from spark_wan.wire.control import Rule, Scope

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = logging.getLogger(__name__)

CONTROL_INTERVAL = 30.0
"""Seconds between looks at the control log. One costs a request to the state, and one to each
channel of the site's senders."""

RETRY_INTERVAL = 5.0
"""Seconds between them as long as none has succeeded."""


@dataclass(eq=False)
class ControlKeeper(Activity):
    """Keeps the channels of a site's senders as its control log wants them."""

    topology: Topology
    site: Site
    _refused: bool = False

    def __post_init__(self) -> None:
        self.name = f"control of site {self.site.name}"
        log_of_site = ControlLog(self.site.state, self.site.storage)
        self._enforcer = Enforcer(self.topology, self.site.name, log_of_site)

    def look(self, spark: SparkSession) -> Next:
        self.enforce()
        return Next(RETRY_INTERVAL if self._enforcer.control is None else CONTROL_INTERVAL)

    def enforce(self) -> None:
        """Read the log, and have the channels say what it wants. What cannot be read or written is
        logged, and tried again with the next look: what was paused before stays so."""
        try:
            self._enforcer.enforce()
            self._refused = False
        except WanError as error:
            level = logging.DEBUG if self._refused else logging.WARNING
            log.log(level, "%s: %s", self.name, error)
            self._refused = True

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
