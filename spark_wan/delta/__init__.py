"""Delta tables through Spark; the only place that knows Delta's words."""
