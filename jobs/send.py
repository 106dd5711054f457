"""Run a site's gateway senders under spark-submit:

    spark-submit --packages io.delta:delta-spark_4.2_2.13:4.4.0 … jobs/send.py --config topology.yaml --site newark

The session comes from spark-submit, with Delta's extension and catalog configured. SIGINT and SIGTERM stop it; exit
code 1 says that something ended it, or (with --available-now) that a stream is held.
"""

from __future__ import annotations

import argparse
import logging
import sys

from pyspark.sql import SparkSession

import spark_wan
from spark_wan.cli.launcher import describe, quiet_py4j, stop_on_signals, watch
from spark_wan.control.decisions import parse_decisions


def main() -> int:
    parser = argparse.ArgumentParser(description="Run a site's gateway senders.")
    parser.add_argument("--config", required=True, help="topology file")
    parser.add_argument("--site", required=True, help="site whose senders run here")
    parser.add_argument("--sender", action="append", help="only this sender; may be repeated")
    parser.add_argument("--table", action="append", help="only this table; may be repeated")
    parser.add_argument(
        "--available-now", action="store_true", help="publish what is there, and end"
    )
    parser.add_argument(
        "--decide",
        action="append",
        default=[],
        metavar="TABLE@VERSION=ACTION",
        help="ACTION: distribute or skip",
    )
    given = parser.parse_args()
    logging.basicConfig(level=logging.WARNING)
    quiet_py4j()
    try:
        topology = spark_wan.load_topology(given.config)
        decisions = parse_decisions(given.decide)
        spark = SparkSession.builder.appName(f"spark_wan send {given.site}").getOrCreate()
        stopped = stop_on_signals()
        sender = spark_wan.Sender(
            spark,
            topology,
            given.site,
            senders=given.sender,
            tables=given.table,
            decisions=decisions,
        )
        handle = sender.start(available_now=given.available_now)
        watch(handle, stopped, lambda status: print(describe(status), flush=True))
    except spark_wan.WanError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
