"""The clock of a table: stamps rise, and do not depend on how the history is read."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import pairwise

import pytest
from fakes import commit
from hypothesis import given, settings
from hypothesis import strategies as st
from ledgers import APPLIED, MARK

from spark_wan.delta.clock import stamps
from spark_wan.delta.commits import Commit
from spark_wan.wire.mark import LOCAL_ONLY
from spark_wan.wire.records import TableClock

randomly = settings(derandomize=True, deadline=None, max_examples=500, print_blob=True)

LOCAL = -1
"""In place of the clock in a receiver's mark: a commit of the site's own."""

table_logs = st.lists(
    st.tuples(st.integers(0, 60), st.sampled_from([LOCAL, LOCAL, None]) | st.integers(0, 90)),
    min_size=1,
    max_size=12,
)
"""Time of each commit's file, and the clock in its mark (None: a mark without one)."""


def user_metadata(clock: int | None) -> str | None:
    if clock == LOCAL:
        return None
    return replace(MARK, applied=(replace(APPLIED, clock=clock),)).user_metadata()


def shown(log: list[tuple[int, int | None]], first: int, end: int) -> list[Commit]:
    """Return the commits ``first`` to ``end - 1`` as Delta shows them when asked for those: times
    that are not behind the one before them are moved."""
    commits: list[Commit] = []
    for version in range(first, end):
        time, clock = log[version]
        time = max(time, commits[-1].time + 1) if commits else time
        commits.append(commit(version, time=time, user_metadata=user_metadata(clock)))
    return commits


@randomly
@given(table_logs)
def test_stamps_are_those_of_the_definition(log: list[tuple[int, int | None]]) -> None:
    """Of a commit of the site's own: its time, or 1 + the highest stamp before it. Of a receiver's
    commit: the clock in its mark."""
    commits = shown(log, 0, len(log))
    expected: dict[int, int] = {}
    for each in commits:
        before = [expected[version] for version in range(each.version)]
        clock = log[each.version][1]
        own = max([each.time, *(stamp + 1 for stamp in before)])
        expected[each.version] = own if clock in (LOCAL, None) else clock  # type: ignore[assignment]
    found = stamps(commits, None)
    assert found.by_version == expected
    assert found.clock == TableClock(max(expected.values()), commits[-1].time)


@randomly
@given(table_logs)
def test_each_own_commit_has_a_higher_stamp_than_all_before_it(
    log: list[tuple[int, int | None]],
) -> None:
    found = stamps(shown(log, 0, len(log)), None).by_version
    for version, (_, clock) in enumerate(log):
        if clock == LOCAL:
            assert all(found[before] < found[version] for before in range(version))


@randomly
@given(table_logs, st.data())
def test_stamps_do_not_depend_on_the_ranges_that_are_read(
    log: list[tuple[int, int | None]], data: st.DataObject
) -> None:
    """Fails when only the highest stamp is carried from range to range: after a receiver's commit,
    Delta shows other times in another range."""
    whole = stamps(shown(log, 0, len(log)), None)
    cuts = data.draw(st.sets(st.integers(1, len(log))))
    places = sorted({0, *cuts, len(log)})
    found: dict[int, int] = {}
    clock = None
    for first, end in pairwise(places):
        part = stamps(shown(log, first, end), clock)
        found |= part.by_version
        clock = part.clock
    assert (found, clock) == (whole.by_version, whole.clock)


def test_a_commit_of_several_streams_has_the_highest_of_their_stamps() -> None:
    parts = tuple(replace(APPLIED, clock=clock) for clock in (700, None, 900, 800))
    metadata = replace(MARK, applied=parts).user_metadata()
    assert stamps([commit(0, time=5, user_metadata=metadata)], None).by_version == {0: 900}


@pytest.mark.parametrize(
    "metadata",
    [
        LOCAL_ONLY,
        json.dumps({"spark_wan": {"local_only": True, "clock": 900}}),
        json.dumps({"spark_wan": {"site": "seattle", "version": 1, "origin": "newark"}}),
        json.dumps({"spark_wan": {"site": "seattle", "applied": [{"clock": "900"}]}}),
        json.dumps({"spark_wan": {"site": "seattle", "applied": [{"clock": True}, 5]}}),
    ],
)
def test_a_commit_without_a_receivers_clock_is_stamped_as_the_sites_own(metadata: str) -> None:
    """A mark of version 0.1.0 has no clock, nor has one of a user stream."""
    found = stamps([commit(3, time=5, user_metadata=metadata)], TableClock(7, 2))
    assert (found.by_version, found.clock) == ({3: 8}, TableClock(8, 5))


def test_no_commits_change_no_clock() -> None:
    assert stamps([], None).clock is None
    assert stamps([], TableClock(7, 2)) == stamps(iter(()), TableClock(7, 2))
    assert stamps([], TableClock(7, 2)).clock == TableClock(7, 2)
