"""What was sold comes back: the ledger decides, then the gate follows; once, however often it is asked for.

A seat that was sold twice goes to its other buyer, and a ticket that never had a place frees none: what is free again
is counted from the live reservations, not added up.

Some of what an order bought comes back: exactly the tickets that are named, all of them or none, once.

Their rows leave the reservation, so that whatever counts what is sold counts what is left of it; a reservation that
gives its last ticket back is `returned` as if it had given all at once.
"""

import logging
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from sqlalchemy import TextClause, select, text
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from services.inventory.metrics import DRIFT, RETURNED
from services.inventory.reconcile.ledger_repair import repair_seats, repair_sections
from services.inventory.redis_stock.client import RedisStock
from services.inventory.reservations.events import ReservationEvent, emit
from services.inventory.reservations.repository import ReservationRow, read, step_done
from services.inventory.reservations.selection import selection_text
from services.inventory.tables import ticket_return
from shared.contracts.inventory import PaymentStep, StepDone, TicketsBack
from shared.postgres.engine import statement
from shared.redis.client import REDIS_AWAY
from shared.runtime.logging import data

log = logging.getLogger("onsale.inventory")
LOCK = statement(__package__, "lock_reservations")
TAKE_BACK = statement(__package__, "take_back")
LOCK_SECTIONS = text(
    "SELECT section_id, version FROM inventory.section WHERE event_id = :event_id "
    "AND section_id = ANY(CAST(:section_ids AS text[])) ORDER BY section_id FOR UPDATE"
)
LOCK_SEATS = text(
    "WITH mine AS MATERIALIZED (SELECT x.event_id, x.section_id, x.position FROM inventory.reservation_seat x "
    "JOIN (SELECT CAST(:event_id AS text) AS event_id, a.* FROM unnest(CAST(:ids AS text[])) AS a (reservation_id) "
    "OFFSET 0) AS asked USING (event_id, reservation_id)) "
    "SELECT section_id, position FROM inventory.seat s JOIN mine USING (event_id, section_id, position) "
    "ORDER BY section_id, position FOR UPDATE OF s"
)
BLOCK = text(
    "UPDATE inventory.section SET blocked = blocked + :n, version = version + 1 "
    "WHERE event_id = :event_id AND section_id = :section_id AND kind = 'ga' RETURNING version"
)
EPOCH = text("SELECT redis_epoch FROM inventory.event WHERE event_id = :event_id")


class ReturnedStock(NamedTuple):
    """What came back to an event: seats with their new status, and how much more is left of each section."""

    epoch: int
    records: list[ReservationRow]
    seats: dict[tuple[str, int], str]
    more: dict[str, int]


class ReturnService:
    """The one step from `confirmed` to `returned`."""

    def __init__(self, db: AsyncEngine, redis_stock: RedisStock) -> None:
        self._db, self._redis_stock = db, redis_stock

    async def take_back(
        self, steps: Sequence[PaymentStep], *, reason: str, actor: str, keep_blocked: bool = False
    ) -> list[StepDone]:
        """`done`, also when it was done before; only for the order that bought it."""
        ids = sorted({step.reservation_id for step in steps})
        freed: dict[str, ReturnedStock] = {}
        async with self._db.begin() as connection:
            await connection.execute(LOCK, {"ids": ids})
            records = await read(connection, ids)
            words = [_word(records.get(step.reservation_id), step) for step in steps]
            by_event: dict[str, list[ReservationRow]] = defaultdict(list)
            for record in records.values():
                mine = {w for w, step in zip(words, steps, strict=True) if step.reservation_id == record.reservation_id}
                if record.status == "confirmed" and "done" in mine:
                    by_event[record.event_id].append(record)
            for event_id, some in sorted(by_event.items()):
                freed[event_id] = await free(connection, event_id, some, keep_blocked=keep_blocked)
                facts = [_fact(record, reason) for record in some]
                await emit(connection, event_id, facts, actor=actor)
        for event_id, back in freed.items():
            RETURNED.labels(reason).inc(len(back.records))
            await self.follow(event_id, back, mark="x" if keep_blocked else ".")
        return [_done(records.get(step.reservation_id), word) for step, word in zip(steps, words, strict=True)]

    async def follow(self, event_id: str, back: ReturnedStock, *, mark: str) -> None:
        """The gate is told. What it misses is drift, found by reconcile."""
        left, status = dict(back.more), "available" if mark == "." else "blocked"
        try:
            for record in back.records:
                seats = [(s, p) for s, p, _, _ in record.seats if back.seats.get((s, p)) == status]
                ga = {s: max(0, min(quantity, left.get(s, 0))) for s, quantity, _ in record.ga}
                left |= {s: left.get(s, 0) - n for s, n in ga.items()}
                excess = {s: quantity - ga[s] for s, quantity, _ in record.ga if quantity > ga[s]}
                places = selection_text(seats, ((s, n) for s, n in ga.items() if n))
                await self._redis_stock.apply_return(
                    event_id, record, epoch=back.epoch, mark=mark, places=places, excess=excess
                )  # fmt: skip
        except REDIS_AWAY as away:
            DRIFT.labels("follow-up").inc()
            log.warning("gate.behind", extra=data(event_id=event_id, error=type(away).__name__))


