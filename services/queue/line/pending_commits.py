"""Places that are committed in the database but not yet in Redis.

They are committed to Redis as soon as it answers, before new numbers are allocated.
"""

from collections import defaultdict

from services.queue.line.redis_line import LineNotReady, RedisLine
from services.queue.rooms.model import WaitingRoom
from services.queue.rooms.store import Rooms
from shared.concurrency.background import ACTIVITY
from shared.redis.client import REDIS_AWAY

PENDING_MAX = 2_000_000


class PendingCommits:
    """Numbers by room and lane. If this process dies, all places are taken as live once the counter is raised."""

    def __init__(self, line: RedisLine, rooms: Rooms) -> None:
        self._line, self._rooms = line, rooms
        self._pending: dict[tuple[str, int, int], set[int]] = defaultdict(set)

    def add(self, room: WaitingRoom, lane: int, numbers: set[int]) -> None:
        """Adds committed numbers; beyond PENDING_MAX they are left to the raised counter."""
        pending = self._pending[room.event_id, room.epoch, lane]
        if len(pending) + len(numbers) <= PENDING_MAX:
            pending |= numbers

    async def commit(self, room: WaitingRoom, lane: int) -> None:
        """Commits the numbers of this lane to Redis. If that raises, they stay pending."""
        pending = self._pending.pop((room.event_id, room.epoch, lane), None)
        if pending:
            try:
                await self._line.commit_join(room, lane, "", pending)
            except BaseException:
                self.add(room, lane, pending)
                raise

    async def commit_all(self) -> None:
        """Commits all pending numbers; those of an old epoch are dropped."""
        if self._pending:
            ACTIVITY.stir()
        for event_id, epoch, lane in list(self._pending):
            room = await self._rooms.get(event_id)
            if room.epoch != epoch:
                self._pending.pop((event_id, epoch, lane), None)
                continue
            try:
                await self.commit(room, lane)
            except (LineNotReady, *REDIS_AWAY):
                continue
