"""The event log in Redis or Valkey: sixteen streams by hash of the on-sale, so that they spread over a cluster.

Every command names one key and every transaction one slot. What is added to a stream at once is added whole or not at
all, so that a batch given again never overtakes itself.
"""

import asyncio
import zlib
from collections.abc import Mapping, Sequence

from shared.messaging.log import START, Entry, Told
from shared.redis.client import Redis
from shared.redis.scripts import Script

ADD = Script.load(__package__, "add")
STREAMS = 16
POLL_S = 0.1


def log_stream(event_id: str) -> str:
    """The stream of an on-sale: `log:{0}` … `log:{15}`."""
    return f"log:{{{zlib.crc32(event_id.encode()) % STREAMS}}}"


class RedisStreams:
    """Positions are the ids of entries. A reader looks ten times a second: one command can wait in one slot only."""

    def __init__(self, redis: Redis, *, length_max: int, owned: bool = False) -> None:
        self.redis, self._length_max, self._owned = redis, length_max, owned

    async def publish(self, source: str, batch: Sequence[Told]) -> None:
        by_stream: dict[str, list[str]] = {}
        for told in batch:
            by_stream.setdefault(log_stream(told.event_id), []).append(told.body)
        for stream, bodies in by_stream.items():
            await ADD(self.redis, stream=stream, length_max=self._length_max, bodies=bodies)

    async def streams(self, source: str) -> list[str]:
        return [f"log:{{{n}}}" for n in range(STREAMS)]

    async def read(self, positions: Mapping[str, str], *, count: int, wait_s: float) -> list[Entry]:
        clock = asyncio.get_running_loop().time
        until = clock() + wait_s
        while True:
            entries = await self._now(positions, count)
            if entries or clock() >= until:
                return entries
            await asyncio.sleep(POLL_S)

    async def _now(self, positions: Mapping[str, str], count: int) -> list[Entry]:
        pipe = self.redis.pipeline(transaction=False)
        for stream, position in positions.items():
            pipe.xrange(stream, min="-" if position == START else f"({position}", count=count)
        answers = await pipe.execute()
        return [
            Entry(stream, position.decode(), fields[b"event"])
            for stream, entries in zip(positions, answers, strict=True)
            for position, fields in entries
        ]

    async def close(self) -> None:
        if self._owned:
            await self.redis.aclose()
