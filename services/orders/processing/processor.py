"""Processes one order under a lease: decides the next step, runs it, and repeats until nothing is due.

Facts from outside are written before anything follows from them, and no call is made inside a transaction. A step that
fails is due again after a pause; the provider's idempotency key makes a repeated charge the same charge.
"""

from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any

from services.orders.checkout.inventory_client import InventoryBatcher, payment_step
from services.orders.metrics import LEASES_LOST, ORDERS, REVIEWS, STEP_FAILURES, STEP_SECONDS, STEPS
from services.orders.order.next_step import MISMATCH, Order, Step, next_step
from services.orders.order.repository import OrderRepository
from services.orders.order.states import LIVE_STATUSES, SALE_STATUSES
from services.orders.order.updates import Lease, LeaseLost, LeaseRelease, OrderUpdate
from services.orders.payments.charge import ChargeExecutor, Failpoint, no_failpoint
from services.orders.payments.provider import NotSent, OutcomeUnknown, Provider, ProviderTimeout, Unreachable
from services.orders.refunds.execute import RefundExecutor
from services.orders.refunds.plan import status_by_balance
from services.orders.settings import Settings
from services.orders.tickets.show import ShowCache
from services.orders.tuning import DEFAULTS, Tuning
from shared.concurrency.leased_queue import retry_pause_s
from shared.errors.problems import Problem
from shared.runtime import tracing
from shared.runtime.logging import get_logger, sale_log

log = get_logger("onsale.orders")
STEPS_MAX = 20
RETRYABLE = (NotSent, OutcomeUnknown, Problem)
REVIEW_SYNC_S, DISPUTE_SYNC_S = 60.0, 3600.0
ERROR_MAX_CHARS = 500
STEP_COMMANDS: Mapping[Step, tuple[str, str | None]] = {
    "charge": ("checkout", None), "sync_provider": ("checkout", None), "cancel_charge": ("checkout", None),
    "confirm": ("confirm", "payment"), "reacquire_stock": ("reserve", "late payment"),
    "release_hold": ("cancel", "system"), "send_refund": ("refund", "system"),
}  # fmt: skip  # the command of a step, and its cause if no command is open
CANCEL_CAUSES = {"expired": "deadline", "lost": "inventory"}
CAPTURE_FAILED = "capture"  # end reason of a sale that was revoked


