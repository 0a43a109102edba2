"""The steps of a purchase: the calls to a payment provider, what inventory holds for the order, and its end.

Whatever a provider answers is written down. An attempt is `unknown` before a charge is sent, not after: a crash during
the call leaves the true status behind.
"""

import unicodedata
from dataclasses import replace
from typing import Final

from services.orders.metrics import ORDERS, REVIEWS
from services.orders.model.order import LIVE_STATUSES, MISMATCH, Attempt, Order
from services.orders.model.rules import CAPTURES_MAX, OUTSIDE, status_by_balance
from services.orders.model.update import OrderUpdate
from services.orders.steps.run import OrderRun, payment_step
from services.orders.tickets.show import ShowInfo
from shared.payment_provider import (
    AlreadySucceeded,
    ChargeRequest,
    ChargeStatus,
    NotSent,
    OutcomeUnknown,
    ProviderCharge,
    ProviderRejected,
    ProviderTimeout,
    RateLimited,
    Unreachable,
)
from shared.runtime.logging import get_logger

log = get_logger("onsale.orders")
CANCEL_CAUSES = {"expired": "deadline", "lost": "inventory"}
CAPTURE_FAILED = "capture"  # end reason of a sale that was revoked
REFERENCE_PLACEHOLDER = (
    "{reference}"  # in a return_url: replaced by the reference, which the client cannot know before ordering
)
DESCRIPTION_MAX_CHARS, STATEMENT_MAX_CHARS = 200, 22
WITHOUT_MARKS: Final = str.maketrans({
    "ß": "ss", "ẞ": "SS", "æ": "ae", "Æ": "AE", "œ": "oe", "Œ": "OE", "ø": "o", "Ø": "O", "ł": "l", "Ł": "L",
    "đ": "d", "Đ": "D", "ð": "d", "Ð": "D", "þ": "th", "Þ": "Th", "ı": "i", "–": "-", "—": "-",
})  # fmt: skip
MONTHS: Final = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
SIGNS: Final = frozenset(" -.,:&+/#!()")  # besides letters and digits; banks print no others reliably


async def charge(run: OrderRun, order: Order) -> OrderUpdate | None:
    """Sends the charge and returns the provider's answer as an update that is not written yet; None if there is no
    outcome. An attempt that was not sent before is written as `unknown` first.
    """
    attempt = _attempt(order)
    if attempt.status == "created":
        order = await _write_attempt(run, order, attempt, status="unknown")
    request = _charge_request(order, attempt, await run.parts.shows.read(order.event_id))
    await run.failpoint("before the provider")
    is_first, run.is_first_call = run.is_first_call or attempt.status == "created", False
    try:
        charge = await run.parts.providers[attempt.provider].create(request)
    except (NotSent, OutcomeUnknown) as failed:
        never_sent = isinstance(failed, NotSent) and is_first
        status = "created" if never_sent else "unknown"
        await _after_failed_charge(run, order, replace(attempt, status=status), failed)
        return None
    except ProviderRejected as refused:
        await _write_attempt(run, order, attempt, status="failed", reason=str(refused))
        return None
    await run.failpoint("after the provider")
    return run.update(order).record_charges(attempt.provider, [charge])


async def _after_failed_charge(run: OrderRun, order: Order, attempt: Attempt, failed: Exception) -> None:
    """Raises to retry later, for as long as the provider is unreachable. An error counts against the attempt only
    if the provider answers a lookup right after it; after `payment_retries` of those the attempt has failed.
    """
    await _write_attempt(run, order, attempt, status=attempt.status)
    order, statuses = await _statuses_after(failed, run)
    if attempt.provider_key in statuses:
        return
    errors = attempt.errors + 1
    if errors > run.parts.tuning.payment_retries:
        await _write_attempt(run, order, attempt, status="failed", reason="provider-error")
        return
    await _write_attempt(run, order, attempt, errors=errors)
    raise failed


async def _statuses_after(failed: Exception, run: OrderRun) -> tuple[Order, dict[str, ChargeStatus]]:
    """The order, and the status of each charge by key, as the provider has them now. Raises `failed` if it says that a
    lookup would fail, too.
    """
    if isinstance(failed, ProviderTimeout | Unreachable | RateLimited):
        raise failed
    order = await run.parts.store.read_claimed(run.claim)
    order, found = await _sync_charges(run, order)
    return order, {charge.key: charge.status for _, charge in found}


async def sync_provider(run: OrderRun, order: Order) -> None:
    """Reads every charge of this order. An unknown attempt that no provider has is cancelled, and so is an
    authorisation of an attempt that has ended or is not ours.
    """
    order, found = await _sync_charges(run, order)
    attempt = _attempt(order)
    if attempt.status == "unknown" and attempt.provider_key not in {charge.key for _, charge in found}:
        order = await _write_attempt(run, order, attempt, status="cancelled", reason=None)
    for name, charge in found:
        is_live = attempt.status in LIVE_STATUSES and charge.key == attempt.provider_key
        if charge.status == "authorised" and not is_live:
            order, _ = await _cancel_at_provider(run, order, name, charge.charge_ref)


