"""Spark on this machine: sessions with Delta, the jars they need and a Java to run them.

For tests, the demo, benchmarks and first steps; a cluster brings all of this along. ::

    from spark_wan.local import local_session

    spark = local_session("first-steps", **{"spark.sql.warehouse.dir": "/tmp/warehouse"})

``python -m spark_wan.local prepare`` fetches the jars once, so that later sessions start offline and quickly;
``python -m spark_wan.local java`` tells which Java sessions would use.

Cache folder: ``.cache`` in a checkout, otherwise ``~/.cache/spark_wan``. It holds ``jars`` (the Delta jars), ``ivy``
(what they were resolved with), ``java`` (a JAVA_HOME, where one had to be made) and ``classes-….jsa`` (Spark's classes as a JVM maps them, 190 MB: a
session starts in two thirds of the time). All of it can be deleted.
"""

from spark_wan.local.jars import cached_jars
from spark_wan.local.java import ensure_java
from spark_wan.local.session import local_session

__all__ = ["cached_jars", "ensure_java", "local_session"]
