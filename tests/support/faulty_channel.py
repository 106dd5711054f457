"""A channel with scripted faults: lose, delay, duplicate, fail, vanish, truncate.

A script is a list of :class:`Fault`. Each strikes one call of one method. Without a script the
wrapper changes nothing.
"""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from spark_wan.channels.base import Channel
from spark_wan.errors import ChannelError

_WRITES = {"put_frame": 3, "append": 2, "put_note": 1}


def call_name(method: str, args: tuple[Any, ...]) -> str:
    """Return the name of a call in scripts. Those for notes say what they are about: ``put_ack``,
    ``delete_again``, ``ack``, ``notes_acks``."""
    if not method.endswith(("note", "notes")):
        return method
    about = args[0] if method.endswith("notes") else args[0].kind
    if method == "put_note":
        return f"put_{about}" if args[1] is not None else f"delete_{about}"
    return about if method == "note" else f"{method}_{about}"


@dataclass(frozen=True)
class Fault:
    """``kind`` strikes call number ``nth`` (from 1) of ``method`` (:func:`call_name`).

    lose      the call reports success and does nothing
    delay     what it wrote becomes visible only at the next call of :meth:`FaultyChannel.deliver`
    duplicate the call is made twice
    fail      the call raises ChannelError and does nothing
    vanish    the call takes effect and raises ChannelError all the same (an ambiguous time-out)
    truncate  only the first half of the bytes is written
    """

    method: str
    nth: int
    kind: Literal["lose", "delay", "duplicate", "fail", "vanish", "truncate"]


class FaultyChannel:
    """Wrapper of a channel. Calls that the script does not name go straight through."""

    def __init__(self, inner: Channel, script: list[Fault] | None = None) -> None:
        self.inner = inner
        self.url = inner.url
        self.script = list(script or [])
        self.calls: Counter[str] = Counter()
        self._late: list[Callable[[], Any]] = []

    def deliver(self) -> None:
        """Make the delayed calls."""
        late, self._late = self._late, []
        for call in late:
            call()

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or "inner" not in self.__dict__:
            raise AttributeError(name)
        target = getattr(self.inner, name)
        if not callable(target):
            return target

        def made(*args: Any, **named: Any) -> Any:
            of = call_name(name, args)
            self.calls[of] += 1
            call = of, self.calls[of]
            fault = next((f for f in self.script if (f.method, f.nth) == call), None)
            bound = functools.partial(target, **named)
            return bound(*args) if fault is None else self._strike(fault, bound, args)

        return made

    def _strike(self, fault: Fault, target: Callable[..., Any], args: tuple[Any, ...]) -> Any:
        lost = (
            f"frames/{args[0]}/{args[1]}-{args[2]:05d}.frame"
            if fault.method == "put_frame"
            else None
        )
        if fault.kind == "lose":
            return lost
        if fault.kind == "delay":
            self._late.append(lambda: target(*args))
            return lost
        if fault.kind == "fail":
            raise ChannelError(f"scripted: {fault.method} failed")
        if fault.kind == "truncate":
            where = _WRITES.get(fault.method, _WRITES["put_note"])
            data = args[where]
            return target(*args[:where], data[: len(data) // 2], *args[where + 1 :])
        target(*args)
        if fault.kind == "duplicate":
            return target(*args)
        raise ChannelError(f"scripted: no answer to {fault.method}, although it took effect")
