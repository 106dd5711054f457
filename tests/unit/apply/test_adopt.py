"""A backup is adopted: what fits, what is refused, and what a crash leaves."""

from __future__ import annotations

import itertools
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from applied_pair import COPIES as NAME
from applied_pair import AppliedPair
from fakes import MANIFEST, STREAM, commit, conflict, schema

from spark_wan.apply.adopt import Adopter, Adoption
from spark_wan.apply.change import Backup
from spark_wan.apply.replace import CopyWriter, Outcome
from spark_wan.apply.take import CopyTaker
from spark_wan.errors import BackupError
from spark_wan.ledger.progress import origin_of
from spark_wan.log.stream_log import StreamLog
from spark_wan.steps import run
from spark_wan.sync.place import Place
from spark_wan.wire.ack import Ack, Wanted
from spark_wan.wire.certificate import BackedUp, Certificate
from spark_wan.wire.manifest import SNAPSHOT
from spark_wan.wire.mark import Mark

ORIGIN = origin_of(MANIFEST)
ADOPT = [
    "adopt.1 checked",
    "take.2 caught-up",
    "take.3 read",
    "take.4 resolved",
    "take.5 recorded",
    "take.6 written",
    "take.7 ledgered",
    "adopt.8 withdrawn",
]


class Pair(AppliedPair):
    """The same, with backups of newark's table in a folder."""

    def __init__(self, folder: Path, begun: bool = True) -> None:
        super().__init__(begun)
        self.folder = folder

    def publish(self, commits: int = 1) -> None:
        for _ in range(commits):
            self.newark.source.add()
            self.newark.rounds()

    def trim(self) -> None:
        """Only the newest epoch stays in the channel."""
        for epoch in self.newark.log.since(0)[:-1]:
            self.channel.trim_manifest(STREAM, epoch)

    def backup(self, **changes: Any) -> Backup:
        """Back up newark's newest version."""
        newest = self.newark.source.newest()
        place = Place(str(self.folder / f"backup-{newest.version}"))
        Path(place.url).mkdir(parents=True, exist_ok=True)
        (Path(place.url) / "part-00000.parquet").write_bytes(b"rows")
        made = Certificate(
            backup=f"{newest.version:032x}",
            site="newark",
            table="orders",
            source=BackedUp(self.newark.source.id, newest.version, newest.identity),
            vector=((*ORIGIN, newest.version),),
            keys=("id",),
            schema=schema(),
            files=place.digested(),
            rows=1,
            unique=True,
            created=1,
        )
        return Backup(place, replace(made, **changes))

    def adopter(self, backup: Backup) -> Adopter:
        """An adopter that knows only what is durable."""
        log = StreamLog(self.channel, STREAM)
        writer = CopyWriter("seattle", "orders", self.target, self.ledger())
        return Adopter(
            "seattle", "orders", backup, [log], self.copies, writer, ("newark",), self.withdraw
        )

    def withdraw(self) -> None:
        ack = self.copies.ack("seattle")
        if ack is not None:
            self.copies.put_ack(replace(ack, wanted=None))

    def adopt(self, backup: Backup) -> Adoption:
        adoption = run(self.adopter(backup).round())
        assert self.target.open_work == 0
        return adoption

    def refused(self, backup: Backup, match: str) -> None:
        """Refused twice, in a dry run too, and the table and the channel are as they were."""
        before = list(self.target.commits), list(self.store.rows), self.channel.notes("acks")
        for _ in range(2):
            with pytest.raises(BackupError, match=match):
                self.adopter(backup).check()
            with pytest.raises(BackupError, match=match):
                self.adopt(backup)
        assert before[0] == self.target.commits and before[2] == self.channel.notes("acks")
        assert all(each.mark.replaced is None for each in self.store.rows)

    def adopted(self) -> list[Mark]:
        marks = (Mark.read(each.user_metadata, "seattle", "orders") for each in self.target.commits)
        return [each for each in marks if each is not None and each.replaced is not None]

    def synchronized(self) -> None:
        """The stream goes on behind the backup, and a later process sees the same."""
        assert self.apply().held is None
        self.publish()
        for _ in range(2):
            result = self.apply()
            assert (result.held, result.cause) == (None, None)
        ledger = self.ledger()
        ledger.catch_up(self.target)
        assert ledger.progress.through == {ORIGIN: self.newark.source.newest().version}
        ack = self.newark.log.ack("seattle")
        assert ack is not None and ack.applied == self.newark.log.newest_epoch()


@pytest.fixture
def pair(tmp_path: Path) -> Pair:
    return Pair(tmp_path)


def test_the_steps_are_these(pair: Pair) -> None:
    backup = pair.backup()
    assert list(pair.adopter(backup).round()) == ADOPT
    assert list(pair.adopter(backup).round()) == ["adopt.1 checked"]


