"""A user's decisions are recorded, and read where they are needed."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier

import pytest
from unit.wire.test_state_records import DECISIONS, DECISIONS_V1, LOG

from spark_wan.errors import LedgerError, OptionError
from spark_wan.state.decisions import StoredDecisions, parse_decisions
from spark_wan.state.objects import StateObjects
from spark_wan.wire.decisions import Decisions


def test_decisions_are_parsed_by_table() -> None:
    decisions = parse_decisions(
        ["orders@12=skip", f"orders@{LOG}=new-log", "a@b@3=distribute", "orders@7=distribute"]
    )
    assert decisions == {"orders": DECISIONS, "a@b": Decisions({3: "distribute"})}
    assert parse_decisions([]) == {}


@pytest.mark.parametrize(
    "text",
    [
        "",
        "orders",
        "orders@12",
        "orders@12=drop",
        "@12=skip",
        "orders=skip",
        "orders@x=skip",
        "orders@-1=skip",
    ]
    + ["orders@12=new-log", f"orders@{LOG}=skip", f"orders@{LOG[1:]}=new-log", f"@{LOG}=new-log"],
)
def test_an_invalid_decision_is_refused(text: str) -> None:
    with pytest.raises(OptionError, match="is not understood; write <table>@<version>=distribute"):
        parse_decisions([text])


def test_decisions_are_recorded_and_accumulate(tmp_path: Path) -> None:
    """Fails when a decision is kept in the process alone: the next start holds the stream again."""
    decisions = StoredDecisions(str(tmp_path))
    assert decisions.load("orders") == Decisions()
    decisions.record("orders", Decisions())
    assert not (tmp_path / "decisions").exists() or not list((tmp_path / "decisions").iterdir())
    StoredDecisions("s3://no-such-store/state").record("orders", Decisions())  # asks for nothing
    decisions.record("orders", Decisions({12: "distribute"}, frozenset((LOG,))))
    decisions.record("orders", Decisions({7: "distribute", 12: "skip"}))
    assert StoredDecisions(f"{tmp_path}/").load("orders") == DECISIONS
    assert decisions.load("other") == Decisions()
    written = sorted((tmp_path / "decisions" / "orders").iterdir())
    decisions.record("orders", DECISIONS)  # the command's options, at the next start
    assert sorted((tmp_path / "decisions" / "orders").iterdir()) == written


def test_decisions_of_an_earlier_version_are_read_and_added_to(tmp_path: Path) -> None:
    (tmp_path / "decisions").mkdir()
    (tmp_path / "decisions" / "orders.json").write_bytes(DECISIONS_V1)
    decisions = StoredDecisions(str(tmp_path))
    decisions.record("orders", Decisions({12: "distribute"}))
    assert decisions.load("orders") == Decisions({**DECISIONS.operations, 12: "distribute"}, {LOG})
    assert (tmp_path / "decisions" / "orders.json").read_bytes() == DECISIONS_V1


def test_decisions_that_are_recorded_at_the_same_time_are_all_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the sender and the receiver of a site, each after the same look. Fails when one writes
    over the other."""
    together, look = Barrier(4), StateObjects._paths

    def look_together(objects: StateObjects, name: str) -> list[str]:
        paths = look(objects, name)
        together.wait()
        return paths

    def record(first: int) -> None:
        decisions = StoredDecisions(str(tmp_path))
        for version in range(first, 20, 4):
            decisions.record("orders", Decisions({version: "skip"}))

    with monkeypatch.context() as looking, ThreadPoolExecutor(4) as pool:
        looking.setattr(StateObjects, "_paths", look_together)
        list(pool.map(record, range(4)))
    recorded = StoredDecisions(str(tmp_path)).load("orders").operations
    assert recorded == dict.fromkeys(range(20), "skip")


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{",
        b"[]",
        b"5",
        b"null",
        b"{}",
        b"\xff",
        DECISIONS_V1[:-1],
        DECISIONS_V1.replace(b'"version":1', b'"version":0'),
        DECISIONS_V1.replace(b'"skip"', b"5"),
    ]
    + [DECISIONS_V1.replace(b'"7"', b'"x"'), DECISIONS_V1.replace(b"operations", b"operators")],
)
@pytest.mark.parametrize("name", ["orders.json", "orders/00000000000000000001.json"])
def test_f55_an_unreadable_record_is_an_error(tmp_path: Path, name: str, data: bytes) -> None:
    """Forgetting a decision could skip what is to be sent. Fails when it counts as no record."""
    (tmp_path / "decisions" / "orders").mkdir(parents=True)
    (tmp_path / "decisions" / name).write_bytes(data)
    with pytest.raises(
        LedgerError,
        match=rf"decisions/{name}: the recorded decisions cannot be read.*decide again",
    ):
        StoredDecisions(str(tmp_path)).load("orders")
