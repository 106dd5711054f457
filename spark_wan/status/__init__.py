"""Reports on a running topology, without Spark."""
