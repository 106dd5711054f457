"""``python -m bench.freshness``: how soon a change is visible at the target.

Each function of ``FIGURES`` measures some figures in the session that it is given. They go to
``bench/results/freshness.json``; those of functions that did not run stay as they are.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from bench.figures import measure
from bench.small_apply import small_apply, small_apply_without_vectors
from bench.steady import steady

HERE = Path(__file__).parent
SCRATCH = HERE / "scratch" / "freshness"
RESULTS = HERE / "results" / "freshness.json"

FIGURES: Mapping[str, Callable[[Any, Path], dict[str, Any]]] = {
    "steady": steady,
    "small_apply": small_apply,
    "small_apply_without_vectors": small_apply_without_vectors,
}
"""Name -> function of a session and an empty folder, which returns figures by name."""


def main() -> None:
    measure("python -m bench.freshness", __doc__, FIGURES, SCRATCH, RESULTS)


if __name__ == "__main__":
    main()
