"""``wait_for_ack``: a writer waits for the acks of its commit, with logs and acks alone."""

from __future__ import annotations

import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from fakes import ack, publish

import spark_wan
from spark_wan.channels.base import Note
from spark_wan.channels.registry import open_channel
from spark_wan.errors import AckTimeoutError, LogGapError, OptionError, TopologyError
from spark_wan.log.notes import put_pause, put_receiver_record
from spark_wan.log.stream_log import StreamLog
from spark_wan.status import wait as wait_module
from spark_wan.topology.model import Topology
from spark_wan.topology.parsing import parse_topology
from spark_wan.units import milliseconds
from spark_wan.wire.head import Pause
from spark_wan.wire.receiver_record import ReceiverRecord
from spark_wan.wire.sender_record import SenderRecord

SITES = ("newark", "chicago", "denver", "seattle")


class Links:
    """newark writes orders; east serves chicago and denver, west serves seattle."""

    def __init__(
        self,
        zero: tuple[str, ...] = (),
        start: Any = None,
        allow_duplicates: bool = False,
        both: Sequence[str] = (),
        **settings: Any,
    ) -> None:
        """``both``: sites that west serves, too."""
        place = f"memory://{uuid.uuid4().hex}"
        senders = {"east": ["chicago", "denver"], "west": ["seattle", *both]}
        self.topology: Topology = parse_topology(
            {
                "version": 1,
                "sites": {
                    site: {"state": f"/{site}/wan", "priority": int(site not in zero)}
                    for site in SITES
                },
                "senders": {
                    name: {
                        "site": "newark",
                        "remotes": remotes,
                        "channel": f"{place}/{name}",
                        "ack_timeout": "1m",
                        **settings,
                    }
                    for name, remotes in senders.items()
                },
                "tables": {
                    "orders": {
                        "keys": ["id"],
                        "writers": ["newark"],
                        "senders": list(senders),
                        "at": {site: f"/{site}/orders" for site in SITES},
                        "start": start or {"version": 0},
                        "allow_duplicates": allow_duplicates,
                    },
                    "clicks": {
                        "keys": ["id"],
                        "writers": ["newark"],
                        "senders": ["west"],
                        "source": "sink",
                        "at": {site: f"/{site}/clicks" for site in ("newark", "seattle", *both)},
                    },
                },
            },
            "wan.yaml",
        )
        self.remotes = senders

    def log(self, sender: str) -> StreamLog:
        channel = open_channel(self.topology.sender(sender).channel, {})
        return StreamLog(channel, f"newark.{sender}.orders")

    def publish(self, *epochs: int, sender: str = "", ago: float = 0) -> None:
        """Publish epochs so many seconds ago: epoch n has the versions 10 n - 10 to 10 n - 1."""
        for name, remotes in self.remotes.items():
            if sender in ("", name):
                created = milliseconds() - int(ago * 1000)
                publish(self.log(name), *epochs, addressees=tuple(remotes), created=created)

    def ack(self, site: str, applied: int, **more: Any) -> None:
        sender = next(name for name, remotes in self.remotes.items() if site in remotes)
        ack(self.log(sender), site, applied, **more)

    def wait(self, version: int, timeout: float | None = 0, **more: Any) -> frozenset[str]:
        return spark_wan.wait_for_ack(self.topology, "orders", version, timeout=timeout, **more)


def refused(links: Links, version: int, **more: Any) -> AckTimeoutError:
    with pytest.raises(AckTimeoutError) as raised:
        links.wait(version, **more)
    return raised.value


def test_it_returns_the_sites_that_have_the_commit() -> None:
    """Each sender's own policy, for its own remotes: by default a quorum, of newark and chicago and
    denver, and of newark and seattle."""
    links = Links()
    links.publish(1, 2)
    links.ack("denver", 2)
    error = refused(links, 15)
    assert (error.acked, error.missing) == ({"denver"}, {"chicago", "seattle"})
    links.ack("seattle", 1)
    assert links.wait(9) == {"newark", "denver", "seattle"}
    refused(links, 10)
    links.ack("seattle", 2)
    assert links.wait(15) == {"newark", "denver", "seattle"}
    links.ack("chicago", 2)
    assert links.wait(15) == set(SITES)


