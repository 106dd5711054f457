"""Settings of the user's session reach the sessions of sender and receiver; theirs reach no
other session.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pair import Pair
from sites import NEWARK, SEATTLE

from spark_wan import Receiver, Sender

OF_DELTA = "spark.databricks.delta.lastCommitVersionInSession"


@pytest.mark.core
def test_sender_and_receiver_use_the_settings_of_the_users_session(
    spark: Any, tmp_path: Path
) -> None:
    """As with storage keys that a user sets in a notebook.

    Fails when captures or writes run in plain new sessions, which inherit no settings.
    """
    user = spark.newSession()
    (tmp_path / "lake").mkdir()
    user.conf.set("fs.viewfs.mounttable.lake.link./tables", f"file://{tmp_path}/lake")
    at = {NEWARK: "viewfs://lake/tables/orders", SEATTLE: "viewfs://lake/tables/arrived"}
    pair = Pair.of(tmp_path / "pair", {"orders": {"at": at}})
    pair.make(user, "orders", "id bigint, item string")
    pair.sql(user, "orders", "INSERT INTO {t} VALUES (1, 'bolt'), (2, NULL)")
    before = dict(user.conf.getAll)
    Sender(user, pair.topology, NEWARK).start(available_now=True).await_termination()
    Receiver(user, pair.topology, SEATTLE).start(available_now=True).await_termination()
    assert pair.log("orders").acks()[SEATTLE].held is None
    pair.assert_same(user, "orders")
    after = dict(user.conf.getAll)
    assert {
        name for name in before.keys() | after.keys() if before.get(name) != after.get(name)
    } <= {OF_DELTA}
