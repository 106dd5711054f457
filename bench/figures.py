"""The files in ``bench/results``: figures by name, one file for each bench; and the command lines
of benches that measure some of their figures at a time.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from spark_wan.local import local_session


def record(results: Path, measured: dict[str, Any]) -> dict[str, Any]:
    """Writes what was measured over the figures of the same names; returns all of the file."""
    found: dict[str, Any] = json.loads(results.read_text()) if results.is_file() else {}
    found |= measured | {"python": platform.python_version(), "cpus": os.cpu_count()}
    results.parent.mkdir(parents=True, exist_ok=True)
    results.write_text(json.dumps(found, indent=2) + "\n")
    return found


def parser(
    program: str, description: str | None, figures: Mapping[str, Any], results: Path
) -> argparse.ArgumentParser:
    """Return the parser of a command line that names some of the ``figures``; none: all of them."""
    made = argparse.ArgumentParser(
        prog=program,
        description=description,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    made.add_argument("figures", nargs="*", help=f"default: all ({', '.join(figures)})")
    made.add_argument("--output", type=Path, default=results)
    return made


def chosen(
    made: argparse.ArgumentParser, figures: Mapping[str, Any]
) -> tuple[argparse.Namespace, list[str]]:
    """Return the options, and which figures are to be measured."""
    options = made.parse_args()
    if unknown := set(options.figures) - set(figures):
        made.error(f"unknown figures: {', '.join(sorted(unknown))}")
    return options, options.figures or list(figures)


def show(found: Mapping[str, Any]) -> None:
    print("\n" + "\n".join(f"{name:40} {value}" for name, value in found.items()))


def record_each(
    names: Sequence[str],
    scratch: Path,
    results: Path,
    run: Callable[[str, Path], dict[str, Any]],
) -> dict[str, Any]:
    """Record what ``run`` returns for each name and an empty folder below ``scratch``, which is
    removed then; returns all of the file."""
    found: dict[str, Any] = {}
    for name in names:
        place = scratch / name
        shutil.rmtree(place, ignore_errors=True)
        place.mkdir(parents=True)
        found = record(results, run(name, place))
        shutil.rmtree(place)
    return found


def measure(
    program: str,
    description: str | None,
    figures: Mapping[str, Callable[[Any, Path], dict[str, Any]]],
    scratch: Path,
    results: Path,
) -> None:
    """Run a bench whose ``figures`` are functions of a session and an empty folder below
    ``scratch``."""
    options, names = chosen(parser(program, description, figures, results), figures)
    shutil.rmtree(scratch, ignore_errors=True)
    spark = local_session("bench", **{"spark.master": "local[2]", "spark.driver.memory": "4g"})

    def run(name: str, place: Path) -> dict[str, Any]:
        return figures[name](spark, place)

    found = record_each(names, scratch, options.output, run)
    spark.stop()
    shutil.rmtree(scratch, ignore_errors=True)
    show(found)
