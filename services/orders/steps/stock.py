"""The steps that change what inventory holds for an order, and those that end it."""

from dataclasses import replace

from services.orders.metrics import ORDERS, REVIEWS
from services.orders.model.order import MISMATCH, Order
from services.orders.model.refund_plan import status_by_balance
from services.orders.model.update import OrderUpdate
from services.orders.steps.run import OrderRun, payment_step
from shared.runtime.logging import get_logger

log = get_logger("onsale.orders")
CANCEL_CAUSES = {"expired": "deadline", "lost": "inventory"}
CAPTURE_FAILED = "capture"  # end reason of a sale that was revoked


async def confirm(run: OrderRun, order: Order, payment: OrderUpdate | None = None) -> Order | None:
    """Sells the held tickets. If the hold was ended by force, the order expires and its money is treated as a late
    payment. `payment` is the part of the update that is not written yet. Returns the order as it was sold.
    """
    done = await run.parts.inventory.confirm(payment_step(order))
    await run.failpoint("after inventory")
    if done.outcome == "done":
        return await _mark_confirmed(run, order, payment)
    if payment is not None:
        order = await run.save(payment)
    log.error("order.hold_lost", reference=order.reference, outcome=done.outcome)
    await _end_order(run, order, to="expired", reason="lost")
    return None


async def reacquire_stock(run: OrderRun, order: Order) -> Order | None:
    """Sells the tickets of a late payment, if they are still free."""
    done = await run.parts.inventory.retake(payment_step(order))
    await run.failpoint("after inventory")
    if done.outcome == "done":
        return await _mark_confirmed(run, order)
    update = run.update(order).set_order(end_reason="taken", clear_decision=True)
    await run.save(update.finish_command("reserve", error="taken", caused_by="late payment"))
    return None


async def release_hold(run: OrderRun, order: Order) -> None:
    """Releases the hold. A process that stopped after its charge may have sold it since, so a sale found here is
    returned, after our claim was checked: without it the sale is another process' and stays.
    """
    inventory = run.parts.inventory
    done = await inventory.release(payment_step(order))
    if done.status == "confirmed" and done.order_reference == order.reference:
        await run.save(run.update(order, bumps_version=False))
        await inventory.return_stock(payment_step(order), reason=CAPTURE_FAILED)
    await run.save(run.update(order).set_order(released=True).finish_command("cancel"))


async def revoke_unpaid_sale(run: OrderRun, order: Order) -> None:
    """The money of a sale could not be captured: its tickets go back on sale and the customer is notified."""
    log.warning("order.sale_revoked", reference=order.reference)
    done = await run.parts.inventory.return_stock(payment_step(order), reason=CAPTURE_FAILED)
    if done.outcome != "done":
        log.error("order.stock_not_returned", reference=order.reference, outcome=done.outcome)
    update = run.update(order).finish_command("cancel", caused_by="system")
    update.set_order(to="cancelled", ended=True, released=True, end_reason=CAPTURE_FAILED)
    await run.save(update.emit("cancelled", status="cancelled", reason=CAPTURE_FAILED))
    ORDERS.labels("cancelled").inc()


async def _mark_confirmed(run: OrderRun, order: Order, payment: OrderUpdate | None = None) -> Order:
    """Writes the sale, with `payment` if that is not written yet. Returns the order as it is sold."""
    charge, promised = order.matching_charge(), order.authorised
    charge_ref = charge.charge_ref if charge else promised.provider_ref if promised else None
    update = payment or run.update(order)
    update.set_order(to="confirmed", confirmed=True, ended=True, end_reason="").emit("confirmed", status="confirmed")
    if charge_ref:
        update.set_order(charge_ref=charge_ref)
    update.finish_command("checkout").finish_command("confirm", caused_by="payment")
    update.finish_command("cancel", error="paid before")
    if order.status == "late_paid":
        update.finish_command("reserve", caused_by="late payment")
    run.queue_mail(update, "confirmed")
    after = update.after()
    if after.is_paid:
        update.set_order(fulfilled=True)
        after = replace(after, fulfilled_at_ms=update.at_ms)
    run.release_if_done(update, after)
    sold = await run.save(update)
    ORDERS.labels("confirmed").inc()
    return sold


async def issue_tickets(run: OrderRun, order: Order) -> None:
    """Its money was captured after it was confirmed: its tickets are valid from now on."""
    await run.save(run.update(order).set_order(fulfilled=True).emit("fulfilled", status=order.status))


async def cancel(run: OrderRun, order: Order) -> None:
    await _end_order(run, order, to="cancelled", reason=order.end_reason or "provider")


async def expire(run: OrderRun, order: Order) -> None:
    await _end_order(run, order, to="expired", reason="operator" if order.review_decision else "expired")


async def _end_order(run: OrderRun, order: Order, *, to: str, reason: str) -> None:
    update = run.update(order).set_order(to=to, ended=True, end_reason=reason)
    update.finish_command("checkout", error=reason)
    update.finish_command("cancel", caused_by=CANCEL_CAUSES.get(reason, reason))
    if reason == "lost":
        update.finish_command("confirm", error="The hold is gone.", caused_by="payment")
    update.emit("cancelled", status=to, reason=reason)
    await run.save(update)
    ORDERS.labels(to).inc()


async def mark_paid_late(run: OrderRun, order: Order) -> None:
    await run.save(run.update(order).set_order(to="late_paid"))
    ORDERS.labels("late_paid").inc()


async def keep_sold(run: OrderRun, order: Order) -> None:
    """An operator decided to keep the sale."""
    await run.save(run.update(order).set_order(to=status_by_balance(order), end_reason=""))


async def review(run: OrderRun, order: Order) -> None:
    """Lets a person decide."""
    reason = MISMATCH if order.charges or order.authorised else "unknown"
    update = run.update(order).set_order(to="review", end_reason=reason)
    await run.save(update.record_failed_try("checkout", error=f"review: {reason}", caused_by=None))
    REVIEWS.labels(reason).inc()
    log.error("order.review", reference=order.reference, reason=reason)
