"""The channel with scripted faults does what its script says, once, and nothing else."""

from __future__ import annotations

import pickle
import uuid

import pytest
from fakes import STREAM, memory_channel
from faulty_channel import Fault, FaultyChannel

from spark_wan.channels.base import Channel
from spark_wan.channels.registry import open_channel
from spark_wan.errors import ChannelError, ManifestError, ManifestExists
from spark_wan.log.notes import acks, put_ack
from spark_wan.log.stream_log import StreamLog


def faulty(*script: Fault) -> tuple[Channel, FaultyChannel]:
    inner = memory_channel()
    return inner, FaultyChannel(inner, list(script))


def test_a_channel_without_a_script_works_as_usual() -> None:
    inner, channel = faulty()
    channel.prepare()
    channel.append(STREAM, 1, b"m")
    path = channel.put_frame(STREAM, "a", 0, b"f")
    put_ack(channel, STREAM, "seattle", b"{}")
    assert channel.url == inner.url
    assert channel.epochs() == inner.epochs() == {STREAM: [1]}
    assert channel.get_frame(path) == b"f"
    assert acks(channel, STREAM) == {"seattle": b"{}"}
    assert channel.calls["append"] == 1


def test_a_lost_call_succeeds_without_effect() -> None:
    inner, channel = faulty(Fault("append", 1, "lose"), Fault("put_frame", 2, "lose"))
    channel.append(STREAM, 1, b"m")
    paths = [channel.put_frame(STREAM, "a", index, b"f") for index in range(2)]
    assert inner.epochs() == {}
    assert [path for path, _ in inner.frames(STREAM)] == paths[:1]
    assert paths[1] == f"frames/{STREAM}/a-00001.frame"


def test_a_delayed_call_takes_effect_on_delivery() -> None:
    inner, channel = faulty(Fault("append", 1, "delay"), Fault("put_frame", 1, "delay"))
    path = channel.put_frame(STREAM, "a", 0, b"f")
    channel.append(STREAM, 1, b"m")
    assert inner.epochs() == {} and inner.frames(STREAM) == []
    channel.deliver()
    assert inner.epochs() == {STREAM: [1]}
    assert inner.get_frame(path) == b"f"
    channel.deliver()


def test_a_delayed_append_replaces_no_manifest() -> None:
    inner, channel = faulty(Fault("append", 1, "delay"))
    channel.append(STREAM, 1, b"late")
    channel.append(STREAM, 1, b"early")
    with pytest.raises(ManifestExists):
        channel.deliver()
    assert inner.manifest(STREAM, 1) == b"early"


def test_a_failed_call_raises_without_effect() -> None:
    inner, channel = faulty(Fault("append", 2, "fail"))
    channel.append(STREAM, 1, b"m")
    with pytest.raises(ChannelError, match="append failed"):
        channel.append(STREAM, 2, b"m")
    assert inner.epochs() == {STREAM: [1]}
    channel.append(STREAM, 2, b"m")
    assert inner.epochs() == {STREAM: [1, 2]}


def test_a_vanished_call_raises_after_taking_effect() -> None:
    """f15: an ambiguous time-out."""
    inner, channel = faulty(Fault("append", 1, "vanish"))
    with pytest.raises(ChannelError, match="no answer to append"):
        channel.append(STREAM, 1, b"m")
    assert inner.manifest(STREAM, 1) == b"m"


def test_a_duplicated_call_is_made_twice() -> None:
    inner, channel = faulty(Fault("put_ack", 1, "duplicate"), Fault("append", 1, "duplicate"))
    put_ack(channel, STREAM, "seattle", b"{}")
    with pytest.raises(ManifestExists):
        channel.append(STREAM, 1, b"m")
    assert inner.epochs() == {STREAM: [1]}


@pytest.mark.parametrize("method", ["put_frame", "append", "put_ack"])
def test_a_truncated_write_stores_the_first_half(method: str) -> None:
    inner, channel = faulty(Fault(method, 1, "truncate"))
    if method == "put_frame":
        assert inner.get_frame(channel.put_frame(STREAM, "a", 0, b"12345678")) == b"1234"
    elif method == "append":
        channel.append(STREAM, 1, b"12345678")
        assert inner.manifest(STREAM, 1) == b"1234"
        with pytest.raises(ManifestError):
            StreamLog(inner, STREAM).newest_manifest()
    else:
        put_ack(channel, STREAM, "seattle", b"12345678")
        assert acks(inner, STREAM) == {"seattle": b"1234"}


def test_a_read_can_fail_too() -> None:
    _, channel = faulty(Fault("epochs", 1, "fail"))
    with pytest.raises(ChannelError):
        channel.epochs()
    assert channel.epochs() == {}


def test_the_wrapper_has_only_the_methods_of_a_channel() -> None:
    _, channel = faulty()
    with pytest.raises(AttributeError):
        channel.no_such_method()


def test_the_wrapper_can_be_pickled_for_tasks() -> None:
    channel = FaultyChannel(
        open_channel(f"memory://{uuid.uuid4().hex}"), [Fault("append", 1, "fail")]
    )
    copy = pickle.loads(pickle.dumps(channel))
    assert copy.script == channel.script
    with pytest.raises(ChannelError):
        copy.append(STREAM, 1, b"m")
