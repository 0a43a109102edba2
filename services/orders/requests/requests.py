"""What is asked of orders that exist. Their processes do it.

Who bought an unpaid order may ask for another attempt to pay, more time, or its end,
and correct the address that its mails go to. Refunds, for an operator or as
inventory oversold, are planned under the lock of the order, so that concurrent requests never exceed the charge nor
refund a ticket twice. What operators do is written to the audit log with its actor and reason.
"""

import hashlib
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Literal

from sqlalchemy import func, insert, select, update

from services.orders.checkout.checkout import check_payment
from services.orders.checkout.requests import NewPayment, fingerprint_of, key_in_flight
from services.orders.model.order import (
    LIVE_STATUSES,
    SALE_STATUSES,
    SOLD_STATUSES,
    Attempt,
    Order,
    command_id,
    provider_key,
)
from services.orders.model.rules import OVERSELL, RefundSelection, plan, refund_row_of_plan
from services.orders.model.update import OrderUpdate
from services.orders.pricing.quote import require_payable
from services.orders.problems import AddressChangeRefused, OrderNotPending, RefundRefused
from services.orders.steps.run import InventoryBatcher, payment_step
from services.orders.store.store import OrderStore
from services.orders.tables import audit_log, mail
from services.orders.tables import refund as refund_table
from shared.audit_log import Actor
from shared.contracts.orders import PaymentRef
from shared.errors.problems import AlreadyExtended, HoldExpired, IdempotencyKeyReused, LimitExceeded, PaymentInProgress
from shared.payment_provider import Provider
from shared.postgres.engine import AsyncConnection
from shared.web.request import key_hash

ENDED_UNPAID = ("cancelled", "expired")
ATTEMPTS_MAX = 20  # of one order
CHANGES_MAX = 3
CHANGEABLE_STATUSES = ("pending", "review", *sorted(SOLD_STATUSES))
BUYER = Actor(name="fan", role="fan", reason="The buyer corrected the e-mail address.")


async def retry_payment(
    store: OrderStore, order: Order, request: NewPayment, *, key: str, providers: dict[str, Provider], capture: bool
) -> bool:
    """Adds an attempt, unless one is live; this process works on the order from then on. False if this key was used
    before: nothing is written then.
    """
    fingerprint = fingerprint_of(request).hex()
    check_payment(providers, request.payment)
    provider = providers[request.payment.provider]
    require_payable(order.total_minor, order.currency, providers, by=provider)
    hashed, payment = key_hash(key).hex(), request.payment

    async def decide(_: AsyncConnection, order: Order) -> OrderUpdate | None:
        known = next((attempt for attempt in order.attempts if attempt.key_hash == hashed), None)
        if known is not None:
            if known.fingerprint != fingerprint:
                raise IdempotencyKeyReused
            return None
        _require_another_attempt(order)
        n = len(order.attempts) + 1
        attempt = Attempt(
            n=n, provider=payment.provider, method=payment.method, token=payment.token, return_url=payment.return_url,
            amount_minor=order.total_minor, currency=order.currency, provider_key=provider_key(order.reference, n),
            status="created", capture=capture, created_at_ms=order.now_ms, changed_at_ms=order.now_ms,
            key_hash=hashed, fingerprint=fingerprint,
        )  # fmt: skip
        update = OrderUpdate(order).set_order(attempts=(*order.attempts, attempt))
        return update.begin_command("checkout", caused_by="fan", payload={"attempt": n})

    with key_in_flight():
        return await store.change(order.reference, decide, take=True)


def _require_another_attempt(order: Order) -> None:
    last = order.attempt
    if order.status != "pending" or order.cancel_requested or last is None or last.reason == "provider-error":
        raise OrderNotPending
    if order.is_late:
        raise HoldExpired
    if last.status in (*LIVE_STATUSES, "succeeded"):
        raise PaymentInProgress("A payment of this order is in progress.")
    if len(order.attempts) >= ATTEMPTS_MAX:
        raise LimitExceeded(f"This order was tried to be paid {ATTEMPTS_MAX} times. Cancel it and order again.")


