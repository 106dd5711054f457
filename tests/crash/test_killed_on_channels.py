"""Senders and receivers killed with SIGKILL at numbered steps, with S3 or Kafka between the sites:
one process of each, which works at as many pairs of sites as there are steps."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from default_channel import closing_clients, server_settings
from sites import Sites

from crash.processes import Killed, Spares

SENDING = ["publish.3", "publish.4", "publish.5", "acks.4"]
APPLYING = ["apply.4", "apply.6", "apply.8"]
Kill = Callable[..., Killed]


@pytest.fixture(scope="module", params=["s3", "kafka"])
def killed_there(
    request: pytest.FixtureRequest,
    spark: Any,
    spares: Spares,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Kill]:
    """``killed_there(steps, do)``: pairs of sites by step, each with a channel of its own and an
    epoch that arrived, after a process was killed there at its second epoch."""
    folder = tmp_path_factory.mktemp("killed")

    def kill(steps: list[str], do: str) -> Killed:
        pairs = {}
        for step in steps:
            place = folder / do / step
            channel = server_settings(request.param, place, "channel")
            pairs[step] = Sites.make(place, **channel, ack_timeout="1ms")
            pairs[step].change(10)
            pairs[step].send(spark)
            pairs[step].receive(spark)
            pairs[step].change(30)
            if do == "receive":
                pairs[step].send(spark)
        worker = spares.take(0)
        try:
            worker.killed_at(pairs, do=do, tables=["orders"])
        finally:
            worker.end()
        return pairs

    with closing_clients(folder):
        yield kill


@pytest.fixture(scope="module")
def sending(killed_there: Kill) -> Killed:
    return killed_there(SENDING, "send")


@pytest.fixture(scope="module")
def applying(killed_there: Kill) -> Killed:
    return killed_there(APPLYING, "receive")


@pytest.mark.parametrize("step", SENDING)
def test_f01_f02_a_sender_killed_over_s3_or_kafka_loses_and_doubles_nothing(
    spark: Any, sending: Killed, step: str
) -> None:
    """Fails when frames that no manifest names yet are taken for published, or a manifest whose
    answer was lost is written again with the next number."""
    pair = sending[step]
    pair.send(spark)
    status = pair.receive(spark)
    assert {each.held for each in status.values()} == {None}
    assert {each.duplicates for each in status.values()} == {0}
    pair.assert_equal()
    channel = pair.channel()
    assert channel.head("newark.east.orders") == 2
    pair.send(spark)  # trims
    assert {len(epochs) for epochs in channel.epochs().values()} == {1}


@pytest.mark.parametrize("step", APPLYING)
def test_f23_f24_a_receiver_killed_over_s3_or_kafka_applies_each_epoch_once(
    spark: Any, applying: Killed, step: str
) -> None:
    """Fails when an ack comes before the rows, or none comes again."""
    pair = applying[step]
    status = pair.receive(spark)
    assert {each.held for each in status.values()} == {None}
    pair.assert_equal()
    ack = pair.ack("orders")
    assert ack is not None
    assert (ack.applied, ack.held) == (2, None)
