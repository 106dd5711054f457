"""``python -m bench.kafka``: speed and freshness over Kafka.

Each function of ``FIGURES`` measures some figures. They go to ``bench/results/kafka.json``; those
of functions that did not run stay as they are. Kafka's jars are downloaded once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from bench.figures import chosen, parser, record_each, show
from bench.kafka.end_to_end import end_to_end
from bench.kafka.freshness import freshness
from bench.kafka.wide_area import wide_area

HERE = Path(__file__).parents[1]
SCRATCH = HERE / "scratch" / "kafka"
RESULTS = HERE / "results" / "kafka.json"

FIGURES: Mapping[str, Callable[[Path, int], dict[str, Any]]] = {
    "end_to_end": end_to_end,
    "freshness": freshness,
    "wide_area": wide_area,
}
"""Name -> function of an empty folder and a number of rounds, which returns figures by name."""


def main() -> None:
    made = parser("python -m bench.kafka", __doc__, FIGURES, RESULTS)
    made.add_argument("--rounds", type=int, default=5, help="measured rounds")
    options, names = chosen(made, FIGURES)

    def run(name: str, place: Path) -> dict[str, Any]:
        return FIGURES[name](place, options.rounds)

    show(record_each(names, SCRATCH, options.output, run))


if __name__ == "__main__":
    main()
