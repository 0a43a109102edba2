"""Processes one order: decides the next step, runs it, and repeats until nothing is due.

Facts from outside are written before anything follows from them, and no call is made inside a transaction. A step that
fails is due again after a pause; the provider's idempotency key makes a repeated charge the same charge. What was
written by somebody else meanwhile is read again, and the step repeated if it is still due.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from services.orders.metrics import ORDERS_LOST, STEP_FAILURES, STEP_SECONDS, STEPS
from services.orders.model.next_step import Step
from services.orders.model.order import SALE_STATUSES, Order
from services.orders.model.update import Ownership, Release
from services.orders.providers.provider import NotSent, OutcomeUnknown, ProviderTimeout, Unreachable
from services.orders.steps import payment, refund, stock
from services.orders.steps.run import OrderRun, Parts
from services.orders.store.store import NotWritten, OrderLost
from shared.concurrency.leased_queue import retry_pause_s
from shared.errors.problems import Problem
from shared.runtime import tracing
from shared.runtime.logging import get_logger
from shared.runtime.tracing import sale_log

log = get_logger("onsale.orders")
STEPS_MAX = 20
RETRYABLE = (NotSent, OutcomeUnknown, Problem)
ERROR_MAX_CHARS = 500
STEP_COMMANDS: Mapping[Step, tuple[str, str | None]] = {
    "charge": ("checkout", None), "sync_provider": ("checkout", None), "cancel_charge": ("checkout", None),
    "confirm": ("confirm", "payment"), "reacquire_stock": ("reserve", "late payment"),
    "release_hold": ("cancel", "system"), "send_refund": ("refund", "system"),
}  # fmt: skip  # the command of a step, and its cause if no command is open
_METHODS: dict[Step, Callable[[OrderRun, Order], Awaitable[Any]]] = {
    "send_refund": refund.send, "return_tickets": refund.return_tickets, "confirm": stock.confirm,
    "sync_provider": payment.sync_provider, "cancel_charge": payment.cancel_charge,
    "abandon_attempt": payment.abandon_attempt, "cancel": stock.cancel, "expire": stock.expire,
    "release_hold": stock.release_hold, "mark_paid_late": stock.mark_paid_late, "capture": payment.capture,
    "reacquire_stock": stock.reacquire_stock, "request_refund": refund.request,
    "mark_refunded": refund.mark_refunded, "issue_tickets": stock.issue_tickets, "review": stock.review,
    "keep_sold": stock.keep_sold, "revoke_unpaid_sale": stock.revoke_unpaid_sale,
}  # fmt: skip


@asynccontextmanager
async def _counted(step: Step, run: OrderRun) -> AsyncIterator[None]:
    """Between the failpoints of a step: its time, and whether it failed."""
    await run.failpoint(f"before {step}")
    try:
        with STEP_SECONDS.labels(step).time():
            yield
    except RETRYABLE:
        STEP_FAILURES.labels(step).inc()
        raise
    STEPS.labels(step).inc()
    await run.failpoint(f"after {step}")


class Result(NamedTuple):
    """What is left of an order after a run: it is due again in `due_in_s`, or never (None), as it is closed or another
    process' order. `provider_away`: a payment provider could not be reached.
    """

    due_in_s: float | None
    provider_away: bool = False


@dataclass(frozen=True, slots=True)
class OrderProcessor:
    """Runs the due steps of an order. Who calls it, and when, is the worker's matter."""

    parts: Parts

    async def process(self, claim: Ownership, fresh: Order | None = None) -> Result:
        """Runs everything that is due for this order. `fresh` is the order as this process has just written it; without
        it the order is read.
        """
        run = OrderRun(self.parts, claim, is_first_call=fresh is not None)
        order = last = fresh
        step: Step = "wait"
        try:
            for n in range(STEPS_MAX):
                order = order or await self._read(claim, last)
                step = run.next_step(replace(order, sync_due=False) if n and order.sync_due else order)
                try:
                    if step == "wait":
                        return await self._finish(run, order)
                    sold = await self._run_step(step, run, order)
                    if run.is_released and sold is not None:
                        await self.parts.frames.publish(sold)
                        return Result(None)
                except NotWritten:
                    log.info("order.read_again", reference=claim.reference, step=step)
                order, last = None, order
            raise OutcomeUnknown("too many steps in one run")
        except OrderLost:
            ORDERS_LOST.inc()
            return Result(None)
        except RETRYABLE as failed:
            return await self._schedule_retry(run, order or last, step, failed)

    async def _read(self, claim: Ownership, last: Order | None) -> Order:
        """Reads the order, and publishes it if it has changed."""
        order = self.parts.store.latest[claim.reference] = await self.parts.store.read_claimed(claim)
        if last is None or order.version != last.version:
            await self.parts.frames.publish(order)
        return order

    async def _run_step(self, step: Step, run: OrderRun, order: Order) -> Order | None:
        """The order as it is sold if the step sold it."""
        traced = tracing.span(f"order {step}", parent=order.traceparent, attempt=order.errors + 1)
        logged = sale_log.timed("sale.payment_step", step=step, event_id=order.event_id, reference=order.reference)
        async with _counted(step, run):
            with traced, logged:
                return await (self._charge(run, order) if step == "charge" else _METHODS[step](run, order))

    async def _charge(self, run: OrderRun, order: Order) -> Order | None:
        """Writes the money and the sale it pays for together. A crash before that leaves an `unknown` attempt, which is
        repeated under its key, and a repeatable step of inventory. If the sale cannot follow at once, the money is
        written alone.
        """
        paid = await payment.charge(run, order)
        if paid is None:
            return None
        order = paid.expected_order()
        if run.next_step(order) == "confirm":
            with suppress(*RETRYABLE):
                async with _counted("confirm", run):
                    return await stock.confirm(run, order, paid)
        await run.save(paid)
        return None

    async def _schedule_retry(self, run: OrderRun, order: Order | None, step: Step, failed: Exception) -> Result:
        tuning, away = self.parts.tuning, isinstance(failed, ProviderTimeout | Unreachable)
        if order is None:  # it could not even be read
            return Result(tuning.retry_first_s)
        errors, error = order.errors + 1, repr(failed)
        if sale_log.on and isinstance(failed, ProviderTimeout):
            sale_log.write(
                "sale.payment_timeout", event_id=order.event_id, reference=order.reference, step=step, tries=errors
            )
        pause_s = retry_pause_s(order.errors, first_s=tuning.retry_first_s, max_s=tuning.retry_max_s)
        log.info("order.retry_scheduled", reference=order.reference, error=error, errors=errors)
        if order.status == "pending" and not order.is_late:  # a hold must end on time
            pause_s = min(pause_s, (order.expires_at_ms - order.now_ms) / 1000)
        try:
            latest = await self.parts.store.read_claimed(run.claim)  # the step may have written before it failed
            update = run.update(latest, bumps_version=False)
            update.release = Release(pause_s, errors)
            if step in STEP_COMMANDS:
                kind, caused_by = STEP_COMMANDS[step]
                update.record_failed_try(kind, error=error[:ERROR_MAX_CHARS], caused_by=caused_by)
            await run.save(update)
        except OrderLost:
            return Result(None, away)
        except NotWritten:
            pause_s = 0.0
        except Problem:  # the database has too much to do
            pass
        return Result(pause_s, away)

    async def _finish(self, run: OrderRun, order: Order) -> Result:
        """Nothing more is due: ends replayed commands, unless the order is still pending, and a cancel that came after
        the sale. Raises `NotWritten`.
        """
        update = run.update(order, bumps_version=False)
        if order.status != "pending":
            update.finish_command("rerun", error="The order is still in review." if order.status == "review" else None)
        if order.status in SALE_STATUSES:
            update.finish_command("cancel", error="paid before")
        due_in_s = run.due_in_s(order)
        update.release = Release(due_in_s)
        await run.save(update)
        return Result(due_in_s)
