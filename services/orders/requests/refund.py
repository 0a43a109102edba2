"""Requests refunds, for an operator or because inventory oversold.

A refund is planned under the lock of the order, so that concurrent requests never exceed the charge nor refund a ticket
twice.
"""

import hashlib
from contextlib import suppress
from dataclasses import dataclass
from typing import Literal

from sqlalchemy import select

from services.orders.model.order import SALE_STATUSES, SOLD_STATUSES, Order, command_id
from services.orders.model.refund_plan import OVERSELL, RefundSelection, plan, refund_row_of_plan
from services.orders.model.update import OrderUpdate
from services.orders.problems import RefundRefused
from services.orders.store.store import OrderStore
from services.orders.tables import audit_log
from services.orders.tables import refund as refund_table
from shared.audit_log import Actor
from shared.contracts.orders import PaymentRef
from shared.errors.problems import IdempotencyKeyReused
from shared.postgres.engine import AsyncConnection
from shared.web.request import key_hash


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
    def fingerprint(self) -> str:
        return hashlib.sha256(repr((self.selection, self.actor.reason, self.return_to_sale)).encode()).hexdigest()


async def refund_oversold(
    store: OrderStore, sale: PaymentRef, reason: str
) -> Literal["asked", "free", "none", "later"]:
    """Refunds an order in full because inventory oversold its tickets and took them back."""
    order = await store.read(sale.order_reference)
    if order is None or order.reservation_id != sale.reservation_id or order.status in ("cancelled", "expired"):
        return "none"
    if order.status not in SALE_STATUSES or not order.is_paid:
        return "later"
    if not order.total_minor:
        return "free"
    actor = Actor(name=OVERSELL, role="system", reason=reason)
    request = RefundRequest(selection=RefundSelection(), actor=actor, already_returned=True)
    with suppress(RefundRefused):  # nothing is left: it was requested before
        await request_refund(store, order.reference, request)
    return "asked"


async def request_refund(store: OrderStore, reference: str, request: RefundRequest, *, key: str | None = None) -> bool:
    """Requests a refund, which the order's process executes. True if this idempotency key requested it before. Raises
    `RefundRefused`.
    """

    async def decide(connection: AsyncConnection, order: Order) -> OrderUpdate | None:
        if key is not None and await _requested_before(connection, order, request, key):
            return None
        return await refund_in(connection, order, request, key=key)

    return not await store.change(reference, decide)


async def refund_in(
    connection: AsyncConnection, order: Order, request: RefundRequest, *, key: str | None = None
) -> OrderUpdate:
    """The update that requests a refund of an order which the caller's transaction has locked, and its audit entry.
    Raises `RefundRefused`.
    """
    if not (order.status in SOLD_STATUSES or (request.in_review and order.status == "review" and order.was_sold)):
        raise RefundRefused("Only a confirmed or partially refunded order can be refunded.")
    actor, planned = request.actor, plan(order, request.selection)
    row = refund_row_of_plan(order, planned, reason=actor.reason or "", requested_by=actor.name)
    update = OrderUpdate(order, bumps_version=False).begin_command(
        "refund", caused_by=actor.name, payload={
            "reason": actor.reason, "by": actor.name, "role": actor.role, "amount_minor": planned.amount_minor,
            "tickets": planned.tickets,
        },
    )  # fmt: skip
    place = len(update.journal)
    row |= {"command_id": command_id(order.reference, place), "return_to_sale": request.return_to_sale}
    row |= {"returned": actor.name} if request.already_returned else {}
    row |= {"key_hash": key_hash(key).hex(), "fingerprint": request.fingerprint} if key is not None else {}
    if row["status"] != "requested":
        update.finish_command("refund", place=place)
    update.request_planned_refund(row)
    after = {"amount_minor": planned.amount_minor, "tickets": planned.tickets, "to_sale": request.return_to_sale}
    await audit_log.write(
        connection, "refund", actor, subject=f"order:{order.reference}", before={"status": order.status}, after=after
    )
    return update


async def _requested_before(connection: AsyncConnection, order: Order, request: RefundRequest, key: str) -> bool:
    """Whether this key requested a refund of this order. Raises `IdempotencyKeyReused` if it came with another body."""
    mine = refund_table.c.reference == order.reference, refund_table.c.key_hash == key_hash(key).hex()
    fingerprint = await connection.scalar(select(refund_table.c.fingerprint).where(*mine))
    if fingerprint is not None and fingerprint != request.fingerprint:
        raise IdempotencyKeyReused
    return fingerprint is not None
