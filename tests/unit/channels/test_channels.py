"""What every channel can do: tried on a local directory, in memory, and on an S3-compatible server of its own process."""

from __future__ import annotations

import http.client
import pickle
import socket
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import obstore
import pytest
from fakes import STREAM, ack, publish
from waiting import DEADLINE

from spark_wan.channels import object_store as object_store_module
from spark_wan.channels.base import MARKER, Channel
from spark_wan.channels.log import StreamLog
from spark_wan.channels.object_store import open_store
from spark_wan.channels.registry import open_channel
from spark_wan.errors import ChannelError, FrameError, ManifestError, ManifestExists, WanError

ATTEMPT = "c" * 32


@dataclass(frozen=True)
class Server:
    """An S3-compatible server on loopback, and the storage options that reach it."""

    port: int

    @property
    def storage(self) -> dict[str, str]:
        return {
            "endpoint": f"http://127.0.0.1:{self.port}",
            "allow_http": "true",
            "access_key_id": "key",
            "secret_access_key": "secret",
            "region": "us-east-1",
            "virtual_hosted_style_request": "false",
            "timeout": f"{DEADLINE:.0f}s",  # a request that is repeated finds its own object
        }

    def make_bucket(self, name: str) -> str:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=DEADLINE)
        signed = {
            "Authorization": "AWS4-HMAC-SHA256 Credential=key/20260101/us-east-1/s3/aws4_request"
        }
        connection.request("PUT", f"/{name}", headers=signed)
        assert connection.getresponse().status == 200
        connection.close()
        return f"s3://{name}"


SERVE = """
import sys
from moto.server import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import make_server
app = DomainDispatcherApplication(create_backend_app)
make_server("127.0.0.1", int(sys.argv[2]), app, fd=int(sys.argv[1])).serve_forever()
"""
"""One request at a time: moto looks whether an object is there and then puts it, and another thread may come between."""


@pytest.fixture(scope="module")
def s3() -> Iterator[Server]:
    with socket.create_server(
        ("127.0.0.1", 0), backlog=100
    ) as listening:  # from here on: who connects early waits
        port = listening.getsockname()[1]
        process = subprocess.Popen(
            [sys.executable, "-c", SERVE, str(listening.fileno()), str(port)],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            pass_fds=[listening.fileno()],
        )
    try:
        yield Server(port)
    finally:
        process.kill()
        process.wait()


@pytest.fixture(params=["directory", "memory", "s3"])
def channel(request: pytest.FixtureRequest, tmp_path: Path) -> Channel:
    """A channel that nobody has used."""
    if request.param == "directory":
        return open_channel(str(tmp_path / "wan channel ü"))
    if request.param == "memory":
        return open_channel(f"memory://{uuid.uuid4().hex}")
    server: Server = request.getfixturevalue("s3")
    bucket = server.make_bucket(f"b{uuid.uuid4().hex}")
    return open_channel(f"{bucket}/some/prefix", server.storage)


def test_a_channel_is_prepared_again_and_again(channel: Channel) -> None:
    channel.prepare()
    channel.prepare()
    assert channel.foreign() == []
    assert channel.epochs() == {}


def test_frames_come_back_as_they_were(channel: Channel) -> None:
    data = bytes(range(256)) * 5_000
    path = channel.put_frame(STREAM, ATTEMPT, 3, data)
    assert path == f"frames/{STREAM}/{ATTEMPT}-00003.frame"
    assert channel.get_frame(path) == data


def test_a_frame_that_is_not_there_is_a_frame_error(channel: Channel) -> None:
    with pytest.raises(
        FrameError, match=r"nothing\.frame: the frame that a manifest names is not there"
    ):
        channel.get_frame("frames/x/nothing.frame")


def test_a_manifest_is_created_only_if_absent(channel: Channel) -> None:
    """Fails when append writes without mode="create"."""
    channel.append(STREAM, 1, b"first")
    with pytest.raises(ManifestExists, match="manifest 1 of"):
        channel.append(STREAM, 1, b"second")
    assert channel.manifest(STREAM, 1) == b"first"


def test_of_many_writers_at_once_one_wins(channel: Channel) -> None:
    def append(writer: int) -> bool:
        try:
            channel.append(STREAM, 1, str(writer).encode())
        except ManifestExists:
            return False
        return True

    with ThreadPoolExecutor(8) as pool:
        won = [writer for writer, first in enumerate(pool.map(append, range(8))) if first]
    assert len(won) == 1, won
    assert channel.manifest(STREAM, 1) == str(won[0]).encode()


