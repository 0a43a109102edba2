"""Quotes: the price of a reservation with fees, taxes and a promo code if there is one. A quote changes nothing.

An order is priced by the same code, compared with the price the fan was shown, and charged. An event's rules are cached
for a second, which does no harm: an order at another price than its fan was shown is refused. Promo
codes are read as they are now, with their uses counted from redemptions. A redemption of a limited code locks the code
before it counts, so two at once cannot both take the last use. Concurrent reads share one statement.
"""

from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Final, Literal, NamedTuple

from cachetools import TTLCache

from services.orders.model.view import adjustment_view, line_view
from services.orders.pricing.calculator import Discount, Quote, price
from services.orders.problems import PromoCodeNotValid
from shared.concurrency.coalescing import GroupCommits
from shared.contracts.fields import code_key
from shared.contracts.inventory import Reservation, ReservedItem
from shared.contracts.prices import PriceRules
from shared.postgres.engine import AsyncConnection, AsyncEngine, statement
from shared.rules.rollout import within
from shared.security.limits import AddressGuessLimiter, GuessLimiter

_EVENT_RULES = statement(__package__, "event_rules")
_READ = statement(__package__, "promo_codes")
_LOCK = statement(__package__, "lock_promo_codes")

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


RULES_TTL_S = 1.0
EVENTS_MAX = 1_000
BATCH_MAX = 200
WAITING_MAX = 5000


class EventRules(NamedTuple):
    """An event's fees and taxes, the currency that they are rounded in, and the share of its checkouts that workers
    process in the background; the rest is processed inside the request.
    """

    rules: PriceRules
    currency: str
    background_percent: float


class PriceRulesCache(GroupCommits):
    """Use inside `async with`. `db` must commit each statement by itself."""

    def __init__(self, db: AsyncEngine) -> None:
        super().__init__(batch_max=BATCH_MAX, waiting_max=WAITING_MAX, in_flight_max=1)
        self._db = db
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


@dataclass(slots=True)
class Quoter:
    """Prices reservations. Wrong promo codes are counted against the customer and the address that tried them."""

    prices: PriceRulesCache
    guesses: GuessLimiter
    guesses_of_addresses: AddressGuessLimiter

    async def quote(
        self, owner: str, reservation: Reservation, redemption: Redemption | None, *, address: str | None
    ) -> Quote:
        """Raises `PromoCodeNotValid`, `TooManyWrongCodes`."""
        rules = (await self.prices.rules(reservation.event_id)).rules
        discount = await self._discount(owner, reservation, redemption, address) if redemption is not None else None
        return price(reservation.lines, rules, discount, currency=reservation.currency)

    async def _discount(
        self, owner: str, reservation: Reservation, redemption: Redemption, address: str | None
    ) -> Discount:
        async with (
            self.guesses_of_addresses.guess(reservation.event_id, address) as guess,
            self.guesses.guess(owner, guess),
        ):
            found = await self.prices.code(redemption)
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
