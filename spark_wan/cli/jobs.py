"""``send`` and ``receive``: a site's senders and its receiver. SIGHUP reads the topology again.

``jobs/send.py`` and ``jobs/receive.py`` run the same commands under spark-submit.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, Any

import typer

import spark_wan
from spark_wan.cli.launcher import launch
from spark_wan.cli.options import JobOptions, Repeated, setting_option, takes
from spark_wan.cli.output import Output, reporting_errors
from spark_wan.messages import at_site
from spark_wan.topology.model import Site


@contextmanager
def reporting(options: JobOptions) -> Iterator[Output]:
    """Yield the output of a job. Its messages name the site."""
    with at_site(options.site):
        with reporting_errors(options.output, log_format=options.log_format) as out:
            yield out


@takes(JobOptions)
def send(
    options: JobOptions,
    table: Annotated[
        Repeated, typer.Option(metavar="TABLE", help="Send only this table. May be repeated.")
    ] = None,
    parallel: Annotated[int | None, setting_option("--parallel", Site, "send_parallel")] = None,
    idle_interval: Annotated[
        float | None, setting_option("--idle-interval", Site, "idle_interval")
    ] = None,
) -> None:
    """Run the senders of a site until stopped."""
    with reporting(options) as out:

        def sender(spark: Any) -> spark_wan.Sender:
            topology, decisions = options.read()
            return spark_wan.Sender(
                spark,
                topology,
                options.site,
                senders=options.sender,
                tables=table,
                decisions=decisions,
                parallel=parallel,
                idle_interval=idle_interval,
            )

        launch("sender", sender, options=options, out=out, report=out.sender_progress)


@takes(JobOptions)
def receive(
    options: JobOptions,
    interval: Annotated[
        float | None, setting_option("--interval", Site, "receive_interval")
    ] = None,
    parallel: Annotated[int | None, setting_option("--parallel", Site, "receive_parallel")] = None,
    max_bytes: Annotated[
        int | None, setting_option("--max-bytes", Site, "receive_max_bytes")
    ] = None,
    idle_interval: Annotated[
        float | None, setting_option("--idle-interval", Site, "idle_interval")
    ] = None,
) -> None:
    """Run the receiver of a site until stopped."""
    with reporting(options) as out:

        def receiver(spark: Any) -> spark_wan.Receiver:
            topology, decisions = options.read()
            return spark_wan.Receiver(
                spark,
                topology,
                options.site,
                senders=options.sender,
                interval=interval,
                parallel=parallel,
                max_bytes=max_bytes,
                idle_interval=idle_interval,
                decisions=decisions,
            )

        launch("receiver", receiver, options=options, out=out, report=out.receiver_progress)
