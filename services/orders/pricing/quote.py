"""The price of a reservation with a discount, fees and taxes: calculated, and quoted. A quote changes nothing.

`price` asks nobody. Amounts are integers of minor units. Every discount, fee and tax is computed exactly, rounded once
(half up) and split over the ticket lines in proportion. What a ticket line bears of all of them is its `paid_minor`;
these sum to the total of the order. In a currency of three digits what changes the total is rounded to ten minor units,
and so are its parts: card networks take the last digit only as 0. Where a price is no such multiple itself, nothing is
to be gained: the unit is kept.

Amounts that a configured provider can never charge are found when an event file or a promo code is applied, and at the
latest in the quote, so that no fan learns it at the last step. An amount of 0 is never charged, and always allowed.

An order is priced by the same code as its quote, compared with the price the fan was shown, and charged. An event's
rules are cached for a second, which does no harm: an order at another price than its fan was shown is refused. Promo
codes are read as they are now, with their uses counted from redemptions. A redemption of a limited code locks the code
before it counts, so two at once cannot both take the last use. Concurrent reads share one statement.
"""

from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from operator import add, sub
from typing import Any, Final, Literal, NamedTuple

from cachetools import TTLCache

from services.orders.model.order import Adjustment, AdjustmentKind, OrderLine
from services.orders.model.view import adjustment_view, line_view
from services.orders.problems import AmountNotPayable, PromoCodeNotValid
from shared.concurrency.coalescing import GroupCommits
from shared.contracts.event_file import EventFile, SeatedSection
from shared.contracts.fields import code_key
from shared.contracts.inventory import Reservation, ReservedItem
from shared.contracts.inventory import ReservedItem as Reserved
from shared.contracts.prices import Fee, PriceRules, Tax
from shared.errors.problems import InvalidRequest
from shared.payment_provider import ChargeLimits, Provider
from shared.postgres.engine import AsyncConnection, AsyncEngine, statement
from shared.rules.currencies import split, step_of
from shared.rules.money import format_money
from shared.rules.rollout import within
from shared.security.limits import AddressGuessLimiter, GuessLimiter

_EVENT_RULES = statement(__package__, "event_rules")
_READ = statement(__package__, "promo_codes")
_LOCK = statement(__package__, "lock_promo_codes")
HUNDRED_PERCENT = 100_000  # thousandths of a percent
NAMED_MAX = 5
RULES_TTL_S, EVENTS_MAX = 1.0, 1_000  # of the rules that are kept
BATCH_MAX, WAITING_MAX = 200, 5000


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


RejectionReason = Literal["unknown", "sections", "minimum-tickets", "used-up", "customer-limit"]
MESSAGES: Final[dict[RejectionReason, str]] = {
    "unknown": "This promo code is not valid.",
    "sections": "This promo code is not valid for these tickets.",
    "minimum-tickets": "This promo code needs more tickets.",
    "used-up": "This promo code has been used up.",
    "customer-limit": "You have used this promo code as often as a customer may.",
}


class Redemption(NamedTuple):
    """A use of a code, which is named by its key (`code_key`). An empty `customer_key` means an anonymous quote: limits
    per customer are not checked.
    """

    event_id: str
    code: str
    customer_key: str = ""


def redemption_of(reservation: Reservation, code: str | None, customer_key: str = "") -> Redemption | None:
    """The use of this code by an order of the reservation; None without a code."""
    return None if code is None else Redemption(reservation.event_id, code_key(code), customer_key)


@dataclass(frozen=True, slots=True, kw_only=True)
class PromoCode:
    """A code with its uses as they are now. `is_active`: not deactivated, and within its validity."""

    event_id: str
    code: str
    written: str | None
    customer_key: str
    percent: Decimal | None
    amount_minor: int | None
    uses_max: int | None
    customer_uses_max: int | None
    section_ids: list[str]
    tickets_min: int
    uses: int
    customer_uses: int
    is_active: bool

    @property
    def discount(self) -> Discount:
        sections = frozenset(self.section_ids)
        return Discount(
            name=self.written or self.code, percent=self.percent, amount_minor=self.amount_minor, section_ids=sections
        )

    def over_limit(self, *, uses: int, customer_uses: int) -> RejectionReason | None:
        """The limit that these additional uses would exceed, if any."""
        if self.uses_max is not None and self.uses + uses > self.uses_max:
            return "used-up"
        if self.customer_uses_max is not None and self.customer_uses + customer_uses > self.customer_uses_max:
            return "customer-limit"
        return None


def validate(promo: PromoCode | None, lines: Sequence[ReservedItem]) -> RejectionReason | None:
    """Why this code takes nothing off these tickets; None if it is valid. A code that does not exist, is deactivated or
    is outside its validity is `unknown` alike, so that guessing reveals nothing.
    """
    if promo is None or not promo.is_active:
        return "unknown"
    discount = promo.discount
    tickets = sum(line.quantity for line in lines if discount.covers(line.section_id))
    if not tickets:
        return "sections"
    if tickets < promo.tickets_min:
        return "minimum-tickets"
    return promo.over_limit(uses=1, customer_uses=1)


