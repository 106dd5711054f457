"""Ack timeouts: what happens when the ack policy is not met in time.

Acks are cumulative, so all follows from the lowest epoch that does not meet the policy: every later
one lacks the same acks. It is *late* once it was published ``ack_timeout`` ago, by its manifest. So
a process that has just started knows by the log and the acks what happened before:

- A late epoch before the one that a commit waits for: the sites without which the policy cannot be
  met are known to be down. The wait ends at once.
- The epoch itself is late: ``on_ack_timeout`` decides. With ``wait``, the commit waits as long as
  ``block_on_ack`` says; with ``continue``, the wait ends.

A wait that ends without the policy raises an alert. The epoch stays in the channel and is announced
again; once later acks meet the policy for it, the alert ends.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timezone

from spark_wan.errors import OptionError
from spark_wan.log.progress import lowest
from spark_wan.messages import message_log
from spark_wan.sender.acks import AckManager
from spark_wan.topology.ack_policy import AckPolicy
from spark_wan.topology.values import OnAckTimeout, parse_on_ack_timeout
from spark_wan.wire.manifest import Manifest

log = message_log(__name__)


@dataclass(frozen=True)
class AckTimeout:
    """An epoch that has not met the ack policy in time."""

    stream: str
    log_id: str
    epoch: int
    policy: AckPolicy
    acked: frozenset[str]
    """The sites that have acked it."""
    missing: frozenset[str]
    """The sites that it was sent to and that have not."""
    published: int
    """When it was published, by the sender's clock: milliseconds since 1970 UTC."""

    def __str__(self) -> str:
        published = datetime.fromtimestamp(self.published // 1000, timezone.utc)
        return (
            f"epoch {self.epoch}, published {published:%Y-%m-%d %H:%M:%S} UTC, does not meet the "
            f"ack policy {self.policy.value}: {acks_text(self.acked, self.missing)}"
        )


Decide = OnAckTimeout | Callable[[AckTimeout], OnAckTimeout]
"""``wait``, ``continue``, or what returns one of them."""


def acks_text(acked: frozenset[str], missing: frozenset[str]) -> str:
    """Return who has acked an epoch and who has not, for people."""
    has, lacks = ", ".join(sorted(acked)), ", ".join(sorted(missing))
    return f"acked by {has or 'no site'}, not by {lacks or 'any other'}"


def check_decide(decide: Decide) -> Decide:
    """Return ``decide``. Raises OptionError when it is neither of the words and cannot be
    called."""
    if callable(decide):
        return decide
    try:
        return parse_on_ack_timeout(decide)
    except ValueError as problem:
        raise OptionError(
            f"on_ack_timeout: {problem}; or give a function that takes an AckTimeout and returns "
            "wait or continue"
        ) from None


@dataclass
class AckTimeouts:
    """Finds and decides the ack timeouts of one stream, by what its ack manager has read last."""

    acks: AckManager
    decide: Decide = "wait"
    alert: AckTimeout | None = None
    """The lowest epoch for which a wait ended, or whose writer goes on, without the policy."""
    _ended: AckTimeout | None = None
    """The late epoch with which the waits for it and for later ones end."""
    _asked: tuple[AckTimeout, OnAckTimeout | Exception, int] | None = None
    """What the function was asked last, what it returned or raised, and when."""
    _searched: tuple[object, Manifest] | None = None
    """What the last search had read, and the lowest epoch that it has found."""

    def act(self, waits_for: Manifest | None = None) -> None:
        """Raise an alert, or end it. Called after each round of the ack manager.

        ``waits_for``: the epoch that a commit waits for now. Without it, ``wait`` costs nothing.
        Raises ManifestError, ChannelError, what the function raises, and OptionError when it
        returns something else.
        """
        if self.decide == "wait" and waits_for is None and self.alert is None:
            return
        unmet, self._ended = self._lowest_unmet(), None
        if unmet is None and waits_for is not None and not self._is_done(waits_for):
            unmet = waits_for  # it is for other sites than the later ones
        timeout = self._timeout(unmet) if unmet is not None else None
        self._renew_alert(timeout)
        if timeout is None:
            return
        owed = max(timeout.published, self.acks.paused_until)
        if self.acks.clock() - owed < self.acks.ack_timeout:
            return
        if (self.alert is None or callable(self.decide)) and self.acks.is_excused():
            return
        known = waits_for is not None and timeout.epoch < waits_for.epoch
        if self._decided(timeout) == "continue" or known:
            self._ended = timeout
            self._alert(timeout)

    def ends_wait(self, manifest: Manifest) -> bool:
        """Whether a commit need not wait any longer for the acks of its epoch, by the last
        :meth:`act` with it."""
        is_late = self._ended is not None and self._ended.epoch <= manifest.epoch
        return is_late or self._is_done(manifest)

    def wait_failed(self, manifest: Manifest) -> None:
        """Raise an alert: a commit has waited for its epoch as long as ``block_on_ack`` says."""
        if self.alert is None:
            self._alert(self._timeout(manifest))

    def _renew_alert(self, unmet: AckTimeout | None) -> None:
        """End the alert, or say what its epoch lacks now. ``unmet``: the lowest that does not meet
        the policy."""
        alert = self.alert
        if alert is None:
            return
        if unmet is None or unmet.log_id != alert.log_id or unmet.epoch > alert.epoch:
            log.info(
                "%s: the ack policy is met again, or the log is another one",
                alert.stream,
                event="policy-met",
                stream=alert.stream,
            )
            self.alert = None
        elif unmet.epoch == alert.epoch:
            self.alert = unmet

    def _is_done(self, manifest: Manifest) -> bool:
        """Whether nobody waits for an epoch: its policy is met, or no site that it is for is served
        any more."""
        return self.acks.done(manifest) or not self.acks.addressees(manifest)

    def _alert(self, timeout: AckTimeout) -> None:
        if self.alert is None:
            log.warning(
                "%s: %s. It stays in the channel, and later acks count.",
                timeout.stream,
                timeout,
                event="policy-not-met",
                stream=timeout.stream,
                epoch=timeout.epoch,
                what_to_do="Check that the receivers of the sites whose acks are missing run.",
            )
        self.alert = timeout

    def _timeout(self, manifest: Manifest) -> AckTimeout:
        acks, sent_to = self.acks, self.acks.addressees(manifest)
        acked = frozenset(acks.acked_by(manifest) & sent_to)
        return AckTimeout(
            manifest.stream,
            manifest.log_id,
            epoch=manifest.epoch,
            policy=acks.policy,
            acked=acked,
            missing=frozenset(sent_to - acked),
            published=manifest.created,
        )

    def _decided(self, timeout: AckTimeout) -> OnAckTimeout:
        """Return the decision. A function is called once for an epoch, and again every
        ``ack_timeout`` while it returns ``wait`` or raises."""
        if not callable(self.decide):
            return self.decide
        now = self.acks.clock()
        if self._asked is not None:
            before, answer, at = self._asked
            is_same = (before.log_id, before.epoch) == (timeout.log_id, timeout.epoch)
            if is_same and (answer == "continue" or 0 <= now - at < self.acks.ack_timeout):
                return _given(answer)
        try:
            answer = _parsed(self.decide(timeout), timeout.stream)
        except Exception as error:
            answer = error
        self._asked = timeout, answer, now
        return _given(answer)

    def _lowest_unmet(self) -> Manifest | None:
        """Return the lowest epoch that does not meet the policy. Reads a few manifests, however
        long the log is, when there are other acks than before."""
        acks, state = self.acks, self.acks.state
        newest = state.newest
        if newest is None or self._is_done(newest):
            return None
        applied = sorted((site, ack.log_id, ack.applied) for site, ack in state.acks.items())
        read = newest.log_id, state.oldest, applied
        if self._searched is not None and self._searched[0] == read:
            return self._searched[1]
        epochs = range(state.oldest, newest.epoch)
        unmet = lowest(acks.log, epochs, lambda manifest: not self._is_done(manifest)) or newest
        self._searched = read, unmet
        return unmet


def _parsed(answer: object, stream: str) -> OnAckTimeout:
    try:
        return parse_on_ack_timeout(answer)
    except ValueError as problem:
        raise OptionError(
            f"{stream}: on_ack_timeout has returned something else than wait or continue: {problem}"
        ) from problem


def _given(answer: OnAckTimeout | Exception) -> OnAckTimeout:
    if isinstance(answer, Exception):
        raise answer
    return answer
