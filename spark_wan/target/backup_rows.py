"""Stage *decode* of a backup: its rows, as the frames of a copy would have them."""

from __future__ import annotations

import re
from urllib.parse import unquote

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from spark_wan.apply.change import Backup
from spark_wan.delta.dataframes import has_key, map_in_arrow, select_columns
from spark_wan.delta.tables import load
from spark_wan.errors import BackupError
from spark_wan.target.decode import RESERVED
from spark_wan.target.tasks import BackupTask
from spark_wan.wire.names import shown


def backup_rows(spark: SparkSession, backup: Backup, schema: StructType) -> DataFrame:
    """Return the rows of a backup as events, with the table's columns in ``schema``.

    Rows with a null in their key are left out, as the sender leaves them out: no event could ever
    change them. Raises BackupError for a backup that reads other files than its own.
    """
    own = backup.certificate
    rows = load(spark, backup.place.url)
    _check_files(rows, backup)
    rows = rows.select(*select_columns([entry["name"] for entry in own.schema["fields"]]))
    if own.keys:
        rows = rows.where(has_key(own.keys))
    columns = StructType([*RESERVED, *schema.fields])
    task = BackupTask(to_arrow_schema(columns, timezone="UTC"), own.through)
    return map_in_arrow(rows, task, columns)


def _check_files(rows: DataFrame, backup: Backup) -> None:
    """Check that the backup's log names no files elsewhere, which its certificate does not cover:
    as that of a shallow clone does, or a forged one."""
    place = _without_scheme(backup.place.url)
    own = {f"{place}/{file.path}" for file in backup.certificate.files}
    for file in rows.inputFiles():
        path = _without_scheme(file)
        if path not in own and unquote(path) not in own:
            raise BackupError(
                f"{backup.place.url}: the backup reads the file {shown(file)}, which is not in its "
                "certificate. Nothing of it is used. Make another backup with `spark-wan backup`."
            )


def _without_scheme(url: str) -> str:
    """Return what two ways to write one place have in common: ``s3://`` and ``s3a://``,
    ``file:/`` and none."""
    return re.sub(r"^[A-Za-z][A-Za-z0-9+.-]*:", "", url).strip("/")
