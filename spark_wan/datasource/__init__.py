"""``format("wan")``: spark_wan as a sink and a source of Spark."""
