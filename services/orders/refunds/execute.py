"""The cashier's side of giving back: money by the provider first, then tickets by inventory, each written down.

A provider that fails is asked again under the same key; one that says never leaves the order to a person.
"""

import logging
from collections.abc import Callable, Mapping

from services.orders.checkout.inventory_client import InventoryBatcher
from services.orders.metrics import ORDERS, REVIEWS
from services.orders.order.next_step import Order, TicketReturn
from services.orders.order.repository import OrderRepository
from services.orders.order.updates import Lease, OrderUpdate
from services.orders.payments.charge import Failpoint
from services.orders.payments.provider import Provider, ProviderRejected
from services.orders.refunds.plan import OVERSELL, status_after, status_by_balance
from shared.contracts.inventory import SomeGa, TicketsBack
from shared.runtime.logging import data

log = logging.getLogger("onsale.orders")
REFUSED = "refund-refused"


class RefundExecutor:
    """The steps that give money and tickets back."""

    def __init__(
        self,
        *,
        book: OrderRepository,
        stock: InventoryBatcher,
        providers: Mapping[str, Provider],
        failpoint: Failpoint,
        mail: Callable[..., None],
    ) -> None:
        self._book, self._stock, self._providers, self._failpoint = book, stock, providers, failpoint
        self._mail = mail

    async def ask(self, lease: Lease, seen: Order) -> None:
        """All that no sale stands behind, and in a review all there is."""
        reason = "review" if seen.decided else "not-backed"
        change = OrderUpdate(lease, seen).begin_command("refund", caused_by="system")
        for charge in seen.unmatched_charges:
            change.ask_refund(charge, reason=reason, asked_by="system")
        await self._book.write(change)

    async def send(self, lease: Lease, seen: Order) -> None:
        refund = seen.refunds[0]
        change = OrderUpdate(lease, seen)
        try:
            refund_ref = await self._providers[refund.provider].refund(
                refund.charge_ref, amount_minor=refund.amount_minor, key=refund.idem_key
            )
        except ProviderRejected as refused:
            self._refused(change, seen, str(refused))
        else:
            status = status_after(seen, refund)
            change.finish_refund(refund.id, status="succeeded").money(
                "refund", refund.provider, amount_minor=refund.amount_minor, currency=refund.currency,
                charge_ref=refund.charge_ref, provider_ref=refund_ref,
            )  # fmt: skip
            if seen.sold:
                kind = "oversold" if refund.reason == OVERSELL else "refunded"
                self._mail(change, kind, about=str(refund.id), amount_minor=refund.amount_minor)
            if status == "refunded":
                change.void_tickets(reason=refund.reason)
            if status:
                change.order(to=status, **({"end_reason": OVERSELL} if refund.reason == OVERSELL else {}))
            if refund.command_id or len(seen.refunds) == 1:
                change.command("refund", command_id=refund.command_id)
            if seen.sold and refund.charge_ref == seen.charge_ref:
                _tell(change, seen, status=status or seen.status, amount_minor=refund.amount_minor,
                      before_minor=seen.refunded_minor, reason=refund.reason)  # fmt: skip
        await self._failpoint("after the refund", seen.reference)
        await self._book.write(change)

    def _refused(self, change: OrderUpdate, seen: Order, why: str) -> None:
        refund = seen.refunds[0]
        change.finish_refund(refund.id, status="refused").order(end_reason=REFUSED, undecided=True)
        if seen.status != "review":
            change.order(to="review")
        change.command("refund", error=why, command_id=refund.command_id)
        REVIEWS.labels(REFUSED).inc()
        log.error("refund.refused", extra=data(reference=seen.reference, reason=why))

    async def return_tickets(self, lease: Lease, seen: Order) -> None:
        """Whatever inventory answers is kept: tickets it does not know as this order's are nothing it could give."""
        back = seen.returns[0]
        done = await self._stock.return_tickets(_tickets(seen, back))
        await self._failpoint("after the return", seen.reference)
        if done.word != "done":
            log.error("refund.not_returned", extra=data(reference=seen.reference, word=done.word))
        change = OrderUpdate(lease, seen).finish_return(back.id, word=done.word)
        lines = {line.line_no: line for line in seen.lines}
        for line in (lines[ticket["line_no"]] for ticket in back.tickets):
            change.void_tickets(reason=back.reason, line_no=line.line_no, beyond=line.remaining)
        if seen.sale_charge is None and seen.status == "confirmed" and status_by_balance(seen) == "refunded":
            change.order(to="refunded")
            _tell(change, seen, status="refunded", amount_minor=0, before_minor=seen.refunded_minor, reason=back.reason)
        await self._book.write(change)

    async def close(self, lease: Lease, seen: Order) -> None:
        change = OrderUpdate(lease, seen).order(to="refunded")
        told_minor = seen.refunded_minor if seen.sold else 0  # each refund of a sale was told as it was made
        just_minor = seen.refunded_minor - told_minor
        _tell(change, seen, status="refunded", amount_minor=just_minor, before_minor=told_minor, reason=seen.end_reason)
        self._mail(change, "late", amount_minor=seen.refunded_minor)
        if seen.ended_at_ms is None:
            change.order(ended=True)
        await self._book.write(change)
        ORDERS.labels("refunded").inc()


def _tell(
    change: OrderUpdate, seen: Order, *, status: str, amount_minor: int, before_minor: int, reason: str | None
) -> None:
    """That money went back: `amount_minor` just now, and with what went back before as much as the order shows."""
    change.emit(
        "refunded", status=status, amount_minor=amount_minor, refunded_minor=before_minor + amount_minor,
        charged_minor=seen.charged_minor, reason=reason,
    )  # fmt: skip


def _tickets(seen: Order, back: TicketReturn) -> TicketsBack:
    seats = [ticket["seat_id"] for ticket in back.tickets if ticket["seat_id"]]
    ga = [SomeGa(section_id=t["section_id"], quantity=t["quantity"]) for t in back.tickets if not t["seat_id"]]
    return TicketsBack(
        return_id=f"{seen.reference}.{back.id}", reservation_id=seen.reservation_id, order_reference=seen.reference,
        seats=seats, ga=ga, reason=back.reason, keep_blocked=not back.to_sale,
    )  # fmt: skip