def test_what_the_backup_covers_is_not_applied_again(pair: Pair) -> None:
    """And what came after it is: the epoch that both have in part, in part."""
    pair.newark.source.add()
    backup = pair.backup()
    pair.newark.source.add()
    pair.newark.rounds()
    assert pair.adopt(backup).outcome is Outcome.WRITTEN
    (mark,) = pair.adopted()
    version = backup.certificate.through
    assert (mark.vector, mark.local) == (((*ORIGIN, version),), 0)
    assert mark.applied[0].log_id == backup.certificate.backup
    result = pair.apply()
    assert [each.above for each in result.plan.new] == [version]
    pair.synchronized()


def test_the_site_acks_what_the_backup_covers(pair: Pair) -> None:
    """So that the sender can trim it. Fails when the epochs wait for a site that has them."""
    pair.publish(3)
    pair.adopt(pair.backup())
    written = len(pair.target.written)
    result = pair.apply()
    assert (result.epochs, result.applied) == (0, pair.newark.log.newest_epoch())
    ack = pair.newark.log.ack("seattle")
    assert ack is not None and (ack.applied, ack.needs) == (result.applied, None)
    assert len(pair.target.written) == written


def dropped(pair: Pair) -> None:
    pair.target.id, pair.target.commits = None, []


def replaced(pair: Pair) -> None:
    pair.target.id = "target-2"
    pair.target.commits = [commit(0), commit(1)]


def restored(pair: Pair) -> None:
    pair.target.put(None, "RESTORE")


def ledger_lost(pair: Pair) -> None:
    pair.store.rows, pair.target.commits = [], [commit(7)]


def epochs_missing(pair: Pair) -> None:
    pair.publish(2)
    pair.trim()


def written_to(pair: Pair) -> None:
    pair.target.put(None)


FAULTS = [dropped, replaced, restored, ledger_lost, epochs_missing, written_to]


@pytest.mark.parametrize("fault", FAULTS, ids=[fault.__name__ for fault in FAULTS])
def test_a_backup_mends_it(pair: Pair, fault: Callable[[Pair], None]) -> None:
    """b06, f28, f32: whatever the site lacks, it has afterwards."""
    fault(pair)
    backup = pair.backup()
    assert pair.adopter(backup).check().outcome is Outcome.WRITTEN
    assert pair.adopted() == []
    pair.adopt(backup)
    pair.synchronized()


@pytest.mark.parametrize("fault", FAULTS, ids=[fault.__name__ for fault in FAULTS])
@pytest.mark.parametrize("died", range(1, len(ADOPT) + 1))
def test_an_adoption_that_dies_at_any_step(
    tmp_path: Path, fault: Callable[[Pair], None], died: int
) -> None:
    """Twice. Fails when a backup that is in the table is written once more."""
    pair = Pair(tmp_path)
    fault(pair)
    backup = pair.backup()
    for _ in range(2):
        list(itertools.islice(pair.adopter(backup).round(), died))
        pair.target.open_work = 0
    pair.adopt(backup)
    assert len(pair.adopted()) == 1
    pair.synchronized()


@pytest.mark.parametrize("first", range(1, len(ADOPT)))
def test_two_adoptions_at_once(pair: Pair, first: int) -> None:
    """One waits after each step while the other adopts. Delta lets one number through."""
    backup = pair.backup()
    slow = pair.adopter(backup).round()
    for _ in range(first):
        next(slow)
    run(pair.adopter(backup).round())
    run(slow)
    assert len(pair.adopted()) == 1
    pair.synchronized()


@pytest.mark.parametrize("first", range(1, len(ADOPT)))
def test_a_receiver_applies_meanwhile(pair: Pair, first: int) -> None:
    """Fails when the backup takes back what was applied while it was adopted: that may be trimmed
    already."""
    backup = pair.backup()
    slow = pair.adopter(backup).round()
    for _ in range(first):
        next(slow)
    pair.publish()
    pair.apply()
    pair.trim()
    if first < ADOPT.index("take.6 written") + 1:
        with pytest.raises(BackupError, match="ends at version 1"):
            run(slow)
        assert pair.adopted() == []
    else:
        run(slow)
    assert pair.target.open_work == 0
    pair.synchronized()


def test_a_conflict_with_another_writer_is_tried_again(pair: Pair) -> None:
    backup = pair.backup()
    pair.target.before_write = [conflict, conflict]
    assert pair.adopt(backup).outcome is Outcome.WRITTEN
    pair.synchronized()


def test_a_backup_is_known_when_the_stream_has_gone_on(pair: Pair) -> None:
    """Fails when it is refused as too old, though the table has it."""
    backup = pair.backup()
    pair.adopt(backup)
    pair.synchronized()
    shutil.rmtree(backup.place.url)  # nobody reads it any more
    assert pair.adopt(backup).is_known
    assert len(pair.adopted()) == 1


def test_an_older_backup_is_refused(pair: Pair) -> None:
    """Fails when the table is taken back: what came after the backup may be trimmed."""
    backup = pair.backup()
    pair.publish(2)
    pair.apply()
    pair.trim()
    match = "seattle has applied through version 3, and the backup ends at version 1"
    pair.refused(backup, match)
    pair.synchronized()


def test_a_gap_behind_the_backup_is_refused(pair: Pair) -> None:
    """It says where the channel begins. Fails when the stream would wait for ever."""
    backup = pair.backup()
    dropped(pair)
    pair.publish(3)
    pair.trim()
    match = "ends at version 1, and what the channel has after it begins with version 4.*sync"
    pair.refused(backup, match)
    pair.adopt(pair.backup())
    pair.synchronized()


