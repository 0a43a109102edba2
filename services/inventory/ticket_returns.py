"""Some of what an order bought comes back: exactly the tickets that are named, all of them or none, once.

Their rows leave the reservation, so that whatever counts what is sold counts what is left of it; a reservation that
gives its last ticket back is `returned` as if it had given all at once.
"""

from dataclasses import replace

from sqlalchemy import select
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from services.inventory.facts import Fact, tell
from services.inventory.gate import Gate
from services.inventory.metrics import DRIFT, RETURNED
from services.inventory.record import Record, read
from services.inventory.return_tables import ticket_return
from services.inventory.returns import LOCK, TAKE_BACK, Freed, Returns, free
from shared.contracts.inventory import StepDone, TicketsBack
from shared.postgres import statement
from shared.redis import ENGINE_AWAY

TAKE_SOME_BACK = statement(__package__, "take_some_back")


class TicketReturns:
    """One call is one transaction."""

    def __init__(self, engine: AsyncEngine, gate: Gate, returns: Returns) -> None:
        self._engine, self._gate, self._returns = engine, gate, returns

    async def take_back(self, asked: TicketsBack, *, actor: str) -> StepDone:
        """`done`, also when it was done before; `ended` if it does not have all these tickets."""
        async with self._engine.begin() as connection:
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

    async def _follow(self, record: Record, some: Record, freed: Freed, *, blocked: bool) -> None:
        """A sale the gate has not heard of yet is told first: it can give back only what it has sold."""
        try:
            await self._gate.confirm(record.event_id, [record.reservation_id])
        except ENGINE_AWAY:
            DRIFT.labels("follow-up").inc()
            return
        await self._returns.follow(record.event_id, freed._replace(records=[some]), mark="x" if blocked else ".")


async def _is_known(connection: AsyncConnection, event_id: str, return_id: str) -> bool:
    known = select(ticket_return.c.return_id)
    known = known.where(ticket_return.c.event_id == event_id, ticket_return.c.return_id == return_id)
    return await connection.scalar(known) is not None


def _some(record: Record, asked: TicketsBack) -> Record | None:
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
    connection: AsyncConnection, record: Record, some: Record, asked: TicketsBack, *, actor: str
) -> Freed:  # fmt: skip
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
    fact = Fact("returned", record.reservation_id, record.version + 1, after)
    await tell(connection, record.event_id, [fact], actor=actor)
    return freed


def _named(some: Record) -> dict[str, object]:
    return {
        "section_ids": [section_id for section_id, _, _, _ in some.seats],
        "positions": [position for _, position, _, _ in some.seats],
        "ga_section_ids": [section_id for section_id, _, _ in some.ga],
        "quantities": [quantity for _, quantity, _ in some.ga],
    }
