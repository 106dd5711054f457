"""An S3-compatible server that runs in a process of its own (moto)."""

from __future__ import annotations

import http.client
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from waiting import DEADLINE


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


@contextmanager
def serving() -> Iterator[Server]:
    """Run a server in a process of its own."""
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
