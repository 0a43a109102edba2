"""A batch of joins to one lane, until each has an outcome: a new place, the place its holder had, or a refusal; and the
insertion of its places in three round trips: the fence, the places with their event, the commit.

A batch without conflicts, as nearly all are, is inserted by a plain `INSERT`. Only one that met a number or a holder
that exists already is inserted again, by the statement that skips these: PostgreSQL looks into each unique index twice
for it, which makes a row cost half as much again.
The fence is a statement of its own, because a joint statement would read a snapshot older than the lock. The statements
run on the driver itself: they are the most frequent of all, and a batch costs its round trips, not its members.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal, NamedTuple

from asyncpg import UniqueViolationError

from services.queue.access.access_codes import CodeBatch, CodeRefused, ValidatedCodes
from services.queue.line.replies import Allocation
from services.queue.line.repository import LineRepository, PlaceId, joined
from services.queue.rooms.model import WaitingRoom
from shared.concurrency.background import wake
from shared.contracts.queue import JoinRequest
from shared.errors.problems import StaleEpoch
from shared.postgres.engine import AsyncEngine, driver_connection, fenced, raw_statement, retry_deadlocks
from shared.runtime.tracing import sale_log

INSERT_PLACES = raw_statement(__package__, "insert_places")
INSERT_NEW_PLACES = INSERT_PLACES.replace("    ON CONFLICT DO NOTHING\n", "")
BEGIN_SHARED = "BEGIN; SELECT pg_advisory_xact_lock_shared({fence:d})"
INSERT_EVENT = "INSERT INTO queue.outbox_batch (events) VALUES (jsonb_build_array($1::text::jsonb))"
Refused = Literal["line-full", "closed", "sold-out", "unknown-lane", "sign-in-needed"] | CodeRefused


class JoinOutcome(NamedTuple):
    """`joined` with a new place, `known` with the place the holder had, or the reason of a refusal."""

    word: Literal["joined", "known"] | Refused
    place_id: PlaceId | None = None


@dataclass
class LaneJoinBatch:
    """Joins to one lane, by holder, and their outcomes so far. `hashes`: of access codes, by holder."""

    room: WaitingRoom
    lane: int
    batch_id: str
    joins: dict[str, JoinRequest]
    hashes: Mapping[str, bytes]
    outcomes: dict[str, JoinOutcome] = field(default_factory=dict)
    call_now: bool = False

    @property
    def pending(self) -> list[JoinRequest]:
        """The joins without an outcome."""
        return [join for holder, join in self.joins.items() if holder not in self.outcomes]

    def reject(self, reason: Refused) -> None:
        self.outcomes |= {join.holder: JoinOutcome(reason) for join in self.pending}


def known_places(place_ids: Mapping[str, PlaceId]) -> dict[str, JoinOutcome]:
    """The outcome of joins whose holder has a place, by holder."""
    return {holder: JoinOutcome("known", place_id) for holder, place_id in place_ids.items()}


def join_seqs(outcomes: Mapping[str, JoinOutcome]) -> set[int]:
    """The numbers of the places among these outcomes."""
    return {outcome.place_id[1] for outcome in outcomes.values() if outcome.place_id}


async def insert_places(db: AsyncEngine, batch: LaneJoinBatch, numbers: Allocation) -> dict[str, JoinOutcome]:
    """Inserts the batch's first pending joins under the numbers that Redis gave; the outcome of each holder who did not
    have a place. The places are committed then.

    Raises `Unavailable` when it is unknown whether the places were committed.
    """
    joins = batch.pending[: numbers.granted]

    async def insert(statement: str) -> dict[str, JoinOutcome]:
        async with fenced(db, BEGIN_SHARED.format(fence=batch.room.fence)) as driver:
            return await _insert_with_codes(driver, batch, joins, partial(_insert, driver, batch, numbers, statement))

    try:
        outcomes = await retry_deadlocks(partial(insert, INSERT_NEW_PLACES))
    except UniqueViolationError:
        outcomes = await retry_deadlocks(partial(insert, INSERT_PLACES))
    wake("queue")
    return outcomes


async def _insert_with_codes(
    driver: Any,
    batch: LaneJoinBatch,
    joins: Sequence[JoinRequest],
    insert: Callable[[Sequence[JoinRequest]], Awaitable[dict[str, int]]],
) -> dict[str, JoinOutcome]:
    """Inserts those whose code, if they have one, opens the lane; the codes stay locked until the transaction ends."""
    codes = CodeBatch(driver, batch.room, batch.hashes)
    refused = (await codes.validate([join.holder for join in joins], lock=True)).refused
    admitted = [join for join in joins if join.holder not in refused]
    join_seqs = await insert(admitted) if admitted else {}
    await codes.redeem(batch.lane, join_seqs)
    placed = {holder: JoinOutcome("joined", (batch.lane, join_seq)) for holder, join_seq in join_seqs.items()}
    return placed | {holder: JoinOutcome(reason) for holder, reason in refused.items()}


async def _insert(
    driver: Any, batch: LaneJoinBatch, numbers: Allocation, statement: str, joins: Sequence[JoinRequest]
) -> dict[str, int]:
    room, lane, first = batch.room, batch.lane, numbers.first
    holders, users = [join.holder for join in joins], [join.user_id for join in joins]
    event = joined(room.event_id, room.epoch, lane, range(first, first + len(joins))).model_dump_json()
    with sale_log.timed("sale.statement", statement="queue:insert_places", event_id=room.event_id):
        rows = await driver.fetch(
            statement, room.event_id, room.epoch, lane, first, holders, users, numbers.generation, event
        )
    inserted = {join_seq for (join_seq,) in rows}
    if 0 < len(inserted) < len(joins):
        event = joined(room.event_id, room.epoch, lane, inserted).model_dump_json()
        await driver.execute(INSERT_EVENT, event)
    return {holder: join_seq for join_seq, holder in enumerate(holders, first) if join_seq in inserted}


async def lanes_by_code(db: AsyncEngine, room: WaitingRoom, hashes: Mapping[str, bytes]) -> ValidatedCodes:
    """The lane each holder's code opens at present, or why it does not. The inserting transaction decides finally."""
    if not hashes:
        return ValidatedCodes({}, {})
    async with fenced(db, BEGIN_SHARED.format(fence=room.fence)) as driver:
        return await CodeBatch(driver, room, hashes).validate(hashes, lock=False)


async def insert_places_in_db(db: AsyncEngine, batch: LaneJoinBatch) -> dict[str, JoinOutcome]:
    """Inserts the batch under the database's next numbers, while Redis is unavailable. Batches of a lane wait for each
    other at its row lock. Raises `StaleEpoch` when the lane is gone.
    """
    async with db.begin() as connection:
        repository = LineRepository(connection, batch.room.event_id, batch.room.epoch)
        if not await repository.lock_lane(batch.lane):
            raise StaleEpoch

        async def insert(joins: Sequence[JoinRequest]) -> dict[str, int]:
            rows = [(join.holder, join.user_id) for join in joins]
            join_seqs = await repository.insert_places_in_db(batch.lane, rows)
            await repository.emit_joined(batch.lane, join_seqs.values())
            return join_seqs

        return await _insert_with_codes(await driver_connection(connection), batch, batch.pending, insert)
