"""A reservation's price with everything in it, and with a promo code if there is one; asking changes nothing.

The same answer is what an order is compared with and charged.
"""

from dataclasses import dataclass
from typing import Any

from services.orders.order.view import adjustment_view, line_view
from services.orders.pricing.calculator import Discount, Quote, price
from services.orders.pricing.promo_codes import WORDS, Redemption, Refusal, normalize_code, validate
from services.orders.pricing.rules_cache import PriceRulesCache
from services.orders.problems import PromoCodeNotValid
from shared.contracts.inventory import Reservation
from shared.security.guess_limiter import WrongCodes, WrongCodesOfAddresses


@dataclass(slots=True)
class Quoter:
    """Names prices. Wrong codes are counted by whoever tries them."""

    prices: PriceRulesCache
    wrong: WrongCodes
    wrong_of_addresses: WrongCodesOfAddresses

    async def quote(
        self, who: str, reservation: Reservation, code: str | None, customer_key: str = "", *, address: str | None
    ) -> Quote:
        """Raises `PromoCodeNotValid`, `TooManyWrongCodes`."""
        rules = await self.prices.rules(reservation.event_id)
        asked = Redemption(reservation.event_id, normalize_code(code), customer_key) if code is not None else None
        discount = await self._discount(who, reservation, asked, address) if asked is not None else None
        return price(reservation.lines, rules, discount)

    async def _discount(self, who: str, reservation: Reservation, asked: Redemption, address: str | None) -> Discount:
        self.wrong.check(who)
        self.wrong_of_addresses.check(reservation.event_id, address)
        found = await self.prices.code(asked)
        refused = validate(found, reservation.lines)
        if refused == "unknown":
            self.wrong.note(who)
            self.wrong_of_addresses.note(reservation.event_id, address)
        if refused is not None:
            raise promo_code_not_valid(refused)
        assert found is not None
        return found.discount


def promo_code_not_valid(reason: Refusal) -> PromoCodeNotValid:
    """The same for a code that never was and for one that is not good now."""
    return PromoCodeNotValid(WORDS[reason], reason=reason)


def quote_body(reservation: Reservation, quote: Quote) -> dict[str, Any]:
    """A quote as fans see it, and as `price-changed` tells the new one."""
    return {
        "reservation_id": reservation.reservation_id,
        "total_minor": quote.total_minor,
        "currency": reservation.currency,
        "lines": [line_view(line) for line in quote.lines],
        "extras": [adjustment_view(extra) for extra in quote.extras],
    }