def test_a_manifest_that_is_not_there_is_a_manifest_error(channel: Channel) -> None:
    with pytest.raises(ManifestError, match="is not there"):
        channel.manifest(STREAM, 7)


def test_numbers_are_listed_per_stream_in_order(channel: Channel) -> None:
    for number in (2, 10, 1, 9, 100):
        channel.append(STREAM, number, b"m")
    channel.append("newark.east.orders.more", 5, b"m")
    channel.append("a", 1, b"m")
    assert channel.epochs() == {
        "a": [1],
        STREAM: [1, 2, 9, 10, 100],
        "newark.east.orders.more": [5],
    }
    assert channel.stream_epochs(STREAM) == [1, 2, 9, 10, 100]
    assert channel.stream_epochs("newark.east.order") == []


def test_announcements_are_entries_of_their_own(channel: Channel) -> None:
    channel.append(STREAM, 1, b"m")
    for number, attempt in ((4, 1), (3, 2), (3, 11)):
        channel.announce(STREAM, number, attempt)
    channel.announce(STREAM, 3, 2)
    assert channel.announcements() == {STREAM: [(3, 2), (3, 11), (4, 1)]}
    assert channel.stream_epochs(STREAM) == [1]
    channel.withdraw(STREAM, [(3, 2), (4, 1), (9, 9)])
    assert channel.announcements() == {STREAM: [(3, 11)]}


def test_a_site_has_one_ack_its_last(channel: Channel) -> None:
    channel.put_ack(STREAM, "seattle", b"1")
    channel.put_ack(STREAM, "seattle", b"2")
    channel.put_ack(STREAM, "denver.a-b_c", b"3")
    channel.put_ack("other", "seattle", b"4")
    assert channel.acks(STREAM) == {"seattle": b"2", "denver.a-b_c": b"3"}
    assert channel.acks("nobody") == {}


def test_trimming_what_is_gone_is_no_error(channel: Channel) -> None:
    paths = [channel.put_frame(STREAM, ATTEMPT, index, b"f") for index in range(3)]
    channel.append(STREAM, 1, b"m")
    for _ in range(2):
        channel.trim_frames(STREAM, paths[:2])
        channel.trim_manifest(STREAM, 1)
    assert [path for path, _ in channel.frames(STREAM)] == paths[2:]
    assert channel.stream_epochs(STREAM) == []


def test_frames_are_listed_with_the_time_they_were_written(channel: Channel) -> None:
    before = time.time()
    path = channel.put_frame(STREAM, ATTEMPT, 0, b"f")
    channel.put_frame("other", ATTEMPT, 0, b"f")
    ((found, written),) = channel.frames(STREAM)
    assert found == path
    assert before - 5 < written < time.time() + 5


def test_more_than_a_page_is_listed(channel: Channel) -> None:
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda number: channel.append(STREAM, number, b"m"), range(1, 1101)))
    assert channel.stream_epochs(STREAM) == list(range(1, 1101))


def test_a_channel_travels_to_tasks(channel: Channel) -> None:
    channel.append(STREAM, 1, b"m")
    copy = pickle.loads(pickle.dumps(channel))
    assert copy.url == channel.url
    path = copy.put_frame(STREAM, ATTEMPT, 0, b"from a task")
    assert channel.get_frame(path) == b"from a task"
    assert copy.stream_epochs(STREAM) == [1]


FOREIGN = [
    "readme.txt",
    "log/readme.txt",
    f"log/{STREAM}/1.json",
    f"log/{STREAM}/00000000000000000002.json.bak",
    f"log/{STREAM}/nested/00000000000000000002.json",
    f"log/{STREAM}/00000000000000000001.again.x",
    f"frames/{STREAM}/notes.frame",
    f"acks/{STREAM}/deep/seattle.json",
    "other/data.parquet",
]


def test_the_clock_of_a_store_is_that_of_its_frames(channel: Channel) -> None:
    """On every kind of store. What a process that was killed in it leaves is none of somebody else's files."""
    channel.prepare()
    before = channel.now()
    publish(StreamLog(channel, STREAM), 1)
    [(_, written)] = channel.frames(STREAM)
    assert before <= written <= channel.now()
    assert not [path for path, _ in channel.list_objects("") if path.startswith("wan-clock")]
    obstore.put(open_store(channel.url, channel.storage), f"wan-clock-{uuid.uuid4().hex}", b"")
    assert channel.foreign() == []


