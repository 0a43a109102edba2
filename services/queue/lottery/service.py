"""The lottery of a pre-queue: entry closes, entrants are counted, the order is drawn.

Each step happens once, whichever process takes it and however often. Closing and drawing hold the exclusive fence and
require a rebuild of Redis, so every number up to N that was given before is in the database or void for good.
"""

from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import Row, func, select, update

from services.queue.line.rebuild import Recovery
from services.queue.line.redis_line import RedisLine
from services.queue.line.repository import LineRepository
from services.queue.lottery.entrants import count_entrants
from services.queue.problems import RoomStateConflict
from services.queue.rooms.model import RequestedBy, WaitingRoom, read
from services.queue.rooms.ranking import of_epoch
from services.queue.rooms.store import EXCLUSIVE_LOCK, Rooms
from services.queue.tables import audit_log, lottery
from services.queue.tables import lane as lane_table
from services.queue.tables import room as room_table
from shared.audit_log import of_event
from shared.concurrency.background import Quiet
from shared.contracts.lottery import Entrants, PublishedLottery
from shared.errors.problems import NoLottery
from shared.postgres.engine import AsyncConnection, AsyncEngine
from shared.redis.client import REDIS_AWAY
from shared.rules.lottery_ranking import commitment
from shared.runtime.logging import get_logger

LANES = select(lane_table.c.lane).with_for_update()
log = get_logger("onsale.queue")


class LotteryService:
    def __init__(self, db: AsyncEngine, rooms: Rooms, line: RedisLine, recovery: Recovery) -> None:
        self._db, self._rooms, self._line, self._recovery = db, rooms, line, recovery

    async def advance(self) -> Quiet:
        """Every second: closes entry that is due and counts the entrants. A room in draft waits for its operator."""
        pending = [room for room in self._rooms.known.values() if room.ranking.pending and room.state != "draft"]
        if not pending:
            return Quiet(0)
        async with self._db.connect() as connection:
            at = await self._now(connection)
        for room in pending:
            if room.ranking.stage == "open" and at >= _rules(room).entry_closes_at:
                await self.close(room.event_id)
            elif room.ranking.stage == "closed" and not room.ranking.counted:
                await self.count(room.event_id)
        return Quiet(0)

    async def close(self, event_id: str) -> None:
        """Fixes the entrants once entry closes, then counts them."""
        async with self._db.begin() as connection:
            room = await self._exclusive(connection, event_id)
            at = await self._now(connection)
            if room.ranking.stage != "open" or at < _rules(room).entry_closes_at:
                return
            of_room = (lane_table.c.event_id == event_id, lane_table.c.epoch == room.epoch)
            await connection.execute(LANES.where(*of_room))  # joins that the database numbers wait here
            tails = await LineRepository(connection, event_id, room.epoch).lanes()
            entrants = {str(lane): {"n": tail} for lane, (_, tail) in tails.items()}
            await _update(connection, room, closed_at=at, entrants=entrants)
            await _require_rebuild(connection, room)
        log.info("lottery.closed", event_id=event_id, entrants=entrants)
        await self._rebuild(event_id)
        await self.count(event_id)

    async def count(self, event_id: str) -> None:
        """Counts and hashes the entrants. Numbers up to N no longer change, so every process gets the same result."""
        room = await self._rooms.read(event_id)
        if room.ranking.stage != "closed" or room.ranking.counted:
            return
        async with self._db.connect() as connection:
            row = await _row(connection, room)
            counts = {
                lane: await count_entrants(connection, room, row.blind, int(lane), of["n"])
                for lane, of in sorted(row.entrants.items())
            }
        entrants = {lane: counted.model_dump() for lane, (counted, _) in counts.items()}
        branches = {lane: hashes for lane, (_, hashes) in counts.items()}
        async with self._db.begin() as connection:
            at = await self._now(connection)
            await _update(
                connection, room, lottery.c.counted_at.is_(None), entrants=entrants, branches=branches, counted_at=at
            )
        await self._rooms.read(event_id)

    async def draw(self, event_id: str, public_value: str, by: RequestedBy) -> PublishedLottery:
        """Draws the order with the public value. Drawing again with the same value changes nothing. Raises
        `RoomStateConflict` for another value or when it is too early.
        """
        async with self._db.begin() as connection:
            room = await self._exclusive(connection, event_id)
            row = await _row(connection, room)
            if row.public_value is None:
                at = await self._now(connection)
                _check_may_draw(room, row, at)
                await _update(connection, room, public_value=public_value, drawn_at=at)
                await _require_rebuild(connection, room)
                now = await read(connection, event_id)
                configured = now.configuration()
                await audit_log.write(
                    connection, "draw", by, subject=of_event(event_id), version=now.version, before=configured,
                    after=configured,
                )  # fmt: skip
            elif row.public_value != public_value:
                raise RoomStateConflict("The lottery was drawn with another value. A lottery is drawn only once.")
        await self._rebuild(event_id)
        return await self.published(event_id)

    async def published(self, event_id: str) -> PublishedLottery:
        """The lottery as it is public at this stage. Raises `NoLottery`."""
        async with self._db.connect() as connection:
            room = await read(connection, event_id)
            row = await _row(connection, room)
        counted = row.counted_at is not None
        return PublishedLottery(
            event_id=event_id,
            epoch=room.epoch,
            stage=room.ranking.stage or "open",
            commitment=commitment(row.seed),
            committed_at=row.committed_at,
            queue_opens_at=room.queue_opens_at,
            rules=_rules(room),
            closed_at=row.closed_at,
            entrants={int(lane): Entrants(**of) for lane, of in row.entrants.items()} if counted else {},
            counted_at=row.counted_at,
            public_value=row.public_value,
            seed=row.seed.hex() if row.public_value is not None else None,
            drawn_at=row.drawn_at,
        )

    async def _exclusive(self, connection: AsyncConnection, event_id: str) -> WaitingRoom:
        """The room, locked: nobody joins, rebuilds or changes it until the transaction ends."""
        await connection.execute(EXCLUSIVE_LOCK, {"event_id": event_id})
        return await read(connection, event_id, lock=True)

    async def _now(self, connection: AsyncConnection) -> datetime:
        """The database's time, so that closing does not depend on Redis."""
        at: datetime = (await connection.execute(select(func.clock_timestamp()))).scalar_one()
        return at + timedelta(milliseconds=self._line.clock_offset_ms)

    async def _rebuild(self, event_id: str) -> None:
        """Rebuilds Redis; if it is unavailable, the gatekeeper does so later."""
        await self._rooms.read(event_id)
        try:
            await self._recovery.rebuild(event_id)
        except REDIS_AWAY as away:
            log.warning("lottery.redis_not_rebuilt", event_id=event_id, error=type(away).__name__)


