"""Price calculation: what an order costs with a discount, fees and taxes. Integers of minor units, no I/O.

Every discount, fee and tax is computed exactly, rounded once (half up) and split over the ticket lines in proportion.
What a ticket line bears of all of them is its `paid_minor`; these sum to the total of the order.

In a currency of three digits what changes the total is rounded to ten minor units, and so are its parts: card networks
take the last digit only as 0. Where a price is no such multiple itself, nothing is to be gained: the unit is kept.

Amounts that a configured provider can never charge are found when an event file or a promo code is applied, and at the
latest in the quote, so that no fan learns it at the last step. An amount of 0 is never charged, and always allowed.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from operator import add, sub
from typing import NamedTuple

from services.orders.model.order import Adjustment, AdjustmentKind, OrderLine
from services.orders.problems import AmountNotPayable
from services.orders.providers.provider import ChargeLimits, Provider
from shared.contracts.event_file import EventFile, SeatedSection
from shared.contracts.inventory import ReservedItem as Reserved
from shared.contracts.prices import Fee, PriceRules, Tax
from shared.errors.problems import InvalidRequest
from shared.rules.currencies import split, step_of
from shared.rules.money import format_money

HUNDRED_PERCENT = 100_000  # thousandths of a percent
NAMED_MAX = 5


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


class TicketPrice(NamedTuple):
    """A ticket that is for sale, and how a refusal names it."""

    field: str
    price_minor: int
    fee_minor: int = 0


def refusals(
    tickets: Iterable[TicketPrice], rules: PriceRules, currency: str, providers: Mapping[str, Provider]
) -> list[str]:
    """One sentence for each price and fee that one of the providers can never charge."""
    found = []
    for name, provider in providers.items():
        refused = _refused(tickets, rules, currency, provider.limits(currency))
        found += [f"{field}: {name} cannot charge it: {why}." for field, why in refused]
    return found


def require_chargeable(file: EventFile, providers: Mapping[str, Provider]) -> None:
    """Raises `InvalidRequest`."""
    rules = PriceRules(fees=file.fees, taxes=file.taxes)
    if found := refusals(list(_tickets(file)), rules, file.currency, providers):
        more = f" And {len(found) - NAMED_MAX} more." if len(found) > NAMED_MAX else ""
        raise InvalidRequest(" ".join(found[:NAMED_MAX]) + more)


def require_code_in_steps(amount_minor: int | None, currency: str, providers: Mapping[str, Provider]) -> None:
    """What a code takes off must leave an amount that can be charged. Raises `InvalidRequest`."""
    for name, provider in providers.items():
        step = provider.limits(currency).step_minor
        if (amount_minor or 0) % step:
            off = format_money(amount_minor or 0, currency)
            raise InvalidRequest(
                f"amount_minor: {off} is no multiple of {format_money(step, currency)}, as {name} needs."
            )


def require_payable(
    amount_minor: int, currency: str, providers: Mapping[str, Provider], *, by: Provider | None = None
) -> None:
    """Raises `AmountNotPayable` if no provider takes the amount, or the one that the fan chose does not."""
    if not amount_minor or (by is not None and by.limits(currency).refusal(amount_minor, currency) is None):
        return
    refused = [provider.limits(currency).refusal(amount_minor, currency) for provider in providers.values()]
    if all(refused):
        raise AmountNotPayable(f"The total cannot be paid here: {refused[0]}. Change the tickets or the promo code.")
    if by is not None:
        why = by.limits(currency).refusal(amount_minor, currency)
        raise AmountNotPayable(f"{by.name} cannot charge the total: {why}. Choose another way to pay.")


def _refused(
    tickets: Iterable[TicketPrice], rules: PriceRules, currency: str, limits: ChargeLimits
) -> Iterator[tuple[str, str]]:
    step = limits.step_minor
    in_steps = f"is no multiple of {format_money(step, currency)}"
    for n, fee in enumerate(rules.fees):
        if (fee.amount_minor or 0) % step:
            yield f"fees.{n}.amount_minor", f"{format_money(fee.amount_minor or 0, currency)} {in_steps}"
    for ticket in tickets:
        parts = {"price_minor": ticket.price_minor, "fee_minor": ticket.fee_minor}
        wrong = {name: minor for name, minor in parts.items() if minor % step}
        yield from ((f"{ticket.field}.{name}", f"{format_money(n, currency)} {in_steps}") for name, n in wrong.items())
        total = all_in(rules, [(ticket.price_minor + ticket.fee_minor, 1)], currency)
        if total and not wrong and (why := limits.refusal(total, currency)):
            yield ticket.field, f"one ticket with all fees and taxes: {why}"


def _tickets(file: EventFile) -> Iterator[TicketPrice]:
    for n, section in enumerate(file.sections):
        field = f"sections.{n}"
        yield TicketPrice(field, section.price_minor, section.fee_minor)
        for m, level in enumerate(section.price_levels if isinstance(section, SeatedSection) else ()):
            yield TicketPrice(f"{field}.price_levels.{m}", level.price_minor, level.fee_minor)
