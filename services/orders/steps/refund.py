"""The steps of a refund: money at the provider first, then tickets at inventory, each result written down.

A provider that fails is called again with the same key; one that rejects a refund for good sends the order to review.
"""

from services.orders.metrics import ORDERS, REVIEWS
from services.orders.model.order import SOLD_STATUSES, Order, Refund, TicketReturn, place_of
from services.orders.model.rules import OVERSELL, refund_row, status_after, status_by_balance
from services.orders.model.update import OrderUpdate
from services.orders.steps.purchase import report_outside
from services.orders.steps.run import OrderRun
from shared.contracts.inventory import GaQuantity, ReturnTickets
from shared.payment_provider import ProviderRejected
from shared.runtime.logging import get_logger

log = get_logger("onsale.orders")
REFUND_REJECTED = "refund-refused"
OPEN_SALES = SOLD_STATUSES | {"review"}  # an order whose last ticket came back without money moving is refunded


async def request(run: OrderRun, order: Order) -> None:
    """Requests a refund of every charge that pays for no sale; of an order in review, of all that is left."""
    reason = "review" if order.review_decision else "not-backed"
    update = run.update(order).begin_command("refund", caused_by="system")
    for charge in order.unmatched_charges:
        update.request_refund(refund_row(charge, reason=reason, requested_by="system"))
    await run.save(update)


async def send(run: OrderRun, order: Order) -> None:
    """Refunds the oldest requested refund at its provider."""
    refund = order.refunds[0]
    update = run.update(order)
    try:
        refund_ref = await run.parts.providers[refund.provider].refund(
            refund.charge_ref, amount_minor=refund.amount_minor, key=refund.idem_key
        )
    except ProviderRejected as refused:
        if not await _reduce_to_what_is_left(run, update, order):
            _record_rejection(update, order, str(refused))
    else:
        status = status_after(order, refund)
        update.add_row("refunds_done", id=refund.id, status="succeeded").add_row(
            "money", kind="refund", provider=refund.provider, amount_minor=refund.amount_minor,
            currency=refund.currency, charge_ref=refund.charge_ref, provider_ref=refund_ref,
        )  # fmt: skip
        if order.was_sold:
            kind = "oversold" if refund.reason == OVERSELL else "refunded"
            run.queue_mail(update, kind, about=str(refund.id), amount_minor=refund.amount_minor)
        if status == "refunded":
            update.void_tickets(reason=refund.reason)
        if status:
            update.set_order(status=status)
            if refund.reason == OVERSELL:
                update.set_order(end_reason=OVERSELL)
        if refund.command_id or len(order.refunds) == 1:
            _finish_command(update, refund)
        if order.was_sold and refund.charge_ref == order.charge_ref:
            _emit_refunded(update, amount_minor=refund.amount_minor, reason=refund.reason)
    await run.failpoint("after the refund")
    await run.save(update)


async def _reduce_to_what_is_left(run: OrderRun, update: OrderUpdate, order: Order) -> bool:
    """After a rejection: enters what moved at the provider itself. False if that does not explain the rejection."""
    refund = order.refunds[0]
    try:
        charge = await run.parts.providers[refund.provider].fetch(refund.charge_ref)
    except ProviderRejected:
        return False
    update.record_charges(refund.provider, [charge])
    withdrawn_minor = charge.dispute.withdrawn_minor if charge.dispute else 0
    left_minor = charge.amount_minor - (charge.refunded_minor or 0) - withdrawn_minor
    if left_minor >= refund.amount_minor:
        return False
    report_outside(run, update)
    left_minor, status = max(0, left_minor), "requested" if left_minor > 0 else "succeeded"
    idem_key = f"{refund.idem_key}:{left_minor}"  # another one, as its amount is another
    update.add_row("refunds_done", id=refund.id, status=status, amount_minor=left_minor, idem_key=idem_key)
    if not left_minor and (refund.command_id or len(order.refunds) == 1):
        _finish_command(update, refund)
    log.info("refund.reduced", reference=order.reference, left_minor=left_minor)
    return True


def _record_rejection(update: OrderUpdate, order: Order, reason: str) -> None:
    """Its tickets stay with the customer."""
    refund = order.refunds[0]
    update.return_tickets(refund.tickets, sign=-1).add_row("refunds_done", id=refund.id, status="refused")
    update.send_to_review(REFUND_REJECTED)
    _finish_command(update, refund, error=reason)
    REVIEWS.labels(REFUND_REJECTED).inc()
    log.error("refund.rejected", reference=order.reference, reason=reason)


async def return_tickets(run: OrderRun, order: Order) -> None:
    """Returns the tickets of a refund to inventory and stores its answer, also if inventory does not know them as
    this order's.
    """
    back = order.returns[0]
    done = await run.parts.inventory.return_tickets(_tickets_to_return(order, back))
    await run.failpoint("after the return")
    if done.outcome != "done":
        log.error("refund.tickets_not_returned", reference=order.reference, outcome=done.outcome)
    update = run.update(order).add_row("refunds_done", id=back.id, returned=done.outcome)
    lines = {line.line_no: line for line in order.lines}
    for line in (lines[ticket["line_no"]] for ticket in back.tickets):
        update.void_tickets(reason=back.reason, line_no=line.line_no, beyond=line.remaining)
    if order.status in OPEN_SALES and status_by_balance(order) == "refunded":
        update.set_order(status="refunded")
        _emit_refunded(update, amount_minor=0, reason=back.reason)
    await run.save(update)


async def mark_refunded(run: OrderRun, order: Order) -> None:
    """All money of an order without a sale is refunded."""
    update = run.update(order)
    update.set_order(status="refunded", ended_at_ms=order.ended_at_ms or update.at_ms)
    new_minor = 0 if order.was_sold else order.refunded_minor  # each refund of a sale had its event
    before_minor = order.refunded_minor - new_minor
    _emit_refunded(update, amount_minor=new_minor, reason=order.end_reason, before_minor=before_minor)
    run.queue_mail(update, "late", amount_minor=order.refunded_minor)
    await run.save(update)
    ORDERS.labels("refunded").inc()


def _finish_command(update: OrderUpdate, refund: Refund, *, error: str | None = None) -> None:
    """Ends the command that asked for this refund, or all of an order whose refunds have none."""
    place = place_of(refund.command_id)[1] if refund.command_id else None
    update.finish_command("refund", error=error, place=place)


def _emit_refunded(
    update: OrderUpdate, *, amount_minor: int, reason: str | None, before_minor: int | None = None
) -> None:
    """The event `order.refunded`: `amount_minor` now, `before_minor` by earlier refunds."""
    before_minor = update.order.refunded_minor if before_minor is None else before_minor
    update.emit(
        "refunded", amount_minor=amount_minor, refunded_minor=before_minor + amount_minor,
        charged_minor=update.order.charged_minor, reason=reason,
    )  # fmt: skip


def _tickets_to_return(order: Order, back: TicketReturn) -> ReturnTickets:
    seats = [ticket["seat_id"] for ticket in back.tickets if ticket["seat_id"]]
    lines = {line.line_no: line for line in order.lines}
    ga = [
        GaQuantity(section_id=t["section_id"], quantity=t["quantity"], type_id=lines[t["line_no"]].type_id)
        for t in back.tickets
        if not t["seat_id"]
    ]
    return ReturnTickets(
        return_id=f"{order.reference}.{back.id}", event_id=order.event_id, reservation_id=order.reservation_id,
        order_reference=order.reference, seats=seats, ga=ga, reason=back.reason, keep_blocked=not back.return_to_sale,
    )  # fmt: skip
