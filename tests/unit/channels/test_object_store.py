"""Channels in directories and object stores: what is refused, and which errors say so."""

from __future__ import annotations

import multiprocessing
import os
import shutil
import socket
import uuid
from pathlib import Path
from typing import Any

import pytest
from fakes import STREAM
from obstore.exceptions import BaseError
from s3_server import Server

from spark_wan.channels import object_store
from spark_wan.channels.base import Notes
from spark_wan.channels.object_store import ObjectStoreChannel, open_store
from spark_wan.channels.registry import open_channel
from spark_wan.errors import ChannelError, WanError
from spark_wan.log import notes
from spark_wan.state.objects import StateObjects

ATTEMPT = "c" * 32


@pytest.mark.rest
def test_a_process_opens_a_channel_once(s3: Server) -> None:
    """Fails when each micro-batch, task and commit has connections of its own."""
    url = f"memory://{uuid.uuid4().hex}"
    assert open_channel(url) is open_channel(url, {}) is not open_channel(url + "x")
    assert open_channel("s3://bucket/x", s3.storage) is open_channel("s3://bucket/x", s3.storage)
    other = open_channel("s3://bucket/x", {**s3.storage, "region": "eu-1"})
    assert other is not open_channel("s3://bucket/x", s3.storage)


def _opened_anew(url: str, parent: int, answers: multiprocessing.Queue[bool]) -> None:
    answers.put(id(open_channel(url)) != parent)


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_forked_process_opens_its_own(tmp_path: Path) -> None:
    """Spark forks its Python workers. Fails when a child uses its parent's connections."""
    channel = open_channel(str(tmp_path))
    context = multiprocessing.get_context("fork")
    answers: multiprocessing.Queue[bool] = context.Queue()
    child = context.Process(target=_opened_anew, args=(str(tmp_path), id(channel), answers))
    child.start()
    assert answers.get(timeout=60)
    child.join()


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
    with pytest.raises(ChannelError, match=place):
        open_channel(place).prepare()


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


LINKED = ["frames/s", "log/s", "acks/s", "frames", "acks/s/site.json"]


@pytest.mark.parametrize("linked", LINKED)
def test_a_link_leads_nobody_out_of_a_channel(tmp_path: Path, linked: str) -> None:
    """Whoever can write to a channel could have others delete, read or write files elsewhere. Fails
    when the sweep of orphans, `remove` or an ack follows a link."""
    outside, path = tmp_path / "outside", f"{linked}/x/y.json"
    if linked.endswith(".json"):
        outside.write_text("mine")
        path = linked
    else:
        (outside / "x").mkdir(parents=True)
        (outside / "x" / "y.json").write_text("mine")
    there = tmp_path / "wan" / linked
    there.parent.mkdir(parents=True)
    there.symlink_to(outside)
    channel: Any = open_channel(str(tmp_path / "wan"))
    assert path not in channel.list_paths("")
    assert [each.path for each in channel.list_objects("") if each.path == path] == []
    for call in (
        lambda: channel.read(path),
        lambda: channel.stat(path),
        lambda: channel.put(path, b"theirs"),
        lambda: channel.create(path, b"theirs"),
        lambda: channel.delete([path]),
    ):
        with pytest.raises(ChannelError, match=r"cannot .* is a symbolic link, which a channel"):
            call()
    files = [outside] if outside.is_file() else [f for f in outside.rglob("*") if f.is_file()]
    assert [file.read_text() for file in files] == ["mine"]


def test_the_channel_itself_may_be_a_link(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "wan").symlink_to(tmp_path / "real")
    channel: Any = open_channel(str(tmp_path / "wan"))
    channel.put("acks/s/site.json", b"1")
    assert channel.read("acks/s/site.json") == b"1"
    assert channel.list_paths("acks/") == ["acks/s/site.json"]


