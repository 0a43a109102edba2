"""Signs of life, and whether we hear at all: silence is not absence when we were deaf.

Gateways and notifiers report every quarter of a liveness window, an empty report included. One overdue by half a window
without a goodbye, or none at all, means that signs may have been lost: then everybody in the line is taken as live.
"""

from services.queue import redis_keys
from services.queue.line.redis_line import LineNotReady, RedisLine
from services.queue.rooms.model import WaitingRoom
from services.queue.rooms.store import Rooms
from shared.contracts.queue import LifeReport, SignsOfLife
from shared.redis.client import REDIS_AWAY, Redis, near
from shared.web.problems import StaleEpoch

REPORTERS_MAX = 1000
WINDOW_DEFAULT_S = 30


class Heartbeats:
    """Who reports, and what was heard."""

    def __init__(self, redis: Redis, line: RedisLine, rooms: Rooms) -> None:
        self._redis, self._line, self._rooms = redis, line, rooms

    async def report(self, report: LifeReport) -> float:
        """Takes a report; seconds until the next one is wanted."""
        if report.goodbye:
            await self._redis.zrem(redis_keys.REPORTERS, report.reporter)
        else:
            await self._redis.zadd(redis_keys.REPORTERS, {report.reporter: await self._now_ms()})
        lost: Exception | None = None
        for signs in report.events:
            try:
                await self._hear(signs)
            except REDIS_AWAY as away:  # other events may be with another engine
                lost = away
        if lost is not None:
            raise lost  # the reporter tells it all once more
        return self._shortest_s() / 4

    async def _hear(self, signs: SignsOfLife) -> None:
        for lane, join_seqs in signs.lanes.items():
            try:
                await self._line.touch(signs.event_id, signs.epoch, lane, join_seqs)
            except (LineNotReady, StaleEpoch):
                return  # everybody is taken as live after a filling, and nobody is left after a reset

    async def has_gap(self, rooms: list[WaitingRoom]) -> set[str]:
        """The rooms whose signs of life may have been lost. A reporter found dead is named once, then forgotten."""
        reporters = await self._redis.zrange(redis_keys.REPORTERS, 0, REPORTERS_MAX, withscores=True)
        if not reporters:
            return {room.event_id for room in rooms}
        now_ms = await self._now_ms()
        oldest_ms = now_ms - min(score for _, score in reporters)
        return {room.event_id for room in rooms if oldest_ms > room.liveness_window_s * 750}

    async def forget_dead(self, rooms: list[WaitingRoom]) -> None:
        """Drops reporters that every room has been told of."""
        longest_s = max((room.liveness_window_s for room in rooms), default=WINDOW_DEFAULT_S)
        until_ms = await self._now_ms() - longest_s * 750
        await self._redis.zremrangebyscore(redis_keys.REPORTERS, "-inf", f"({until_ms}")

    def _shortest_s(self) -> float:
        return min((room.liveness_window_s for room in self._rooms.known.values()), default=WINDOW_DEFAULT_S)

    async def _now_ms(self) -> int:
        seconds, microseconds = await (await near(self._redis, redis_keys.REPORTERS)).time()
        return int(seconds) * 1000 + int(microseconds) // 1000 + self._line.clock_offset_ms
