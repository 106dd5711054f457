"""Take protections out, one at a time, and see that a test fails for each: ``python tests/protections.py [name ...]``.

Works on copies of the last commit (git worktrees below the temporary folder), so that nothing here is changed. What was seen to fail stands in
the docstring of its test (*Taken out once*). Those that need a Spark session of their own take about a minute each, the others seconds.
"""

from __future__ import annotations

import os
import queue
import re
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

HERE = Path(__file__).parents[1]
COPIES = 2

J = "spark_wan/sender/job.py"
PUB = "spark_wan/sender/publish.py"
SINK = "spark_wan/sender/events_sink.py"
APP = "spark_wan/receiver/apply.py"
LED = "spark_wan/receiver/ledger.py"
EID = "spark_wan/receiver/event_ids.py"
TGT = "spark_wan/receiver/target.py"
APC = "spark_wan/receiver/applied.py"
CON = "spark_wan/receiver/constraints.py"
RJ = "spark_wan/receiver/job.py"
PLAN = "spark_wan/receiver/plan.py"
SRC = "spark_wan/sender/source.py"
OS_ = "spark_wan/channels/object_store.py"
DEL = "spark_wan/delta.py"
CAP = "spark_wan/sender/capture.py"
ACK = "spark_wan/sender/acks.py"
WIRE = "spark_wan/wire.py"
NET = "spark_wan/sender/netting.py"
LOG = "spark_wan/channels/log.py"
DS = "spark_wan/datasource.py"
BAT = "spark_wan/sender/batches.py"
TOP = "spark_wan/topology.py"
MEM = (
    PUB,
    "        last = self.log.last()\n",
    "        last = self.log.read(memory.number) if memory is not None else None\n",
)
PROG = (APP, "            self.ledger.progress,\n", "            type(self.ledger.progress)(),\n")
UNIT = "tests/unit/"
CRASH = "tests/crash/"
WITH_SPARK = "tests/integration/"
FAMILY = WITH_SPARK + "test_constraint_family.py::"
PROTECTIONS = [
    (
        "f01",
        [
            (
                PUB,
                "            append_in_time(self.log, manifest, self.clock)\n        except",
                '            append_in_time(self.log, manifest, self.clock)\n            yield "publish.4 frames-written"\n        except',
            ),
            (
                PUB,
                '        yield "publish.4 frames-written"\n        try:\n',
                "        try:\n",
            ),
        ],
        [CRASH + "test_sender_killed.py::test_f01_killed_before_publish[publish.4]"],
    ),
    ("f02", [MEM], [CRASH + "test_sender_killed.py::test_f02_killed_after_publish_before_its_checkpoint[publish.5]"]),
    (
        "f03",
        [
            (
                SRC,
                "replace(self.header, attempt=new_attempt(self.header.attempt))",
                'replace(self.header, attempt="0" * 32)',
            )
        ],
        [CRASH + "test_sender_killed.py::test_f03_killed_mid_batch"],
    ),
    (
        "keeper",
        [
            (
                ACK,
                "                    channel.trim_frames(stream, [frame.path for frame in manifest.frames])\n                    yield",
                "                    channel.trim_manifest(stream, number)\n                    yield",
            )
        ],
        [CRASH + "test_sender_killed.py::test_the_ack_keeper_is_killed_at_each_of_its_steps[keep.4]"],
    ),
    (
        "keeper2",
        [(ACK, "elif not (self._everyone_has(manifest) and self.done(manifest)):", "elif False:")],
        [CRASH + "test_sender_killed.py::test_the_ack_keeper_is_killed_at_each_of_its_steps[keep.5]"],
    ),
    (
        "f04",
        [(SINK, "if told in writes:", "if False:")],
        [CRASH + "test_sink_killed.py::test_f04_commit_killed_then_the_same_micro_batch_with_other_partitions[sink.4]"],
    ),
    (
        "f02sink",
        [(SINK, "if told in writes:", "if False:")],
        [CRASH + "test_sink_killed.py::test_f02_driver_killed_while_the_sink_commits[sink.4]"],
    ),
    (
        "f05",
        [(SINK, "            attempt=new_attempt(self.write_id),", '            attempt="0" * 32,')],
        [CRASH + "test_sink_killed.py::test_f05_frames_of_a_failed_attempt_are_never_named"],
    ),
    (
        "f06sink",
        [(TGT, "new = fresh & ~below", "new = F.lit(True)")],
        [CRASH + "test_sink_killed.py::test_f06_sinks_checkpoint_deleted"],
    ),
    (
        "f06",
        [MEM, PROG],
        [
            CRASH + "test_checkpoints.py::test_f06_checkpoint_deleted[sender]",
            CRASH + "test_checkpoints.py::test_f06_checkpoint_deleted[receiver]",
        ],
    ),
    (
        "f07",
        [MEM, PROG],
        [
            CRASH + "test_checkpoints.py::test_f07_checkpoint_restored_from_a_backup[sender]",
            CRASH + "test_checkpoints.py::test_f07_checkpoint_restored_from_a_backup[receiver]",
        ],
    ),
    (
        "f08send",
        [(OS_, 'obstore.put(self._store, path, data, mode="create")', "obstore.put(self._store, path, data)")],
        [CRASH + "test_two_at_once.py::test_f08_second_sender_is_faster"],
    ),
    (
        "f08recv",
        [(TGT, '.option("txnVersion", mark.apply)', "")],
        [CRASH + "test_two_at_once.py::test_f08_second_receiver_is_faster"],
    ),
    (
        "f08both",
        [
            (OS_, 'obstore.put(self._store, path, data, mode="create")', "obstore.put(self._store, path, data)"),
            (TGT, '.option("txnVersion", mark.apply)', ""),
            (TGT, '                session.conf.set("spark.databricks.delta.write.txnVersion", str(mark.apply))\n', ""),
        ],
        [CRASH + "test_two_at_once.py::test_f08_two_senders_and_two_receivers_in_two_processes"],
    ),
    (
        "f09",
        [
            (
                DEL,
                "    found, text = condition(error), error_text(error)\n    if found.startswith(_FEED_OFF)",
                "    return error\n    found, text = condition(error), error_text(error)\n    if found.startswith(_FEED_OFF)",
            ),
            (CAP, "    if newer[0].version != published + 1:", "    if False:"),
        ],
        [
            CRASH + "test_source_and_channel_faults.py::test_f09_history_overtakes_a_lagging_sender[VACUUM]",
            CRASH + "test_source_and_channel_faults.py::test_f09_history_overtakes_a_lagging_sender[log cleanup]",
        ],
    ),
    (
        "f12",
        [(RJ, "                if not self.waits:\n                    raise\n", "                raise\n")],
        [CRASH + "test_source_and_channel_faults.py::test_f12_channel_lost_in_the_middle_of_a_micro_batch"],
    ),
    (
        "f12b",
        [
            (
                J,
                '        except Exception as error:\n            self._hold(stream, "publishing", error)\n            return None\n        self._release',
                '        except TypeError as error:\n            self._hold(stream, "publishing", error)\n            return None\n        self._release',
            )
        ],
        [CRASH + "test_source_and_channel_faults.py::test_f12_channel_unreachable_for_a_while"],
    ),
    (
        "f20",
        [(WIRE, "    if actual != found or actual != expected:", "    if False:")],
        [CRASH + "test_source_and_channel_faults.py::test_f20_damaged_frame_holds_its_stream[altered]"],
    ),
    (
        "f20b",
        [(APP, "                if index:\n", "                if False:\n")],
        [
            CRASH + "test_source_and_channel_faults.py::test_f20_damaged_frame_holds_its_stream[truncated]",
            CRASH + "test_source_and_channel_faults.py::test_f20_damaged_frame_holds_its_stream[gone]",
        ],
    ),
    (
        "f23",
        [
            (
                APP,
                '            yield "apply.3 read"\n',
                '            outcome.applied = epochs[-1].manifest.number\n            self._ack(outcome, None)\n            yield "apply.3 read"\n',
            )
        ],
        [CRASH + "test_receiver_killed.py::test_f23_killed_before_the_table_commit[apply.3]"],
    ),
    ("f24", [PROG], [CRASH + "test_receiver_killed.py::test_f24_killed_after_commit_before_ack"]),
    (
        "f25",
        [
            (
                LED,
                "        if rows:\n            self.store.append",
                "        if rows and self._loaded is None:\n            self.store.append",
            )
        ],
        [CRASH + "test_receiver_killed.py::test_f25_killed_between_table_commit_and_ledger_commit"],
    ),
    (
        "f26",
        [
            (
                TGT,
                "            if is_conflict(error):\n                raise WriteConflict(error_text(error)) from error\n",
                "",
            )
        ],
        [
            CRASH + "test_target_faults.py::test_f26_another_commit_collides_with_an_apply[OPTIMIZE]",
            CRASH + "test_target_faults.py::test_f26_another_commit_collides_with_an_apply[local writer]",
        ],
    ),
    (
        "f26b",
        [(APP, "for _ in range(ATTEMPTS):", "for _ in range(10**6):")],
        [CRASH + "test_target_faults.py::test_f26_collisions_without_end"],
    ),
    (
        "f27a",
        [
            (
                TGT,
                "order += [F.col(SEQUENCE).desc(), F.col(ID).desc()]",
                "order += [F.col(SEQUENCE).asc(), F.col(ID).desc()]",
            )
        ],
        [CRASH + "test_sink_killed.py::test_f27_same_key_many_times_in_one_write"],
    ),
    (
        "f27b",
        [
            (
                TGT,
                "                if self.keys:\n                    events = _last_of_runs(events, self.keys)\n",
                "",
            ),
            (
                TGT,
                "            if newest.keys and (constrained or len(work.epochs) > 1 or not newest.disjoint):",
                "            if False:",
            ),
        ],
        [CRASH + "test_target_faults.py::test_f27_same_key_many_times_in_one_apply"],
    ),
    (
        "f55ids",
        [(LED, "        check_event_ids(self.table, self.site, marks, self.store.recorded_ids(self.table))\n", "")],
        [CRASH + "test_state_files.py::test_f55_any_one_file_of_a_state_is_not_what_it_was[deleted]"],
    ),
    (
        "f29",
        [(TGT, "below = F.lit(False) if floor is None else", "below = F.lit(False) if True else")],
        [CRASH + "test_sink_killed.py::test_f29_event_ids_expired_then_a_replay"],
    ),
    (
        "f30",
        [(CON, "        return found if found.each else None", "        return None")],
        [CRASH + "test_target_faults.py::test_f30_rows_that_the_target_refuses"],
    ),
    (
        "f53join",
        [(CON, "return bool(self.keys and self.needed - set(self.generated))", "return False")],
        [FAMILY + "test_f53_good_rows_arrive_and_the_target_computes_its_own"],
    ),
    (
        "f53raise",
        [(CON, "            view = keep(self._view(rows))\n", "            raise\n")],
        [FAMILY + "test_f53_a_row_that_breaks_a_constraint_is_a_dead_letter[check that raises-keyed]"],
    ),
    (
        "f53refused",
        [(TGT, "lengths=self._refused", "lengths=False")],
        [FAMILY + "test_f53_a_row_that_breaks_a_constraint_is_a_dead_letter[varchar that the origin declares-keyed]"],
    ),
    (
        "f53char",
        [(CON, "        if here != origin:\n", "        if False:\n")],
        [FAMILY + "test_f53_a_table_that_takes_no_row_is_held_by_name[char_key]"],
    ),
    (
        "f53cap",
        [(TGT, "                if work.dead_letters > self.max_dead_letters:", "                if False:")],
        [FAMILY + "test_f53_a_table_that_takes_no_row_is_held_by_name[too_many]"],
    ),
    (
        "lettercap",
        [(SRC, "return bool(self.keys) and len(told) > self.max_dead_letters", "return False")],
        [UNIT + "test_dead_letter_cap.py::test_a_task_ends_early"],
    ),
    (
        "letterparts",
        [
            (
                APP,
                "        while len(epochs) > 1:\n            epochs = epochs[: len(epochs) // 2]",
                "        while False:\n            epochs = epochs[: len(epochs) // 2]",
            )
        ],
        [UNIT + "test_dead_letter_cap.py::test_how_many_epochs_wait_decides_nothing"],
    ),
    (
        "letterdays",
        [(SRC, "    if types.is_date(kind) or types.is_timestamp(kind):\n        return pa.string()\n", "")],
        [UNIT + "test_receiver_letters.py::test_a_sender_sets_such_rows_aside_too[times]"],
    ),
    (
        "f32a",
        [
            (
                LED,
                "                if self.target_id is not None:\n                    raise TargetError(",
                "                if False:\n                    raise TargetError(",
            )
        ],
        [CRASH + "test_target_faults.py::test_f32_target_is_not_what_it_was[dropped]"],
    ),
    (
        "f32b",
        [(LED, "        if self.target_id is not None and target_id != self.target_id:", "        if False:")],
        [CRASH + "test_target_faults.py::test_f32_target_is_not_what_it_was[dropped and made again]"],
    ),
    (
        "f32c",
        [(LED, "        if newest < after:", "        if False:")],
        [CRASH + "test_target_faults.py::test_f32_target_is_not_what_it_was[put back from a backup]"],
    ),
    (
        "f32d",
        [(LED, 'if commit.operation == "RESTORE" and (self.target_id is not None or rows):', "if False:")],
        [CRASH + "test_target_faults.py::test_f32_target_is_not_what_it_was[RESTORE]"],
    ),
    (
        "b01",
        [(TGT, "WHEN MATCHED AND s.{OP} = {destroy} THEN DELETE ", "")],
        [WITH_SPARK + "test_propagation.py::test_b01_creates_updates_and_deletes_arrive"],
    ),
    (
        "b01key",
        [
            (
                NET,
                "np.where(has_new, np.where(has_old, Operation.PUT, Operation.CREATE), Operation.DESTROY)",
                "np.where(has_new, np.where(has_old, Operation.PUT, Operation.CREATE), Operation.PUT)",
            )
        ],
        [
            WITH_SPARK + "test_propagation.py::test_b01_a_key_change_is_a_destroy_and_a_create",
            WITH_SPARK + "test_propagation.py::test_b01_an_overwrite_arrives",
        ],
    ),
    (
        "b02",
        [
            (
                SRC,
                '            frames += [FrameRef(**entry) for entry in told["frames"]]',
                '            frames = [FrameRef(**entry) for entry in told["frames"]]',
            )
        ],
        [WITH_SPARK + "test_propagation.py::test_b02_a_bulk_load_is_complete"],
    ),
    (
        "b05",
        [
            (
                J,
                "table.name)\n        spark = self.spark",
                'table.name.replace("lines", "orders"))\n        spark = self.spark',
            )
        ],
        [WITH_SPARK + "test_propagation.py::test_b05_several_tables_on_one_channel_and_a_sender_for_others"],
    ),
    (
        "b27s",
        [(J, "        self._stop.set()\n        while self.is_active:", "        while self.is_active:")],
        [WITH_SPARK + "test_lifecycle.py::test_b27_stop_never_hangs_while_writers_run[sender-publish.2]"],
    ),
    (
        "b27r",
        [
            (
                RJ,
                "                try:\n                    query.stop()\n",
                "                try:\n                    pass\n",
            )
        ],
        [WITH_SPARK + "test_lifecycle.py::test_b27_stop_never_hangs_while_writers_run[receiver-apply.3]"],
    ),
    (
        "f50send",
        [
            (
                J,
                "        if is_cancelled(error):\n",
                "        if is_cancelled(error):\n            raise SystemExit(1)\n        if is_cancelled(error):\n",
            )
        ],
        [UNIT + "test_sender_handle.py::test_f50_a_job_cancelled_from_outside_holds_the_stream_and_is_done_again"],
    ),
    (
        "f50",
        [(RJ, "if idle and not self._cancelled():", "if idle:")],
        [
            UNIT
            + "test_inbound_turns.py::test_f50_a_job_cancelled_from_outside_is_said_and_done_again_within_the_micro_batch"
        ],
    ),
    (
        "f50stop",
        [(RJ, "if self.query is None or not self.waits:", "if False:")],
        [UNIT + "test_inbound_turns.py::test_f50_a_cancellation_that_may_be_a_stop_ends_the_micro_batch"],
    ),
    (
        "f50row",
        [(DEL, "or condition(each) in _CANCELLED", 'or "was cancelled" in str(each)')],
        [UNIT + "test_cancellation.py::test_f50_a_row_whose_value_says_cancelled_cancels_nothing"],
    ),
    (
        "f50lost",
        [(J, "        if lost is not None:\n            raise lost from error\n", "")],
        [UNIT + "test_sender_handle.py::test_f50_a_session_that_has_ended_ends_all_streams"],
    ),
    (
        "turns",
        [(RJ, "self._find_again(channel, refused) if self.waits else {}", "{}")],
        [UNIT + "test_inbound_turns.py::test_a_slow_table_delays_no_epoch_that_comes_meanwhile"],
    ),
    (
        "b38",
        [
            (
                PUB,
                "        published = self._through\n        history",
                "        published = self._through if before is None else self.source.newest().version - 1\n        history",
            )
        ],
        [WITH_SPARK + "test_lifecycle.py::test_b38_b39_restarts_during_writes_deliver_everything"],
    ),
    (
        "time",
        [("spark_wan/commits.py", "<= SAME_TIME", "== 0")],
        [WITH_SPARK + "test_bad_input.py::test_a_commit_whose_time_looks_different_is_still_the_same"],
    ),
    ("b38r", [PROG], [WITH_SPARK + "test_lifecycle.py::test_b38_b39_restarts_during_writes_deliver_everything"]),
    (
        "hint",
        [
            (APP, "doubtful = hint and not outcome.epochs", "doubtful = False"),
            (APP, "doubtful = confirmed = True", "confirmed = True"),
        ],
        [
            UNIT + "test_apply.py::test_a_wrong_hint_does_no_harm[True]",
            "tests/simulation/test_simulation.py::test_nothing_is_lost_doubled_or_reordered",
        ],
    ),
    (
        "seen",
        [
            (
                TGT,
                "self._end == (version, commit_identity(self.location, version))",
                "self._end[0] == version and os.path.exists(self.location)",
            )
        ],
        [UNIT + "test_target.py::test_a_target_that_was_put_back_is_not_unchanged"],
    ),
    (
        "raised",
        [(LED, "sound, self._sound = self._sound, False", "sound = self._sound")],
        [UNIT + "test_apply.py::test_f32_a_table_that_is_not_the_same_is_held_again_and_again"],
    ),
    (
        "large",
        [(SRC, "> MOST_ROW_BYTES, F.raise_error", "> 2**40, F.raise_error")],
        [WITH_SPARK + "test_batching.py::test_large_rows_are_found_and_travel"],
    ),
    (
        "settings",
        [("spark_wan/running.py", "for name, value in self.values.items():", "for name, value in ():")],
        [WITH_SPARK + "test_sessions.py::test_storage_that_only_the_users_session_can_reach"],
    ),
    (
        "b40",
        [(DS, '        "possible_duplicate": possible_duplicate,', '        "possible_duplicate": False,')],
        [WITH_SPARK + "test_lifecycle.py::test_b40_redelivered_batches_carry_the_possible_duplicate_mark"],
    ),
    (
        "b45",
        [(BAT, "while count > self.limits.rows or (size > self.limits.bytes and count > 1):", "while False:")],
        [WITH_SPARK + "test_sink.py::test_b45_frames_are_bounded_by_rows_and_bytes"],
    ),
    (
        "chain",
        [
            (
                CAP,
                "if commit.changes_rows and (lacking := _lacking(commit, addressees)):",
                "if lacking := _lacking(commit, ()):",
            )
        ],
        [WITH_SPARK + "test_odd_places.py::test_a_chain_of_two_topologies_is_held_at_the_middle"],
    ),
    (
        "places",
        [(TOP, "parts = tuple(part.lower() for part in catalog_parts(location))", "parts = (location.lower(),)")],
        [UNIT + "test_places.py::test_two_spellings_of_one_place_are_one_place"],
    ),
    (
        "b80",
        [(TGT, "        for statement in statements:\n", "        for statement in ():\n")],
        [
            WITH_SPARK + "test_schema.py::test_b80_added_columns_reach_the_target",
            WITH_SPARK + "test_schema.py::test_b80_also_when_the_target_starts_late",
        ],
    ),
    (
        "f49",
        [(PUB, "        return self.clock() >= self._record_at\n", "        return False\n")],
        [
            UNIT
            + "test_resting_tables.py::test_f49_a_source_that_is_quiet_for_longer_than_its_log_keeps_commits_goes_on"
        ],
    ),
    (
        "f49quiet",
        [(PUB, "return self._record_at is not None and self.clock() >= self._record_at", "return False")],
        [UNIT + "test_resting_tables.py::test_f49_quiet_commits_are_recorded_while_nothing_else_happens"],
    ),
    (
        "f49seen",
        [
            (
                LED,
                "            self.store.append(self.table, [Seen(self.target_id, self._looked, self._last, self.columns.moved)])\n",
                "",
            )
        ],
        [UNIT + "test_resting_tables.py::test_f49_a_target_that_rests_for_longer_than_its_log_keeps_commits_goes_on"],
    ),
    (
        "f49same",
        [(LED, "there is None or is_same_commit(there.identity, self._last)", "True")],
        [UNIT + "test_resting_tables.py::test_what_was_seen_of_a_table_that_was_put_back_since_hides_no_mark"],
    ),
    (
        "f49gap",
        [(LED, "if following != self.last_apply:", "if False:")],
        [UNIT + "test_resting_tables.py::test_a_mark_that_log_cleanup_took_unseen_holds"],
    ),
    (
        "f49stale",
        [(RJ, " and not self._is_stale(stream)", "")],
        [UNIT + "test_resting_tables.py::test_f49_the_target_of_an_idle_stream_is_caught_up_daily"],
    ),
    (
        "f49wake",
        [(DS, "if time.monotonic() >= self._look_at:", "if False:")],
        [UNIT + "test_resting_tables.py::test_a_receiver_to_which_nothing_is_sent_is_woken_now_and_then"],
    ),
    (
        "f54",
        [(LED, 'return f"spark_wan/{site}/{table}/{target_id}"', 'return f"spark_wan/{site}/{target_id}"')],
        [UNIT + "test_reused_places.py::test_f54_a_new_name_at_an_emptied_place_is_applied"],
    ),
    (
        "f54rows",
        [(LED, "if others and not target.is_empty():", "if False:")],
        [UNIT + "test_reused_places.py::test_f54_a_new_name_at_a_place_with_rows_of_another_is_held"],
    ),
    (
        "f54two",
        [(LED, 'if "site" in other and (self.target_id is not None or rows):', "if False:")],
        [UNIT + "test_reused_places.py::test_two_names_at_one_place_are_held"],
    ),
    (
        "f54skip",
        [(APP, "if self.ledger.last_apply < number:", "if False:")],
        [
            UNIT
            + "test_reused_places.py::test_a_write_that_delta_skips_though_no_apply_has_its_number_is_held_with_its_cause"
        ],
    ),
    (
        "java-time",
        [
            (
                SRC,
                "settings = [JAVA_TIME, _ACROSS] if across else [JAVA_TIME]\n        if not is_connect(self.spark):",
                "settings = [_ACROSS] if across else []\n        if not is_connect(self.spark):",
            )
        ],
        [WITH_SPARK + "test_type_family.py::test_f45_dates_and_timestamps_through_the_change_feed"],
    ),
    (
        "java-time-connect",
        [(SRC, '                session.conf.set(name, "true")\n', "                pass\n")],
        [
            UNIT + "test_change_feed.py::test_a_remote_session_is_not_changed",
            WITH_SPARK + "test_type_family.py::test_f45_dates_over_connect_in_a_jvm_with_another_zone",
        ],
    ),
    (
        "text-replaced",
        [(SRC, "                check_text()\n", "                pass\n")],
        [WITH_SPARK + "test_type_family.py::test_what_the_feed_would_change_is_held_by_name"],
    ),
    (
        "text-refused",
        [(SRC, "frame = refuse(frame, schema, F.lit(version), text=True)", "pass")],
        [WITH_SPARK + "test_type_family.py::test_what_the_feed_would_change_is_held_by_name"],
    ),
    (
        "maps-refused",
        [(SRC, "feed = refuse(feed, planned.schema, F.col(COMMIT_VERSION), text=False)", "pass")],
        [WITH_SPARK + "test_type_family.py::test_what_the_feed_would_change_is_held_by_name"],
    ),
    (
        "old-files",
        [(TGT, '        session.conf.set(name, "CORRECTED")\n', "        pass\n")],
        [WITH_SPARK + "test_type_family.py::test_dates_of_a_users_stream"],
    ),
    (
        "char-keys",
        [(TGT, '    session.conf.set("spark.sql.readSideCharPadding", "false")\n', "")],
        [WITH_SPARK + "test_type_family.py::test_every_type_as_key"],
    ),
    (
        "milliseconds",
        [(TGT, 'session.conf.set("spark.sql.parquet.outputTimestampType", "TIMESTAMP_MICROS")', "pass")],
        [WITH_SPARK + "test_type_family.py::test_dates_of_a_users_stream"],
    ),
    (
        "f46 followed",
        [(LED, "columns = columns.after(commit)\n", "columns = columns\n")],
        [
            UNIT + "test_applied_columns.py::test_f46_a_column_that_is_added_under_the_old_name_is_another_one",
            UNIT + "test_applied_columns.py::test_f46_columns_that_change_names_with_each_other_hold_the_stream",
        ],
    ),
    (
        "f46 planned before",
        [(APC, "None if known != path and place == path else", "None if False else")],
        [
            UNIT
            + "test_applied_columns.py::test_an_apply_that_was_planned_before_the_change_is_not_undone_by_renaming_back"
        ],
    ),
    (
        "f46 checked",
        [(TGT, "            applied.check(here, travelling, self.table, self.site, name, users)\n", "")],
        [
            WITH_SPARK + "test_ddl_family.py::test_f46_ddl_while_an_epoch_waits[target-renamed]",
            WITH_SPARK + "test_ddl_family.py::test_f46_ddl_while_an_epoch_waits[target-dropped-and-added]",
        ],
    ),
    (
        "f41 renamed",
        [(CAP, "                names.rename(*commit.renamed)\n", "                pass\n")],
        [
            UNIT + "test_capture.py::test_f41_names_that_are_exchanged_hold_the_stream",
            UNIT + "test_capture.py::test_f41_renames_that_are_undone_are_one_range_from_the_first_to_the_last",
        ],
    ),
    (
        "f41 replaced",
        [(CAP, "                _check_nothing_dropped(", "                (lambda *_: None)(")],
        [UNIT + "test_capture.py::test_columns_that_are_dropped_by_replacing_them_hold_the_stream"],
    ),
    (
        "b81 own fields",
        [("spark_wan/receiver/reconcile.py", "for path in found.dropped if len(path) > 1]", "for path in ()]")],
        [UNIT + "test_reconcile.py::test_b81_what_cannot_be_reconciled_is_named_with_a_way_out"],
    ),
    (
        "f48 keys",
        [(PUB, "        if known.keys != self.settings.keys:\n", "        if False:\n")],
        [
            UNIT + "test_publish.py::test_changed_keys_are_refused",
            UNIT
            + "test_publish.py::test_f48_a_source_is_compared_with_what_was_published[other keys-after a lost log]",
        ],
    ),
    (
        "f48 commit",
        [
            (
                PUB,
                "        if commit is not None and is_same_commit(commit.identity, known.identity):",
                "        if commit is not None:",
            )
        ],
        [
            UNIT + "test_publish.py::test_f07_a_source_put_back_and_written_to_again_is_held[1]",
            UNIT + "test_publish.py::test_f48_a_source_is_compared_with_what_was_published[put back-with its log]",
            UNIT + "test_publish.py::test_f48_a_source_is_compared_with_what_was_published[put back-after a lost log]",
        ],
    ),
    (
        "f48 other commit",
        [
            (
                PUB,
                "        if commit is not None:\n            raise TableReplacedError(",
                "        if False:\n            raise TableReplacedError(",
            )
        ],
        [
            UNIT + "test_publish.py::test_f07_a_source_put_back_and_written_to_again_is_held[1]",
            UNIT + "test_publish.py::test_f48_a_source_is_compared_with_what_was_published[put back-after a lost log]",
        ],
    ),
    (
        "f48 table",
        [(PUB, "        if known.table_id != table_id:\n", "        if False:\n")],
        [
            UNIT + "test_publish.py::test_a_table_that_was_replaced_is_held",
            UNIT + "test_publish.py::test_the_log_of_a_users_stream_is_not_gone_on_with[None]",
            UNIT + "test_publish.py::test_the_log_of_a_users_stream_is_not_gone_on_with[0]",
        ],
    ),
    (
        "f48 older",
        [(PUB, "        elif latest < published:\n", "        elif False:\n")],
        [UNIT + "test_publish.py::test_a_source_put_back_to_an_older_state_is_held"],
    ),
    (
        "f48 columns moved",
        [(PUB, "published_schema=before.schema if before is not None else None,", "published_schema=None,")],
        [
            UNIT
            + "test_publish.py::test_f41_a_dropped_column_holds_the_stream_also_when_one_of_its_name_came_back[True]",
            UNIT + "test_publish.py::test_a_change_between_a_rename_and_the_rename_back_is_the_cause",
        ],
    ),
    (
        "f48 columns at all",
        [
            (PUB, "published_schema=before.schema if before is not None else None,", "published_schema=None,"),
            (
                PUB,
                "        if before is not None:\n            check_columns_follow",
                "        if False:\n            check_columns_follow",
            ),
        ],
        [
            UNIT + "test_publish.py::test_f48_a_source_is_compared_with_what_was_published[renamed-after a lost log]",
            UNIT
            + "test_publish.py::test_f48_a_source_is_compared_with_what_was_published[dropped and added-with its log]",
            UNIT
            + "test_publish.py::test_f48_a_source_is_compared_with_what_was_published[dropped and added-after a lost log]",
        ],
    ),
    (
        "f48 columns",
        [
            (
                PUB,
                "        if before is not None:\n            check_columns_follow",
                "        if False:\n            check_columns_follow",
            )
        ],
        [
            UNIT + "test_publish.py::test_f48_a_source_is_compared_with_what_was_published[overwritten-with its log]",
            UNIT
            + "test_publish.py::test_f48_a_source_is_compared_with_what_was_published[overwritten-after a lost log]",
        ],
    ),
    (
        "f48 remembered",
        [(PUB, "if last is not None else remembered\n", "if last is not None else None\n")],
        [
            UNIT + "test_publish.py::test_f48_a_log_that_is_gone_may_begin_anew_after_what_was_published",
            UNIT + "test_publish.py::test_f48_a_source_is_compared_with_what_was_published[renamed-after a lost log]",
        ],
    ),
    (
        "f48 memory",
        [
            (
                PUB,
                "replace(memory, number=manifest.number, published=Published.by(manifest))",
                "replace(memory, number=manifest.number)",
            )
        ],
        [UNIT + "test_publish.py::test_f48_a_log_that_is_gone_may_begin_anew_after_what_was_published"],
    ),
    (
        "f48 start",
        [(PUB, "start=self._published is None,", "start=last is None,")],
        [UNIT + "test_publish.py::test_f48_a_log_that_is_gone_may_begin_anew_after_what_was_published"],
    ),
    (
        "f48 at once",
        [(PUB, "if not newer and (self._published is None or stamp == checked):", "if not newer:")],
        [UNIT + "test_publish.py::test_f07_a_source_put_back_and_written_to_again_is_held[0]"],
    ),
    (
        "f07 idle",
        [(PUB, "stamp == checked):", "checked is not None):")],
        [UNIT + "test_publish.py::test_f07_a_source_that_is_replaced_by_one_with_as_many_versions_is_held[nothing]"],
    ),
    (
        "f07 met",
        [(PUB, "checked, self._checked = self._checked, None", "checked = self._checked")],
        [
            UNIT + f"test_publish.py::test_f07_a_source_that_is_replaced_by_one_with_as_many_versions_is_held[{seen}]"
            for seen in ("no table", "fewer versions", "another table, in vain")
        ],
    ),
    (
        "f07 stamp",
        [(SRC, "return commit_identity(self.location, version) or", "return version or")],
        [
            UNIT + f"test_source_stamp.py::test_a_table_that_may_be_another_one_has_another_stamp[{what}]"
            for what in ("made again", "put back")
        ],
    ),
    (
        "f07 stamp of a copy",
        [(DEL, "found.st_ctime_ns", "found.st_mtime_ns")],
        [UNIT + "test_source_stamp.py::test_a_table_that_may_be_another_one_has_another_stamp[copied over]"],
    ),
    (
        "acks of what is written",
        [
            (
                DS,
                "            except WanError as error:\n                log.warning",
                "            except KeyError as error:\n                log.warning",
            )
        ],
        [UNIT + "test_events_sink.py::test_an_epoch_that_is_in_the_log_is_written_whatever_becomes_of_its_acks"],
    ),
    (
        "clock probe",
        [(OS_, "_FRAME, _ACK, _PROBE)", "_FRAME, _ACK)")],
        [UNIT + "test_channels.py::test_the_clock_of_a_store_is_that_of_its_frames"],
    ),
    (
        "f07 stamp elsewhere",
        [(SRC, "or time.monotonic() // CHECK_INTERVAL", "or 1")],
        [UNIT + "test_source_stamp.py::test_a_table_whose_log_cannot_be_seen_has_another_stamp_each_hour"],
    ),
    (
        "held alone",
        [
            (
                J,
                "                if published is None:\n                    return\n",
                "                if published is None:\n                    assert not stream.status.held\n                    return\n",
            )
        ],
        [UNIT + "test_sender_handle.py::test_a_stream_that_is_held_stops_no_other_of_a_run_that_is_to_end"],
    ),
    (
        "users not captured",
        [(PUB, "if last is not None and last.kind == EVENTS:", "if False:")],
        [UNIT + "test_publish.py::test_the_log_of_a_users_stream_is_not_gone_on_with"],
    ),
    (
        "sink not captured",
        [(J, 'if table.source == "table":', "if table.source:")],
        [
            WITH_SPARK
            + "test_sink.py::test_a_sender_of_the_whole_topology_keeps_a_users_stream_and_captures_nothing_of_it"
        ],
    ),
    (
        "f48 no snapshot",
        [
            (
                PUB,
                "        if not replaced and remembered is None and self.settings.start is None:\n",
                "        if False:\n",
            )
        ],
        [UNIT + "test_publish.py::test_f48_a_snapshot_is_no_way_out_of_a_lost_log"],
    ),
    (
        "f48 replaced",
        [(PUB, "        if not replaced and remembered is None and", "        if remembered is None and")],
        [UNIT + "test_publish.py::test_f17_a_channel_that_another_log_took_is_held[None]"],
    ),
    (
        "f48 users stream",
        [(ACK, "Published.by(last) if last.kind != EVENTS else None", "Published.by(last)")],
        [UNIT + "test_publish.py::test_a_users_stream_has_published_nothing_of_the_table"],
    ),
    (
        "f49 error",
        [
            (
                PUB,
                "        published = self._through\n        history",
                "        published, self._record_at = self._through, None\n        history",
            )
        ],
        [UNIT + "test_resting_tables.py::test_f49_quiet_commits_are_recorded_after_an_error"],
    ),
    (
        "quiet put back",
        [(PUB, "            self._quiet_through = -1\n            return latest > published\n", "            pass\n")],
        [UNIT + "test_publish.py::test_a_source_put_back_among_what_was_quiet_goes_on"],
    ),
    (
        "f41 cut",
        [
            (
                PUB,
                'commit.operation == "RENAME COLUMN" for commit in planned.commits',
                "False for commit in planned.commits",
            )
        ],
        [UNIT + "test_publish.py::test_a_change_between_a_rename_and_the_rename_back_is_the_cause"],
    ),
    (
        "f41 rows",
        [(CAP, "may_end = bool(taken) and not names.moved", "may_end = bool(taken)")],
        [
            UNIT + "test_capture.py::test_f41_renames_that_are_undone_are_one_range_from_the_first_to_the_last[10]",
            UNIT + "test_capture.py::test_f41_names_that_are_exchanged_hold_the_stream",
        ],
    ),
    (
        "f41 back",
        [(CAP, "        if names.are_back:\n            # All", "        if False:\n            # All")],
        [UNIT + "test_capture.py::test_f41_renames_that_are_undone_are_one_range_from_the_first_to_the_last[1000000]"],
    ),
    (
        "f41 across",
        [(CAP, "    if names.are_back:\n        last, schema", "    if False:\n        last, schema")],
        [UNIT + "test_capture.py::test_f41_renames_that_are_undone_are_one_range_from_the_first_to_the_last[10]"],
    ),
    (
        "aborted",
        [(DS, "        if all(isinstance(message, _Written) for message in messages):\n            return\n", "")],
        [UNIT + "test_events_sink.py::test_a_manifest_that_arrives_after_its_write_was_aborted_has_its_frames"],
    ),
    (
        "aborted task",
        [(DS, "        if all(isinstance(message, _Written) for message in messages):\n", "        if True:\n")],
        [UNIT + "test_events_sink.py::test_a_manifest_that_arrives_after_its_write_was_aborted_has_its_frames"],
    ),
    (
        "refused frames",
        [
            (
                SINK,
                "                remove_unnamed(log, frames)\n            raise\n",
                "                pass\n            raise\n",
            )
        ],
        [
            UNIT + "test_events_sink.py::test_what_is_refused_leaves_no_frames",
            UNIT + "test_events_sink.py::test_a_write_for_other_sites_is_refused",
        ],
    ),
    (
        "refused late",
        [(SINK, "            if not tried:  #", "            if True:  #")],
        [UNIT + "test_events_sink.py::test_what_is_refused_after_a_manifest_was_tried_leaves_its_frames"],
    ),
    (
        "remotes",
        [(SINK, "    if left:\n", "    if False:\n")],
        [UNIT + "test_events_sink.py::test_a_write_for_other_sites_is_refused"],
    ),
    (
        "former remotes",
        [
            (
                SINK,
                "sorted({*last.addressees} - {*options.remotes, *former})",
                "sorted({*last.addressees} - {*options.remotes})",
            )
        ],
        [UNIT + "test_events_sink.py::test_a_write_for_other_sites_is_refused"],
    ),
    (
        "remotes of a file",
        [
            (
                SINK,
                "former = last.addressees if options.former_remotes is None else options.former_remotes",
                "former = options.former_remotes or ()",
            )
        ],
        [UNIT + "test_events_sink.py::test_a_write_for_other_sites_is_refused"],
    ),
    (
        "f47 stale",
        [(PUB, "if now - began > STALE_AGE * 1000 and not are_safe(self.log, manifest.frames):", "if False:")],
        [UNIT + "test_publish.py::test_f47_frames_that_may_be_swept_are_not_named[False]"],
    ),
    (
        "f47 stale sink",
        [
            (
                SINK,
                "        if now - min(part.began for part in written) > STALE_AGE * 1000 and not are_safe(log, frames):\n",
                "        if False:\n",
            )
        ],
        [UNIT + "test_events_sink.py::test_f47_frames_that_may_be_swept_are_not_named"],
    ),
    (
        "f47 days",
        [(PUB, "> STALE_AGE * 1000 and not are_safe(self.log, manifest.frames):", "> STALE_AGE * 1000:")],
        [UNIT + "test_publish.py::test_a_snapshot_may_take_days"],
    ),
    (
        "f47 days sink",
        [(SINK, "> STALE_AGE * 1000 and not are_safe(log, frames):", "> STALE_AGE * 1000:")],
        [UNIT + "test_events_sink.py::test_a_write_may_take_days"],
    ),
    (
        "f47 there",
        [(ACK, "frame.path in there and newest[", "newest[")],
        [
            UNIT + "test_publish.py::test_f47_frames_that_may_be_swept_are_not_named[True]",
            UNIT + "test_acks.py::test_f47_the_frames_of_a_write_are_as_old_as_the_newest_of_them",
        ],
    ),
    (
        "f47 age",
        [(ACK, " and newest[write_of(frame.path)] > now - STALE_AGE for", " for")],
        [
            UNIT + "test_publish.py::test_f47_frames_that_may_be_swept_are_not_named[False]",
            UNIT + "test_events_sink.py::test_f47_frames_that_may_be_swept_are_not_named",
        ],
    ),
    (
        "f47 write",
        [
            (
                ACK,
                "newest[write_of(path)] = max(time, newest.get(write_of(path), time))",
                "newest[write_of(path)] = min(time, newest.get(write_of(path), time))",
            )
        ],
        [UNIT + "test_acks.py::test_f47_the_frames_of_a_write_are_as_old_as_the_newest_of_them"],
    ),
    (
        "f47 sweep",
        [
            (
                ACK,
                "[path for path in unnamed if newest[write_of(path)] < now - older_than]",
                "[path for path, time in written if path in unnamed and time < now - older_than]",
            ),
        ],
        [UNIT + "test_acks.py::test_f47_the_frames_of_a_write_are_as_old_as_the_newest_of_them"],
    ),
    (
        "f47 attempts",
        [
            (
                "spark_wan/channels/base.py",
                "return write[:_OF_WRITE] + uuid.uuid4().hex[_OF_WRITE:]",
                "return uuid.uuid4().hex",
            )
        ],
        [
            UNIT + "test_acks.py::test_f47_the_frames_of_a_write_are_as_old_as_the_newest_of_them",
            UNIT + "test_batches.py::test_f47_the_frames_of_all_tasks_of_a_capture_are_one_write",
            UNIT + "test_events_sink.py::test_f47_the_frames_of_all_tasks_are_one_write",
        ],
    ),
    (
        "f47 attempts source",
        [
            (
                SRC,
                "replace(self.header, attempt=new_attempt(self.header.attempt))",
                'replace(self.header, attempt=new_attempt(__import__("uuid").uuid4().hex))',
            )
        ],
        [UNIT + "test_batches.py::test_f47_the_frames_of_all_tasks_of_a_capture_are_one_write"],
    ),
    (
        "f47 attempts sink",
        [(SINK, "attempt=new_attempt(self.write_id),", "attempt=uuid.uuid4().hex,")],
        [UNIT + "test_events_sink.py::test_f47_the_frames_of_all_tasks_are_one_write"],
    ),
    (
        "f47 micro-batches",
        [(DS, 'f"{self.write_id} {batch}".encode()', "self.write_id.encode()")],
        [UNIT + "test_events_sink.py::test_f47_the_frames_of_all_tasks_are_one_write"],
    ),
    (
        "f47 own clock",
        [
            (
                ACK,
                "newest, now = _newest_frames(written), channel.now()",
                "newest, now = _newest_frames(written), self.clock() / 1000",
            )
        ],
        [UNIT + "test_acks.py::test_the_age_of_a_frame_is_told_by_the_stores_clock"],
    ),
    (
        "f47 inside append",
        [
            (
                ACK,
                "    if clock() - began > STALE_AGE * 1000 and not are_there(log, manifest.frames):\n",
                "    if False:\n",
            )
        ],
        [
            UNIT + "test_publish.py::test_f47_frames_that_were_swept_inside_append_are_not_named",
            UNIT + "test_events_sink.py::test_f47_frames_that_were_swept_inside_append_are_not_named",
        ],
    ),
    (
        "f47 taken back",
        [(ACK, "        if log.newest() == manifest.number:\n", "        if False:\n")],
        [
            UNIT + "test_publish.py::test_f47_frames_that_were_swept_inside_append_are_not_named",
            UNIT + "test_events_sink.py::test_f47_frames_that_were_swept_inside_append_are_not_named",
        ],
    ),
    (
        "f55 sweep",
        [(ACK, " or not self._is_whole(numbers, manifests[-1]):", ":")],
        [UNIT + "test_acks.py::test_f55_frames_that_a_restored_manifest_names_are_not_swept[missing1-True]"],
    ),
    (
        "f47 late",
        [(ACK, "        self._check_strays(last, strays)\n", "")],
        [UNIT + "test_acks.py::test_f47_a_late_manifest_of_a_lost_log_above_a_new_one_is_told"],
    ),
    (
        "remotes of a keeper",
        [(ACK, "frozenset(gone if self.former is None else gone & set(self.former))", "frozenset(gone)")],
        [UNIT + "test_events_sink.py::test_a_write_for_other_sites_trims_nothing_that_those_lack[empty-False]"],
    ),
    (
        "f47 below",
        [
            (
                LOG,
                "        if self._follows(manifest):\n            return True\n        listed",
                "        if self._is_there(manifest.number - 1):\n            return self._follows(manifest)\n        listed",
            )
        ],
        [UNIT + "test_log.py::test_f47_a_manifest_above_a_stray_counts"],
    ),
    (
        "f47 anew",
        [(LOG, "return not below or not self._began_since(below, manifest)", "return True")],
        [
            UNIT + "test_log.py::test_a_manifest_above_a_new_log_does_not_count[1]",
            UNIT + "test_log.py::test_a_manifest_above_a_new_log_does_not_count[9]",
        ],
    ),
    (
        "f47 slower",
        [
            (
                LOG,
                "return found.incarnation != manifest.incarnation and found.created > manifest.created",
                "return found.incarnation != manifest.incarnation",
            )
        ],
        [UNIT + "test_log.py::test_a_manifest_above_the_first_one_of_a_slower_writer_counts"],
    ),
    (
        "f47 brought back",
        [
            (
                LOG,
                "return self.read(manifest.number + 1).previous == manifest.fingerprint",
                "return self._follows(manifest) or self.read(manifest.number + 1).previous == manifest.fingerprint",
            )
        ],
        [UNIT + "test_log.py::test_f47_a_manifest_that_a_repeated_write_has_brought_back_is_no_proof"],
    ),
    (
        "f47 counts",
        [(LOG, "        if not self._counts(manifest):\n", "        if False:\n")],
        [
            UNIT + "test_log.py::test_f47_a_writer_that_freezes_inside_append_leaves_no_stray[True-4-1]",
            UNIT + "test_log.py::test_a_manifest_above_a_new_log_does_not_count[1]",
        ],
    ),
    (
        "f47 next",
        [(LOG, "return self.read(manifest.number + 1).previous == manifest.fingerprint", "return True")],
        [
            UNIT + "test_log.py::test_f47_a_writer_that_freezes_inside_append_leaves_no_stray[False-4-1]",
            UNIT + "test_log.py::test_f47_a_manifest_above_a_stray_counts",
        ],
    ),
    (
        "f47 next trimmed",
        [
            (
                LOG,
                "so this one, if it counted, would be trimmed too.\n            return False\n",
                "so this one, if it counted, would be trimmed too.\n            return True\n",
            )
        ],
        [UNIT + "test_log.py::test_f47_a_writer_that_freezes_inside_append_leaves_no_stray[True-4-1]"],
    ),
    (
        "listed twice",
        [(LOG, "return listed if len(listed) > 1 else self.channel.stream_numbers(self.stream)", "return listed")],
        [
            UNIT + "test_log.py::test_a_listing_without_the_newest_manifest_is_made_again[torn0]",
            UNIT + "test_log.py::test_a_listing_without_the_newest_manifest_is_made_again[torn1]",
        ],
    ),
    (
        "listed and trimmed",
        [
            (
                LOG,
                "                if newest == before or self._is_there(newest):\n                    raise\n",
                "                raise\n",
            )
        ],
        [UNIT + "test_log.py::test_a_log_that_moved_on_since_it_was_listed_has_its_newest_manifest"],
    ),
    (
        "listed for a query",
        [(DS, "max(ends.get(stream, 0), StreamLog(self.channel, stream).newest())", "ends.get(stream, 0)")],
        [UNIT + "test_source_listing.py::test_a_listing_without_a_log_that_is_there_ends_no_query"],
    ),
    (
        "f50 stopped",
        [(RJ, "        if self._stop.is_set() or (self._once and failure is None):\n", "        if True:\n")],
        [UNIT + "test_receiver_says.py::test_f50_a_query_that_somebody_stopped_ends_with_an_error"],
    ),
    (
        "f50 stopped once",
        [(RJ, "(self._once and failure is None)", "self._once")],
        [UNIT + "test_receiver_handle.py::test_a_run_that_is_to_end_and_was_stopped_from_outside_ends_with_an_error"],
    ),
    (
        "f50 channel",
        [
            (
                RJ,
                "        except ChannelError as error:\n            self._trouble = str(error)\n            raise\n",
                "        except ChannelError:\n            raise\n",
            )
        ],
        [UNIT + "test_receiver_says.py::test_f50_a_channel_that_does_not_answer_holds_its_streams"],
    ),
    (
        "f50 channel answers",
        [(RJ, "            raise\n        self._trouble = None\n", "            raise\n")],
        [UNIT + "test_receiver_says.py::test_f50_a_channel_that_does_not_answer_holds_its_streams"],
    ),
    (
        "f50 woken",
        [
            (
                DS,
                "            if not self._wakes or self._target is not None:\n                raise\n",
                "            raise\n",
            )
        ],
        [UNIT + "test_receiver_says.py::test_f50_a_source_wakes_its_receiver_when_the_channel_does_not_answer"],
    ),
    (
        "f50 woken only",
        [(DS, "            if not self._wakes or self._target is not None:\n                raise\n", "")],
        [UNIT + "test_receiver_says.py::test_f50_a_source_wakes_its_receiver_when_the_channel_does_not_answer"],
    ),
    (
        "connect channel",
        [(RJ, "            self._trouble = str(error)\n            return self.statuses()\n", "            raise\n")],
        [UNIT + "test_receiver_says.py::test_under_connect_what_cannot_be_read_is_held"],
    ),
    (
        "connect stream",
        [
            (
                RJ,
                '                self._status(name, self._tables.get(name, "")).held = str(error)\n                continue\n',
                "                raise\n",
            )
        ],
        [UNIT + "test_receiver_says.py::test_under_connect_what_cannot_be_read_is_held"],
    ),
    (
        "left hold",
        [(RJ, "        for stream in self._asked(done):\n", "        for stream in ():\n")],
        [UNIT + "test_receiver_says.py::test_a_hold_that_another_receiver_left_is_answered"],
    ),
    (
        "left hold told",
        [(RJ, "        return ack is not None and ack.held is not None\n", "        return False\n")],
        [UNIT + "test_receiver_says.py::test_a_hold_that_another_receiver_left_is_answered"],
    ),
    (
        "left hold unreadable",
        [(RJ, "            return True  # the round says what is wrong\n", "            return False\n")],
        [UNIT + "test_receiver_says.py::test_an_answer_that_cannot_be_read_is_told"],
    ),
    (
        "left hold tried",
        [(RJ, "            self._done.pop(stream.stream, None)\n", "")],
        [UNIT + "test_receiver_says.py::test_a_hold_that_was_taken_over_is_tried_in_its_time"],
    ),
    (
        "removed stream",
        [
            (
                RJ,
                "                if stream not in listed:\n                    status.held",
                "                if False:\n                    status.held",
            )
        ],
        [UNIT + "test_receiver_says.py::test_a_stream_that_was_removed_is_not_told_as_held"],
    ),
    (
        "one tables ledger",
        [
            (
                RJ,
                "            self._refuse(stream, None, numbers[-1], str(error))\n            return\n",
                "            raise\n",
            )
        ],
        [UNIT + "test_receiver_says.py::test_decisions_that_cannot_be_recorded_hold_their_table_alone"],
    ),
    (
        "removed while read",
        [("spark_wan/status.py", "    if not numbers:\n", "    if False:\n")],
        [UNIT + "test_status.py::test_a_stream_that_is_removed_while_it_is_read_is_no_problem"],
    ),
    (
        "f47 ledger",
        [(LED, "            self.forget()\n            raise\n", "            raise\n")],
        [
            UNIT + "test_ledger.py::test_f47_a_receiver_that_was_frozen_past_the_log_retention_reads_the_ledger_again",
            UNIT + "test_ledger.py::test_f55_marks_without_which_event_ids_do_not_count_are_missed",
        ],
    ),
    (
        "f55 marks",
        [(EID, "    if lost and users:\n", "    if False:\n")],
        [
            UNIT + "test_ledger.py::test_f55_marks_without_which_event_ids_do_not_count_are_missed",
            UNIT + "test_ledger.py::test_f55_a_user_s_marks_that_are_lost_below_those_of_a_captured_stream_are_missed",
        ],
    ),
    (
        "f55 marks from 1",
        [(EID, "range(1, max(numbers, default=0) + 1)", "range(min(numbers, default=1), max(numbers, default=0) + 1)")],
        [UNIT + "test_ledger.py::test_f55_a_user_s_marks_that_are_lost_below_those_of_a_captured_stream_are_missed"],
    ),
    (
        "f55 marks untold",
        [
            (
                EID,
                "any(mark.ids for mark in marks) or recorded.tokens - {mark.token for mark in marks}",
                "any(mark.ids for mark in marks)",
            )
        ],
        [UNIT + "test_ledger.py::test_f55_event_ids_tell_of_a_users_stream_whose_marks_are_all_lost"],
    ),
    (
        "f55 marks captured",
        [(EID, "    if lost and users:\n", "    if lost:\n")],
        [UNIT + "test_ledger.py::test_f55_a_captured_stream_alone_needs_its_newest_mark_only"],
    ),
    (
        "f55 uncounted",
        [(EID, "    if uncounted and not any(recorded.has(mark) for mark in uncounted):\n", "    if False:\n")],
        [UNIT + "test_ledger.py::test_f55_event_ids_of_version_0_1_0_that_are_all_gone_are_missed"],
    ),
    (
        "f55 no first contact",
        [(PLAN, "    if progress.lost:\n", "    if False:\n")],
        [UNIT + "test_apply.py::test_f55_a_stream_that_may_have_been_applied_before_is_no_first_contact"],
    ),
    (
        "f55 not lost",
        [(LED, "            self._check_not_lost(target, target_id)\n", "")],
        [UNIT + "test_ledger.py::test_a_lost_ledger_is_told_where_the_history_does_not_reach_back"],
    ),
    (
        "f55 number again",
        [
            (
                LED,
                "            if row.mark.apply <= self.last_apply and row.mark.token not in self.tokens:\n",
                "            if False:\n",
            )
        ],
        [UNIT + "test_ledger.py::test_an_apply_number_that_comes_again_is_told"],
    ),
    (
        "f55 marks taken up",
        [(LED, "            if found := list(told):\n", "            if found := []:\n")],
        [UNIT + "test_ledger.py::test_f55_marks_without_which_event_ids_do_not_count_are_missed"],
    ),
    (
        "f55 each",
        [(EID, "        if mark.new_ids and not recorded.has(mark):\n", "        if False:\n")],
        [UNIT + "test_ledger.py::test_f55_event_ids_that_the_ledger_has_lost_hold_the_stream"],
    ),
    (
        "f55 none new",
        [(EID, "        if mark.new_ids and not recorded.has(mark):\n", "        if not recorded.has(mark):\n")],
        [UNIT + "test_ledger.py::test_f55_an_apply_without_new_event_ids_has_lost_none"],
    ),
    (
        "f55 loaded",
        [
            (
                LED,
                "self._take_up_lost_marks([*self._unchecked, *rows], target, target_id)",
                "self._take_up_lost_marks(rows, target, target_id)",
            )
        ],
        [
            UNIT + "test_ledger.py::test_f55_event_ids_that_the_ledger_has_lost_hold_the_stream",
            UNIT + "test_ledger.py::test_f55_marks_without_which_event_ids_do_not_count_are_missed",
        ],
    ),
    (
        "f55 found",
        [
            (
                LED,
                "self._take_up_lost_marks([*self._unchecked, *rows], target, target_id)",
                "self._take_up_lost_marks(self._unchecked, target, target_id)",
            )
        ],
        [
            UNIT + "test_ledger.py::test_f29_a_ledger_lost_with_its_event_ids_is_held",
            UNIT + "test_ledger.py::test_f55_event_ids_that_the_ledger_has_lost_hold_the_stream",
        ],
    ),
    (
        "f55 once",
        [(LED, "        self._unchecked = None\n        if rows:\n", "        if rows:\n")],
        [UNIT + "test_ledger.py::test_f55_event_ids_that_the_ledger_has_lost_hold_the_stream"],
    ),
    (
        "time zero",
        [(LED, "if name not in later or value != later[name]}", "if name not in later or value}")],
        [UNIT + "test_ledger.py::test_an_event_time_of_zero_is_one"],
    ),
    (
        "time zero floor",
        [
            (
                EID,
                "return floor is not None and mark.ids_until is not None and",
                "return bool(floor) and mark.ids_until is not None and",
            )
        ],
        [UNIT + "test_ledger.py::test_an_event_time_of_zero_is_one"],
    ),
    (
        "time zero until",
        [(EID, "and mark.ids_until is not None and", "and bool(mark.ids_until) and")],
        [UNIT + "test_ledger.py::test_an_event_time_of_zero_is_one"],
    ),
    (
        "letters then frame",
        [(APP, "return (yield from self._before_bad_frame(epochs, number, found, outcome))", "raise")],
        [UNIT + "test_dead_letter_cap.py::test_a_frame_that_goes_bad_while_parts_are_looked_for_is_the_cause"],
    ),
    (
        "frame then letters",
        [(APP, "return (yield from self._before_dead_letters(epochs[:index], number, dead, outcome))", "raise")],
        [UNIT + "test_dead_letter_cap.py::test_a_bad_frame_behind_them_is_the_cause[letters0]"],
    ),
    (
        "letters conflict",
        [
            (
                APP,
                "            except WriteConflict:\n                return False\n        self._hold(",
                "        self._hold(",
            )
        ],
        [UNIT + "test_dead_letter_cap.py::test_a_conflict_while_a_part_is_applied_decides_again[dead letters]"],
    ),
    (
        "frame conflict",
        [
            (
                APP,
                "                    except WriteConflict:\n                        return False\n                    except DeadLettersError",
                "                    except DeadLettersError",
            )
        ],
        [UNIT + "test_dead_letter_cap.py::test_a_conflict_while_a_part_is_applied_decides_again[a bad frame]"],
    ),
    (
        "frame overtaken",
        [(APP, "                if self.ledger.catch_up(self.target) != number:\n", "                if False:\n")],
        [UNIT + "test_apply.py::test_f08_frames_that_are_trimmed_since_another_receiver_applied_them_hold_nothing"],
    ),
    (
        "f47 overtaken",
        [
            (
                APP,
                "            if plan.held is not None and not outcome.epochs and not confirmed:\n",
                "            if False:\n",
            )
        ],
        [UNIT + "test_apply.py::test_f47_a_receiver_that_was_overtaken_after_its_look_at_the_ledger_holds_nothing"],
    ),
    (
        "f55 restored",
        [
            (
                APP,
                "                if self.ledger.progress.lost:\n",
                "                if False:\n",
            )
        ],
        [UNIT + "test_apply.py::test_f55_a_stream_that_may_have_been_applied_before_is_no_first_contact"],
    ),
    (
        "f55 restored after an error",
        [(APP, "        if isinstance(error, LedgerError):\n            self.ledger.forget()\n", "")],
        [
            UNIT + "test_apply.py::test_f55_the_ledger_is_read_again_after_any_of_its_errors[resolve]",
            UNIT + "test_apply.py::test_f55_the_ledger_is_read_again_after_any_of_its_errors[record]",
        ],
    ),
    (
        "frame passed",
        [(APP, "        if self._passed is not None:\n", "        if False:\n")],
        [UNIT + "test_apply.py::test_a_frame_that_only_tasks_cannot_read_holds_the_stream_with_its_cause"],
    ),
    (
        "frame passed before",
        [(APP, "        self._passed = None\n        for", "        for")],
        [UNIT + "test_apply.py::test_frames_that_could_not_be_read_for_a_moment_hold_nothing"],
    ),
    (
        "unbegun",
        [("spark_wan/running.py", "                if begun:\n                    raise\n", "                raise\n")],
        [UNIT + "test_sender_handle.py::test_f50_a_session_that_ends_before_the_streams_begin"],
    ),
    (
        "begun",
        [("spark_wan/running.py", "                if begun:\n                    raise\n", "")],
        [UNIT + "test_workers.py::test_an_error_of_the_target_is_no_lost_session"],
    ),
    (
        "frozen threads",
        [
            (
                "spark_wan/steps.py",
                "signal.pthread_kill(threading.get_ident(), signal.SIGSTOP)",
                "os.kill(os.getpid(), signal.SIGSTOP)",
            )
        ],
        [UNIT + "test_steps.py::test_each_step_stops_the_process_once_where_threads_reach_some_at_the_same_moment"],
    ),
]


