"""Signs of life of jobs, in golden bytes."""

from __future__ import annotations

import pytest

from spark_wan.wire.sign_of_life import SignOfLife

SIGN_V2 = (
    b'{"version":2,"job":"0f6e1a","host":"lake-3","process":4711,"began":1700000000000,'
    b'"every":15000,"at":1700000015000,"stopped":false}'
)
SIGN = SignOfLife("0f6e1a", "lake-3", 4711, 1_700_000_000_000, 15_000, 1_700_000_015_000)


def test_a_golden_sign_of_life_is_read_and_written() -> None:
    assert (SIGN.encode(), SignOfLife.of(SIGN_V2)) == (SIGN_V2, SIGN)
    assert SignOfLife.of(SIGN_V2.replace(b'"job"', b'"more":[1],"job"')) == SIGN
    stopped = SignOfLife.of(SIGN_V2.replace(b"false", b"true"))
    assert stopped is not None and stopped.stopped


@pytest.mark.parametrize(
    "data",
    [b"", b"{", b"[]", b"null", b"{}", b"[" * 100_000, SIGN_V2[:-1]]
    + [SIGN_V2.replace(b'"every":15000', wrong) for wrong in (b'"every":-1', b'"every":"15"')]
    + [SIGN_V2.replace(b"1700000015000", b"-1"), SIGN_V2.replace(b"1700000015000", b"9" * 18)],
)
def test_an_unreadable_sign_of_life_is_none(data: bytes) -> None:
    assert SignOfLife.of(data) is None


@pytest.mark.parametrize("changed", [b'"version":3', b'"version":2,"requires":["until"]'])
def test_f51_a_sign_of_life_of_a_newer_spark_wan_is_not_read(changed: bytes) -> None:
    """Fails when a job says that it was stopped by what an older one does not know."""
    assert SignOfLife.of(SIGN_V2.replace(b'"version":2', changed)) is None
