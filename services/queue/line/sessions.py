"""The end of sessions. A freed slot never leaves a working pass: inventory revokes first, then the ledger ends the
place, and only then the slot is free. A live reservation lets its session stand.

After a reset the passes of the old line die at inventory; until it has said so, no pass of the new line is given.

Each process asks once for each epoch and remembers the answer: a claim costs nothing more.

Passes that died early, told to every gate before the slot they held is free; the ledger knows them all.
"""

import asyncio
import logging
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import NamedTuple

from services.queue.line.redis_line import RedisLine
from services.queue.line.replies import Due
from services.queue.line.repository import LineRepository, PlaceId, PlaceRow, by_lane
from services.queue.metrics import ENDED
from services.queue.rooms.model import WaitingRoom
from services.queue.rooms.store import Rooms
from shared.contracts.frames import REVOKED_MAX, Revoked, revoked_channel
from shared.contracts.inventory import BATCH_MAX, EndSessions, InventoryClient, PassFloor, SessionEnd, SessionRef
from shared.postgres.engine import AsyncEngine, statement
from shared.redis.client import REDIS_AWAY, Redis
from shared.runtime.clock import now_ms
from shared.runtime.logging import data
from shared.web.problems import Problem, Unavailable, UnknownEvent

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
        except REDIS_AWAY as away:
            raise Unavailable("No gate can be told now.") from away


async def revoked(rooms: Rooms, event_id: str) -> Revoked:
    """All dead passes of the room that have not expired, those of the longest life first. Raises `UnknownEvent`."""
    room = await rooms.get(event_id)
    wanted = {
        "event_id": event_id, "epoch": room.epoch, "now_ms": now_ms() - LEEWAY_MS, "revoked_max": REVOKED_MAX
    }  # fmt: skip
    async with rooms.db.connect() as connection:
        rows = await connection.execute(REVOKED, wanted)
        return Revoked(event_id=event_id, passes=[(row.jti, row.expires_at_ms) for row in rows])


class PassInvalidation:
    """The epochs below which inventory takes no pass, as far as this process was told."""

    def __init__(self, inventory: InventoryClient) -> None:
        self._inventory = inventory
        self._told: dict[str, int] = {}

    async def raised(self, room: WaitingRoom) -> None:
        """Returns once older passes are dead. Raises what asking raised. A room without stock has nothing to kill."""
        if room.epoch == 1 or self._told.get(room.event_id, 0) >= room.epoch:
            return
        with suppress(UnknownEvent):
            await self._inventory.raise_pass_floor(PassFloor(event_id=room.event_id, epoch=room.epoch))
        self._told[room.event_id] = room.epoch


log = logging.getLogger("onsale.queue")


class Session(NamedTuple):
    """A place with a pass."""

    lane: int
    join_seq: int
    holder: str
    jti: str
    expires_at_ms: int


def jti(epoch: int, lane: int, join_seq: int, call: int) -> str:
    """The name of the pass that this call gives."""
    return f"{epoch}-{lane}-{join_seq}-{call}"