@pytest.mark.parametrize(
    ("policy", "zero", "acked", "enough"),
    [
        ("none", (), [], True),
        ("one", (), [], False),
        ("one", (), ["seattle"], True),
        ("quorum", (), ["seattle"], False),
        ("quorum", (), ["seattle", "chicago"], True),
        ("quorum", ("denver", "chicago"), ["chicago", "denver"], False),
        ("quorum", ("denver", "chicago"), ["seattle"], True),
        ("all", (), ["seattle", "chicago"], False),
        ("all", (), ["seattle", "chicago", "denver"], True),
        ("one_peer", ("denver",), ["denver"], False),
        ("one_peer", ("denver",), ["chicago"], True),
        ("all_peers", ("denver",), ["chicago", "seattle"], True),
        ("all_peers", ("denver",), ["denver", "seattle"], False),
    ],
)
def test_a_policy_that_is_given_is_over_all_remotes_of_the_site(
    policy: str, zero: tuple[str, ...], acked: list[str], enough: bool
) -> None:
    links = Links(zero)
    links.publish(1)
    for site in acked:
        links.ack(site, 1)
    if enough:
        assert links.wait(3, policy=policy) == {"newark", *acked}
    else:
        error = refused(links, 3, policy=policy)
        assert f"orders: the ack policy {policy} is not met within 0 s for version 3" in str(error)


def test_a_commit_that_some_sender_has_not_published_is_waited_for() -> None:
    """Also with the policy ``none``: the commit must be in the channel of each sender. The error
    says what holds the sender."""
    links = Links()
    links.publish(1, sender="east")
    assert "newark.west.orders has nothing in the channel. Check that the table has" in str(
        refused(links, 3, policy="none")
    )
    links.publish(1, sender="west")
    assert links.wait(9, policy="none") == {"newark"}
    record = SenderRecord("newark.west.orders", 1, 2, held="the table is missing")
    links.log("west").channel.put_note(Note("sender", record.stream), record.encode())
    message = str(refused(links, 10, policy="none"))
    assert "newark.east.orders has everything through version 9 in the channel. Check" in message
    assert "through version 9 in the channel, and is held: the table is missing" in message


def test_f47_no_version_of_a_table_that_was_made_again_counts_as_published() -> None:
    """The log has more versions than the new table. Fails when the sender's record is not asked."""
    links = Links()
    links.publish(1, 2)
    for site in ("chicago", "denver", "seattle"):
        links.ack(site, 2)
    assert links.wait(3) == set(SITES)
    for name in links.remotes:
        record = SenderRecord(f"newark.{name}.orders", 1, 2, held="made again", replaced=True)
        links.log(name).channel.put_note(Note("sender", record.stream), record.encode())
    assert "and is held: made again" in str(refused(links, 3))


def test_an_epoch_that_was_trimmed_was_acked_by_all() -> None:
    links = Links(ack_policy="all")
    links.publish(1, 2, 3)
    for sender, remotes in links.remotes.items():
        for site in remotes:
            links.ack(site, 2)
        links.log(sender).trim(2, [])
    assert links.wait(5) == set(SITES)
    assert links.wait(19) == set(SITES)
    refused(links, 20)


def test_the_epoch_of_a_version_is_found_with_few_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    links = Links()
    links.publish(*range(1, 201))
    links.ack("seattle", 57)
    links.ack("denver", 57)
    read = list[int]()
    fetch = StreamLog._fetch

    def counted(log: StreamLog, epoch: int) -> Any:
        read.append(epoch)
        return fetch(log, epoch)

    monkeypatch.setattr(StreamLog, "_fetch", counted)
    assert links.wait(569) == {"newark", "denver", "seattle"}
    assert len(read) <= 2 * 12
    refused(links, 570)


def test_b34_a_site_that_holds_the_stream_is_reported_at_once() -> None:
    """With its cause. Fails with a test that does not end. A hold of a site that the policy can do
    without changes nothing."""
    links = Links()
    links.publish(1)
    links.ack("chicago", 0, held=1, cause="the table is missing")
    links.ack("denver", 1)
    links.ack("seattle", 0, held=1, cause="the disk is full")
    error = refused(links, 3, timeout=3_600)
    assert (error.acked, error.missing) == ({"denver"}, {"chicago", "seattle"})
    assert "orders: the ack policy quorum cannot be met now for version 3: " in str(error)
    assert "seattle holds it at epoch 1: the disk is full" in str(error)
    links.ack("seattle", 1)
    assert links.wait(3) == {"newark", "denver", "seattle"}


