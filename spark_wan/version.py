"""The version of spark_wan, and that of what its commands print."""

__version__ = "0.1.0"
"""The package exports it; modules below cannot import that."""
OUTPUT_VERSION = 1
"""Version of what commands print as JSON: rises when a field means something else, or is gone."""