def test_foreign_files_are_listed_and_do_no_harm(channel: Channel) -> None:
    """Fails when epochs() takes every file below log/ for a manifest."""
    channel.prepare()
    store = open_store(channel.url, channel.storage)
    for path in FOREIGN:
        obstore.put(store, path, b"foreign")
    log = StreamLog(channel, STREAM)
    publish(log, 1, 2)
    ack(log, "seattle", 1)
    channel.announce(STREAM, 2, 1)
    assert channel.foreign() == sorted(FOREIGN)
    channel.prepare()
    assert channel.epochs() == {STREAM: [1, 2]}
    assert channel.announcements() == {STREAM: [(2, 1)]}
    assert list(log.acks()) == ["seattle"]
    last = log.newest_manifest()
    assert last is not None and last.epoch == 2


def test_a_frame_that_is_foreign_by_name_only_is_swept_not_read(channel: Channel) -> None:
    obstore.put(
        open_store(channel.url, channel.storage), f"frames/{STREAM}/notes.frame", b"foreign"
    )
    assert [path for path, _ in channel.frames(STREAM)] == [f"frames/{STREAM}/notes.frame"]


@pytest.mark.parametrize(
    "content", [b'{"format": "another"}', b"[]", b"not json", b"\xff", b'"text"']
)
def test_a_place_that_is_somebody_elses_is_refused(channel: Channel, content: bytes) -> None:
    obstore.put(open_store(channel.url, channel.storage), MARKER, content)
    with pytest.raises(ChannelError, match="wan") as error:
        channel.prepare()
    assert channel.url in str(error.value)


def test_a_channel_of_a_later_version_is_refused(channel: Channel) -> None:
    store = open_store(channel.url, channel.storage)
    obstore.put(store, MARKER, b'{"format": "spark_wan channel", "version": 2}')
    with pytest.raises(
        ChannelError, match=r"its version is 2; this spark_wan knows version 1.*Update"
    ):
        channel.prepare()


def test_the_marker_of_version_1_is_read(channel: Channel) -> None:
    store = open_store(channel.url, channel.storage)
    obstore.put(store, MARKER, b'{"format": "spark_wan channel", "version": 1}')
    channel.prepare()


# --- directories --------------------------------------------------------------------------------


