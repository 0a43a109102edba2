"""A whole sale's money goes back, because an operator or the stock says so: once, however often it is asked for."""

from contextlib import suppress
from typing import Literal

from sqlalchemy.dialects.postgresql import insert

from services.orders import ledger, refunds
from services.orders.jobs import JobNotAccepted
from services.orders.problems import RefundRefused
from services.orders.room import Room
from services.orders.states import SALE
from services.orders.steps import Order, backed
from services.orders.tables import checkout_command
from shared.contracts.orders import PaymentRef


async def refund_oversold(room: Room, sale: PaymentRef, reason: str) -> Literal["asked", "free", "none", "later"]:
    """The order lost its tickets through no fault of its own."""
    seen = await room.book.read(sale.order_reference)
    if seen is None or seen.reservation_id != sale.reservation_id or seen.status in ("cancelled", "expired"):
        return "none"
    if seen.status not in SALE or not seen.is_paid:
        return "later"
    if not seen.total_minor:
        return "free"
    with suppress(RefundRefused):  # nothing is left: it was asked before
        await give_back_all(room, seen, reason=reason, asked_by=refunds.OVERSELL)
    return "asked"


async def give_back_all(room: Room, seen: Order, *, reason: str, asked_by: str) -> None:
    """All that is left of what was paid; a second request finds nothing left. Raises `RefundRefused`."""
    for with_job in (True, False):
        try:
            await _ask(room, seen, reason, asked_by, with_job=with_job)
            return
        except JobNotAccepted:
            continue


async def _ask(room: Room, seen: Order, reason: str, asked_by: str, *, with_job: bool) -> None:
    charge = next((c for c in seen.charges if c.charge_ref == seen.charge_ref), None)
    if not backed(seen) or charge is None or charge.refunded_minor >= charge.amount_minor:
        raise RefundRefused
    async with room.engine.begin() as connection:
        await ledger.nudge(connection, seen.reference)
        if not await refunds.ask(connection, seen, charge, reason=reason, asked_by=asked_by):
            return
        await connection.execute(
            insert(checkout_command).values(
                reference=seen.reference, command_type="refund", status="processing",
                payload={"reason": reason, "by": asked_by},
            )
        )  # fmt: skip
        if with_job:
            await room.jobs.wake_up(connection, seen.reference)