@pytest.mark.timeout(30)
@pytest.mark.parametrize("path", ["log/s/00000000000000000001.json", "acks/s/site.json"])
def test_a_pipe_in_place_of_a_file_is_an_error(tmp_path: Path, path: str) -> None:
    """Fails (hangs) when it is opened."""
    there = tmp_path / "wan" / path
    there.parent.mkdir(parents=True)
    os.mkfifo(there)
    channel: Any = open_channel(str(tmp_path / "wan"))
    for call in (lambda: channel.read(path), lambda: channel.put(path, b"x")):
        with pytest.raises(ChannelError, match="is no file"):
            call()


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
    notes.put_ack(channel, STREAM, "seattle", b"1")
    assert isinstance(channel, ObjectStoreChannel)
    real = channel.notes

    def list_then_delete(*args: Any) -> Notes:
        listed = real(*args)
        channel.delete([f"acks/{STREAM}/seattle.json"])
        return listed

    monkeypatch.setattr(channel, "notes", list_then_delete)
    assert notes.acks(channel, STREAM) == {}


def test_a_directory_that_is_removed_and_made_again_is_used_again(tmp_path: Path) -> None:
    """f17: by a process that has the channel open. Fails when it keeps an open directory."""
    channel = open_channel(str(tmp_path / "queue"))
    channel.append(STREAM, 1, b"m")
    shutil.rmtree(tmp_path / "queue")
    channel.prepare()
    shutil.rmtree(tmp_path / "queue")
    assert (channel.epochs(), channel.stream_epochs(STREAM), channel.frames(STREAM)) == ({}, [], [])
    channel.append(STREAM, 1, b"another")
    assert channel.manifest(STREAM, 1) == b"another"


def test_an_empty_listing_of_a_directory_is_made_once_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A log is extended and trimmed while it is listed: a listing may have neither of the two.

    Fails when a writer that was frozen takes its stray for the newest manifest.
    """
    channel = open_channel(str(tmp_path))
    channel.append(STREAM, 4, b"m")
    real, listings = os.listdir, [list[str]()]
    monkeypatch.setattr(os, "listdir", lambda path: listings.pop() if listings else real(path))
    assert channel.stream_epochs(STREAM, 3, 1) == [4]
    assert listings == []


# --- object stores ------------------------------------------------------------------------------


@pytest.mark.rest
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
        lambda: channel.notes("acks"),
        lambda: channel.stream_epochs(STREAM),
        lambda: channel.frame_time("frames/x/y.frame"),
        lambda: channel.append(STREAM, 1, b"m"),
        lambda: channel.get_frame("frames/x/y.frame"),
        lambda: channel.trim_manifest(STREAM, 1),
        lambda: channel.trim(STREAM, 1, ["frames/x/y.frame"]),
    ):
        with pytest.raises(ChannelError, match="channel s3://bucket/x: cannot"):
            call()


@pytest.mark.rest
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


@pytest.mark.rest
def test_errors_do_not_contain_secrets(s3: Server) -> None:
    storage = {**s3.storage, "secret_access_key": "very-secret"}
    with pytest.raises(ChannelError) as error:
        open_channel("s3://nowhere/x", storage).prepare()
    assert "very-secret" not in str(error.value)


@pytest.mark.parametrize("number", [38, 95])
def test_a_file_system_that_cannot_rename_or_link_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    """As mounts of object stores: permissions and space are not the cause."""

    def refuse(*_: object, **__: object) -> None:
        raise BaseError(f"Generic LocalFileSystem error: cannot rename (os error {number})")

    monkeypatch.setattr(object_store.obstore, "put", refuse)
    advised = "cannot rename or link files: .* Use the URL of the object store instead"
    with pytest.raises(ChannelError, match=advised):
        open_channel(str(tmp_path)).put_frame("a.b.t", "a" * 32, 0, b"frame")
    with pytest.raises(ChannelError, match=advised):
        StateObjects(str(tmp_path), "the checkpoint").write("a.b.t", b"{}")
