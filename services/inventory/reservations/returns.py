"""Returned stock: sold places become available (or blocked) again; PostgreSQL decides, then Redis follows. Idempotent.

What is available again is recounted from the live reservations, not added up: a seat that was sold twice goes to its
other buyer, and a ticket that was oversold frees no place.

`ReturnService` returns whole reservations, `TicketReturns` named tickets of one. Returned tickets leave the
reservation's rows, so every count of sold places is right; a reservation without its last ticket is `returned`.
"""

import logging
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from sqlalchemy import TextClause, select, text
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from services.inventory.metrics import DRIFT, RESERVATIONS_RETURNED
from services.inventory.reconcile.db_repair import repair_seats, repair_sections
from services.inventory.redis_stock.client import RedisStock
from services.inventory.reservations.events import ReservationEvent, emit
from services.inventory.reservations.repository import ReservationRow, read_reservations, step_done
from services.inventory.reservations.selection import selection_text
from services.inventory.tables import ticket_return
from shared.contracts.inventory import PaymentStep, ReturnTickets, StepDone
from shared.postgres.engine import statement
from shared.redis.client import REDIS_AWAY
from shared.runtime.logging import data

log = logging.getLogger("onsale.inventory")
LOCK = statement(__package__, "lock_reservations")
MARK_RETURNED = statement(__package__, "mark_returned")
LOCK_SECTIONS = text(
    "SELECT section_id, version FROM inventory.section WHERE event_id = :event_id "
    "AND section_id = ANY(CAST(:section_ids AS text[])) ORDER BY section_id FOR UPDATE"
)
LOCK_SEATS = statement(__package__, "lock_reservation_seats")
BLOCK = text(
    "UPDATE inventory.section SET blocked = blocked + :n, version = version + 1 "
    "WHERE event_id = :event_id AND section_id = :section_id AND kind = 'ga' RETURNING version"
)
EPOCH = text("SELECT redis_epoch FROM inventory.event WHERE event_id = :event_id")


class ReturnedStock(NamedTuple):
    """Stock returned to an event: seats with their new status, and how many more places each section has available."""

    epoch: int
    records: list[ReservationRow]
    seats: dict[tuple[str, int], str]
    added: dict[str, int]


class ReturnService:
    """Returns everything that reservations bought."""

    def __init__(self, db: AsyncEngine, redis_stock: RedisStock) -> None:
        self._db, self._redis_stock = db, redis_stock

    async def return_stock(
        self, steps: Sequence[PaymentStep], *, reason: str, actor: str, keep_blocked: bool = False
    ) -> list[StepDone]:
        """One result per step; `done` only for the order that bought it, also when it was done before."""
        ids = sorted({step.reservation_id for step in steps})
        returned: dict[str, ReturnedStock] = {}
        async with self._db.begin() as connection:
            await connection.execute(LOCK, {"ids": ids})
            records = await read_reservations(connection, ids)
            outcomes = [_outcome(records.get(step.reservation_id), step) for step in steps]
            by_event: dict[str, list[ReservationRow]] = defaultdict(list)
            for record in records.values():
                own = {
                    o for o, step in zip(outcomes, steps, strict=True) if step.reservation_id == record.reservation_id
                }
                if record.status == "confirmed" and "done" in own:
                    by_event[record.event_id].append(record)
            for event_id, some in sorted(by_event.items()):
                returned[event_id] = await release_sold(connection, event_id, some, keep_blocked=keep_blocked)
                events = [_event(record, reason) for record in some]
                await emit(connection, event_id, events, actor=actor)
        for event_id, stock in returned.items():
            RESERVATIONS_RETURNED.labels(reason).inc(len(stock.records))
            await self.sync_redis(event_id, stock, mark="x" if keep_blocked else ".")
        return [
            _step_done(records.get(step.reservation_id), outcome) for step, outcome in zip(steps, outcomes, strict=True)
        ]

    async def sync_redis(self, event_id: str, stock: ReturnedStock, *, mark: str) -> None:
        """Updates Redis; if it is away, reconciliation corrects the difference later."""
        left, status = dict(stock.added), "available" if mark == "." else "blocked"
        try:
            for record in stock.records:
                seats = [(s, p) for s, p, _, _ in record.seats if stock.seats.get((s, p)) == status]
                ga = {s: max(0, min(quantity, left.get(s, 0))) for s, quantity, _ in record.ga}
                left |= {s: left.get(s, 0) - n for s, n in ga.items()}
                excess = {s: quantity - ga[s] for s, quantity, _ in record.ga if quantity > ga[s]}
                places = selection_text(seats, ((s, n) for s, n in ga.items() if n))
                await self._redis_stock.apply_return(
                    event_id, record, epoch=stock.epoch, mark=mark, places=places, excess=excess
                )  # fmt: skip
        except REDIS_AWAY as away:
            DRIFT.labels("sync").inc()
            log.warning("redis_stock.sync_failed", extra=data(event_id=event_id, error=type(away).__name__))


