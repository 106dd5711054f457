"""The source checks what the topology says, as a receiver does. No Spark."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest
import yaml
from signed import ORDERS, SignedSites, content

from spark_wan.datasource.options import SourceOptions
from spark_wan.datasource.source import FramePartition, WanStreamReader, offset
from spark_wan.errors import LogGapError, UntrustedError
from spark_wan.log.stream_log import StreamLog


@pytest.fixture
def sites(tmp_path: Path) -> SignedSites:
    return SignedSites(tmp_path, "newark")


def partitions(sites: SignedSites, through: int) -> tuple[WanStreamReader, list[FramePartition]]:
    file = sites.folder / "wan.yaml"
    file.write_text(yaml.safe_dump(content(sites.folder, sites.url, sites.keys)))
    options = {"config": str(file), "site": "seattle", "sender": "east"}
    reader = WanStreamReader(SourceOptions.parse(options))
    found = reader.partitions(offset({}, {}), offset({ORDERS: through}, {}))
    return reader, [each for each in found if isinstance(each, FramePartition)]


def test_a_signed_batch_is_read(sites: SignedSites) -> None:
    sites.send(1)
    reader, (partition,) = partitions(sites, 1)
    (rows,) = reader.read(pickle.loads(pickle.dumps(partition)))
    assert rows.num_rows == 1


def test_an_unsigned_epoch_fails_the_query(sites: SignedSites) -> None:
    """Fails when the source believes whatever the channel has."""
    sites.send(1, log=StreamLog(sites.channel, ORDERS))
    with pytest.raises(UntrustedError, match="not signed, but site 'newark' has signing_keys"):
        partitions(sites, 1)


def test_a_replaced_frame_fails_the_query(sites: SignedSites) -> None:
    """Fails when the digest is not compared with what was read."""
    (manifest,) = sites.send(1)
    reader, (partition,) = partitions(sites, 1)
    path = sites.folder / "channel" / manifest.frames[0].path
    data = bytearray(path.read_bytes())
    data[-20] ^= 1
    path.write_bytes(data)
    with pytest.raises(LogGapError, match="not the frame that its signed manifest names"):
        list(reader.read(partition))
