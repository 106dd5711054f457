"""The face of spark_wan in Spark: ``format("wan")``."""
