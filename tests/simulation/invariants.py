"""What must hold, in the words of the design. The numbers are those of its invariants.

Each is checked here and nowhere else. Whoever makes a write, or learns of one, calls the function
that says whether it was allowed: the channel, the tables, the ledger, and the world at the end.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from spark_wan.errors import RESEND, SYNC
from spark_wan.topology.model import Sender, Stream, Topology
from spark_wan.wire.ack import Ack
from spark_wan.wire.manifest import COPY, CopyOf, Manifest
from spark_wan.wire.mark import Mark

LATE = 30_000
"""Milliseconds after which a sender has noticed a pause of the capture."""

# --- at every write


def names_only_frames_that_are_there(manifest: Manifest, there: Collection[str]) -> None:
    """1. Receivers see a batch only when a manifest names it: so all that one names is there."""
    missing = [ref.path for ref in manifest.frames if ref.path not in there]
    assert not missing, (
        f"manifest {manifest.epoch} names frames that are not in the channel: {missing}"
    )


def extends_its_log(manifest: Manifest, before: Manifest | None, skips: bool = False) -> None:
    """2. Anyone may extend a log, but only from its last manifest, and without a gap: it covers the
    source's versions from the next one on. ``skips``: those between did not come to the site that
    sends them on."""
    last = before.epoch if before is not None else 0
    epoch = manifest.epoch
    assert epoch == last + 1, f"manifest {epoch} was added, the newest was {last}"
    if before is not None:
        assert manifest.log_id == before.log_id, f"manifest {epoch} begins another log"
        # A copy stands for itself.
        follows = manifest.first_version in (-1, before.last_version + 1)
        skips = skips and manifest.first_version > before.last_version
        assert manifest.kind == COPY or follows or skips or goes_over(manifest, before), (
            f"manifest {epoch} begins at {manifest.first_version}"
        )


def goes_over(manifest: Manifest, before: Manifest) -> bool:
    """Whether a manifest leaves versions out that cannot be sent: a site that lacks them sees the
    gap."""
    begins = manifest.first_version
    return (
        not (manifest.start or manifest.frames)
        and begins == manifest.last_version + 1 > before.last_version + 1 > 0
    )


def follows_what_was_forwarded(
    manifest: Manifest,
    before: int,
    inbound: Manifest | None,
    acked: int,
    named: Collection[str] = (),
    dropped: int = 0,
) -> None:
    """2. A forwarder takes the epochs of its inbound log one by one. ``before``: the one that was
    forwarded last; ``inbound``: the one that ``manifest`` names; ``acked``: through this one the
    site had acked the log when the forwarding was added. It may begin behind that, and says so.
    ``named``: the sites that the epoch before is for; one without events may name others, or drop
    some.
    ``dropped``: through this one the inbound log went on without the site."""
    via = manifest.via
    assert via is not None and inbound is not None, f"{manifest.stream}: {via} is forwarded"
    has_none = via.epoch <= acked and not manifest.frames
    begins = before == 0 and not manifest.start and (has_none or via.epoch == acked + 1)
    has_news = manifest.dropped or {*manifest.addressees} - {*named}
    names_others = via.epoch == before and not manifest.frames and has_news
    is_next = via.epoch == before + 1 or before < via.epoch - 1 <= dropped
    assert begins or names_others or is_next, (
        f"{manifest.stream}: {via} is forwarded after epoch {before}"
    )
    assert (via.stream, via.log_id, via.fingerprint) == (
        inbound.stream,
        inbound.log_id,
        inbound.fingerprint,
    ), f"{manifest.stream}: {via} is forwarded, which is not in the inbound log"


def has_the_same_frames(
    manifest: Manifest, frames: Sequence[bytes], inbound: Sequence[bytes]
) -> None:
    """5. What is sent on is what was sent, byte for byte: so it has the same event IDs."""
    assert list(frames) == list(inbound), (
        f"manifest {manifest.epoch} of {manifest.stream} has other frames than came"
    )


def stays_as_it_was_added(epoch: int, data: bytes, added: Collection[bytes | None]) -> None:
    """2. A manifest is created only if absent, and never changes."""
    assert data in added, f"manifest {epoch} was overwritten"


def goes_on(table: str, key: Any, before: tuple[int, int], now: tuple[int, int]) -> None:
    """2. A receiver applies a stream in order. ``before`` and ``now``: (version, sequence) of the
    event of the key that was applied last, and of the one that is applied."""
    assert now > before, (
        f"{table}: key {key} goes back: the event of (version, sequence) {now} is applied after "
        f"{before}"
    )


def keeps_its_newest(epoch: int, newest: int) -> None:
    """3. Each stream keeps its newest manifest, whatever is trimmed."""
    assert epoch < newest, f"manifest {epoch}, the newest, is trimmed"


def is_done(manifest: Manifest, acked: Mapping[str, int], what: str) -> None:
    """3. An epoch leaves the channel when every addressee has it. ``acked``: site -> the highest
    epoch that it ever acked."""
    for site in manifest.addressees:
        assert acked.get(site, 0) >= manifest.epoch, f"{what}, but {site} never acked it"


def has_room(manifest: Manifest, waiting: int, limit: int) -> None:
    """11. What waits is bounded: an epoch with events is added only to a queue below its limit, or
    an empty one. ``waiting``: bytes of what some addressee has never acked."""
    assert waiting < limit or not waiting, (
        f"epoch {manifest.epoch} of {manifest.stream} is added to a full queue: {waiting} bytes "
        f"wait, the limit is {limit}"
    )


def drops_what_is_there(manifest: Manifest, site: str, through: int) -> None:
    """11. A site is dropped for what is in the log before, never for what comes: by an epoch
    without events, which it still gets."""
    assert through == manifest.epoch - 1 and not manifest.frames, (
        f"{site} is dropped through epoch {through} by epoch {manifest.epoch} of {manifest.stream}"
    )
    assert site in manifest.addressees, (
        f"{site} is dropped, and {manifest.stream} goes on elsewhere"
    )


def drops_nobody_while_paused(
    manifest: Manifest, site: str, since: int | None, looked: int
) -> None:
    """11. No site can ack while its stream is paused: so none is dropped by itself. ``since``: when
    the pause came into effect; None: it is not paused. ``looked``: when the sender began."""
    assert since is None or since > looked, (
        f"{site} is dropped by epoch {manifest.epoch} of {manifest.stream}, which is paused"
    )


def drops_what_somebody_saw(manifest: Manifest, site: str, through: int, has_limits: bool) -> None:
    """11. Nothing else than what an operator was shown, or a full queue, is dropped.
    ``has_limits``: a queue may be full."""
    assert has_limits, (
        f"{site} is dropped through epoch {through} of {manifest.stream}, about which nobody was "
        "asked"
    )


def is_dropped_as_said(stream: str, site: str, left: Sequence[int]) -> None:
    """11. And all of that is, unless it was acked. ``left``: epochs with events that still wait."""
    assert not left, f"{stream}: somebody has dropped what waits for {site}, but {left} still do"


def takes_nothing(who: str, stream: str, since: int | None, looked: int) -> None:
    """15. Nothing is taken of a stream that is paused, but what was begun before. ``since``: when
    the channel began to say so; None: it does not. ``looked``: when the round began."""
    assert since is None or since > looked, f"{who} takes something of {stream}, which is paused"


def adds_nothing(manifest: Manifest, since: int | None, began: int) -> None:
    """15. Nor is anything added where the capture is paused, too. ``since``: when that was asked
    for; None: it was not. ``began``: when the sender's round did."""
    assert since is None or began <= since + LATE, (
        f"epoch {manifest.epoch} is added to {manifest.stream}, whose capture is paused"
    )


