"""What every channel can do: in a local directory, in memory, and on an S3-compatible server that
runs in a process of its own."""

from __future__ import annotations

import http.client
import pickle
import socket
import subprocess
import sys
import time
import uuid
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import obstore
import pytest
from fakes import STREAM, ack, manifest, publish
from waiting import DEADLINE

from spark_wan.channels import object_store, registry
from spark_wan.channels.base import MARKER, Channel
from spark_wan.channels.log import StreamLog
from spark_wan.channels.object_store import open_store
from spark_wan.channels.registry import open_channel
from spark_wan.errors import ChannelError, FrameError, ManifestError, ManifestExists, WanError
from spark_wan.topology.values import parse_channel, parse_state

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
"""One request at a time: moto checks whether an object is there and then writes it, and another
thread could write it in between."""


@pytest.fixture(scope="module")
def s3() -> Iterator[Server]:
    with socket.create_server(
        ("127.0.0.1", 0), backlog=100
    ) as listening:  # a client that connects early waits
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
    """A new channel of each kind."""
    if request.param == "directory":
        return open_channel(str(tmp_path / "wan channel ü"))
    if request.param == "memory":
        return open_channel(f"memory://{uuid.uuid4().hex}")
    server: Server = request.getfixturevalue("s3")
    bucket = server.make_bucket(f"b{uuid.uuid4().hex}")
    return open_channel(f"{bucket}/some/prefix", server.storage)


def test_a_channel_can_be_prepared_repeatedly(channel: Channel) -> None:
    channel.prepare()
    channel.prepare()
    assert channel.foreign() == []
    assert channel.epochs() == {}


def test_a_frame_is_read_as_it_was_written(channel: Channel) -> None:
    data = bytes(range(256)) * 5_000
    path = channel.put_frame(STREAM, ATTEMPT, 3, data)
    assert path == f"frames/{STREAM}/{ATTEMPT}-00003.frame"
    assert channel.get_frame(path) == data


def test_reading_a_missing_frame_raises_a_frame_error(channel: Channel) -> None:
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


def test_one_of_many_concurrent_writers_wins(channel: Channel) -> None:
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


def test_reading_a_missing_manifest_raises_a_manifest_error(channel: Channel) -> None:
    with pytest.raises(ManifestError, match="is not there"):
        channel.manifest(STREAM, 7)


def test_epochs_are_listed_by_stream_in_order(channel: Channel) -> None:
    for epoch in (2, 10, 1, 9, 100):
        channel.append(STREAM, epoch, b"m")
    channel.append("newark.east.orders.more", 5, b"m")
    channel.append("a", 1, b"m")
    assert channel.epochs() == {
        "a": [1],
        STREAM: [1, 2, 9, 10, 100],
        "newark.east.orders.more": [5],
    }
    assert channel.stream_epochs(STREAM) == [1, 2, 9, 10, 100]
    assert channel.stream_epochs("newark.east.order") == []


def test_announcements_are_separate_from_manifests(channel: Channel) -> None:
    channel.append(STREAM, 1, b"m")
    for epoch, attempt in ((4, 1), (3, 2), (3, 11)):
        channel.announce(STREAM, epoch, attempt)
    channel.announce(STREAM, 3, 2)
    assert channel.announcements() == {STREAM: [(3, 2), (3, 11), (4, 1)]}
    assert channel.stream_epochs(STREAM) == [1]
    channel.withdraw(STREAM, [(3, 2), (4, 1), (9, 9)])
    assert channel.announcements() == {STREAM: [(3, 11)]}


def test_a_new_ack_replaces_the_one_before(channel: Channel) -> None:
    channel.put_ack(STREAM, "seattle", b"1")
    channel.put_ack(STREAM, "seattle", b"2")
    channel.put_ack(STREAM, "denver.a-b_c", b"3")
    channel.put_ack("other", "seattle", b"4")
    assert channel.acks(STREAM) == {"seattle": b"2", "denver.a-b_c": b"3"}
    assert channel.acks("nobody") == {}


def test_trimming_a_missing_object_is_no_error(channel: Channel) -> None:
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
    [(listed, written)] = channel.frames(STREAM)
    assert listed == path
    assert before - 5 < written < time.time() + 5


def test_a_listing_of_many_pages_is_complete(channel: Channel) -> None:
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda epoch: channel.append(STREAM, epoch, b"m"), range(1, 1101)))
    assert channel.stream_epochs(STREAM) == list(range(1, 1101))


def test_a_channel_can_be_pickled_for_tasks(channel: Channel) -> None:
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


def test_now_is_by_the_clock_that_dates_frames(channel: Channel) -> None:
    """On every kind of store. The probe of a killed process is not a foreign file."""
    channel.prepare()
    before = channel.now()
    publish(StreamLog(channel, STREAM), 1)
    [(_, written)] = channel.frames(STREAM)
    assert before <= written <= channel.now()
    assert not [path for path, _ in channel.list_objects("") if path.startswith("wan-clock")]
    obstore.put(open_store(channel.url, channel.storage), f"wan-clock-{uuid.uuid4().hex}", b"")
    assert channel.foreign() == []


def test_foreign_files_are_reported_and_ignored(channel: Channel) -> None:
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


def test_a_foreign_file_named_like_a_frame_is_listed_as_one(channel: Channel) -> None:
    obstore.put(
        open_store(channel.url, channel.storage), f"frames/{STREAM}/notes.frame", b"foreign"
    )
    assert [path for path, _ in channel.frames(STREAM)] == [f"frames/{STREAM}/notes.frame"]


@pytest.mark.parametrize(
    "content", [b'{"format": "another"}', b"[]", b"not json", b"\xff", b'"text"', b"[" * 100_000]
)
def test_a_marker_that_is_not_of_spark_wan_is_refused(channel: Channel, content: bytes) -> None:
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