async def extend_payment(store: OrderStore, inventory: InventoryBatcher, order: Order) -> None:
    """Gives the buyer of a pending order the time to pay again, once, from now on: inventory keeps the places longer,
    and then the order ends later. Raises `OrderNotPending`, `AlreadyExtended`, `HoldExpired`.

    A crash in between leaves the places held for longer than the order lasts, which then releases them.
    """
    if order.status != "pending" or order.cancel_requested:
        raise OrderNotPending
    if order.extended:
        raise AlreadyExtended
    done = await inventory.extend_payment(payment_step(order))
    until_ms = done.reserved_until_ms
    if done.outcome != "done" or until_ms is None:
        raise HoldExpired

    async def decide(_: AsyncConnection, order: Order) -> OrderUpdate:
        if order.status != "pending" or order.extended:
            raise AlreadyExtended
        return OrderUpdate(order).set_order(expires_at_ms=until_ms, extended=True)

    await store.change(order.reference, decide)


async def change_address(store: OrderStore, order: Order, address: str, *, sends_mail: bool) -> None:
    """From now on mail about this order goes to `address`, also what waits to be sent; of a sold order the confirmation
    goes there once more. Limits per customer go on counting the mailbox that bought. Raises `AddressChangeRefused`.
    """

    async def decide(connection: AsyncConnection, order: Order) -> OrderUpdate | None:
        if address == order.customer_email:
            return None  # the same request came twice
        if order.status not in CHANGEABLE_STATUSES or order.address_changes >= CHANGES_MAX:
            raise AddressChangeRefused
        changes = order.address_changes + 1
        waiting = (mail.c.reference == order.reference) & mail.c.sent_at.is_(None) & mail.c.abandoned_at.is_(None)
        moved = update(mail).where(waiting).values(address=address, due_at=func.clock_timestamp())
        kinds = set(await connection.scalars(moved.returning(mail.c.kind)))
        if sends_mail and order.status in SOLD_STATUSES and "confirmed" not in kinds:
            await connection.execute(
                insert(mail).values(
                    mail_key=f"moved:{order.reference}:{changes}", kind="confirmed", address=address,
                    event_id=order.event_id, reference=order.reference, budget="own",
                )
            )  # fmt: skip
        await audit_log.write(
            connection, "change-email", BUYER, subject=f"order:{order.reference}", before={"status": order.status},
            after={"changes": changes},
        )  # fmt: skip
        return OrderUpdate(order).set_order(customer_email=address)

    if address != order.customer_email:
        await store.change(order.reference, decide)


async def request_cancel(store: OrderStore, order: Order, *, reason: str = "fan") -> None:
    """Requests the cancellation. The order's process does it, and first checks with the provider if a charge was sent.
    Raises `OrderNotPending`.
    """
    if order.status in ENDED_UNPAID or order.cancel_requested:
        return

    async def decide(_: AsyncConnection, order: Order) -> OrderUpdate:
        return cancellation(order, reason)

    await store.change(order.reference, decide)


def cancellation(order: Order, reason: str) -> OrderUpdate:
    """The request to cancel. Raises `OrderNotPending`."""
    if order.status != "pending":
        raise OrderNotPending
    update = OrderUpdate(order).set_order(cancel_requested=True, end_reason=reason)
    return update.begin_command("cancel", caused_by=reason, payload={"reason": reason})


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
    actor, (amount_minor, tickets) = request.actor, plan(order, request.selection)
    row = refund_row_of_plan(order, amount_minor, tickets, reason=actor.reason or "", requested_by=actor.name)
    update = OrderUpdate(order, bumps_version=False).begin_command(
        "refund", caused_by=actor.name, payload={
            "reason": actor.reason, "by": actor.name, "role": actor.role, "amount_minor": amount_minor,
            "tickets": tickets,
        },
    )  # fmt: skip
    place = len(update.now("journal"))
    row |= {"command_id": command_id(order.reference, place), "return_to_sale": request.return_to_sale}
    row |= {"returned": actor.name} if request.already_returned else {}
    row |= {"key_hash": key_hash(key).hex(), "fingerprint": request.fingerprint} if key is not None else {}
    if row["status"] != "requested":
        update.finish_command("refund", place=place)
    update.request_refund(row)
    after = {"amount_minor": amount_minor, "tickets": tickets, "to_sale": request.return_to_sale}
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


async def cancel_by_hand(store: OrderStore, target: Order, actor: Actor) -> None:
    """Cancels an unpaid order, as its buyer could. Raises `OrderNotPending`."""
    await request_cancel(store, target, reason="operator")
    async with store.begin() as connection:
        await record(connection, "cancel", actor, target)


async def record(connection: AsyncConnection, action: str, actor: Actor, target: Order, **after: Any) -> None:
    """Writes to the audit log what was done to an order, as it was before."""
    subject, before = f"order:{target.reference}", {"status": target.status}
    await audit_log.write(connection, action, actor, subject=subject, before=before, after=after)
