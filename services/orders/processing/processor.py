"""Takes one order as far as it can go now: asks what is due, does it, and asks again.

What was learnt from outside is written down before anything follows from it, and no call is made inside a transaction.
Whatever fails is due again after a pause; the provider's key makes a repeated charge the same charge.
"""

import logging
import random
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any

from services.orders.checkout.inventory_client import InventoryBatcher
from services.orders.metrics import LEASES_LOST, ORDERS, REVIEWS, STEP_FAILURES, STEPS
from services.orders.order.next_step import MISMATCH, Order, Step, next_step
from services.orders.order.repository import OrderRepository
from services.orders.order.states import LIVE, SALE
from services.orders.order.updates import Lease, LeaseLost, LeaseRelease, OrderUpdate
from services.orders.payments.charge import ChargeExecutor, Failpoint, no_failpoint
from services.orders.payments.provider import NotSent, OutcomeUnknown, Provider, ProviderTimeout, Unreachable
from services.orders.refunds.execute import RefundExecutor
from services.orders.refunds.plan import status_by_balance
from services.orders.settings import Settings
from shared.contracts.inventory import PaymentStep
from shared.runtime.logging import data
from shared.web.problems import Problem

log = logging.getLogger("onsale.orders")
STEPS_MAX = 20
TRY_AGAIN = (NotSent, OutcomeUnknown, Problem)
REVIEW_LOOK_S = 60.0
ERROR_MAX_CHARS = 500
COMMANDS: Mapping[Step, tuple[str, str | None]] = {
    "charge": ("checkout", None), "look": ("checkout", None), "cancel_charge": ("checkout", None),
    "confirm": ("confirm", "payment"), "retake": ("reserve", "late payment"), "release": ("cancel", "system"),
    "send_refund": ("refund", "system"),
}  # fmt: skip  # the command a step belongs to, and what causes it if nobody asked
CAUSES = {"expired": "deadline", "lost": "inventory"}
UNPAID = "capture"  # why a sale was taken back


