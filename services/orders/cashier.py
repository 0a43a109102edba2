"""Takes one order as far as it can go now: asks what is due, does it, and asks again.

What was learnt from outside is written down before anything follows from it, and no call is made inside a transaction.
Whatever fails is due again after a pause; the provider's key makes a repeated charge the same charge.
"""

import logging
import random
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace

from services.orders import ledger, refunds
from services.orders.frames import show
from services.orders.ledger import Lease, LeaseLost
from services.orders.metrics import LEASES_LOST, ORDERS, REVIEWS, STEP_FAILURES, STEPS
from services.orders.payments.provider import (
    NotProcessed,
    OutcomeUnknown,
    Provider,
    Refused,
)
from services.orders.settings import Settings
from services.orders.states import LIVE
from services.orders.steps import Order, Step, next_step
from services.orders.till import Failpoint, Till, no_failpoint
from shared.contracts.inventory import InventoryClient, PaymentStep, PaymentSteps, StepDone, StepsAnswer
from shared.logs import data
from shared.postgres import AsyncEngine
from shared.problems import Problem
from shared.redis import Redis

log = logging.getLogger("onsale.orders")
STEPS_MAX = 20
TRY_AGAIN = (NotProcessed, OutcomeUnknown, Problem)
REVIEW_LOOK_S = 60.0


