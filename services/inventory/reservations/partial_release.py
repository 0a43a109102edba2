"""Partial release: a fan keeps some places of a hold and the rest is available again.

PostgreSQL decides under the reservation's lock, then Redis follows. The fan names what they keep, not what they
release, so a repeat changes nothing; of two concurrent requests the later one is refused if it names places that are
gone. Once an order has begun to pay, all of the hold stays, because the payment may arrive late.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from sqlalchemy.ext.asyncio import AsyncEngine

from services.inventory.layout.layout import Layout
from services.inventory.layout.selection import GaKey, Selection
from services.inventory.problems import AlreadyBought, NotHeld
from services.inventory.redis_stock.client import RedisStock, as_in_db
from services.inventory.store.reservations import (
    REMOVE_PLACES,
    ReservationEvent,
    ReservationRow,
    emit,
    lock_reservations,
)
from shared.errors.problems import HoldExpired, PaymentInProgress
from shared.postgres.engine import retry_deadlocks, statement

RELEASE_SOME_STOCK = statement(__package__, "release_some_stock")


async def keep_only(
    db: AsyncEngine, redis_stock: RedisStock, layout: Layout, reservation_id: str, seats: Sequence[str],
    ga: Mapping[GaKey, int],
) -> ReservationRow:  # fmt: skip
    """The reservation, reduced to these places. Raises `NotHeld`, `PaymentInProgress`, `AlreadyBought`, `HoldExpired`,
    or `PriceTypeRefused` if a companion would be left without a guest, and then nothing was changed.
    """
    record = await retry_deadlocks(lambda: _release_rest(db, redis_stock, layout, reservation_id, seats, ga=ga))
    with redis_stock.follows([record.event_id]):
        await redis_stock.follow(record.event_id, [as_in_db(record)])
    return record


async def _release_rest(
    db: AsyncEngine, redis_stock: RedisStock, layout: Layout, reservation_id: str, seats: Sequence[str],
    ga: Mapping[GaKey, int],
) -> ReservationRow:  # fmt: skip
    async with db.begin() as connection:
        now_ms, records = await lock_reservations(connection, [(layout.event_id, reservation_id)])
        record = records[reservation_id]
        require_unpaid(record, now_ms + redis_stock.clock_offset_ms)
        kept, rest = _split(record.selection, set(seats), ga)
        if not rest.quantity:
            return record
        layout.types.require_together(layout.tickets(kept))
        places = {"event_id": record.event_id, "reservation_id": reservation_id, **rest.columns()}
        await connection.execute(RELEASE_SOME_STOCK, places)
        changed = {"status": record.status, "total_minor": kept.total_minor, "released_tickets": rest.quantity}
        await connection.execute(REMOVE_PLACES, {**places, **changed, "reason": "given-back"})
        after = {"status": record.status, "total_minor": kept.total_minor, **rest.shown()}
        event = ReservationEvent("given-back", reservation_id, record.version + 1, after)
        await emit(connection, record.event_id, [event], actor=record.holder)
    return replace(
        record, selection=kept, total_minor=kept.total_minor, version=record.version + 1,
        released_tickets=record.released_tickets + rest.quantity,
    )  # fmt: skip


def require_unpaid(record: ReservationRow, now_ms: int) -> None:
    """Raises `AlreadyBought`, `PaymentInProgress` or `HoldExpired` for what its fan cannot change any more."""
    if record.status == "confirmed":
        raise AlreadyBought
    if record.status == "paying" or (record.is_live and record.order_reference):
        raise PaymentInProgress("An order has begun to pay for this reservation. Cancel the order to release it.")
    if record.status != "pending_payment" or now_ms > record.release_at_ms:
        raise HoldExpired


def _split(held: Selection, seats: set[str], ga: Mapping[GaKey, int]) -> tuple[Selection, Selection]:
    """What is kept and what is released."""
    lines = {line.named: line for line in held.ga}
    too_many = {s for (s, type_id), n in ga.items() if (s, type_id) not in lines or n > lines[s, type_id].quantity}
    if missing := sorted((seats - {line.seat_id for line in held.seats}) | too_many):
        raise NotHeld(
            f"Not in this reservation, or not this many: {', '.join(missing)}. Nothing was released.", places=missing
        )
    kept_ga = [line._replace(quantity=ga[line.named]) for line in held.ga if line.named in ga]
    rest_ga = [line._replace(quantity=line.quantity - ga.get(line.named, 0)) for line in held.ga]
    kept = Selection(tuple(line for line in held.seats if line.seat_id in seats), tuple(kept_ga))
    rest_seats = tuple(line for line in held.seats if line.seat_id not in seats)
    return kept, Selection(rest_seats, tuple(line for line in rest_ga if line.quantity))
