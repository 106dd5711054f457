"""Spark on this machine: sessions with Delta, their jars, and a Java that runs them.

For tests, the demo, benchmarks and first steps; a cluster has all of this. ::

    from spark_wan.local import local_session

    spark = local_session("first-steps", **{"spark.sql.warehouse.dir": "/tmp/warehouse"})

``python -m spark_wan.local prepare`` downloads the jars once, so that later sessions start offline
and fast; ``python -m spark_wan.local java`` prints which Java sessions use.

The cache folder is ``.cache`` in a checkout, otherwise ``~/.cache/spark_wan``. It holds ``jars``
(the Delta jars), ``ivy`` (Ivy's own cache), ``java`` (a JAVA_HOME, if one had to be made) and
``classes-….jsa`` (Spark's classes in the form that a JVM maps, 190 MB: a session starts in two
thirds of the time). Everything in it can be deleted.
"""

from spark_wan.local.jars import cached_jars
from spark_wan.local.java import ensure_java
from spark_wan.local.session import local_session

__all__ = ["cached_jars", "ensure_java", "local_session"]
