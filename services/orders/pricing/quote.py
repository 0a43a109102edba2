"""Quotes: the price of a reservation with fees, taxes and a promo code if there is one. A quote changes nothing.

An order is priced by the same code, compared with the price the fan was shown, and charged. An event's fees and
taxes are cached for a second, which does no harm: an order at another price than its fan was shown is refused. Promo
codes are read as they are now. Concurrent reads share one statement.
"""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from cachetools import TTLCache
from sqlalchemy import select

from services.orders.model.view import adjustment_view, line_view
from services.orders.pricing import promo_codes
from services.orders.pricing.calculator import Discount, Quote, price
from services.orders.pricing.promo_codes import MESSAGES, PromoCode, Redemption, RejectionReason, validate
from services.orders.problems import PromoCodeNotValid
from services.orders.tables import event_price
from shared.concurrency.coalescing import GroupCommits
from shared.contracts.fields import code_key
from shared.contracts.inventory import Reservation
from shared.contracts.prices import PriceRules
from shared.postgres.engine import AsyncEngine
from shared.security.limits import AddressGuessLimiter, GuessLimiter

RULES_TTL_S = 1.0
EVENTS_MAX = 1_000
BATCH_MAX = 200
WAITING_MAX = 5000


class EventRules(NamedTuple):
    """An event's fees and taxes, and the currency that they are rounded in."""

    rules: PriceRules
    currency: str


NO_RULES = EventRules(PriceRules(), "")


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
        """The event's rules; no fees and taxes for an event without an event file."""
        return self._cache.get(event_id) or await self._read(event_id)

    def invalidate(self, event_id: str) -> None:
        """Drops the event's rules from the cache, because an operator changed them."""
        self._cache.pop(event_id, None)

    async def _read_rules(self, event_ids: list[str]) -> Sequence[EventRules]:
        columns = event_price.c
        query = select(columns.event_id, columns.rules, columns.currency).where(columns.event_id.in_(set(event_ids)))
        async with self._db.connect() as connection:
            rows = await connection.execute(query)
            found = {row.event_id: EventRules(PriceRules.model_validate(row.rules), row.currency) for row in rows}
        answers = [found.get(event_id, NO_RULES) for event_id in event_ids]
        self._cache.update(zip(event_ids, answers, strict=True))
        return answers

    async def _read_codes(self, redemptions: list[Redemption]) -> Sequence[PromoCode | None]:
        async with self._db.connect() as connection:
            return await promo_codes.read(connection, redemptions)


@dataclass(slots=True)
class Quoter:
    """Prices reservations. Wrong promo codes are counted against the customer and the address that tried them."""

    prices: PriceRulesCache
    guesses: GuessLimiter
    guesses_of_addresses: AddressGuessLimiter

    async def quote(
        self, owner: str, reservation: Reservation, code: str | None, customer_key: str = "", *, address: str | None
    ) -> Quote:
        """Raises `PromoCodeNotValid`, `TooManyWrongCodes`."""
        rules, _ = await self.prices.rules(reservation.event_id)
        redemption = Redemption(reservation.event_id, code_key(code), customer_key) if code is not None else None
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
