"""Copies that sites ask a channel's sender for: when they are served, and what goes wrong."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, cast

import pytest
from fakes import STREAM, memory_channel
from inline import Running

from spark_wan.delta.sessions import CurrentSession
from spark_wan.errors import ChannelError, SourceError
from spark_wan.log.ack_watch import AckWatch
from spark_wan.log.notes import put_ack
from spark_wan.runtime.scheduler import UNTIL_WOKEN, Found, Lane, Next
from spark_wan.sender import copies as copies_module
from spark_wan.sender.copies import RETRY, OutboundCopies
from spark_wan.sender.serve import CopyServer
from spark_wan.topology.model import copy_name
from spark_wan.wire.ack import Ack, Wanted

NAME = copy_name(STREAM, "seattle")


class Server:
    """Serves, or fails as it is told."""

    def __init__(self) -> None:
        self.rounds, self.error = 0, cast("Exception | None", None)

    def round(self) -> Iterator[str]:
        self.rounds += 1
        if self.error is not None:
            raise self.error
        yield "copy.1 asked"


def made(available_now: bool = False) -> tuple[OutboundCopies, Server]:
    watch, server = AckWatch(memory_channel()), Server()
    servers = {NAME: cast(CopyServer, server)}
    return OutboundCopies(Running(), watch, servers, CurrentSession(), available_now), server


def ask(copies: OutboundCopies, request: str = "r1") -> None:
    ack = Ack("seattle", NAME, "", 0, wanted=Wanted(request))
    put_ack(copies.watch.channel, NAME, "seattle", ack.encode())
    copies.watch.look()


def work(copies: OutboundCopies) -> Any:
    turn = copies.look(cast(Any, None))
    assert isinstance(turn, Found) and turn.lane is Lane.LARGE
    return turn.work(cast(Any, None))


def test_a_request_is_served_once_and_the_next_one_too() -> None:
    copies, server = made()
    assert not copies.is_due() and copies.look(cast(Any, None)) is UNTIL_WOKEN
    for rounds, request in enumerate(("r1", "r2"), 1):
        ask(copies, request)
        assert copies.is_due()
        assert work(copies) == Next(0.0)
        assert (server.rounds, copies.is_due()) == (rounds, False)


def test_a_copy_that_cannot_be_served_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr(copies_module.time, "monotonic", lambda: now[0])
    monkeypatch.setattr(copies_module, "lost_session", lambda spark: None)
    copies, server = made()
    server.error = SourceError("the source is another table")
    ask(copies)
    assert work(copies) == Next(RETRY) and not copies.is_due()
    now[0] += RETRY
    server.error = None
    assert work(copies) == Next(0.0)
    assert (server.rounds, copies.is_due()) == (2, False)


def test_a_run_that_ends_serves_what_is_asked_for_now() -> None:
    copies, server = made(available_now=True)
    assert copies.look(cast(Any, None)) is None
    ask(copies)
    assert work(copies) is None
    assert server.rounds == 1


def test_a_channel_that_does_not_answer_ends_no_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """It holds its streams, and the other channels go on. Fails when the whole job ends."""
    copies, _ = made(available_now=True)

    def refuse(*_: Any) -> None:
        raise ChannelError("not now")

    monkeypatch.setattr(copies.watch, "look", refuse)
    assert copies.look(cast(Any, None)) is None
