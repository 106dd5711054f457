"""A channel with scripted faults: lose, delay, duplicate, fail, vanish, truncate.

A script is a list of :class:`Fault`. Each strikes one call of one method. Without a script the
wrapper changes nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from spark_wan.channels.base import Channel
from spark_wan.errors import ChannelError

_WRITES = {"put_frame": 3, "append": 2, "put_ack": 2}


@dataclass(frozen=True)
class Fault:
    """``kind`` strikes call number ``nth`` (from 1) of ``method``.

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

        def call(*args: Any) -> Any:
            self.calls[name] += 1
            fault = next(
                (f for f in self.script if (f.method, f.nth) == (name, self.calls[name])), None
            )
            return target(*args) if fault is None else self._strike(fault, target, args)

        return call

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
            where = _WRITES[fault.method]
            data = args[where]
            return target(*args[:where], data[: len(data) // 2], *args[where + 1 :])
        target(*args)
        if fault.kind == "duplicate":
            return target(*args)
        raise ChannelError(f"scripted: no answer to {fault.method}, although it took effect")
