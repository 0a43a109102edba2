"""The event log as the suite uses it, ordered and durable: services append events to it, and others read them. By
default it is in Redis or Valkey; a feature may bring others.

A log has streams. All events of one source about one on-sale are in one stream, in order, delivered at least once. A
position is an opaque string that belongs to one stream; a reader stores it together with the effect of what it read.
"""

import asyncio
import zlib
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, NamedTuple, Protocol

from redis.exceptions import ClusterCrossSlotError

from shared.features import BadFeature, event_logs, load
from shared.redis import client as redis_client
from shared.redis.client import ANSWERED_WITHIN_S, Redis, Script
from shared.redis.cluster import Cluster

if TYPE_CHECKING:  # a backup reads how many streams there are, and waits for no framework
    from shared.process.settings import ServiceSettings

SETTING = "ONSALE_EVENT_LOG_URL"
START = ""  # the position before the oldest entry that is kept
PUBLISH_S = 4.0  # shorter than a silent relay keeps its lock, which it therefore still has after a time-out


class PendingEvent(NamedTuple):
    """An event to be appended. A log that can do so recognises a duplicate by `id`."""

    id: str
    event_id: str
    type: str
    body: str


class LogEntry(NamedTuple):
    """An event in the log, and the position after which to continue."""

    stream: str
    position: str
    body: bytes


class LogUnavailable(Exception):
    """The event log did not accept or deliver events in time."""


class LogRefused(Exception):
    """The event log is configured wrongly. The message is one clear line."""


class EventLog(Protocol):
    """The operations that relays and readers use. A log connects at its first use and reconnects by itself."""

    async def publish(self, source: str, batch: Sequence[PendingEvent]) -> None:
        """Appends the batch in order and returns when it is durable. Raises `LogUnavailable`; then the first events may
        have been appended, and the caller publishes the whole batch again.
        """

    async def streams(self, source: str) -> list[str]:
        """The names of all streams with events of this source."""

    async def read(self, positions: Mapping[str, str], *, count: int, wait_s: float) -> list[LogEntry]:
        """The entries after `positions` (stream → position), in order within each stream, at most `count` of each; an
        empty list if none arrives within `wait_s`.
        """

    async def close(self) -> None:
        """Closes the connection."""


ADD = Script.load(__package__, "add")
STREAMS = 16
POLL_S, POLL_MAX_S = 0.1, 1.0
BLOCK_S = ANSWERED_WITHIN_S / 2


def log_stream(event_id: str) -> str:
    """The stream of an on-sale: `log:{0}` … `log:{15}`."""
    return f"log:{{{zlib.crc32(event_id.encode()) % STREAMS}}}"


class RedisStreams:
    """Sixteen streams by hash of the on-sale, so that they spread over a cluster. Every command names one key and every
    transaction one slot. A batch is appended to a stream completely or not at all, so a repeated batch never ends up
    out of order.

    A position is the id of an entry. A reader waits in Redis for the next entry; on a cluster, where a command that
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


@asynccontextmanager
async def open_log(settings: "ServiceSettings", client: Redis) -> AsyncIterator[EventLog]:
    """The event log that the settings name; by default it is in the service's own Redis. An unreachable log does not
    stop the start. Raises `LogRefused` if it is configured wrongly.
    """
    log = _log(settings, client)
    try:
        yield log
    finally:
        await log.close()


def _log(settings: "ServiceSettings", client: Redis) -> EventLog:
    url, length_max = settings.event_log_url, settings.event_log_length_max
    if not url:
        return RedisStreams(client, length_max=length_max)
    scheme, engines = url.partition("://")[0], event_logs(settings.features_off)
    if engine := engines.get(scheme):
        try:
            log: EventLog = load(engine.open)(url, settings)
        except BadFeature as missing:
            raise LogRefused(f"{SETTING} is {scheme}://…, which needs: pip install '{engine.needs}'") from missing
        return log
    try:
        return RedisStreams(redis_client.connect(url), length_max=length_max, owned=True)
    except ValueError as wrong:
        possible = " or ".join(["redis://…", *(f"{name}://host,host" for name in sorted(engines))])
        raise LogRefused(f"{SETTING} must be {possible}, not {scheme}://…") from wrong
