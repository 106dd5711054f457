"""A user stream whose log is lost with events that no site has applied: held at both ends until
the user decides.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from default_channel import delete_channel
from sites import NEWARK, SEATTLE, Sites, at
from users import CLICKS, clicks

from spark_wan.state.decisions import parse_decisions


def test_f48_a_lost_log_holds_both_ends_until_a_decision(
    spark: Any, wan: Sites, tmp_path: Path
) -> None:
    """The whole channel was deleted: ten events of the lost log are applied, ten are not. The sink
    has its checkpoint in the query's.

    Fails without `check_log` in `LogWriter.end` (the stream starts a new log silently), or without
    `accepts` in the plan (the receiver takes the new log silently).
    """
    options = {**wan.sink_options("clicks"), "stream": CLICKS}
    del options["config"], options["sender"]
    options |= {**wan.channel_options("events"), "site": NEWARK, "remotes": SEATTLE, "key": ""}

    def write(start: int, **more: str) -> None:
        wan.append("clicks", clicks(range(start, start + 10)))
        rows = spark.readStream.format("delta").load(str(wan.path("clicks")))
        writer = rows.writeStream.format("wan").options(**options, **more)
        writer = writer.option("checkpointLocation", str(tmp_path / "checkpoint"))
        writer.trigger(availableNow=True).start().awaitTermination()

    def expected(*starts: int) -> dict[Any, int]:
        return {
            (at(n), f"click {n}", f"/{n}"): 1 for start in starts for n in range(start, start + 10)
        }

    write(0)
    wan.apply(spark, "events")
    old = wan.log("clicks").read(1).log_id
    write(10)
    delete_channel(wan.channel("events"))
    with pytest.raises(
        Exception,
        match=f"the log of {CLICKS} is gone; it was at manifest 2.*option newLog to {old}",
    ):
        write(20)
    assert wan.numbers("clicks") == []

    write(30, newLog=old)
    epochs = wan.numbers("clicks")
    assert epochs[0] == 1
    new = wan.log("clicks").read(1).log_id
    held = str(wan.apply(spark, "events")["clicks"].held)
    advice = f"wan decide clicks@{new}=new-log"
    assert (
        f"begins another log, {new}; this site has applied the log {old} through epoch 1" in held
        and advice in held
    )
    assert wan.rows("clicks") == expected(0)
    ack = wan.ack("clicks")
    assert ack is not None and (ack.applied, ack.held) == (0, 1)

    status = wan.apply(spark, "events", **parse_decisions([f"clicks@{new}=new-log"]))["clicks"]
    assert (status.held, status.applied) == (None, epochs[-1])
    assert wan.rows("clicks") == expected(0, 20, 30)
    write(40)
    assert wan.apply(spark, "events")["clicks"].held is None
    assert wan.rows("clicks") == expected(0, 20, 30, 40)
