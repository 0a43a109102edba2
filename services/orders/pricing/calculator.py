"""Price calculation: what an order costs with a discount, fees and taxes. Integers of minor units, no I/O.

Every discount, fee and tax is computed exactly, rounded once (half up) and split over the ticket lines in proportion.
What a ticket line bears of all of them is its `paid_minor`; these sum to the total of the order.

In a currency of three digits what changes the total is rounded to ten minor units, and so are its parts: card networks
take the last digit only as 0. Where a price is no such multiple itself, nothing is to be gained: the unit is kept.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from operator import add, sub

from services.orders.model.amounts import split, step_of
from services.orders.model.order import Adjustment, AdjustmentKind, OrderLine
from shared.contracts.inventory import ReservedItem as Reserved
from shared.contracts.prices import Fee, PriceRules, Tax

HUNDRED_PERCENT = 100_000  # thousandths of a percent


@dataclass(frozen=True, slots=True, kw_only=True)
class Discount:
    """What a promo code takes off the tickets of these sections; no section means all."""

    name: str
    percent: Decimal | None
    amount_minor: int | None
    section_ids: frozenset[str]

    def covers(self, section_id: str) -> bool:
        return not self.section_ids or section_id in self.section_ids


@dataclass(frozen=True, slots=True)
class Quote:
    """What a reservation costs: its ticket lines, and the adjustments that are in their prices."""

    lines: tuple[OrderLine, ...]
    extras: tuple[Adjustment, ...]

    @property
    def total_minor(self) -> int:
        return sum(line.paid_minor for line in self.lines)


def price(lines: Sequence[Reserved], rules: PriceRules, discount: Discount | None = None, *, currency: str) -> Quote:
    """Discount first, then fees on what is left, then taxes on both."""
    costs = [line.unit_price_minor * line.quantity for line in lines]
    step = step_of(currency, *(line.unit_price_minor for line in lines))
    extras: list[Adjustment] = []
    if discount is not None:
        off = _discounts(discount, lines, costs, step)
        costs = list(map(sub, costs, off))
        extras.append(_adjustment("discount", discount, -sum(off)))
    paid = costs
    for fee in rules.fees:
        parts = _fee_parts(fee, lines, costs, step)
        if any(parts):
            paid = list(map(add, paid, parts))
            extras.append(_adjustment("fee", fee, sum(parts)))
    taxable = paid
    for tax in rules.taxes:
        amount_minor = _tax_amount(tax, rules.taxes, sum(taxable), step)
        if not tax.included:
            paid = list(map(add, paid, split(amount_minor, taxable, step)))
        if amount_minor:
            extras.append(_adjustment("tax", tax, amount_minor, included=tax.included))
    priced = (OrderLine(**line.model_dump(), paid_minor=minor) for line, minor in zip(lines, paid, strict=True))
    return Quote(tuple(priced), tuple(extras))


def all_in(rules: PriceRules, tickets: Sequence[tuple[int, int]], currency: str) -> int:
    """The total of an order of these tickets, given as (price in minor units, quantity)."""
    lines = [Reserved(section_id="", unit_price_minor=minor, quantity=quantity) for minor, quantity in tickets]
    return price(lines, rules, currency=currency).total_minor


def _discounts(discount: Discount, lines: Sequence[Reserved], costs: Sequence[int], step: int) -> list[int]:
    covered = [cost if discount.covers(line.section_id) else 0 for line, cost in zip(lines, costs, strict=True)]
    off = _percent(discount.percent, sum(covered), step) if discount.percent is not None else discount.amount_minor or 0
    return split(min(off, sum(covered)), covered, step)


def _fee_parts(fee: Fee, lines: Sequence[Reserved], costs: Sequence[int], step: int) -> list[int]:
    """What each ticket line bears of the fee. A percentage per ticket is rounded for each ticket line."""
    if fee.per == "ticket":
        if fee.percent is not None:
            return [_percent(fee.percent, cost, step) for cost in costs]
        return [(fee.amount_minor or 0) * line.quantity if cost else 0 for line, cost in zip(lines, costs, strict=True)]
    if fee.percent is not None:
        return split(_percent(fee.percent, sum(costs), step), costs, step)
    return split(fee.amount_minor or 0 if any(costs) else 0, costs, step)


def _tax_amount(tax: Tax, taxes: Sequence[Tax], taxable_minor: int, step: int) -> int:
    """An included tax is part of the price: 19 of 119. Several included taxes share the same net price."""
    if not tax.included:
        return _percent(tax.percent, taxable_minor, step)
    net = HUNDRED_PERCENT + sum(_thousandths(other.percent) for other in taxes if other.included)
    return _half_up(taxable_minor * _thousandths(tax.percent), net)


def _percent(percent: Decimal, amount_minor: int, step: int) -> int:
    return _half_up(amount_minor * _thousandths(percent), HUNDRED_PERCENT * step) * step


def _thousandths(percent: Decimal) -> int:
    return int(percent * 1000)


def _half_up(numerator: int, denominator: int) -> int:
    return (2 * numerator + denominator) // (2 * denominator)


def _adjustment(
    kind: AdjustmentKind, rule: Discount | Fee | Tax, amount_minor: int, *, included: bool = False
) -> Adjustment:
    percent = None if rule.percent is None else f"{rule.percent.normalize():f}"
    return Adjustment(kind=kind, name=rule.name, percent=percent, amount_minor=amount_minor, included=included)
