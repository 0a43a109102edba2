"""What is asked of orders that exist. Their processes do it.

Who bought an unpaid order may ask for another attempt to pay, more time, or its end. Refunds, for an operator or as
inventory oversold, are planned under the lock of the order, so that concurrent requests never exceed the charge nor
refund a ticket twice. By hand operators retry an order now, cancel it unpaid, or decide about it in review: each action
is written to the audit log with its actor and reason.

A whole event is refunded at a given rate. Its row holds all progress, so any process continues after a restart. Each
batch is requested in one transaction with the row's progress: no order is refunded twice and none is left out. Orders
that wait for payment are cancelled. The refund is done when a pass over all orders finds nothing to refund and nothing
that may still be paid.
"""

import hashlib
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Literal

from sqlalchemy import Row, func, select, text, update
from sqlalchemy.dialects.postgresql import insert

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
from services.orders.model.rules import OVERSELL, Decision, RefundSelection, allowed_decisions, plan, refund_row_of_plan
from services.orders.model.update import OrderUpdate
from services.orders.pricing.quote import require_payable
from services.orders.problems import (
    DecisionNotAllowed,
    EventRefundFinished,
    NoEventRefund,
    OrderNotPending,
    RefundRefused,
)
from services.orders.steps.run import InventoryBatcher, payment_step
from services.orders.store.store import OrderStore, read_in, save_in, wake_in
from services.orders.tables import audit_log, event_refund, open_order, webhook_inbox
from services.orders.tables import refund as refund_table
from shared.audit_log import Actor, of_event
from shared.concurrency.background import Quiet, wake
from shared.contracts.admin.orders import EventRefundProgress
from shared.contracts.orders import PaymentRef
from shared.errors.problems import AlreadyExtended, HoldExpired, IdempotencyKeyReused, LimitExceeded, PaymentInProgress
from shared.payment_provider import Provider
from shared.postgres.engine import AsyncConnection, AsyncEngine, statement
from shared.runtime.clock import from_datetime, rfc3339
from shared.runtime.logging import get_logger
from shared.web.request import key_hash

ENDED_UNPAID = ("cancelled", "expired")
log = get_logger("onsale.orders")
_CLAIM_BATCH = statement(__package__, "claim_batch")
_FIND_NEXT_ORDERS = statement(__package__, "find_next_orders")
_PROGRESS = statement(__package__, "event_refund_progress")
_PENDING = text("SELECT 1 FROM orders.\"order\" WHERE event_id = :event_id AND status = 'pending' LIMIT 1")
EVENT_REFUND_S = 0.5
BATCH_MAX = 100
ATTEMPTS_MAX = 20  # of one order


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


async def retry_by_hand(store: OrderStore, target: Order, actor: Actor) -> None:
    """Makes the order due now, syncs with its provider, applies its webhooks again and resets its error count."""

    async def decide(connection: AsyncConnection, order: Order) -> OrderUpdate:
        unapplied = (webhook_inbox.c.reference == order.reference) & webhook_inbox.c.applied_at.is_(None)
        await connection.execute(update(webhook_inbox).where(unapplied).values(due_at=func.clock_timestamp()))
        mine = open_order.c.reference == order.reference
        await connection.execute(update(open_order).where(mine).values(errors=0))
        await _record(connection, "retry", actor, order)
        return OrderUpdate(order, bumps_version=False)

    await store.change(target.reference, decide, sync=True)


async def cancel_by_hand(store: OrderStore, target: Order, actor: Actor) -> None:
    """Cancels an unpaid order, as its buyer could. Raises `OrderNotPending`."""
    await request_cancel(store, target, reason="operator")
    async with store.begin() as connection:
        await _record(connection, "cancel", actor, target)


async def resolve_review(
    store: OrderStore, order: Order, actor: Actor, *, decision: Decision, return_to_sale: bool
) -> None:
    """Records the decision about an order in review, which the order's process executes. Of two at once one is made.
    Raises `DecisionNotAllowed`.

    A sale is kept, or what is left of its money is refunded and its tickets are void. An order that was never sold is
    confirmed on money that matches exactly, or fully refunded, or expired if there is no money.
    """
    if decision == "refund" and order.was_sold:
        _require_allowed(order, decision)
        request = RefundRequest(
            selection=RefundSelection(), actor=actor, return_to_sale=return_to_sale, in_review=True
        )  # fmt: skip
        await request_refund(store, order.reference, request)
        return

    async def decide(connection: AsyncConnection, order: Order) -> OrderUpdate:
        _require_allowed(order, decision)
        await _record(connection, "resolve", actor, order, decision=decision, why_in_review=order.end_reason)
        return OrderUpdate(order, bumps_version=False).set_order(review_decision=decision)

    await store.change(order.reference, decide)


def _require_allowed(order: Order, decision: Decision) -> None:
    if decision not in (allowed := allowed_decisions(order)):
        choices = f"Allowed decisions: {', '.join(sorted(allowed))}." if allowed else "The order is not in review."
        raise DecisionNotAllowed(choices)


