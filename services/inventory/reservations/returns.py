"""Returned stock: sold places become available (or blocked) again; PostgreSQL decides, then Redis follows. Idempotent.

What is available again is recounted from the live reservations, not added up: a seat that was sold twice goes to its
other buyer, and a ticket that was oversold frees no place.

`return_stock` returns whole reservations, `return_tickets` named tickets of one. Returned tickets leave the
reservation's rows, so every count of sold places is right; a reservation without its last ticket is `returned`.
"""

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from sqlalchemy import select, text
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from services.inventory.layout.selection import SeatPosition, Selection, StockSelection
from services.inventory.metrics import RESERVATIONS_RETURNED, RETURN_REASONS
from services.inventory.redis_stock.client import RedisStock, as_in_db
from services.inventory.reservations.payment import RETURN
from services.inventory.store.repair import repair_seats, repair_sections
from services.inventory.store.reservations import (
    REMOVE_PLACES,
    ReservationEvent,
    ReservationRow,
    emit,
    keys_of,
    lock_reservations,
    redis_epoch,
    step_done,
)
from services.inventory.store.snapshot import MARKS
from services.inventory.tables import ticket_return
from shared.contracts.inventory import PaymentStep, ReturnTickets, StepDone
from shared.postgres.engine import statement

MARK_RETURNED = statement(__package__, "mark_returned")
LOCK_SECTIONS = text(
    "SELECT section_id, version FROM inventory.section WHERE event_id = :event_id "
    "AND section_id = ANY(CAST(:section_ids AS text[])) ORDER BY section_id FOR UPDATE"
)
LOCK_SEATS = statement(__package__, "lock_reservation_seats")
BLOCK = text(
    "UPDATE inventory.section SET blocked = blocked + :n, version = version + 1 "
    "WHERE event_id = :event_id AND section_id = :section_id AND kind <> 'seated' RETURNING version"
)


class ReturnedStock(NamedTuple):
    """Stock returned to an event: seats with their new status, and how many more places each section has available."""

    epoch: int
    records: list[ReservationRow]
    seats: dict[SeatPosition, str]
    added: dict[str, int]


class ReturnService:
    """Each call is one transaction."""

    def __init__(self, db: AsyncEngine, redis_stock: RedisStock) -> None:
        self._db, self._redis_stock = db, redis_stock

    async def return_stock(
        self, steps: Sequence[PaymentStep], *, reason: str, actor: str, keep_blocked: bool = False
    ) -> list[StepDone]:
        """One result per step; `done` only for the order that bought it, also when it was done before."""
        returned: dict[str, ReturnedStock] = {}
        async with self._db.begin() as connection:
            keys = await keys_of(connection, ((step.event_id, step.reservation_id) for step in steps))
            _, records = await lock_reservations(connection, keys)
            answers = [RETURN.answer(records.get(step.reservation_id), step) for step in steps]
            by_event = defaultdict[str, list[ReservationRow]](list)
            own = {step.reservation_id for step, answer in zip(steps, answers, strict=True) if answer is None}
            for reservation_id in sorted(own):
                by_event[records[reservation_id].event_id].append(records[reservation_id])
            for event_id, some in sorted(by_event.items()):
                returned[event_id] = await _release_sold(connection, event_id, some, keep_blocked=keep_blocked)
                await emit(connection, event_id, [_event(record, reason) for record in some], actor=actor)
        for event_id, stock in returned.items():
            RESERVATIONS_RETURNED.labels(reason if reason in RETURN_REASONS else "other").inc(len(stock.records))
            await self._sync_redis(event_id, stock, keep_blocked=keep_blocked)
        return [
            step_done(records.get(s.reservation_id), answer or "done") for s, answer in zip(steps, answers, strict=True)
        ]

    async def return_tickets(self, request: ReturnTickets, *, actor: str) -> StepDone:
        """`done`, also when it was done before; `ended` if the reservation does not have all these tickets."""
        async with self._db.begin() as connection:
            keys = await keys_of(connection, [(request.event_id, request.reservation_id)])
            _, records = await lock_reservations(connection, keys)
            record = records.get(request.reservation_id)
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
        await self._sync_redis(record.event_id, returned, keep_blocked=request.keep_blocked)
        return StepDone(outcome="done")

    async def _sync_redis(self, event_id: str, stock: ReturnedStock, *, keep_blocked: bool) -> None:
        left, status = Counter(stock.added), "blocked" if keep_blocked else "available"
        changes = []
        for record in stock.records:
            sold = record.selection.stock
            seats = tuple(seat for seat in sold.seats if stock.seats.get(seat) == status)
            ga = {s: max(0, min(quantity, left[s])) for s, quantity in sold.ga.items()}
            left.subtract(ga)
            excess = {s: quantity - ga[s] for s, quantity in sold.ga.items() if quantity > ga[s]}
            places = StockSelection(seats, {s: n for s, n in ga.items() if n}).text()
            returned = {"places": places, "mark": MARKS[status], "excess": excess, "n": record.quantity}
            changes.append({**as_in_db(record), "holder": record.holder, "returned": returned})
        with self._redis_stock.follows([event_id]):
            if await self._redis_stock.follow(event_id, changes, epoch=stock.epoch) != "done":
                self._redis_stock.behind.add(event_id)


