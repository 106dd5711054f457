"""Deletes from the topics what no reader needs any more.

A broker deletes the beginning of a partition, and nothing else. So:

- Frames are deleted up to the first one that a manifest names. One that none names yet may be named
  soon: it counts as left behind after :data:`UNNAMED_AGE`. Where few frames that are needed, those
  of a stream that is held, stand before many that are not, they are written once more at the end.
- A record announces first up to where frames are deleted. No later manifest that names one of them
  counts, whoever wrote it; so a writer that was frozen cannot bring a frame back that is gone.
- The log is deleted up to a checkpoint, which holds the state before it.

Any number of keepers may work at the same time, and end at any step.
"""

from __future__ import annotations

import functools
import threading

from spark_wan.channels.kafka.parts import MAX_STATE_BYTES
from spark_wan.channels.kafka.seen_log import SeenLog
from spark_wan.channels.kafka.topics import Topics
from spark_wan.channels.parallel import in_order
from spark_wan.errors import ChannelError, FrameError
from spark_wan.messages import message_log
from spark_wan.wire import topic_log

log = message_log(__name__)

UNNAMED_AGE = 86_400.0
"""Seconds after which a frame that no manifest names counts as left behind."""
LOG_OPERATIONS = 1_000
"""Number of operations in the log, at least, that are worth a checkpoint."""
FRAMES_AT_ONCE = 64
"""Number of records of a partition, at least, that are worth a deletion."""


class Keeper:
    """Keeps the topics of a channel short."""

    def __init__(self, channel: Topics) -> None:
        self._channel = channel
        self._lock = threading.Lock()
        self.log_operations = LOG_OPERATIONS
        self.frames_at_once = FRAMES_AT_ONCE

    def keep_in_time(self) -> None:
        """Delete what is worth it, unless another thread is at it. An error is logged: nothing is
        lost, and the next call does it.

        What the channel has read before tells whether anything is worth it: no request if not.
        """
        if not self._lock.acquire(blocking=False):
            return
        try:
            worth = self._channel.log.known(self._partitions_worth)
            if worth:
                self._keep_frames(worth)
            if self._channel.log.known(self._is_log_long):
                self._checkpoint()
        except ChannelError as error:
            log.warning(
                "channel %s: its topics could not be shortened, and grow until they are: %s",
                self._channel.url,
                error,
                event="topics-not-shortened",
                channel=self._channel.url,
                cause=str(error),
            )
        finally:
            self._lock.release()

    def _is_log_long(self, seen: SeenLog) -> bool:
        return seen.since_checkpoint >= max(self.log_operations, 2 * seen.state.size())

    def _keep_frames(self, partitions: list[int]) -> None:
        topic = self._channel.topic("frames")
        # Side by side: the stream that trimmed waits, and over a long distance each takes a second.
        old = in_order(functools.partial(self._old_through, topic), partitions)
        aged = dict(zip(partitions, old, strict=True))
        self._move_frames(aged)
        floors = self._channel.log.fresh(lambda seen: self._floors(seen, aged))
        if floors and self._channel.submit(topic_log.FLOOR, {"floors": [*floors.items()]}):
            self._channel.broker.delete_before(topic, floors)

    def _old_through(self, topic: str, partition: int) -> int:
        """Return the offset up to which all frames are :data:`UNNAMED_AGE` older than the newest.

        By the clock that dates both: another broker's may be wrong.
        """
        broker = self._channel.broker
        end = broker.end(topic, partition)
        for newest in broker.read(topic, partition, end - 1, end) if end else ():
            return min(end, broker.offset_at(topic, partition, newest.time - UNNAMED_AGE))
        return 0

    def _partitions_worth(self, seen: SeenLog) -> list[int]:
        """Return the partitions with enough frames that were trimmed."""
        return [
            partition
            for partition, dead in seen.state.dead.items()
            if sum(end - start for start, end in dead) >= self.frames_at_once
        ]

    def _floors(self, seen: SeenLog, aged: dict[int, int]) -> dict[int, int]:
        """Return, by partition, the offset up to which no frame is needed, or may be soon: where it
        is worth a deletion."""
        lowest = seen.state.lowest_alive()
        floors = {}
        for partition, old in aged.items():
            floor = self._end_of_unneeded(seen, partition, old)
            floor = min(floor, lowest.get(partition, floor))
            if floor - seen.state.floors.get(partition, 0) >= self.frames_at_once:
                floors[partition] = floor
        return floors

    def _end_of_unneeded(self, seen: SeenLog, partition: int, old: int) -> int:
        """Return up to where all frames are trimmed, old, or named by a manifest."""
        named = {
            offset
            for path in seen.state.frames.values()
            for part, offset in path
            if part == partition
        }
        dead = seen.state.dead.get(partition)
        floor = max(old, seen.state.floors.get(partition, 0))
        while True:
            after = dead.after(floor) if dead is not None else floor
            while after in named:
                after += 1
            if after == floor:
                return floor
            floor = after

    def _move_frames(self, aged: dict[int, int]) -> None:
        """Move the frames that stand before at least twice as many that are not needed."""
        for partition, old in aged.items():
            look = functools.partial(self._to_move, partition=partition, old=old)
            for path in self._channel.log.fresh(look):
                try:
                    self._channel.move_frame(path)
                except FrameError as error:  # its stream is held when a receiver reads it
                    log.warning(
                        "channel %s: a frame is not moved, so its topic grows: %s",
                        self._channel.url,
                        error,
                        event="frame-not-moved",
                        channel=self._channel.url,
                        cause=str(error),
                    )

    def _to_move(self, seen: SeenLog, partition: int, old: int) -> list[str]:
        dead = seen.state.dead.get(partition)
        end = self._end_of_unneeded(seen, partition, old)
        before = {
            path: min(offset for part, offset in places if part == partition)
            for path, places in seen.state.frames.items()
            if any(part == partition and offset < end for part, offset in places)
        }
        if dead is None or not before:
            return []
        # From the first one on, as many as it takes for what is deleted to be worth the copies.
        lowest = min(before.values())
        waste = dead.count(lowest, end)
        return sorted(before) if waste >= max(2 * len(before), self.frames_at_once) else []

    def _checkpoint(self) -> None:
        """Write a checkpoint, and delete the log before it."""
        channel = self._channel
        topic = channel.topic("log")
        begin = topic_log.Operation(topic_log.BEGIN, channel.channel_id())
        channel.log.fresh(lambda seen: seen.states_before.update({begin.id: None}))
        try:
            [written] = channel.broker.produce(topic, 0, [(b"", begin.encode())])
            state = channel.log.fresh(lambda seen: seen.states_before[begin.id])
        finally:
            channel.log.known(lambda seen: seen.states_before.pop(begin.id, None))
        if state is None:
            return  # the topic was made again meanwhile
        if not state:
            log.warning(
                "channel %s: what it holds takes more than %s bytes, too many for a checkpoint. "
                "The topic %s grows.",
                channel.url,
                f"{MAX_STATE_BYTES:,}",
                topic,
                event="checkpoint-too-large",
                channel=channel.url,
                what_to_do="It does until sites have acked more, or `spark-wan remove` has removed "
                "a stream of which nobody reads the rest.",
            )
            return
        fields = {"begin": begin.id, "offset": written.offset}
        channel.submit(topic_log.CHECKPOINT, fields, state)
        checkpointed = channel.log.fresh(lambda seen: seen.checkpointed)
        if checkpointed is not None:
            channel.broker.delete_before(topic, {0: checkpointed})
