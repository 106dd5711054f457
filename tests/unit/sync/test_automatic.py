"""What a site does by itself about a table that it needs a copy of."""

from __future__ import annotations

import uuid
from dataclasses import replace
from typing import Any

import pytest
from fakes import Clock

from spark_wan.errors import ChannelError, JoinFailureError, LockoutError
from spark_wan.log.notes import put_sender_record
from spark_wan.sync.automatic import SiteNeed, Synchronizer
from spark_wan.sync.request import CopyRequests, Request
from spark_wan.topology.parsing import parse_topology
from spark_wan.wire.ack import Need
from spark_wan.wire.manifest import COPY, CopyOf, Manifest
from spark_wan.wire.sender_record import SenderRecord

EVENTS = "newark.east.orders"
NEED = Need("epochs", (("newark", "an id", "all", 29),), 0)


class Seattle:
    """Gets orders from newark, and chicago has a copy, too."""

    def __init__(self, table: dict[str, Any] | None = None, **settings: Any) -> None:
        place = f"memory://{uuid.uuid4().hex}"
        sites = ("newark", "chicago", "seattle")
        topology = parse_topology(
            {
                "version": 1,
                "sites": {
                    site: {"state": f"/{site}", **(settings if site == "seattle" else {})}
                    for site in sites
                },
                "senders": {
                    "east": {
                        "site": "newark",
                        "remotes": ["chicago", "seattle"],
                        "channel": f"{place}/east",
                    },
                    "west": {"site": "chicago", "remotes": ["seattle"], "channel": f"{place}/west"},
                },
                "tables": {
                    "orders": {
                        "keys": ["id"],
                        "writers": ["newark"],
                        "senders": ["east"],
                        "at": {site: f"/{site}/orders" for site in sites},
                        **(table or {}),
                    }
                },
            },
            "wan.yaml",
        )
        self.clock, self.told, self.own_rows = Clock(), list[SiteNeed](), False
        requests = CopyRequests(
            topology, topology.table("orders"), topology.site("seattle"), self.clock
        )
        self.synchronizer = Synchronizer(requests, self.told.append)
        self.need = replace(NEED, since=self.clock.now)

    def needs(self) -> str:
        """Say that seattle needs a copy; return what it does about it."""
        cause = self.synchronizer.needed(EVENTS, self.need, "Held.", lambda: self.own_rows)
        assert cause.startswith("Held.")
        return cause.removeprefix("Held.").strip()

    @property
    def requests(self) -> CopyRequests:
        return self.synchronizer.requests

    @property
    def asked(self) -> str | None:
        """The site that is asked."""
        request = self.requests.open()
        return None if request is None else request.by.sender.site

    def request(self) -> Request:
        request = self.requests.open()
        assert request is not None
        return request

    def later(self, seconds: float) -> None:
        self.clock.now += int(seconds * 1000)

    def pass_over(self) -> None:
        for by in self.requests.sites:
            self.synchronizer.pass_over(by.stream)

    def refuse(self) -> None:
        """The last site that is asked refuses, and seattle's receiver says so."""
        request = self.request()
        log = self.requests.log(request.by)
        log.append(answer(request, "it has dead letters"))

    def end(self) -> None:
        self.requests.withdraw(self.request().by)


def test_auto_asks_at_once_and_once() -> None:
    seattle = Seattle()
    for _ in range(3):
        assert (
            seattle.needs()
            == "Nothing is to be done now: site seattle has asked site chicago for a copy."
        )
    request = seattle.request()
    assert (request.by.sender.site, request.wanted.least) == ("chicago", NEED.least)
    assert [(each.table, each.why) for each in seattle.told] == [("orders", "epochs")]
    assert isinstance(seattle.told[0].error, LockoutError)


def test_a_copy_that_mends_nothing_is_not_asked_for_again_and_again() -> None:
    """Each time after twice as long. Fails when a site copies a table for ever."""
    seattle = Seattle()
    asked = []
    for minute in range(130):
        seattle.needs()
        if seattle.asked is not None:
            asked.append(minute)
            seattle.end()
        seattle.later(60)
    assert asked == [0, 1, 3, 7, 15, 31, 63, 123]


def test_manual_asks_never() -> None:
    seattle = Seattle(sync="manual")
    for _ in range(3):
        assert seattle.needs() == ""
        seattle.later(100_000)
    assert seattle.asked is None
    assert len(seattle.told) == 1


