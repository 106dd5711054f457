"""Settings that sessions inherit, without Spark."""

from __future__ import annotations

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import pytest

from spark_wan.delta.sessions import SessionSettings, copied_session, interrupt, job_session
from spark_wan.delta.settings import FIXED, is_taken_over
from spark_wan.runtime.sessions import RENEW_INTERVAL, _Renewed, _UserSettings


class Conf:
    """A session's settings; those of the application cannot be set."""

    def __init__(self, **values: str) -> None:
        self.getAll = values

    def set(self, name: str, value: str) -> None:
        if name == "memory":
            raise ValueError("CANNOT_MODIFY_CONFIG")
        self.getAll[name] = value

    def unset(self, name: str) -> None:
        if name == "memory":
            raise ValueError("CANNOT_MODIFY_CONFIG")
        del self.getAll[name]


IGNORE = "spark.sql.files.ignoreMissingFiles"
TASKS = "spark.sql.shuffle.partitions"


class Session:
    """A classic session."""

    catalog = SimpleNamespace(
        currentCatalog=lambda: "lake",
        setCurrentCatalog=lambda name: None,
        currentDatabase=lambda: "sales",
        setCurrentDatabase=lambda name: None,
    )

    def __init__(self, **values: str) -> None:
        self.conf = Conf(**values)
        self.tags = set[str]()
        self.interrupted = list[str]()

    def newSession(self) -> Session:
        """With what the application has."""
        return Session(app="bench", **{IGNORE: "true"})

    def getTags(self) -> set[str]:
        return self.tags

    def addTag(self, tag: str) -> None:
        self.tags.add(tag)

    def interruptTag(self, tag: str) -> None:
        self.interrupted.append(tag)


class RemoteSession(Session):
    """A session over Connect."""

    __module__ = "pyspark.sql.connect.session"

    def __init__(self, **values: str) -> None:
        super().__init__(**values)
        self.ended = list[str]()
        self.client = SimpleNamespace(
            release_session=lambda: self.ended.append("released"),
            close=lambda: self.ended.append("closed"),
        )

    def cloneSession(self) -> RemoteSession:
        return RemoteSession(**self.conf.getAll)

    def interruptTag(self, tag: str) -> None:
        assert not self.ended
        super().interruptTag(tag)


def session(**values: str) -> Any:
    return Session(**values)


def test_settings_that_decide_no_rows_are_taken_over() -> None:
    """A builder puts settings of the application into an existing session. Fails when a new session
    has what the application, or its user, has set for all queries of Spark SQL."""
    given = {"spark.sql.caseSensitive": "true", TASKS: "7", "spark.sql.ansi.enabled": "false"}
    user = session(app="bench", memory="4g", key="old", **given)
    settings = SessionSettings.of(user)
    expected = {"app": "bench", "key": "old", TASKS: "7", **FIXED}
    assert settings.new_session(user).conf.getAll == expected


def test_a_session_over_connect_is_a_clone_without_what_decides_rows() -> None:
    """The user's own session keeps its settings. An interrupt reaches copies; each is released."""
    given = {"key": "old", IGNORE: "true", TASKS: "7"}
    user: Any = RemoteSession(**given)
    with job_session(user) as own:
        own.addTag("sender")
        assert own.conf.getAll == {"key": "old", TASKS: "7", **FIXED}
        with copied_session(own) as copy:
            copy.conf.set("ours", "1")
            interrupt(own, "sender")
        interrupt(own, "sender")
        assert (own.interrupted, copy.interrupted) == (["sender", "sender"], ["sender"])
        assert (own.ended, copy.ended) == ([], ["released", "closed"])
        assert "ours" not in own.conf.getAll
    assert own.ended == ["released", "closed"]
    assert user.conf.getAll == given