def main(chosen: list[str]) -> None:
    """Two at a time, each in a copy of its own."""
    git = ["git", "-C", str(HERE), "worktree"]
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(COPIES) as pool:
        free: queue.Queue[Path] = queue.Queue()
        try:
            for n in range(COPIES):
                copy = Path(folder) / f"copy-{n}"
                subprocess.run([*git, "add", "--quiet", "--detach", str(copy)], check=True)
                free.put(copy)

            def one(name: str, edits: list[tuple[str, str, str]], tests: list[str]) -> None:
                copy = free.get()
                print(name, tried(copy, edits, tests), flush=True)
                free.put(copy)

            list(pool.map(lambda each: one(*each), (each for each in PROTECTIONS if not chosen or each[0] in chosen)))
        finally:
            for copy in Path(folder).iterdir():
                subprocess.run([*git, "remove", "--force", str(copy)], check=True)


def tried(copy: Path, edits: list[tuple[str, str, str]], tests: list[str]) -> str:
    """Whether all ``tests`` fail without the protection."""
    originals = {}
    for file, before, after in edits:
        content = (copy / file).read_text()
        originals.setdefault(file, content)
        if content.count(before) != 1:
            return f"DOES NOT FIT any more: {before!r} in {file}"
        (copy / file).write_text(content.replace(before, after))
    command = [sys.executable, "-m", "pytest", "-q", "--timeout", "150", "-p", "no:cacheprovider", *tests]
    done = subprocess.run(
        command, cwd=copy, env={**os.environ, "PYTHONPATH": str(copy)}, capture_output=True, text=True
    )
    for file, content in originals.items():
        (copy / file).write_text(content)
    failed = sum(int(count) for count in re.findall(r"(\d+) (?:failed|error)", (done.stdout.splitlines() or [""])[-1]))
    return (
        "noticed"
        if failed >= len(tests)
        else f"NOT NOTICED by {len(tests) - failed} of {len(tests)}:\n{done.stdout[-2000:]}"
    )


if __name__ == "__main__":
    main(sys.argv[1:])
