"""``wait_for_ack``: a writer waits until its commit is permanent, before it goes on.

Needs what is in the channels, and nothing else: logs, acks, and the records of senders and
receivers. No Spark, and no running sender in this process.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from spark_wan.channels.registry import open_channel
from spark_wan.errors import AckTimeoutError, LogGapError, OptionError
from spark_wan.log.notes import last_pause, receiver_record, sender_record
from spark_wan.log.progress import acked_through, lowest
from spark_wan.log.stream_log import StreamLog
from spark_wan.topology.ack_policy import AckPolicy, parse_ack_policy
from spark_wan.topology.model import Stream, Topology
from spark_wan.topology.routes import streams_of
from spark_wan.topology.signing import sending_trust
from spark_wan.units import milliseconds
from spark_wan.wire.head import Pause
from spark_wan.wire.manifest import Manifest

POLL_INTERVAL = 0.2
"""Seconds between looks at the channels."""


def wait_for_ack(
    topology: Topology,
    table: str,
    version: int,
    policy: AckPolicy | str | None = None,
    timeout: float | None = None,
) -> frozenset[str]:
    """Wait until a commit of a captured table meets an ack policy.

    A sender must publish the commit; one without rows to send is published with a later one, or
    after some time. Of a table that was dropped and made again, or restored, no version counts as
    published once its sender has seen that and holds the stream.

    Args:
        topology: Who sends what to whom.
        table: Name of a table that is captured (``source: table``).
        version: The commit's version of the table at the site that writes it.
        policy: Whose acks are needed, of all sites that the table's senders there send to. Default:
            the ``ack_policy`` of each of these senders, for its own remotes.
        timeout: Seconds to wait at most; 0: look once. Default: the ``ack_timeout`` of these
            senders (of several, the longest).

    Returns:
        The sites that have the commit: the writer's own, and those that have acked it.

    Raises:
        AckTimeoutError: the policy is not met in time; or cannot be met now, because a site holds
            the stream, or has owed the ack of an earlier epoch for ``ack_timeout``, and its
            receiver gives no sign of life. The commit stays in the channel and still arrives: wait
            again.
        OptionError: the version is negative or before the table's ``start``, or the policy can
            never be met or is unknown; the timeout is negative; the table is not captured, or has
            no sender at its writer.
        TopologyError: the table is unknown.
        LogGapError: manifests are missing that some site has not acked, or the log began anew.
        ChannelError, ManifestError: a channel or its log cannot be read.

    Example::

        orders.write.format("delta").mode("append").save(path)
        version = DeltaTable.forPath(spark, path).history(1).first()["version"]
        sites = spark_wan.wait_for_ack(topology, "orders", version, timeout=30)
    """
    wait = _Wait(topology, table, version, policy)
    seconds = wait.default_timeout if timeout is None else timeout
    if not seconds >= 0:
        raise OptionError(f"wait_for_ack: timeout is {timeout}; give 0 or more seconds.")
    end = time.monotonic() + seconds
    while True:
        sites = wait.look()
        if sites is not None:
            return sites
        if time.monotonic() >= end:
            raise wait.error(f"is not met within {seconds:g} s")
        time.sleep(min(POLL_INTERVAL, max(0.0, end - time.monotonic())))


@dataclass
class _Sent:
    """How far a version is on one stream, by what was read last."""

    stream: Stream
    log: StreamLog
    acked: frozenset[str] = frozenset()
    missing: frozenset[str] = frozenset()
    stuck: dict[str, str] | None = None
    """Sites among the missing that cannot ack now, and why; None: not published."""
    ended: str | None = None
    """That an operator has ended the stream before the version."""
    _epoch: tuple[str, int] | None = None
    """(log ID, epoch) of the version, once found."""

    def look(self, version: int) -> None:
        """Read the acks and the log."""
        sites = frozenset(self.stream.addressees)
        self.acked, self.missing, self.stuck, self.ended = frozenset(), sites, None, None
        acks = self.log.acks()  # before the log, which so has all that they count
        newest = self.log.newest_manifest()
        record = sender_record(self.log.channel, self.stream.name)
        if newest is None or newest.through is None or newest.through < version:
            if newest is not None and newest.end and (record is None or record.ending is not None):
                self.ended = f"{self.stream.name} was ended with version {newest.through}"
            return
        if record is not None and record.replaced:
            return  # the version may be one of another table, or of another state of it
        applied = acked_through(newest, acks, sites)
        if self._epoch is None or self._epoch[0] != newest.log_id:
            self._epoch = newest.log_id, self._find(version, newest, applied)
        _, epoch = self._epoch
        self.acked = frozenset(site for site in sites if applied[site] >= epoch)
        (manifest,) = self.log.read_each([epoch])
        sent_to = sites if manifest is None else sites.intersection(manifest.addressees)
        self.missing, self.stuck = sent_to - self.acked, {}
        last = last_pause(self.log.channel, self.stream.name) if self.missing else None
        if last is not None and last.until is None:
            why = f"{self.stream.name} is paused by {last.by}"
            self.stuck = dict.fromkeys(self.missing, why)
            return
        for site in sorted(self.missing):
            ack = acks.get(site)
            held = ack.held if ack is not None and ack.log_id == newest.log_id else None
            owed = self._owed(site, range(applied[site] + 1, epoch), last)
            if held is not None and held <= epoch:
                self.stuck[site] = f"{site} holds it at epoch {held}: {acks[site].cause}"
            elif owed is not None and not self._is_at_work(site):
                self.stuck[site] = f"{site} owes the ack of epoch {owed.epoch}, published earlier"

    def _find(self, version: int, newest: Manifest, applied: Mapping[str, int]) -> int:
        """Return the epoch of the version; the highest trimmed one, if the version is trimmed."""
        epochs, below = self.log.whole_and_below()
        self.log.check_gap(epochs, below, applied)
        first = lowest(self.log, epochs, lambda manifest: manifest.last_version >= version)
        if first is None:
            return newest.epoch
        if first.first_version > version and first.epoch == 1:
            raise LogGapError(
                f"wait_for_ack: version {version} of {self.stream.table.name} is not in the log of "
                f"{self.stream.name}, which begins with version {first.first_version}. It was "
                "never sent, or in an earlier log that was lost; its acks cannot be told."
            )
        return first.epoch if first.first_version <= version else first.epoch - 1

    def _owed(self, site: str, epochs: Sequence[int], last: Pause | None) -> Manifest | None:
        """Return the lowest of the epochs that is for a site, if it is late. ``last``: the last
        pause of the stream."""
        manifest = lowest(self.log, epochs, lambda each: site in each.addressees)
        late = int(self.stream.sender.ack_timeout * 1000)
        resumed = (last.until or 0) if last is not None else 0
        if manifest is None or milliseconds() - max(manifest.created, resumed) < late:
            return None
        return manifest

    def _is_at_work(self, site: str) -> bool:
        """Whether the receiver of a site has given a sign of life just now: a first apply may take
        longer than an ack may."""
        record = receiver_record(self.log.channel, self.stream.name, site)
        if record is None or record.stopped is not None:
            return False
        return milliseconds() - record.written < int(self.stream.sender.ack_timeout * 1000)

    def unpublished(self) -> str:
        """Return why the version is not in the channel, for people."""
        newest = self.log.newest_manifest()
        through = newest.through if newest is not None else None
        done = "nothing" if through is None else f"everything through version {through}"
        text = f"{self.stream.name} has {done} in the channel"
        record = sender_record(self.log.channel, self.stream.name)
        if record is not None and record.held is not None:
            return f"{text}, and is held: {record.held}"
        return f"{text}. Check that the table has this version, and that the sender runs"


class _Wait:
    """What the streams of a table at its writer have to show."""

    def __init__(
        self, topology: Topology, table: str, version: int, policy: AckPolicy | str | None
    ) -> None:
        self.topology = topology
        self.table = topology.table(table)
        self.version = version
        if isinstance(version, bool) or not isinstance(version, int) or version < 0:
            raise OptionError(f"wait_for_ack: version is {version!r}; give a version of {table}.")
        if self.table.source != "table":
            raise OptionError(
                f"wait_for_ack: {table} is written by a sink and has no versions; use the sink's "
                "option blockOnAck."
            )
        start = self.table.start.version
        if start is not None and version < start:
            raise OptionError(
                f"wait_for_ack: version {version} of {table} is not sent: it starts with version "
                f"{start}."
            )
        streams = [each for each in streams_of(topology, self.table) if each.inbound is None]
        if not streams:
            raise OptionError(
                f"wait_for_ack: {table} is attached to no sender of the site that writes it."
            )
        self.site = streams[0].origin
        self.policy = self._parsed(policy, streams)
        self.sent = [
            _Sent(
                each,
                StreamLog(
                    open_channel(each.sender.channel, each.sender.storage),
                    each.name,
                    sending_trust(topology, each.sender),
                ),
            )
            for each in streams
        ]

    def _parsed(self, policy: AckPolicy | str | None, streams: list[Stream]) -> AckPolicy | None:
        if policy is None:
            return None
        try:
            parsed = parse_ack_policy(policy)
        except ValueError as error:
            raise OptionError(f"wait_for_ack: policy {error}") from None
        remotes = sorted({site for stream in streams for site in stream.addressees})
        problem = parsed.problem(remotes, self.site, self.topology.never_primary)
        if problem is not None:
            raise OptionError(f"wait_for_ack: policy {problem}")
        return parsed

    @property
    def default_timeout(self) -> float:
        return max(each.stream.sender.ack_timeout for each in self.sent)

    def look(self) -> frozenset[str] | None:
        """Read the channels. Returns the sites that have the version, if they are enough. Raises
        AckTimeoutError when those that are not stuck never will be."""
        for each in self.sent:
            each.look(self.version)
        if any(each.ended is not None for each in self.sent):
            raise self.error("cannot be met now")
        if any(each.stuck is None for each in self.sent):
            return None
        if self._is_met(set()):
            return self.acked | {self.site}
        if not self._is_met(site for site in self.missing if not self._is_stuck(site)):
            raise self.error("cannot be met now")
        return None

    def _is_stuck(self, site: str) -> bool:
        """Whether a site can ack on none of the streams by which it gets the version."""
        return all(site in (each.stuck or {}) for each in self.sent if site in each.missing)

    @property
    def acked(self) -> frozenset[str]:
        return frozenset().union(*(each.acked for each in self.sent))

    @property
    def missing(self) -> frozenset[str]:
        return frozenset().union(*(each.missing for each in self.sent)) - self.acked

    def _is_met(self, others: Iterable[str]) -> bool:
        """Whether the acks so far would do, with those of ``others``."""
        zero = self.topology.never_primary
        acked = self.acked.union(others)
        if self.policy is not None:
            return self.policy.met(acked, self.acked | self.missing, self.site, zero)
        return all(
            each.stream.sender.ack_policy.met(acked, each.acked | each.missing, self.site, zero)
            for each in self.sent
        )

    def error(self, what: str) -> AckTimeoutError:
        """Return the error, with all that is known of why."""
        policies = {self.policy or each.stream.sender.ack_policy for each in self.sent}
        names = ", ".join(sorted(policy.value for policy in policies))
        reasons: list[str] = []
        for each in self.sent:
            if each.ended is not None:
                reasons.append(each.ended)
            elif each.stuck is None:
                reasons.append(each.unpublished())
            elif each.missing:
                lacks = ", ".join(sorted(each.missing))
                reasons.append(f"{each.stream.name}: not acked by {lacks}")
                reasons += each.stuck.values()
        return AckTimeoutError(
            f"{self.table.name}: the ack policy {names} {what} for version {self.version}: "
            f"{'; '.join(reasons)}. The commit is not lost; wait again, or look at `spark-wan "
            "status`.",
            self.acked,
            self.missing,
        )