def is_resumed_by_somebody(stream: str, wanted: bool) -> None:
    """15. A pause ends when somebody asks for that, and by nothing else."""
    assert not wanted, f"{stream} is resumed, and nobody has asked for that"


def is_as_wanted(stream: str, wanted: bool, paused: bool) -> None:
    """15. What was asked for comes into effect, whoever died meanwhile."""
    assert paused == wanted, f"{stream} is {'' if paused else 'not '}paused, and should be {wanted}"


def same_id_is_same_event(event_id: str, known: str, content: str) -> None:
    """4. Same event, same ID, for ever. ``known`` and ``content``: hashes of two events with the
    ID."""
    assert known == content, f"event ID {event_id} came with two contents; no source wrote that"


def is_no_replay(epoch: int, write: Any, written: Collection[Any]) -> None:
    """5. Each event takes effect once: of a user's micro-batch, an equal replay is already done."""
    assert write not in written, f"epoch {epoch} is an equal replay of {write}"


def is_durable(
    site: str, stream: str, epoch: int, marks: Iterable[Mark], ledgered: int, what: str
) -> None:
    """6. Nothing is acked or trimmed before table commit and ledger are durable. ``ledgered``: the
    newest epoch of the stream in the site's ledger."""
    parts = (part for mark in marks for part in mark.applied)
    marked = max((part.epoch for part in parts if part.stream == stream), default=0)
    assert marked >= epoch, f"{what}, but the marks of {site}'s table end at {marked}"
    assert ledgered >= epoch, f"{what}, but {site}'s ledger ends at {ledgered}"


