"""Found by pyspark when it is installed: ``format("wan")`` is then known without ``spark_wan.register(spark)``."""

from spark_wan.datasource.format import WanDataSource


class DefaultSource(WanDataSource):
    """pyspark looks for this name in modules called ``pyspark_*``."""