async def release_sold(
    connection: AsyncConnection, event_id: str, records: list[ReservationRow], *, keep_blocked: bool,
    query: TextClause = MARK_RETURNED, columns: Mapping[str, object] | None = None,
) -> ReturnedStock:  # fmt: skip
    """Returns the places of `records` in the caller's transaction; sections are locked before seats, as by every
    writer. `query` with `columns` removes them from the reservations, by default all of their places.
    """
    epoch = int(await connection.scalar(EPOCH, {"event_id": event_id}) or 0)
    ids = [record.reservation_id for record in records]
    tickets: dict[str, int] = defaultdict(int)
    for record in records:
        for section_id, quantity, _ in record.ga:
            tickets[section_id] += quantity
    sections = {s for record in records for s, _, _, _ in record.seats} | set(tickets)
    values = {"event_id": event_id, "section_ids": sorted(sections)}
    versions = {r.section_id: r.version for r in await connection.execute(LOCK_SECTIONS, values)}
    locked = await connection.execute(LOCK_SEATS, {"event_id": event_id, "ids": ids})
    places = [(r.section_id, r.position) for r in locked]
    await connection.execute(query, {"event_id": event_id, "ids": ids, **(columns or {})})
    status_if_free = "blocked" if keep_blocked else "available"
    seats = await repair_seats(connection, event_id, places, status_if_free=status_if_free)
    if keep_blocked:
        for section_id, n in tickets.items():
            row = {"event_id": event_id, "section_id": section_id, "n": n}
            versions[section_id] = (await connection.execute(BLOCK, row)).scalar_one()
    added = await repair_sections(connection, event_id, versions)
    return ReturnedStock(epoch, records, seats, dict(tickets) if keep_blocked else added)


def _outcome(record: ReservationRow | None, step: PaymentStep) -> str:
    if record is None:
        return "unknown"
    if record.status not in ("confirmed", "returned"):
        return "ended" if not record.is_live else "not-owner"
    return "done" if record.order_reference == step.order_reference else "not-owner"


def _event(record: ReservationRow, reason: str) -> ReservationEvent:
    after = {"status": "returned", "reason": reason, "order_reference": record.order_reference, **record.places()}
    return ReservationEvent("returned", record.reservation_id, record.version + 1, after)


def _step_done(record: ReservationRow | None, outcome: str) -> StepDone:
    if record is not None and outcome == "done":
        record.status = "returned"
    return step_done(record, outcome)


MARK_SOME_RETURNED = statement(__package__, "mark_some_returned")