def test_f43_a_site_that_is_known_to_be_down_is_reported_at_once() -> None:
    """It owes the ack of an earlier epoch for longer than ``ack_timeout``. One that is late with
    this epoch alone is waited for. Fails with a test that does not end."""
    links = Links(ack_policy="all")
    links.publish(1, ago=61)
    links.ack("denver", 1)
    links.ack("seattle", 1)
    assert "not met within 0 s" in str(refused(links, 3))
    links.publish(2)
    error = refused(links, 13, timeout=3_600)
    assert "chicago owes the ack of epoch 1" in str(error)
    assert error.missing == {"chicago", "denver", "seattle"}
    assert "not met within 0 s" in str(refused(links, 13, policy="one"))
    links.ack("chicago", 1)
    assert "not met within 0 s" in str(refused(links, 13))


def test_a_receiver_that_is_at_work_is_waited_for() -> None:
    """Its first apply takes longer than ``ack_timeout``. Fails when a wait of five minutes ends
    after one, although the receiver has just said that it is there."""
    links = Links(ack_policy="all")
    links.publish(1, ago=120)
    links.publish(2, ago=1)
    for site in ("denver", "seattle"):
        links.ack(site, 2)
    log, now = links.log("east"), milliseconds()

    def says(**changes: Any) -> str:
        record = ReceiverRecord("chicago", log.stream, now - 90_000, now - 5_000)
        put_receiver_record(log.channel, replace(record, **changes))
        return str(refused(links, 13))

    assert "not met within 0 s" in says()
    down = "cannot be met now"
    assert down in says(written=now - 61_000)
    assert down in says(stopped=now - 5_000)


def test_it_returns_as_soon_as_the_policy_is_met(monkeypatch: pytest.MonkeyPatch) -> None:
    links = Links()
    links.publish(1)
    slept = list[float]()

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        if len(slept) == 3:
            links.ack("denver", 1)
            links.ack("seattle", 1)

    clock = SimpleNamespace(sleep=sleep, monotonic=time.monotonic)
    monkeypatch.setattr(wait_module, "time", clock)  # not that of other threads
    assert links.wait(3, timeout=None) == {"newark", "denver", "seattle"}
    assert slept == 3 * [wait_module.POLL_INTERVAL]


def test_without_a_timeout_it_waits_for_the_ack_timeout_of_the_senders() -> None:
    links = Links(ack_timeout="50ms")
    links.publish(1)
    began = time.monotonic()
    assert "not met within 0.05 s" in str(refused(links, 3, timeout=None))
    assert time.monotonic() - began >= 0.05


def test_f17_acks_of_another_log_do_not_count() -> None:
    links = Links()
    links.publish(1)
    links.ack("denver", 1, log_id="b" * 32)
    links.ack("seattle", 7)
    assert refused(links, 3, policy="one").acked == set()


def test_b75_bad_input_is_refused() -> None:
    """Before anything is waited for."""
    links = Links(zero=("chicago", "denver", "seattle"))
    links.publish(1)
    calls: list[tuple[Callable[[], object], type[Exception], str]] = [
        (lambda: links.wait(-1), OptionError, "version is -1"),
        (lambda: links.wait("3"), OptionError, "version is '3'"),  # type: ignore[arg-type]
        (lambda: links.wait(True), OptionError, "version is True"),
        (lambda: links.wait(3, timeout=-1), OptionError, "timeout is -1; give 0 or more"),
        (lambda: links.wait(3, timeout=float("nan")), OptionError, "timeout is nan"),
        (lambda: links.wait(3, policy="most"), OptionError, "policy .*most"),
        (lambda: links.wait(3, policy="one_peer"), OptionError, "one_peer can never be met"),
        (
            lambda: spark_wan.wait_for_ack(links.topology, "order", 3),
            TopologyError,
            "'order' is unknown; did you mean 'orders'",
        ),
        (
            lambda: spark_wan.wait_for_ack(links.topology, "clicks", 3),
            OptionError,
            "clicks is written by a sink and has no versions; use .* blockOnAck",
        ),
    ]
    for call, kind, message in calls:
        with pytest.raises(kind, match=message):
            call()


def test_a_version_before_the_first_that_is_sent_is_refused() -> None:
    """Also once the first epoch is trimmed: the topology says where the stream starts. In a log
    that begins later, nobody can say who has the version."""
    links = Links(start={"version": 5})
    for sender, remotes in links.remotes.items():
        publish(links.log(sender), 1, 2, addressees=tuple(remotes))
        for site in remotes:
            links.ack(site, 2)
        links.log(sender).trim(1, [])
    assert links.wait(5) == set(SITES)
    with pytest.raises(
        OptionError, match="version 4 of orders is not sent: it starts with version"
    ):
        links.wait(4)
    anew = Links()
    for sender in anew.remotes:
        publish(anew.log(sender), 1, first_version=20, last_version=29)
    with pytest.raises(LogGapError, match="version 4 of orders is not in the log"):
        anew.wait(4)


