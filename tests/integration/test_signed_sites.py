"""Two sites with keys, in Spark: a sender, a sink and a receiver sign and check."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from crc32c import crc32c
from signed import key_file, put_operations
from sites import SEATTLE, Sites

import spark_wan.target.decode as decode_module
from spark_wan.channels.objects import ObjectChannel


@pytest.fixture
def signed(tmp_path: Path) -> Sites:
    sites = Sites.make(tmp_path)
    file = tmp_path / "wan.yaml"
    content = yaml.safe_load(file.read_text())
    for name, site in content["sites"].items():
        site["signing_keys"] = [key_file(tmp_path, name)]
    content["sites"][SEATTLE]["accept_from"] = ["newark"]
    file.write_text(yaml.safe_dump(content))
    return sites


def test_signed_rows_arrive_and_forged_ones_do_not(
    spark: Any, signed: Sites, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tasks decode the first frames, the driver the others. Fails when the digest gets lost on the
    way from a task to the manifest, or to the task that decodes."""
    rows = [{"id": n, "item": f"item {n}", "amount": n / 7} for n in range(50)]
    signed.append("orders", rows)
    signed.append("readings", [{"sensor": "a", "value": 1.0}])
    with monkeypatch.context() as patch:
        patch.setattr(decode_module, "SMALL_BYTES", 0)
        statuses = signed.replicate(spark)
    assert not [status.held for status in statuses.values() if status.held]
    signed.assert_equal("orders", "readings")
    manifest = signed.log("orders").read(1)
    channel: Any = signed.channel()
    stream = signed.log("orders").stream
    first = channel.manifest(stream, 1)
    assert manifest.signature is not None and all(each.digest for each in manifest.frames)
    ack = signed.ack("orders")
    assert ack is not None and ack.signature is not None and ack.signature.site == SEATTLE

    events = spark.createDataFrame(
        [("e1", 1, 7, 1.5)], "event string, turn bigint, id bigint, price double"
    )
    signed.write_events("prices", events)
    signed.receive(spark, senders=["events"])
    assert sum(signed.rows("prices").values()) == 1

    signed.append("orders", [{"id": -1, "item": "new", "amount": 0.0}])
    signed.append("readings", [{"sensor": "b", "value": 2.0}])
    signed.send(spark)
    manifest_2 = channel.manifest(stream, 2).partition(b"\n")[2]
    body = json.dumps({**json.loads(manifest_2), "addressees": ["seattle", "x"]}).encode()
    forged = f"WANM 2 {crc32c(body):08x}\n".encode() + body
    if isinstance(channel, ObjectChannel):
        channel.put(f"log/{stream}/{2:020d}.json", forged)
    else:
        put_operations(channel, stream, 2, forged, [first])
    held = signed.receive(spark)["orders"].held
    assert held is not None and "its signature is wrong" in held
    assert signed.acked("orders") == 1
    signed.assert_equal("readings")