def _rules(room: WaitingRoom) -> Any:
    if room.options.lottery is None:
        raise NoLottery
    return room.options.lottery


async def _row(connection: AsyncConnection, room: WaitingRoom) -> Row[Any]:
    row = (await connection.execute(select(lottery).where(of_epoch(room.event_id, room.epoch)))).first()
    if row is None or room.ranking.stage is None:
        raise NoLottery
    return row


def _check_may_draw(room: WaitingRoom, row: Row[Any], at: datetime) -> None:
    known_at = _rules(room).public_value.known_at
    if row.counted_at is None:
        raise RoomStateConflict("Entry has not closed yet, or the entrants are still being counted.")
    if row.counted_at >= known_at:
        raise RoomStateConflict("The entrants were not published before the public value was known.")
    if at < known_at:
        raise RoomStateConflict(f"The public value is not known before {known_at.isoformat()}.")


async def _update(connection: AsyncConnection, room: WaitingRoom, *only_if: Any, **values: Any) -> None:
    await connection.execute(update(lottery).where(of_epoch(room.event_id, room.epoch), *only_if).values(**values))


async def _require_rebuild(connection: AsyncConnection, room: WaitingRoom) -> None:
    """Raises the generation: what Redis gave before is refused, and no Redis instance counts as built."""
    here = room_table.c.event_id == room.event_id
    await connection.execute(
        update(room_table).where(here).values(generation=room.generation + 1, redis_instance_id="")
    )