@pytest.mark.parametrize("version", [5, 15])
def test_f55_an_epoch_that_is_missing_is_not_taken_for_a_trimmed_one(version: int) -> None:
    """Fails when an epoch that is not there counts as acked by all."""
    links = Links(ack_policy="all")
    links.publish(1, 2, 3)
    for sender in links.remotes:
        links.log(sender).channel.trim_manifest(links.log(sender).stream, 2)
    with pytest.raises(LogGapError, match="goes from 1 to 3: manifests are missing"):
        links.wait(version)
    for sender in links.remotes:
        links.log(sender).channel.trim_manifest(links.log(sender).stream, 1)
    assert refused(links, version).acked == set()


def test_an_ack_that_comes_between_two_reads_is_not_one_of_another_log(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """denver acks an epoch that was not there a moment before. Fails when it then seems to owe an
    earlier one, and the wait ends at once."""
    links = Links()
    links.publish(1, ago=61)
    links.publish(2)
    links.ack("seattle", 2)
    newest = StreamLog.newest_manifest

    def then_more(log: StreamLog, hint: int = 0) -> Any:
        found = newest(log, hint)
        if log.stream == "newark.east.orders" and found is not None and found.epoch == 2:
            links.publish(3, sender="east")
            links.ack("denver", 3)
        return found

    monkeypatch.setattr(StreamLog, "newest_manifest", then_more)
    links.ack("denver", 1)
    assert links.wait(15, timeout=5) == {"newark", "denver", "seattle"}


def test_a_hold_at_a_later_epoch_does_not_end_the_wait() -> None:
    """A site whose table is held at epoch 10 still forwards, and so acks, those before it."""
    links = Links(ack_policy="all")
    links.publish(1, 2, 3)
    for site in ("denver", "seattle"):
        links.ack(site, 3)
    links.ack("chicago", 1, ahead=1, held=3, cause="the disk is full")
    assert "not met within 0 s" in str(refused(links, 15))
    assert "cannot be met now" in str(refused(links, 25))


def test_b47_a_site_that_is_stuck_on_one_of_two_streams_can_still_ack_the_other() -> None:
    links = Links(allow_duplicates=True, both=["chicago"])
    links.publish(1)
    links.ack("chicago", 0, held=1, cause="the disk is full")
    assert "not met within 0 s" in str(refused(links, 3, policy="one"))
    ack(links.log("west"), "chicago", 1)
    assert links.wait(3, policy="one") == {"newark", "chicago"}


def test_a_site_owes_no_epochs_that_were_not_for_it() -> None:
    """denver is served since epoch 3. Fails when the age of epoch 1 says that it is down."""
    links = Links(ack_policy="all")
    links.publish(1, sender="west")
    links.ack("seattle", 3)
    links.publish(2, 3, sender="west")
    log, long_ago = links.log("east"), milliseconds() - 120_000
    publish(log, 1, 2, addressees=("chicago",), created=long_ago)
    publish(log, 3, addressees=("chicago", "denver"), created=milliseconds())
    links.ack("chicago", 3)
    assert "not met within 0 s" in str(refused(links, 25))


def test_it_needs_no_spark() -> None:
    code = "import sys, spark_wan; spark_wan.wait_for_ack; print('pyspark' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, text=True)
    assert done.stdout == "False\n"


def test_a_paused_stream_is_not_waited_for() -> None:
    """Nor is a site late right after the pause. Fails when a wait goes on for as long as it may,
    or blames a site."""
    links = Links(ack_policy="all")
    links.publish(1, ago=120)
    links.publish(2, ago=110)
    links.ack("seattle", 2)
    log = links.log("east")
    put_pause(log.channel, log.stream, Pause(1, "ann at here", 5))
    error = refused(links, 13, timeout=3_600)
    assert "newark.east.orders is paused by ann at here" in str(error)
    put_pause(log.channel, log.stream, Pause(1, "ann at here", 5, until=milliseconds()))
    assert "not met within 0 s" in str(refused(links, 13))
    put_pause(log.channel, log.stream, None)
    assert "owes the ack of epoch 1" in str(refused(links, 13, timeout=3_600))
