"""Requests for copies, and copies, to the byte: fields that are absent mean what they did."""

from __future__ import annotations

import json

import pytest
from fakes import manifest

from spark_wan.wire.ack import Ack, Wanted
from spark_wan.wire.manifest import COPY, SNAPSHOT, CopyOf, Manifest

VECTOR = (("newark", "an id", "all", 4),)
REQUEST = (
    b'{"version":2,"site":"seattle","stream":"s","log_id":"","applied":0,"held":null,"cause":null,'
    b'"dead_letters":0,"wanted":{"request":"r1","least":[["newark","an id","all",4]]}}'
)
OF_THE_DIFFERENCE = REQUEST.replace(b",4]]}", b',4]],"difference":true}')


@pytest.mark.parametrize(
    ("data", "difference"), [(REQUEST, False), (OF_THE_DIFFERENCE, True)], ids=["all", "difference"]
)
def test_a_golden_request_is_read_and_written(data: bytes, difference: bool) -> None:
    """Fails when the field is written where it says nothing: a signature would be another."""
    ack = Ack("seattle", "s", "", 0, wanted=Wanted("r1", VECTOR, difference=difference))
    assert (ack.encode(), Ack.decode(data)) == (data, ack)


@pytest.mark.parametrize("difference", [False, True])
def test_a_copy_says_whether_it_is_of_the_difference(difference: bool) -> None:
    copied = _manifest(CopyOf("r1", VECTOR, difference=difference))
    content = json.loads(copied.encode().partition(b"\n")[2])
    assert content["copy"].keys() - {"difference"} == {"request", "vector"}
    assert content["copy"].get("difference", False) == difference
    assert ("difference" in content["copy"]) == difference
    assert Manifest.decode(copied.encode(), "here").copy == copied.copy
    assert "copy" not in json.loads(_manifest(None).encode().partition(b"\n")[2])


def _manifest(copy: CopyOf | None) -> Manifest:
    return manifest(1, kind=SNAPSHOT if copy is None else COPY, copy=copy)