def test_what_places_and_paces_queries_is_taken_over() -> None:
    for name in (
        "spark.hadoop.fs.s3a.access.key",
        "fs.s3a.endpoint",
        "spark.sql.catalog.lake.uri",
        "spark.sql.artifact.isolation.enabled",
        "spark.sql.adaptive.coalescePartitions.enabled",
        "spark.databricks.delta.snapshotPartitions",
        "spark.sql.parquet.datetimeRebaseModeInRead",
    ):
        assert is_taken_over(name), name
    for name in (
        IGNORE,
        "spark.sql.parquet.datetimeRebaseModeInWrite",
        "spark.sql.session.timeZone",
        "spark.sql.legacy.anything",
        "spark.databricks.delta.write.txnAppId",
        "spark.databricks.delta.properties.defaults.appendOnly",
        "spark.databricks.delta.schema.autoMerge.enabled",
    ):
        assert not is_taken_over(name), name


def test_what_no_session_takes_is_tried_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each attempt costs an exception in the JVM. Another value is tried."""
    tried, take = list[str](), Conf.set

    def counted(conf: Conf, name: str, value: str) -> None:
        if name == "memory":
            tried.append(value)
        take(conf, name, value)

    monkeypatch.setattr(Conf, "set", counted)
    monkeypatch.setattr("spark_wan.delta.sessions._refused", set())
    for memory in ("1g", "1g", "2g"):
        user = session(app="bench", memory=memory)
        own = SessionSettings.of(user).new_session(user)
        assert own.conf.getAll == {"app": "bench", **FIXED}
    assert tried == ["1g", "2g"]


def test_later_changes_of_settings_are_handed_on() -> None:
    """But for those that decide which rows there are."""
    user = session(app="bench", key="old", host="a", memory="4g")
    settings = SessionSettings.of(user)
    own = settings.new_session(user)
    own.conf.set("ours", "1")
    user.conf.set("key", "new")
    user.conf.unset("host")
    del user.conf.getAll["memory"]
    user.conf.set("spark.sql.caseSensitive", "true")
    settings = settings.renewed(settings.current(user), own)
    assert own.conf.getAll == {"app": "bench", "key": "new", "ours": "1", **FIXED}
    user.conf.set("host", "b")
    settings.renewed(settings.current(user), own)
    assert own.conf.getAll == {"app": "bench", "key": "new", "ours": "1", "host": "b", **FIXED}


def test_a_copy_of_a_threads_session_has_the_users_newest_settings() -> None:
    """Fails when copies have the settings of the start: a write would use a token that was renewed
    hours ago. What is set in the thread's session alone does not reach them."""
    user = session(app="bench", key="old")
    settings = SessionSettings.of(user)
    own = settings.new_session(user)
    own.conf.set("ours", "1")
    with copied_session(own) as copy:
        assert copy.conf.getAll == {"app": "bench", "key": "old", **FIXED}
    user.conf.set("key", "new")
    settings.renewed(settings.current(user), own)
    with copied_session(own) as copy:
        assert copy.conf.getAll == {"app": "bench", "key": "new", **FIXED}


def test_threads_ask_for_the_users_settings_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each question is a hundred calls into the JVM. Fails when each thread asks by itself, and
    when none asks again."""
    now, asked, current = 100.0, list[Any](), SessionSettings.current

    def counted(settings: SessionSettings, spark: Any) -> Mapping[str, str]:
        asked.append(spark)
        return current(settings, spark)

    monkeypatch.setattr(SessionSettings, "current", counted)
    monkeypatch.setattr("spark_wan.runtime.sessions.time.monotonic", lambda: now)
    user = session(app="bench", key="old")
    shared = _UserSettings(user)
    threads = [_Renewed(shared.at_start.new_session(user), shared) for _ in range(2)]
    user.conf.set("key", "new")
    assert [thread().conf.getAll["key"] for thread in threads] == ["old", "old"]
    assert asked == []
    now += RENEW_INTERVAL
    assert [thread().conf.getAll["key"] for thread in threads] == ["new", "new"]
    assert asked == [user]
