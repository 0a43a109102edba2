"""Promo codes: whether one is good for what is being bought, and how often it was used, counted from rows.

Who takes a use of a limited code locks the code first and counts then, so that no two count at once.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Final, Literal, NamedTuple

from services.orders.pricing.calculator import Discount
from shared.contracts.inventory import Line
from shared.postgres.engine import AsyncConnection, statement

_READ = statement(__package__, "promo_codes")
_LOCK = statement(__package__, "lock_promo_codes")

Refusal = Literal["unknown", "sections", "minimum-tickets", "used-up", "customer-limit"]
WORDS: Final[dict[Refusal, str]] = {
    "unknown": "This promo code is not valid.",
    "sections": "This promo code is not for these tickets.",
    "minimum-tickets": "This promo code needs more tickets.",
    "used-up": "This promo code has been used as often as it may be.",
    "customer-limit": "You have used this promo code as often as one customer may.",
}


class Redemption(NamedTuple):
    """Somebody wants a code. Who only asks what it takes off is no customer yet: nobody's key is empty."""

    event_id: str
    code: str
    customer_key: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class PromoCode:
    """A code as one statement read it. `is_active`: not stopped, begun, not over."""

    event_id: str
    code: str
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
        return Discount(name=self.code, percent=self.percent, amount_minor=self.amount_minor, section_ids=sections)

    def over_limit(self, *, uses: int, customer_uses: int) -> Refusal | None:
        """Why so many more uses would be too many."""
        if self.uses_max is not None and self.uses + uses > self.uses_max:
            return "used-up"
        if self.customer_uses_max is not None and self.customer_uses + customer_uses > self.customer_uses_max:
            return "customer-limit"
        return None


def normalize_code(code: str) -> str:
    """As codes are kept: people type them as they like."""
    return code.upper()


def validate(promo: PromoCode | None, lines: Sequence[Line]) -> Refusal | None:
    """Why this code takes nothing off these tickets. One that never was, is stopped, has not begun or is over gets the
    same word, so that guessing finds nothing.
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


async def read(connection: AsyncConnection, asked: Sequence[Redemption]) -> list[PromoCode | None]:
    """One answer per question, in order."""
    bound = {
        "event_ids": [use.event_id for use in asked], "codes": [use.code for use in asked],
        "customer_keys": [use.customer_key for use in asked],
    }  # fmt: skip
    rows = (await connection.execute(_READ, bound)).mappings()
    found = {(row["event_id"], row["code"], row["customer_key"]): PromoCode(**row) for row in rows}
    return [found.get(use) for use in asked]


async def over_limit(connection: AsyncConnection, uses: Sequence[Redemption]) -> Refusal | None:
    """Why these uses together are too many; if they are not, nobody takes one of them until the transaction ends. An
    order that was made before with its use counts, too: who asks again is not told of this, but of that order.
    """
    bound = {"event_ids": [use.event_id for use in uses], "codes": [use.code for use in uses]}
    await connection.execute(_LOCK, bound)
    by_code = Counter(use[:2] for use in uses)
    by_customer = Counter(uses)
    for use, promo in zip(uses, await read(connection, uses), strict=True):
        assert promo is not None, "codes are never deleted"
        found = promo.over_limit(uses=by_code[use[:2]], customer_uses=by_customer[use])
        if found:
            return found
    return None