def is_durable_through(site: str, needed: int, marked: int, ledgered: int, what: str) -> None:
    """6. The same by the source's versions, of a site that may have taken copies. ``marked`` and
    ``ledgered``: through which version its table has everything since the newest copy, by its marks
    and by its ledger."""
    assert marked >= needed, f"{what}, but the marks of {site}'s table end at version {marked}"
    assert ledgered >= needed, f"{what}, but {site}'s ledger ends at version {ledgered}"


def is_forwarded(stream: str, through: int, epoch: int, what: str) -> None:
    """6. Nor before it is in the logs of all who send it on."""
    assert through >= epoch, f"{what}, but {stream} has forwarded through {through}"


def goes_where_the_topology_says(manifest: Manifest, stream: Stream, topology: Topology) -> None:
    """7. Never back to where it was. A manifest carries the origin site, and *sent-to*: all sites
    that any sender attached to the table at the origin serves (of a user's stream: its own sender's
    remotes). It is for its own sender's remotes."""
    sender, table = stream.sender, stream.table
    sent_to = set(sender.remotes)
    if table.source == "table":
        others = (each for each in topology.senders.values() if each.name in table.senders)
        sent_to = {site for each in others if each.site == sender.site for site in each.remotes}
    said = manifest.origin, set(manifest.sent_to), set(manifest.addressees)
    assert said == (sender.site, sent_to, set(sender.remotes)), (
        f"manifest {manifest.epoch} of {stream.name} goes from {said[0]}, to {said[2]} of {said[1]}"
    )


def goes_on_to_the_others(
    manifest: Manifest, inbound: Manifest, sender: Sender, topology: Topology
) -> None:
    """7. The same for what a site sends on: *sent-to* grows by the remotes of all senders attached
    to the table there. It is for the remotes of its own sender, without the origin and the sites
    that it was sent to before; so no site gets it twice."""
    attached = topology.tables[manifest.table].senders
    served = {
        site
        for each in topology.senders.values()
        if each.site == sender.site and each.name in attached
        for site in each.remotes
    }
    said = manifest.origin, set(manifest.sent_to), set(manifest.addressees)
    onward = set(sender.remotes) - {inbound.origin} - set(inbound.sent_to)
    assert said == (inbound.origin, set(inbound.sent_to) | served, onward), (
        f"manifest {manifest.epoch} of {manifest.stream} goes from {said[0]}, to {said[2]} of "
        f"{said[1]}; it came from {inbound.origin}, to {inbound.sent_to}"
    )


def is_for(site: str, table: str, mark: Mark, manifest: Manifest) -> None:
    """7. The manifest alone decides: a site applies what is for it, to the table that it names."""
    assert site in manifest.addressees, f"{site} applies what is for {manifest.addressees}"
    assert (mark.site, mark.table, manifest.table) == (site, table, table), (
        f"{site} applies rows of {manifest.table} to {table}, as {mark.table} at {mark.site}"
    )


def holds_what_the_source_held(target: str, stream: str, epoch: int, has: Any, held: Any) -> None:
    """5, 8. After every write, a target has exactly the rows that its source had at the version
    that the mark names: each event took effect once, and nothing else did."""
    assert has == held, f"{target} after epoch {epoch} of {stream}: holds {has}, should hold {held}"


def is_rightly_held(who: str, cause: str, lost: Sequence[Any], needs: str | None = None) -> None:
    """9. Loud: lost history holds a stream, and the cause says what to do. And nothing else does
    that a reader who looks now and then could have seen in time. ``lost``: commits that log cleanup
    removed before ``who`` could see them, and what else was done to the table. ``needs``: why the
    site says that it needs a copy."""
    assert lost, f"{who} is held, although it has lost nothing: {cause}"
    told = needs is not None or any(advice in cause for advice in (RESEND, SYNC))
    assert told, f"{who} is held, and is not told what to do"


