"""The event log in Redis or Valkey: sixteen streams by hash of the on-sale, so that they spread over a cluster.

Every command names one key and every transaction one slot. A batch is appended to a stream completely or not at all, so
a repeated batch never ends up out of order.
"""

import asyncio
import zlib
from collections.abc import Mapping, Sequence

from redis.exceptions import ClusterCrossSlotError

from shared.messaging.log import START, LogEntry, PendingEvent
from shared.redis.client import ANSWERED_WITHIN_S, Redis, Script
from shared.redis.cluster import Cluster

ADD = Script.load(__package__, "add")
STREAMS = 16
POLL_S, POLL_MAX_S = 0.1, 1.0
BLOCK_S = ANSWERED_WITHIN_S / 2


def log_stream(event_id: str) -> str:
    """The stream of an on-sale: `log:{0}` … `log:{15}`."""
    return f"log:{{{zlib.crc32(event_id.encode()) % STREAMS}}}"


class RedisStreams:
    """A position is the id of an entry. A reader waits in Redis for the next entry; on a cluster, where a command that
    waits is for one slot only, it asks ten times a second, and once while nothing comes.
    """

    def __init__(self, redis: Redis, *, length_max: int, owned: bool = False) -> None:
        self.redis, self._length_max, self._owned = redis, length_max, owned
        self._can_wait = not isinstance(redis, Cluster)

    async def publish(self, source: str, batch: Sequence[PendingEvent]) -> None:
        by_stream: dict[str, list[str]] = {}
        for event in batch:
            by_stream.setdefault(log_stream(event.event_id), []).append(event.body)
        for stream, bodies in by_stream.items():
            await ADD(self.redis, stream=stream, length_max=self._length_max, bodies=bodies)

    async def streams(self, source: str) -> list[str]:
        return [f"log:{{{n}}}" for n in range(STREAMS)]

    async def read(self, positions: Mapping[str, str], *, count: int, wait_s: float) -> list[LogEntry]:
        clock = asyncio.get_running_loop().time
        until, poll_s = clock() + wait_s, POLL_S
        while True:
            entries = await self._next(positions, count, max(0.0, until - clock()), poll_s)
            if entries or clock() >= until:
                return entries
            poll_s = min(2 * poll_s, POLL_MAX_S)

    async def _next(self, positions: Mapping[str, str], count: int, wait_s: float, poll_s: float) -> list[LogEntry]:
        """The next entries, or none after a while of at most `wait_s`."""
        if self._can_wait:
            try:
                return await self._wait(positions, count, min(BLOCK_S, wait_s))
            except ClusterCrossSlotError:  # a node of a cluster under the address of a single server
                self._can_wait = False
        entries = await self._read_once(positions, count)
        if not entries:
            await asyncio.sleep(min(poll_s, wait_s))
        return entries

    async def _wait(self, positions: Mapping[str, str], count: int, wait_s: float) -> list[LogEntry]:
        """The next entries as soon as there are any, at most `wait_s` later."""
        after = {stream: "0" if position == START else position for stream, position in positions.items()}
        block_ms = round(wait_s * 1000) or None  # 0 would wait for ever
        return [
            LogEntry(stream.decode(), position.decode(), fields[b"event"])
            for stream, entries in await self.redis.xread(after, count=count, block=block_ms)
            for position, fields in entries
        ]

    async def _read_once(self, positions: Mapping[str, str], count: int) -> list[LogEntry]:
        pipe = self.redis.pipeline(transaction=False)
        for stream, position in positions.items():
            pipe.xrange(stream, min="-" if position == START else f"({position}", count=count)
        answers = await pipe.execute()
        return [
            LogEntry(stream, position.decode(), fields[b"event"])
            for stream, entries in zip(positions, answers, strict=True)
            for position, fields in entries
        ]

    async def close(self) -> None:
        if self._owned:
            await self.redis.aclose()
