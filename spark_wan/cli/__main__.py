"""``python -m spark_wan.cli`` is ``spark-wan``."""

from spark_wan.cli.app import main

main()
