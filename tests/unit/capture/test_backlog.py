"""A sender that lags reads each commit of the history once."""

from __future__ import annotations

import random
from typing import Any

import pytest
from capturing import delta_source
from fakes import commit

from spark_wan.capture.backlog import Backlog
from spark_wan.delta.commits import Commit
from spark_wan.delta.tables import history


class Table:
    """A table's history, which counts the commits that are read."""

    def __init__(self, commits: int) -> None:
        self.commits = [commit(version) for version in range(commits)]
        self.collected = 0

    def add(self, operation: str = "WRITE", **more: Any) -> None:
        self.commits.append(commit(self.commits[-1].version + 1, operation, **more))

    def read(self, after: int) -> list[Commit]:
        """As :func:`spark_wan.delta.tables.history` does, from the end back."""
        commits = [each for each in self.commits if each.version > after]
        self.collected += len(commits)
        return commits


def versions(commits: list[Commit]) -> list[int]:
    return [each.version for each in commits]


@pytest.mark.parametrize("step", [1, 7])
def test_a_backlog_of_n_epochs_reads_each_commit_once(step: int) -> None:
    """Each round checks the last published commit, then reads on, while the table grows.

    Fails when each round reads the history to its end: 250 000 commits.
    """
    table = Table(500)
    backlog, published, rounds = Backlog(table.read), 0, 0
    while published < table.commits[-1].version - step:
        table.add()
        found = backlog.above(published - 1)
        assert versions(found) == list(range(max(published, 0), len(table.commits)))
        published += step + 1
        rounds += 1
    assert table.collected <= len(table.commits) + 2 * rounds


def test_a_backlog_beyond_the_maximum_is_read_again_when_it_is_used_up() -> None:
    table = Table(100)
    backlog, published = Backlog(table.read, most=40), 0
    for _ in range(99):
        found = backlog.above(published)
        assert found[0].version == published + 1 and len(found) <= 40
        published += 1
    assert backlog.above(published) == []
    assert table.collected <= 100 + 60 + 20 + 2 * 100


def test_a_rename_is_returned_with_all_that_follows() -> None:
    """A later commit may undo it. Fails when the maximum cuts between the two."""
    table = Table(5)
    table.add("RENAME COLUMN")
    for _ in range(100):
        table.add()
    assert versions(Backlog(table.read, most=10).above(0)) == list(range(1, 106))
    assert versions(Backlog(table.read, most=4).above(0)) == list(range(1, 5))


def test_f07_a_table_that_was_restored_is_read_again() -> None:
    """To before the newest commit that was read, and written to again.

    Fails when what was kept is used without a look at the table's end.
    """
    table = Table(10)
    backlog = Backlog(table.read)
    backlog.above(3)
    del table.commits[6:]
    assert backlog.above(3) == table.commits[4:]
    backlog.above(3)
    del table.commits[5:]
    for _ in range(10):
        table.add("MERGE")
    assert backlog.above(3) == table.commits[4:]


def test_log_cleanup_in_between_is_not_hidden_for_good() -> None:
    """An error, as of a change feed that cannot be read, makes the sender forget the backlog."""
    table = Table(10)
    backlog = Backlog(table.read)
    assert versions(backlog.above(3)) == list(range(4, 10))
    del table.commits[:6]
    backlog.forget()
    assert versions(backlog.above(3)) == [6, 7, 8, 9]


@pytest.mark.parametrize("seed", range(50))
def test_what_is_kept_is_what_the_table_has(seed: int) -> None:
    """Any order of commits, restores, publishing and restarts; small maximum."""
    rng = random.Random(seed)
    table, backlog, after = Table(3), Backlog(lambda after: table.read(after), most=6), 0
    for step in range(100):
        action = rng.choice(["add", "add", "add", "restore", "publish", "read", "restart"])
        if action == "add":
            for _ in range(rng.randint(1, 5)):
                table.add(rng.choice(["WRITE", "MERGE"]), user_metadata=f"{seed} {step}")
        elif action == "restore" and len(table.commits) > after + 1:
            del table.commits[rng.randint(after + 1, len(table.commits)) :]
        elif action == "restart":
            backlog.forget()
        found = backlog.above(after)
        wanted = [each for each in table.commits if each.version > after]
        assert found == wanted[: len(found)] and len(found) >= min(1, len(wanted))
        if action == "publish" and found:
            after = rng.choice(found).version


class Session:
    """A session whose table has commits 0 to ``newest``."""

    def __init__(self, newest: int) -> None:
        self.newest, self.limits = newest, list[int]()

    def sql(self, statement: str) -> Any:
        self.limits.append(int(statement.rpartition(" ")[2]))
        self.newest += 1  # a commit is made between any two looks
        return self

    def collect(self) -> list[Any]:
        from datetime import UTC, datetime

        names = ("operationParameters", "operationMetrics", "userMetadata", "readVersion")
        when = datetime(2026, 1, 1, tzinfo=UTC)
        last = range(self.newest, max(-1, self.newest - self.limits[-1]), -1)
        return [
            dict.fromkeys(names) | {"version": version, "timestamp": when, "operation": "WRITE"}
            for version in last
        ]


@pytest.mark.parametrize(("after", "limits"), [(995, [8]), (300, [8, 709]), (-1, [8, 1010])])
def test_the_history_is_asked_for_as_many_commits_as_are_needed(
    after: int, limits: list[int]
) -> None:
    """Fails when the limit grows by a factor: it collects up to eight times as many."""
    session: Any = Session(1_000)
    commits = history(session, "/lake/orders", after, limit=8)
    assert versions(commits) == list(range(after + 1, session.newest + 1))
    assert session.limits == limits


def test_a_source_asks_for_each_commit_once() -> None:
    """A sender that lags: each round looks at the last published commit and at the next ones.

    Fails when each round asks for the history from there to its end: 6 000 commits.
    """
    session: Any = Session(300)
    source, rounds = delta_source(session), 20
    for published in range(rounds):
        last = source.commit(published)
        assert last is not None and last.version == published
        found = versions(source.history(published))
        assert found == list(range(published + 1, session.newest + 1))
    assert sum(session.limits) <= 300 + 16 + 8 * rounds