def test_a_path_below_a_file_is_refused_by_name(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    for place in ("file", "file/below"):
        with pytest.raises(ChannelError, match=f"{tmp_path}/{place}"):
            open_channel(str(tmp_path / place)).prepare()


@pytest.mark.parametrize("place", ["/proc", "/proc/wan", "/sys", "/dev/null/wan"])
def test_a_directory_that_takes_no_files_is_refused_by_name(place: str) -> None:
    """In /proc obstore itself would try for ever. Fails (hangs) when prepare() does not try the directory first."""
    with pytest.raises(ChannelError, match=place) as error:
        open_channel(place).prepare()
    assert error.value.retriable


def test_a_channel_error_names_what_failed_and_where(tmp_path: Path) -> None:
    channel = open_channel(str(tmp_path / "queue"))
    channel.prepare()
    (tmp_path / "queue" / "frames").write_text("a file in the way")
    with pytest.raises(
        ChannelError, match=f"channel {tmp_path}/queue: cannot write 'frames/.*Nothing is lost"
    ):
        channel.put_frame(STREAM, ATTEMPT, 0, b"f")


def test_a_path_that_leads_out_of_the_channel_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("x")
    channel = open_channel(str(tmp_path / "queue"))
    channel.prepare()
    for path in ("../secret", "frames/../../secret", "/etc/passwd", "a//b"):
        with pytest.raises(WanError):
            channel.get_frame(path)


def test_a_file_url_is_a_directory(tmp_path: Path) -> None:
    open_channel(f"file://{tmp_path}/queue").append(STREAM, 1, b"m")
    assert open_channel(str(tmp_path / "queue")).epochs() == {STREAM: [1]}


def test_a_file_in_the_writing_is_not_seen(tmp_path: Path) -> None:
    """f21: obstore writes beside the name and renames; what a crash leaves behind is no manifest."""
    channel = open_channel(str(tmp_path))
    channel.append(STREAM, 1, b"m")
    (tmp_path / "log" / STREAM / f"{2:020d}.json#1").write_text("half")
    assert channel.stream_epochs(STREAM) == [1]
    channel.append(STREAM, 2, b"whole")
    assert channel.manifest(STREAM, 2) == b"whole"


def test_a_memory_channel_is_the_same_for_all_who_name_it() -> None:
    name = f"memory://{uuid.uuid4().hex}"
    open_channel(name).append(STREAM, 1, b"m")
    assert open_channel(name).epochs() == {STREAM: [1]}
    assert open_channel(name + "x").epochs() == {}


def test_an_ack_that_goes_away_while_it_is_listed_is_no_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Somebody deletes the channel under its keeper. Fails when acks() lets FileNotFoundError through."""
    channel = open_channel(str(tmp_path))
    channel.put_ack(STREAM, "seattle", b"1")
    list_objects = channel.list_objects

    def list_then_delete(prefix: str) -> list[tuple[str, float]]:
        listed = list_objects(prefix)
        channel.delete(path for path, _ in listed)
        return listed

    monkeypatch.setattr(channel, "list_objects", list_then_delete)
    assert channel.acks(STREAM) == {}


# --- object stores ------------------------------------------------------------------------------


def test_a_bucket_that_is_not_there_is_refused_by_name(s3: Server) -> None:
    with pytest.raises(ChannelError, match="s3://nowhere/x: cannot write"):
        open_channel("s3://nowhere/x", s3.storage).prepare()


def test_a_server_that_does_not_answer_is_a_channel_error(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        storage = Server(free.getsockname()[1]).storage
    # Without obstore's patient retries, which this test need not wait for.
    real = object_store_module.from_url
    monkeypatch.setattr(
        object_store_module,
        "from_url",
        lambda url, **rest: real(url, retry_config={"max_retries": 0}, **rest),
    )
    channel = open_channel("s3://bucket/x", storage)
    for call in (
        channel.prepare,
        channel.epochs,
        lambda: channel.append(STREAM, 1, b"m"),
        lambda: channel.get_frame("frames/x/y.frame"),
        lambda: channel.trim_manifest(STREAM, 1),
    ):
        with pytest.raises(ChannelError, match="channel s3://bucket/x: cannot") as error:
            call()
        assert error.value.retriable


def test_plain_http_must_be_asked_for(s3: Server) -> None:
    storage = {**s3.storage, "allow_http": "false"}
    with pytest.raises(ChannelError, match="cannot write"):
        open_channel("s3://bucket/x", storage).prepare()


@pytest.mark.parametrize(
    ("url", "storage"),
    [
        ("s3://bucket/x", {"reigon": "us-east-1"}),
        ("s3://bucket/x", {"allow_http": "perhaps"}),
        ("s3://bucket/x", {"timeout": "soon"}),
        ("abfss://c@account.dfs.core.windows.net/x", {"region": "x"}),
        ("gs://bucket/x", {"account_key": "x"}),
        ("hdfs://host/x", {}),
        ("/tmp/wan", {"region": "us-east-1"}),
        ("memory://x", {"region": "us-east-1"}),
    ],
)
def test_a_wrong_url_or_option_is_a_channel_error(url: str, storage: dict[str, str]) -> None:
    with pytest.raises(ChannelError, match=f"channel {url}: cannot be opened"):
        open_channel(url, storage).prepare()


@pytest.mark.parametrize(
    ("url", "storage"),
    [
        (
            "s3://bucket/x",
            {
                "region": "us-east-1",
                "timeout": "10s",
                "connect_timeout": "2s",
                "allow_http": "true",
            },
        ),
        ("s3://bucket/x", {"AWS_REGION": "us-east-1", "AWS_ALLOW_HTTP": "true"}),
        ("abfss://c@account.dfs.core.windows.net/x", {"account_key": "eA==", "timeout": "10s"}),
        ("az://account/c/x", {"account_name": "account", "account_key": "eA=="}),
        ("gs://bucket/x", {"skip_signature": "true", "proxy_url": "http://127.0.0.1:1"}),
    ],
)
def test_settings_of_store_and_client_are_told_apart(url: str, storage: dict[str, str]) -> None:
    """obstore ends with a panic when it finds a client's setting among a store's."""
    assert open_store(url, storage) is not None


def test_secrets_do_not_stand_in_errors(s3: Server) -> None:
    storage = {**s3.storage, "secret_access_key": "very-secret"}
    with pytest.raises(ChannelError) as error:
        open_channel("s3://nowhere/x", storage).prepare()
    assert "very-secret" not in str(error.value)
