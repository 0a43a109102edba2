"""The price of a reservation with a discount, fees and taxes: calculated, and quoted. A quote changes nothing.

`price` asks nobody. Amounts are integers of minor units. Every discount, fee and tax is computed exactly, rounded once
(half up) and split over the ticket lines in proportion. What a ticket line bears of all of them is its `paid_minor`;
these sum to the total of the order. In a currency of three digits what changes the total is rounded to ten minor units,
and so are its parts: card networks take the last digit only as 0. Where a price is no such multiple itself, nothing is
to be gained: the unit is kept. A fee or a tax for some price types sees the lines of these types only.

Amounts that a configured provider can never charge are found when an event file is applied, and at the latest in the
quote, so that no fan learns it at the last step. An amount of 0 is never charged, and always allowed.

An order is priced by the same code as its quote, compared with the price the fan was shown, and charged. An event's
rules are cached for a second, which does no harm: an order at another price than its fan was shown is refused.
Concurrent reads share one statement. What a code takes off is known to the feature that brings codes; without one every
code is refused.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from fractions import Fraction
from functools import cache
from operator import add, sub
from typing import Any, NamedTuple, Protocol

from cachetools import TTLCache

from services.orders.model.order import NO_TYPES, Adjustment, AdjustmentKind, OrderLine, TypeNames
from services.orders.model.view import adjustment_view, line_view
from services.orders.problems import AmountNotPayable, PromoCodeNotValid
from shared.concurrency.coalescing import GroupCommits
from shared.contracts.event_file import EventFile, SeatedSection
from shared.contracts.event_parts.names import NamesWanted
from shared.contracts.event_parts.price_types import USUAL
from shared.contracts.inventory import Reservation
from shared.contracts.inventory import ReservedItem as Reserved
from shared.contracts.prices import Fee, PriceRules, Tax
from shared.errors.problems import InvalidRequest, Problem
from shared.payment_provider import ChargeLimits, Provider
from shared.postgres.engine import AsyncConnection, AsyncEngine, statement
from shared.rules.currencies import format_money, split, step_of
from shared.rules.shares import within

_EVENT_RULES = statement(__package__, "event_rules")
HUNDRED_PERCENT = 100_000  # thousandths of a percent
NAMED_MAX = 5
RULES_TTL_S, EVENTS_MAX = 1.0, 1_000  # of the rules that are kept
BATCH_MAX, WAITING_MAX = 200, 5000


@dataclass(frozen=True, slots=True)
class Discount:
    """What is taken off each ticket line, at most its cost, and how the order shows it."""

    off: Sequence[int]
    shown: Adjustment


@dataclass(frozen=True, slots=True)
class Quote:
    """What a reservation costs: its ticket lines, and the adjustments that are in their prices; and the names that its
    order must bring.
    """

    lines: tuple[OrderLine, ...]
    extras: tuple[Adjustment, ...]
    types: TypeNames = NO_TYPES
    names: NamesWanted = "none"

    @property
    def total_minor(self) -> int:
        return sum(line.paid_minor for line in self.lines)


def price(
    lines: Sequence[Reserved], rules: PriceRules, discount: Discount | None = None, *, currency: str,
    types: TypeNames = NO_TYPES,
) -> Quote:  # fmt: skip
    """Discount first, then fees on what is left, then taxes on both."""
    type_ids = [types.shown(line.type_id) for line in lines]
    costs = [line.unit_price_minor * line.quantity for line in lines]
    step = step_of(currency, *(line.unit_price_minor for line in lines))
    extras: list[Adjustment] = []
    if discount is not None:
        costs = list(map(sub, costs, discount.off))
        extras.append(discount.shown)
    paid = costs
    for fee in rules.fees:
        parts = _fee_parts(fee, lines, _only(fee.types, type_ids, costs), step)
        if any(parts):
            paid = list(map(add, paid, parts))
            extras.append(adjustment("fee", fee.name, fee.percent, sum(parts)))
    taxable, included = paid, [_included(rules.taxes, type_id) for type_id in type_ids]
    tells_base = any(tax.types for tax in rules.taxes)
    for tax in rules.taxes:
        on = _only(tax.types, type_ids, taxable)
        amount_minor = _tax_amount(tax, on, included, step)
        if not tax.included:
            paid = list(map(add, paid, split(amount_minor, on, step)))
        if amount_minor:
            base_minor = _tax_base(tax, on, included) if tells_base else None
            extra = adjustment("tax", tax.name, tax.percent, amount_minor, included=tax.included)
            extras.append(replace(extra, base_minor=base_minor))
    priced = (OrderLine(**line.model_dump(), paid_minor=minor) for line, minor in zip(lines, paid, strict=True))
    return Quote(tuple(priced), tuple(extras), types)


def _only(types: Sequence[str], type_ids: Sequence[str | None], amounts: Sequence[int]) -> list[int]:
    """The amounts of lines of these price types, of all lines if none is named; 0 for the others."""
    if not types:
        return list(amounts)
    return [minor if type_id in types else 0 for type_id, minor in zip(type_ids, amounts, strict=True)]


class TicketsAt(NamedTuple):
    """Tickets at a price in minor units; `type_id` as it is stored."""

    price_minor: int
    quantity: int = 1
    type_id: str = USUAL


def all_in(rules: PriceRules, tickets: Sequence[TicketsAt], currency: str, types: TypeNames = NO_TYPES) -> int:
    """The total of an order of these tickets."""
    lines = [
        Reserved(section_id="", unit_price_minor=one.price_minor, quantity=one.quantity, type_id=one.type_id)
        for one in tickets
    ]
    return price(lines, rules, currency=currency, types=types).total_minor


def _fee_parts(fee: Fee, lines: Sequence[Reserved], costs: Sequence[int], step: int) -> list[int]:
    """What each ticket line bears of the fee: none without a cost. A percentage per ticket is rounded for each ticket
    line.
    """
    if fee.per == "ticket":
        if fee.percent is not None:
            return [percent_of(fee.percent, cost, step) for cost in costs]
        return [(fee.amount_minor or 0) * line.quantity if cost else 0 for line, cost in zip(lines, costs, strict=True)]
    if fee.percent is not None:
        return split(percent_of(fee.percent, sum(costs), step), costs, step)
    return split(fee.amount_minor or 0 if any(costs) else 0, costs, step)


def _included(taxes: Sequence[Tax], type_id: str | None) -> int:
    """All included taxes of tickets of this price type, in thousandths of a percent of their net price."""
    return sum(_thousandths(tax.percent) for tax in taxes if tax.included and (not tax.types or type_id in tax.types))


def _tax_amount(tax: Tax, on: Sequence[int], included: Sequence[int], step: int) -> int:
    """The tax on these prices of lines. An included tax is part of the price: 19 of 119. Several included taxes of a
    line share the same net price.
    """
    if not tax.included:
        return percent_of(tax.percent, sum(on), step)
    part = _sum_of_parts(on, [(_thousandths(tax.percent), HUNDRED_PERCENT + every) for every in included])
    return _half_up(part.numerator, part.denominator)


def _tax_base(tax: Tax, on: Sequence[int], included: Sequence[int]) -> int:
    """The amount that a tax is on: of an included one the prices without any included tax."""
    if not tax.included:
        return sum(on)
    part = _sum_of_parts(on, [(every, HUNDRED_PERCENT + every) for every in included])
    return sum(on) - _half_up(part.numerator, part.denominator)


def _sum_of_parts(amounts: Sequence[int], parts: Sequence[tuple[int, int]]) -> Fraction:
    """The exact sum of a part of each amount, given as (numerator, denominator)."""
    sums: dict[tuple[int, int], int] = {}
    for minor, part in zip(amounts, parts, strict=True):
        sums[part] = sums.get(part, 0) + minor
    return sum((Fraction(minor * numerator, whole) for (numerator, whole), minor in sums.items()), Fraction())


def percent_of(percent: Decimal, amount_minor: int, step: int) -> int:
    """Rounded half up to a multiple of `step`."""
    return _half_up(amount_minor * _thousandths(percent), HUNDRED_PERCENT * step) * step


def _thousandths(percent: Decimal) -> int:
    return int(percent * 1000)


def _half_up(numerator: int, denominator: int) -> int:
    return (2 * numerator + denominator) // (2 * denominator)


def adjustment(
    kind: AdjustmentKind, name: str, percent: Decimal | None, amount_minor: int, *, included: bool = False
) -> Adjustment:
    shown = None if percent is None else f"{percent.normalize():f}"
    return Adjustment(kind=kind, name=name, percent=shown, amount_minor=amount_minor, included=included)


class TicketPrice(NamedTuple):
    """A ticket that is for sale, how a refusal names it, and each `part` of its price; `type_id` as it is stored."""

    field: str
    parts: Mapping[str, int]
    type_id: str = USUAL


def refusals(
    tickets: Sequence[TicketPrice], rules: PriceRules, currency: str, providers: Mapping[str, Provider],
    types: TypeNames = NO_TYPES,
) -> list[str]:  # fmt: skip
    """One sentence for each price and fee that one of the providers can never charge."""

    @cache
    def total_of(price_minor: int, type_id: str) -> int:
        return all_in(rules, [TicketsAt(price_minor, type_id=type_id)], currency, types)

    found = []
    for name, provider in providers.items():
        refused = _refused(tickets, rules, currency, provider.limits(currency), total_of)
        found += [f"{field}: {name} cannot charge it: {why}." for field, why in refused]
    return found


def require_chargeable(file: EventFile, providers: Mapping[str, Provider]) -> None:
    """Raises `InvalidRequest`."""
    rules = PriceRules(fees=file.fees, taxes=file.taxes)
    if found := refusals(list(_tickets(file)), rules, file.currency, providers, TypeNames.of(file.price_types)):
        more = f" And {len(found) - NAMED_MAX} more." if len(found) > NAMED_MAX else ""
        raise InvalidRequest(" ".join(found[:NAMED_MAX]) + more)


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
    tickets: Sequence[TicketPrice], rules: PriceRules, currency: str, limits: ChargeLimits,
    total_of: Callable[[int, str], int],
) -> Iterator[tuple[str, str]]:  # fmt: skip
    step = limits.step_minor
    in_steps = f"is no multiple of {format_money(step, currency)}"
    for n, fee in enumerate(rules.fees):
        if (fee.amount_minor or 0) % step:
            yield f"fees.{n}.amount_minor", f"{format_money(fee.amount_minor or 0, currency)} {in_steps}"
    for ticket in tickets:
        wrong = {name: minor for name, minor in ticket.parts.items() if minor % step}
        yield from ((name, f"{format_money(n, currency)} {in_steps}") for name, n in wrong.items())
        total = total_of(sum(ticket.parts.values()), ticket.type_id)
        if total and not wrong and (why := limits.refusal(total, currency)):
            yield ticket.field, f"one ticket with all fees and taxes: {why}"


def _tickets(file: EventFile) -> Iterator[TicketPrice]:
    """A ticket of each section and price level, and of each price type that is sold there."""
    for n, section in enumerate(file.sections):
        levels = section.price_levels if isinstance(section, SeatedSection) else []
        places = {f"sections.{n}": section, **{f"sections.{n}.price_levels.{m}": one for m, one in enumerate(levels)}}
        sold = [
            each for each in file.price_types[1:]
            if (not each.sections or section.section_id in each.sections)
            and (not each.traits or set(each.traits) & set(section.traits))
        ]  # fmt: skip
        for field, place in places.items():
            parts = {f"{field}.price_minor": place.price_minor, f"{field}.fee_minor": place.fee_minor}
            yield TicketPrice(field, parts)
            for each in sold:
                minor = each.all_in_minor(place.price_minor, place.fee_minor, file.currency, place.prices)
                name = f"{field} for price type {each.type_id}"
                yield TicketPrice(name, {name: minor}, each.type_id)


class CodeUse(NamedTuple):
    """A use of a code, which is named by its key (`code_key`), by an order. Without a `customer_key` it is an anonymous
    quote: limits per customer are not checked.
    """

    event_id: str
    code: str
    customer_key: str = ""
    reference: str = ""


class Redeemed(NamedTuple):
    """Why uses are `refused`, by the reference of their order. The others are written by a `part` of the statement that
    inserts orders, `name AS (…)`, which knows the orders that are new as `created` and has values of its own `bound`.
    """

    refused: Mapping[str, Problem]
    part: str
    bound: Mapping[str, str]


class Codes(Protocol):
    """Codes that take something off a price, as a feature brings them."""

    async def discount(self, owner: str, reservation: Reservation, use: CodeUse, address: str | None) -> Discount:
        """Changes nothing. Raises `PromoCodeNotValid`, `TooManyWrongCodes`."""

    async def redeem(self, connection: AsyncConnection, uses: Sequence[CodeUse]) -> Redeemed:
        """Decides about the uses, in the transaction that writes their orders."""

    async def refusals(self, event_id: str, currency: str, step_minor: int) -> list[str]:
        """One sentence for each code that takes off no multiple of the step."""


class EventRules(NamedTuple):
    """An event's fees and taxes, the currency that they are rounded in, the share of its checkouts that workers process
    in the background, while the rest is processed inside the request, its price types, and the names that its orders
    bring.
    """

    rules: PriceRules
    currency: str
    background_percent: float
    types: TypeNames = NO_TYPES
    names: NamesWanted = "none"

    def all_in(self, *tickets: TicketsAt) -> int:
        """The total of an order of these tickets."""
        return all_in(self.rules, tickets, self.currency, self.types)


class Prices(GroupCommits):
    """Prices reservations. Use inside `async with`; `db` must commit each statement by itself. A feature that has codes
    fills in `codes`.
    """

    def __init__(self, db: AsyncEngine) -> None:
        super().__init__(batch_max=BATCH_MAX, waiting_max=WAITING_MAX, in_flight_max=1)
        self._db = db
        self.codes: Codes | None = None
        self._cache: TTLCache[str, EventRules] = TTLCache(EVENTS_MAX, RULES_TTL_S)
        self._read = self.grouped("orders-rules", self._read_rules)

    async def rules(self, event_id: str) -> EventRules:
        """The event's rules; no fees and taxes for an event without an event file, and all in the background."""
        return self._cache.get(event_id) or await self._read(event_id)

    async def in_background(self, event_id: str, holder: str) -> bool:
        """Whether workers process this fan's checkouts. The same fan is always on the same side, and a larger share
        only adds fans.
        """
        return within("background", event_id, holder, (await self.rules(event_id)).background_percent)

    def invalidate(self, event_id: str) -> None:
        """Drops the event's rules from the cache, because an operator changed them."""
        self._cache.pop(event_id, None)

    async def _read_rules(self, event_ids: list[str]) -> Sequence[EventRules]:
        async with self._db.connect() as connection:
            rows = await connection.execute(_EVENT_RULES, {"event_ids": list(set(event_ids))})
            found = {
                row.event_id: EventRules(
                    PriceRules.model_validate(row.rules), row.currency, row.background_percent,
                    TypeNames.read(row.price_types), row.names,
                )
                for row in rows
            }  # fmt: skip
        self._cache.update(found)
        return [found[event_id] for event_id in event_ids]

    async def quote(self, owner: str, reservation: Reservation, use: CodeUse | None, *, address: str | None) -> Quote:
        """Raises `PromoCodeNotValid`, `TooManyWrongCodes`."""
        event, discount = await self.rules(reservation.event_id), None
        if use is not None:
            if self.codes is None:
                raise PromoCodeNotValid(reason="unknown")
            discount = await self.codes.discount(owner, reservation, use, address)
        quoted = price(reservation.lines, event.rules, discount, currency=reservation.currency, types=event.types)
        return replace(quoted, names=event.names)


def quote_body(reservation: Reservation, quote: Quote) -> dict[str, Any]:
    """The body of a `QuoteAnswer`; the problem `price-changed` has it too, for the new price."""
    return {
        "reservation_id": reservation.reservation_id,
        "total_minor": quote.total_minor,
        "currency": reservation.currency,
        "lines": [line_view(line, quote.types) for line in quote.lines],
        "extras": [adjustment_view(extra) for extra in quote.extras],
        "names": quote.names,
    }
