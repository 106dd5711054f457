"""Settings that sessions inherit, without Spark."""

from __future__ import annotations

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import pytest

from spark_wan.delta.sessions import SessionSettings, copied_session
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

    def newSession(self) -> Session:
        return Session(app="bench")

    def getTags(self) -> set[str]:
        return set()


def session(**values: str) -> Any:
    return Session(**values)


def test_settings_are_inherited_except_those_of_the_application() -> None:
    """A builder puts settings of the application into an existing session."""
    user = session(app="bench", memory="4g", key="old")
    settings = SessionSettings.of(user)
    assert settings.new_session(user).conf.getAll == {"app": "bench", "key": "old"}


def test_what_no_session_takes_is_tried_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each attempt costs an exception in the JVM. Another value is tried."""
    tried, take = list[str](), Conf.set

    def counted(conf: Conf, name: str, value: str) -> None:
        tried.append(value)
        take(conf, name, value)

    monkeypatch.setattr(Conf, "set", counted)
    monkeypatch.setattr("spark_wan.delta.sessions._refused", set())
    for memory in ("1g", "1g", "2g"):
        user = session(app="bench", memory=memory)
        assert SessionSettings.of(user).new_session(user).conf.getAll == {"app": "bench"}
    assert tried == ["1g", "2g"]


def test_later_changes_of_settings_are_handed_on() -> None:
    user = session(app="bench", key="old", zone="UTC", memory="4g")
    settings = SessionSettings.of(user)
    own = settings.new_session(user)
    own.conf.set("ours", "1")
    user.conf.set("key", "new")
    user.conf.unset("zone")
    del user.conf.getAll["memory"]
    settings = settings.renewed(settings.current(user), own)
    assert own.conf.getAll == {"app": "bench", "key": "new", "ours": "1"}
    user.conf.set("zone", "Asia/Tokyo")
    settings.renewed(settings.current(user), own)
    assert own.conf.getAll == {"app": "bench", "key": "new", "ours": "1", "zone": "Asia/Tokyo"}


def test_a_copy_of_a_threads_session_has_the_users_newest_settings() -> None:
    """Fails when copies have the settings of the start: a write would use a token that was renewed
    hours ago. What is set in the thread's session alone does not reach them."""
    user = session(app="bench", key="old")
    settings = SessionSettings.of(user)
    own = settings.new_session(user)
    own.conf.set("ours", "1")
    with copied_session(own) as copy:
        assert copy.conf.getAll == {"app": "bench", "key": "old"}
    user.conf.set("key", "new")
    settings.renewed(settings.current(user), own)
    with copied_session(own) as copy:
        assert copy.conf.getAll == {"app": "bench", "key": "new"}


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
