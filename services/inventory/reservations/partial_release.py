"""Partial release: a fan keeps some places of a hold and the rest is available again.

PostgreSQL decides under the reservation's lock, then Redis follows. The fan names what they keep, not what they
release, so a repeat changes nothing; of two concurrent requests the later one is refused if it names places that are
gone. Once an order has begun to pay, all of the hold stays, because the payment may arrive late.
"""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace

from sqlalchemy.ext.asyncio import AsyncEngine

from services.inventory.metrics import DRIFT
from services.inventory.problems import AlreadyBought, NotHeld
from services.inventory.redis_stock.client import RedisStock
from services.inventory.reservations.events import ReservationEvent, emit
from services.inventory.reservations.repository import ReservationRow, lock_reservations
from shared.postgres.engine import statement
from shared.postgres.errors import retry_deadlocks
from shared.redis.client import REDIS_AWAY
from shared.runtime.logging import data
from shared.web.problems import HoldExpired, PaymentInProgress

log = logging.getLogger("onsale.inventory")
RELEASE_SOME_STOCK = statement(__package__, "release_some_stock")


async def keep_only(
    db: AsyncEngine, redis_stock: RedisStock, reservation_id: str, seats: Sequence[str], ga: Mapping[str, int]
) -> ReservationRow:
    """The reservation, reduced to these places. Raises `NotHeld`, `PaymentInProgress`, `AlreadyBought` or
    `HoldExpired`, and then nothing was changed.
    """
    record = await retry_deadlocks(lambda: _release_rest(db, redis_stock, reservation_id, seats, ga))
    try:
        await redis_stock.keep_only(record.event_id, reservation_id, record.selection_text())
    except REDIS_AWAY as away:
        DRIFT.labels("sync").inc()
        log.warning("redis_stock.sync_failed", extra=data(event_id=record.event_id, error=type(away).__name__))
    return record


async def _release_rest(
    db: AsyncEngine, redis_stock: RedisStock, reservation_id: str, seats: Sequence[str], ga: Mapping[str, int]
) -> ReservationRow:
    async with db.begin() as connection:
        now_ms, records = await lock_reservations(connection, {"ids": [reservation_id]})
        record = records[reservation_id]
        _require_unpaid(record, now_ms + redis_stock.clock_offset_ms)
        kept, rest = _split(record, set(seats), ga)
        if not rest.quantity:
            return record
        await connection.execute(
            RELEASE_SOME_STOCK,
            {
                "event_id": record.event_id, "reservation_id": reservation_id, "total_minor": kept.total_minor,
                "n": rest.quantity,
                "section_ids": [s for s, _, _, _ in rest.seats], "positions": [p for _, p, _, _ in rest.seats],
                "ga_section_ids": [s for s, _, _ in rest.ga], "quantities": [q for _, q, _ in rest.ga],
            },
        )  # fmt: skip
        after = {"status": record.status, "total_minor": kept.total_minor, **rest.places()}
        event = ReservationEvent("given-back", reservation_id, kept.version, after)
        await emit(connection, record.event_id, [event], actor=record.holder)
    return kept


def _require_unpaid(record: ReservationRow, now_ms: int) -> None:
    if record.status == "confirmed":
        raise AlreadyBought
    if record.status == "paying" or (record.is_live and record.order_reference):
        raise PaymentInProgress("An order has begun to pay for this reservation. Cancel the order to release it.")
    if record.status != "pending_payment" or now_ms > record.release_at_ms:
        raise HoldExpired


def _split(record: ReservationRow, seats: set[str], ga: Mapping[str, int]) -> tuple[ReservationRow, ReservationRow]:
    """What is kept and what is released, each as a reservation row."""
    places = {seat_id for _, _, seat_id, _ in record.seats} | {section_id for section_id, _, _ in record.ga}
    too_many = [s for s, quantity, _ in record.ga if ga.get(s, 0) > quantity]
    if missing := sorted((seats | ga.keys()) - places) + too_many:
        raise NotHeld(
            f"Not in this reservation, or not this many: {', '.join(missing)}. Nothing was released.", places=missing
        )
    kept_seats = [seat for seat in record.seats if seat[2] in seats]
    released_seats = [seat for seat in record.seats if seat[2] not in seats]
    kept_ga = [(s, ga[s], price) for s, _, price in record.ga if s in ga]
    released_ga = [(s, n - ga.get(s, 0), price) for s, n, price in record.ga if n > ga.get(s, 0)]
    total_minor = sum(seat[3] for seat in kept_seats) + sum(n * price for _, n, price in kept_ga)
    rest = replace(record, seats=released_seats, ga=released_ga)
    kept = replace(
        record, seats=kept_seats, ga=kept_ga, total_minor=total_minor,
        released_tickets=record.released_tickets + rest.quantity,
        version=record.version + 1,
    )  # fmt: skip
    return kept, rest
