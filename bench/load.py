"""``python -m bench.load``: latency over load, from 10 to 20,000 updated rows a second.

A sender and a receiver in one session, on one machine, as in :mod:`bench.steady`: a commit a second
for half a minute, of random keys of a million rows; with both cores free, and with one of them
taken by another process (``_busy``). Beside each load, a bare MERGE of one of its commits. Then a
burst: sixty commits of 1,000 rows at once, and one a second behind them. With ``throughput``, the
loads with 1,000 rows a second again, ``optimize`` being that. The figures go to
``bench/results/load.json``.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from bench.figures import measure
from bench.steady import Steady

HERE = Path(__file__).parent
SCRATCH = HERE / "scratch" / "load"
RESULTS = HERE / "results" / "load.json"

SECONDS = 30
MERGES = 3
LOADS = (10, 100, 1_000, 5_000, 20_000)
BURST, BEHIND = 60, 60
"""Commits that come at once, and those that follow, one a second."""


@contextmanager
def busy(is_busy: bool) -> Iterator[None]:
    """Take one core, or none."""
    if not is_busy:
        yield
        return
    other = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    try:
        yield
    finally:
        other.kill()
        other.wait()


def load(
    spark: Any, place: Path, keys: int, is_busy: bool = False, optimize: str = "latency"
) -> dict[str, Any]:
    """Return the figures of one load: seconds, and multiples of a bare MERGE of one commit."""
    one = Steady(spark, place, keys=keys, steady=range(SECONDS), alone=0, optimize=optimize)
    one.make()
    with busy(is_busy):
        merges = [one.merge() for _ in range(2 + MERGES)][2:]
        seconds = one.measure()["steady"]
        merges += [one.merge() for _ in range(MERGES)]
    merge = statistics.median(merges)
    p50, p95 = statistics.median(seconds), _p95(seconds)
    name = f"{keys}{'_busy' if is_busy else ''}{'' if optimize == 'latency' else f'_{optimize}'}"
    return {
        f"merge_s_{name}": round(merge, 2),
        f"p50_s_{name}": round(p50, 2),
        f"p95_s_{name}": round(p95, 2),
        f"p50_to_merge_{name}": round(p50 / merge, 2),
        f"p95_to_merge_{name}": round(p95 / merge, 2),
        f"applies_{name}": one.applies,
    }


def burst(spark: Any, place: Path, is_busy: bool = False) -> dict[str, Any]:
    """Return the latency of a burst, of what came before it, and of what comes half a minute behind
    it and later."""
    times = [*range(SECONDS), *[SECONDS] * BURST, *range(SECONDS, SECONDS + BEHIND)]
    one = Steady(spark, place, steady=times, alone=0)
    one.make()
    with busy(is_busy):
        seconds = one.measure()["steady"]
    before, behind = seconds[:SECONDS], seconds[-SECONDS:]
    name = "_busy" if is_busy else ""
    return {
        f"burst_before_p50_s{name}": round(statistics.median(before), 2),
        f"burst_before_p95_s{name}": round(_p95(before), 2),
        f"burst_s{name}": round(max(seconds[SECONDS : SECONDS + BURST]), 2),
        f"burst_behind_p50_s{name}": round(statistics.median(behind), 2),
        f"burst_behind_p95_s{name}": round(_p95(behind), 2),
    }


def _p95(seconds: Sequence[float]) -> float:
    return statistics.quantiles(seconds, n=20)[18]


FIGURES: Mapping[str, Callable[[Any, Path], dict[str, Any]]] = {
    **{str(keys): partial(load, keys=keys) for keys in LOADS},
    **{f"{keys}_busy": partial(load, keys=keys, is_busy=True) for keys in LOADS},
    "burst": burst,
    "burst_busy": partial(burst, is_busy=True),
    "throughput": partial(load, keys=1_000, optimize="throughput"),
    "throughput_busy": partial(load, keys=1_000, is_busy=True, optimize="throughput"),
}
"""Name -> function of a session and an empty folder, which returns figures by name."""


def main() -> None:
    measure("python -m bench.load", __doc__, FIGURES, SCRATCH, RESULTS)


if __name__ == "__main__":
    main()
