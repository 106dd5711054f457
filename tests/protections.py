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
                "append_in_time(self.log, manifest, self.clock)",
                "append_in_time(self.log, manifest, self.clock)\nyield 'publish.4 frames-written'",
            ),
        ],
        [CRASH + "test_sender_killed.py::test_f01_a_sender_killed_before_publish_loses_nothing[publish.4]"],
    ),
    (
        "f02",
        [
            (
                "Publisher.round",
                "self.log.newest_manifest()",
                "self.log.read(memory.epoch) if memory is not None else None",
            )
        ],
        [
            CRASH
            + "test_sender_killed.py::test_f02_a_sender_killed_after_publish_publishes_nothing_twice[publish.5]"
        ],
    ),
    (
        "f03",
        [("_CaptureTask.__call__", "new_attempt(self.header.attempt)", "'0' * 32")],
        [CRASH + "test_sender_killed.py::test_f03_frames_of_a_sender_killed_mid_batch_are_never_named"],
    ),
    (
        "keeper",
        [
            (
                "AckManager.round",
                "channel.trim_frames(stream, [frame.path for frame in manifest.frames])",
                "channel.trim_manifest(stream, number)",
            )
        ],
        [
            CRASH
            + "test_sender_killed.py::test_an_ack_manager_killed_at_any_step_trims_nothing_unacked[keep.4]"
        ],
    ),
    (
        "keeper2",
        [
            (
                "AckManager.round",
                "not (self._everyone_has(manifest) and self.done(manifest))",
                "False",
            )
        ],
        [
            CRASH
            + "test_sender_killed.py::test_an_ack_manager_killed_at_any_step_trims_nothing_unacked[keep.5]"
        ],
    ),
    (
        "f04",
        [("append_epoch", "told in writes", "False")],
        [
            CRASH
            + "test_sink_killed.py::test_f04_a_micro_batch_retried_with_other_partitions_is_one_epoch[sink.4]"
        ],
    ),
    (
        "f02sink",
        [("append_epoch", "told in writes", "False")],
        [CRASH + "test_sink_killed.py::test_f02_a_driver_killed_during_commit_publishes_nothing_twice[sink.4]"],
    ),
    (
        "f05",
        [("EventsWriter.write", "new_attempt(self.write_id)", "'0' * 32")],
        [CRASH + "test_sink_killed.py::test_f05_frames_of_a_failed_attempt_are_never_named"],
    ),
    (
        "f06sink",
        [("DeltaTarget._drop_known_events", "fresh & ~below", "F.lit(True)")],
        [CRASH + "test_sink_killed.py::test_f06_events_redelivered_after_a_deleted_checkpoint_are_deduplicated"],
    ),
    (
        "f06",
        [
            (
                "Publisher.round",
                "self.log.newest_manifest()",
                "self.log.read(memory.epoch) if memory is not None else None",
            ),
            ("TableApplier._plan_listed", "self.ledger.progress", "type(self.ledger.progress)()"),
        ],
        [
            CRASH + "test_checkpoints.py::test_f06_a_deleted_checkpoint_loses_and_doubles_nothing[sender]",
            CRASH + "test_checkpoints.py::test_f06_a_deleted_checkpoint_loses_and_doubles_nothing[receiver]",
        ],
    ),
    (
        "f07",
        [
            (
                "Publisher.round",
                "self.log.newest_manifest()",
                "self.log.read(memory.epoch) if memory is not None else None",
            ),
            ("TableApplier._plan_listed", "self.ledger.progress", "type(self.ledger.progress)()"),
        ],
        [
            CRASH + "test_checkpoints.py::test_f07_a_checkpoint_restored_from_a_backup_loses_and_doubles_nothing[sender]",
            CRASH + "test_checkpoints.py::test_f07_a_checkpoint_restored_from_a_backup_loses_and_doubles_nothing[receiver]",
        ],
    ),
    (
        "f08send",
        [
            (
                "ObjectStoreChannel._create",
                "obstore.put(self._store, path, data, mode='create')",
                "obstore.put(self._store, path, data)",
            )
        ],
        [CRASH + "test_two_at_once.py::test_f08_a_sender_that_loses_the_race_publishes_nothing"],
    ),
    (
        "f08recv",
        [
            (
                "DeltaTarget._append",
                "writer.option('txnAppId', transaction).option('txnVersion', mark.apply)",
                "writer.option('txnAppId', transaction)",
            )
        ],
        [CRASH + "test_two_at_once.py::test_f08_a_receiver_that_loses_the_race_writes_nothing"],
    ),
    (
        "f08both",
        [
            (
                "ObjectStoreChannel._create",
                "obstore.put(self._store, path, data, mode='create')",
                "obstore.put(self._store, path, data)",
            ),
            (
                "DeltaTarget._append",
                "writer.option('txnAppId', transaction).option('txnVersion', mark.apply)",
                "writer.option('txnAppId', transaction)",
            ),
            (
                "DeltaTarget._merge",
                "session.conf.set('spark.databricks.delta.write.txnVersion', str(mark.apply))",
                "pass",
            ),
        ],
        [CRASH + "test_two_at_once.py::test_f08_two_senders_and_two_receivers_apply_each_epoch_once"],
    ),
    (
        "f09",
        [
            (
                "source_error",
                "found, text = (condition(error), error_text(error))",
                "return error\nfound, text = (condition(error), error_text(error))",
            ),
            ("plan_range", "newer[0].version != published + 1", "False"),
        ],
        [
            CRASH
            + "test_source_and_channel_faults.py::test_f09_lost_history_holds_a_lagging_sender[VACUUM]",
            CRASH
            + "test_source_and_channel_faults.py::test_f09_lost_history_holds_a_lagging_sender[log cleanup]",
        ],
    ),
    (
        "f12",
        [("ChannelReceiver._until_applied", "if not self.waits:\n    raise", "raise")],
        [
            CRASH
            + "test_source_and_channel_faults.py::test_f12_a_micro_batch_waits_for_a_channel_lost_in_its_middle"
        ],
    ),
    (
        "f12b",
        [("SenderHandle._publish", "Exception", "TypeError")],
        [CRASH + "test_source_and_channel_faults.py::test_f12_both_ends_retry_while_the_channel_is_unreachable"],
    ),
    (
        "f20",
        [("check_frame", "actual != found or actual != expected", "False")],
        [
            CRASH
            + "test_source_and_channel_faults.py::test_f20_a_damaged_frame_holds_its_stream[altered]"
        ],
    ),
    (
        "f20b",
        [("TableApplier._before_bad_frame", "if index: ...", "if False: ...")],
        [
            CRASH
            + "test_source_and_channel_faults.py::test_f20_a_damaged_frame_holds_its_stream[truncated]",
            CRASH
            + "test_source_and_channel_faults.py::test_f20_a_damaged_frame_holds_its_stream[deleted]",
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
        [CRASH + "test_receiver_killed.py::test_f23_a_receiver_killed_before_the_table_commit_acks_nothing[apply.3]"],
    ),
    (
        "f24",
        [("TableApplier._plan_listed", "self.ledger.progress", "type(self.ledger.progress)()")],
        [CRASH + "test_receiver_killed.py::test_f24_a_receiver_killed_before_its_ack_applies_nothing_twice"],
    ),
    (
        "f25",
        [("Ledger._catch_up", "if rows:\n    ...", "if rows and self._loaded is None:\n    ...")],
        [CRASH + "test_receiver_killed.py::test_f25_a_receiver_killed_before_the_ledger_commit_applies_nothing_twice"],
    ),
    (
        "f26",
        [
            (
                "DeltaTarget._errors",
                "if is_conflict(error):\n    raise WriteConflict(error_text(error)) from error",
                "pass",
            )
        ],
        [
            CRASH
            + "test_target_faults.py::test_f26_an_apply_that_collides_with_another_commit_is_retried[OPTIMIZE]",
            CRASH
            + "test_target_faults.py::test_f26_an_apply_that_collides_with_another_commit_is_retried[local writer]",
        ],
    ),
    (
        "f26b",
        [("TableApplier.round", "range(ATTEMPTS)", "range(10 ** 6)")],
        [CRASH + "test_target_faults.py::test_f26_an_apply_that_always_collides_holds_the_stream"],
    ),
    (
        "f27a",
        [("_newest_per_key", "F.col(SEQUENCE).desc", "F.col(SEQUENCE).asc")],
        [CRASH + "test_sink_killed.py::test_f27_the_sequence_orders_events_of_one_key_in_one_write"],
    ),
    (
        "f27b",
        [
            (
                "_DecodeTask.__call__",
                "if self.keys:\n    events = _last_of_runs(events, self.keys)",
                "pass",
            ),
            (
                "DeltaTarget.resolve",
                "newest.keys and (constrained or len(work.epochs) > 1 or (not newest.disjoint))",
                "False",
            ),
        ],
        [CRASH + "test_target_faults.py::test_f27_the_last_commit_of_a_key_wins_in_one_apply"],
    ),
    (
        "f55ids",
        [
            (
                "Ledger._take_up_lost_marks",
                "check_event_ids(self.table, self.site, marks, self.store.recorded_ids(self.table))",
                "pass",
            )
        ],
        [
            CRASH
            + "test_state_files.py::test_f55_any_one_damaged_state_file_loses_and_doubles_nothing[deleted]"
        ],
    ),
    (
        "f29",
        [("DeltaTarget._drop_known_events", "floor is None", "True")],
        [CRASH + "test_sink_killed.py::test_f29_a_replay_of_expired_event_ids_is_set_aside"],
    ),
    (
        "f30",
        [("_Reader.read", "found if found.each else None", "None")],
        [CRASH + "test_target_faults.py::test_f30_rows_that_the_target_refuses_are_dead_letters"],
    ),
    (
        "f53join",
        [("Constraints._joins", "bool(self.keys and self.needed - set(self.generated))", "False")],
        [FAMILY + "test_f53_valid_rows_arrive_and_the_target_computes_its_own_columns"],
    ),
    (
        "f53raise",
        [("Constraints.judge", "view = keep(self._view(rows))", "raise")],
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
        [FAMILY + "test_f53_a_target_that_accepts_no_row_holds_the_stream[char_key]"],
    ),
    (
        "f53cap",
        [("DeltaTarget.resolve", "work.dead_letters > self.max_dead_letters", "False")],
        [FAMILY + "test_f53_a_target_that_accepts_no_row_holds_the_stream[too_many]"],
    ),
    (
        "lettercap",
        [
            (
                "_CaptureTask._too_many",
                "bool(self.keys) and len(told) > self.max_dead_letters",
                "False",
            )
        ],
        [UNIT + "receiver/test_dead_letter_cap.py::test_a_task_ends_early"],
    ),
    (
        "letterparts",
        [("TableApplier._apply_sound", "len(epochs) > 1", "False")],
        [UNIT + "receiver/test_dead_letter_cap.py::test_how_many_epochs_wait_decides_nothing"],
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
        [UNIT + "receiver/test_receiver_letters.py::test_a_sender_sets_such_rows_aside_too[times]"],
    ),
    (
        "f32a",
        [("Ledger._catch_up", "self.target_id is not None", "False")],
        [CRASH + "test_target_faults.py::test_f32_a_replaced_or_restored_target_holds_the_stream[dropped]"],
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
            + "test_target_faults.py::test_f32_a_replaced_or_restored_target_holds_the_stream[recreated]"
        ],
    ),
    (
        "f32c",
        [("Ledger._check_identity", "newest < after", "False")],
        [
            CRASH
            + "test_target_faults.py::test_f32_a_replaced_or_restored_target_holds_the_stream[restored from a backup]"
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
        [CRASH + "test_target_faults.py::test_f32_a_replaced_or_restored_target_holds_the_stream[RESTORE]"],
    ),
    (
        "b01",
        [
            (
                "merge_statement",
                "f'MERGE INTO {reference(location)} t USING {source} s ON {on} WHEN MATCHED AND s.{OP} = {destroy} THEN DELETE '",
                "f'MERGE INTO {reference(location)} t USING {source} s ON {on} '",
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
                "DeltaSource._publish",
                "frames += [FrameRef(**entry) for entry in told['frames']]",
                "frames = [FrameRef(**entry) for entry in told['frames']]",
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
        [("SenderHandle.stop", "self._stop.set()", "pass")],
        [
            WITH_SPARK
            + "test_lifecycle.py::test_b27_stop_never_hangs_while_writers_run[sender-publish.2]"
        ],
    ),
    (
        "b27r",
        [("ReceiverHandle.stop", "query.stop()", "pass")],
        [
            WITH_SPARK
            + "test_lifecycle.py::test_b27_stop_never_hangs_while_writers_run[receiver-apply.3]"
        ],
    ),
    (
        "f50send",
        [
            (
                "SenderHandle._hold",
                "if is_cancelled(error): ...",
                "if is_cancelled(error):\n    raise SystemExit(1)",
            )
        ],
        [
            UNIT
            + "sender/test_sender_handle.py::test_f50_a_job_cancelled_from_outside_holds_the_stream_and_is_done_again"
        ],
    ),
    (
        "f50",
        [("ChannelReceiver.apply_all", "idle and (not self._cancelled())", "idle")],
        [
            UNIT
            + "receiver/test_inbound_turns.py::test_f50_a_job_cancelled_from_outside_is_said_and_done_again_within_the_micro_batch"
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
        [("is_cancelled", "condition(each) in _CANCELLED", "'was cancelled' in str(each)")],
        [
            UNIT
            + "delta/test_cancellation.py::test_f50_a_row_whose_value_says_cancelled_cancels_nothing"
        ],
    ),
    (
        "f50lost",
        [("SenderHandle._hold", "if lost is not None:\n    raise lost from error", "pass")],
        [UNIT + "sender/test_sender_handle.py::test_f50_a_session_that_has_ended_ends_all_streams"],
    ),
    (
        "turns",
        [
            (
                "ChannelReceiver.apply_all",
                "self._find_again(channel, refused) if self.waits else {}",
                "{}",
            )
        ],
        [
            UNIT
            + "receiver/test_inbound_turns.py::test_a_slow_table_delays_no_epoch_that_comes_meanwhile"
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
                "abs(int(time or 0) - int(its_time or 0)) <= SAME_TIME",
                "abs(int(time or 0) - int(its_time or 0)) == 0",
            )
        ],
        [
            WITH_SPARK
            + "test_bad_input.py::test_a_commit_with_a_shifted_time_is_the_same_commit"
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
        [UNIT + "receiver/test_target.py::test_a_target_that_was_put_back_is_not_unchanged"],
    ),
    (
        "raised",
        [("Ledger._catch_up", "sound, self._sound = (self._sound, False)", "sound = self._sound")],
        [
            UNIT
            + "receiver/test_apply.py::test_f32_a_table_that_is_not_the_same_is_held_again_and_again"
        ],
    ),
    (
        "large",
        [("_guarded", "MOST_ROW_BYTES", "2 ** 40")],
        [WITH_SPARK + "test_batching.py::test_large_rows_travel_in_batches_bounded_by_bytes"],
    ),
    (
        "settings",
        [("SessionSettings.new_session", "self.values.items()", "()")],
        [WITH_SPARK + "test_sessions.py::test_sender_and_receiver_use_the_settings_of_the_users_session"],
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
                "plan_range",
                "commit.changes_rows and (lacking := _lacking(commit, addressees))",
                "(lacking := _lacking(commit, ()))",
            )
        ],
        [WITH_SPARK + "test_odd_places.py::test_a_chain_of_two_topologies_is_held_at_the_middle_site"],
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
                "DeltaTarget._alter",
                "for statement in statements:\n    ...",
                "for statement in ():\n    ...",
            )
        ],
        [
            WITH_SPARK + "test_schema.py::test_b80_added_columns_reach_the_target",
            WITH_SPARK + "test_schema.py::test_b80_added_columns_reach_a_target_that_starts_late",
        ],
    ),
    (
        "f49",
        [("Publisher._worth_recording", "self.clock() >= self._record_at", "False")],
        [
            UNIT
            + "capture/test_resting_tables.py::test_f49_a_source_that_is_quiet_for_longer_than_its_log_keeps_commits_goes_on"
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
        [
            UNIT
            + "capture/test_resting_tables.py::test_f49_quiet_commits_are_recorded_while_nothing_else_happens"
        ],
    ),
    (
        "f49seen",
        [
            (
                "Ledger._record",
                "self.store.append(self.table, [Seen(self.target_id, self._looked, self._last, self.columns.moved)])",
                "pass",
            )
        ],
        [
            UNIT
            + "capture/test_resting_tables.py::test_f49_a_target_that_rests_for_longer_than_its_log_keeps_commits_goes_on"
        ],
    ),
    (
        "f49same",
        [
            (
                "Ledger._still_known",
                "there is None or is_same_commit(there.identity, self._last)",
                "True",
            )
        ],
        [
            UNIT
            + "capture/test_resting_tables.py::test_what_was_seen_of_a_table_that_was_put_back_since_hides_no_mark"
        ],
    ),
    (
        "f49gap",
        [("Ledger._check_gap", "following != self.last_apply", "False")],
        [UNIT + "capture/test_resting_tables.py::test_a_mark_that_log_cleanup_took_unseen_holds"],
    ),
    (
        "f49stale",
        [
            (
                "ChannelReceiver._find",
                "self._done.get(stream) == (numbers[-1], announced) and (not self._is_stale(stream))",
                "self._done.get(stream) == (numbers[-1], announced)",
            )
        ],
        [
            UNIT
            + "capture/test_resting_tables.py::test_f49_the_target_of_an_idle_stream_is_caught_up_daily"
        ],
    ),
    (
        "f49wake",
        [("WakeUpReader._retries", "now >= self._look_at", "False")],
        [
            UNIT
            + "capture/test_resting_tables.py::test_a_receiver_to_which_nothing_is_sent_is_woken_now_and_then"
        ],
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
        [("Ledger._check_place", "others and (not target.is_empty())", "False")],
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
        [("TableApplier._apply", "self.ledger.last_apply < number", "False")],
        [
            UNIT
            + "ledger/test_reused_places.py::test_a_write_that_delta_skips_though_no_apply_has_its_number_is_held_with_its_cause"
        ],
    ),
    (
        "java-time",
        [
            (
                "DeltaSource._feed_session",
                "[JAVA_TIME, _ACROSS] if across else [JAVA_TIME]",
                "[_ACROSS] if across else []",
            )
        ],
        [WITH_SPARK + "test_type_family.py::test_f45_dates_and_timestamps_arrive_exactly_through_the_change_feed"],
    ),
    (
        "java-time-connect",
        [("DeltaSource._feed_session", "session.conf.set(name, 'true')", "pass")],
        [
            UNIT + "capture/test_change_feed.py::test_a_remote_session_is_not_changed",
            WITH_SPARK
            + "test_type_family.py::test_f45_dates_arrive_exactly_over_connect_in_another_time_zone",
        ],
    ),
    (
        "text-replaced",
        [("DeltaSource._publish", "check_text()", "pass")],
        [WITH_SPARK + "test_type_family.py::test_values_that_the_change_feed_alters_hold_the_stream"],
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
        [WITH_SPARK + "test_type_family.py::test_values_that_the_change_feed_alters_hold_the_stream"],
    ),
    (
        "maps-refused",
        [
            (
                "DeltaSource._capture",
                "feed = refuse(feed, planned.schema, F.col(COMMIT_VERSION), text=False)",
                "pass",
            )
        ],
        [WITH_SPARK + "test_type_family.py::test_values_that_the_change_feed_alters_hold_the_stream"],
    ),
    (
        "old-files",
        [("_write_as_it_is", "session.conf.set(name, 'CORRECTED')", "pass")],
        [WITH_SPARK + "test_type_family.py::test_dates_of_a_user_stream_arrive_exactly"],
    ),
    (
        "char-keys",
        [("_write_as_it_is", "session.conf.set('spark.sql.readSideCharPadding', 'false')", "pass")],
        [WITH_SPARK + "test_type_family.py::test_every_type_arrives_exactly_as_key"],
    ),
    (
        "milliseconds",
        [
            (
                "_write_as_it_is",
                "session.conf.set('spark.sql.parquet.outputTimestampType', 'TIMESTAMP_MICROS')",
                "pass",
            )
        ],
        [WITH_SPARK + "test_type_family.py::test_dates_of_a_user_stream_arrive_exactly"],
    ),
    (
        "f46 followed",
        [("Ledger._follow_columns", "columns.after(commit)", "columns")],
        [
            UNIT
            + "ledger/test_applied_columns.py::test_f46_a_column_that_is_added_under_the_old_name_is_another_one",
            UNIT
            + "ledger/test_applied_columns.py::test_f46_columns_that_change_names_with_each_other_hold_the_stream",
        ],
    ),
    (
        "f46 planned before",
        [("AppliedColumns.after_mark", "known != path and place == path", "False")],
        [
            UNIT
            + "ledger/test_applied_columns.py::test_an_apply_that_was_planned_before_the_change_is_not_undone_by_renaming_back"
        ],
    ),
    (
        "f46 checked",
        [
            (
                "DeltaTarget._with_columns",
                "applied.check(here, travelling, self.table, self.site, name, users)",
                "pass",
            )
        ],
        [
            WITH_SPARK + "test_ddl_family.py::test_f46_ddl_while_an_epoch_waits_ends_equal_or_held[target-renamed]",
            WITH_SPARK
            + "test_ddl_family.py::test_f46_ddl_while_an_epoch_waits_ends_equal_or_held[target-dropped-and-added]",
        ],
    ),
    (
        "f41 renamed",
        [("plan_range", "names.rename(*commit.renamed)", "pass")],
        [
            UNIT + "capture/test_capture.py::test_f41_names_that_are_exchanged_hold_the_stream",
            UNIT
            + "capture/test_capture.py::test_f41_renames_that_are_undone_are_one_range_from_the_first_to_the_last",
        ],
    ),
    (
        "f41 replaced",
        [("plan_range", "_check_nothing_dropped", "lambda *_: None")],
        [
            UNIT
            + "capture/test_capture.py::test_columns_that_are_dropped_by_replacing_them_hold_the_stream"
        ],
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
            + "receiver/test_reconcile.py::test_b81_what_cannot_be_reconciled_is_named_with_a_way_out"
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
            + "sender/test_publish.py::test_f07_a_source_put_back_and_written_to_again_is_held[1]",
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
            + "sender/test_publish.py::test_f07_a_source_put_back_and_written_to_again_is_held[1]",
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
        [UNIT + "sender/test_publish.py::test_a_source_put_back_to_an_older_state_is_held"],
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
        "f48 remembered",
        [
            (
                "Publisher.round",
                "PublishedState.by(last) if last is not None else remembered",
                "PublishedState.by(last) if last is not None else None",
            )
        ],
        [
            UNIT
            + "sender/test_publish.py::test_f48_a_log_that_is_gone_may_begin_anew_after_what_was_published",
            UNIT
            + "sender/test_publish.py::test_f48_a_source_is_compared_with_what_was_published[renamed-after a lost log]",
        ],
    ),
    (
        "f48 memory",
        [
            (
                "Publisher.round",
                "replace(memory, epoch=manifest.epoch, published=PublishedState.by(manifest))",
                "replace(memory, epoch=manifest.epoch)",
            )
        ],
        [
            UNIT
            + "sender/test_publish.py::test_f48_a_log_that_is_gone_may_begin_anew_after_what_was_published"
        ],
    ),
    (
        "f48 start",
        [("Publisher._write", "self._published", "last")],
        [
            UNIT
            + "sender/test_publish.py::test_f48_a_log_that_is_gone_may_begin_anew_after_what_was_published"
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
            + "sender/test_publish.py::test_f07_a_source_put_back_and_written_to_again_is_held[0]"
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
        [("DeltaSource.stamp", "commit_identity(self.location, version)", "version")],
        [
            UNIT
            + "capture/test_source_stamp.py::test_a_table_that_may_be_another_one_has_another_stamp[made again]",
            UNIT
            + "capture/test_source_stamp.py::test_a_table_that_may_be_another_one_has_another_stamp[put back]",
        ],
    ),
    (
        "f07 stamp of a copy",
        [("commit_identity", "found.st_ctime_ns", "found.st_mtime_ns")],
        [
            UNIT
            + "capture/test_source_stamp.py::test_a_table_that_may_be_another_one_has_another_stamp[copied over]"
        ],
    ),
    (
        "acks of what is written",
        [
            (
                "_Sink._keep",
                "try:\n    ...\nexcept WanError as error:\n    ...",
                "try:\n    ...\nexcept KeyError as error:\n    ...",
            )
        ],
        [
            UNIT
            + "sender/test_events_sink.py::test_an_epoch_that_is_in_the_log_is_written_whatever_becomes_of_its_acks"
        ],
    ),
    (
        "a manifest's name",
        [("Manifest.decode", 'manifest.__dict__["fingerprint"] = fingerprint(data)', "pass")],
        [
            UNIT + "channels/test_log.py::test_a_log_of_version_1_goes_on_in_version_2",
            UNIT + "wire/test_wire.py::test_a_manifest_is_named_by_the_bytes_that_were_read[data0]",
        ],
    ),
    (
        "version 1 acks",
        [("Ack.decode", "upgraded(fields)", "fields")],
        [UNIT + "channels/test_log.py::test_an_ack_is_read_and_written_the_same"],
    ),
    (
        "version 1 marks",
        [("Mark.of", "upgraded(content)", "content")],
        [UNIT + "ledger/test_ledger.py::test_a_mark_is_read_and_written_the_same"],
    ),
    (
        "version 1 checkpoints",
        [("SenderCheckpoint.decode", "fields = upgraded(fields)", "pass")],
        [UNIT + "sender/test_memory.py::test_a_memory_is_read_and_written_the_same"],
    ),
    (
        "version 1 manifests",
        [("Manifest.decode", "upgraded(json.loads(body))", "json.loads(body)")],
        [UNIT + "wire/test_wire.py::test_a_manifest_is_named_by_the_bytes_that_were_read[data0]"],
    ),
    (
        "clock probe",
        [
            (
                "ObjectStoreChannel.foreign",
                "(_MANIFEST, _AGAIN, _FRAME, _ACK, _PROBE)",
                "(_MANIFEST, _AGAIN, _FRAME, _ACK)",
            )
        ],
        [UNIT + "channels/test_channels.py::test_the_clock_of_a_store_is_that_of_its_frames"],
    ),
    (
        "f07 stamp elsewhere",
        [("DeltaSource.stamp", "time.monotonic() // CHECK_INTERVAL", "1")],
        [
            UNIT
            + "capture/test_source_stamp.py::test_a_table_whose_log_cannot_be_seen_has_another_stamp_each_hour"
        ],
    ),
    (
        "held alone",
        [
            (
                "SenderHandle._loop",
                "if published is None:\n    return",
                "if published is None:\n    assert not stream.status.held\n    return",
            )
        ],
        [
            UNIT
            + "sender/test_sender_handle.py::test_a_stream_that_is_held_stops_no_other_of_a_run_that_is_to_end"
        ],
    ),
    (
        "users not captured",
        [("Publisher.round", "last is not None and last.kind == EVENTS", "False")],
        [UNIT + "sender/test_publish.py::test_the_log_of_a_users_stream_is_not_gone_on_with"],
    ),
    (
        "sink not captured",
        [("Sender._stream", "table.source == 'table'", "table.source")],
        [
            WITH_SPARK
            + "test_sink.py::test_a_sender_of_the_whole_topology_trims_a_user_stream_and_captures_nothing_of_it"
        ],
    ),
    (
        "f48 no snapshot",
        [
            (
                "Publisher.round",
                "not replaced and remembered is None and (self.settings.start is None)",
                "False",
            )
        ],
        [UNIT + "sender/test_publish.py::test_f48_a_snapshot_is_no_way_out_of_a_lost_log"],
    ),
    (
        "f48 replaced",
        [
            (
                "Publisher.round",
                "not replaced and remembered is None and (self.settings.start is None)",
                "remembered is None and self.settings.start is None",
            )
        ],
        [UNIT + "sender/test_publish.py::test_f17_a_channel_that_another_log_took_is_held[None]"],
    ),
    (
        "f48 users stream",
        [
            (
                "AckManager._remember",
                "PublishedState.by(last) if last.kind != EVENTS else None",
                "PublishedState.by(last)",
            )
        ],
        [UNIT + "sender/test_publish.py::test_a_users_stream_has_published_nothing_of_the_table"],
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
        [
            UNIT
            + "capture/test_resting_tables.py::test_f49_quiet_commits_are_recorded_after_an_error"
        ],
    ),
    (
        "quiet put back",
        [("Publisher._newer", "self._quiet_through = -1\nreturn latest > published", "pass")],
        [UNIT + "sender/test_publish.py::test_a_source_put_back_among_what_was_quiet_goes_on"],
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
        [("plan_range", "bool(taken) and (not names.moved)", "bool(taken)")],
        [
            UNIT
            + "capture/test_capture.py::test_f41_renames_that_are_undone_are_one_range_from_the_first_to_the_last[10]",
            UNIT + "capture/test_capture.py::test_f41_names_that_are_exchanged_hold_the_stream",
        ],
    ),
    (
        "f41 back",
        [("plan_range", "if names.are_back:\n    ...", "if False:\n    ...")],
        [
            UNIT
            + "capture/test_capture.py::test_f41_renames_that_are_undone_are_one_range_from_the_first_to_the_last[1000000]"
        ],
    ),
    (
        "f41 across",
        [
            (
                "plan_range",
                "if names.are_back: ...\nelse:\n    last, schema = _cut(taken[0].version, taken[-1].version, schema_at, published_schema)",
                "if False: ...\nelse:\n    last, schema = _cut(taken[0].version, taken[-1].version, schema_at, published_schema)",
            )
        ],
        [
            UNIT
            + "capture/test_capture.py::test_f41_renames_that_are_undone_are_one_range_from_the_first_to_the_last[10]"
        ],
    ),
    (
        "aborted",
        [
            (
                "_Sink._abort",
                "if all((isinstance(message, _Written) for message in messages)):\n    return",
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
        [("_Sink._abort", "all((isinstance(message, _Written) for message in messages))", "True")],
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
            UNIT + "sender/test_events_sink.py::test_what_is_refused_leaves_no_frames",
            UNIT + "sender/test_events_sink.py::test_a_write_for_other_sites_is_refused",
        ],
    ),
    (
        "refused late",
        [("append_epoch", "not tried", "True")],
        [
            UNIT
            + "sender/test_events_sink.py::test_what_is_refused_after_a_manifest_was_tried_leaves_its_frames"
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
                "Publisher.round",
                "now - began > STALE_AGE * 1000 and (not are_safe(self.log, manifest.frames))",
                "False",
            )
        ],
        [UNIT + "sender/test_publish.py::test_f47_frames_that_may_be_swept_are_not_named[False]"],
    ),
    (
        "f47 stale sink",
        [
            (
                "append_epoch",
                "now - min((part.began for part in written)) > STALE_AGE * 1000 and (not are_safe(log, frames))",
                "False",
            )
        ],
        [UNIT + "sender/test_events_sink.py::test_f47_frames_that_may_be_swept_are_not_named"],
    ),
    (
        "f47 days",
        [
            (
                "Publisher.round",
                "now - began > STALE_AGE * 1000 and (not are_safe(self.log, manifest.frames))",
                "now - began > STALE_AGE * 1000",
            )
        ],
        [UNIT + "sender/test_publish.py::test_a_snapshot_may_take_days"],
    ),
    (
        "f47 days sink",
        [
            (
                "append_epoch",
                "now - min((part.began for part in written)) > STALE_AGE * 1000 and (not are_safe(log, frames))",
                "now - min((part.began for part in written)) > STALE_AGE * 1000",
            )
        ],
        [UNIT + "sender/test_events_sink.py::test_a_write_may_take_days"],
    ),
    (
        "f47 there",
        [
            (
                "are_safe",
                "frame.path in there and newest[write_of(frame.path)] > now - STALE_AGE",
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
                "frame.path in there and newest[write_of(frame.path)] > now - STALE_AGE",
                "frame.path in there",
            )
        ],
        [
            UNIT + "sender/test_publish.py::test_f47_frames_that_may_be_swept_are_not_named[False]",
            UNIT + "sender/test_events_sink.py::test_f47_frames_that_may_be_swept_are_not_named",
        ],
    ),
    (
        "f47 write",
        [("_newest_frames", "max", "min")],
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
        [("new_attempt", "write[:_OF_WRITE] + uuid.uuid4().hex[_OF_WRITE:]", "uuid.uuid4().hex")],
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
        [("_CaptureTask.__call__", "self.header.attempt", "__import__('uuid').uuid4().hex")],
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
        [UNIT + "sender/test_acks.py::test_the_age_of_a_frame_is_told_by_the_stores_clock"],
    ),
    (
        "f47 inside append",
        [
            (
                "append_in_time",
                "clock() - began > STALE_AGE * 1000 and (not are_there(log, manifest.frames))",
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
                "not written or not manifests or manifests[-1] is None or (not self._is_whole(numbers, manifests[-1]))",
                "not written or not manifests or manifests[-1] is None",
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
            + "sender/test_acks.py::test_f47_a_late_manifest_of_a_lost_log_above_a_new_one_is_told"
        ],
    ),
    (
        "remotes of a keeper",
        [("AckManager._gone", "gone if self.former is None else gone & set(self.former)", "gone")],
        [
            UNIT
            + "sender/test_events_sink.py::test_a_write_for_other_sites_trims_nothing_that_those_lack[empty-False]"
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
                "found.log_id != manifest.log_id and found.created > manifest.created",
                "found.log_id != manifest.log_id",
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
            + "channels/test_log.py::test_f47_a_manifest_that_a_repeated_write_has_brought_back_is_no_proof"
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
                "StreamLog._numbers",
                "listed if len(listed) > 1 else self.channel.stream_numbers(self.stream)",
                "listed",
            )
        ],
        [
            UNIT
            + "channels/test_log.py::test_a_listing_without_the_newest_manifest_is_made_again[torn0]",
            UNIT
            + "channels/test_log.py::test_a_listing_without_the_newest_manifest_is_made_again[torn1]",
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
            + "channels/test_log.py::test_a_log_that_moved_on_since_it_was_listed_has_its_newest_manifest"
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
            + "datasource/test_source_listing.py::test_a_listing_without_a_log_that_is_there_ends_no_query"
        ],
    ),
    (
        "f50 stopped",
        [
            (
                "ReceiverHandle._find_end",
                "self._stop.is_set() or (self._once and failure is None)",
                "True",
            )
        ],
        [
            UNIT
            + "receiver/test_receiver_says.py::test_f50_a_query_that_somebody_stopped_ends_with_an_error"
        ],
    ),
    (
        "f50 stopped once",
        [("ReceiverHandle._find_end", "self._once and failure is None", "self._once")],
        [
            UNIT
            + "receiver/test_receiver_handle.py::test_a_run_that_is_to_end_and_was_stopped_from_outside_ends_with_an_error"
        ],
    ),
    (
        "f50 channel",
        [
            (
                "ChannelReceiver._find",
                "try:\n    ...\nexcept ChannelError as error:\n    self._trouble = str(error)\n    raise",
                "try:\n    ...\nexcept ChannelError:\n    raise",
            )
        ],
        [
            UNIT
            + "receiver/test_receiver_says.py::test_f50_a_channel_that_does_not_answer_holds_its_streams"
        ],
    ),
    (
        "f50 channel answers",
        [("ChannelReceiver._find", "self._trouble = None", "pass")],
        [
            UNIT
            + "receiver/test_receiver_says.py::test_f50_a_channel_that_does_not_answer_holds_its_streams"
        ],
    ),
    (
        "f50 woken",
        [("WakeUpReader.without_channel", "if self.until is not None: ...", "raise error")],
        [
            UNIT
            + "receiver/test_receiver_says.py::test_f50_a_source_wakes_its_receiver_when_the_channel_does_not_answer"
        ],
    ),
    (
        "f50 woken only",
        [("WakeUpReader.without_channel", "if self.until is not None: ...", "pass")],
        [
            UNIT
            + "receiver/test_receiver_says.py::test_f50_a_source_wakes_its_receiver_when_the_channel_does_not_answer"
        ],
    ),
    (
        "connect channel",
        [("ChannelReceiver.acked", "self._trouble = str(error)\nreturn self.statuses()", "raise")],
        [UNIT + "receiver/test_receiver_says.py::test_under_connect_what_cannot_be_read_is_held"],
    ),
    (
        "connect stream",
        [
            (
                "ChannelReceiver.acked",
                "self._status(name, self._tables.get(name, '')).held = str(error)\ncontinue",
                "raise",
            )
        ],
        [UNIT + "receiver/test_receiver_says.py::test_under_connect_what_cannot_be_read_is_held"],
    ),
    (
        "left hold",
        [("ChannelReceiver._find", "self._asked(done)", "()")],
        [
            UNIT
            + "receiver/test_receiver_says.py::test_a_hold_that_another_receiver_left_is_answered"
        ],
    ),
    (
        "left hold told",
        [("ChannelReceiver._is_told_as_held", "ack is not None and ack.held is not None", "False")],
        [
            UNIT
            + "receiver/test_receiver_says.py::test_a_hold_that_another_receiver_left_is_answered"
        ],
    ),
    (
        "left hold unreadable",
        [("ChannelReceiver._is_told_as_held", "True", "False")],
        [UNIT + "receiver/test_receiver_says.py::test_an_answer_that_cannot_be_read_is_told"],
    ),
    (
        "left hold tried",
        [("ChannelReceiver._find_one", "self._done.pop(stream.stream, None)", "pass")],
        [
            UNIT
            + "receiver/test_receiver_says.py::test_a_hold_that_was_taken_over_is_tried_in_its_time"
        ],
    ),
    (
        "removed stream",
        [("ChannelReceiver._find", "stream not in listed", "False")],
        [
            UNIT
            + "receiver/test_receiver_says.py::test_a_stream_that_was_removed_is_not_told_as_held"
        ],
    ),
    (
        "one tables ledger",
        [
            (
                "ChannelReceiver._apply_stream",
                "self._refuse(stream, None, numbers[-1], str(error))\nreturn",
                "raise",
            )
        ],
        [
            UNIT
            + "receiver/test_receiver_says.py::test_decisions_that_cannot_be_recorded_hold_their_table_alone"
        ],
    ),
    (
        "removed while read",
        [("_stream", "not numbers", "False")],
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
            + "ledger/test_ledger.py::test_f47_a_receiver_that_was_frozen_past_the_log_retention_reads_the_ledger_again",
            UNIT
            + "ledger/test_ledger.py::test_f55_marks_without_which_event_ids_do_not_count_are_missed",
        ],
    ),
    (
        "f55 marks",
        [("check_event_ids", "lost and users", "False")],
        [
            UNIT
            + "ledger/test_ledger.py::test_f55_marks_without_which_event_ids_do_not_count_are_missed",
            UNIT
            + "ledger/test_ledger.py::test_f55_a_user_s_marks_that_are_lost_below_those_of_a_captured_stream_are_missed",
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
            + "ledger/test_ledger.py::test_f55_a_user_s_marks_that_are_lost_below_those_of_a_captured_stream_are_missed"
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
            + "ledger/test_ledger.py::test_f55_event_ids_tell_of_a_users_stream_whose_marks_are_all_lost"
        ],
    ),
    (
        "f55 marks captured",
        [("check_event_ids", "lost and users", "lost")],
        [
            UNIT
            + "ledger/test_ledger.py::test_f55_a_captured_stream_alone_needs_its_newest_mark_only"
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
            + "ledger/test_ledger.py::test_f55_event_ids_of_version_0_1_0_that_are_all_gone_are_missed"
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
            + "ledger/test_ledger.py::test_a_lost_ledger_is_told_where_the_history_does_not_reach_back"
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
        [UNIT + "ledger/test_ledger.py::test_an_apply_number_that_comes_again_is_told"],
    ),
    (
        "f55 marks taken up",
        [("Ledger._take_up_lost_marks", "list(told)", "[]")],
        [
            UNIT
            + "ledger/test_ledger.py::test_f55_marks_without_which_event_ids_do_not_count_are_missed"
        ],
    ),
    (
        "f55 each",
        [("check_event_ids", "mark.new_ids and (not recorded.has(mark))", "False")],
        [
            UNIT
            + "ledger/test_ledger.py::test_f55_event_ids_that_the_ledger_has_lost_hold_the_stream"
        ],
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
            UNIT
            + "ledger/test_ledger.py::test_f55_event_ids_that_the_ledger_has_lost_hold_the_stream",
            UNIT
            + "ledger/test_ledger.py::test_f55_marks_without_which_event_ids_do_not_count_are_missed",
        ],
    ),
    (
        "f55 found",
        [("Ledger._catch_up", "[*self._unchecked, *rows]", "self._unchecked")],
        [
            UNIT + "ledger/test_ledger.py::test_f29_a_ledger_lost_with_its_event_ids_is_held",
            UNIT
            + "ledger/test_ledger.py::test_f55_event_ids_that_the_ledger_has_lost_hold_the_stream",
        ],
    ),
    (
        "f55 once",
        [("Ledger._catch_up", "self._unchecked = None", "pass")],
        [
            UNIT
            + "ledger/test_ledger.py::test_f55_event_ids_that_the_ledger_has_lost_hold_the_stream"
        ],
    ),
    (
        "time zero",
        [("Mark.content", "value != later[name]", "value")],
        [UNIT + "ledger/test_ledger.py::test_an_event_time_of_zero_is_one"],
    ),
    (
        "time zero floor",
        [("RecordedIds.has", "floor is not None", "bool(floor)")],
        [UNIT + "ledger/test_ledger.py::test_an_event_time_of_zero_is_one"],
    ),
    (
        "time zero until",
        [("RecordedIds.has", "mark.ids_until is not None", "bool(mark.ids_until)")],
        [UNIT + "ledger/test_ledger.py::test_an_event_time_of_zero_is_one"],
    ),
    (
        "letters then frame",
        [
            (
                "TableApplier._apply_sound",
                "yield from self._apply_sound(epochs[: len(epochs) // 2], number, result)",
                "yield from self._apply(epochs[: len(epochs) // 2], number, result)",
            )
        ],
        [
            UNIT
            + "receiver/test_dead_letter_cap.py::test_a_frame_that_goes_bad_while_parts_are_looked_for_is_the_cause"
        ],
    ),
    (
        "frame then letters",
        [
            (
                "TableApplier._before_bad_frame",
                "yield from self._apply_sound(epochs[:index], number, result)",
                "yield from self._apply(epochs[:index], number, result)",
            )
        ],
        [
            UNIT
            + "receiver/test_dead_letter_cap.py::test_a_bad_frame_behind_them_is_the_cause[letters0]"
        ],
    ),
    (
        "frame overtaken",
        [
            (
                "TableApplier._before_bad_frame",
                "self.ledger.catch_up(self.target) != number",
                "False",
            )
        ],
        [
            UNIT
            + "receiver/test_apply.py::test_f08_frames_that_are_trimmed_since_another_receiver_applied_them_hold_nothing"
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
            + "receiver/test_apply.py::test_f47_a_receiver_that_was_overtaken_after_its_look_at_the_ledger_holds_nothing"
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
            + "receiver/test_dead_letter_cap.py::test_a_bad_frame_behind_them_is_the_cause[letters0]"
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
        [
            UNIT
            + "receiver/test_apply.py::test_frames_that_could_not_be_read_for_a_moment_hold_nothing"
        ],
    ),
    (
        "unbegun",
        [("spark_thread.SparkThread.run", "if begun:\n    raise", "raise")],
        [
            UNIT
            + "sender/test_sender_handle.py::test_f50_a_session_that_ends_before_the_streams_begin"
        ],
    ),
    (
        "begun",
        [("spark_thread.SparkThread.run", "if begun:\n    raise", "pass")],
        [UNIT + "receiver/test_workers.py::test_an_error_of_the_target_is_no_lost_session"],
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
            + "test_steps.py::test_each_step_stops_the_process_once_where_threads_reach_some_at_the_same_moment"
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
