"""``python -m bench.freshness``: how soon a change is visible at the target.

Each function of ``FIGURES`` measures some figures in the session that it is given. They go to
``bench/results/freshness.json``; those of functions that did not run stay as they are.
"""

from __future__ import annotations

import argparse
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from bench.figures import record
from bench.small_apply import small_apply, small_apply_without_vectors
from bench.steady import steady
from spark_wan.local import local_session

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
    parser = argparse.ArgumentParser(
        prog="python -m bench.freshness",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("figures", nargs="*", help=f"default: all ({', '.join(FIGURES)})")
    parser.add_argument("--output", type=Path, default=RESULTS)
    options = parser.parse_args()
    if unknown := set(options.figures) - set(FIGURES):
        parser.error(f"unknown figures: {', '.join(sorted(unknown))}")
    shutil.rmtree(SCRATCH, ignore_errors=True)
    spark = local_session("bench", **{"spark.master": "local[2]", "spark.driver.memory": "4g"})
    for name in options.figures or FIGURES:
        place = SCRATCH / name
        place.mkdir(parents=True)
        found = record(options.output, FIGURES[name](spark, place))
    spark.stop()
    shutil.rmtree(SCRATCH, ignore_errors=True)
    print("\n" + "\n".join(f"{name:40} {value}" for name, value in found.items()))


if __name__ == "__main__":
    main()
