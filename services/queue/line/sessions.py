"""Ends sessions: inventory revokes the pass, then the place ends in the database, and only then the slot is free.

So a freed slot never leaves a working pass behind. A session with a live reservation is extended instead. Gateways are
told of a revoked pass before its slot is free. After a reset inventory must invalidate all passes of the old line
before a pass of the new line is issued; each process requests that once an epoch, so a claim costs nothing more.
"""

import asyncio
import logging
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import NamedTuple

from services.queue.line.redis_line import RedisLine
from services.queue.line.replies import DueSession
from services.queue.line.repository import LineRepository, PlaceId, PlaceRow, by_lane
from services.queue.metrics import ENDED
from services.queue.rooms.model import WaitingRoom
from services.queue.rooms.store import Rooms
from shared.contracts.frames import REVOKED_MAX, Revoked, revoked_channel
from shared.contracts.inventory import BATCH_MAX, EndSessions, InventoryClient, MinPassEpoch, SessionEnd, SessionRef
from shared.postgres.engine import AsyncEngine, statement
from shared.redis.client import REDIS_AWAY, Redis
from shared.runtime.clock import now_ms
from shared.runtime.logging import data
from shared.web.problems import Problem, Unavailable, UnknownEvent

REVOKED_PASSES = statement(__package__, "revoked_passes")
LEEWAY_MS = 10_000


class Revocations:
    """Publishes revoked passes to the gateways."""

    def __init__(self, redis: Redis) -> None:
        self._redis = redis

    async def publish(self, event_id: str, passes: Sequence[tuple[str, int]]) -> None:
        """Publishes jti and expiry of each. Raises `Unavailable` if it fails: then no slot may be freed."""
        if not passes:
            return
        try:
            await self._redis.publish(
                revoked_channel(event_id), Revoked(event_id=event_id, passes=list(passes)).model_dump_json()
            )
        except REDIS_AWAY as away:
            raise Unavailable("Revoked passes cannot be published while Redis is unavailable. Try again.") from away


async def revoked_passes(rooms: Rooms, event_id: str) -> Revoked:
    """The room's revoked passes that have not expired, those that expire last first. Raises `UnknownEvent`."""
    room = await rooms.get(event_id)
    wanted = {
        "event_id": event_id, "epoch": room.epoch, "now_ms": now_ms() - LEEWAY_MS, "revoked_max": REVOKED_MAX
    }  # fmt: skip
    async with rooms.db.connect() as connection:
        rows = await connection.execute(REVOKED_PASSES, wanted)
        return Revoked(event_id=event_id, passes=[(row.jti, row.expires_at_ms) for row in rows])


class PassInvalidation:
    """Has inventory refuse all passes of older epochs."""

    def __init__(self, inventory: InventoryClient) -> None:
        self._inventory = inventory
        self._ensured_epochs: dict[str, int] = {}

    async def ensure(self, room: WaitingRoom) -> None:
        """Returns once older passes are refused. Raises a `Problem` if inventory does not answer. A room without stock
        has no passes to refuse.
        """
        if room.epoch == 1 or self._ensured_epochs.get(room.event_id, 0) >= room.epoch:
            return
        with suppress(UnknownEvent):
            await self._inventory.set_min_pass_epoch(MinPassEpoch(event_id=room.event_id, epoch=room.epoch))
        self._ensured_epochs[room.event_id] = room.epoch


log = logging.getLogger("onsale.queue")


class Session(NamedTuple):
    """A place with a pass."""

    lane: int
    join_seq: int
    holder: str
    jti: str
    expires_at_ms: int


def jti(epoch: int, lane: int, join_seq: int, call: int) -> str:
    """The id of the pass that this call issues."""
    return f"{epoch}-{lane}-{join_seq}-{call}"


