"""A user's stream whose log is lost with events that no site has applied: held at both ends until the user decides."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from sites import Sites, at
from users import CLICKS, clicks

from spark_wan.control.decisions import parse_decisions


def manifests(sites: Sites) -> None:
    for path in (sites.folder / "events" / "log" / CLICKS).iterdir():
        path.unlink()


def channel(sites: Sites) -> None:
    shutil.rmtree(sites.folder / "events")


@pytest.mark.parametrize("lost", [manifests, channel], ids=lambda lost: lost.__name__)
def test_f48_a_lost_log_holds_both_ends_until_a_decision(
    spark: Any, sites: Callable[..., Sites], tmp_path: Path, lost: Callable[[Sites], None]
) -> None:
    """Ten events of the lost log are applied, ten are not. The sink remembers its log beside the channel: in the site's `state`, or in the query's
    checkpoint. Taken out once: `check_log` in `append_epoch`, and `accepts` in the plan. Without the first the stream begins anew, without the
    second the receiver takes the new log, and neither says that events are missing."""
    here = sites()
    options = {
        name: value for name, value in here.sink_options("clicks").items() if name == "eventId"
    }
    options |= {
        "channel": str(here.folder / "events"),
        "site": "newark",
        "remotes": "seattle",
        "table": "clicks",
        "key": "",
    }
    if lost is manifests:
        options = here.sink_options("clicks")
    options["stream"] = CLICKS

    def write(start: int, **more: str) -> None:
        here.append("clicks", clicks(range(start, start + 10)))
        rows = spark.readStream.format("delta").load(str(here.path("clicks")))
        writer = rows.writeStream.format("wan").options(**options, **more)
        query = (
            writer.option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()

    def expected(*starts: int) -> dict[Any, int]:
        return {
            (at(n), f"click {n}", f"/{n}"): 1 for start in starts for n in range(start, start + 10)
        }

    write(0)
    here.apply(spark, "events")
    old = here.log("clicks").read(1).log_id
    write(10)
    lost(here)
    with pytest.raises(
        Exception,
        match=f"the log of {CLICKS} is gone; it was at manifest 2.*option newLog to {old}",
    ):
        write(20)
    assert here.numbers("clicks") == []

    write(30, newLog=old)
    epochs = here.numbers("clicks")
    assert epochs[0] == 1
    new = here.log("clicks").read(1).log_id
    held = str(here.apply(spark, "events")["clicks"].held)
    advice = f"receive --decide clicks@{new}=new-log"
    assert (
        f"begins another log, {new}; this site has applied the log {old} through epoch 1" in held
        and advice in held
    )
    assert here.rows("clicks") == expected(0)
    ack = here.ack("clicks")
    assert ack is not None and (ack.applied, ack.held) == (0, 1)

    status = here.apply(spark, "events", **parse_decisions([f"clicks@{new}=new-log"]))["clicks"]
    assert (status.held, status.applied) == (None, epochs[-1])
    assert here.rows("clicks") == expected(0, 20, 30)
    write(40)
    assert here.apply(spark, "events")["clicks"].held is None
    assert here.rows("clicks") == expected(0, 20, 30, 40)