def test_a_path_below_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    for place in ("file", "file/below"):
        with pytest.raises(ChannelError, match=f"{tmp_path}/{place}"):
            open_channel(str(tmp_path / place)).prepare()


@pytest.mark.parametrize("place", ["/proc", "/proc/wan", "/sys", "/dev/null/wan"])
def test_a_directory_that_accepts_no_files_is_refused(place: str) -> None:
    """In /proc obstore itself retries without end.

    Fails (hangs) when prepare() does not try the directory first.
    """
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


def test_a_path_out_of_the_channel_is_refused(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("x")
    channel = open_channel(str(tmp_path / "queue"))
    channel.prepare()
    for path in ("../secret", "frames/../../secret", "/etc/passwd", "a//b"):
        with pytest.raises(WanError):
            channel.get_frame(path)


def test_a_file_url_is_a_directory(tmp_path: Path) -> None:
    open_channel(f"file://{tmp_path}/queue").append(STREAM, 1, b"m")
    assert open_channel(str(tmp_path / "queue")).epochs() == {STREAM: [1]}


def test_a_partly_written_file_is_not_listed(tmp_path: Path) -> None:
    """f21: obstore writes a file beside the path and renames it; a crash leaves no manifest."""
    channel = open_channel(str(tmp_path))
    channel.append(STREAM, 1, b"m")
    (tmp_path / "log" / STREAM / f"{2:020d}.json#1").write_text("half")
    assert channel.stream_epochs(STREAM) == [1]
    channel.append(STREAM, 2, b"whole")
    assert channel.manifest(STREAM, 2) == b"whole"


def test_a_memory_channel_is_shared_by_name() -> None:
    name = f"memory://{uuid.uuid4().hex}"
    open_channel(name).append(STREAM, 1, b"m")
    assert open_channel(name).epochs() == {STREAM: [1]}
    assert open_channel(name + "x").epochs() == {}


def test_an_ack_that_is_deleted_after_its_listing_is_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Fails when acks() raises FileNotFoundError."""
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


def test_a_missing_bucket_is_refused(s3: Server) -> None:
    with pytest.raises(ChannelError, match="s3://nowhere/x: cannot write"):
        open_channel("s3://nowhere/x", s3.storage).prepare()


def test_an_unreachable_server_raises_a_channel_error(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        storage = Server(free.getsockname()[1]).storage
    # Without obstore's patient retries, which this test need not wait for.
    real = object_store.from_url
    monkeypatch.setattr(
        object_store,
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


def test_plain_http_must_be_allowed(s3: Server) -> None:
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
        ("https://host/x", {}),
        ("/tmp/wan", {"region": "us-east-1"}),
        ("memory://x", {"region": "us-east-1"}),
    ],
)
def test_an_invalid_url_or_option_raises_a_channel_error(url: str, storage: dict[str, str]) -> None:
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
def test_options_of_store_and_client_are_separated(url: str, storage: dict[str, str]) -> None:
    """obstore panics when the options of a store contain one of the HTTP client."""
    assert open_store(url, storage) is not None


def test_errors_do_not_contain_secrets(s3: Server) -> None:
    storage = {**s3.storage, "secret_access_key": "very-secret"}
    with pytest.raises(ChannelError) as error:
        open_channel("s3://nowhere/x", storage).prepare()
    assert "very-secret" not in str(error.value)


# --- a new kind of channel ----------------------------------------------------------------------


class DictChannel(Channel):
    """The six methods that a kind of channel implements, over a dict."""

    def __init__(self, url: str, storage: Mapping[str, str] | None = None) -> None:
        super().__init__(url, storage)
        self.objects: dict[str, tuple[bytes, float]] = {}

    def create(self, path: str, data: bytes) -> bool:
        written = (data, time.time())
        return self.objects.setdefault(path, written) is written

    def put(self, path: str, data: bytes) -> None:
        self.objects[path] = (data, time.time())

    def read(self, path: str) -> bytes:
        if path not in self.objects:
            raise FileNotFoundError(path)
        return self.objects[path][0]

    def list_objects(self, prefix: str) -> list[tuple[str, float]]:
        return sorted((p, at) for p, (_, at) in self.objects.items() if p.startswith(prefix))

    def written_at(self, path: str) -> float:
        return self.objects[path][1]

    def delete(self, paths: Iterable[str]) -> None:
        for path in paths:
            self.objects.pop(path, None)


def test_a_kind_of_channel_needs_six_methods_and_a_scheme(monkeypatch: pytest.MonkeyPatch) -> None:
    """A topology may then name the scheme, and Spark's own places may not."""
    monkeypatch.setitem(registry.CHANNELS, "dict", f"{__name__}:DictChannel")
    channel = open_channel(parse_channel("dict://here", "/"))
    with pytest.raises(ValueError, match="dict"):
        parse_state("dict://here", "/")
    channel.prepare()
    channel.prepare()
    log = StreamLog(channel, STREAM)
    published = publish(log, 1, 2)
    ack(log, "seattle", 1)
    channel.announce(STREAM, 2, 1)
    assert log.newest_manifest() == published[-1]
    assert log.acks()["seattle"].applied == 1
    assert (channel.epochs(), channel.announcements()) == ({STREAM: [1, 2]}, {STREAM: [(2, 1)]})
    assert channel.now() >= channel.frames(STREAM)[0][1]
    with pytest.raises(ManifestExists):
        log.append(manifest(2, identity="another"))
    channel.trim_manifest(STREAM, 1)
    channel.withdraw(STREAM, [(2, 1)])
    assert (log.since(0), channel.announcements(), channel.foreign()) == ([2], {}, [])
