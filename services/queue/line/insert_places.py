"""Inserts a batch of places in three round trips: the fence, the places with their event, the commit.

The fence is a statement of its own, because a joint statement would read a snapshot older than the lock. The statements
run on the driver itself: they are the most frequent of all, and a batch costs its round trips, not its members.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple

from services.queue.access.access_codes import CodeBatch, CodeRefused
from services.queue.line.lane_batch import LaneJoinBatch
from services.queue.line.repository import LineRepository, joined
from services.queue.rooms.model import WaitingRoom
from shared.postgres.engine import AsyncEngine, raw_statement
from shared.postgres.errors import retry_deadlocks
from shared.postgres.fenced_transaction import driver_connection, fenced
from shared.web.problems import StaleEpoch

INSERT_PLACES = raw_statement(__package__, "insert_places")
BEGIN_SHARED = "BEGIN; SELECT pg_advisory_xact_lock_shared({fence:d})"
INSERT_EVENT = "INSERT INTO queue.outbox (event_id, body) VALUES ($1, $2::text::jsonb)"


class InsertResult(NamedTuple):
    """The numbers of the holders whose places are committed, and the holders whose code does not open the lane."""

    join_seqs: dict[str, int]
    refused: dict[str, CodeRefused]


async def insert_places(
    db: AsyncEngine,
    room: WaitingRoom,
    lane: int,
    first: int,
    joins: Sequence[tuple[str, str | None]],
    *,
    generation: int,
    hashes: Mapping[str, bytes],
) -> InsertResult:
    """Inserts (holder, user_id) under the numbers from `first` on; `hashes`: of access codes, by holder.

    Raises `Unavailable` when it is unknown whether the places were committed.
    """
    return await retry_deadlocks(
        lambda: _insert_in_transaction(db, room, lane, first, joins, generation=generation, hashes=hashes)
    )


async def _insert_in_transaction(
    db: AsyncEngine,
    room: WaitingRoom,
    lane: int,
    first: int,
    joins: Sequence[tuple[str, str | None]],
    *,
    generation: int,
    hashes: Mapping[str, bytes],
) -> InsertResult:
    async with fenced(db, BEGIN_SHARED.format(fence=room.fence)) as driver:
        codes, refused = await _validate_codes(driver, room, hashes, [holder for holder, _ in joins])
        admitted = [join for join in joins if join[0] not in refused]
        inserted = await _insert(driver, room, lane, first, admitted, generation=generation) if admitted else set()
        given = {holder: n for n, (holder, _) in enumerate(admitted, first) if n in inserted}
        await codes.redeem(lane, given)
    return InsertResult(given, refused)


async def _validate_codes(
    driver: Any, room: WaitingRoom, hashes: Mapping[str, bytes], holders: Collection[str]
) -> tuple[CodeBatch, dict[str, CodeRefused]]:
    """The codes of a batch, locked until the transaction ends, and the holders whose code does not open the lane."""
    codes = CodeBatch(driver, room, hashes)
    validated = await codes.validate(holders, lock=True)
    return codes, {holder: reason for holder, reason in validated.items() if isinstance(reason, str)}


async def _insert(
    driver: Any, room: WaitingRoom, lane: int, first: int, joins: Sequence[tuple[str, str | None]], *, generation: int
) -> set[int]:
    holders, users = zip(*joins, strict=True)
    wanted = joined(room.event_id, room.epoch, lane, range(first, first + len(joins)))
    rows = await driver.fetch(
        INSERT_PLACES, room.event_id, room.epoch, lane, first, holders, users, generation, wanted.model_dump_json()
    )
    inserted = {join_seq for (join_seq,) in rows}
    if 0 < len(inserted) < len(joins):
        event = joined(room.event_id, room.epoch, lane, inserted)
        await driver.execute(INSERT_EVENT, room.event_id, event.model_dump_json())
    return inserted


async def lanes_by_code(
    db: AsyncEngine, room: WaitingRoom, hashes: Mapping[str, bytes]
) -> dict[str, int | CodeRefused]:
    """The lane each holder's code opens at present, or why it does not. The inserting transaction decides finally."""
    if not hashes:
        return {}
    async with fenced(db, BEGIN_SHARED.format(fence=room.fence)) as driver:
        return await CodeBatch(driver, room, hashes).validate(hashes, lock=False)


async def insert_places_in_db(db: AsyncEngine, batch: LaneJoinBatch) -> InsertResult:
    """Inserts the batch under the database's next numbers, while Redis is unavailable. Batches of a lane wait for each
    other at its row lock. Raises `StaleEpoch` when the lane is gone.
    """
    room = batch.room
    async with db.begin() as connection:
        repository = LineRepository(connection, room.event_id, room.epoch)
        if not await repository.lock_lane(batch.lane):
            raise StaleEpoch
        codes, refused = await _validate_codes(await driver_connection(connection), room, batch.hashes, batch.pending)
        admitted = [(join.holder, join.user_id) for join in batch.pending.values() if join.holder not in refused]
        given = await repository.insert_places_in_db(batch.lane, admitted) if admitted else {}
        await repository.emit_joined(batch.lane, given.values())
        await codes.redeem(batch.lane, given)
    return InsertResult(given, refused)