async def free(
    connection: AsyncConnection, event_id: str, records: list[ReservationRow], *, keep_blocked: bool,
    take: TextClause = TAKE_BACK, some: Mapping[str, object] | None = None,
) -> ReturnedStock:  # fmt: skip
    """Sections before seats, as every writer locks. `take` with `some` is the statement that takes them, all that these
    reservations bought unless it says otherwise.
    """
    epoch = int(await connection.scalar(EPOCH, {"event_id": event_id}) or 0)
    ids = [record.reservation_id for record in records]
    tickets: dict[str, int] = defaultdict(int)
    for record in records:
        for section_id, quantity, _ in record.ga:
            tickets[section_id] += quantity
    named = {s for record in records for s, _, _, _ in record.seats} | set(tickets)
    asked = {"event_id": event_id, "section_ids": sorted(named)}
    versions = {r.section_id: r.version for r in await connection.execute(LOCK_SECTIONS, asked)}
    locked = await connection.execute(LOCK_SEATS, {"event_id": event_id, "ids": ids})
    places = [(r.section_id, r.position) for r in locked]
    await connection.execute(take, {"event_id": event_id, "ids": ids, **(some or {})})
    free_mark = "blocked" if keep_blocked else "available"
    seats = await repair_seats(connection, event_id, places, free_mark=free_mark)
    if keep_blocked:
        for section_id, n in tickets.items():
            row = {"event_id": event_id, "section_id": section_id, "n": n}
            versions[section_id] = (await connection.execute(BLOCK, row)).scalar_one()
    more = await repair_sections(connection, event_id, versions)
    return ReturnedStock(epoch, records, seats, dict(tickets) if keep_blocked else more)


def _word(record: ReservationRow | None, step: PaymentStep) -> str:
    if record is None:
        return "unknown"
    if record.status not in ("confirmed", "returned"):
        return "ended" if not record.is_live else "not-owner"
    return "done" if record.order_reference == step.order_reference else "not-owner"


def _fact(record: ReservationRow, reason: str) -> ReservationEvent:
    after = {"status": "returned", "reason": reason, "order_reference": record.order_reference, **record.places()}
    return ReservationEvent("returned", record.reservation_id, record.version + 1, after)


def _done(record: ReservationRow | None, word: str) -> StepDone:
    if record is not None and word == "done":
        record.status = "returned"
    return step_done(record, word)


TAKE_SOME_BACK = statement(__package__, "take_some_back")