async def _release_sold(
    connection: AsyncConnection, event_id: str, records: list[ReservationRow], *, keep_blocked: bool,
    part: Selection | None = None,
) -> ReturnedStock:  # fmt: skip
    """Returns the places of `records`, or this `part` of the only one, in the caller's transaction; sections are locked
    before seats, as by every writer.
    """
    epoch = await redis_epoch(connection, event_id)
    which = {"event_id": event_id, "ids": [record.reservation_id for record in records]}
    tickets = Counter[str]()
    for record in records:
        tickets.update(record.selection.stock.ga)
    sections = {section_id for record in records for section_id in record.selection.stock.counts()}
    values = {"event_id": event_id, "section_ids": sorted(sections)}
    versions = {r.section_id: r.version for r in await connection.execute(LOCK_SECTIONS, values)}
    locked = [(r.section_id, r.position) for r in await connection.execute(LOCK_SEATS, which)]
    if part is None:
        await connection.execute(MARK_RETURNED, which)
    else:
        kept = {"status": "confirmed", "total_minor": None, "released_tickets": 0, "reason": "returned"}
        places = {"event_id": event_id, "reservation_id": records[0].reservation_id, **part.columns()}
        await connection.execute(REMOVE_PLACES, {**places, **kept})
    status_if_free = "blocked" if keep_blocked else "available"
    for record in records:
        record.status, record.version = "returned" if part is None else record.status, record.version + 1
    seats = await repair_seats(connection, event_id, locked, status_if_free=status_if_free)
    if keep_blocked:
        for section_id, n in tickets.items():
            row = {"event_id": event_id, "section_id": section_id, "n": n}
            versions[section_id] = (await connection.execute(BLOCK, row)).scalar_one()
    added = await repair_sections(connection, event_id, versions)
    return ReturnedStock(epoch, records, seats, dict(tickets) if keep_blocked else added)


def _event(part: ReservationRow, reason: str) -> ReservationEvent:
    after = {"status": part.status, "reason": reason, "order_reference": part.order_reference, **part.selection.shown()}
    return ReservationEvent("returned", part.reservation_id, part.version, after)


async def _is_done(connection: AsyncConnection, event_id: str, return_id: str) -> bool:
    known = select(ticket_return.c.return_id)
    known = known.where(ticket_return.c.event_id == event_id, ticket_return.c.return_id == return_id)
    return await connection.scalar(known) is not None


def _returned_part(record: ReservationRow, request: ReturnTickets) -> ReservationRow | None:
    """The reservation reduced to these tickets; None if it does not have all of them."""
    seats = {line.seat_id: line for line in record.selection.seats}
    tickets = {line.named: line for line in record.selection.ga}
    wanted = {(ga.section_id, ga.type_id): ga.quantity for ga in request.ga}
    each_once = len(set(request.seats)) == len(request.seats) and len(wanted) == len(request.ga)
    if not each_once or not (request.seats or request.ga) or not set(request.seats) <= seats.keys():
        return None
    if any(key not in tickets or quantity > tickets[key].quantity for key, quantity in wanted.items()):
        return None
    ga = tuple(tickets[key]._replace(quantity=quantity) for key, quantity in wanted.items())
    return replace(record, selection=Selection(tuple(seats[seat_id] for seat_id in request.seats), ga))


async def _return_part(
    connection: AsyncConnection, record: ReservationRow, part: ReservationRow, request: ReturnTickets, *, actor: str
) -> ReturnedStock:  # fmt: skip
    event_id, blocked = record.event_id, request.keep_blocked
    row = {"event_id": event_id, "return_id": request.return_id, "reservation_id": record.reservation_id}
    detail = {"places": part.selection.shown(), "kept_blocked": blocked, "reason": request.reason}
    await connection.execute(insert(ticket_return).values({**row, **detail}))
    is_all = part.quantity == record.quantity
    returned = await _release_sold(
        connection, event_id, [part], keep_blocked=blocked, part=None if is_all else part.selection
    )
    await emit(connection, event_id, [_event(part, request.reason)], actor=actor)
    return returned
