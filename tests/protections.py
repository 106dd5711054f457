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

from mutations import Mutation, mutated

HERE = Path(__file__).parents[1]
COPIES = 2

UNIT = "tests/unit/"
CRASH = "tests/crash/"
WITH_SPARK = "tests/integration/"
FAMILY = WITH_SPARK + "test_constraint_family.py::"
PROTECTIONS: list[tuple[str, list[Mutation], list[str]]] = [
    (
        "f01",
        [
            ("Publisher.round", "yield 'publish.4 frames-written'", "pass"),
            (
                "Publisher.round",
                "append_in_time(self.log, manifest, began, self.clock)",
                "append_in_time(self.log, manifest, began, self.clock)\nyield 'publish.4 frames-written'",
            ),
        ],
        [CRASH + "test_sender_killed.py::test_f01_killed_before_publish[publish.4]"],
    ),
    (
        "f02",
        [
            (
                "Publisher.round",
                "self.log.newest_manifest()",
                "self.log.read(checkpoint.epoch) if checkpoint is not None else None",
            )
        ],
        [
            CRASH
            + "test_sender_killed.py::test_f02_killed_after_publish_before_its_checkpoint[publish.5]"
        ],
    ),
    (
        "f03",
        [("CaptureTask.__call__", "new_attempt(self.header.attempt)", "'0' * 32")],
        [CRASH + "test_sender_killed.py::test_f03_killed_mid_batch"],
    ),
    (
        "ack manager",
        [
            (
                "AckManager._trim",
                "channel.trim_frames(stream, [frame.path for frame in manifest.frames])",
                "channel.trim_manifest(stream, epoch)",
            )
        ],
        [
            CRASH
            + "test_sender_killed.py::test_the_ack_manager_is_killed_at_each_of_its_steps[acks.4]"
        ],
    ),
    (
        "ack manager 2",
        [
            (
                "AckManager._trim",
                "not (self._all_acked(manifest) and self.done(manifest))",
                "False",
            )
        ],
        [
            CRASH
            + "test_sender_killed.py::test_the_ack_manager_is_killed_at_each_of_its_steps[acks.5]"
        ],
    ),
    (
        "f04",
        [("append_epoch", "write in writes", "False")],
        [
            CRASH
            + "test_sink_killed.py::test_f04_commit_killed_then_the_same_micro_batch_with_other_partitions[sink.4]"
        ],
    ),
    (
        "f02sink",
        [("append_epoch", "write in writes", "False")],
        [CRASH + "test_sink_killed.py::test_f02_driver_killed_while_the_sink_commits[sink.4]"],
    ),
    (
        "f05",
        [("EventsWriter.write", "new_attempt(self.write_id)", "'0' * 32")],
        [CRASH + "test_sink_killed.py::test_f05_frames_of_a_failed_attempt_are_never_named"],
    ),
    (
        "f06sink",
        [("AppliedEventIds.drop_redelivered", "fresh & ~below", "F.lit(True)")],
        [CRASH + "test_sink_killed.py::test_f06_sinks_checkpoint_deleted"],
    ),
    (
        "f06",
        [
            (
                "Publisher.round",
                "self.log.newest_manifest()",
                "self.log.read(checkpoint.epoch) if checkpoint is not None else None",
            ),
            ("TableApplier._plan_listed", "self.ledger.progress", "type(self.ledger.progress)()"),
        ],
        [
            CRASH + "test_checkpoints.py::test_f06_checkpoint_deleted[sender]",
            CRASH + "test_checkpoints.py::test_f06_checkpoint_deleted[receiver]",
        ],
    ),
    (
        "f07",
        [
            (
                "Publisher.round",
                "self.log.newest_manifest()",
                "self.log.read(checkpoint.epoch) if checkpoint is not None else None",
            ),
            ("TableApplier._plan_listed", "self.ledger.progress", "type(self.ledger.progress)()"),
        ],
        [
            CRASH + "test_checkpoints.py::test_f07_checkpoint_restored_from_a_backup[sender]",
            CRASH + "test_checkpoints.py::test_f07_checkpoint_restored_from_a_backup[receiver]",
        ],
    ),
    (
        "f08send",
        [
            (
                "ObjectStoreChannel.create",
                "obstore.put(self._store, path, data, mode='create')",
                "obstore.put(self._store, path, data)",
            )
        ],
        [CRASH + "test_two_at_once.py::test_f08_second_sender_is_faster"],
    ),
    (
        "f08recv",
        [
            (
                "MarkedWrite.append",
                "writer.option('txnAppId', self.transaction).option('txnVersion', self.mark.apply)",
                "writer.option('txnAppId', self.transaction)",
            )
        ],
        [CRASH + "test_two_at_once.py::test_f08_second_receiver_is_faster"],
    ),
    (
        "f08both",
        [
            (
                "ObjectStoreChannel.create",
                "obstore.put(self._store, path, data, mode='create')",
                "obstore.put(self._store, path, data)",
            ),
            (
                "MarkedWrite.append",
                "writer.option('txnAppId', self.transaction).option('txnVersion', self.mark.apply)",
                "writer.option('txnAppId', self.transaction)",
            ),
            (
                "MarkedWrite.merge",
                "session.conf.set('spark.databricks.delta.write.txnVersion', str(self.mark.apply))",
                "pass",
            ),
        ],
        [CRASH + "test_two_at_once.py::test_f08_two_senders_and_two_receivers_in_two_processes"],
    ),
    (
        "f09",
        [
            (
                "source_error",
                "text = error_text(error)",
                "return error\ntext = error_text(error)",
            ),
            ("RangePlanner._check_history", "newer[0].version != published + 1", "False"),
        ],
        [
            CRASH
            + "test_source_and_channel_faults.py::test_f09_history_overtakes_a_lagging_sender[VACUUM]",
            CRASH
            + "test_source_and_channel_faults.py::test_f09_history_overtakes_a_lagging_sender[log cleanup]",
        ],
    ),
    (
        "f12",
        [("ChannelReceiver._until_applied", "if not self.waits:\n    raise", "raise")],
        [
            CRASH
            + "test_source_and_channel_faults.py::test_f12_channel_lost_in_the_middle_of_a_micro_batch"
        ],
    ),
    (
        "f12b",
        [("SenderStream._publish", "Exception", "TypeError")],
        [CRASH + "test_source_and_channel_faults.py::test_f12_channel_unreachable_for_a_while"],
    ),
    (
        "f20",
        [("check_frame", "actual != carried or actual != expected", "False")],
        [
            CRASH
            + "test_source_and_channel_faults.py::test_f20_damaged_frame_holds_its_stream[altered]"
        ],
    ),
    (
        "f20b",
        [("TableApplier._before_bad_frame", "if index: ...", "if False: ...")],
        [
            CRASH
            + "test_source_and_channel_faults.py::test_f20_damaged_frame_holds_its_stream[truncated]",
            CRASH
            + "test_source_and_channel_faults.py::test_f20_damaged_frame_holds_its_stream[gone]",
        ],
    ),
    (
        "f23",
        [
            (
                "TableApplier._apply",
                "yield 'apply.3 read'",
                "result.applied = epochs[-1].manifest.epoch\nself._ack(result, None)\nyield 'apply.3 read'",
            )
        ],
        [CRASH + "test_receiver_killed.py::test_f23_killed_before_the_table_commit[apply.3]"],
    ),
    (
        "f24",
        [("TableApplier._plan_listed", "self.ledger.progress", "type(self.ledger.progress)()")],
        [CRASH + "test_receiver_killed.py::test_f24_killed_after_commit_before_ack"],
    ),
    (
        "f25",
        [("Ledger._catch_up", "if rows:\n    ...", "if rows and self._loaded is None:\n    ...")],
        [CRASH + "test_receiver_killed.py::test_f25_killed_between_table_commit_and_ledger_commit"],
    ),
    (
        "f26",
        [
            (
                "DeltaTarget._errors",
                "if ErrorKind.CONFLICT.matches(error):\n    raise WriteConflict(error_text(error)) from error",
                "pass",
            )
        ],
        [
            CRASH
            + "test_target_faults.py::test_f26_another_commit_collides_with_an_apply[OPTIMIZE]",
            CRASH
            + "test_target_faults.py::test_f26_another_commit_collides_with_an_apply[local writer]",
        ],
    ),
    (
        "f26b",
        [("TableApplier.round", "range(ATTEMPTS)", "range(10 ** 6)")],
        [CRASH + "test_target_faults.py::test_f26_collisions_without_end"],
    ),
    (
        "f27a",
        [("last_event_wins", "F.col(SEQUENCE).desc", "F.col(SEQUENCE).asc")],
        [CRASH + "test_sink_killed.py::test_f27_same_key_many_times_in_one_write"],
    ),
    (
        "f27b",
        [
            (
                "DecodeTask.__call__",
                "if self.keys:\n    events = _last_of_runs(events, self.keys)",
                "pass",
            ),
            (
                "DeltaTarget.resolve",
                "newest.keys and (constrained or len(batch.epochs) > 1 or (not newest.disjoint))",
                "False",
            ),
        ],
        [CRASH + "test_target_faults.py::test_f27_same_key_many_times_in_one_apply"],
    ),
    (
        "f55ids",
        [
            (
                "Ledger._recover_lost_marks",
                "check_event_ids(self.table, self.site, marks, self.store.recorded_ids(self.table))",
                "pass",
            )
        ],
        [
            CRASH
            + "test_state_files.py::test_f55_any_one_file_of_a_state_is_not_what_it_was[deleted]"
        ],
    ),
    (
        "f29",
        [("AppliedEventIds.drop_redelivered", "floor is None", "True")],
        [CRASH + "test_sink_killed.py::test_f29_event_ids_expired_then_a_replay"],
    ),
    (
        "f30",
        [("ConstraintReader.read", "constraints if constraints.all else None", "None")],
        [CRASH + "test_target_faults.py::test_f30_rows_that_the_target_refuses"],
    ),
    (
        "f53join",
        [("Constraints._joins", "bool(self.keys and self.needed - set(self.generated))", "False")],
        [FAMILY + "test_f53_good_rows_arrive_and_the_target_computes_its_own"],
    ),
    (
        "f53raise",
        [("Constraints.judge", "view = persist(self._view(rows))", "raise")],
        [
            FAMILY
            + "test_f53_a_row_that_breaks_a_constraint_is_a_dead_letter[check that raises-keyed]"
        ],
    ),
    (
        "f53refused",
        [("DeltaTarget.read", "self._refused", "False")],
        [
            FAMILY
            + "test_f53_a_row_that_breaks_a_constraint_is_a_dead_letter[varchar that the origin declares-keyed]"
        ],
    ),
    (
        "f53char",
        [("_chars", "here != origin", "False")],
        [FAMILY + "test_f53_a_table_that_takes_no_row_is_held_by_name[char_key]"],
    ),
    (
        "f53cap",
        [("DeltaTarget.resolve", "batch.dead_letters > self.max_dead_letters", "False")],
        [FAMILY + "test_f53_a_table_that_takes_no_row_is_held_by_name[too_many]"],
    ),
    (
        "lettercap",
        [
            (
                "CaptureTask._too_many",
                "len(report.dead_letters) > self.table.max_dead_letters",
                "False",
            )
        ],
        [
            UNIT
            + "receiver/test_dead_letter_cap.py::test_a_task_with_too_many_dead_letters_ends_early"
        ],
    ),
    (
        "letterparts",
        [("TableApplier._apply_valid", "len(epochs) > 1", "False")],
        [
            UNIT
            + "receiver/test_dead_letter_cap.py::test_epochs_that_exceed_the_maximum_only_together_are_applied"
        ],
    ),
    (
        "letterdays",
        [
            (
                "_readable",
                "if types.is_date(kind) or types.is_timestamp(kind):\n    return pa.string()",
                "pass",
            )
        ],
        [
            UNIT
            + "receiver/test_receiver_letters.py::test_a_sender_records_rows_outside_of_pythons_range[times]"
        ],
    ),
    (
        "f32a",
        [("Ledger._catch_up", "self.target_id is not None", "False")],
        [CRASH + "test_target_faults.py::test_f32_target_is_not_what_it_was[dropped]"],
    ),
    (
        "f32b",
        [
            (
                "Ledger._check_identity",
                "self.target_id is not None and target_id != self.target_id",
                "False",
            )
        ],
        [
            CRASH
            + "test_target_faults.py::test_f32_target_is_not_what_it_was[dropped and made again]"
        ],
    ),
    (
        "f32c",
        [("Ledger._check_identity", "newest < after", "False")],
        [
            CRASH
            + "test_target_faults.py::test_f32_target_is_not_what_it_was[put back from a backup]"
        ],
    ),
    (
        "f32d",
        [
            (
                "Ledger._read_commits",
                "commit.operation == 'RESTORE' and (self.target_id is not None or rows)",
                "False",
            )
        ],
        [CRASH + "test_target_faults.py::test_f32_target_is_not_what_it_was[RESTORE]"],
    ),
    (
        "b01",
        [
            (
                "merge_statement",
                "f'WHEN MATCHED AND s.{OP} = {destroy} THEN DELETE'",
                "''",
            )
        ],
        [WITH_SPARK + "test_propagation.py::test_b01_creates_updates_and_deletes_arrive"],
    ),
    (
        "b01key",
        [("_net_groups", "Operation.DESTROY", "Operation.PUT")],
        [
            WITH_SPARK + "test_propagation.py::test_b01_a_key_change_is_a_destroy_and_a_create",
            WITH_SPARK + "test_propagation.py::test_b01_an_overwrite_arrives",
        ],
    ),
    (
        "b02",
        [
            (
                "CaptureReport.add",
                "self.frames += [FrameRef(**entry) for entry in content['frames']]",
                "self.frames = [FrameRef(**entry) for entry in content['frames']]",
            )
        ],
        [WITH_SPARK + "test_propagation.py::test_b02_a_bulk_load_is_complete"],
    ),
    (
        "b05",
        [
            (
                "Sender._stream",
                "stream_name(sender.site, sender.name, table.name)",
                "stream_name(sender.site, sender.name, table.name.replace('lines', 'orders'))",
            )
        ],
        [
            WITH_SPARK
            + "test_propagation.py::test_b05_several_tables_on_one_channel_and_a_sender_for_others"
        ],
    ),
    (
        "b27s",
        [("SenderHandle.stop", "self._run.stop.set()", "pass")],
        [
            WITH_SPARK
            + "test_lifecycle.py::test_b27_stop_never_hangs_while_writers_run[sender-publish.2]"
        ],
    ),
    (
        "b27r",
        [("ReceiverHandle.stop", "each.query.stop()", "pass")],
        [
            WITH_SPARK
            + "test_lifecycle.py::test_b27_stop_never_hangs_while_writers_run[receiver-apply.3]"
        ],
    ),
    (
        "f50send",
        [
            (
                "SenderStream._hold",
                "if ErrorKind.CANCELLED.matches(error): ...",
                "if ErrorKind.CANCELLED.matches(error):\n    raise SystemExit(1)",
            )
        ],
        [
            UNIT
            + "sender/test_sender_handle.py::test_f50_a_job_cancelled_from_outside_holds_the_stream_and_is_retried"
        ],
    ),
    (
        "f50",
        [
            (
                "ChannelReceiver.apply_all",
                "idle and (not any((s.retry and s.retry.cancelled for s in self.streams.all())))",
                "idle",
            )
        ],
        [
            UNIT
            + "receiver/test_inbound_turns.py::test_f50_a_job_cancelled_from_outside_is_retried_within_the_micro_batch"
        ],
    ),
    (
        "f50stop",
        [("ChannelReceiver._round", "self.query is None or not self.waits", "False")],
        [
            UNIT
            + "receiver/test_inbound_turns.py::test_f50_a_cancellation_that_may_be_a_stop_ends_the_micro_batch"
        ],
    ),
    (
        "f50row",
        [
            (
                "Signs.on",
                "condition(error).startswith(self.conditions)",
                "'was cancelled' in str(error)",
            )
        ],
        [
            UNIT
            + "delta/test_error_kinds.py::test_f50_a_row_value_that_says_cancelled_cancels_nothing"
        ],
    ),
    (
        "f50lost",
        [("SenderStream._hold", "if lost is not None:\n    raise lost from error", "pass")],
        [UNIT + "sender/test_sender_handle.py::test_f50_a_session_that_has_ended_ends_all_streams"],
    ),
    (
        "turns",
        [
            (
                "ChannelReceiver.apply_all",
                "self.streams.poll(channel, unread) if self.waits else {}",
                "{}",
            )
        ],
        [
            UNIT
            + "receiver/test_inbound_turns.py::test_a_slow_table_delays_no_epoch_of_another_table"
        ],
    ),
    (
        "b38",
        [
            (
                "Publisher._plan",
                "self._through",
                "self._through if before is None else self.source.newest().version - 1",
            )
        ],
        [WITH_SPARK + "test_lifecycle.py::test_b38_b39_restarts_during_writes_deliver_everything"],
    ),
    (
        "time",
        [
            (
                "is_same_commit",
                "abs(int(one_time or 0) - int(other_time or 0)) <= SAME_TIME",
                "abs(int(one_time or 0) - int(other_time or 0)) == 0",
            )
        ],
        [
            WITH_SPARK
            + "test_bad_input.py::test_a_commit_whose_time_looks_different_is_still_the_same"
        ],
    ),
    (
        "b38r",
        [("TableApplier._plan_listed", "self.ledger.progress", "type(self.ledger.progress)()")],
        [WITH_SPARK + "test_lifecycle.py::test_b38_b39_restarts_during_writes_deliver_everything"],
    ),
    (
        "hint",
        [
            ("TableApplier.round", "hint and (not result.epochs)", "False"),
            ("TableApplier.round", "doubtful = confirmed = True", "confirmed = True"),
        ],
        [
            UNIT + "receiver/test_apply.py::test_a_wrong_hint_does_no_harm[True]",
            "tests/simulation/test_simulation.py::test_nothing_is_lost_doubled_or_reordered",
        ],
    ),
    (
        "seen",
        [
            (
                "DeltaTarget.is_unchanged",
                "self._end == (version, commit_identity(self.location, version))",
                "self._end[0] == version and os.path.exists(self.location)",
            )
        ],
        [UNIT + "receiver/test_target.py::test_a_restored_target_is_not_unchanged"],
    ),
    (
        "raised",
        [
            (
                "Ledger._catch_up",
                "caught_up, self._caught_up = (self._caught_up, False)",
                "caught_up = self._caught_up",
            )
        ],
        [UNIT + "receiver/test_apply.py::test_f32_a_replaced_table_stays_held"],
    ),
    (
        "large",
        [("_guarded", "MAX_ROW_BYTES", "2 ** 40")],
        [WITH_SPARK + "test_batching.py::test_large_rows_are_found_and_travel"],
    ),
    (
        "settings",
        [("SessionSettings.new_session", "self.values.items()", "()")],
        [WITH_SPARK + "test_sessions.py::test_storage_that_only_the_users_session_can_reach"],
    ),
    (
        "b40",
        [("frame_row", "possible_duplicate", "False")],
        [
            WITH_SPARK
            + "test_lifecycle.py::test_b40_redelivered_batches_carry_the_possible_duplicate_mark"
        ],
    ),
    (
        "b45",
        [
            (
                "BatchPublisher._cut",
                "count > self.limits.rows or (size > self.limits.bytes and count > 1)",
                "False",
            )
        ],
        [WITH_SPARK + "test_sink.py::test_b45_frames_are_bounded_by_rows_and_bytes"],
    ),
    (
        "chain",
        [
            (
                "RangePlanner._lacking",
                "self.addressees",
                "()",
            )
        ],
        [WITH_SPARK + "test_odd_places.py::test_a_chain_of_two_topologies_is_held_at_the_middle"],
    ),
    (
        "places",
        [
            (
                "_table_place",
                "tuple((part.lower() for part in catalog_parts(location)))",
                "(location.lower(),)",
            )
        ],
        [UNIT + "topology/test_places.py::test_two_spellings_of_one_place_are_one_place"],
    ),
    (
        "b80",
        [
            (
                "SchemaEvolution._alter",
                "for statement in statements:\n    ...",
                "for statement in ():\n    ...",
            )
        ],
        [
            WITH_SPARK + "test_schema.py::test_b80_added_columns_reach_the_target",
            WITH_SPARK + "test_schema.py::test_b80_also_when_the_target_starts_late",
        ],
    ),
    (
        "f49",
        [("Publisher._worth_recording", "self.clock() >= self._record_at", "False")],
        [
            UNIT
            + "capture/test_idle_tables.py::test_f49_a_source_may_be_quiet_for_longer_than_its_log_keeps_commits"
        ],
    ),
    (
        "f49quiet",
        [
            (
                "Publisher._newer",
                "self._record_at is not None and self.clock() >= self._record_at",
                "False",
            )
        ],
        [UNIT + "capture/test_idle_tables.py::test_f49_quiet_commits_are_recorded_after_a_day"],
    ),
    (
        "f49seen",
        [
            (
                "Ledger._record_position",
                "self.store.append(self.table, [position])",
                "pass",
            )
        ],
        [
            UNIT
            + "capture/test_idle_tables.py::test_f49_a_target_may_be_idle_for_longer_than_its_log_keeps_commits"
        ],
    ),
    (
        "f49same",
        [
            (
                "Ledger._unchanged_through",
                "there is None or is_same_commit(there.identity, self._read_identity)",
                "True",
            )
        ],
        [
            UNIT
            + "capture/test_idle_tables.py::test_seen_commits_of_a_table_restored_since_hide_no_mark"
        ],
    ),
    (
        "f49gap",
        [("Ledger._check_gap", "last != self.last_apply", "False")],
        [UNIT + "capture/test_idle_tables.py::test_a_mark_deleted_by_log_cleanup_unseen_holds"],
    ),
    (
        "f49stale",
        [
            (
                "InboundStream.is_done",
                "not self._must_see_target(done)",
                "True",
            )
        ],
        [
            UNIT
            + "capture/test_idle_tables.py::test_f49_the_target_of_an_idle_stream_is_caught_up_daily"
        ],
    ),
    (
        "f49wake",
        [("WakeUpReader._retries", "now >= self._idle_until", "False")],
        [UNIT + "capture/test_idle_tables.py::test_an_idle_receiver_is_woken_at_intervals"],
    ),
    (
        "f54",
        [
            (
                "transaction_name",
                "f'spark_wan/{site}/{table}/{target_id}'",
                "f'spark_wan/{site}/{target_id}'",
            )
        ],
        [UNIT + "ledger/test_reused_places.py::test_f54_a_new_name_at_an_emptied_place_is_applied"],
    ),
    (
        "f54rows",
        [("Ledger._check_not_shared", "others and (not target.is_empty())", "False")],
        [
            UNIT
            + "ledger/test_reused_places.py::test_f54_a_new_name_at_a_place_with_rows_of_another_is_held"
        ],
    ),
    (
        "f54two",
        [
            (
                "Ledger._read_commits",
                "'site' in other and (self.target_id is not None or rows)",
                "False",
            )
        ],
        [UNIT + "ledger/test_reused_places.py::test_two_names_at_one_place_are_held"],
    ),
    (
        "f54skip",
        [("TableApplier._apply", "self.ledger.last_apply < apply_number", "False")],
        [
            UNIT
            + "ledger/test_reused_places.py::test_a_write_skipped_by_delta_without_a_known_apply_holds_with_its_cause"
        ],
    ),
    (
        "java-time",
        [("FeedSession.opened", "(JAVA_TIME, *settings)", "settings")],
        [WITH_SPARK + "test_type_family.py::test_f45_dates_and_timestamps_through_the_change_feed"],
    ),
    (
        "java-time-connect",
        [("FeedSession.opened", "session.conf.set(name, value)", "pass")],
        [
            UNIT + "capture/test_change_feed.py::test_a_remote_session_is_not_changed",
            WITH_SPARK
            + "test_type_family.py::test_f45_dates_over_connect_in_a_jvm_with_another_zone",
        ],
    ),
    (
        "text-replaced",
        [("DeltaSource._publish", "check_text()", "pass")],
        [WITH_SPARK + "test_type_family.py::test_what_the_feed_would_change_is_held_by_name"],
    ),
    (
        "text-refused",
        [
            (
                "DeltaSource.snapshot",
                "frame = refuse(frame, schema, F.lit(version), text=True)",
                "pass",
            )
        ],
        [WITH_SPARK + "test_type_family.py::test_what_the_feed_would_change_is_held_by_name"],
    ),
    (
        "maps-refused",
        [
            (
                "DeltaSource._capture",
                "feed = refuse(feed, planned.schema, version, text=False)",
                "pass",
            )
        ],
        [WITH_SPARK + "test_type_family.py::test_what_the_feed_would_change_is_held_by_name"],
    ),
    (
        "old-files",
        [("_write_unchanged", "session.conf.set(name, 'CORRECTED')", "pass")],
        [WITH_SPARK + "test_type_family.py::test_dates_of_a_users_stream"],
    ),
    (
        "char-keys",
        [
            (
                "_write_unchanged",
                "session.conf.set('spark.sql.readSideCharPadding', 'false')",
                "pass",
            )
        ],
        [WITH_SPARK + "test_type_family.py::test_every_type_as_key"],
    ),
    (
        "milliseconds",
        [
            (
                "_write_unchanged",
                "session.conf.set('spark.sql.parquet.outputTimestampType', 'TIMESTAMP_MICROS')",
                "pass",
            )
        ],
        [WITH_SPARK + "test_type_family.py::test_dates_of_a_users_stream"],
    ),
    (
        "f46 followed",
        [("Ledger._follow_columns", "columns.after(commit)", "columns")],
        [
            UNIT
            + "ledger/test_applied_columns.py::test_f46_a_column_added_under_the_old_name_is_another_one",
            UNIT
            + "ledger/test_applied_columns.py::test_f46_columns_that_swap_names_hold_the_stream",
        ],
    ),
    (
        "f46 planned before",
        [("AppliedColumns.after_mark", "place == path", "False")],
        [
            UNIT
            + "ledger/test_applied_columns.py::test_renaming_back_does_not_undo_an_apply_planned_before_the_rename"
        ],
    ),
    (
        "f46 checked",
        [
            (
                "SchemaEvolution.evolve",
                "applied.check(existing, travelling, self.name, self.users)",
                "pass",
            )
        ],
        [
            WITH_SPARK + "test_ddl_family.py::test_f46_ddl_while_an_epoch_waits[target-renamed]",
            WITH_SPARK
            + "test_ddl_family.py::test_f46_ddl_while_an_epoch_waits[target-dropped-and-added]",
        ],
    ),
    (
        "f41 renamed",
        [("RangePlanner.plan", "renames.rename(*commit.renamed)", "pass")],
        [
            UNIT + "capture/test_ranges.py::test_f41_swapped_names_hold_the_stream",
            UNIT + "capture/test_ranges.py::test_f41_renames_that_are_undone_are_one_range",
        ],
    ),
    (
        "f41 replaced",
        [("RangePlanner.plan", "self._check_nothing_dropped", "lambda *_: None")],
        [UNIT + "capture/test_ranges.py::test_replacing_columns_holds_the_stream_if_it_drops_some"],
    ),
    (
        "b81 own fields",
        [
            (
                "reconcile",
                "['.'.join(path) for path in found.dropped if len(path) > 1]",
                "['.'.join(path) for path in ()]",
            )
        ],
        [
            UNIT
            + "receiver/test_reconcile.py::test_b81_columns_that_cannot_be_reconciled_are_named_with_a_way_out"
        ],
    ),
    (
        "f48 keys",
        [("Publisher._check_source", "known.keys != self.settings.keys", "False")],
        [
            UNIT + "sender/test_publish.py::test_changed_keys_are_refused",
            UNIT
            + "sender/test_publish.py::test_f48_a_source_is_compared_with_what_was_published[other keys-after a lost log]",
        ],
    ),
    (
        "f48 commit",
        [
            (
                "Publisher._check_source",
                "commit is not None and is_same_commit(commit.identity, known.identity)",
                "commit is not None",
            )
        ],
        [
            UNIT
            + "sender/test_publish.py::test_f07_a_source_restored_and_written_to_again_is_held[1]",
            UNIT
            + "sender/test_publish.py::test_f48_a_source_is_compared_with_what_was_published[put back-with its log]",
            UNIT
            + "sender/test_publish.py::test_f48_a_source_is_compared_with_what_was_published[put back-after a lost log]",
        ],
    ),
    (
        "f48 other commit",
        [("Publisher._check_source", "if commit is not None:\n    ...", "if False:\n    ...")],
        [
            UNIT
            + "sender/test_publish.py::test_f07_a_source_restored_and_written_to_again_is_held[1]",
            UNIT
            + "sender/test_publish.py::test_f48_a_source_is_compared_with_what_was_published[put back-after a lost log]",
        ],
    ),
    (
        "f48 table",
        [("Publisher._check_source", "known.table_id != table_id", "False")],
        [UNIT + "sender/test_publish.py::test_a_table_that_was_replaced_is_held"],
    ),
    (
        "f48 older",
        [
            (
                "Publisher._newer",
                "if self._published is None: ...\nelif latest < published: ...",
                "if self._published is None: ...\nelif False: ...",
            )
        ],
        [UNIT + "sender/test_publish.py::test_a_source_restored_to_an_older_state_is_held"],
    ),
    (
        "f48 columns moved",
        [("Publisher._plan", "before.schema if before is not None else None", "None")],
        [
            UNIT
            + "sender/test_publish.py::test_f41_a_dropped_column_holds_the_stream_also_when_one_of_its_name_came_back[True]",
            UNIT
            + "sender/test_publish.py::test_a_change_between_a_rename_and_the_rename_back_is_the_cause",
        ],
    ),
    (
        "f48 columns at all",
        [
            ("Publisher._plan", "before.schema if before is not None else None", "None"),
            ("Publisher._plan", "before is not None", "False"),
        ],
        [
            UNIT
            + "sender/test_publish.py::test_f48_a_source_is_compared_with_what_was_published[renamed-after a lost log]",
            UNIT
            + "sender/test_publish.py::test_f48_a_source_is_compared_with_what_was_published[dropped and added-with its log]",
            UNIT
            + "sender/test_publish.py::test_f48_a_source_is_compared_with_what_was_published[dropped and added-after a lost log]",
        ],
    ),
    (
        "f48 columns",
        [("Publisher._plan", "if before is not None:\n    ...", "if False:\n    ...")],
        [
            UNIT
            + "sender/test_publish.py::test_f48_a_source_is_compared_with_what_was_published[overwritten-with its log]",
            UNIT
            + "sender/test_publish.py::test_f48_a_source_is_compared_with_what_was_published[overwritten-after a lost log]",
        ],
    ),
    (
        "f48 checkpointed",
        [
            (
                "Publisher.round",
                "PublishedState.by(last) if last is not None else checkpointed",
                "PublishedState.by(last) if last is not None else None",
            )
        ],
        [
            UNIT
            + "sender/test_publish.py::test_f48_a_new_log_continues_after_what_the_lost_one_published",
            UNIT
            + "sender/test_publish.py::test_f48_a_source_is_compared_with_what_was_published[renamed-after a lost log]",
        ],
    ),
    (
        "f48 checkpoint",
        [
            (
                "record_appended",
                "replace(before, epoch=manifest.epoch, published=published_state(manifest))",
                "replace(before, epoch=manifest.epoch)",
            )
        ],
        [
            UNIT
            + "sender/test_publish.py::test_f48_a_new_log_continues_after_what_the_lost_one_published"
        ],
    ),
    (
        "f48 start",
        [("Publisher._write", "self._published", "last")],
        [
            UNIT
            + "sender/test_publish.py::test_f48_a_new_log_continues_after_what_the_lost_one_published"
        ],
    ),
    (
        "f48 at once",
        [
            (
                "Publisher.round",
                "not newer and (self._published is None or stamp == checked)",
                "not newer",
            )
        ],
        [
            UNIT
            + "sender/test_publish.py::test_f07_a_source_restored_and_written_to_again_is_held[0]"
        ],
    ),
    (
        "f07 idle",
        [("Publisher.round", "stamp == checked", "checked is not None")],
        [
            UNIT
            + "sender/test_publish.py::test_f07_a_source_that_is_replaced_by_one_with_as_many_versions_is_held[nothing]"
        ],
    ),
    (
        "f07 met",
        [
            (
                "Publisher.round",
                "checked, self._checked = (self._checked, None)",
                "checked = self._checked",
            )
        ],
        [
            UNIT
            + "sender/test_publish.py::test_f07_a_source_that_is_replaced_by_one_with_as_many_versions_is_held[no table]",
            UNIT
            + "sender/test_publish.py::test_f07_a_source_that_is_replaced_by_one_with_as_many_versions_is_held[fewer versions]",
            UNIT
            + "sender/test_publish.py::test_f07_a_source_that_is_replaced_by_one_with_as_many_versions_is_held[another table, in vain]",
        ],
    ),
    (
        "f07 stamp",
        [("DeltaSource.stamp", "commit_identity(self.table.location, version)", "version")],
        [
            UNIT
            + "capture/test_source_stamp.py::test_a_table_that_may_have_been_replaced_has_another_stamp[made again]",
            UNIT
            + "capture/test_source_stamp.py::test_a_table_that_may_have_been_replaced_has_another_stamp[put back]",
        ],
    ),
    (
        "f07 stamp of a copy",
        [("commit_identity", "status.st_ctime_ns", "status.st_mtime_ns")],
        [
            UNIT
            + "capture/test_source_stamp.py::test_a_table_that_may_have_been_replaced_has_another_stamp[copied over]"
        ],
    ),
    (
        "acks of what is written",
        [
            (
                "EventsSink._collect_acks",
                "try:\n    ...\nexcept WanError as error:\n    ...",
                "try:\n    ...\nexcept KeyError as error:\n    ...",
            )
        ],
        [
            UNIT
            + "sender/test_events_sink.py::test_a_commit_succeeds_although_its_acks_cannot_be_read"
        ],
    ),
    (
        "a manifest's name",
        [("Manifest.decode", 'manifest.__dict__["fingerprint"] = fingerprint(data)', "pass")],
        [
            UNIT + "channels/test_log.py::test_a_log_of_version_1_continues_in_version_2",
            UNIT
            + "wire/test_wire.py::test_the_fingerprint_of_a_manifest_is_of_the_bytes_that_were_read[data0]",
        ],
    ),
    (
        "version 1 acks, marks and checkpoints",
        [("from_fields", "upgraded(record)", "dict(record)")],
        [
            UNIT
            + "wire/test_records.py::test_acks_of_both_versions_are_read_and_version_2_is_written",
            UNIT + "ledger/test_ledger.py::test_a_mark_survives_a_round_trip_in_its_golden_bytes",
            UNIT
            + "sender/test_sender_checkpoints.py::test_a_checkpoint_is_read_and_written_the_same",
        ],
    ),
    (
        "version 1 manifests",
        [("Manifest.decode", "upgraded(json.loads(body))", "json.loads(body)")],
        [
            UNIT
            + "wire/test_wire.py::test_the_fingerprint_of_a_manifest_is_of_the_bytes_that_were_read[data0]"
        ],
    ),
    (
        "clock probe",
        [
            (
                "Channel.foreign",
                "(_MANIFEST, _AGAIN, _FRAME, _ACK, _PROBE)",
                "(_MANIFEST, _AGAIN, _FRAME, _ACK)",
            )
        ],
        [UNIT + "channels/test_channels.py::test_now_is_by_the_clock_that_dates_frames"],
    ),
    (
        "f07 stamp elsewhere",
        [("DeltaSource.stamp", "time.monotonic() // CHECK_INTERVAL", "1")],
        [
            UNIT
            + "capture/test_source_stamp.py::test_a_table_without_local_log_has_another_stamp_each_hour"
        ],
    ),
    (
        "held alone",
        [
            (
                "SenderStream.loop",
                "if published is None:\n    return",
                "if published is None:\n    assert not self.status.held\n    return",
            )
        ],
        [
            UNIT
            + "sender/test_sender_handle.py::test_a_held_stream_stops_no_other_with_available_now"
        ],
    ),
    (
        "users not captured",
        [("Publisher.round", "last is not None and last.kind == EVENTS", "False")],
        [
            UNIT
            + "sender/test_publish.py::test_a_publisher_does_not_extend_the_log_of_a_user_stream"
        ],
    ),
    (
        "sink not captured",
        [("Sender._stream", "table.source == 'table'", "table.source")],
        [
            WITH_SPARK
            + "test_sink.py::test_a_sender_of_the_whole_topology_keeps_a_users_stream_and_captures_nothing_of_it"
        ],
    ),
    (
        "f48 no snapshot",
        [
            (
                "Publisher.round",
                "not replaced and checkpointed is None and (settings.start is None)",
                "False",
            )
        ],
        [UNIT + "sender/test_publish.py::test_f48_a_new_log_may_not_begin_with_a_snapshot"],
    ),
    (
        "f48 replaced",
        [
            (
                "Publisher.round",
                "not replaced and checkpointed is None and (settings.start is None)",
                "checkpointed is None and settings.start is None",
            )
        ],
        [UNIT + "sender/test_publish.py::test_f17_a_channel_with_another_log_is_held[None]"],
    ),
    (
        "f48 users stream",
        [
            (
                "published_state",
                "PublishedState.by(manifest) if manifest.kind != EVENTS else None",
                "PublishedState.by(manifest)",
            )
        ],
        [
            UNIT
            + "sender/test_publish.py::test_the_checkpoint_of_a_user_stream_has_no_published_state"
        ],
    ),
    (
        "f49 error",
        [
            (
                "Publisher._plan",
                "published = self._through",
                "published, self._record_at = (self._through, None)",
            )
        ],
        [UNIT + "capture/test_idle_tables.py::test_f49_quiet_commits_are_recorded_after_an_error"],
    ),
    (
        "quiet put back",
        [("Publisher._newer", "self._quiet_through = -1\nreturn latest > published", "pass")],
        [
            UNIT
            + "sender/test_publish.py::test_a_source_restored_within_its_quiet_commits_continues"
        ],
    ),
    (
        "f41 cut",
        [("Publisher._capture", "commit.operation == 'RENAME COLUMN'", "False")],
        [
            UNIT
            + "sender/test_publish.py::test_a_change_between_a_rename_and_the_rename_back_is_the_cause"
        ],
    ),
    (
        "f41 rows",
        [("RangePlanner.plan", "bool(taken) and (not renames.open)", "bool(taken)")],
        [
            UNIT + "capture/test_ranges.py::test_f41_renames_that_are_undone_are_one_range[10]",
            UNIT + "capture/test_ranges.py::test_f41_swapped_names_hold_the_stream",
        ],
    ),
    (
        "f41 back",
        [("RangePlanner.plan", "if renames.undone:\n    ...", "if False:\n    ...")],
        [UNIT + "capture/test_ranges.py::test_f41_renames_that_are_undone_are_one_range[1000000]"],
    ),
    (
        "f41 across",
        [
            (
                "RangePlanner.plan",
                "if renames.undone: ...\nelse:\n    last, schema = self._cut(taken[0].version, taken[-1].version, published_schema)",
                "if False: ...\nelse:\n    last, schema = self._cut(taken[0].version, taken[-1].version, published_schema)",
            )
        ],
        [UNIT + "capture/test_ranges.py::test_f41_renames_that_are_undone_are_one_range[10]"],
    ),
    (
        "aborted",
        [
            (
                "EventsSink._abort",
                "if len(results) == len(messages):\n    return",
                "pass",
            )
        ],
        [
            UNIT
            + "sender/test_events_sink.py::test_a_manifest_that_arrives_after_its_write_was_aborted_has_its_frames"
        ],
    ),
    (
        "aborted task",
        [("EventsSink._abort", "len(results) == len(messages)", "True")],
        [
            UNIT
            + "sender/test_events_sink.py::test_a_manifest_that_arrives_after_its_write_was_aborted_has_its_frames"
        ],
    ),
    (
        "refused frames",
        [
            (
                "append_epoch",
                "if not tried:\n    remove_unnamed(log, frames)",
                "if not tried:\n    pass",
            )
        ],
        [
            UNIT + "sender/test_events_sink.py::test_a_refused_write_leaves_no_frames",
            UNIT + "sender/test_events_sink.py::test_a_write_for_other_sites_is_refused",
        ],
    ),
    (
        "refused late",
        [("append_epoch", "not tried", "True")],
        [
            UNIT
            + "sender/test_events_sink.py::test_a_write_refused_after_its_manifest_was_tried_keeps_its_frames"
        ],
    ),
    (
        "remotes",
        [("_check_follows", "if left:\n    ...", "if False:\n    ...")],
        [UNIT + "sender/test_events_sink.py::test_a_write_for_other_sites_is_refused"],
    ),
    (
        "former remotes",
        [("_check_follows", "{*options.remotes, *former}", "{*options.remotes}")],
        [UNIT + "sender/test_events_sink.py::test_a_write_for_other_sites_is_refused"],
    ),
    (
        "remotes of a file",
        [
            (
                "_check_follows",
                "last.addressees if options.former_remotes is None else options.former_remotes",
                "options.former_remotes or ()",
            )
        ],
        [UNIT + "sender/test_events_sink.py::test_a_write_for_other_sites_is_refused"],
    ),
    (
        "f47 stale",
        [
            (
                "append_in_time",
                "now - began > STALE_AGE * 1000 and (not are_safe(log, manifest.frames))",
                "False",
            )
        ],
        [
            UNIT + "sender/test_publish.py::test_f47_frames_that_may_be_swept_are_not_named[False]",
            UNIT + "sender/test_events_sink.py::test_f47_frames_that_may_be_swept_are_not_named",
        ],
    ),
    (
        "f47 days",
        [
            (
                "append_in_time",
                "now - began > STALE_AGE * 1000 and (not are_safe(log, manifest.frames))",
                "now - began > STALE_AGE * 1000",
            )
        ],
        [
            UNIT + "sender/test_publish.py::test_a_snapshot_may_take_days",
            UNIT + "sender/test_events_sink.py::test_a_write_may_take_days",
        ],
    ),
    (
        "f47 there",
        [
            (
                "are_safe",
                "frame.path in paths and newest[write_of(frame.path)] > now - STALE_AGE",
                "newest[write_of(frame.path)] > now - STALE_AGE",
            )
        ],
        [
            UNIT + "sender/test_publish.py::test_f47_frames_that_may_be_swept_are_not_named[True]",
            UNIT
            + "sender/test_acks.py::test_f47_the_frames_of_a_write_are_as_old_as_the_newest_of_them",
        ],
    ),
    (
        "f47 age",
        [
            (
                "are_safe",
                "frame.path in paths and newest[write_of(frame.path)] > now - STALE_AGE",
                "frame.path in paths",
            )
        ],
        [
            UNIT + "sender/test_publish.py::test_f47_frames_that_may_be_swept_are_not_named[False]",
            UNIT + "sender/test_events_sink.py::test_f47_frames_that_may_be_swept_are_not_named",
        ],
    ),
    (
        "f47 write",
        [("newest_frames", "max", "min")],
        [
            UNIT
            + "sender/test_acks.py::test_f47_the_frames_of_a_write_are_as_old_as_the_newest_of_them"
        ],
    ),
    (
        "f47 sweep",
        [
            (
                "AckManager.sweep",
                "[path for path in unnamed if newest[write_of(path)] < now - older_than]",
                "[path for path, time in written if path in unnamed and time < now - older_than]",
            )
        ],
        [
            UNIT
            + "sender/test_acks.py::test_f47_the_frames_of_a_write_are_as_old_as_the_newest_of_them"
        ],
    ),
    (
        "f47 attempts",
        [
            (
                "new_attempt",
                "write[:_WRITE_DIGITS] + uuid.uuid4().hex[_WRITE_DIGITS:]",
                "uuid.uuid4().hex",
            )
        ],
        [
            UNIT
            + "sender/test_acks.py::test_f47_the_frames_of_a_write_are_as_old_as_the_newest_of_them",
            UNIT
            + "capture/test_batches.py::test_f47_the_frames_of_all_tasks_of_a_capture_are_one_write",
            UNIT + "sender/test_events_sink.py::test_f47_the_frames_of_all_tasks_are_one_write",
        ],
    ),
    (
        "f47 attempts source",
        [("CaptureTask.__call__", "self.header.attempt", "__import__('uuid').uuid4().hex")],
        [
            UNIT
            + "capture/test_batches.py::test_f47_the_frames_of_all_tasks_of_a_capture_are_one_write"
        ],
    ),
    (
        "f47 attempts sink",
        [("EventsWriter.write", "new_attempt(self.write_id)", "uuid.uuid4().hex")],
        [UNIT + "sender/test_events_sink.py::test_f47_the_frames_of_all_tasks_are_one_write"],
    ),
    (
        "f47 micro-batches",
        [("WanStreamWriter._write_id", "f'{self.write_id} {batch}'", "self.write_id")],
        [UNIT + "sender/test_events_sink.py::test_f47_the_frames_of_all_tasks_are_one_write"],
    ),
    (
        "f47 own clock",
        [("AckManager.sweep", "channel.now()", "self.clock() / 1000")],
        [UNIT + "sender/test_acks.py::test_the_clock_of_the_store_dates_frames"],
    ),
    (
        "f47 inside append",
        [
            (
                "append_in_time",
                "clock() - now > STALE_AGE * 1000 and (not are_there(log, manifest.frames))",
                "False",
            )
        ],
        [
            UNIT
            + "sender/test_publish.py::test_f47_frames_that_were_swept_inside_append_are_not_named",
            UNIT
            + "sender/test_events_sink.py::test_f47_frames_that_were_swept_inside_append_are_not_named",
        ],
    ),
    (
        "f47 taken back",
        [("append_in_time", "log.newest_epoch() == manifest.epoch", "False")],
        [
            UNIT
            + "sender/test_publish.py::test_f47_frames_that_were_swept_inside_append_are_not_named",
            UNIT
            + "sender/test_events_sink.py::test_f47_frames_that_were_swept_inside_append_are_not_named",
        ],
    ),
    (
        "f55 sweep",
        [
            (
                "AckManager.sweep",
                "not written or last is None or (not self._is_whole(epochs, last))",
                "not written or last is None",
            )
        ],
        [
            UNIT
            + "sender/test_acks.py::test_f55_frames_that_a_restored_manifest_names_are_not_swept[missing1-True]"
        ],
    ),
    (
        "f47 late",
        [("AckManager.round", "self._check_strays(last, strays)", "pass")],
        [
            UNIT
            + "sender/test_acks.py::test_f47_a_late_manifest_of_a_lost_log_above_a_new_one_is_reported"
        ],
    ),
    (
        "remotes of an ack manager",
        [
            (
                "AckManager._not_served",
                "gone if self.former is None else gone & set(self.former)",
                "gone",
            )
        ],
        [
            UNIT
            + "sender/test_events_sink.py::test_a_write_for_fewer_sites_trims_nothing_that_the_others_have_not_acked[empty-False]"
        ],
    ),
    (
        "f47 below",
        [
            (
                "StreamLog._counts",
                "if self._follows(manifest):\n    return True",
                "if self._is_there(manifest.epoch - 1):\n    return self._follows(manifest)",
            )
        ],
        [UNIT + "channels/test_log.py::test_f47_a_manifest_above_a_stray_counts"],
    ),
    (
        "f47 anew",
        [("StreamLog._counts", "not below or not self._began_since(below, manifest)", "True")],
        [
            UNIT + "channels/test_log.py::test_a_manifest_above_a_new_log_does_not_count[1]",
            UNIT + "channels/test_log.py::test_a_manifest_above_a_new_log_does_not_count[9]",
        ],
    ),
    (
        "f47 slower",
        [
            (
                "StreamLog._began_since",
                "other.log_id != manifest.log_id and other.created > manifest.created",
                "other.log_id != manifest.log_id",
            )
        ],
        [
            UNIT
            + "channels/test_log.py::test_a_manifest_above_the_first_one_of_a_slower_writer_counts"
        ],
    ),
    (
        "f47 brought back",
        [
            (
                "StreamLog._counts",
                "self.read(manifest.epoch + 1).previous == manifest.fingerprint",
                "self._follows(manifest) or self.read(manifest.epoch + 1).previous == manifest.fingerprint",
            )
        ],
        [
            UNIT
            + "channels/test_log.py::test_f47_a_manifest_that_a_repeated_write_restored_proves_nothing"
        ],
    ),
    (
        "f47 counts",
        [("StreamLog.append", "not self._counts(manifest)", "False")],
        [
            UNIT
            + "channels/test_log.py::test_f47_a_writer_that_freezes_inside_append_leaves_no_stray[True-4-1]",
            UNIT + "channels/test_log.py::test_a_manifest_above_a_new_log_does_not_count[1]",
        ],
    ),
    (
        "f47 next",
        [
            (
                "StreamLog._counts",
                "self.read(manifest.epoch + 1).previous == manifest.fingerprint",
                "True",
            )
        ],
        [
            UNIT
            + "channels/test_log.py::test_f47_a_writer_that_freezes_inside_append_leaves_no_stray[False-4-1]",
            UNIT + "channels/test_log.py::test_f47_a_manifest_above_a_stray_counts",
        ],
    ),
    (
        "f47 next trimmed",
        [("StreamLog._counts", "False", "True")],
        [
            UNIT
            + "channels/test_log.py::test_f47_a_writer_that_freezes_inside_append_leaves_no_stray[True-4-1]"
        ],
    ),
    (
        "listed twice",
        [
            (
                "StreamLog._listed",
                "listed if len(listed) > 1 else self.channel.stream_epochs(self.stream)",
                "listed",
            )
        ],
        [
            UNIT
            + "channels/test_log.py::test_a_listing_without_the_newest_manifest_is_repeated[torn0]",
            UNIT
            + "channels/test_log.py::test_a_listing_without_the_newest_manifest_is_repeated[torn1]",
        ],
    ),
    (
        "listed and trimmed",
        [
            (
                "StreamLog.newest_manifest",
                "if newest == before or self._is_there(newest):\n    raise",
                "raise",
            )
        ],
        [
            UNIT
            + "channels/test_log.py::test_the_newest_manifest_is_read_though_the_log_moved_on_since_its_listing"
        ],
    ),
    (
        "listed for a query",
        [
            (
                "WanStreamReader.next_offset",
                "max(ends.get(stream, 0), StreamLog(self.channel, stream).newest_epoch())",
                "ends.get(stream, 0)",
            )
        ],
        [
            UNIT
            + "datasource/test_source_listing.py::test_a_listing_that_misses_a_log_ends_no_query"
        ],
    ),
    (
        "f50 stopped",
        [
            (
                "ReceiverHandle._ended_quietly",
                "self._stop.is_set() or (self._available_now and failure is None)",
                "True",
            )
        ],
        [
            UNIT
            + "receiver/test_receiver_status.py::test_f50_a_query_stopped_from_outside_ends_with_an_error"
        ],
    ),
    (
        "f50 stopped once",
        [
            (
                "ReceiverHandle._ended_quietly",
                "self._available_now and failure is None",
                "self._available_now",
            )
        ],
        [
            UNIT
            + "receiver/test_receiver_handle.py::test_available_now_stopped_from_outside_ends_with_an_error"
        ],
    ),
    (
        "f50 channel",
        [
            (
                "ChannelStreams.due",
                "try:\n    ...\nexcept ChannelError as error:\n    self._unreachable = str(error)\n    raise",
                "try:\n    ...\nexcept ChannelError:\n    raise",
            )
        ],
        [
            UNIT
            + "receiver/test_receiver_status.py::test_f50_an_unreachable_channel_holds_its_streams"
        ],
    ),
    (
        "f50 channel answers",
        [("ChannelStreams.due", "self._unreachable = None", "pass")],
        [
            UNIT
            + "receiver/test_receiver_status.py::test_f50_an_unreachable_channel_holds_its_streams"
        ],
    ),
    (
        "f50 woken",
        [("WakeUpReader.without_channel", "if self.until is not None: ...", "raise error")],
        [
            UNIT
            + "receiver/test_receiver_status.py::test_f50_an_unreachable_channel_wakes_its_receiver"
        ],
    ),
    (
        "f50 woken only",
        [("WakeUpReader.without_channel", "if self.until is not None: ...", "pass")],
        [
            UNIT
            + "receiver/test_receiver_status.py::test_f50_an_unreachable_channel_wakes_its_receiver"
        ],
    ),
    (
        "connect channel",
        [
            (
                "ChannelStreams.acked",
                "self._unreachable = str(error)\nreturn self.statuses()",
                "raise",
            )
        ],
        [UNIT + "receiver/test_receiver_status.py::test_under_connect_what_cannot_be_read_is_held"],
    ),
    (
        "connect stream",
        [
            (
                "ChannelStreams.acked",
                "stream.report().held = str(error)",
                "raise",
            )
        ],
        [UNIT + "receiver/test_receiver_status.py::test_under_connect_what_cannot_be_read_is_held"],
    ),
    (
        "left hold",
        [("ChannelStreams.due", "self._next_for_acks(list(idle))", "()")],
        [
            UNIT
            + "receiver/test_receiver_status.py::test_a_hold_that_another_receiver_left_is_released"
        ],
    ),
    (
        "left hold told",
        [
            (
                "ChannelStreams._is_acked_as_held",
                "ack is not None and ack.held is not None",
                "False",
            )
        ],
        [
            UNIT
            + "receiver/test_receiver_status.py::test_a_hold_that_another_receiver_left_is_released"
        ],
    ),
    (
        "left hold unreadable",
        [("ChannelStreams._is_acked_as_held", "True", "False")],
        [UNIT + "receiver/test_receiver_status.py::test_an_unreadable_ack_is_reported"],
    ),
    (
        "left hold tried",
        [("ChannelStreams._add", "self.get(listing.log.stream).done = None", "pass")],
        [
            UNIT
            + "receiver/test_receiver_status.py::test_a_hold_that_another_receiver_left_is_retried_in_its_time"
        ],
    ),
    (
        "removed stream",
        [("ChannelStreams._release_removed", "stream.name not in listed", "False")],
        [UNIT + "receiver/test_receiver_status.py::test_a_removed_stream_is_not_reported_as_held"],
    ),
    (
        "one tables ledger",
        [
            (
                "ChannelReceiver._apply_stream",
                "self.streams.refuse(listing, None, str(error))\nreturn",
                "raise",
            )
        ],
        [
            UNIT
            + "receiver/test_receiver_status.py::test_unreadable_decisions_hold_their_table_alone"
        ],
    ),
    (
        "removed while read",
        [("_stream", "not epochs", "False")],
        [
            UNIT
            + "status/test_status.py::test_a_stream_that_is_removed_while_it_is_read_is_no_problem"
        ],
    ),
    (
        "f47 ledger",
        [("Ledger.catch_up", "self.forget()", "pass")],
        [
            UNIT
            + "ledger/test_ledger.py::test_f47_a_receiver_frozen_past_the_log_retention_reads_the_ledger_again",
            UNIT + "ledger/test_ledger.py::test_f55_lost_marks_of_event_ids_hold_the_stream",
        ],
    ),
    (
        "f55 marks",
        [("check_event_ids", "lost and users", "False")],
        [
            UNIT + "ledger/test_ledger.py::test_f55_lost_marks_of_event_ids_hold_the_stream",
            UNIT
            + "ledger/test_ledger.py::test_f55_lost_marks_of_a_user_stream_below_those_of_a_captured_stream_hold_the_stream",
        ],
    ),
    (
        "f55 marks from 1",
        [
            (
                "lost_applies",
                "range(1, max(numbers, default=0) + 1)",
                "range(min(numbers, default=1), max(numbers, default=0) + 1)",
            )
        ],
        [
            UNIT
            + "ledger/test_ledger.py::test_f55_lost_marks_of_a_user_stream_below_those_of_a_captured_stream_hold_the_stream"
        ],
    ),
    (
        "f55 marks untold",
        [
            (
                "check_event_ids",
                "any((mark.ids for mark in marks)) or recorded.tokens - {mark.token for mark in marks}",
                "any((mark.ids for mark in marks))",
            )
        ],
        [
            UNIT
            + "ledger/test_ledger.py::test_f55_event_ids_reveal_a_user_stream_whose_marks_are_all_lost"
        ],
    ),
    (
        "f55 marks captured",
        [("check_event_ids", "lost and users", "lost")],
        [
            UNIT
            + "ledger/test_ledger.py::test_f55_a_captured_stream_alone_needs_only_its_newest_mark"
        ],
    ),
    (
        "f55 uncounted",
        [
            (
                "check_event_ids",
                "uncounted and (not any((recorded.has(mark) for mark in uncounted)))",
                "False",
            )
        ],
        [
            UNIT
            + "ledger/test_ledger.py::test_f55_event_ids_of_version_0_1_0_that_are_all_lost_hold_the_stream"
        ],
    ),
    (
        "f55 no first contact",
        [("_check_new", "progress.lost", "False")],
        [
            UNIT
            + "receiver/test_apply.py::test_f55_a_stream_that_may_have_been_applied_before_is_no_first_contact"
        ],
    ),
    (
        "f55 not lost",
        [("Ledger._catch_up", "self._check_not_lost(target, target_id)", "pass")],
        [
            UNIT
            + "ledger/test_ledger.py::test_a_lost_ledger_is_reported_when_the_history_does_not_reach_back"
        ],
    ),
    (
        "f55 number again",
        [
            (
                "Ledger._check_numbers",
                "row.mark.apply <= self.last_apply and row.mark.token not in self.tokens",
                "False",
            )
        ],
        [UNIT + "ledger/test_ledger.py::test_a_reused_apply_number_is_reported"],
    ),
    (
        "f55 marks taken up",
        [("Ledger._recover_lost_marks", "if recovered:\n    ...", "pass")],
        [UNIT + "ledger/test_ledger.py::test_f55_lost_marks_of_event_ids_hold_the_stream"],
    ),
    (
        "f55 each",
        [("check_event_ids", "mark.new_ids and (not recorded.has(mark))", "False")],
        [UNIT + "ledger/test_ledger.py::test_f55_lost_event_ids_hold_the_stream"],
    ),
    (
        "f55 none new",
        [
            (
                "check_event_ids",
                "mark.new_ids and (not recorded.has(mark))",
                "not recorded.has(mark)",
            )
        ],
        [UNIT + "ledger/test_ledger.py::test_f55_an_apply_without_new_event_ids_has_lost_none"],
    ),
    (
        "f55 loaded",
        [("Ledger._catch_up", "[*self._unchecked, *rows]", "rows")],
        [
            UNIT + "ledger/test_ledger.py::test_f55_lost_event_ids_hold_the_stream",
            UNIT + "ledger/test_ledger.py::test_f55_lost_marks_of_event_ids_hold_the_stream",
        ],
    ),
    (
        "f55 found",
        [("Ledger._catch_up", "[*self._unchecked, *rows]", "self._unchecked")],
        [
            UNIT
            + "ledger/test_ledger.py::test_f29_a_ledger_lost_with_its_event_ids_holds_the_stream",
            UNIT + "ledger/test_ledger.py::test_f55_lost_event_ids_hold_the_stream",
        ],
    ),
    (
        "f55 once",
        [("Ledger._catch_up", "self._unchecked = None", "pass")],
        [UNIT + "ledger/test_ledger.py::test_f55_lost_event_ids_hold_the_stream"],
    ),
    (
        "time zero",
        [
            (
                "written_fields",
                "(name, value) not in omitted.items()",
                "name not in omitted or value",
            )
        ],
        [UNIT + "ledger/test_ledger.py::test_an_event_time_of_zero_is_a_time"],
    ),
    (
        "time zero floor",
        [("RecordedIds.has", "floor is not None", "bool(floor)")],
        [UNIT + "ledger/test_ledger.py::test_an_event_time_of_zero_is_a_time"],
    ),
    (
        "time zero until",
        [("RecordedIds.has", "mark.ids_until is not None", "bool(mark.ids_until)")],
        [UNIT + "ledger/test_ledger.py::test_an_event_time_of_zero_is_a_time"],
    ),
    (
        "letters then frame",
        [
            (
                "TableApplier._apply_valid",
                "yield from self._apply_valid(epochs[: len(epochs) // 2], apply_number, result)",
                "yield from self._apply(epochs[: len(epochs) // 2], apply_number, result)",
            )
        ],
        [
            UNIT
            + "receiver/test_dead_letter_cap.py::test_a_frame_deleted_while_epochs_are_split_is_the_cause"
        ],
    ),
    (
        "frame then letters",
        [
            (
                "TableApplier._before_bad_frame",
                "yield from self._apply_valid(epochs[:index], apply_number, result)",
                "yield from self._apply(epochs[:index], apply_number, result)",
            )
        ],
        [
            UNIT
            + "receiver/test_dead_letter_cap.py::test_a_bad_frame_after_too_many_dead_letters_is_the_cause[letters0]"
        ],
    ),
    (
        "frame overtaken",
        [
            (
                "TableApplier._before_bad_frame",
                "self.ledger.catch_up(self.target) != apply_number",
                "False",
            )
        ],
        [
            UNIT
            + "receiver/test_apply.py::test_f08_frames_trimmed_after_another_receiver_applied_them_do_not_hold"
        ],
    ),
    (
        "f47 overtaken",
        [
            (
                "TableApplier.round",
                "result.plan.held is not None and (not result.epochs) and (not confirmed)",
                "False",
            )
        ],
        [
            UNIT
            + "receiver/test_apply.py::test_f47_a_receiver_overtaken_after_it_read_the_ledger_does_not_hold"
        ],
    ),
    (
        "f55 restored",
        [("TableApplier.round", "self.ledger.progress.lost", "False")],
        [
            UNIT
            + "receiver/test_apply.py::test_f55_a_stream_that_may_have_been_applied_before_is_no_first_contact"
        ],
    ),
    (
        "f55 restored after an error",
        [
            (
                "TableApplier._hold",
                "if isinstance(error, LedgerError):\n    self.ledger.forget()",
                "pass",
            )
        ],
        [
            UNIT
            + "receiver/test_apply.py::test_f55_the_ledger_is_read_again_after_any_of_its_errors[resolve]",
            UNIT
            + "receiver/test_apply.py::test_f55_the_ledger_is_read_again_after_any_of_its_errors[record]",
        ],
    ),
    (
        "letters before a bad frame",
        [
            (
                "TableApplier._before_bad_frame",
                "not index or result.applied == epochs[index - 1].manifest.epoch",
                "True",
            )
        ],
        [
            UNIT
            + "receiver/test_dead_letter_cap.py::test_a_bad_frame_after_too_many_dead_letters_is_the_cause[letters0]"
        ],
    ),
    (
        "frame passed",
        [("TableApplier._before_bad_frame", "self._passed is None", "True")],
        [
            UNIT
            + "receiver/test_apply.py::test_a_frame_that_only_tasks_cannot_read_holds_the_stream_with_its_cause"
        ],
    ),
    (
        "frame passed before",
        [("TableApplier.round", "self._passed = None", "pass")],
        [UNIT + "receiver/test_apply.py::test_frames_that_are_unreadable_for_a_moment_do_not_hold"],
    ),
    (
        "unbegun",
        [("spark_thread.SparkThread.run", "if begun:\n    raise", "raise")],
        [
            UNIT
            + "sender/test_sender_handle.py::test_f50_a_session_that_ends_before_the_streams_begin_is_reported"
        ],
    ),
    (
        "begun",
        [("spark_thread.SparkThread.run", "if begun:\n    raise", "pass")],
        [UNIT + "receiver/test_workers.py::test_an_error_of_the_work_is_no_lost_session"],
    ),
    (
        "frozen threads",
        [
            (
                "reached",
                "signal.pthread_kill(threading.get_ident(), signal.SIGSTOP)",
                "os.kill(os.getpid(), signal.SIGSTOP)",
            )
        ],
        [
            UNIT
            + "test_steps.py::test_each_step_stops_the_process_once_when_threads_reach_steps_at_the_same_time"
        ],
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

            def one(name: str, mutations: list[Mutation], tests: list[str]) -> None:
                copy = free.get()
                print(name, tried(copy, mutations, tests), flush=True)
                free.put(copy)

            list(
                pool.map(
                    lambda each: one(*each),
                    (each for each in PROTECTIONS if not chosen or each[0] in chosen),
                )
            )
        finally:
            for copy in Path(folder).iterdir():
                subprocess.run([*git, "remove", "--force", str(copy)], check=True)


def tried(copy: Path, mutations: list[Mutation], tests: list[str]) -> str:
    """Whether all ``tests`` fail without the protection."""
    changed = mutated(copy / "spark_wan", mutations)
    originals = {path: path.read_text() for path in changed}
    for path, content in changed.items():
        path.write_text(content)
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "--timeout",
        "150",
        "-p",
        "no:cacheprovider",
        *tests,
    ]
    done = subprocess.run(
        command,
        cwd=copy,
        env={**os.environ, "PYTHONPATH": str(copy)},
        capture_output=True,
        text=True,
    )
    for path, content in originals.items():
        path.write_text(content)
    failed = sum(
        int(count)
        for count in re.findall(r"(\d+) (?:failed|error)", (done.stdout.splitlines() or [""])[-1])
    )
    return (
        "noticed"
        if failed >= len(tests)
        else f"NOT NOTICED by {len(tests) - failed} of {len(tests)}:\n{done.stdout[-2000:]}"
    )


if __name__ == "__main__":
    main(sys.argv[1:])
