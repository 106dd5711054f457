"""``spark-wan demo``: sites on this machine, a year of real flights, and a receiver crash.

1. Start ``spark-wan send`` at newark and ``spark-wan receive`` at seattle as separate processes.
2. Meanwhile ``deltalake`` writes newark's tables: scheduled flights, actual times, cancellations.
3. Kill the receiver (``kill -9``) after it has committed to seattle's flights and before it acks;
   then start it again.
4. Once every epoch is acked, compare every table of both sites with ``deltalake``.

With ``--sites 4``, newark sends to chicago, which sends on to denver and seattle. Chicago is killed
twice while it forwards: between the frames and the manifest of an epoch, and right after the
manifest of another.

With ``--join``, newark sends to seattle, and while it writes, portland joins. Later seattle loses
its flights. Both get a copy, and all tables are equal in the end.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from contextlib import closing
from dataclasses import asdict
from pathlib import Path

from spark_wan.errors import WanError, install_command
from spark_wan.version import OUTPUT_VERSION

MARKER = ".spark_wan_demo"
SITES = {
    2: ("newark", "seattle"),
    3: ("newark", "seattle", "portland"),
    4: ("newark", "chicago", "denver", "seattle"),
}
"""By their number. The third one joins the two."""
SENDERS = {
    2: """\
  east: {site: newark, remotes: [seattle], channel: ./channel, max_epoch_rows: 50000}
""",
    3: """\
  east: {site: newark, remotes: [seattle, portland], channel: ./channel, max_epoch_rows: 50000}
""",
    4: """\
  east: {site: newark, remotes: [chicago], channel: ./channels/east, max_epoch_rows: 50000}
  west: {site: chicago, remotes: [denver, seattle], channel: ./channels/west}
""",
}
TOPOLOGY = """\
# Made by `spark-wan demo`: newark writes every table, and the other sites receive it.
version: 1
sites:
{sites}senders:
{senders}tables:
{tables}"""
TABLE = """\
  {name}:
    keys: [{keys}]
    writers: [newark]
    senders: [{senders}]
    at: {{{at}}}
    start: {{version: 0}}
"""
DAYS = {2: 365, 3: 60, 4: 60}
"""How many days of the year, by default, by the number of sites in the end."""


def run_demo(
    directory: Path, sites: int = 2, days: int | None = None, as_json: bool = False
) -> bool:
    """Run the demo with two or four sites, or with two that a third one joins, on the first
    ``days`` of 365 (default: :data:`DAYS`), print the result, return whether tables are equal.

    Raises:
        WanError: the directory was not made by the demo, a package is missing, or a job failed.
    """
    try:
        from rich.console import Console

        from spark_wan.demo.display import Display
        from spark_wan.demo.flights import KEYS
        from spark_wan.demo.four_sites import FourSites
        from spark_wan.demo.joining import Joining
        from spark_wan.demo.two_sites import TwoSites
    except ModuleNotFoundError as error:
        raise WanError(f"the demo needs {error.name}: {install_command('spark', 'demo')}") from None
    make_directory(directory, KEYS, 2 if sites == 3 else sites)
    console = Console(highlight=False, quiet=as_json)
    kinds: dict[int, type[TwoSites | Joining | FourSites]] = {
        2: TwoSites,
        3: Joining,
        4: FourSites,
    }
    kind = kinds[sites]
    with (
        closing(Display(console)) as display,
        closing(kind(directory, days or DAYS[sites], display)) as demo,
    ):
        summary = demo.run()
    if as_json:
        print(json.dumps({"v": OUTPUT_VERSION, **asdict(summary)}))
    else:
        display.print_summary(summary)
    return summary.equal


def make_directory(directory: Path, keys: Mapping[str, tuple[str, ...]], sites: int = 2) -> None:
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
    for name in (*SITES[sites], "logs"):
        (directory / name).mkdir(parents=True)
    (directory / MARKER).write_text("The next `spark-wan demo` removes this directory.\n")
    write_topology(directory, keys, sites)


def write_topology(directory: Path, keys: Mapping[str, tuple[str, ...]], sites: int) -> None:
    """Write the topology file of so many sites."""
    tables = "".join(
        TABLE.format(
            name=name,
            keys=", ".join(columns),
            senders="east, west" if sites == 4 else "east",
            at=", ".join(f"{site}: ./{site}/{name}" for site in SITES[sites]),
        )
        for name, columns in keys.items()
    )
    states = "".join(f"  {site}: {{state: ./{site}/_wan}}\n" for site in SITES[sites])
    (directory / "topology.yaml").write_text(
        TOPOLOGY.format(sites=states, senders=SENDERS[sites], tables=tables)
    )