def test_delayed_asks_later() -> None:
    seattle = Seattle(sync="delayed", sync_after="30m")
    assert seattle.needs().startswith("Site seattle asks for a copy by itself at 20")
    seattle.later(30 * 60 - 1)
    seattle.needs()
    assert seattle.asked is None
    seattle.later(1)
    seattle.needs()
    assert seattle.asked == "chicago"


def test_a_table_may_say_it_otherwise() -> None:
    table = {"sync": "delayed", "sync_after": "1m"}
    seattle = Seattle(table, sync="manual", sync_after="5h")
    seattle.needs()
    assert seattle.asked is None
    seattle.later(60)
    seattle.needs()
    assert seattle.asked == "chicago"


def test_auto_init_false_waits_for_people() -> None:
    seattle = Seattle(auto_init=False)
    assert seattle.needs().startswith("JoinFailureError: auto_init of site seattle is false")
    seattle.later(100_000)
    seattle.needs()
    assert seattle.asked is None
    assert isinstance(seattle.told[0].error, JoinFailureError) and len(seattle.told) == 1


def test_rows_of_its_own_are_not_taken_away() -> None:
    """Fails when a copy takes them without being asked for."""
    seattle = Seattle()
    seattle.own_rows = True
    assert "the table may have rows there that no receiver wrote" in seattle.needs()
    assert seattle.asked is None
    seattle.own_rows = False
    seattle.needs()
    assert seattle.asked == "chicago"


def test_a_request_that_people_made_stays() -> None:
    seattle = Seattle(sync="delayed")
    by = seattle.requests.ask()
    before = seattle.request()
    assert (
        seattle.needs()
        == "Nothing is to be done now: site seattle has asked site chicago for a copy."
    )
    assert seattle.request() == before and by == before.by


def test_the_next_site_is_asked_when_one_does_not_answer() -> None:
    """And the writer at last, for as long as it takes. Fails when the site waits for ever."""
    seattle = Seattle(sync_timeout="60s")
    seattle.needs()
    seattle.pass_over()
    seattle.later(59)
    seattle.pass_over()
    assert seattle.asked == "chicago"
    seattle.later(1)
    seattle.pass_over()
    assert (seattle.asked, seattle.request().wanted.again) == ("newark", 1)
    for _ in range(3):
        seattle.later(100)
        seattle.pass_over()
    assert seattle.asked == "newark"


def test_a_site_that_works_on_a_copy_is_waited_for() -> None:
    seattle = Seattle(sync_timeout="60s")
    seattle.needs()
    by = seattle.request().by
    seattle.pass_over()
    ahead = 7_200_000  # its clock does not count
    for _ in range(10):
        seattle.later(59)
        record = SenderRecord(by.stream, seattle.clock.now, seattle.clock.now + ahead)
        put_sender_record(seattle.requests.log(by).channel, record)
        seattle.pass_over()
    assert seattle.asked == "chicago"
    seattle.later(61)
    seattle.pass_over()
    assert seattle.asked == "newark"


def test_a_site_that_fails_to_serve_is_passed_over() -> None:
    """It says so again and again. Fails when that is a sign of life."""
    seattle = Seattle(sync_timeout="60s")
    seattle.needs()
    by = seattle.request().by
    for _ in range(8):
        now = seattle.clock.now
        record = replace(SenderRecord(by.stream, now, now), held="a file is damaged")
        put_sender_record(seattle.requests.log(by).channel, record)
        seattle.pass_over()
        seattle.later(10)
    assert seattle.asked == "newark"


def test_a_channel_that_fails_is_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    """The site is asked whose channel works. Fails when one that is gone stops all asking."""
    seattle = Seattle()
    log = CopyRequests.log

    def some(requests: CopyRequests, by: Any) -> Any:
        if by.sender.site == "chicago":
            raise ChannelError("not now")
        return log(requests, by)

    monkeypatch.setattr(CopyRequests, "log", some)
    assert (
        seattle.needs()
        == "Nothing is to be done now: site seattle has asked site newark for a copy."
    )
    assert seattle.asked == "newark"


