"""Ends sessions: inventory revokes the pass, then the place ends in the database, and only then the slot is free.

So a freed slot never leaves a working pass behind. A session with a live reservation is extended instead. Gateways are
told of a revoked pass before its slot is free. After a reset inventory must invalidate all passes of the old line
before a pass of the new line is issued; each process requests that once an epoch, so a claim costs nothing more.
"""

import asyncio
from collections import defaultdict
from collections.abc import Iterable, Sequence
from contextlib import suppress

from services.queue.line.redis_line import DueSession, RedisLine
from services.queue.line.repository import EndReason, LineRepository, PlaceId, PlaceRow, by_lane
from services.queue.metrics import ENDED
from services.queue.rooms.model import WaitingRoom
from services.queue.rooms.store import Rooms
from shared.concurrency.coalescing import chunks
from shared.contracts.frames import REVOKED_MAX, Revoked, revoked_channel
from shared.contracts.inventory import BATCH_MAX, EndSessions, InventoryClient, MinPassEpoch, SessionRef
from shared.errors.problems import Problem, Unavailable, UnknownEvent
from shared.postgres.engine import AsyncEngine, statement
from shared.redis.client import REDIS_AWAY
from shared.runtime.clock import now_ms
from shared.runtime.logging import get_logger

REVOKED_PASSES = statement(__package__, "revoked_passes")
LEEWAY_MS = 10_000
log = get_logger("onsale.queue")


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


def jti(epoch: int, lane: int, join_seq: int, call: int) -> str:
    """The id of the pass that this call issues."""
    return f"{epoch}-{lane}-{join_seq}-{call}"


def with_pass(rows: Iterable[PlaceRow]) -> list[PlaceRow]:
    """Those of the live places that have a pass."""
    return [row for row in rows if row.end_reason is None and row.jti is not None]


class SessionEnder:
    """Ends sessions, in batches and one batch of a room at a time."""

    def __init__(self, db: AsyncEngine, line: RedisLine, inventory: InventoryClient) -> None:
        self._db, self._line, self._inventory = db, line, inventory
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
            log.warning("sessions.not_ended", event_id=room.event_id, error=failed.slug)
        except Exception:
            log.exception("sessions.failed", event_id=room.event_id)

    async def end_due(self, room: WaitingRoom, due: Sequence[DueSession]) -> None:
        """Ends sessions whose holder has no live reservation; extends the others as long as it lasts."""
        calls = {(session.lane, session.join_seq): session.call for session in due}
        due_ms = {(session.lane, session.join_seq): session.until_ms for session in due}
        async with LineRepository.reading(self._db, room.event_id, room.epoch) as repository:
            rows = await repository.get_places(calls)
        live = {place_id: row for place_id, row in rows.items() if row.end_reason is None}
        await self.free_slots(room.event_id, room.epoch, [place_id for place_id in calls if place_id not in live])
        longer = {p: row.expires_at_ms for p, row in live.items() if (row.expires_at_ms or 0) > due_ms[p]}
        if longer:  # the fan was given more time, and Redis was not told
            await self._line.extend(room.event_id, room.epoch, [(*p, at_ms or 0) for p, at_ms in longer.items()])
            live = {place_id: row for place_id, row in live.items() if place_id not in longer}
        sessions = [
            row._replace(jti=row.jti or jti(room.epoch, *place_id, calls[place_id])) for place_id, row in live.items()
        ]
        await self.end(room.event_id, room.epoch, sessions, end_reason="expired")

    async def end(
        self, event_id: str, epoch: int, sessions: Sequence[PlaceRow], *, end_reason: EndReason, leaving: bool = False
    ) -> set[PlaceId]:
        """Revokes passes, then ends the places; those that ended. The others have a live reservation."""
        ended = await self.revoke(event_id, epoch, sessions, end_reason=end_reason, leaving=leaving)
        await self.end_places(event_id, epoch, ended, end_reason=end_reason, unclaimed=False)
        return set(ended)

    async def revoke(
        self, event_id: str, epoch: int, sessions: Sequence[PlaceRow], *, end_reason: EndReason, leaving: bool = False
    ) -> list[PlaceId]:
        """Revokes passes; the places that may end now. The others have a live reservation."""
        ended: list[PlaceId] = []
        revoked: list[tuple[str, int]] = []
        extended: list[tuple[int, int, int]] = []
        refs = [SessionRef(jti=s.jti or "", holder=s.holder, expires_at_ms=s.expires_at_ms or 0) for s in sessions]
        for batch in chunks(zip(sessions, refs, strict=True), BATCH_MAX):
            question = EndSessions(event_id=event_id, leaving=leaving, sessions=[ref for _, ref in batch])
            ends = (await self._inventory.end_sessions(question)).sessions
            for (session, ref), end in zip(batch, ends, strict=True):
                if end.outcome == "gone":
                    ended.append(session.place_id)
                    revoked.append((ref.jti, ref.expires_at_ms))
                elif end.until_ms is not None:
                    extended.append((*session.place_id, max(end.until_ms, ref.expires_at_ms) + 1000))
        if extended and end_reason == "expired":
            await self._line.extend(event_id, epoch, extended)
        if revoked and end_reason != "expired":
            await self._publish(Revoked(event_id=event_id, passes=revoked))
        return ended

    async def end_bought(self, event_id: str, epoch: int, rows: Iterable[PlaceRow]) -> set[PlaceId]:
        """Ends the sessions of those who bought, unless they have another reservation."""
        return await self.end(event_id, epoch, with_pass(rows), end_reason="completed")

    async def _publish(self, revoked: Revoked) -> None:
        """Publishes revoked passes to the gateways. Raises `Unavailable` if it fails: then no slot may be freed."""
        try:
            await self._line.redis.publish(revoked_channel(revoked.event_id), revoked.model_dump_json())
        except REDIS_AWAY as away:
            raise Unavailable("Revoked passes cannot be published while Redis is unavailable. Try again.") from away

    async def end_places(
        self, event_id: str, epoch: int, place_ids: Sequence[PlaceId], *, end_reason: EndReason, unclaimed: bool
    ) -> dict[PlaceId, EndReason]:
        """Ends places in the database, then frees their slots; the reason each ended. With `unclaimed`, places with a
        session stay.
        """
        if not place_ids:
            return {}
        async with self._db.begin() as connection:
            repository = LineRepository(connection, event_id, epoch)
            ended = await repository.end(place_ids, end_reason=end_reason, unclaimed=unclaimed)
            by_reason = defaultdict[str, list[PlaceId]](list)
            for place_id, reason in ended.items():
                by_reason[reason].append(place_id)
            await repository.emit(**by_reason)
        for reason in ended.values():
            ENDED.labels(reason).inc()
        await self.free_slots(event_id, epoch, list(ended) if unclaimed else place_ids)
        return ended

    async def free_slots(self, event_id: str, epoch: int, place_ids: Iterable[PlaceId]) -> None:
        """Frees the slots of ended places. While Redis is unavailable that is left to `reconcile`."""
        with suppress(*REDIS_AWAY):
            for lane, seqs in by_lane(place_ids).items():
                await self._line.end(event_id, epoch, lane, seqs)
