"""How far Spark jobs are, by the tasks of their stages."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING

from spark_wan.delta.sessions import is_connect

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession


log = logging.getLogger(__name__)


@contextmanager
def watched_jobs(spark: SparkSession, stages: int) -> Iterator[Callable[[], float | None]]:
    """Yield what returns how much of the jobs that this thread runs meanwhile is done, from 0 to 1.
    With Spark Connect it returns None.

    Other threads may call it. ``stages``: number of stages of the jobs. Spark itself does not know
    it: adaptive execution begins a job for each.
    """
    if is_connect(spark):
        yield lambda: None
        return
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
