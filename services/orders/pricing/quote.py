"""Quotes: the price of a reservation with fees, taxes and a promo code if there is one. A quote changes nothing.

An order is priced by the same code, compared with the price the fan was shown, and charged.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from services.orders.model.view import adjustment_view, line_view
from services.orders.pricing.calculator import Discount, Quote, price
from services.orders.pricing.chargeable import require_payable
from services.orders.pricing.promo_codes import MESSAGES, Redemption, RejectionReason, validate
from services.orders.pricing.rules_cache import PriceRulesCache
from services.orders.problems import PromoCodeNotValid
from services.orders.providers.provider import Provider
from shared.contracts.fields import code_key
from shared.contracts.inventory import Reservation
from shared.security.guess_limiter import AddressGuessLimiter, GuessLimiter


@dataclass(slots=True)
class Quoter:
    """Prices reservations. Wrong promo codes are counted against the customer and the address that tried them."""

    prices: PriceRulesCache
    guesses: GuessLimiter
    guesses_of_addresses: AddressGuessLimiter
    providers: Mapping[str, Provider]

    async def quote(
        self, owner: str, reservation: Reservation, code: str | None, customer_key: str = "", *, address: str | None
    ) -> Quote:
        """Raises `PromoCodeNotValid`, `TooManyWrongCodes`, `AmountNotPayable`."""
        rules, _ = await self.prices.rules(reservation.event_id)
        redemption = Redemption(reservation.event_id, code_key(code), customer_key) if code is not None else None
        discount = await self._discount(owner, reservation, redemption, address) if redemption is not None else None
        quote = price(reservation.lines, rules, discount, currency=reservation.currency)
        require_payable(quote, reservation.currency, self.providers)
        return quote

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
