"""What is checked of the replicas of topics when a job starts, on clusters of any size."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

import pytest

from spark_wan.channels.kafka.broker import TopicSettings
from spark_wan.channels.kafka.client import KafkaBroker
from spark_wan.channels.kafka.options import parse_options
from spark_wan.errors import ChannelError

URL = "kafka://one:9092,two:9092/wan"
SAFE = {"unclean.leader.election.enable": "false"}


class Admin:
    """What brokers say of a cluster with the topics ``wan.log`` and ``wan.acks``."""

    def __init__(self, brokers: int, replicas: int, **configs: str) -> None:
        self.brokers, self.replicas = brokers, replicas
        self.configs = SAFE | {name.replace("_", "."): each for name, each in configs.items()}

    def described(self) -> list[dict[str, Any]]:
        part = {"replica_nodes": [*range(self.replicas)]}
        return [{"name": name, "partitions": [part]} for name in ("wan.log", "wan.acks")]

    def describe_cluster(self) -> dict[str, Any]:
        return {"brokers": [*range(self.brokers)]}

    def describe_configs(self, resources: Any, config_filter: str) -> Mapping[str, Any]:
        values = {name: {"value": value} for name, value in self.configs.items()}
        return {"topic": {"wan.log": values, "wan.acks": values}}


def checked(admin: Admin, **storage: str) -> None:
    """Compare the topics of a cluster, as a start does."""
    options = {name.replace("_", "."): value for name, value in storage.items()}
    broker = KafkaBroker(parse_options(URL, options))
    topics = {each["name"]: TopicSettings(1) for each in admin.described()}
    broker._check(admin, topics, admin.described())


def warned(caplog: pytest.LogCaptureFixture) -> list[str]:
    records = [each for each in caplog.records if each.levelno == logging.WARNING]
    return [each.getMessage() for each in records if each.event == "few-replicas"]  # type: ignore[attr-defined]


def test_topics_with_one_replica_are_refused_where_there_are_more_brokers() -> None:
    """Fails when a broker that is lost takes what no site has read yet with it."""
    with pytest.raises(ChannelError) as refused:
        checked(Admin(3, 1))
    message = str(refused.value)
    assert "fewer than 2 replicas: wan.acks (1), wan.log (1)" in message
    assert "kafka-reassign-partitions.sh" in message
    assert "set the option topics.replication to 1" in message


@pytest.mark.parametrize(
    ("brokers", "replicas", "options"),
    [
        (1, 1, {}),
        (3, 1, {"topics_replication": "1"}),
        (2, 2, {}),
        (1, 1, {"topics_replication": "1"}),
    ],
    ids=["one broker", "asked for", "two replicas", "one broker, asked for"],
)
def test_topics_that_may_lose_records_are_warned_of(
    brokers: int, replicas: int, options: dict[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    """For all topics once. Fails when nobody is told, or when a laptop needs three brokers."""
    checked(Admin(brokers, replicas, min_insync_replicas="1"), **options)
    [message] = warned(caplog)
    assert f"wan.acks (replicas: {replicas}), wan.log (replicas: {replicas})" in message
    assert message.endswith("3 replicas of each topic, and min.insync.replicas=2.")


def test_topics_that_lose_nothing_with_a_broker_are_not_warned_of(
    caplog: pytest.LogCaptureFixture,
) -> None:
    checked(Admin(3, 3, min_insync_replicas="2"))
    checked(Admin(2, 2, min_insync_replicas="2"))
    assert warned(caplog) == []


def test_fewer_replicas_than_the_options_ask_for_are_refused() -> None:
    """Fails when topics that somebody else has made are taken as they are."""
    with pytest.raises(ChannelError, match=r"fewer than 3 replicas: wan.acks \(2\)") as refused:
        checked(Admin(2, 2, min_insync_replicas="2"), topics_replication="3")
    assert "topics.replication to 1" not in str(refused.value)


@pytest.mark.parametrize(
    ("configs", "must"),
    [
        ({"min_insync_replicas": "1"}, "min.insync.replicas=1, and must have 2"),
        ({"min_insync_replicas": "4"}, "min.insync.replicas=4, and must have 2"),
        (
            {"min_insync_replicas": "2", "unclean_leader_election_enable": "true"},
            "unclean.leader.election.enable=true, and must have false",
        ),
    ],
    ids=["one in sync", "four in sync", "unclean elections"],
)
def test_settings_with_which_acknowledged_records_are_lost_are_refused(
    configs: dict[str, str], must: str
) -> None:
    """Or with which no record is acknowledged. Fails when a broker that lagged becomes the leader,
    and readers see a log without its end."""
    with pytest.raises(ChannelError, match=must) as refused:
        checked(Admin(3, 3, **configs))
    assert "kafka-configs.sh" in str(refused.value)
