"""Promo codes: whether a code is valid for a purchase, and how often it was used, counted from redemptions.

A redemption of a limited code locks the code before it counts, so two at once cannot both take the last use.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Final, Literal, NamedTuple

from services.orders.pricing.calculator import Discount
from shared.contracts.inventory import ReservedItem
from shared.postgres.engine import AsyncConnection, statement

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


async def read(connection: AsyncConnection, redemptions: Sequence[Redemption]) -> list[PromoCode | None]:
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
    for use, promo in zip(uses, await read(connection, uses), strict=True):
        assert promo is not None, "codes are never deleted"
        code = use[:2]
        answers.append(promo.over_limit(uses=granted[code] + 1, customer_uses=granted[use] + 1))
        if answers[-1] is None:
            granted[code] += 1
            granted[use] += 1
    return answers
