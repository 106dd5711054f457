"""``local_only``: a session whose commits stay at their site."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from spark_wan.delta.sessions import close_session, is_connect, set_setting
from spark_wan.wire.mark import LOCAL_ONLY

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

USER_METADATA = "spark.databricks.delta.commitInfo.userMetadata"


@contextmanager
def local_only(spark: SparkSession) -> Iterator[SparkSession]:
    """Give a session of its own to what is to stay at this site: its commits to Delta tables are
    not replicated. So are changes that each site makes for itself, such as the deletion of expired
    rows, or the correction of a copy.

    The session has the settings, catalog and database of ``spark``; of its temporary views and
    functions only over Spark Connect. Only what is written by the session stays here, or by a
    DataFrame of it, until the end of the block: not by a DataFrame of ``spark``, and not what other
    threads do with ``spark``. ``SparkSession.active()`` may be either; do not rely on it.

    Args:
        spark: A session, classic or Connect.

    Example::

        with spark_wan.local_only(spark) as session:
            session.sql("DELETE FROM orders WHERE day < '2020-01-01'")
    """
    session = _copy(spark)
    try:
        session.conf.set(USER_METADATA, LOCAL_ONLY)
        yield session
    finally:
        # A classic session lives on where somebody has it, or it is the active one of a thread.
        set_setting(session, USER_METADATA, spark.conf.get(USER_METADATA, None))
        close_session(session)


def _copy(spark: SparkSession) -> SparkSession:
    if is_connect(spark):
        copy: Any = spark.cloneSession()  # type: ignore[attr-defined]
        return copy
    session = spark.newSession()
    usual = session.conf.getAll
    for name, value in spark.conf.getAll.items():
        if usual.get(name) != value:
            set_setting(session, name, value)
    session.catalog.setCurrentCatalog(spark.catalog.currentCatalog())
    session.catalog.setCurrentDatabase(spark.catalog.currentDatabase())
    return session