class OrderProcessor:
    """Settles orders; knows nothing of how they come to be due."""

    def __init__(
        self,
        *,
        book: OrderRepository,
        stock: InventoryBatcher,
        providers: Mapping[str, Provider],
        settings: Settings,
        failpoint: Failpoint = no_failpoint,
    ) -> None:
        self._book, self._stock = book, stock
        self._providers, self._settings, self._failpoint = providers, settings, failpoint
        self._till = till = ChargeExecutor(book=book, providers=providers, settings=settings, failpoint=failpoint)
        back = RefundExecutor(book=book, stock=stock, providers=providers, failpoint=failpoint, mail=self._mail)
        # A step that answers true has given the lease back with what it wrote.
        self._do: dict[Step, Callable[..., Awaitable[bool | None]]] = {
            "send_refund": back.send, "return_tickets": back.return_tickets, "confirm": self._confirm,
            "charge": self._charge, "look": till.sync_provider, "cancel_charge": till.cancel_charge,
            "give_up_attempt": till.abandon_attempt, "cancel": self._cancel, "expire": self._expire,
            "release": self._release, "own_up": self._own_up, "retake": self._retake, "refund": back.ask,
            "close_refunded": back.close, "issue": self._issue, "review": self._review, "stand": self._stand,
            "capture": till.capture, "take_back": self._take_back,
        }  # fmt: skip

    async def process(self, lease: Lease) -> bool:
        """Does everything that is due for this order, then gives the lease back with the next due time. Whether every
        provider has answered that was asked.
        """
        seen: Order | None = None
        step: Step = "wait"
        try:
            for turn in range(STEPS_MAX):
                seen = await self._seen(lease, seen)
                step = self._next(seen if turn == 0 else replace(seen, look_due=False))
                if step == "wait":
                    await self._wait(lease, seen)
                    return True
                if await self._step(step, lease, seen):
                    return True
            raise OutcomeUnknown("too many steps at once")
        except LeaseLost:
            LEASES_LOST.inc()
        except TRY_AGAIN as failed:
            assert seen is not None
            await self._try_again(lease, seen, step, failed)
            return not isinstance(failed, ProviderTimeout | Unreachable)
        return True

    def _next(self, seen: Order) -> Step:
        return next_step(seen, review_after_s=self._settings.review_after_s)

    async def _seen(self, lease: Lease, before: Order | None) -> Order:
        """The order as it is now, shown if it has changed."""
        seen = await self._book.read(lease.reference)
        if seen is None:
            raise LeaseLost(lease.reference)
        if before is None or seen.version != before.version:
            await self._book.show(seen)
        return seen

    async def _step(self, step: Step, lease: Lease, seen: Order, *told: OrderUpdate) -> bool | None:
        await self._failpoint(f"before {step}", seen.reference)
        try:
            is_over = await self._do[step](lease, seen, *told)
        except TRY_AGAIN:
            STEP_FAILURES.labels(step).inc()
            raise
        STEPS.labels(step).inc()
        await self._failpoint(f"after {step}", seen.reference)
        return is_over

    async def _try_again(self, lease: Lease, seen: Order, step: Step, failed: Exception) -> None:
        pause_s = min(self._settings.retry_max_s, self._settings.retry_first_s * 2 ** min(seen.errors, 20))
        log.info("order.again", extra=data(reference=seen.reference, error=repr(failed), errors=seen.errors + 1))
        pause_s *= 0.5 + random.random()  # noqa: S311 - jitter
        if seen.status == "pending" and not seen.late:  # whatever may end with the hold ends on time
            pause_s = min(pause_s, (seen.expires_at_ms - seen.now_ms) / 1000)
        rest = OrderUpdate(
            lease, seen, bumps_version=False, rest=LeaseRelease(due_in_s=pause_s, errors=seen.errors + 1)
        )
        if step in COMMANDS:
            kind, caused_by = COMMANDS[step]
            rest.try_command(kind, error=repr(failed)[:ERROR_MAX_CHARS], caused_by=caused_by)
        await self._rest(rest)

    async def _wait(self, lease: Lease, seen: Order) -> None:
        """Nothing more is due. What an operator had run again has been, unless the order is still on its way; a cancel
        that came as the order was sold is told so.
        """
        rest = OrderUpdate(lease, seen, bumps_version=False, rest=LeaseRelease(due_in_s=self._next_due_s(seen)))
        if seen.status != "pending":
            rest.command("rerun", error="The order is still in review." if seen.status == "review" else None)
        if seen.status in SALE:
            rest.command("cancel", error="paid before")
        await self._rest(rest)

    async def _rest(self, rest: OrderUpdate) -> None:
        """Whoever has the order by now needs no lease of ours given back."""
        with suppress(LeaseLost):
            await self._book.write(rest)

    def _next_due_s(self, seen: Order) -> float | None:
        """When to come back without being nudged."""
        if seen.status == "review":
            return REVIEW_LOOK_S if seen.end_reason == "unknown" else None
        if seen.status == "pending":
            left_s = (seen.expires_at_ms - seen.now_ms) / 1000
            live = seen.attempt is not None and seen.attempt.status in LIVE
            return max(0.0, min(left_s, self._settings.poll_s) if live else left_s)
        since_s = (seen.now_ms - (seen.ended_at_ms or seen.now_ms)) / 1000
        return next((after_s - since_s for after_s in self._settings.post_end_sync_delays_s if after_s > since_s), None)

    # -- inventory -------------------------------------------------------------------------------------------------

    async def _charge(self, lease: Lease, seen: Order) -> bool | None:
        """Money that moved and the sale it pays for are written together. Whoever dies before that leaves an attempt
        that is unknown, which is asked about again, and a step of inventory that may be repeated. If the sale does not
        follow at once, the money is written alone.
        """
        told = await self._till.charge(lease, seen)
        if told is None:
            return None
        paid = told.after()
        if self._next(paid) == "confirm":
            with suppress(*TRY_AGAIN):
                return await self._step("confirm", lease, paid, told)
        await self._book.write(told)
        return None

    async def _confirm(self, lease: Lease, seen: Order, told: OrderUpdate | None = None) -> bool | None:
        """Its own hold is lost only if somebody ended it by force: then the order expires and owns up to the money.
        `told` is what is still to be written of its payment.
        """
        done = await self._stock.confirm(_payment(seen))
        await self._failpoint("after inventory", seen.reference)
        if done.word == "done":
            return await self._sold(lease, seen, told)
        if told is not None:
            await self._book.write(told)
        log.error("order.hold_lost", extra=data(reference=seen.reference, word=done.word))
        await self._end(lease, seen, to="expired", reason="lost")
        return None

    async def _retake(self, lease: Lease, seen: Order) -> bool | None:
        done = await self._stock.retake(_payment(seen))
        await self._failpoint("after inventory", seen.reference)
        if done.word == "done":
            return await self._sold(lease, seen)
        change = OrderUpdate(lease, seen).order(end_reason="taken", undecided=True)
        await self._book.write(change.command("reserve", error="taken", caused_by="late payment"))
        return None

    async def _release(self, lease: Lease, seen: Order) -> None:
        """A worker that had this order before and was stopped after its charge may have had it sold since. If we are
        the ones who were stopped, the sale is somebody else's doing and stays: so the lease is looked at first.
        """
        done = await self._stock.release(_payment(seen))
        if done.status == "confirmed" and done.order_reference == seen.reference:
            await self._book.write(OrderUpdate(lease, seen, bumps_version=False))
            await self._stock.return_stock(_payment(seen), reason=UNPAID)
        await self._book.write(OrderUpdate(lease, seen).order(released=True).command("cancel"))

    async def _take_back(self, lease: Lease, seen: Order) -> None:
        """The money of a sale could not be taken: its tickets go back on sale, and the fan is told."""
        log.warning("order.unpaid", extra=data(reference=seen.reference))
        done = await self._stock.return_stock(_payment(seen), reason=UNPAID)
        if done.word != "done":
            log.error("order.not_taken_back", extra=data(reference=seen.reference, word=done.word))
        change = OrderUpdate(lease, seen).order(to="cancelled", ended=True, released=True, end_reason=UNPAID)
        change.command("cancel", caused_by="system")
        await self._book.write(change.emit("cancelled", status="cancelled", reason=UNPAID))
        ORDERS.labels("cancelled").inc()

    # -- the order -------------------------------------------------------------------------------------------------

    async def _sold(self, lease: Lease, seen: Order, told: OrderUpdate | None = None) -> bool:
        """Written with what is still `told` of its payment. The lease goes back with it, unless there is more to do."""
        charge = seen.matching_charge()
        promised = seen.authorised
        charge_ref = charge.charge_ref if charge else promised.provider_ref if promised else None
        change = (told or OrderUpdate(lease, seen)).order(to="confirmed", confirmed=True, ended=True, end_reason=None)
        if charge_ref:
            change.order(charge_ref=charge_ref)
        change.command("checkout").command("confirm", caused_by="payment").command("cancel", error="paid before")
        change.emit("confirmed", status="confirmed")
        if seen.status == "late_paid":
            change.command("reserve", caused_by="late payment")
        after = replace(
            seen, status="confirmed", charge_ref=charge_ref, end_reason=None, ended_at_ms=seen.now_ms, look_due=False
        )
        self._mail(change, "confirmed")
        if after.is_paid:
            change.issue(status="confirmed")
            after = replace(after, fulfilled_at_ms=seen.now_ms)
        if self._next(after) == "wait":
            change.rest = LeaseRelease(due_in_s=self._next_due_s(after))
        written = await self._book.write(change)
        ORDERS.labels("confirmed").inc()
        if change.rest is None:
            return False
        await self._book.show(replace(after, **written._asdict()))
        return True

    async def _issue(self, lease: Lease, seen: Order) -> None:
        await self._book.write(OrderUpdate(lease, seen).issue(status=seen.status))

    def _mail(self, change: OrderUpdate, kind: str, **facts: Any) -> None:
        """Where no mail is sent none is owed: it would all go out on the day somebody sets a server."""
        if self._settings.smtp_url is not None:
            change.mail(kind, **facts)

    async def _cancel(self, lease: Lease, seen: Order) -> None:
        await self._end(lease, seen, to="cancelled", reason=seen.end_reason or "provider")

    async def _expire(self, lease: Lease, seen: Order) -> None:
        await self._end(lease, seen, to="expired", reason="operator" if seen.decided else "expired")

    async def _end(self, lease: Lease, seen: Order, *, to: str, reason: str) -> None:
        change = OrderUpdate(lease, seen).order(to=to, ended=True, end_reason=reason)
        change.command("checkout", error=reason).command("cancel", caused_by=CAUSES.get(reason, reason))
        if reason == "lost":
            change.command("confirm", error="The hold is gone.", caused_by="payment")
        change.emit("cancelled", status=to, reason=reason)
        await self._book.write(change)
        ORDERS.labels(to).inc()

    async def _own_up(self, lease: Lease, seen: Order) -> None:
        await self._book.write(OrderUpdate(lease, seen).order(to="late_paid"))
        ORDERS.labels("late_paid").inc()

    async def _stand(self, lease: Lease, seen: Order) -> None:
        """An operator leaves the sale as it is."""
        await self._book.write(OrderUpdate(lease, seen).order(to=status_by_balance(seen), end_reason=None))

    async def _review(self, lease: Lease, seen: Order) -> None:
        reason = MISMATCH if seen.charges or seen.authorised else "unknown"
        change = OrderUpdate(lease, seen).order(to="review", end_reason=reason)
        await self._book.write(change.try_command("checkout", error=f"review: {reason}", caused_by=None))
        REVIEWS.labels(reason).inc()
        log.error("order.review", extra=data(reference=seen.reference, reason=reason))


def _payment(seen: Order) -> PaymentStep:
    return PaymentStep(reservation_id=seen.reservation_id, order_reference=seen.reference)
