"""``spark-wan``: the command line.

    spark-wan demo                                      run two or four sites here, with crashes
    spark-wan validate --config topology.yaml           check the topology, show what goes where
    spark-wan preflight --config topology.yaml --site A check links before they start
    spark-wan topology --config topology.yaml           draw the topology, as text or as SVG
    spark-wan send     --config topology.yaml --site A  run the senders of a site
    spark-wan receive  --config topology.yaml --site B  run the receiver of a site
    spark-wan status   --config topology.yaml           show how far behind each site is; no Spark
    spark-wan check    --config topology.yaml           say what is wrong, for probes; no Spark
    spark-wan remove   --config topology.yaml STREAM    remove a stream that is no longer written
    spark-wan pause    --config topology.yaml --site A  have no site take what a site sends
    spark-wan resume   --config topology.yaml --site A  have them go on
    spark-wan drain    --config topology.yaml --site A  send what is committed, then nothing more
    spark-wan stop     --config topology.yaml --site A --at VERSION|TIME
                                                        end with a version or a time
    spark-wan decide   --config topology.yaml --site A T@12=skip
                                                        answer what holds a stream
    spark-wan decisions --config topology.yaml --site A list what was decided
    spark-wan dead-letters list --config topology.yaml --site B
                                                        what a site could not apply or send; also
                                                        show, replay, discard
    spark-wan sync     --config topology.yaml --table T --site B
                                                        give a site a copy of a table
    spark-wan verify   --config topology.yaml --table T
                                                        compare a table with its copies
    spark-wan undo     --config topology.yaml --table T --versions A-B
                                                        take back what versions of a table did
    spark-wan backup   --config topology.yaml --table T --site A --to PLACE
                                                        back up a table while writes go on
    spark-wan adopt    --config topology.yaml --table T --site B --from PLACE
                                                        give a site the rows of a backup

Every command takes ``--output json``. Exit codes: 0 done, or stopped by SIGINT or SIGTERM; 1 an
error; 2 wrong usage; ``status`` also 3 and 4; ``verify``, ``drain`` and ``stop`` also 3; ``check``
has those of probes (``docs/monitoring.md``). To add a command, write its function in a module of
this package and list it in ``COMMANDS``.
"""

from __future__ import annotations

import typer

from spark_wan.cli.backup import adopt, backup
from spark_wan.cli.check import check
from spark_wan.cli.control import clean, drain, pause, resume, stop
from spark_wan.cli.decisions import decide, decisions
from spark_wan.cli.demo import demo
from spark_wan.cli.drawing import topology
from spark_wan.cli.jobs import receive, send
from spark_wan.cli.letters import app as dead_letters
from spark_wan.cli.options import SUBMITTED
from spark_wan.cli.preflight import preflight
from spark_wan.cli.status import status, validate
from spark_wan.cli.sync import sync
from spark_wan.cli.undo import undo
from spark_wan.cli.upkeep import remove
from spark_wan.cli.verify import verify

COMMANDS = {
    command.__name__: command
    for command in (
        demo,
        send,
        receive,
        validate,
        topology,
        preflight,
        status,
        check,
        pause,
        resume,
        drain,
        stop,
        clean,
        decide,
        decisions,
        sync,
        verify,
        undo,
        backup,
        adopt,
        remove,
    )
}


def main() -> None:
    """Run ``spark-wan``."""
    command_line()(prog_name="spark-wan")


def command_line() -> typer.Typer:
    """Return ``spark-wan`` with all its commands."""
    app = _typer()
    app.callback(help="Replicate Delta tables between sites.")(lambda: None)
    for command in COMMANDS.values():
        app.command()(command)
    app.add_typer(dead_letters, name="dead-letters")
    return app


def run_job(name: str) -> None:
    """Run the command ``send`` or ``receive`` under spark-submit, in its session."""
    job = _typer()
    job.command()(COMMANDS[name])
    job(prog_name=f"{name}.py", obj=SUBMITTED)


def _typer() -> typer.Typer:
    return typer.Typer(
        add_completion=False,
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,
    )