class OrderProcessor:
    """Runs the due steps of an order. Who calls it, and when, is the worker pool's matter."""

    def __init__(
        self,
        *,
        repository: OrderRepository,
        inventory: InventoryBatcher,
        providers: Mapping[str, Provider],
        settings: Settings,
        shows: ShowCache,
        failpoint: Failpoint = no_failpoint,
        tuning: Tuning = DEFAULTS,
    ) -> None:
        self._repository, self._inventory, self._settings = repository, inventory, settings
        self._failpoint, self._tuning = failpoint, tuning
        self._charges = charges = ChargeExecutor(
            repository=repository, providers=providers, payment_retries=tuning.payment_retries, failpoint=failpoint,
            shows=shows, queue_mail=self._queue_mail,
        )  # fmt: skip
        refunds = RefundExecutor(
            repository=repository, inventory=inventory, providers=providers, failpoint=failpoint,
            queue_mail=self._queue_mail,
        )  # fmt: skip
        # A step returns True if it released the lease with its update.
        self._step_methods: dict[Step, Callable[..., Awaitable[bool | None]]] = {
            "send_refund": refunds.send, "return_tickets": refunds.return_tickets, "confirm": self._confirm,
            "charge": self._charge, "sync_provider": charges.sync_provider, "cancel_charge": charges.cancel_charge,
            "abandon_attempt": charges.abandon_attempt, "cancel": self._cancel, "expire": self._expire,
            "release_hold": self._release_hold, "mark_paid_late": self._mark_paid_late, "capture": charges.capture,
            "reacquire_stock": self._reacquire_stock, "request_refund": refunds.request,
            "mark_refunded": refunds.mark_refunded, "issue_tickets": self._issue_tickets, "review": self._review,
            "keep_sold": self._keep_sold, "revoke_unpaid_sale": self._revoke_unpaid_sale,
        }  # fmt: skip

    async def process(self, lease: Lease) -> bool:
        """Runs everything that is due for this order and releases the lease with the next due time. False if a payment
        provider could not be reached.
        """
        order: Order | None = None
        step: Step = "wait"
        try:
            for n in range(STEPS_MAX):
                order = await self._read(lease, order)
                step = self._next_step(order if n == 0 else replace(order, sync_due=False))
                if step == "wait":
                    await self._finish(lease, order)
                    return True
                if await self._run_step(step, lease, order):
                    return True
            raise OutcomeUnknown("too many steps in one run")
        except LeaseLost:
            LEASES_LOST.inc()
        except RETRYABLE as failed:
            assert order is not None
            await self._schedule_retry(lease, order, step, failed)
            return not isinstance(failed, ProviderTimeout | Unreachable)
        return True

    def _next_step(self, order: Order) -> Step:
        return next_step(order, review_after_s=self._settings.review_after_s)

    async def _read(self, lease: Lease, before: Order | None) -> Order:
        """Reads the order, and publishes it if it has changed."""
        order = await self._repository.read_leased(lease)
        if before is None or order.version != before.version:
            await self._repository.publish(order)
        return order

    async def _run_step(self, step: Step, lease: Lease, order: Order, *payment: OrderUpdate) -> bool | None:
        await self._failpoint(f"before {step}", order.reference)
        try:
            traced = tracing.span(f"order {step}", parent=order.traceparent, attempt=order.errors + 1)
            logged = sale_log.timed("sale.payment_step", step=step, event_id=order.event_id, reference=order.reference)
            with STEP_SECONDS.labels(step).time(), traced, logged:
                is_released = await self._step_methods[step](lease, order, *payment)
        except RETRYABLE:
            STEP_FAILURES.labels(step).inc()
            raise
        STEPS.labels(step).inc()
        await self._failpoint(f"after {step}", order.reference)
        return is_released

    async def _schedule_retry(self, lease: Lease, order: Order, step: Step, failed: Exception) -> None:
        errors, error = order.errors + 1, repr(failed)
        if sale_log.on and isinstance(failed, ProviderTimeout):
            sale_log.write(
                "sale.payment_timeout", event_id=order.event_id, reference=order.reference, step=step, tries=errors
            )
        pause_s = retry_pause_s(order.errors, first_s=self._tuning.retry_first_s, max_s=self._tuning.retry_max_s)
        log.info("order.retry_scheduled", reference=order.reference, error=error, errors=errors)
        if order.status == "pending" and not order.is_late:  # a hold must end on time
            pause_s = min(pause_s, (order.expires_at_ms - order.now_ms) / 1000)
        is_routine = step == "sync_provider" and not (order.is_open or order.sync_requested)
        update = OrderUpdate(lease, order, bumps_version=False, release=LeaseRelease(pause_s, errors, is_routine))
        if step in STEP_COMMANDS:
            kind, caused_by = STEP_COMMANDS[step]
            update.record_failed_try(kind, error=error[:ERROR_MAX_CHARS], caused_by=caused_by)
        await self._release_lease(update)

    async def _finish(self, lease: Lease, order: Order) -> None:
        """Nothing more is due: ends replayed commands, unless the order is still pending, and a cancel that came after
        the sale.
        """
        update = OrderUpdate(lease, order, bumps_version=False, release=self._next_release(order))
        if order.status != "pending":
            update.finish_command("rerun", error="The order is still in review." if order.status == "review" else None)
        if order.status in SALE_STATUSES:
            update.finish_command("cancel", error="paid before")
        await self._release_lease(update)

    async def _release_lease(self, update: OrderUpdate) -> None:
        """A lost lease needs no release."""
        with suppress(LeaseLost):
            await self._repository.write(update)

    def _next_release(self, order: Order) -> LeaseRelease:
        """An order that was sold or ended is due again only to be compared with the provider."""
        return LeaseRelease(self._next_due_s(order), routine=not order.is_open)

    def _next_due_s(self, order: Order) -> float | None:
        """When the order is due without being woken, in seconds from now."""
        if order.status == "review":
            if order.dispute == "open":
                return DISPUTE_SYNC_S
            if order.end_reason == "unknown":
                return REVIEW_SYNC_S
            if order.ended_at_ms is None:
                return None
        if order.status == "pending":
            left_s = (order.expires_at_ms - order.now_ms) / 1000
            live = order.attempt is not None and order.attempt.status in LIVE_STATUSES
            return max(0.0, min(left_s, self._settings.provider_sync_interval_s) if live else left_s)
        since_s = (order.now_ms - (order.ended_at_ms or order.now_ms)) / 1000
        return next((after_s - since_s for after_s in self._tuning.post_end_sync_delays_s if after_s > since_s), None)

    async def _charge(self, lease: Lease, order: Order) -> bool | None:
        """Writes the money and the sale it pays for together. A crash before that leaves an `unknown` attempt, which is
        synced with the provider, and a repeatable step of inventory. If the sale cannot follow at once, the money is
        written alone.
        """
        payment = await self._charges.charge(lease, order)
        if payment is None:
            return None
        paid = payment.expected_order()
        if self._next_step(paid) == "confirm":
            with suppress(*RETRYABLE):
                return await self._run_step("confirm", lease, paid, payment)
        await self._repository.write(payment)
        return None

    async def _confirm(self, lease: Lease, order: Order, payment: OrderUpdate | None = None) -> bool | None:
        """Sells the held tickets. If the hold was ended by force, the order expires and its money is treated as a late
        payment. `payment` is the part of the update that is not written yet.
        """
        done = await self._inventory.confirm(payment_step(order))
        await self._failpoint("after inventory", order.reference)
        if done.outcome == "done":
            return await self._mark_confirmed(lease, order, payment)
        if payment is not None:
            await self._repository.write(payment)
        log.error("order.hold_lost", reference=order.reference, outcome=done.outcome)
        await self._end_order(lease, order, to="expired", reason="lost")
        return None

    async def _reacquire_stock(self, lease: Lease, order: Order) -> bool | None:
        """Sells the tickets of a late payment, if they are still free."""
        done = await self._inventory.retake(payment_step(order))
        await self._failpoint("after inventory", order.reference)
        if done.outcome == "done":
            return await self._mark_confirmed(lease, order)
        update = OrderUpdate(lease, order).set_order(end_reason="taken", clear_decision=True)
        await self._repository.write(update.finish_command("reserve", error="taken", caused_by="late payment"))
        return None

    async def _release_hold(self, lease: Lease, order: Order) -> None:
        """Releases the hold. A worker that stopped after its charge may have sold it since, so a sale found here is
        returned, after our lease was checked: without it the sale is another worker's and stays.
        """
        done = await self._inventory.release(payment_step(order))
        if done.status == "confirmed" and done.order_reference == order.reference:
            await self._repository.write(OrderUpdate(lease, order, bumps_version=False))
            await self._inventory.return_stock(payment_step(order), reason=CAPTURE_FAILED)
        await self._repository.write(OrderUpdate(lease, order).set_order(released=True).finish_command("cancel"))

    async def _revoke_unpaid_sale(self, lease: Lease, order: Order) -> None:
        """The money of a sale could not be captured: its tickets go back on sale and the customer is notified."""
        log.warning("order.sale_revoked", reference=order.reference)
        done = await self._inventory.return_stock(payment_step(order), reason=CAPTURE_FAILED)
        if done.outcome != "done":
            log.error("order.stock_not_returned", reference=order.reference, outcome=done.outcome)
        update = OrderUpdate(lease, order).finish_command("cancel", caused_by="system")
        update.set_order(to="cancelled", ended=True, released=True, end_reason=CAPTURE_FAILED)
        await self._repository.write(update.emit("cancelled", status="cancelled", reason=CAPTURE_FAILED))
        ORDERS.labels("cancelled").inc()

    async def _mark_confirmed(self, lease: Lease, order: Order, payment: OrderUpdate | None = None) -> bool:
        """Writes the sale, with `payment` if that is not written yet. True if the lease was released with it, as
        nothing more is due.
        """
        charge, promised = order.matching_charge(), order.authorised
        charge_ref = charge.charge_ref if charge else promised.provider_ref if promised else None
        update = payment or OrderUpdate(lease, order)
        update.set_order(to="confirmed", confirmed=True, ended=True, end_reason="").emit(
            "confirmed", status="confirmed"
        )
        if charge_ref:
            update.set_order(charge_ref=charge_ref)
        update.finish_command("checkout").finish_command("confirm", caused_by="payment")
        update.finish_command("cancel", error="paid before")
        if order.status == "late_paid":
            update.finish_command("reserve", caused_by="late payment")
        after = replace(
            order, status="confirmed", charge_ref=charge_ref, end_reason=None, ended_at_ms=order.now_ms, sync_due=False
        )
        self._queue_mail(update, "confirmed")
        if after.is_paid:
            update.issue_tickets(status="confirmed")
            after = replace(after, fulfilled_at_ms=order.now_ms)
        if self._next_step(after) == "wait":
            update.release = self._next_release(after)
        written = await self._repository.write(update)
        ORDERS.labels("confirmed").inc()
        if update.release is None:
            return False
        await self._repository.publish(replace(after, **written._asdict()))
        return True

    async def _issue_tickets(self, lease: Lease, order: Order) -> None:
        await self._repository.write(OrderUpdate(lease, order).issue_tickets(status=order.status))

    def _queue_mail(self, update: OrderUpdate, kind: str, **facts: Any) -> None:
        """Without a mail server no mail is queued: otherwise all would go out on the day one is configured."""
        if self._settings.smtp_url is not None:
            update.queue_mail(kind, **facts)

    async def _cancel(self, lease: Lease, order: Order) -> None:
        await self._end_order(lease, order, to="cancelled", reason=order.end_reason or "provider")

    async def _expire(self, lease: Lease, order: Order) -> None:
        await self._end_order(lease, order, to="expired", reason="operator" if order.review_decision else "expired")

    async def _end_order(self, lease: Lease, order: Order, *, to: str, reason: str) -> None:
        update = OrderUpdate(lease, order).set_order(to=to, ended=True, end_reason=reason)
        update.finish_command("checkout", error=reason)
        update.finish_command("cancel", caused_by=CANCEL_CAUSES.get(reason, reason))
        if reason == "lost":
            update.finish_command("confirm", error="The hold is gone.", caused_by="payment")
        update.emit("cancelled", status=to, reason=reason)
        await self._repository.write(update)
        ORDERS.labels(to).inc()

    async def _mark_paid_late(self, lease: Lease, order: Order) -> None:
        await self._repository.write(OrderUpdate(lease, order).set_order(to="late_paid"))
        ORDERS.labels("late_paid").inc()

    async def _keep_sold(self, lease: Lease, order: Order) -> None:
        """An operator decided to keep the sale."""
        await self._repository.write(OrderUpdate(lease, order).set_order(to=status_by_balance(order), end_reason=""))

    async def _review(self, lease: Lease, order: Order) -> None:
        reason = MISMATCH if order.charges or order.authorised else "unknown"
        update = OrderUpdate(lease, order).set_order(to="review", end_reason=reason)
        await self._repository.write(update.record_failed_try("checkout", error=f"review: {reason}", caused_by=None))
        REVIEWS.labels(reason).inc()
        log.error("order.review", reference=order.reference, reason=reason)