class SessionEnder:
    """Ends sessions, in batches and one batch of a room at a time."""

    def __init__(self, db: AsyncEngine, line: RedisLine, inventory: InventoryClient, revocations: Revocations) -> None:
        self._db, self._line, self._inventory, self._revocations = db, line, inventory, revocations
        self._ending: dict[str, asyncio.Task[None]] = {}

    def end_soon(self, room: WaitingRoom, due: Sequence[DueSession]) -> None:
        """Ends due sessions in a task of its own, so that a slow inventory does not delay the tick."""
        if room.event_id not in self._ending:
            task = asyncio.create_task(self._end_due(room, due), name=f"end sessions {room.event_id}")
            self._ending[room.event_id] = task
            task.add_done_callback(lambda _task: self._ending.pop(room.event_id, None))

    async def drain(self) -> None:
        """Waits for the sessions that are being ended now."""
        await asyncio.gather(*self._ending.values())

    async def _end_due(self, room: WaitingRoom, due: Sequence[DueSession]) -> None:
        try:
            await self.end_due(room, due)
        except Problem as failed:
            log.warning("sessions.not_ended", extra=data(event_id=room.event_id, error=failed.slug))
        except Exception:
            log.exception("sessions.failed", extra=data(event_id=room.event_id))

    async def end_due(self, room: WaitingRoom, due: Sequence[DueSession]) -> None:
        """Ends sessions whose holder has no live reservation; extends the others as long as it lasts."""
        async with self._db.connect() as connection:
            rows = await LineRepository(connection, room.event_id, room.epoch).get_places(
                [(d.lane, d.join_seq) for d in due]
            )
        sessions, over = [], []
        for session in due:
            row = rows.get((session.lane, session.join_seq))
            if row is None or row.end_reason is not None:
                over.append((session.lane, session.join_seq))
            else:
                sessions.append(_session(room.epoch, session, row))
        await self.free_slots(room.event_id, room.epoch, over)
        await self.end(room.event_id, room.epoch, sessions, end_reason="expired")

    async def end(
        self, event_id: str, epoch: int, sessions: Sequence[Session], *, end_reason: str, leaving: bool = False
    ) -> set[PlaceId]:
        """Revokes passes, then ends the places; those that ended. The others have a live reservation."""
        ended: list[PlaceId] = []
        revoked: list[tuple[str, int]] = []
        extended: list[tuple[int, int, int]] = []
        for start in range(0, len(sessions), BATCH_MAX):
            batch = sessions[start : start + BATCH_MAX]
            for session, end in zip(batch, await self._end_in_inventory(event_id, batch, leaving=leaving), strict=True):
                if end.outcome == "gone":
                    ended.append((session.lane, session.join_seq))
                    revoked.append((session.jti, session.expires_at_ms))
                elif end.until_ms is not None:
                    until_ms = max(end.until_ms, session.expires_at_ms)
                    extended.append((session.lane, session.join_seq, until_ms + 1000))
        if extended and end_reason == "expired":
            await self._line.extend(event_id, epoch, extended)
        await self._revocations.publish(event_id, revoked if end_reason != "expired" else ())
        await self.end_places(event_id, epoch, ended, end_reason=end_reason, unclaimed=False)
        return set(ended)

    async def end_bought(self, event_id: str, epoch: int, rows: Iterable[PlaceRow]) -> set[PlaceId]:
        """Ends the sessions of those who bought, unless they have another reservation."""
        sessions = [
            Session(row.lane, row.join_seq, row.holder, row.jti, row.expires_at_ms or 0)
            for row in rows
            if row.end_reason is None and row.jti is not None
        ]
        return await self.end(event_id, epoch, sessions, end_reason="completed")

    async def _end_in_inventory(self, event_id: str, sessions: Sequence[Session], *, leaving: bool) -> list[SessionEnd]:
        refs = [SessionRef(jti=s.jti, holder=s.holder, expires_at_ms=s.expires_at_ms) for s in sessions]
        question = EndSessions(event_id=event_id, leaving=leaving, sessions=refs)
        return (await self._inventory.end_sessions(question)).sessions

    async def end_places(
        self, event_id: str, epoch: int, place_ids: Sequence[PlaceId], *, end_reason: str, unclaimed: bool
    ) -> dict[PlaceId, str]:
        """Ends places in the database, then frees their slots; the reason each ended. With `unclaimed`, places with a
        session stay.
        """
        if not place_ids:
            return {}
        async with self._db.begin() as connection:
            repository = LineRepository(connection, event_id, epoch)
            ended = await repository.end(place_ids, end_reason=end_reason, unclaimed=unclaimed)
            for reason in set(ended.values()):
                await repository.emit(reason, [place_id for place_id, this in ended.items() if this == reason])
        for reason in ended.values():
            ENDED.labels(reason).inc()
        await self.free_slots(event_id, epoch, list(ended) if unclaimed else place_ids)
        return ended

    async def free_slots(self, event_id: str, epoch: int, place_ids: Iterable[PlaceId]) -> None:
        """Frees the slots of ended places. While Redis is unavailable that is left to `reconcile`."""
        with suppress(*REDIS_AWAY):
            for lane, seqs in by_lane(place_ids).items():
                await self._line.end(event_id, epoch, lane, seqs)


def _session(epoch: int, due: DueSession, row: PlaceRow) -> Session:
    name = row.jti or jti(epoch, due.lane, due.join_seq, due.call)
    return Session(due.lane, due.join_seq, row.holder, name, row.expires_at_ms or 0)
