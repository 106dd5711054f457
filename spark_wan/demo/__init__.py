"""``spark-wan demo``: two sites on this machine, a year of real flights, and a receiver crash.

1. Start ``spark-wan send`` at newark and ``spark-wan receive`` at seattle as separate processes.
2. Meanwhile ``deltalake`` writes newark's tables: scheduled flights, actual times, cancellations.
3. Kill the receiver (``kill -9``) after it has committed to seattle's flights and before it acks;
   then start it again.
4. Once every epoch is acked, compare every table of both sites with ``deltalake``.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from contextlib import closing
from dataclasses import asdict
from pathlib import Path

from spark_wan.errors import WanError

MARKER = ".spark_wan_demo"
TOPOLOGY = """\
# Made by `spark-wan demo`: newark writes, seattle receives every table.
version: 1
sites:
  newark: {{state: ./newark/_wan}}
  seattle: {{state: ./seattle/_wan}}
senders:
  east: {{site: newark, remotes: [seattle], channel: ./channel, max_epoch_rows: 50000}}
tables:
{tables}"""
TABLE = """\
  {name}:
    keys: [{keys}]
    writers: [newark]
    senders: [east]
    at: {{newark: ./newark/{name}, seattle: ./seattle/{name}}}
    start: {{version: 0}}
"""


def run_demo(directory: Path, days: int = 365, as_json: bool = False) -> bool:
    """Run the demo on the first ``days`` of 365, print the result, return whether tables are equal.

    Raises:
        WanError: the directory was not made by the demo, a package is missing, or a job failed.
    """
    try:
        from rich.console import Console

        from spark_wan.demo.display import Display
        from spark_wan.demo.flights import KEYS
        from spark_wan.demo.run import Demo
    except ModuleNotFoundError as error:
        raise WanError(
            f"the demo needs {error.name}: pip install 'spark_wan[spark,demo]'"
        ) from None
    make_directory(directory, KEYS)
    console = Console(highlight=False, quiet=as_json)
    with closing(Display(console)) as display, closing(Demo(directory, days, display)) as demo:
        summary = demo.run()
    if as_json:
        print(json.dumps(asdict(summary)))
    else:
        display.print_summary(summary)
    return summary.equal


def make_directory(directory: Path, keys: Mapping[str, tuple[str, ...]]) -> None:
    """Create the demo's directory and topology file; replace those of an earlier run.

    Raises WanError for a directory that the demo did not make.
    """
    if directory.exists():
        if not directory.is_dir():
            raise WanError(f"{directory} is a file. Give a directory: --directory")
        if not (directory / MARKER).is_file() and any(directory.iterdir()):
            raise WanError(
                f"{directory} is not empty and was not made by the demo. "
                "Give another one: --directory"
            )
        shutil.rmtree(directory)
    for name in ("newark", "seattle", "channel", "logs"):
        (directory / name).mkdir(parents=True)
    (directory / MARKER).write_text("The next `spark-wan demo` removes this directory.\n")
    tables = "".join(
        TABLE.format(name=name, keys=", ".join(columns)) for name, columns in keys.items()
    )
    (directory / "topology.yaml").write_text(TOPOLOGY.format(tables=tables))
