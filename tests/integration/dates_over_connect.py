"""A process that replicates dates and times over Spark Connect, and says what it saw (the last line that it prints, in JSON)."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from over_connect import connect
from test_type_family import carry_dates


def main() -> None:
    spark = connect("-Duser.timezone=Africa/Monrovia")
    spark.conf.set("spark.sql.session.timeZone", "UTC")
    before = spark.conf.getAll
    rows = carry_dates(spark, Path(sys.argv[1]), ["Europe/Amsterdam", "America/New_York"])
    after = spark.conf.getAll
    spark.stop()
    print(json.dumps({"rows": rows, "before": before, "after": after}), flush=True)


if __name__ == "__main__":
    main()