async def _read_promo_codes(connection: AsyncConnection, redemptions: Sequence[Redemption]) -> list[PromoCode | None]:
    """The code of each redemption, in order; None if it does not exist."""
    bound = {
        "event_ids": [use.event_id for use in redemptions], "codes": [use.code for use in redemptions],
        "customer_keys": [use.customer_key for use in redemptions],
    }  # fmt: skip
    rows = (await connection.execute(_READ, bound)).mappings()
    found = {(row["event_id"], row["code"], row["customer_key"]): PromoCode(**row) for row in rows}
    return [found.get(use) for use in redemptions]


async def rejections(connection: AsyncConnection, uses: Sequence[Redemption]) -> list[RejectionReason | None]:
    """The limit that each of these redemptions exceeds, after those before it; None if it is granted. Nobody else can
    redeem their codes until the transaction ends. A repeated request counts its own earlier order, but its key answers
    before this.
    """
    bound = {"event_ids": [use.event_id for use in uses], "codes": [use.code for use in uses]}
    await connection.execute(_LOCK, bound)
    granted: Counter[tuple[str, ...]] = Counter()
    answers: list[RejectionReason | None] = []
    for use, promo in zip(uses, await _read_promo_codes(connection, uses), strict=True):
        assert promo is not None, "codes are never deleted"
        code = use[:2]
        answers.append(promo.over_limit(uses=granted[code] + 1, customer_uses=granted[use] + 1))
        if answers[-1] is None:
            granted[code] += 1
            granted[use] += 1
    return answers


class EventRules(NamedTuple):
    """An event's fees and taxes, the currency that they are rounded in, and the share of its checkouts that workers
    process in the background; the rest is processed inside the request.
    """

    rules: PriceRules
    currency: str
    background_percent: float


class Prices(GroupCommits):
    """Prices reservations. Wrong promo codes are counted against the customer and the address that tried them. Use
    inside `async with`; `db` must commit each statement by itself.
    """

    def __init__(self, db: AsyncEngine, guesses: GuessLimiter, guesses_of_addresses: AddressGuessLimiter) -> None:
        super().__init__(batch_max=BATCH_MAX, waiting_max=WAITING_MAX, in_flight_max=1)
        self._db, self._guesses, self._guesses_of_addresses = db, guesses, guesses_of_addresses
        self._cache: TTLCache[str, EventRules] = TTLCache(EVENTS_MAX, RULES_TTL_S)
        self._read = self.grouped("orders-rules", self._read_rules)
        # Reads a promo code with its uses as they are now; None if it does not exist.
        self.code: Callable[[Redemption], Awaitable[PromoCode | None]]
        self.code = self.grouped("orders-promo", self._read_codes)

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
            found = {event_id: EventRules(PriceRules.model_validate(rules), *rest) for event_id, rules, *rest in rows}
        self._cache.update(found)
        return [found[event_id] for event_id in event_ids]

    async def _read_codes(self, redemptions: list[Redemption]) -> Sequence[PromoCode | None]:
        async with self._db.connect() as connection:
            return await _read_promo_codes(connection, redemptions)

    async def quote(
        self, owner: str, reservation: Reservation, redemption: Redemption | None, *, address: str | None
    ) -> Quote:
        """Raises `PromoCodeNotValid`, `TooManyWrongCodes`."""
        rules = (await self.rules(reservation.event_id)).rules
        discount = await self._discount(owner, reservation, redemption, address) if redemption is not None else None
        return price(reservation.lines, rules, discount, currency=reservation.currency)

    async def _discount(
        self, owner: str, reservation: Reservation, redemption: Redemption, address: str | None
    ) -> Discount:
        async with (
            self._guesses_of_addresses.guess(reservation.event_id, address) as guess,
            self._guesses.guess(owner, guess),
        ):
            found = await self.code(redemption)
            rejection = validate(found, reservation.lines)
            guess.wrong = rejection == "unknown"
        if rejection is not None:
            raise promo_code_not_valid(rejection)
        assert found is not None
        return found.discount


def promo_code_not_valid(reason: RejectionReason) -> PromoCodeNotValid:
    """The problem for this reason; a code that does not exist and one that is not valid now are the same."""
    return PromoCodeNotValid(MESSAGES[reason], reason=reason)


def quote_body(reservation: Reservation, quote: Quote) -> dict[str, Any]:
    """The body of a `QuoteAnswer`; the problem `price-changed` has it too, for the new price."""
    return {
        "reservation_id": reservation.reservation_id,
        "total_minor": quote.total_minor,
        "currency": reservation.currency,
        "lines": [line_view(line) for line in quote.lines],
        "extras": [adjustment_view(extra) for extra in quote.extras],
    }