class Sessions:
    """Ends sessions, in batches and one batch of a room at a time."""

    def __init__(self, db: AsyncEngine, line: RedisLine, inventory: InventoryClient, revocations: Revocations) -> None:
        self._db, self._line, self._inventory, self._revocations = db, line, inventory, revocations
        self._ending: dict[str, asyncio.Task[None]] = {}

    def end_soon(self, room: WaitingRoom, due: Sequence[Due]) -> None:
        """Ends due sessions beside the gatekeeper's turns, so that a slow inventory delays nobody's call."""
        if room.event_id not in self._ending:
            task = asyncio.create_task(self._end_due(room, due), name=f"end sessions {room.event_id}")
            self._ending[room.event_id] = task
            task.add_done_callback(lambda _task: self._ending.pop(room.event_id, None))

    async def rest(self) -> None:
        """Waits for what is being ended now."""
        await asyncio.gather(*self._ending.values())

    async def _end_due(self, room: WaitingRoom, due: Sequence[Due]) -> None:
        try:
            await self.end_due(room, due)
        except Problem as silent:
            log.warning("sessions.not_ended", extra=data(event_id=room.event_id, error=silent.slug))
        except Exception:
            log.exception("sessions.failed", extra=data(event_id=room.event_id))

    async def end_due(self, room: WaitingRoom, due: Sequence[Due]) -> None:
        """Ends those whose holder has no live reservation; lets the others stand as long as it does."""
        async with self._db.connect() as connection:
            stands = await LineRepository(connection, room.event_id, room.epoch).get_places(
                [(d.lane, d.join_seq) for d in due]
            )
        sessions, over = [], []
        for one in due:
            stand = stands.get((one.lane, one.join_seq))
            if stand is None or stand.how is not None:
                over.append((one.lane, one.join_seq))
            else:
                sessions.append(_session(room.epoch, one, stand))
        await self.free(room.event_id, room.epoch, over)
        await self.end(room.event_id, room.epoch, sessions, how="expired")

    async def end(
        self, event_id: str, epoch: int, sessions: Sequence[Session], *, how: str, leaving: bool = False
    ) -> set[PlaceId]:
        """Revokes, then ends. Which places have ended; the others stand until inventory says so."""
        gone: list[PlaceId] = []
        dead: list[tuple[str, int]] = []
        stand: list[tuple[int, int, int]] = []
        for start in range(0, len(sessions), BATCH_MAX):
            batch = sessions[start : start + BATCH_MAX]
            for session, end in zip(batch, await self._ask(event_id, batch, leaving=leaving), strict=True):
                if end.word == "gone":
                    gone.append((session.lane, session.join_seq))
                    dead.append((session.jti, session.expires_at_ms))
                elif end.until_ms is not None:
                    until_ms = max(end.until_ms, session.expires_at_ms)
                    stand.append((session.lane, session.join_seq, until_ms + 1000))
        if stand and how == "expired":
            await self._line.extend(event_id, epoch, stand)
        await self._revocations.tell(event_id, dead if how != "expired" else ())
        await self.close(event_id, epoch, gone, how=how, unclaimed=False)
        return set(gone)

    async def end_bought(self, event_id: str, epoch: int, stands: Iterable[PlaceRow]) -> set[PlaceId]:
        """Ends the sessions of those who bought, unless they hold something else as well."""
        sessions = [
            Session(stand.lane, stand.join_seq, stand.holder, stand.jti, stand.expires_at_ms or 0)
            for stand in stands
            if stand.how is None and stand.jti is not None
        ]
        return await self.end(event_id, epoch, sessions, how="completed")

    async def _ask(self, event_id: str, sessions: Sequence[Session], *, leaving: bool) -> list[SessionEnd]:
        refs = [SessionRef(jti=s.jti, holder=s.holder, expires_at_ms=s.expires_at_ms) for s in sessions]
        question = EndSessions(event_id=event_id, leaving=leaving, sessions=refs)
        return (await self._inventory.end_sessions(question)).sessions

    async def close(
        self, event_id: str, epoch: int, seats: Sequence[PlaceId], *, how: str, unclaimed: bool
    ) -> dict[PlaceId, str]:
        """Ends places in the ledger, then frees their slots. `unclaimed` leaves those with a session alone."""
        if not seats:
            return {}
        async with self._db.begin() as connection:
            of = LineRepository(connection, event_id, epoch)
            ended = await of.end(seats, how=how, unclaimed=unclaimed)
            for word in set(ended.values()):
                await of.tell(word, [seat for seat, this in ended.items() if this == word])
        for word in ended.values():
            ENDED.labels(word).inc()
        await self.free(event_id, epoch, list(ended) if unclaimed else seats)
        return ended

    async def free(self, event_id: str, epoch: int, seats: Iterable[PlaceId]) -> None:
        """Frees the slots of places that the ledger has ended. With the engine away they wait to be reconciled."""
        with suppress(*REDIS_AWAY):
            for lane, seqs in by_lane(seats).items():
                await self._line.finish(event_id, epoch, lane, seqs)


def _session(epoch: int, due: Due, stand: PlaceRow) -> Session:
    name = stand.jti or jti(epoch, due.lane, due.join_seq, due.call)
    return Session(due.lane, due.join_seq, stand.holder, name, stand.expires_at_ms or 0)