async def _record(connection: AsyncConnection, action: str, actor: Actor, target: Order, **after: Any) -> None:
    subject, before = f"order:{target.reference}", {"status": target.status}
    await audit_log.write(connection, action, actor, subject=subject, before=before, after=after)


async def request_next_batch(store: OrderStore) -> int | Quiet:
    """Requests the next batch and returns how many orders it had; several processes may run it in a loop, which is
    quiet while no event is refunded.
    """
    async with store.begin() as connection:
        job = (await connection.execute(_CLAIM_BATCH, {"batch_max": BATCH_MAX})).first()
        if job is None:
            return Quiet()
        if not job.n:
            return 0
        bound = {"event_id": job.event_id, "after": job.after_reference, "count_max": job.n}
        page = list((await connection.execute(_FIND_NEXT_ORDERS, bound)).scalars())
        woken = await wake_in(connection, page, owner=store.owner)  # locks all of them, in key order
        orders = await read_in(connection, page)
        outcomes = [await _refund_or_cancel(connection, job, orders[reference]) for reference in sorted(page)]
        sets: dict[str, Any] = {
            "refunds": event_refund.c.refunds + outcomes.count("refund"),
            "cancelled": event_refund.c.cancelled + outcomes.count("cancel"),
            "after_reference": page[-1] if page else None,
        }
        whole_pass = not page and job.after_reference is None
        if whole_pass and await connection.scalar(_PENDING, {"event_id": job.event_id}) is None:
            sets |= {"status": "done", "ended_at": func.clock_timestamp()}
        await connection.execute(update(event_refund).where(event_refund.c.id == job.id).values(sets))
    await store.tell(woken)
    return len(page)


async def _refund_or_cancel(connection: AsyncConnection, job: Row[Any], each: Order) -> str | None:
    """What was requested, `refund` or `cancel`; None if the order had nothing left to refund."""
    actor = Actor(name=job.requested_by, role=job.role, reason=job.reason)
    request = RefundRequest(selection=RefundSelection(), actor=actor, return_to_sale=job.return_to_sale)
    is_pending = each.status == "pending"
    try:
        update = cancellation(each, "operator") if is_pending else await refund_in(connection, each, request)
    except (RefundRefused, OrderNotPending) as refused:
        log.info("event_refund.order_skipped", reference=each.reference, reason=str(refused))
        return None
    await save_in(connection, update)
    return "cancel" if is_pending else "refund"


async def start_event_refund(
    db: AsyncEngine, event_id: str, actor: Actor, *, rate_per_s: float, return_to_sale: bool
) -> EventRefundProgress:
    """Starts a refund of this event, unless one is running or paused."""
    row = {"event_id": event_id, "status": "running", "rate_per_s": rate_per_s, "return_to_sale": return_to_sale}
    row |= {"reason": actor.reason, "requested_by": actor.name, "role": actor.role}
    async with db.begin() as connection:
        if (await connection.execute(insert(event_refund).values(row).on_conflict_do_nothing())).rowcount:
            await audit_log.write(
                connection, "refund-event", actor, subject=of_event(event_id), before={"status": "none"},
                after={"rate_per_s": rate_per_s, "to_sale": return_to_sale},
            )  # fmt: skip
    wake("orders")
    return await event_refund_progress(db, event_id)


async def change_event_refund(
    db: AsyncEngine, event_id: str, actor: Actor, *, status: str, rate_per_s: float | None = None
) -> EventRefundProgress:
    """Sets `running` or `paused`, and optionally another rate. Raises `NoEventRefund`, `EventRefundFinished`."""
    latest = select(event_refund.c.id, event_refund.c.status).where(event_refund.c.event_id == event_id)
    latest = latest.order_by(event_refund.c.id.desc()).limit(1).with_for_update()
    async with db.begin() as connection:
        job = (await connection.execute(latest)).first()
        if job is None:
            raise NoEventRefund
        if job.status == "done":
            raise EventRefundFinished
        sets: dict[str, Any] = {"status": status} | ({"rate_per_s": rate_per_s} if rate_per_s else {})
        await connection.execute(update(event_refund).where(event_refund.c.id == job.id).values(sets))
        await audit_log.write(
            connection, "steer-refund-event", actor, subject=of_event(event_id), before={"status": job.status},
            after=sets,
        )  # fmt: skip
    wake("orders")
    return await event_refund_progress(db, event_id)


async def event_refund_progress(db: AsyncEngine, event_id: str) -> EventRefundProgress:
    """The latest refund of the event, with its orders and refunds by status. Raises `NoEventRefund`."""
    async with db.connect() as connection:
        row = (await connection.execute(_PROGRESS, {"event_id": event_id})).mappings().first()
    if row is None:
        raise NoEventRefund
    times = {name: row[name] and rfc3339(from_datetime(row[name])) for name in ("started_at", "ended_at")}
    return EventRefundProgress.model_validate({**row, **times})
