"""Makes ``format("wan")`` known to Spark without ``spark_wan.register(spark)``.

Spark imports every top-level module named ``pyspark_*`` and registers its ``DefaultSource``.
"""

from spark_wan.datasource.format import WanDataSource


class DefaultSource(WanDataSource):
    """The ``wan`` data source."""
