"""Passes that died early, told to every gate before the slot they held is free; the ledger knows them all."""

from collections.abc import Sequence

from services.queue.rooms import Rooms
from shared.clock import now_ms
from shared.contracts.frames import REVOKED_MAX, Revoked, revoked_channel
from shared.postgres import statement
from shared.problems import Unavailable
from shared.redis import ENGINE_AWAY, Redis

REVOKED = statement(__package__, "revoked")
LEEWAY_MS = 10_000


class Revocations:
    """Tells gates which passes no longer work."""

    def __init__(self, redis: Redis) -> None:
        self._redis = redis

    async def tell(self, event_id: str, passes: Sequence[tuple[str, int]]) -> None:
        """Name and end of each. Raises `Unavailable` when nobody could be told: then no slot may be freed."""
        if not passes:
            return
        try:
            await self._redis.publish(
                revoked_channel(event_id), Revoked(event_id=event_id, passes=list(passes)).model_dump_json()
            )
        except ENGINE_AWAY as away:
            raise Unavailable("No gate can be told now.") from away


async def revoked(rooms: Rooms, event_id: str) -> Revoked:
    """All dead passes of the room that have not expired, those of the longest life first. Raises `UnknownEvent`."""
    room = await rooms.get(event_id)
    wanted = {
        "event_id": event_id, "epoch": room.epoch, "now_ms": now_ms() - LEEWAY_MS, "revoked_max": REVOKED_MAX
    }  # fmt: skip
    async with rooms.engine.connect() as connection:
        rows = await connection.execute(REVOKED, wanted)
        return Revoked(event_id=event_id, passes=[(row.jti, row.expires_at_ms) for row in rows])
