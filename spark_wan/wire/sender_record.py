"""Senders' records: what a sender says of one stream. ``senders/<stream>.json`` in the channel.

A JSON object. Times are by the sender's clock, in milliseconds since 1970 UTC:

=======================  ===============  =========================================================
``version``              int              2
``stream``               string           the stream
``log_id``               string           its log; empty: nothing is published yet
``epoch``                int              newest epoch that the sender knows; 0: none
``through``              int or null      the channel has everything through this version of the
                                          source; null: none, or a user stream
``held``                 string or null   why the sender holds the stream, and what to do
``replaced``             bool             it holds it because the source is not the table, or not
                                          in the state, that was published
``held_since``           int or null      since when
``passes``               bool             the cause may pass though nobody does anything: the sender
                                          retries; absent: false
``began``                int              since when the counters count: the sender's start;
                                          of a user stream, the first write of its sink
``epochs``               int              epochs that were published
``events``               int              their events
``batches``              int              their frames
``bytes``                int              the size of these
``dead_letters``         int              rows that could not be sent
``duplicates``           int              source rows that were seen with the key of another
``not_served``           list of strings  addressees of the newest epoch that the sender no longer
                                          serves
``queue_full``           string or null   why nothing is added for now: too much waits for acks;
                                          absent: null
``queue_full_since``     int or null      since when; absent: null
``alert``                string or null   which epoch did not meet the ack policy in time, and whose
                                          acks it lacks
``waiting``              int              commits of the source that are not in the channel yet, as
                                          far as the sender knows
``delayed``              int              commits that are not old enough to be published, besides;
                                          absent: 0
``work``                 object or null   the capture under way, if it takes long, as of
                                          ``written``: ``rows`` (an estimate), ``began``, and
                                          ``bytes`` and ``percent`` or null; absent: none
``stopped``              int or null      when the sender was stopped; null: it was not, or could
                                          not say so
``next_within``          int              the next record comes within so many milliseconds, even if
                                          nothing happens; 0: or never
``written``              int              when this record was written
``settings``             string           fingerprint of the settings with which the sender began
                                          (:mod:`spark_wan.topology.fingerprint`); empty: a sink
                                          without a topology
``settings_generation``  int              rises by one when a sender begins with other settings
                                          than the record has; the first is 1
``control``              int              the number of the newest entry in the site's control log
                                          (:mod:`spark_wan.wire.control`) by which the sender has
                                          published; absent: 0
``ending``               object           an end of the stream that was asked for, and has come or
                                          will: ``by``, who asked, and ``kind`` and ``point``, as
                                          in the control log (empty and 0: not known); absent:
                                          none was
``retention``            int              how long the source keeps what a commit has changed, in
                                          milliseconds: the shorter of the retentions of the
                                          table's log and of deleted files; absent: not known
``history_from``         int              when the oldest commit was made that is not published;
                                          if the sender knows none, when it saw last that there
                                          was none; absent: not known
``not_sent``             object           what was not sent since ``began``, by reason: the fields
                                          of :class:`NotSent`; absent: nothing, or an earlier
                                          version does not say
=======================  ===============  =========================================================

A report for people and scripts, so it may be lost, old, or written by two senders in turn. Nothing
is decided by it, except that ``wait_for_ack`` waits on while it says ``replaced``. Unknown fields
are ignored, unless ``requires`` lists them (:mod:`spark_wan.wire.records`).
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace

from spark_wan.wire.names import printable
from spark_wan.wire.records import Counts, LongWork, is_time, read_record, write_record

_Data = bytes  # where a class has a member called bytes
_COUNTED = (
    "epoch",
    "began",
    "epochs",
    "events",
    "batches",
    "bytes",
    "dead_letters",
    "duplicates",
    "waiting",
    "delayed",
    "next_within",
    "written",
    "control",
)


@dataclass(frozen=True)
class NotSent(Counts):
    """What a sender has not sent, by reason. All are 0 where the record does not have them."""

    local_only: int = 0
    """Commits that their writer has marked local-only."""
    received: int = 0
    """Commits that a receiver of this site made: the rows came from elsewhere."""
    by_setting: int = 0
    """Operations on the whole table that ``on_table_operation: skip`` left out."""
    by_decision: int = 0
    """Commits that somebody decided to skip."""
    no_rows: int = 0
    """Commits of operations that change no row, such as OPTIMIZE."""
    no_events: int = 0
    """Other commits without an event: no row changed in the end, or all became dead letters."""
    by_copy: int = 0
    """Commits that the stream has gone over: sites that lack them get a copy of the table."""
    unchanged: int = 0
    """Rows that a commit replaced by equal ones."""
    replays: int = 0
    """Writes of a sink that were in the log already."""
    elsewhere: int = 0
    """Epochs that a forwarder sends to no site: all get them by another way."""


@dataclass(frozen=True)
class EndRequest:
    """An end of a stream that was asked for."""

    by: str
    kind: str
    point: int = 0

    def printable(self) -> EndRequest:
        return EndRequest(printable(self.by), printable(self.kind), self.point)


@dataclass(frozen=True)
class SenderRecord:
    """What a sender says of one stream, with the fields of the format."""

    stream: str
    began: int
    written: int
    log_id: str = ""
    epoch: int = 0
    through: int | None = None
    held: str | None = None
    replaced: bool = False
    held_since: int | None = None
    epochs: int = 0
    events: int = 0
    batches: int = 0
    bytes: int = 0
    dead_letters: int = 0
    duplicates: int = 0
    waiting: int = 0
    work: LongWork | None = None
    stopped: int | None = None
    next_within: int = 0
    not_served: tuple[str, ...] = ()
    alert: str | None = None
    settings: str = ""
    settings_generation: int = 1
    control: int = 0
    ending: EndRequest | None = None
    passes: bool = False
    queue_full: str | None = None
    queue_full_since: int | None = None
    delayed: int = 0
    retention: int | None = None
    history_from: int | None = None
    not_sent: NotSent = NotSent()

    @property
    def history_until(self) -> int | None:
        """Until when the source keeps the history of what is not published, in ms since 1970 UTC;
        None: not known."""
        if self.history_from is None or self.retention is None:
            return None
        until = self.history_from + self.retention
        return until if is_time(until) else None

    def _printable(self) -> SenderRecord:
        """Return the record with texts that a terminal may show."""
        return replace(
            self,
            held=None if self.held is None else printable(self.held),
            alert=None if self.alert is None else printable(self.alert),
            queue_full=None if self.queue_full is None else printable(self.queue_full),
            ending=None if self.ending is None else self.ending.printable(),
            not_served=tuple(map(printable, self.not_served)),
        )

    def encode(self) -> _Data:
        absent: dict[str, object] = dict.fromkeys(
            ("work", "ending", "queue_full", "queue_full_since", "retention", "history_from")
        )
        absent |= {"control": 0, "delayed": 0, "passes": False, "not_sent": asdict(NotSent())}
        return write_record(self, **absent)

    @classmethod
    def of(cls, data: _Data, stream: str) -> SenderRecord | None:
        """Return the record of ``stream`` in ``data``; None when it cannot be read, as if it were
        lost. Raises NewerRecordError."""
        record = read_record(cls, data)
        if record is None or not record._is_valid(stream):
            return None
        return record._printable()

    def _is_valid(self, stream: str) -> bool:
        numbers = [getattr(self, name) for name in (*_COUNTED, "through", "settings_generation")]
        times = [self.began, self.written, self.held_since, self.stopped]
        times += [self.queue_full_since, self.history_from]
        return (
            self.stream == stream
            and all(number is None or number >= -1 for number in numbers)
            and self.not_sent.is_valid
            and all(map(is_time, times))
            and (self.work is None or self.work.is_valid)
            and (self.retention is None or self.retention >= 0)
        )
