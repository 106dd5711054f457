"""Benchmark: spark_wan beside two other pipelines, in one run."""
