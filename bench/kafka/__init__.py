"""Channels on Kafka, beside what is written by hand with Spark's Kafka connector.

The brokers, the links between machines and MirrorMaker are those of the tests.
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "tests" / "support"))
