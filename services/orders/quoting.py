"""A reservation's price with everything in it, and with a promo code if there is one; asking changes nothing.

The same answer is what an order is compared with and charged.
"""

from dataclasses import dataclass
from typing import Any

from services.orders.frames import extra_body, line_body
from services.orders.price_list import PriceList
from services.orders.prices import Discount, Quote, price
from services.orders.problems import PromoCodeNotValid
from services.orders.promo import WORDS, Refusal, Use, refusal, spelled
from shared.contracts.inventory import Reservation
from shared.wrong_codes import WrongCodes


@dataclass(slots=True)
class Quoting:
    """Names prices. Wrong codes are counted by whoever tries them."""

    prices: PriceList
    wrong: WrongCodes

    async def quote(self, who: str, reservation: Reservation, code: str | None, customer_key: str = "") -> Quote:
        """Raises `PromoCodeNotValid`, `TooManyWrongCodes`."""
        rules = await self.prices.rules(reservation.event_id)
        discount = await self._discount(who, reservation, code, customer_key) if code is not None else None
        return price(reservation.lines, rules, discount)

    async def _discount(self, who: str, reservation: Reservation, code: str, customer_key: str) -> Discount:
        self.wrong.check(who)
        found = await self.prices.code(Use(reservation.event_id, spelled(code), customer_key))
        refused = refusal(found, reservation.lines)
        if refused == "unknown":
            self.wrong.note(who)
        if refused is not None:
            raise not_valid(refused)
        assert found is not None
        return found.discount


def not_valid(reason: Refusal) -> PromoCodeNotValid:
    """The same for a code that never was and for one that is not good now."""
    return PromoCodeNotValid(WORDS[reason], reason=reason)


def quote_body(reservation: Reservation, quote: Quote) -> dict[str, Any]:
    """A quote as fans see it, and as `price-changed` tells the new one."""
    return {
        "reservation_id": reservation.reservation_id,
        "total_minor": quote.total_minor,
        "currency": reservation.currency,
        "lines": [line_body(line) for line in quote.lines],
        "extras": [extra_body(extra) for extra in quote.extras],
    }