def test_a_later_snapshot_is_a_gap(pair: Pair) -> None:
    """It says nothing of rows that were deleted before it."""
    backup = pair.backup()
    dropped(pair)
    pair.newark.source.add()
    log = pair.newark.log
    last = log.newest_manifest()
    assert last is not None
    snapshot = replace(
        last, log_id="b" * 32, epoch=1, previous="", kind=SNAPSHOT, last_version=2, start=True
    )
    pair.channel.remove(STREAM)
    StreamLog(pair.channel, STREAM).append(snapshot)
    pair.refused(backup, "begins with the snapshot of version 2")


def test_a_backup_that_the_channel_is_behind(pair: Pair) -> None:
    """The sender has not published what the backup has."""
    pair.newark.source.add()
    pair.adopt(pair.backup())
    assert pair.apply().held is None
    pair.synchronized()


def test_a_site_may_adopt_before_the_first_epoch(tmp_path: Path) -> None:
    """Then the sender begins behind it: nothing crosses the network that the disk has brought."""
    pair = Pair(tmp_path, begun=False)
    backup = pair.backup()
    assert not pair.adopt(backup).begun
    pair.newark.restart(start=backup.certificate.through + 1)
    pair.newark.source.add()
    pair.newark.rounds()
    result = pair.apply()
    assert (result.held, result.epochs) == (None, 1)
    pair.synchronized()


def test_a_stream_that_does_not_fit_is_held_later(tmp_path: Path) -> None:
    """Nothing is wrong before its first epoch; of another table, it is held."""
    pair = Pair(tmp_path, begun=False)
    foreign = ((ORIGIN[0], "another table", ORIGIN[2], 1),)
    pair.adopt(pair.backup(vector=foreign))
    pair.newark.rounds()
    result = pair.apply()
    assert result.held is not None and "The source was replaced" in str(result.cause)


@pytest.mark.parametrize(
    ("changes", "match"),
    [
        ({"vector": (("newark", "another", "all", 1),)}, "another table, or the source was"),
        ({"vector": ((*ORIGIN[:2], "some", 1),)}, "selection 'some'"),
        ({"keys": ("city",)}, "made with the keys city, and the stream has id"),
        ({"source": BackedUp(ORIGIN[1], 1, "other@5")}, "version 1 of the source is another"),
    ],
    ids=["table", "selection", "keys", "commit"],
)
def test_a_backup_of_another_table_is_refused(
    pair: Pair, changes: dict[str, Any], match: str
) -> None:
    """Fails when its rows take the place of those of this table."""
    dropped(pair)
    pair.refused(pair.backup(**changes), match)


def test_a_backup_of_another_site_has_another_commit(pair: Pair) -> None:
    """There the version is one of that site's table."""
    source = BackedUp("chicago's", 12, "other@5")
    pair.adopt(pair.backup(site="chicago", source=source))
    pair.synchronized()


def test_a_backup_that_is_not_whole_is_refused(pair: Pair) -> None:
    """Fails when the table is replaced before the files are checked."""
    backup = pair.backup()
    (Path(backup.place.url) / "part-00000.parquet").write_bytes(b"r0ws")
    pair.refused(backup, "file part-00000.parquet was changed")


def test_a_table_that_another_one_has_its_rows_in_is_not_replaced(pair: Pair) -> None:
    dropped(pair)
    pair.target.id, pair.target.commits = "target-9", [commit(0)]
    pair.target.put('{"spark_wan": {"site": "seattle", "table": "customers", "apply": 1}}')
    with pytest.raises(Exception, match="applied as table customers at site seattle"):
        pair.adopt(pair.backup())
    assert pair.adopted() == []


def test_a_request_for_a_copy_is_withdrawn(pair: Pair) -> None:
    """Its rows are here. Fails when the whole table crosses the network all the same."""
    ack = Ack("seattle", NAME, "", 0, wanted=Wanted("r1"))
    pair.copies.put_ack(ack)
    pair.adopter(pair.backup()).check()
    assert pair.copies.ack("seattle") == ack
    pair.adopt(pair.backup())
    assert pair.copies.ack("seattle") == replace(ack, wanted=None)
    taker = CopyTaker("seattle", "orders", pair.copies, pair.target, pair.ledger())
    assert run(taker.round()).epochs == 0
    pair.synchronized()


def test_dead_letters_are_counted(pair: Pair) -> None:
    pair.target.letters_per_apply = 3
    assert pair.adopt(pair.backup()).dead_letters == 3
    assert pair.adopted()[0].applied[0].dead_letters == 3


def test_another_backup_follows_the_first(pair: Pair) -> None:
    """Also one of the same version: the site may have been written to since."""
    pair.adopt(pair.backup())
    pair.target.put(None)
    pair.adopt(pair.backup(backup="f" * 32))
    assert len(pair.adopted()) == 2
    ledger = pair.ledger()
    ledger.catch_up(pair.target)
    assert ledger.known_local == 0
    pair.synchronized()
