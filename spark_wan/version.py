"""The version of spark_wan. The package exports it; modules below cannot import that."""

__version__ = "0.1.0"