class TicketReturns:
    """Returns some tickets of one reservation; each call is one transaction."""

    def __init__(self, db: AsyncEngine, redis_stock: RedisStock, returns: ReturnService) -> None:
        self._db, self._redis_stock, self._returns = db, redis_stock, returns

    async def return_tickets(self, request: ReturnTickets, *, actor: str) -> StepDone:
        """`done`, also when it was done before; `ended` if the reservation does not have all these tickets."""
        async with self._db.begin() as connection:
            await connection.execute(LOCK, {"ids": [request.reservation_id]})
            record = (await read_reservations(connection, [request.reservation_id])).get(request.reservation_id)
            if record is None:
                return StepDone(outcome="unknown")
            if record.order_reference != request.order_reference:
                return StepDone(outcome="not-owner")
            if await _is_done(connection, record.event_id, request.return_id):
                return StepDone(outcome="done")
            part = _returned_part(record, request)
            if record.status != "confirmed" or part is None:
                return StepDone(outcome="ended")
            returned = await _return_part(connection, record, part, request, actor=actor)
        RESERVATIONS_RETURNED.labels("tickets").inc(part.quantity)
        await self._sync_redis(
            record, replace(part, reservation_id=request.return_id), returned, blocked=request.keep_blocked
        )
        return StepDone(outcome="done")

    async def _sync_redis(
        self, record: ReservationRow, part: ReservationRow, returned: ReturnedStock, *, blocked: bool
    ) -> None:
        """Confirms the sale in Redis first, in case that is missing there: only sold places can be returned."""
        try:
            await self._redis_stock.confirm(record.event_id, [record.reservation_id])
        except REDIS_AWAY:
            DRIFT.labels("sync").inc()
            return
        await self._returns.sync_redis(record.event_id, returned._replace(records=[part]), mark="x" if blocked else ".")


async def _is_done(connection: AsyncConnection, event_id: str, return_id: str) -> bool:
    known = select(ticket_return.c.return_id)
    known = known.where(ticket_return.c.event_id == event_id, ticket_return.c.return_id == return_id)
    return await connection.scalar(known) is not None


def _returned_part(record: ReservationRow, request: ReturnTickets) -> ReservationRow | None:
    """The reservation reduced to these tickets; None if it does not have all of them."""
    seats = {seat[2]: seat for seat in record.seats}
    tickets = {section_id: (quantity, price) for section_id, quantity, price in record.ga}
    wanted = {ga.section_id: ga.quantity for ga in request.ga}
    each_once = len(set(request.seats)) == len(request.seats) and len(wanted) == len(request.ga)
    if not each_once or not set(request.seats) <= seats.keys() or not (request.seats or request.ga):
        return None
    if any(quantity > tickets.get(section_id, (0, 0))[0] for section_id, quantity in wanted.items()):
        return None
    ga = [(section_id, quantity, tickets[section_id][1]) for section_id, quantity in wanted.items()]
    return replace(record, seats=[seats[seat_id] for seat_id in request.seats], ga=ga)


async def _return_part(
    connection: AsyncConnection, record: ReservationRow, part: ReservationRow, request: ReturnTickets, *, actor: str
) -> ReturnedStock:  # fmt: skip
    row: dict[str, object] = {
        "event_id": record.event_id,
        "return_id": request.return_id,
        "reservation_id": record.reservation_id,
    }
    row |= {"places": part.places(), "kept_blocked": request.keep_blocked, "reason": request.reason}
    await connection.execute(insert(ticket_return).values(row))
    is_all = part.quantity == record.quantity
    query, columns = (MARK_RETURNED, None) if is_all else (MARK_SOME_RETURNED, _place_columns(part))
    blocked = request.keep_blocked
    returned = await release_sold(
        connection, record.event_id, [part], keep_blocked=blocked, query=query, columns=columns
    )
    after = {"status": "returned" if is_all else record.status, "reason": request.reason,
             "order_reference": record.order_reference, **part.places()}  # fmt: skip
    event = ReservationEvent("returned", record.reservation_id, record.version + 1, after)
    await emit(connection, record.event_id, [event], actor=actor)
    return returned


def _place_columns(part: ReservationRow) -> dict[str, object]:
    return {
        "section_ids": [section_id for section_id, _, _, _ in part.seats],
        "positions": [position for _, position, _, _ in part.seats],
        "ga_section_ids": [section_id for section_id, _, _ in part.ga],
        "quantities": [quantity for _, quantity, _ in part.ga],
    }
