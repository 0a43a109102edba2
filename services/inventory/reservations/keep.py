"""A fan keeps some of what they hold, and the rest is free again: the ledger decides under the reservation's lock, then
the gate follows.

The fan names what stays, not what goes: asked again nothing changes, and of two who ask at once the later one is told
that some of it is gone. What an order has begun to pay stays whole, because its payment may arrive late.
"""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace

from sqlalchemy.ext.asyncio import AsyncEngine

from services.inventory.metrics import DRIFT
from services.inventory.problems import AlreadyBought, NotHeld
from services.inventory.redis_stock.client import RedisStock
from services.inventory.reservations.events import ReservationEvent, emit
from services.inventory.reservations.payment_locks import lock_reservations
from services.inventory.reservations.repository import ReservationRow
from shared.postgres.engine import statement
from shared.postgres.errors import outlive_deadlocks
from shared.redis.client import REDIS_AWAY
from shared.runtime.logging import data
from shared.web.problems import HoldExpired, PaymentInProgress

log = logging.getLogger("onsale.inventory")
GIVE_SOME_BACK = statement(__package__, "give_some_back")


async def keep(
    db: AsyncEngine, redis_stock: RedisStock, reservation_id: str, seats: Sequence[str], ga: Mapping[str, int]
) -> ReservationRow:
    """The reservation with these places alone. Raises `NotHeld`, `PaymentInProgress`, `AlreadyBought`, `HoldExpired`,
    and then nothing was changed.
    """
    record = await outlive_deadlocks(lambda: _kept(db, redis_stock, reservation_id, seats, ga))
    try:
        await redis_stock.keep(record.event_id, reservation_id, record.basket())
    except REDIS_AWAY as away:
        DRIFT.labels("follow-up").inc()
        log.warning("gate.behind", extra=data(event_id=record.event_id, error=type(away).__name__))
    return record


async def _kept(
    db: AsyncEngine, redis_stock: RedisStock, reservation_id: str, seats: Sequence[str], ga: Mapping[str, int]
) -> ReservationRow:
    async with db.begin() as connection:
        now_ms, records = await lock_reservations(connection, {"ids": [reservation_id]})
        record = records[reservation_id]
        _require_unpaid(record, now_ms + redis_stock.clock_offset_ms)
        kept, rest = _parted(record, set(seats), ga)
        if not rest.quantity:
            return record
        await connection.execute(
            GIVE_SOME_BACK,
            {
                "event_id": record.event_id, "reservation_id": reservation_id, "total_minor": kept.total_minor,
                "n": rest.quantity,
                "section_ids": [s for s, _, _, _ in rest.seats], "positions": [p for _, p, _, _ in rest.seats],
                "ga_section_ids": [s for s, _, _ in rest.ga], "quantities": [q for _, q, _ in rest.ga],
            },
        )  # fmt: skip
        after = {"status": record.status, "total_minor": kept.total_minor, **rest.places()}
        fact = ReservationEvent("given-back", reservation_id, kept.version, after)
        await emit(connection, record.event_id, [fact], actor=record.holder)
    return kept


def _require_unpaid(record: ReservationRow, now_ms: int) -> None:
    if record.status == "confirmed":
        raise AlreadyBought
    if record.status == "paying" or (record.is_live and record.order_reference):
        raise PaymentInProgress("An order has begun to pay for all of it. Cancel the order, or give all of it back.")
    if record.status != "pending_payment" or now_ms > record.release_at_ms:
        raise HoldExpired


def _parted(record: ReservationRow, seats: set[str], ga: Mapping[str, int]) -> tuple[ReservationRow, ReservationRow]:
    """What is kept and what is given back, as if each were a reservation."""
    had = {seat_id for _, _, seat_id, _ in record.seats} | {section_id for section_id, _, _ in record.ga}
    more = [s for s, quantity, _ in record.ga if ga.get(s, 0) > quantity]
    if missing := sorted((seats | ga.keys()) - had) + more:
        raise NotHeld(f"Not in this reservation, or not so many: {', '.join(missing)}.", places=missing)
    stays = [seat for seat in record.seats if seat[2] in seats]
    goes = [seat for seat in record.seats if seat[2] not in seats]
    ga_stays = [(s, ga[s], price) for s, _, price in record.ga if s in ga]
    ga_goes = [(s, n - ga.get(s, 0), price) for s, n, price in record.ga if n > ga.get(s, 0)]
    total_minor = sum(seat[3] for seat in stays) + sum(n * price for _, n, price in ga_stays)
    rest = replace(record, seats=goes, ga=ga_goes)
    kept = replace(
        record, seats=stays, ga=ga_stays, total_minor=total_minor, given_back=record.given_back + rest.quantity,
        version=record.version + 1,
    )  # fmt: skip
    return kept, rest