def test_a_copy_that_cannot_be_taken_is_not_asked_for_again() -> None:
    """The disk is full. Fails when the whole table is copied again and again."""
    seattle = Seattle()
    seattle.needs()
    request = seattle.request()
    log = seattle.requests.log(request.by)
    log.append(answer(request, None))
    ack = log.ack("seattle")
    assert ack is not None
    log.put_ack(replace(ack, held=1, cause="the disk is full"))
    seattle.later(10_000)
    assert seattle.needs() == "A copy is there, and cannot be taken: the disk is full"
    assert seattle.request().wanted == request.wanted


def test_of_two_open_requests_the_newest_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first could not be withdrawn. Fails when it hides the second, or is left open."""
    seattle = Seattle()
    first = seattle.requests.ask()
    seattle.later(1)
    with monkeypatch.context() as patch:
        patch.setattr(CopyRequests, "withdraw", lambda *_: False)
        second = seattle.requests.ask(by=seattle.requests.sites[1])
    assert seattle.request().by == second
    ack = seattle.requests.log(first).ack("seattle")
    assert ack is not None and ack.wanted is None


def test_a_need_long_after_the_last_one_is_a_new_one() -> None:
    seattle = Seattle()
    for _ in range(7):
        seattle.needs()
        seattle.end()
        seattle.later(7_300)
    seattle.needs()
    seattle.end()
    seattle.later(120)
    seattle.needs()
    assert seattle.asked == "chicago"


@pytest.mark.parametrize("refused", [None, "it has dead letters"])
def test_an_answer_is_not_passed_over(refused: str | None) -> None:
    """The receiver takes it, however long that lasts, or asks the next one."""
    seattle = Seattle(sync_timeout="60s")
    seattle.needs()
    request = seattle.request()
    seattle.requests.log(request.by).append(answer(request, refused))
    seattle.pass_over()
    seattle.later(1_000)
    seattle.pass_over()
    assert seattle.asked == "chicago"


def test_a_part_of_a_copy_is_no_answer() -> None:
    """Its server may have died for good. Fails when no other site is ever asked."""
    seattle = Seattle(sync_timeout="60s")
    seattle.needs()
    request = seattle.request()
    part = answer(request, None)
    assert part.copy is not None
    copy = replace(part.copy, part=1, parts=4)
    seattle.requests.log(request.by).append(replace(part, copy=copy))
    seattle.pass_over()
    seattle.later(60)
    seattle.pass_over()
    assert seattle.asked == "newark"


def answer(request: Request, refused: str | None) -> Manifest:
    return Manifest.following(
        None,
        stream=request.by.stream,
        kind=COPY,
        origin="newark",
        sent_to=("seattle",),
        addressees=("seattle",),
        table="orders",
        table_id="an id",
        selection="all",
        keys=("id",),
        schema={"type": "struct", "fields": []},
        first_version=0,
        last_version=40,
        start=True,
        commits=(),
        identity="",
        frames=(),
        disjoint=True,
        created=0,
        copy=CopyOf(request.wanted.request, (), refused),
    )


def test_a_refusal_goes_to_the_next_site_and_at_last_to_people() -> None:
    seattle = Seattle()
    seattle.needs()
    first = seattle.request()
    assert seattle.synchronizer.refused(first.by.stream, first.wanted, "no") is True
    second = seattle.request()
    assert second.by.sender.site == "newark"
    assert seattle.synchronizer.refused(second.by.stream, second.wanted, "no") is False
    seattle.refuse()
    assert "The last request was refused: it has dead letters" in seattle.needs()
    seattle.later(60)
    seattle.needs()
    assert seattle.asked == "chicago"


def test_nobody_can_be_asked() -> None:
    """The writer of a user stream serves no copy of it: the cause says what to do."""
    seattle = Seattle({"source": "sink", "keys": []}, accept_from=["newark"])
    assert seattle.needs() == "" and seattle.told == []
    assert not seattle.synchronizer.waits()


def test_a_channel_that_does_not_answer_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    seattle = Seattle()

    def refuse(*_: Any, **__: Any) -> None:
        raise ChannelError("not now")

    with monkeypatch.context() as patch:
        patch.setattr(CopyRequests, "ask", refuse)
        assert seattle.needs() == ""
    assert (
        seattle.needs()
        == "Nothing is to be done now: site seattle has asked site chicago for a copy."
    )


def test_a_function_that_fails_stops_nothing() -> None:
    seattle = Seattle()

    def fail(need: SiteNeed) -> None:
        raise ValueError("no pager")

    seattle.synchronizer.note = fail
    seattle.needs()
    assert seattle.asked == "chicago"
