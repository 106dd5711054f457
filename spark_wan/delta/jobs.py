"""How far Spark jobs are, by the tasks of their stages."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING, Any, cast

from spark_wan.delta.sessions import is_connect
from spark_wan.messages import message_log

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import DataFrame


log = message_log(__name__)


@contextmanager
def watched_jobs(query: DataFrame, stages: int) -> Iterator[Callable[[], float | None]]:
    """Yield what returns how much of a query is done, from 0 to 1, that this thread runs meanwhile.
    With Spark Connect it returns None.

    Other threads may call it. ``stages``: number of stages of the query. Spark itself does not know
    it: adaptive execution begins a job for each.
    """
    spark = query.sparkSession
    if is_connect(spark):
        yield lambda: None
        return
    # When a query is planned, Delta lists the files of a table, in a job that is no stage of it.
    cast(Any, query)._jdf.queryExecution().optimizedPlan()
    context, tag = spark.sparkContext, f"wan-{uuid.uuid4().hex}"
    context.addJobTag(tag)
    try:
        yield partial(_share, context, tag, stages)
    finally:
        with suppress(Exception):  # the context has ended, which the jobs themselves say better
            context.removeJobTag(tag)


def _share(context: SparkContext, tag: str, stages: int) -> float | None:
    done: dict[int, float] = {}
    try:
        tracker = context._jsc.sc().statusTracker()
        for job in tracker.getJobIdsForTag(tag):
            known = tracker.getJobInfo(job)
            for stage in known.get().stageIds() if known.isDefined() else ():
                info = tracker.getStageInfo(stage)
                if info.isDefined() and info.get().submissionTime() > 0:  # others are skipped
                    done[stage] = info.get().numCompletedTasks() / max(1, info.get().numTasks())
    except Exception as error:  # the context has ended
        log.debug("the jobs cannot be watched: %s", error)
        return None
    return min(1.0, sum(done.values()) / stages)