async def _sync_charges(run: OrderRun, order: Order) -> tuple[Order, list[tuple[str, ProviderCharge]]]:
    """Reads every charge under this reference at all providers, the live one by its own id, and records them.
    Returns the order as it is then.
    """
    charges: list[tuple[str, ProviderCharge]] = []
    for name in order.providers:
        charges += [(name, charge) for charge in await run.parts.providers[name].find(order.reference)]
    attempt, keys = _attempt(order), {charge.key for _, charge in charges}
    if attempt.status in LIVE_STATUSES and attempt.provider_ref and attempt.provider_key not in keys:
        charges.append((attempt.provider, await _fetch(run, attempt.provider, attempt.provider_ref)))
    for name in order.providers:
        of_provider = [charge for owner, charge in charges if owner == name]
        order = await _record_charges(run, order, name, of_provider, syncs=name == order.providers[-1])
    return order, charges


async def cancel_charge(run: OrderRun, order: Order) -> None:
    """Raises `OutcomeUnknown` to retry later if the charge cannot be cancelled yet."""
    attempt = _attempt(order)
    assert attempt.provider_ref is not None
    _, charge = await _cancel_at_provider(run, order, attempt.provider, attempt.provider_ref)
    if charge.status in LIVE_STATUSES:
        raise OutcomeUnknown(f"still {charge.status}")


async def _cancel_at_provider(run: OrderRun, order: Order, name: str, charge_ref: str) -> tuple[Order, ProviderCharge]:
    try:
        charge = await run.parts.providers[name].cancel(charge_ref)
    except AlreadySucceeded:
        charge = await _fetch(run, name, charge_ref)
    return await _record_charges(run, order, name, [charge]), charge


async def _fetch(run: OrderRun, name: str, charge_ref: str) -> ProviderCharge:
    try:
        return await run.parts.providers[name].fetch(charge_ref)
    except ProviderRejected as lost:
        raise OutcomeUnknown(f"the provider does not know {charge_ref} any more") from lost


async def capture(run: OrderRun, order: Order) -> None:
    """Captures what was authorised. An error counts only if the provider answers a lookup right after it; a
    rejection is final.
    """
    attempt = _attempt(order)
    assert attempt.provider_ref is not None
    try:
        charge = await run.parts.providers[attempt.provider].capture(attempt.provider_ref)
    except ProviderRejected:
        await _write_attempt(run, order, attempt, errors=CAPTURES_MAX)
        return
    except (NotSent, OutcomeUnknown) as failed:
        await _after_failed_capture(run, order, attempt, failed)
        return
    await run.failpoint("after the capture")
    await _record_charges(run, order, attempt.provider, [charge])


async def _after_failed_capture(run: OrderRun, order: Order, attempt: Attempt, failed: Exception) -> None:
    order, now = await _statuses_after(failed, run)
    if now.get(attempt.provider_key) == "authorised":
        await _write_attempt(run, order, attempt, errors=attempt.errors + 1)
        raise failed


async def _record_charges(
    run: OrderRun, order: Order, provider: str, charges: list[ProviderCharge], *, syncs: bool = False
) -> Order:
    """Writes what is new. These are all charges of the order with `syncs`: then a sync that was requested is done. A
    single charge tells of itself alone.
    """
    update = run.update(order).record_charges(provider, charges)
    update.bumps_version, update.synced = update.has_news, syncs
    if update.bumps_version or (syncs and order.sync_requested):
        report_outside(run, update)
        return await run.save(update)
    return order


async def abandon_attempt(run: OrderRun, order: Order) -> None:
    await _write_attempt(run, order, _attempt(order), status="cancelled", reason=None)


async def _write_attempt(run: OrderRun, order: Order, attempt: Attempt, **sets: object) -> Order:
    return await run.save(run.update(order).set_attempt(attempt, **sets))


def report_outside(run: OrderRun, update: OrderUpdate) -> None:
    """Tells the customer of a refund outside that ended the sale, and the operators what they have to decide."""
    if update.changed.get("status") == "refunded":
        amount_minor = sum(row["amount_minor"] for part, row in update.rows if part == "refunds_requested")
        run.queue_mail(update, "refunded", about=OUTSIDE, amount_minor=amount_minor)
    if reason := update.changed.get("end_reason"):
        REVIEWS.labels(reason).inc()
        log.warning("order.review", reference=update.order.reference, reason=reason)


def _attempt(order: Order) -> Attempt:
    assert order.attempt is not None
    return order.attempt


def _charge_request(order: Order, attempt: Attempt, show: ShowInfo) -> ChargeRequest:
    return ChargeRequest(
        reference=order.reference,
        key=attempt.provider_key,
        amount_minor=attempt.amount_minor,
        currency=attempt.currency,
        method=attempt.method,
        token=attempt.token,
        return_url=attempt.return_url and attempt.return_url.replace(REFERENCE_PLACEHOLDER, order.reference),
        capture=attempt.capture,
        event_id=order.event_id,
        description=description(show, order.reference),
        statement=statement(show, order.reference),
    )


