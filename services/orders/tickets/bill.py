"""The bill of an order, for papers and mail: rows that add up to its total, what was paid and refunded, and its taxes.

Every amount that is in the total has a row: the tickets at their price, then each discount, fee and added tax. An
included tax is in the prices of the rows, so it is told with the taxed amounts alone.
"""

from datetime import UTC
from typing import NamedTuple

from services.orders.model.order import SALE_STATUSES, Adjustment, Order, OrderLine
from services.orders.tickets.show import ShowInfo
from shared.runtime.clock import to_datetime
from shared.words.words import Words, adjustment_name

Row = tuple[str, int]  # a name, and an amount in minor units of the order's currency
WrittenRow = tuple[str, str]


class Bill(NamedTuple):
    """`rows` add up to the total, which is the first of `sums`. `taxes` say each tax with the amounts it is on."""

    rows: list[Row]
    sums: list[Row]
    taxes: list[Row]

    def written(self, text: Words, currency: str) -> tuple[list[WrittenRow], list[WrittenRow], list[WrittenRow]]:
        """The three parts as they are printed, the taxes under a heading."""
        rows, sums, taxes = ([(name, text.money(minor, currency)) for name, minor in part] for part in self)
        if taxes:
            taxes.insert(0, (text("paper_taxes", amount=sums[0][1]), ""))
        return rows, sums, taxes


NO_BILL = Bill([], [], [])


def order_bill(order: Order, show: ShowInfo, text: Words) -> Bill:
    """The bill as the order is now; days are those of the venue."""
    tickets = [(_tickets(order, line, show, text), line.quantity * line.unit_price_minor) for line in order.lines]
    added = [(_name(extra, text), extra.amount_minor) for extra in order.extras if not extra.included]
    return Bill([*tickets, *added], _sums(order, show, text), _taxes(order, text))


def _tickets(order: Order, line: OrderLine, show: ShowInfo, text: Words) -> str:
    of_type = order.price_types.find(line.type_id)
    name = text("several", n=line.quantity, name=show.ticket(line.section_id, line.seat_id, of_type, text))
    return text("paper_returned", name=name, n=line.returned) if line.returned else name


def _name(extra: Adjustment, text: Words) -> str:
    return adjustment_name(text, kind=extra.kind, name=extra.name, percent=extra.percent)


def _sums(order: Order, show: ShowInfo, text: Words) -> list[Row]:
    """The total; each payment and what was returned of it; and what is left, if anything was."""
    sums = [(text("total"), order.total_minor)]
    paid = [c for c in order.charges if c.charge_ref == order.charge_ref or order.status not in SALE_STATUSES]
    for charge in paid:
        paid_on = text("paper_paid", date=day_of(show, charge.occurred_at_ms, text), provider=charge.provider)
        sums.append((paid_on, charge.amount_minor))
        pending = sum(r.amount_minor for r in order.refunds if r.charge_ref == charge.charge_ref)
        for name, back_minor in (("refunded", charge.refunded_minor - pending), ("refunding", pending)):
            if back_minor:
                sums.append((text(name), -back_minor))
    if any(charge.refunded_minor for charge in paid):
        left_minor = sum(charge.amount_minor - charge.refunded_minor for charge in paid)
        sums.append((text("paper_left"), left_minor))
    return sums


def _taxes(order: Order, text: Words) -> list[Row]:
    """Each tax with its net and gross amount: tickets and fees as they were sold, also where some were refunded since.
    Several included taxes have the same net amount; an added tax is on the prices with the included ones in them. Where
    some tax is for some price types only, each says which amount it is on.
    """
    taxes = [extra for extra in order.extras if extra.kind == "tax"]
    prices_minor = order.total_minor - sum(tax.amount_minor for tax in taxes if not tax.included)
    net_minor = prices_minor - sum(tax.amount_minor for tax in taxes if tax.included)
    rows = []
    for tax in taxes:
        base_minor = tax.base_minor
        if base_minor is None:
            base_minor = net_minor if tax.included else prices_minor
        net, gross = (text.money(minor, order.currency) for minor in (base_minor, base_minor + tax.amount_minor))
        rows.append((text("paper_taxed", tax=_name(tax, text), net=net, gross=gross), tax.amount_minor))
    return rows


def day_of(show: ShowInfo, at_ms: int, text: Words) -> str:
    """The day of this moment at the venue."""
    return text.date(to_datetime(at_ms).astimezone(show.starts_at.tzinfo if show.starts_at else UTC))
