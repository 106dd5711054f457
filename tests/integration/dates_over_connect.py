"""Replicate dates and times over Spark Connect, and print what was seen as one line of JSON."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from dates import ZONE, carry_dates
from spark_connect import connect

from spark_wan.capture.change_feed import JAVA_TIME


def main() -> None:
    spark = connect("-Duser.timezone=Africa/Monrovia")
    spark.conf.set(ZONE, "UTC")
    rows = carry_dates(spark, Path(sys.argv[1]), ["Europe/Amsterdam"])
    settings = {name: spark.conf.get(name) for name in (JAVA_TIME, "spark.sql.readSideCharPadding")}
    spark.stop()
    print(json.dumps({"rows": rows, "settings": settings}), flush=True)


if __name__ == "__main__":
    main()
