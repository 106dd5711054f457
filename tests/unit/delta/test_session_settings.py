"""Settings that sessions inherit, without Spark."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from spark_wan.delta.sessions import SessionSettings, copied_session


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


def test_later_changes_of_settings_are_handed_on() -> None:
    user = session(app="bench", key="old", zone="UTC", memory="4g")
    settings = SessionSettings.of(user)
    own = settings.new_session(user)
    own.conf.set("ours", "1")
    user.conf.set("key", "new")
    user.conf.unset("zone")
    del user.conf.getAll["memory"]
    settings = settings.renewed(user, own)
    assert own.conf.getAll == {"app": "bench", "key": "new", "ours": "1"}
    user.conf.set("zone", "Asia/Tokyo")
    settings.renewed(user, own)
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
    settings.renewed(user, own)
    with copied_session(own) as copy:
        assert copy.conf.getAll == {"app": "bench", "key": "new"}
