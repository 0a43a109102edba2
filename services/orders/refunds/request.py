"""Money and tickets of a sale go back because an operator or the stock says so: planned under the order's lock, so that
any number who ask at once never ask for more than was charged, nor for a ticket twice.
"""

import hashlib
from contextlib import suppress
from dataclasses import dataclass
from typing import Literal

from sqlalchemy import update
from sqlalchemy.dialects.postgresql import insert

from services.orders.admin.manual_actions import Actor, note
from services.orders.checkout.idempotency import used_before
from services.orders.order import leases
from services.orders.order.next_step import Order, is_sold
from services.orders.order.states import SALE
from services.orders.problems import RefundRefused
from services.orders.processing.job_queue import EnqueueFailed
from services.orders.refunds.plan import OVERSELL, RefundPlan, RefundSelection, plan, refund_row_of_plan
from services.orders.state import State
from services.orders.tables import checkout_command, order_line
from services.orders.tables import refund as refund_table
from shared.contracts.orders import PaymentRef
from shared.postgres.engine import AsyncConnection

TRIES_MAX = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class RefundRequest:
    """What is to go back and for whom. `to_sale`: the tickets may be bought again. `gone`: inventory has them already.
    `in_review`: also of a sale that waits for a person.
    """

    wish: RefundSelection
    by: Actor
    to_sale: bool = False
    gone: bool = False
    in_review: bool = False

    @property
    def fingerprint(self) -> bytes:
        return hashlib.sha256(repr((self.wish, self.by.reason, self.to_sale)).encode()).digest()


class ConcurrentRefund(Exception):
    """Somebody else asked for a refund of this charge in between."""


async def refund_oversold(state: State, sale: PaymentRef, reason: str) -> Literal["asked", "free", "none", "later"]:
    """The order lost its tickets through no fault of its own."""
    seen = await state.book.read(sale.order_reference)
    if seen is None or seen.reservation_id != sale.reservation_id or seen.status in ("cancelled", "expired"):
        return "none"
    if seen.status not in SALE or not seen.is_paid:
        return "later"
    if not seen.total_minor:
        return "free"
    by = Actor(name=OVERSELL, role="system", reason=reason)
    with suppress(RefundRefused):  # nothing is left: it was asked before
        await request_refund(state, seen.reference, RefundRequest(wish=RefundSelection(), by=by, gone=True))
    return "asked"


async def request_refund(state: State, reference: str, asked: RefundRequest, *, key: str | None = None) -> bool:
    """A worker does it. True if this key asked for it before. Raises `RefundRefused`."""
    with_job = True
    for _ in range(TRIES_MAX):
        try:
            return await _ask(state, reference, asked, key, with_job=with_job)
        except EnqueueFailed:
            with_job = False
        except ConcurrentRefund:
            continue
    raise RefundRefused("Too much is asked of this order at once; ask again.")


async def _ask(state: State, reference: str, asked: RefundRequest, key: str | None, *, with_job: bool) -> bool:
    async with state.db.begin() as connection:
        scope = f"POST /admin/orders/{reference}/refund"
        if key is not None and await used_before(connection, scope, key, asked.fingerprint, reference):
            return True
        await request_refund_in(connection, reference, asked)
        if with_job:
            await state.jobs.enqueue(connection, reference)
    return False


async def request_refund_in(connection: AsyncConnection, reference: str, asked: RefundRequest) -> None:
    """In the caller's transaction: first the lock, then a look. Raises `RefundRefused`, `ConcurrentRefund`."""
    await leases.mark_due(connection, reference)
    seen = (await leases.read_in(connection, [reference]))[reference]
    if not (is_sold(seen) or (asked.in_review and seen.status == "review" and seen.sold)):
        raise RefundRefused("Only what stands as sold can be given back.")
    planned = plan(seen, asked.wish)
    await _write(connection, seen, planned, asked)
    for ticket in planned.tickets:
        line = (order_line.c.reference == reference) & (order_line.c.line_no == ticket["line_no"])
        more = update(order_line).where(line).values(returned=order_line.c.returned + ticket["quantity"])
        await connection.execute(more)
    await note(
        connection, "refund", asked.by, event_id=seen.event_id, reference=reference, before=seen.status,
        amount_minor=planned.amount_minor, tickets=planned.tickets, to_sale=asked.to_sale,
    )  # fmt: skip


async def _write(connection: AsyncConnection, seen: Order, planned: RefundPlan, asked: RefundRequest) -> None:
    row = refund_row_of_plan(seen, planned, reason=asked.by.reason, asked_by=asked.by.name)
    status = "processing" if row["status"] == "requested" else "completed"
    command = insert(checkout_command).values(
        reference=seen.reference, command_type="refund", status=status,
        processed_at=leases.NOW if status == "completed" else None,
        caused_by=asked.by.name,
        payload={"reason": asked.by.reason, "by": asked.by.name, "role": asked.by.role,
                 "amount_minor": planned.amount_minor, "tickets": planned.tickets},
    )  # fmt: skip
    command_id = await connection.scalar(command.returning(checkout_command.c.command_id))
    row |= {"reference": seen.reference, "command_id": command_id, "to_sale": asked.to_sale}
    row |= {"returned": asked.by.name} if asked.gone else {}
    written = await connection.execute(insert(refund_table).values(row).on_conflict_do_nothing())
    if not written.rowcount:
        raise ConcurrentRefund
