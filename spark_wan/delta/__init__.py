"""Delta tables through Spark: the only package that knows Delta's words."""