class TicketReturns:
    """One call is one transaction."""

    def __init__(self, db: AsyncEngine, redis_stock: RedisStock, returns: ReturnService) -> None:
        self._db, self._redis_stock, self._returns = db, redis_stock, returns

    async def take_back(self, asked: TicketsBack, *, actor: str) -> StepDone:
        """`done`, also when it was done before; `ended` if it does not have all these tickets."""
        async with self._db.begin() as connection:
            await connection.execute(LOCK, {"ids": [asked.reservation_id]})
            record = (await read(connection, [asked.reservation_id])).get(asked.reservation_id)
            if record is None:
                return StepDone(word="unknown")
            if record.order_reference != asked.order_reference:
                return StepDone(word="not-owner")
            if await _is_known(connection, record.event_id, asked.return_id):
                return StepDone(word="done")
            some = _some(record, asked)
            if record.status != "confirmed" or some is None:
                return StepDone(word="ended")
            freed = await _free(connection, record, some, asked, actor=actor)
        RETURNED.labels("tickets").inc(some.quantity)
        await self._follow(record, replace(some, reservation_id=asked.return_id), freed, blocked=asked.keep_blocked)
        return StepDone(word="done")

    async def _follow(
        self, record: ReservationRow, some: ReservationRow, freed: ReturnedStock, *, blocked: bool
    ) -> None:
        """A sale the gate has not heard of yet is told first: it can give back only what it has sold."""
        try:
            await self._redis_stock.confirm(record.event_id, [record.reservation_id])
        except REDIS_AWAY:
            DRIFT.labels("follow-up").inc()
            return
        await self._returns.follow(record.event_id, freed._replace(records=[some]), mark="x" if blocked else ".")


async def _is_known(connection: AsyncConnection, event_id: str, return_id: str) -> bool:
    known = select(ticket_return.c.return_id)
    known = known.where(ticket_return.c.event_id == event_id, ticket_return.c.return_id == return_id)
    return await connection.scalar(known) is not None


def _some(record: ReservationRow, asked: TicketsBack) -> ReservationRow | None:
    """The reservation as if it were these tickets alone; nothing if some are not its own."""
    seats = {seat[2]: seat for seat in record.seats}
    tickets = {section_id: (quantity, price) for section_id, quantity, price in record.ga}
    wanted = {ga.section_id: ga.quantity for ga in asked.ga}
    each_once = len(set(asked.seats)) == len(asked.seats) and len(wanted) == len(asked.ga)
    if not each_once or not set(asked.seats) <= seats.keys() or not (asked.seats or asked.ga):
        return None
    if any(quantity > tickets.get(section_id, (0, 0))[0] for section_id, quantity in wanted.items()):
        return None
    ga = [(section_id, quantity, tickets[section_id][1]) for section_id, quantity in wanted.items()]
    return replace(record, seats=[seats[seat_id] for seat_id in asked.seats], ga=ga)


async def _free(
    connection: AsyncConnection, record: ReservationRow, some: ReservationRow, asked: TicketsBack, *, actor: str
) -> ReturnedStock:  # fmt: skip
    row: dict[str, object] = {
        "event_id": record.event_id,
        "return_id": asked.return_id,
        "reservation_id": record.reservation_id,
    }
    row |= {"places": some.places(), "kept_blocked": asked.keep_blocked, "reason": asked.reason}
    await connection.execute(insert(ticket_return).values(row))
    is_all = some.quantity == record.quantity
    take, named = (TAKE_BACK, None) if is_all else (TAKE_SOME_BACK, _named(some))
    blocked = asked.keep_blocked
    freed = await free(connection, record.event_id, [some], keep_blocked=blocked, take=take, some=named)
    after = {"status": "returned" if is_all else record.status, "reason": asked.reason,
             "order_reference": record.order_reference, **some.places()}  # fmt: skip
    fact = ReservationEvent("returned", record.reservation_id, record.version + 1, after)
    await emit(connection, record.event_id, [fact], actor=actor)
    return freed


def _named(some: ReservationRow) -> dict[str, object]:
    return {
        "section_ids": [section_id for section_id, _, _, _ in some.seats],
        "positions": [position for _, position, _, _ in some.seats],
        "ga_section_ids": [section_id for section_id, _, _ in some.ga],
        "quantities": [quantity for _, quantity, _ in some.ga],
    }
