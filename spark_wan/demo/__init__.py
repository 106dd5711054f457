"""``spark-wan demo``: two sites on this machine, a year of real flights, and a crash on the way.

1. ``spark-wan send`` at newark and ``spark-wan receive`` at seattle are started, as processes of their own.
2. ``deltalake`` writes newark's tables meanwhile: scheduled flights, their actual times, cancellations.
3. The receiver is killed (kill -9) when it has committed to seattle's flights and not yet acked, and started again.
4. When everything is acked, ``deltalake`` compares every table of both sites.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from spark_wan.errors import WanError
from spark_wan.units import format_bytes

if TYPE_CHECKING:
    from rich.console import Console

    from spark_wan.demo.run import Summary

MARKER = ".spark_wan_demo"
TOPOLOGY = """\
# Made by `spark-wan demo`: newark writes, seattle gets all of it.
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
    """Run the demo, print what it has shown, and return whether all tables are equal. ``days``: of the year's 365.

    Raises:
        WanError: the directory is not a demo's, something that the demo needs is missing, or a job ended.
    """
    try:
        from rich.console import Console

        from spark_wan.demo.flights import KEYS
        from spark_wan.demo.run import Demo
    except ModuleNotFoundError as error:
        raise WanError(
            f"the demo needs {error.name}: pip install 'spark_wan[spark,demo]'"
        ) from None
    make_directory(directory, KEYS)
    console = Console(highlight=False)
    demo = Demo(directory, days, None if as_json else console)
    try:
        summary = demo.run()
    finally:
        demo.close()
    if as_json:
        print(json.dumps(asdict(summary)))
    else:
        _print(console, summary)
    return summary.equal


def make_directory(directory: Path, keys: Mapping[str, tuple[str, ...]]) -> None:
    """Make the demo's directory anew, with its topology. Raises WanError for one that no demo made."""
    if directory.exists() and not directory.is_dir():
        raise WanError(f"{directory} is a file. Give a directory: --directory")
    if directory.exists() and not (directory / MARKER).is_file() and any(directory.iterdir()):
        raise WanError(
            f"{directory} is not empty and was not made by the demo. Give another one: --directory"
        )
    if directory.exists():
        shutil.rmtree(directory)
    for name in ("newark", "seattle", "channel", "logs"):
        (directory / name).mkdir(parents=True)
    (directory / MARKER).write_text("The next `spark-wan demo` removes this directory.\n")
    tables = "".join(
        TABLE.format(name=name, keys=", ".join(columns)) for name, columns in keys.items()
    )
    (directory / "topology.yaml").write_text(TOPOLOGY.format(tables=tables))


def _print(console: Console, summary: Summary) -> None:
    here = summary.directory
    console.print()
    if summary.equal:
        console.print(
            "[bold green]Equal.[/] deltalake has read every table at both sites and compared all rows and columns:"
        )
    else:
        console.print(
            "[bold red]NOT equal.[/] deltalake has read every table at both sites and compared all rows and columns:"
        )
    for table in summary.tables:
        mark = "[red]differs[/]" if table.difference else "[green]equal[/]"
        console.print(
            f"  {table.table:<10} {table.rows:>9,} rows  {table.columns:>2} columns  {mark}"
        )
        if table.difference:
            console.print(f"      {table.difference}", style="red", markup=False)
    size = f"{format_bytes(summary.channel_bytes)}, {summary.channel_bytes / max(1, summary.events):.1f} bytes an event"
    rows = {
        "events": f"{summary.events:,} in {summary.batches:,} batches and {summary.epochs:,} epochs",
        "channel": size,
        "redelivered": f"{summary.redelivered:,} events that had no ack when the receiver was killed",
        "duplicates": f"{summary.duplicates_discarded:,} of them discarded: seattle's tables had them already",
        "time": f"{summary.seconds:.1f} s from first commit to last ack, {summary.total_seconds:.1f} s in all",
        "speed": f"{summary.events_per_second:,} events a second, newark's pauses and seattle's restart included",
    }
    console.print()
    for name, text in rows.items():
        console.print(f"  [bold]{name:<12}[/] {text}", soft_wrap=True)
    console.print("\nWhere to look next")
    looks = {
        f"spark-wan status --config {here}/topology.yaml": "how far every stream is at every site",
        f"spark-wan validate --config {here}/topology.yaml": "what goes where",
        f"{here}/newark, {here}/seattle": "the sites' tables, and in _wan their ledgers and checkpoints",
        f"{here}/channel": "the gateway queue: its log and acks; frames go when all have acked",
        f"{here}/logs": "what the sender and both receivers logged",
    }
    width = max(map(len, looks))
    for place, what in looks.items():
        console.print(f"  {place:<{width}}  [dim]{what}[/]", soft_wrap=True)
