"""A batch of places goes to disk: the hottest statements of all, on the driver itself, in three round trips.

The fence; the places with the event that tells of them; the commit. The fence stands alone, because one statement would
read a snapshot older than the lock. What a batch costs is its round trips, not its members.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple

from services.queue.access.access_codes import CodeBatch, CodeRefused
from services.queue.line.lane_batch import LaneJoinBatch
from services.queue.line.repository import LineRepository, joined
from services.queue.rooms.model import WaitingRoom
from shared.postgres.engine import AsyncEngine, raw_statement
from shared.postgres.errors import outlive_deadlocks
from shared.postgres.fenced_transaction import driver_of, fenced
from shared.web.problems import StaleEpoch

PLACE = raw_statement(__package__, "place")
OPEN = "BEGIN; SELECT pg_advisory_xact_lock_shared({fence:d})"
TELL = "INSERT INTO queue.outbox (event_id, body) VALUES ($1, $2::text::jsonb)"


class InsertResult(NamedTuple):
    """Which holders are on disk now, for good, under which numbers; and whose code does not open the lane."""

    given: dict[str, int]
    refused: dict[str, CodeRefused]


async def insert_places(
    db: AsyncEngine,
    room: WaitingRoom,
    lane: int,
    first: int,
    joins: Sequence[tuple[str, str | None]],
    *,
    fill: int,
    hashes: Mapping[str, bytes],
) -> InsertResult:
    """Places (holder, user_id) under the numbers from `first` on; `hashes`: the codes some of them came with.

    Raises `Unavailable` if nobody can say.
    """
    return await outlive_deadlocks(lambda: _place(db, room, lane, first, joins, fill=fill, hashes=hashes))


async def _place(
    db: AsyncEngine,
    room: WaitingRoom,
    lane: int,
    first: int,
    joins: Sequence[tuple[str, str | None]],
    *,
    fill: int,
    hashes: Mapping[str, bytes],
) -> InsertResult:
    async with fenced(db, OPEN.format(fence=room.fence)) as driver:
        coded, refused = await _judged(driver, room, hashes, [holder for holder, _ in joins])
        admitted = [join for join in joins if join[0] not in refused]
        landed = await _insert(driver, room, lane, first, admitted, fill=fill) if admitted else set()
        given = {holder: n for n, (holder, _) in enumerate(admitted, first) if n in landed}
        await coded.redeem(lane, given)
    return InsertResult(given, refused)


async def _judged(
    driver: Any, room: WaitingRoom, hashes: Mapping[str, bytes], holders: Collection[str]
) -> tuple[CodeBatch, dict[str, CodeRefused]]:
    """The codes of a batch, locked until it is placed, and whose does not open the lane."""
    coded = CodeBatch(driver, room, hashes)
    judged = await coded.validate(holders, lock=True)
    return coded, {holder: word for holder, word in judged.items() if isinstance(word, str)}


async def _insert(
    driver: Any, room: WaitingRoom, lane: int, first: int, joins: Sequence[tuple[str, str | None]], *, fill: int
) -> set[int]:
    holders, users = zip(*joins, strict=True)
    wanted = joined(room.event_id, room.epoch, lane, range(first, first + len(joins)))
    rows = await driver.fetch(
        PLACE, room.event_id, room.epoch, lane, first, holders, users, fill, wanted.model_dump_json()
    )
    landed = {join_seq for (join_seq,) in rows}
    if 0 < len(landed) < len(joins):
        told = joined(room.event_id, room.epoch, lane, landed)
        await driver.execute(TELL, room.event_id, told.model_dump_json())
    return landed


async def lanes_of(db: AsyncEngine, room: WaitingRoom, hashes: Mapping[str, bytes]) -> dict[str, int | CodeRefused]:
    """The lane each holder's code opens now, or why it does not. Only the transaction that places him is sure of it."""
    if not hashes:
        return {}
    async with fenced(db, OPEN.format(fence=room.fence)) as driver:
        return await CodeBatch(driver, room, hashes).validate(hashes, lock=False)


async def place_in_db(db: AsyncEngine, work: LaneJoinBatch) -> InsertResult:
    """Places the batch under numbers of the ledger's own, while the engine is away. Batches of a lane take turns by its
    row; raises `StaleEpoch` when there is none any more.
    """
    room = work.room
    async with db.begin() as connection:
        of = LineRepository(connection, room.event_id, room.epoch)
        if not await of.lock_lane(work.lane):
            raise StaleEpoch
        coded, refused = await _judged(await driver_of(connection), room, work.hashes, work.fresh)
        admitted = [(join.holder, join.user_id) for join in work.fresh.values() if join.holder not in refused]
        given = await of.join_in_db(work.lane, admitted) if admitted else {}
        await of.tell_joined(work.lane, given.values())
        await coded.redeem(work.lane, given)
    return InsertResult(given, refused)
