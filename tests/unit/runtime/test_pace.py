"""How often an activity is looked at."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from spark_wan.runtime import pace as module
from spark_wan.runtime.pace import Pace


def test_waits_grow_while_nothing_happens_and_begin_anew_when_something_does(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = [1_000.0]
    monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: now[0]))
    pace = Pace(0.5, 5.0, now[0])
    waits = []
    for second in (0, 1, 9, 20, 60, 100, 10_000):
        now[0] = 1_000.0 + second
        waits.append(pace.wait())
    assert waits == [0.5, 0.5, 0.5, 1.0, 3.0, 5.0, 5.0]
    pace.happened()
    assert pace.wait() == 0.5
