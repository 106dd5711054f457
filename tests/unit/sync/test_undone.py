"""Which versions of a table can be undone."""

from __future__ import annotations

import pytest

from spark_wan.delta.commits import Commit
from spark_wan.errors import OptionError, UndoError
from spark_wan.sync.undone import changes_rows, check_versions, parse_versions


def commit(version: int, operation: str = "WRITE", metadata: str | None = None) -> Commit:
    return Commit(version, 0, operation, {}, {}, metadata)


def test_versions_are_one_or_a_range() -> None:
    assert [parse_versions(text) for text in ("7", "3-5", " 3-5 ")] == [(7, 7), (3, 5), (3, 5)]


@pytest.mark.parametrize("text", ["", "a", "3-", "-3", "3..5", "3-5-7", "1" * 19])
def test_what_is_no_range_is_refused(text: str) -> None:
    with pytest.raises(OptionError, match="write A-B, or A for one version"):
        parse_versions(text)


def test_versions_that_are_there_may_be_undone() -> None:
    check_versions("orders", 3, 4, [commit(3), commit(4), commit(5)])


@pytest.mark.parametrize(
    ("first", "last", "versions", "match"),
    [
        (0, 1, (1, 2), "no table before version 0"),
        (3, 2, (2, 3), "not above the last"),
        (3, 4, (3,), "version 4 is not there, and the newest is 3"),
        (3, 3, (), "version 3 is not there"),
        (3, 4, (4, 5), "version 3 is not in the history any more.*oldest that is left is 4"),
    ],
)
def test_versions_that_are_not_there(
    first: int, last: int, versions: tuple[int, ...], match: str
) -> None:
    with pytest.raises(UndoError, match=match):
        check_versions("orders", first, last, [commit(version) for version in versions])


def test_a_commit_of_a_receiver_is_refused_only_in_the_range() -> None:
    mark = '{"spark_wan": {"version": 2, "site": "seattle", "applied": [{"origin": "newark"}]}}'
    commits = [commit(3), commit(4, "MERGE", mark)]
    check_versions("orders", 3, 3, commits)
    with pytest.raises(UndoError, match="version 4 was written by a receiver"):
        check_versions("orders", 3, 4, commits)


def test_versions_that_change_no_rows() -> None:
    commits = [commit(3), commit(4, "OPTIMIZE"), commit(5, "SET TBLPROPERTIES")]
    assert changes_rows(3, 5, commits)
    assert not changes_rows(4, 5, commits)