def nothing_is_dropped(table: str, letters: Collection[str]) -> None:
    """10. Nothing dropped: an event becomes a dead letter only when it cannot be applied, and all
    events here can."""
    assert not letters, f"{table}: {letters} have dead letters"


# --- of copies


def answers_a_request(target: str, request: str, wanted: Sequence[str]) -> None:
    """12. A site that has not asked never has its rows replaced; and one that has, by the copy that
    answers its last request. ``wanted``: what it has asked for since it began to take a copy."""
    assert request and request in wanted, (
        f"{target}: a copy for request {request} is taken, asked: {wanted}"
    )


def has_no_rows_of_its_own(target: str, foreign: bool) -> None:
    """12. Nor does it ask by itself where a copy takes away what somebody wrote to the table."""
    assert not foreign, f"{target} has rows of its own, and asks for a copy by itself"


def answers_once(manifest: Manifest, before: CopyOf | None) -> None:
    """12. A request is answered once, by a copy whose parts are one after another. ``before``: what
    the manifest before it says of a copy."""
    copy = manifest.copy
    assert copy is not None
    whole = before is not None and before.answers(copy.request)
    assert not whole, (
        f"manifest {manifest.epoch} of {manifest.stream} answers request {copy.request} once more"
    )
    if copy.part > 1:
        following = {"part": copy.part, "content": copy.content}
        follows = before is not None and (before.part + 1, replace(before, **following)) == (
            copy.part,
            copy,
        )
        assert follows, f"manifest {manifest.epoch} of {manifest.stream} is no part after {before}"


def is_taken(site: str, request: str, taken: Collection[str]) -> None:
    """12. A request is withdrawn when its copy is in the table."""
    assert request in taken, f"{site} withdraws request {request}, and has no copy for it"


def goes_not_behind(target: str, version: int, acked: int) -> None:
    """13. A copy never takes a table back behind what is, or may be, trimmed. ``version``: of the
    copy; ``acked``: through which the site has acked its streams."""
    assert version >= acked, f"{target}: a copy of version {version} is taken, acked: {acked}"


def waits_for_its_copy(target: str, stream: str, epoch: int) -> None:
    """13. Once a copy was not taken because the table has more, nothing is applied to the table
    until the next one is there: that would be too old, too."""
    raise AssertionError(f"{target} waits for a copy, but epoch {epoch} of {stream} is applied")


def has_a_way_out(who: str, cause: str, needs: str | None) -> None:
    """14. A site that is held for what a copy mends says so."""
    assert needs is not None, f"{who} is held, and does not say that it needs a copy: {cause}"


# --- when all has come to rest


def all_is_sent(stream: str, sent: Any, there: Any) -> None:
    """3, 8. A source's progress moves only past what is durable in the channel, and reaches its
    end. ``sent``: what a target has that has applied everything; ``there``: what the source has."""
    assert sent == there, f"{stream}: {there} events, sent {sent}"


def all_is_forwarded(stream: str, through: int, inbound: int) -> None:
    """8. So does that of a forwarder."""
    assert through == inbound, f"{stream}: has forwarded through {through} of {inbound} at rest"


def all_are_addressed(stream: str, planned: Collection[str], named: Collection[str]) -> None:
    """A site that joins is named by an epoch, if need be one without events: what was sent before
    is a gap to it, by which it knows that it needs a copy."""
    left_out = {*planned} - {*named}
    assert not left_out, f"{stream}: its newest epoch does not name {left_out} at rest"


def all_is_applied(stream: str, site: str, ack: Ack | None, newest: int) -> None:
    """8, 9. After the last delivery every site has everything, and says so; none is held."""
    assert ack is not None and ack.applied == newest and ack.held is None, (
        f"{stream}: {site} says {ack} at rest"
    )


def only_what_is_alive_is_left(
    stream: str,
    there: Collection[object],
    needed: Collection[object],
    allowed: Collection[object],
) -> None:
    """3, 11. The channel has what some site still needs, and nothing else: epochs that it has not
    acked, their frames, and the newest manifest; no frames that no manifest names.

    ``needed``: of epochs that some site has never acked. ``allowed``: of those that it says it does
    not have now, too."""
    missing, left = set(needed) - set(there), set(there) - set(allowed)
    assert not missing, f"{stream}: {missing} is needed, and not there any more"
    assert not left, f"{stream}: {left} is acked or orphaned, and still there"
