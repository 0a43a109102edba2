"""The one transaction that makes an order, and the tombstone that keeps one from ever being made."""

from dataclasses import dataclass
from typing import Literal

import orjson
from sqlalchemy import select
from sqlalchemy.dialects.postgresql import insert

from services.orders.jobs import Jobs
from services.orders.schemas import NewOrder
from services.orders.tables import order
from shared.contracts.events import Event
from shared.contracts.inventory import Reservation
from shared.postgres import AsyncConnection, AsyncEngine, statement

_PLACE = statement(__package__, "place")


@dataclass(frozen=True, slots=True, kw_only=True)
class Placed:
    """Everything an order is made of."""

    reference: str
    principal: str
    scope: str
    key_hash: bytes
    fingerprint: bytes
    reservation: Reservation
    asked: NewOrder


class _Lost(Exception):
    """The order must not be; the transaction is given up."""


async def place(engine: AsyncEngine, new: Placed, *, jobs: Jobs | None) -> Literal["placed", "known", "buried"]:
    """Makes the order and asks for a worker. `known`: the key was used; `buried`: this reference can never be.

    Raises `JobNotAccepted`, and then nothing was written.
    """
    try:
        async with engine.begin() as connection:
            row = (await connection.execute(_PLACE, _columns(new))).one()
            if not row.keyed:
                return "known"
            if not row.placed:
                raise _Lost
            if jobs is not None:
                await jobs.wake_up(connection, new.reference)
    except _Lost:
        return "buried"
    return "placed"


def _columns(new: Placed) -> dict[str, object]:
    held, asked = new.reservation, new.asked
    return {
        "scope": new.scope, "key_hash": new.key_hash, "fingerprint": new.fingerprint, "reference": new.reference,
        "event_id": held.event_id, "reservation_id": held.reservation_id, "principal": new.principal,
        "lane": held.lane, "join_seq": held.join_seq, "total_minor": held.total_minor, "currency": held.currency,
        "customer_name": asked.customer.name, "customer_email": asked.customer.email,
        "customer_phone": asked.customer.phone, "expires_at_ms": held.reserved_until_ms, "grace_s": held.grace_s,
        "section_ids": [line.section_id for line in held.lines], "seat_ids": [line.seat_id for line in held.lines],
        "quantities": [line.quantity for line in held.lines],
        "unit_prices_minor": [line.unit_price_minor for line in held.lines],
        "provider": asked.payment.provider, "method": asked.payment.method, "token": asked.payment.token,
        "return_url": asked.payment.return_url, "event": orjson.dumps(_created(new).model_dump(mode="json")).decode(),
    }  # fmt: skip


def _created(new: Placed) -> Event:
    held = new.reservation
    return Event(
        type="order.created",
        event_id=held.event_id,
        actor=held.holder,
        aggregate=f"order:{new.reference}",
        after={
            "reference": new.reference, "event_id": held.event_id, "status": "pending", "holder": held.holder,
            "lane": held.lane, "join_seq": held.join_seq, "reservation_id": held.reservation_id,
            "total_minor": held.total_minor, "currency": held.currency,
        },
    )  # fmt: skip


async def bury(engine: AsyncEngine, reference: str) -> bool:
    """Sees to it that no order can ever be made under this reference. False if one has been."""
    async with engine.begin() as connection:
        return await bury_in(connection, reference)


async def bury_in(connection: AsyncConnection, reference: str) -> bool:
    """As `bury`, in the caller's transaction. Waits for a transaction that is just making the order."""
    await connection.execute(insert(order).values(reference=reference, status="tombstone").on_conflict_do_nothing())
    status = await connection.scalar(select(order.c.status).where(order.c.reference == reference))
    return status == "tombstone"
