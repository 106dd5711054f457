"""Forwarding with keys: each hop checks what it received, and signs what it sends."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from fakes import Checkpoints, Clock, manifest, memory_channel, put_frame
from signed import key_file

from spark_wan.errors import UntrustedError
from spark_wan.forward.forwarder import Forwarder
from spark_wan.log.stream_log import StreamLog
from spark_wan.steps import run
from spark_wan.topology.parsing import parse_topology
from spark_wan.topology.signing import receiving_trust, sending_trust
from spark_wan.wire.frame import frame_digest
from spark_wan.wire.manifest import Manifest

INBOUND = "newark.east.orders"
OUTBOUND = f"chicago.west~{INBOUND}"


class Chain:
    """newark sends to chicago, which sends on to denver."""

    def __init__(self, folder: Path, *signing: str) -> None:
        sites = ("newark", "chicago", "denver")
        self.topology = parse_topology(
            {
                "version": 1,
                "sites": {
                    name: {
                        "state": str(folder / name),
                        **({"signing_keys": [key_file(folder, name)]} if name in signing else {}),
                    }
                    for name in sites
                },
                "senders": {
                    "east": {"site": "newark", "remotes": ["chicago"], "channel": "/east"},
                    "west": {"site": "chicago", "remotes": ["denver"], "channel": "/west"},
                },
                "tables": {
                    "orders": {
                        "keys": ["id"],
                        "writers": ["newark"],
                        "senders": ["east", "west"],
                        "at": {name: f"/{name}/orders" for name in sites},
                    }
                },
            },
            "wan.yaml",
        )
        self.east, self.west = memory_channel(), memory_channel()

    def send(self, epoch: int, signed: bool = True) -> Manifest:
        trust = sending_trust(self.topology, self.topology.sender("east"))
        log = StreamLog(self.east, INBOUND, *([trust] if signed else []))
        previous = log.peek(epoch - 1).fingerprint if epoch > 1 else ""
        frame = put_frame(self.east)
        frame = replace(frame, digest=frame_digest(self.east.get_frame(frame.path)))
        to: dict[str, Any] = {"sent_to": ("chicago",), "addressees": ("chicago",)}
        return log.append(manifest(epoch, previous=previous, frames=(frame,), **to))

    def forward(self) -> None:
        run(
            Forwarder(
                self.topology,
                self.topology.table("orders"),
                self.topology.sender("west"),
                StreamLog(
                    self.east, INBOUND, receiving_trust(self.topology, "chicago", "/east")(INBOUND)
                ),
                StreamLog(
                    self.west, OUTBOUND, sending_trust(self.topology, self.topology.sender("west"))
                ),
                Checkpoints(),
                Clock(),
            ).round()
        )

    @property
    def at_denver(self) -> StreamLog:
        trust = receiving_trust(self.topology, "denver", "/west")(OUTBOUND)
        return StreamLog(self.west, OUTBOUND, trust)


def test_each_hop_signs_what_it_sends(tmp_path: Path) -> None:
    chain = Chain(tmp_path, "newark", "chicago")
    inbound = [chain.send(1), chain.send(2)]
    chain.forward()
    for epoch, sent in enumerate(inbound, 1):
        found = chain.at_denver.read(epoch)
        assert found.signature is not None
        assert (found.signature.site, found.signature.channel) == ("chicago", "west")
        assert found.frames[0].digest == sent.frames[0].digest
        assert found.via is not None and found.via.fingerprint == sent.fingerprint


def test_frames_of_a_site_without_keys_get_a_digest_where_they_are_signed(tmp_path: Path) -> None:
    chain = Chain(tmp_path, "chicago")
    chain.send(1, signed=False)
    chain.forward()
    (frame,) = chain.at_denver.read(1).frames
    assert frame.digest == frame_digest(chain.west.get_frame(frame.path))


def test_what_is_not_signed_is_not_forwarded(tmp_path: Path) -> None:
    """What came before it is, and stays. Fails when a forwarder signs whatever it finds."""
    chain = Chain(tmp_path, "newark", "chicago")
    chain.send(1)
    chain.send(2, signed=False)
    for _ in range(2):
        with pytest.raises(UntrustedError, match="not signed, but site 'newark' has signing_keys"):
            chain.forward()
    assert chain.at_denver.epochs() == [1]


def test_what_was_forwarded_is_not_checked_again(tmp_path: Path) -> None:
    """An idle stream is not held when its key has gone."""
    chain = Chain(tmp_path, "newark", "chicago")
    chain.send(1)
    chain.forward()
    (tmp_path / "newark.key").write_text("another key, which is long enough as well")
    chain.forward()
    assert chain.at_denver.epochs() == [1]


def test_a_forwarder_cannot_be_impersonated_by_the_origin(tmp_path: Path) -> None:
    chain = Chain(tmp_path, "newark", "chicago")
    trust = sending_trust(chain.topology, chain.topology.sender("east"))
    StreamLog(chain.west, OUTBOUND, trust).append(manifest(1, stream=OUTBOUND, frames=()))
    with pytest.raises(UntrustedError, match="signed by site 'newark', but its sender is at 'chi"):
        chain.at_denver.read(1)
