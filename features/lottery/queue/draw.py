"""The lottery of a pre-queue: entry closes, entrants are counted, the order is drawn.

Each step happens once, whichever process takes it and however often. Closing and drawing hold the exclusive fence and
require a rebuild of Redis, so every number up to N that was given before is in the database or void for good.

Of all entrants a Merkle hash is published, and each gets a proof of entry that reveals no other.
"""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from typing import Any

from fastapi import APIRouter
from sqlalchemy import Row, func, select, update

from features.lottery.arithmetic import CHUNK, commitment, leaf, path, receipt, root
from features.lottery.contracts import (
    DrawRequest,
    Entrants,
    EntryProof,
    NoLottery,
    NotEntered,
    ProofQuestion,
    PublishedLottery,
)
from features.lottery.queue.ordering import lottery, of_epoch
from features.lottery.ranking import LotteryRanking
from features.lottery.rules import LotteryRules, RoomLottery
from services.queue.admin.rooms import EVENT
from services.queue.line.repository import LineRepository
from services.queue.problems import RoomStateConflict
from services.queue.rooms.model import RequestedBy, WaitingRoom, read
from services.queue.rooms.store import EXCLUSIVE_LOCK
from services.queue.state import State, StateDep
from services.queue.tables import audit_log
from services.queue.tables import lane as lane_table
from services.queue.tables import room as room_table
from shared.audit_log import of_event
from shared.concurrency.background import Loops, Quiet
from shared.contracts.file_parts import part_of
from shared.contracts.queue import RoomQuestion
from shared.errors.problems import BadCredential, StaleEpoch
from shared.postgres.engine import AsyncConnection, statement
from shared.redis.client import REDIS_AWAY
from shared.runtime.logging import get_logger
from shared.security.auth import AnOperator, control
from shared.web.internal_api import InternalApi
from shared.web.parts import Part
from shared.web.request import EventIdPath

ADVANCE_S = 1.0
DIGEST_BYTES = 32
ENTRANTS = statement(__package__, "entrants")
LANES = select(lane_table.c.lane).with_for_update()
API = InternalApi()
log = get_logger("onsale.queue")
router = APIRouter(tags=["admin"])


