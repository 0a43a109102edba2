"""Places this process put on disk without the engine knowing. They land when it answers again, before new numbers."""

from collections import defaultdict

from services.queue.line.redis_line import LineNotReady, RedisLine
from services.queue.rooms.model import WaitingRoom
from services.queue.rooms.store import Rooms
from shared.redis.client import REDIS_AWAY

UNLANDED_MAX = 2_000_000


class PendingCommits:
    """Numbers by room and lane. If this process dies, everybody is taken as live once the counter is raised."""

    def __init__(self, line: RedisLine, rooms: Rooms) -> None:
        self._line, self._rooms = line, rooms
        self._waiting: dict[tuple[str, int, int], set[int]] = defaultdict(set)

    def keep(self, room: WaitingRoom, lane: int, numbers: set[int]) -> None:
        """Remembers numbers that are on disk; past the limit they are left to the raised counter."""
        waiting = self._waiting[room.event_id, room.epoch, lane]
        if len(waiting) + len(numbers) <= UNLANDED_MAX:
            waiting |= numbers

    async def land(self, room: WaitingRoom, lane: int) -> None:
        """Lands what waits in this lane; raises what the engine raises, and keeps it then."""
        waiting = self._waiting.pop((room.event_id, room.epoch, lane), None)
        if waiting:
            try:
                await self._line.commit_join(room, lane, "", waiting)
            except BaseException:
                self.keep(room, lane, waiting)
                raise

    async def land_all(self) -> None:
        """Lands whatever waits; what belongs to an epoch that is over is forgotten."""
        for event_id, epoch, lane in list(self._waiting):
            room = await self._rooms.get(event_id)
            if room.epoch != epoch:
                self._waiting.pop((event_id, epoch, lane), None)
                continue
            try:
                await self.land(room, lane)
            except (LineNotReady, *REDIS_AWAY):
                continue
