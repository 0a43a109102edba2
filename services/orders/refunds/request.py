"""Requests refunds, for an operator or because inventory oversold.

A refund is planned under the order's row lock, so that concurrent requests never exceed the charge nor refund a ticket
twice.
"""

import hashlib
from contextlib import suppress
from dataclasses import dataclass
from typing import Literal

from sqlalchemy import update
from sqlalchemy.dialects.postgresql import insert

from services.orders.checkout.idempotency import used_before
from services.orders.order import leases
from services.orders.order.next_step import Order
from services.orders.order.repository import OrderRepository
from services.orders.order.states import SALE_STATUSES, SOLD_STATUSES
from services.orders.problems import RefundRefused
from services.orders.processing.job_queue import JobQueue
from services.orders.refunds.plan import OVERSELL, RefundPlan, RefundSelection, plan, refund_row_of_plan
from services.orders.tables import audit_log, checkout_command, order_line
from services.orders.tables import refund as refund_table
from shared.audit_log import Actor
from shared.contracts.orders import PaymentRef
from shared.postgres.engine import AsyncConnection, AsyncEngine

ATTEMPTS_MAX = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class RefundRequest:
    """What to refund and who requested it. `return_to_sale`: its tickets may be sold again. `already_returned`:
    inventory has them back already. `in_review`: also a sale in review is refunded.
    """

    selection: RefundSelection
    actor: Actor
    return_to_sale: bool = False
    already_returned: bool = False
    in_review: bool = False

    @property
    def fingerprint(self) -> bytes:
        return hashlib.sha256(repr((self.selection, self.actor.reason, self.return_to_sale)).encode()).digest()


class ConcurrentRefund(Exception):
    """Another refund of this charge was requested at the same time."""


async def refund_oversold(
    db: AsyncEngine, repository: OrderRepository, job_queue: JobQueue, sale: PaymentRef, reason: str
) -> Literal["asked", "free", "none", "later"]:
    """Refunds an order in full because inventory oversold its tickets and took them back."""
    order = await repository.read(sale.order_reference)
    if order is None or order.reservation_id != sale.reservation_id or order.status in ("cancelled", "expired"):
        return "none"
    if order.status not in SALE_STATUSES or not order.is_paid:
        return "later"
    if not order.total_minor:
        return "free"
    actor = Actor(name=OVERSELL, role="system", reason=reason)
    request = RefundRequest(selection=RefundSelection(), actor=actor, already_returned=True)
    with suppress(RefundRefused):  # nothing is left: it was requested before
        await request_refund(db, job_queue, order.reference, request)
    return "asked"


async def request_refund(
    db: AsyncEngine, job_queue: JobQueue, reference: str, request: RefundRequest, *, key: str | None = None
) -> bool:
    """Requests a refund, which a worker executes. True if this idempotency key requested it before. Raises
    `RefundRefused`.
    """
    scope = f"POST /admin/orders/{reference}/refund"

    async def write(connection: AsyncConnection) -> bool:
        if key is not None and await used_before(connection, scope, key, request.fingerprint, reference):
            return False
        await request_refund_in(connection, reference, request)
        return True

    for _ in range(ATTEMPTS_MAX):
        with suppress(ConcurrentRefund):
            return not (await job_queue.commit_with_job(db, reference, write)).written
    raise RefundRefused("Too many refunds of this order were requested at once. Try again.")


async def request_refund_in(connection: AsyncConnection, reference: str, request: RefundRequest) -> None:
    """As `request_refund`, in the caller's transaction: locks the order, then reads it. Raises `RefundRefused`,
    `ConcurrentRefund`.
    """
    await leases.mark_due(connection, reference)
    order = (await leases.read_in(connection, [reference]))[reference]
    if not (order.status in SOLD_STATUSES or (request.in_review and order.status == "review" and order.was_sold)):
        raise RefundRefused("Only a confirmed or partially refunded order can be refunded.")
    planned = plan(order, request.selection)
    await _write(connection, order, planned, request)
    for ticket in planned.tickets:
        line = (order_line.c.reference == reference) & (order_line.c.line_no == ticket["line_no"])
        more = update(order_line).where(line).values(returned=order_line.c.returned + ticket["quantity"])
        await connection.execute(more)
    after = {"amount_minor": planned.amount_minor, "tickets": planned.tickets, "to_sale": request.return_to_sale}
    await audit_log.write(
        connection, "refund", request.actor, subject=f"order:{reference}", before={"status": order.status}, after=after
    )


async def _write(connection: AsyncConnection, order: Order, planned: RefundPlan, request: RefundRequest) -> None:
    row = refund_row_of_plan(order, planned, reason=request.actor.reason or "", requested_by=request.actor.name)
    status = "processing" if row["status"] == "requested" else "completed"
    command = insert(checkout_command).values(
        reference=order.reference, command_type="refund", status=status,
        processed_at=leases.NOW if status == "completed" else None,
        caused_by=request.actor.name,
        payload={"reason": request.actor.reason, "by": request.actor.name, "role": request.actor.role,
                 "amount_minor": planned.amount_minor, "tickets": planned.tickets},
    )  # fmt: skip
    command_id = await connection.scalar(command.returning(checkout_command.c.command_id))
    row |= {"reference": order.reference, "command_id": command_id, "return_to_sale": request.return_to_sale}
    row |= {"returned": request.actor.name} if request.already_returned else {}
    written = await connection.execute(insert(refund_table).values(row).on_conflict_do_nothing())
    if not written.rowcount:
        raise ConcurrentRefund
