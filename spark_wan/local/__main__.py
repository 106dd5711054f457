"""``python -m spark_wan.local prepare | java``."""

from __future__ import annotations

import argparse
import os
import shutil
import sys

from spark_wan.errors import WanError
from spark_wan.local.cache import cache_folder
from spark_wan.local.classes import class_archive
from spark_wan.local.java import ensure_java
from spark_wan.local.prepare import prepare_classes, prepare_jars


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m spark_wan.local", description="Prepare this machine for Spark."
    )
    parser.add_argument(
        "command",
        choices=("prepare", "java"),
        help="java: print which Java sessions use, or fail if there is none; "
        "prepare: also download the Delta jars and archive classes in the cache folder",
    )
    command = parser.parse_args(arguments).command
    try:
        ensure_java()
        print("Java:", os.environ.get("JAVA_HOME") or shutil.which("java"))
        if command == "prepare":
            print(f"Delta's jars: {cache_folder() / 'jars'}", flush=True)
            prepare_jars()
            print(f"Spark's classes, for a faster start: {class_archive()}", flush=True)
            if prepare_classes() is None:
                print("This Java cannot archive them: sessions start slower")
    except WanError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
