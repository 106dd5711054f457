"""Copies that sites ask for through a channel: when they are served, and what goes wrong."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any, cast

import pytest
from fakes import STREAM, Clock, memory_channel
from inline import Running, Woken

from spark_wan.delta.sessions import CurrentSession
from spark_wan.errors import ChannelError, SourceError
from spark_wan.log.ack_watch import AckWatch
from spark_wan.log.notes import put_ack, sender_record
from spark_wan.runtime.scheduler import Found, Lane, Next
from spark_wan.sender import copies as copies_module
from spark_wan.sender.copies import RETRY, TIDY_INTERVAL, CopiesNow, OutboundCopies, OutboundCopy
from spark_wan.sender.record import SenderRecordKeeper
from spark_wan.sender.serve import CopyServer
from spark_wan.topology.model import copy_name
from spark_wan.wire.ack import Ack, Wanted

NAME = copy_name(STREAM, "seattle")


class Server:
    """Serves, or fails as it is told."""

    log = SimpleNamespace(stream=NAME)
    settings = SimpleNamespace(origin="newark")

    def __init__(self) -> None:
        self.rounds, self.error = 0, cast("Exception | None", None)

    def round(self) -> Iterator[str]:
        self.rounds += 1
        if self.error is not None:
            raise self.error
        yield "copy.1 asked"


class Here:
    """A channel through which the copies of one table to one site go."""

    def __init__(self, available_now: bool = False) -> None:
        self.watch, self.server = AckWatch(memory_channel()), Server()
        self.scheduler = Woken()
        server, channel = cast(CopyServer, self.server), self.watch.channel
        record = SenderRecordKeeper(channel, NAME, "settings", Clock())
        self.copy = OutboundCopy(
            Running(), self.watch, server, CurrentSession(), record, available_now
        )
        self.copies = OutboundCopies(self.watch, [self.copy], cast(Any, self.scheduler))

    def ask(self, request: str = "r1") -> None:
        ack = Ack("seattle", NAME, "", 0, wanted=Wanted(request))
        put_ack(self.watch.channel, NAME, "seattle", ack.encode())

    def begun(self) -> bool:
        """Whether the listing of the acks has begun to serve a copy."""
        self.scheduler.woken.clear()
        self.copies.begin_due()
        return self.scheduler.woken == [self.copy]

    def work(self) -> Any:
        turn = self.copy.look(cast(Any, None))
        assert isinstance(turn, Found) and turn.lane is Lane.COPIES
        return turn.work(cast(Any, None))


def test_a_request_is_served_once_and_the_next_one_too() -> None:
    here = Here()
    assert not here.begun()
    for rounds, request in enumerate(("r1", "r2"), 1):
        here.ask(request)
        here.watch.look()
        assert here.begun()
        assert here.work() is None  # it ends, and begins again with the next request
        assert (here.server.rounds, here.begun()) == (rounds, False)


def test_a_copy_that_cannot_be_served_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr(copies_module.time, "monotonic", lambda: now[0])
    monkeypatch.setattr(copies_module, "lost_session", lambda spark: None)
    here = Here()
    here.server.error = SourceError("the source is another table")
    here.ask()
    here.watch.look()
    assert here.work() == Next(RETRY)
    assert not here.begun() and here.copy.look(cast(Any, None)) == Next(RETRY)
    record = sender_record(here.watch.channel, NAME)
    assert record is not None and "the source is another table" in str(record.held)
    now[0] += RETRY
    here.server.error = None
    assert here.work() is None
    assert (here.server.rounds, here.begun()) == (2, False)


def test_a_copy_shows_that_it_is_being_served() -> None:
    """To the site that waits for it. Fails when that passes on to another site meanwhile."""
    here = Here()
    here.ask()
    here.watch.look()
    seen: list[Any] = []

    def serve() -> Iterator[str]:
        seen.append((here.copies.records, sender_record(here.watch.channel, NAME)))
        yield "copy.1 asked"

    here.server.round = serve  # type: ignore[method-assign]
    here.work()
    ((records, record),) = seen
    assert records == [here.copy.record] and record is not None
    assert here.copies.records == []


def test_what_is_left_in_the_channel_is_looked_for_each_hour(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Fails when the rows of a server that died stay there until the next request."""
    now = [100.0]
    monkeypatch.setattr(copies_module.time, "monotonic", lambda: now[0])
    here = Here()
    here.ask()
    here.watch.look()
    here.work()
    for passed, begun in ((TIDY_INTERVAL - 1, False), (1, True)):
        now[0] += passed
        assert here.begun() is begun


def test_a_run_that_ends_serves_what_is_asked_for_now() -> None:
    here = Here(available_now=True)
    now = CopiesNow(here.copies)
    assert now.look(cast(Any, None)) is None and here.scheduler.woken == []
    here.ask()
    assert now.look(cast(Any, None)) is None and here.scheduler.woken == [here.copy]
    assert here.work() is None
    assert here.server.rounds == 1


def test_a_channel_that_does_not_answer_ends_no_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """It holds its streams, and the other channels go on. Fails when the whole job ends."""
    here = Here(available_now=True)

    def refuse(*_: Any) -> None:
        raise ChannelError("not now")

    monkeypatch.setattr(here.watch, "look", refuse)
    assert CopiesNow(here.copies).look(cast(Any, None)) is None
