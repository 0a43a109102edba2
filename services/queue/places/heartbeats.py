"""Heartbeats of fans, as gateways and notifiers report them, and whether reports are missing.

Each process reports every quarter of a liveness window, even if it has nothing to report. If a report is overdue by
half a window without a goodbye, or there is no reporter at all, heartbeats may have been lost: then all places are
taken as live, because a missing heartbeat proves nothing while reports are missing.
"""

from services.queue import redis_keys
from services.queue.line.redis_line import LineNotReady, RedisLine
from services.queue.rooms.model import WaitingRoom
from services.queue.rooms.store import Rooms
from shared.concurrency.background import wake
from shared.contracts.queue import EventHeartbeats, HeartbeatReport
from shared.errors.problems import StaleEpoch
from shared.redis.client import REDIS_AWAY, Redis, node_for_key

REPORTERS_MAX = 1000
WINDOW_DEFAULT_S = 30


class Heartbeats:
    """Keeps the reporters and passes heartbeats to the line."""

    def __init__(self, redis: Redis, line: RedisLine, rooms: Rooms) -> None:
        self._redis, self._line, self._rooms = redis, line, rooms

    async def report(self, report: HeartbeatReport) -> float:
        """Applies a report; seconds until the next one is expected."""
        if report.final:
            await self._redis.zrem(redis_keys.reporters(), report.reporter)
        else:
            await self._redis.zadd(redis_keys.reporters(), {report.reporter: await self._now_ms()})
        if report.events:
            wake("queue")  # a fan who was passed over may be back
        failed: Exception | None = None
        for signs in report.events:
            try:
                await self._touch(signs)
            except REDIS_AWAY as away:  # other events may be on another Redis node
                failed = away
        if failed is not None:
            raise failed  # the reporter sends the whole report again
        return min((room.liveness_window_s for room in self._rooms.known.values()), default=WINDOW_DEFAULT_S) / 4

    async def _touch(self, signs: EventHeartbeats) -> None:
        for lane, join_seqs in signs.lanes.items():
            try:
                await self._line.touch(signs.event_id, signs.epoch, lane, join_seqs)
            except (LineNotReady, StaleEpoch):
                return  # after a rebuild all places are taken as live; after a reset none of them exists

    async def has_gap(self, rooms: list[WaitingRoom]) -> set[str]:
        """The rooms whose heartbeats may have been lost."""
        reporters = await self._redis.zrange(redis_keys.reporters(), 0, REPORTERS_MAX, withscores=True)
        if not reporters:
            return {room.event_id for room in rooms}
        now_ms = await self._now_ms()
        oldest_ms = now_ms - min(score for _, score in reporters)
        return {room.event_id for room in rooms if oldest_ms > room.liveness_window_s * 750}

    async def forget_dead(self, rooms: list[WaitingRoom]) -> None:
        """Removes dead reporters, once every room has had ticks with the gap."""
        longest_s = max((room.liveness_window_s for room in rooms), default=WINDOW_DEFAULT_S)
        until_ms = await self._now_ms() - longest_s * 750
        await self._redis.zremrangebyscore(redis_keys.reporters(), "-inf", f"({until_ms}")

    async def _now_ms(self) -> int:
        seconds, microseconds = await (await node_for_key(self._redis, redis_keys.reporters())).time()
        return int(seconds) * 1000 + int(microseconds) // 1000 + self._line.clock_offset_ms