def description(show: ShowInfo, reference: str) -> str:
    """What a charge is for, on the provider's dashboard and receipts: event, day and order, as
    `Night 1, 2027-05-01, 7Q2M4XK9TB1C`; the name is cut if it is too long.
    """
    rest = ", ".join([*([f"{show.starts_at:%Y-%m-%d}"] if show.starts_at else []), reference])
    name = " ".join(show.name.split())[: DESCRIPTION_MAX_CHARS - len(rest) - 2].strip()
    return f"{name or show.event_id}, {rest}"


def statement(show: ShowInfo, reference: str) -> str:
    """What the statement of the fan's card says: event and day, as `Night 1 Arena 1 May`. It has room for 22 characters
    of Latin script and few signs. A name that is mostly written otherwise is replaced by the event's id, or by the
    order's reference.
    """
    name = _latin(show.name) or _latin(show.event_id) or f"Order {_latin(reference)}"
    day = f" {show.starts_at.day} {MONTHS[show.starts_at.month - 1]}" if show.starts_at else ""
    return name[: STATEMENT_MAX_CHARS - len(day)].rstrip(" -.,:&+/#(") + day


def _latin(text: str) -> str:
    """The text in plain Latin letters; empty unless most of its letters can be written so."""
    plain = unicodedata.normalize("NFKD", text.translate(WITHOUT_MARKS))
    kept = "".join(sign for sign in plain if sign.isascii() and (sign.isalnum() or sign in SIGNS))
    letters, latin = sum(map(str.isalpha, plain)), sum(map(str.isalpha, kept))
    return " ".join(kept.split()).strip(" -.,:&+/") if latin * 2 > letters else ""


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
    update = run.update(order).set_order(end_reason="taken", review_decision=None)
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
    update.set_order(status="cancelled", ended_at_ms=update.at_ms, released=True, end_reason=CAPTURE_FAILED)
    await run.save(update.emit("cancelled", reason=CAPTURE_FAILED))
    ORDERS.labels("cancelled").inc()


async def _mark_confirmed(run: OrderRun, order: Order, payment: OrderUpdate | None = None) -> Order:
    """Writes the sale, with `payment` if that is not written yet. Returns the order as it is sold."""
    charge, promised = order.matching_charge(), order.authorised
    charge_ref = charge.charge_ref if charge else promised.provider_ref if promised else order.charge_ref
    update = payment or run.update(order)
    update.set_order(
        status="confirmed", confirmed_at_ms=update.at_ms, ended_at_ms=update.at_ms, end_reason=None,
        charge_ref=charge_ref,
    ).emit("confirmed")  # fmt: skip
    update.finish_command("checkout").finish_command("confirm", caused_by="payment")
    update.finish_command("cancel", error="paid before")
    if order.status == "late_paid":
        update.finish_command("reserve", caused_by="late payment")
    run.queue_mail(update, "confirmed")
    if update.after().is_paid:
        update.set_order(fulfilled_at_ms=update.at_ms)
    run.release_if_done(update)
    sold = await run.save(update)
    ORDERS.labels("confirmed").inc()
    return sold


async def issue_tickets(run: OrderRun, order: Order) -> None:
    """Its money was captured after it was confirmed: its tickets are valid from now on."""
    update = run.update(order)
    await run.save(update.set_order(fulfilled_at_ms=update.at_ms).emit("fulfilled"))


async def cancel(run: OrderRun, order: Order) -> None:
    await _end_order(run, order, to="cancelled", reason=order.end_reason or "provider")


async def expire(run: OrderRun, order: Order) -> None:
    await _end_order(run, order, to="expired", reason="operator" if order.review_decision else "expired")


async def _end_order(run: OrderRun, order: Order, *, to: str, reason: str) -> None:
    update = run.update(order).finish_command("checkout", error=reason)
    update.set_order(status=to, ended_at_ms=update.at_ms, end_reason=reason)
    update.finish_command("cancel", caused_by=CANCEL_CAUSES.get(reason, reason))
    if reason == "lost":
        update.finish_command("confirm", error="The hold is gone.", caused_by="payment")
    update.emit("cancelled", reason=reason)
    await run.save(update)
    ORDERS.labels(to).inc()


async def mark_paid_late(run: OrderRun, order: Order) -> None:
    await run.save(run.update(order).set_order(status="late_paid"))
    ORDERS.labels("late_paid").inc()


async def keep_sold(run: OrderRun, order: Order) -> None:
    """An operator decided to keep the sale."""
    await run.save(run.update(order).set_order(status=status_by_balance(order), end_reason=None))


async def review(run: OrderRun, order: Order) -> None:
    """Lets a person decide."""
    reason = MISMATCH if order.charges or order.authorised else "unknown"
    update = run.update(order).set_order(status="review", end_reason=reason)
    await run.save(update.record_failed_try("checkout", error=f"review: {reason}", caused_by=None))
    REVIEWS.labels(reason).inc()
    log.error("order.review", reference=order.reference, reason=reason)