class Cashier:
    """Settles orders; knows nothing of how they come to be due."""

    def __init__(
        self,
        *,
        engine: AsyncEngine,
        redis: Redis,
        inventory: InventoryClient,
        providers: Mapping[str, Provider],
        settings: Settings,
        failpoint: Failpoint = no_failpoint,
    ) -> None:
        self._engine, self._redis, self._inventory = engine, redis, inventory
        self._providers, self._settings, self._failpoint = providers, settings, failpoint
        till = Till(engine=engine, providers=providers, settings=settings, failpoint=failpoint)
        self._do: dict[Step, Callable[[Lease, Order], Awaitable[None]]] = {
            "send_refund": self._send_refund, "confirm": self._confirm, "charge": till.charge, "look": till.look,
            "cancel_charge": till.cancel_charge, "give_up_attempt": till.give_up_attempt, "cancel": self._cancel,
            "expire": self._expire, "release": self._release, "own_up": self._own_up, "retake": self._retake,
            "refund": self._ask_refunds, "close_refunded": self._close_refunded, "review": self._review,
        }  # fmt: skip

    async def settle(self, lease: Lease) -> None:
        """Does everything that is due for this order, then gives the lease back with the next due time."""
        seen: Order | None = None
        try:
            for turn in range(STEPS_MAX):
                shown = seen.version if seen else None
                seen = await self._seen(lease, first=turn == 0)
                if seen.version != shown:
                    await show(self._redis, [seen])
                step = next_step(seen, review_after_s=self._settings.review_after_s)
                if step == "wait":
                    await ledger.rest(self._engine, lease, seen, due_in_s=self._next_due_s(seen))
                    return
                await self._step(step, lease, seen)
            raise OutcomeUnknown("too many steps at once")
        except LeaseLost:
            LEASES_LOST.inc()
        except TRY_AGAIN as failed:
            assert seen is not None
            await self._try_again(lease, seen, failed)

    async def _seen(self, lease: Lease, *, first: bool) -> Order:
        seen = await ledger.read(self._engine, lease.reference)
        if seen is None:
            raise LeaseLost(lease.reference)
        return seen if first else replace(seen, look_due=False)

    async def _step(self, step: Step, lease: Lease, seen: Order) -> None:
        await self._failpoint(f"before {step}", seen.reference)
        try:
            await self._do[step](lease, seen)
        except TRY_AGAIN:
            STEP_FAILURES.labels(step).inc()
            raise
        STEPS.labels(step).inc()
        await self._failpoint(f"after {step}", seen.reference)

    async def _try_again(self, lease: Lease, seen: Order, failed: Exception) -> None:
        pause_s = min(self._settings.retry_max_s, self._settings.retry_first_s * 2 ** min(seen.errors, 20))
        log.info("order.again", extra=data(reference=seen.reference, error=repr(failed), errors=seen.errors + 1))
        pause_s *= 0.5 + random.random()  # noqa: S311 - jitter
        await ledger.rest(self._engine, lease, seen, due_in_s=pause_s, errors=seen.errors + 1)

    def _next_due_s(self, seen: Order) -> float | None:
        """When to come back without being nudged."""
        if seen.status == "review":
            return REVIEW_LOOK_S if seen.end_reason == "unknown" else None
        if seen.status == "pending":
            left_s = (seen.expires_at_ms - seen.now_ms) / 1000
            live = seen.attempt is not None and seen.attempt.status in LIVE
            return max(0.0, min(left_s, self._settings.poll_s) if live else left_s)
        since_s = (seen.now_ms - (seen.ended_at_ms or seen.now_ms)) / 1000
        return next((after_s - since_s for after_s in self._settings.look_again_s if after_s > since_s), None)

    # -- inventory -------------------------------------------------------------------------------------------------

    async def _ask(self, call: Callable[[PaymentSteps], Awaitable[StepsAnswer]], seen: Order) -> StepDone:
        step = PaymentStep(reservation_id=seen.reservation_id, order_reference=seen.reference)
        return (await call(PaymentSteps(steps=[step]))).steps[0]

    async def _confirm(self, lease: Lease, seen: Order) -> None:
        """Its own hold is lost only if somebody ended it by force: then the order expires and owns up to the money."""
        done = await self._ask(self._inventory.confirm, seen)
        await self._failpoint("after inventory", seen.reference)
        if done.word == "done":
            await self._sold(lease, seen)
        else:
            log.error("order.hold_lost", extra=data(reference=seen.reference, word=done.word))
            await self._end(lease, seen, to="expired", reason="lost")

    async def _retake(self, lease: Lease, seen: Order) -> None:
        done = await self._ask(self._inventory.retake, seen)
        await self._failpoint("after inventory", seen.reference)
        if done.word == "done":
            await self._sold(lease, seen)
            return
        async with self._engine.begin() as connection:
            await ledger.change(connection, lease, seen, end_reason="taken")

    async def _release(self, lease: Lease, seen: Order) -> None:
        await self._ask(self._inventory.release, seen)
        async with self._engine.begin() as connection:
            await ledger.change(connection, lease, seen, released_at=ledger.NOW)

    # -- the order -------------------------------------------------------------------------------------------------

    async def _sold(self, lease: Lease, seen: Order) -> None:
        charge = seen.matching_charge()
        async with self._engine.begin() as connection:
            await ledger.change(
                connection, lease, seen, to="confirmed", confirmed_at=ledger.NOW, ended_at=ledger.NOW, end_reason=None,
                charge_ref=charge.charge_ref if charge else None,
            )  # fmt: skip
            await ledger.finish_command(connection, seen.reference, "checkout")
            await ledger.finish_command(connection, seen.reference, "cancel", error="paid before")
            await ledger.tell_of(connection, seen, "confirmed", status="confirmed")
        ORDERS.labels("confirmed").inc()

    async def _cancel(self, lease: Lease, seen: Order) -> None:
        await self._end(lease, seen, to="cancelled", reason=seen.end_reason or "provider")

    async def _expire(self, lease: Lease, seen: Order) -> None:
        await self._end(lease, seen, to="expired", reason="expired")

    async def _end(self, lease: Lease, seen: Order, *, to: str, reason: str) -> None:
        async with self._engine.begin() as connection:
            await ledger.change(connection, lease, seen, to=to, ended_at=ledger.NOW, end_reason=reason)
            await ledger.finish_command(connection, seen.reference, "checkout", error=reason)
            await ledger.finish_command(connection, seen.reference, "cancel")
            await ledger.tell_of(connection, seen, "cancelled", status=to, reason=reason)
        ORDERS.labels(to).inc()

    async def _own_up(self, lease: Lease, seen: Order) -> None:
        async with self._engine.begin() as connection:
            await ledger.change(connection, lease, seen, to="late_paid")
        ORDERS.labels("late_paid").inc()

    async def _review(self, lease: Lease, seen: Order) -> None:
        reason = "mismatch" if seen.charges else "unknown"
        async with self._engine.begin() as connection:
            await ledger.change(connection, lease, seen, to="review", end_reason=reason)
        REVIEWS.labels(reason).inc()
        log.error("order.review", extra=data(reference=seen.reference, reason=reason))

    # -- money back ------------------------------------------------------------------------------------------------

    async def _ask_refunds(self, lease: Lease, seen: Order) -> None:
        async with self._engine.begin() as connection:
            await ledger.change(connection, lease, seen)
            for charge in seen.unbacked:
                await refunds.ask(connection, seen, charge, reason="not-backed", asked_by="system")

    async def _send_refund(self, lease: Lease, seen: Order) -> None:
        refund = seen.refunds[0]
        try:
            refund_ref = await self._providers[refund.provider].refund(
                refund.charge_ref, amount_minor=refund.amount_minor, key=refund.idem_key
            )
        except Refused as refused:
            log.error("refund.refused", extra=data(reference=seen.reference, reason=str(refused)))
            refund_ref = None
        await self._failpoint("after the refund", seen.reference)
        async with self._engine.begin() as connection:
            await refunds.settle(connection, lease, seen, refund, refund_ref=refund_ref)

    async def _close_refunded(self, lease: Lease, seen: Order) -> None:
        async with self._engine.begin() as connection:
            await ledger.change(connection, lease, seen, to="refunded")
            await ledger.tell_of(connection, seen, "refunded", status="refunded")
        ORDERS.labels("refunded").inc()
