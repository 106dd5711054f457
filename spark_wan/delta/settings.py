"""Which settings of a user's session a job of ours takes over.

Somebody sets ``spark.sql.files.ignoreMissingFiles`` for another job, or the cluster's policy does:
then Spark leaves out what it cannot read, and says nothing. So no setting that decides which rows
are read or written is the user's. A setting is taken over if it says where tables are, who may read
them, or how much work is done at once (:data:`KEPT`). All others of Spark SQL and of Delta have
their defaults, also if they are the application's (``spark-defaults.conf``), and :data:`FIXED` has
those whose defaults depend on the machine.
"""

from __future__ import annotations

import re

_DECIDING = ("spark.sql.", "spark.databricks.delta.")
"""Settings that begin otherwise belong to storage, to catalogs or to the application."""

KEPT = (
    # Where tables are, and what extends Spark so that it finds them.
    r"spark\.sql\.(catalog|hive\.metastore)\..*",
    r"spark\.sql\.(catalogImplementation|defaultCatalog|extensions|warehouse\.dir)",
    # Which files of Python code tasks have: PySpark itself sets it, for `--py-files`.
    r"spark\.sql\.artifact\..*",
    # How much at once, in how many tasks, in which memory, with which compiled code.
    r"spark\.sql\.shuffle\.partitions",
    r"spark\.sql\.(adaptive|codegen|sources\.parallelPartitionDiscovery)\..*",
    r"spark\.sql\.inMemoryColumnarStorage\.(batchSize|compressed)",
    r"spark\.sql\.(auto[Bb]roadcast\w+|broadcastTimeout)",
    r"spark\.sql\.files\.(maxPartition(Bytes|Num)|minPartitionNum|openCostInBytes)",
    r"spark\.sql\.files\.maxRecordsPerFile",
    r"spark\.sql\.parquet\.(compression\.codec|columnarReaderBatchSize)",
    r"spark\.sql\.execution\.(arrow\.max(Records|Bytes)PerBatch|pyspark\.python)",
    r"spark\.databricks\.delta\.(optimizeWrite\..*|optimize\.\w+FileSize|snapshotPartitions)",
    r"spark\.databricks\.delta\.merge\.repartitionBeforeWrite\.enabled",
    # What people see of it.
    r"spark\.sql\.(ui|debug)\..*",
    r"spark\.sql\.(maxPlanStringLength|maxMetadataStringLength)",
    # How files of Spark 2 are read, which do not say how their dates were written: the user's own
    # queries of the table need the same.
    r"spark\.sql\.parquet\.(datetime|int96)RebaseModeInRead",
)
"""Patterns of the user's settings that are taken over, beside those of storage and catalogs."""

FIXED = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.ansi.enabled": "true",
}
"""Settings of every session of ours whose defaults depend on the machine."""

_KEPT = re.compile("|".join(f"(?:{pattern})" for pattern in KEPT))


def is_taken_over(name: str) -> bool:
    """Whether a job takes a setting over from the user's session.

    >>> is_taken_over("fs.s3a.access.key"), is_taken_over("spark.sql.caseSensitive")
    (True, False)
    """
    return not name.startswith(_DECIDING) or _KEPT.fullmatch(name) is not None
