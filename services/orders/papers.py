"""An order on paper: its tickets and its receipt, in the words of its show."""

from services.orders.amounts import money
from services.orders.events import Show
from services.orders.printing import Receipt, TicketPage
from services.orders.states import SALE
from services.orders.steps import Order
from services.orders.tickets import Codes, Issued
from shared.clock import to_datetime


def pages(order: Order, show: Show, tickets: list[Issued], codes: Codes) -> list[TicketPage]:
    """A page for every ticket that is good. A code that moves cannot be printed."""
    return [
        TicketPage(
            show.name, show.when, show.venue, show.place(one.section_id, one.seat_id), order.reference, one.ticket_id,
            None if codes.window_s else codes.code(order, one),
        )
        for one in tickets
        if one.is_valid
    ]  # fmt: skip


def receipt(order: Order, show: Show, *, seller: str) -> Receipt:
    """What was bought, paid and given back. A price has its fees in it."""
    rows = [
        (f"{line.quantity} × {show.place(line.section_id, line.seat_id)}",
         money(line.quantity * line.unit_price_minor, order.currency))
        for line in order.lines
    ]  # fmt: skip
    sums = [("Total, fees included", money(order.total_minor, order.currency))]
    paid = [c for c in order.charges if c.charge_ref == order.charge_ref or order.status not in SALE]
    for charge in paid:
        at = to_datetime(charge.occurred_at_ms)
        sums.append((f"Paid on {at:%Y-%m-%d} by {charge.provider}", money(charge.amount_minor, charge.currency)))
        on_its_way = sum(r.amount_minor for r in order.refunds if r.charge_ref == charge.charge_ref)
        if back := charge.refunded_minor - on_its_way:
            sums.append(("Refunded", money(-back, charge.currency)))
    ordered = to_datetime(order.created_at_ms)
    facts = (f"Ordered on {ordered:%Y-%m-%d} by {order.customer_name}", f"Status: {order.status.replace('_', ' ')}")
    return Receipt(
        seller, show.name, ", ".join(filter(None, (show.when, show.venue))), order.reference, facts, rows, sums
    )