class Lotteries:
    """The lotteries of all rooms; it keeps nothing itself."""

    def __init__(self, state: State) -> None:
        self._rooms, self._line, self._recovery = state.rooms, state.line, state.recovery
        self._gatekeeper, self._db = state.gatekeeper, state.rooms.db

    async def advance(self) -> Quiet:
        """Every second: closes entry that is due and counts the entrants. A room in draft waits for its operator."""
        rooms = [room for room in self._rooms.known.values() if room.state != "draft"]
        pending = [(room, ranking) for room in rooms if (ranking := _ranking(room)) and ranking.pending]
        if not pending:
            return Quiet(0)
        async with self._db.connect() as connection:
            at = await self._now(connection)
        for room, ranking in pending:
            if ranking.stage == "open" and at >= _rules(room).entry_closes_at:
                await self.close(room.event_id)
            elif ranking.stage == "closed" and not ranking.counted:
                await self.count(room.event_id)
        return Quiet(0)

    async def close(self, event_id: str) -> None:
        """Fixes the entrants once entry closes, then counts them."""
        async with self._db.begin() as connection:
            room = await self._exclusive(connection, event_id)
            at = await self._now(connection)
            ranking = _ranking(room)
            if ranking is None or ranking.stage != "open" or at < _rules(room).entry_closes_at:
                return
            of_room = LANES.where(lane_table.c.event_id == event_id, lane_table.c.epoch == room.epoch)
            await connection.execute(of_room)  # joins that the database numbers wait here
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
        ranking = _ranking(room)
        if ranking is None or ranking.stage != "closed" or ranking.counted:
            return
        async with self._db.connect() as connection:
            row = await _row(connection, room)
            counts = {
                lane: await _count(connection, room, row.blind, int(lane), of["n"])
                for lane, of in sorted(row.entrants.items())
            }
        entrants = {lane: counted.model_dump() for lane, (counted, _) in counts.items()}
        branches = {lane: hashes for lane, (_, hashes) in counts.items()}
        async with self._db.begin() as connection:
            values = {"entrants": entrants, "branches": branches, "counted_at": await self._now(connection)}
            await _update(connection, room, lottery.c.counted_at.is_(None), **values)
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
        await self._gatekeeper.apply_config(await self._rooms.get(event_id))
        return await self.published(event_id)

    async def published(self, event_id: str) -> PublishedLottery:
        """The lottery as it is public at this stage. Raises `NoLottery`."""
        async with self._db.connect() as connection:
            room = await read(connection, event_id)
            row, rules = await _row(connection, room), _rules(room)
        return PublishedLottery(
            event_id=event_id,
            epoch=room.epoch,
            stage="drawn" if row.drawn_at else "closed" if row.closed_at else "open",
            commitment=commitment(row.seed),
            committed_at=row.committed_at,
            queue_opens_at=room.queue_opens_at,
            rules=rules,
            closed_at=row.closed_at,
            entrants={int(lane): Entrants(**of) for lane, of in row.entrants.items()} if row.counted_at else {},
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


def _ranking(room: WaitingRoom) -> LotteryRanking | None:
    return room.ranking if isinstance(room.ranking, LotteryRanking) else None


def _rules(room: WaitingRoom) -> LotteryRules:
    if (rules := part_of(room.options, RoomLottery).lottery) is None:
        raise NoLottery
    return rules


async def _row(connection: AsyncConnection, room: WaitingRoom) -> Row[Any]:
    row = (await connection.execute(select(lottery).where(of_epoch(room.event_id, room.epoch)))).first()
    if row is None or _ranking(room) is None:
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
    raised = update(room_table).values(generation=room.generation + 1, redis_instance_id="")
    await connection.execute(raised.where(room_table.c.event_id == room.event_id))


# -- the entrants ------------------------------------------------------------------------------------------------------


async def _count(
    connection: AsyncConnection, room: WaitingRoom, blind: bytes, lane: int, entrants_n: int
) -> tuple[Entrants, str]:
    """The entrants of a lane, and the hash of each chunk of them, concatenated as hex."""
    branches, taken = [], 0
    for first in range(1, entrants_n + 1, CHUNK):
        leaves, receipts = await _chunk(
            connection, room, blind, lane, first=first, last=min(entrants_n, first + CHUNK - 1)
        )
        branches.append(root(leaves))
        taken += len(receipts)
    return Entrants(n=entrants_n, taken=taken, hash=root(branches).hex()), b"".join(branches).hex()


@API.operation("/lottery/proof", ProofQuestion)
async def prove_entry(state: State, question: ProofQuestion) -> EntryProof:
    """Proves that this place's entry number was counted with its holder. Raises `NotEntered`, `StaleEpoch`."""
    room, place = await state.rooms.get(question.event_id), question.place
    if room.epoch != question.epoch:
        raise StaleEpoch
    here = (of_epoch(room.event_id, room.epoch), lottery.c.counted_at.is_not(None))
    async with state.rooms.db.connect() as connection:
        row = (await connection.execute(select(lottery).where(*here))).first()
        if row is None:
            raise NotEntered("The entrants of this lottery are still being counted. Try again later.")
        entrants_n = row.entrants.get(str(place.lane), {"n": 0})["n"]
        if place.join_seq > entrants_n:
            raise NotEntered("This place joined after entry had closed.")
        places = await LineRepository(connection, room.event_id, room.epoch).get_places([(place.lane, place.join_seq)])
        if not places or places[place.lane, place.join_seq].holder != place.holder:
            raise BadCredential("This place belongs to somebody else.")
        chunk, at = divmod(place.join_seq - 1, CHUNK)
        first = chunk * CHUNK + 1
        leaves, receipts = await _chunk(
            connection, room, row.blind, place.lane, first=first, last=min(entrants_n, first + CHUNK - 1)
        )
    hashes = bytes.fromhex(row.branches[str(place.lane)])
    branches = [hashes[i : i + DIGEST_BYTES] for i in range(0, len(hashes), DIGEST_BYTES)]
    return EntryProof(
        event_id=room.event_id,
        epoch=room.epoch,
        lane=place.lane,
        entry=place.join_seq,
        entrants_n=entrants_n,
        receipt=receipts[place.join_seq],
        path=[*path(leaves, at), *path(branches, chunk)],
    )


async def _chunk(
    connection: AsyncConnection, room: WaitingRoom, blind: bytes, lane: int, *, first: int, last: int
) -> tuple[Sequence[bytes], dict[int, str]]:
    """The leaves of these entry numbers, and the receipts of those that have a holder."""
    which = {"event_id": room.event_id, "epoch": room.epoch, "lane": lane, "first": first, "last": last}
    rows = list(await connection.execute(ENTRANTS, which))

    def hashed() -> tuple[Sequence[bytes], dict[int, str]]:
        receipts = {row.join_seq: receipt(blind, lane, row.join_seq, row.holder) for row in rows}
        return [leaf(lane, entry, receipts.get(entry)) for entry in range(first, last + 1)], receipts

    return await asyncio.to_thread(hashed)


# -- who calls it ------------------------------------------------------------------------------------------------------


@API.operation("/lottery", RoomQuestion)
async def published(state: State, question: RoomQuestion) -> PublishedLottery:
    return await Lotteries(state).published(question.event_id)


@router.post(
    EVENT + "/lottery/draw",
    operation_id="draw_lottery",
    openapi_extra=control("draw_lottery"),
    summary="Draw the lottery with the public value",
)
async def draw(event_id: EventIdPath, request: DrawRequest, operator: AnOperator, state: StateDep) -> PublishedLottery:
    """Once entry has closed and the value is known: reveals the seed and ranks all entrants. There is one draw."""
    return await Lotteries(state).draw(event_id, request.public_value, RequestedBy(operator.name, request.reason))


@asynccontextmanager
async def open_lotteries(state: State, loops: Loops) -> AsyncIterator[Lotteries]:
    lotteries = Lotteries(state)
    loops.every(ADVANCE_S, lotteries.advance, name="queue lottery")
    yield lotteries


PART = Part(routers=[router], internal_api=API, open=open_lotteries)
