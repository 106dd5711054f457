"""An S3-compatible server that runs in a process of its own (moto)."""

from __future__ import annotations

import http.client
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from waiting import DEADLINE

SIGNED = "AWS4-HMAC-SHA256 Credential=key/20260101/us-east-1/s3/aws4_request"


@dataclass(frozen=True)
class Server:
    """An S3-compatible server, and the storage options that reach it."""

    port: int
    host: str = "127.0.0.1"

    @property
    def storage(self) -> dict[str, str]:
        return {
            "endpoint": f"http://{self.host}:{self.port}",
            "allow_http": "true",
            "access_key_id": "key",
            "secret_access_key": "secret",
            "region": "us-east-1",
            "virtual_hosted_style_request": "false",
            "timeout": f"{DEADLINE:.0f}s",  # a request that is repeated finds its own object
        }

    def make_bucket(self, name: str) -> str:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=DEADLINE)
        connection.request("PUT", f"/{name}", headers={"Authorization": SIGNED})
        assert connection.getresponse().status == 200
        connection.close()
        return f"s3://{name}"


SERVE = """
import io, sys, threading
from moto.server import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import WSGIRequestHandler, make_server
from werkzeug.test import Client
host, port, signed, *buckets = sys.argv[1], int(sys.argv[2]), *sys.argv[3:]
app, one = DomainDispatcherApplication(create_backend_app), threading.Lock()

def whole(environ, start):
    size = int(environ.get("CONTENT_LENGTH") or 0)
    body = environ["wsgi.input"].read(size)
    if len(body) < size:
        start("400 Bad Request", [("Content-Length", "0")])
        return []
    environ["wsgi.input"] = io.BytesIO(body)
    with one:
        return list(app(environ, start))

for bucket in buckets:
    assert Client(app).put("/" + bucket, headers={"Authorization": signed}).status_code == 200
WSGIRequestHandler.protocol_version = "HTTP/1.1"
server = make_server(host, port, whole, threaded=True)
print(server.port, flush=True)
server.serve_forever()
"""
"""Keeps connections open, and has a thread for each: a frozen client stops no other. It works
on one request at a time, once the request is there as a whole: moto checks whether an object is
there and then writes it, and another thread could write it in between."""


@contextmanager
def serving() -> Iterator[Server]:
    """Run a server on this machine."""
    with _serving("127.0.0.1", 0) as server:
        yield server


@contextmanager
def serving_at(host: str, bucket: str, command: Sequence[str] = ()) -> Iterator[Server]:
    """Run a server at an address of another machine. ``command`` runs a command there."""
    with _serving(host, 9_000, bucket, command=command) as server:
        yield server


@contextmanager
def _serving(host: str, port: int, *buckets: str, command: Sequence[str] = ()) -> Iterator[Server]:
    process = subprocess.Popen(
        [*command, sys.executable, "-c", SERVE, host, str(port), SIGNED, *buckets],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    assert process.stdout is not None
    try:
        said = process.stdout.readline().strip()
        assert said, f"the server at {host} did not start"
        yield Server(int(said), host)
    finally:
        process.kill()
        process.wait()
        process.stdout.close()
