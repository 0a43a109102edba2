"""What a promo code takes off a reservation, why it is refused, and how its uses are counted and kept to their limits.

Codes are read as they are now, with their uses counted from redemptions. A redemption of a limited code locks the code
before it counts, so two at once cannot both take the last use. It is written by the statement that writes the order.
Concurrent reads share one statement.
"""

from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Final, Literal

import orjson
from sqlalchemy import select

from features.promo.orders.tables import promo_code
from services.orders.pricing.quote import (
    BATCH_MAX,
    WAITING_MAX,
    CodeUse,
    Discount,
    Redeemed,
    adjustment,
    percent_of,
)
from services.orders.problems import PromoCodeNotValid
from shared.concurrency.coalescing import GroupCommits
from shared.contracts.inventory import Reservation, ReservedItem
from shared.postgres.engine import AsyncConnection, AsyncEngine, statement
from shared.rules.currencies import format_money, split, step_of
from shared.security.limits import AddressGuessLimiter, GuessLimiter

_READ = statement(__package__, "promo_codes")
_LOCK = statement(__package__, "lock_promo_codes")
REDEMPTIONS = """redemptions AS (
    INSERT INTO orders.promo_redemption (reference, event_id, code, customer_key)
    SELECT a.reference, a.event_id, a.code, a.customer_key
    FROM jsonb_to_recordset(CAST(:uses AS jsonb)) AS a(reference text, event_id text, code text, customer_key text)
    JOIN created c ON c.reference = a.reference
)"""
WRONG_AT_ONCE, WRONG_PER_MINUTE = 10, 10.0  # wrong codes that one fan may try, and after that
NAMED_MAX = 20
RejectionReason = Literal["unknown", "sections", "minimum-tickets", "used-up", "customer-limit"]
MESSAGES: Final[dict[RejectionReason, str]] = {
    "unknown": "This promo code is not valid.",
    "sections": "This promo code is not valid for these tickets.",
    "minimum-tickets": "This promo code needs more tickets.",
    "used-up": "This promo code has been used up.",
    "customer-limit": "You have used this promo code as often as a customer may.",
}


@dataclass(frozen=True, slots=True)
class PromoCode:
    """A code with its uses as they are now. `is_active`: not deactivated, and within its validity. No section means
    all.
    """

    name: str
    percent: Decimal | None = None
    amount_minor: int | None = None
    uses_max: int | None = None
    customer_uses_max: int | None = None
    section_ids: Sequence[str] = ()
    tickets_min: int = 1
    uses: int = 0
    customer_uses: int = 0
    is_active: bool = True

    def covers(self, section_id: str) -> bool:
        return not self.section_ids or section_id in self.section_ids

    def discount(self, lines: Sequence[ReservedItem], currency: str) -> Discount:
        """What it takes off these tickets: never more than they cost."""
        step = step_of(currency, *(line.unit_price_minor for line in lines))
        costs = [line.unit_price_minor * line.quantity if self.covers(line.section_id) else 0 for line in lines]
        whole = self.amount_minor or 0 if self.percent is None else percent_of(self.percent, sum(costs), step)
        off = split(min(whole, sum(costs)), costs, step)
        return Discount(off, adjustment("discount", self.name, self.percent, -sum(off)))

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
    tickets = sum(line.quantity for line in lines if promo.covers(line.section_id))
    if not tickets:
        return "sections"
    if tickets < promo.tickets_min:
        return "minimum-tickets"
    return promo.over_limit(uses=1, customer_uses=1)


def _not_valid(reason: RejectionReason) -> PromoCodeNotValid:
    return PromoCodeNotValid(MESSAGES[reason], reason=reason)


class PromoCodes(GroupCommits):
    """The codes of all events. Wrong ones are counted against the customer and the address that tried them. Use inside
    `async with`; `db` must commit each statement by itself.
    """

    def __init__(self, db: AsyncEngine, *, shared_by: int) -> None:
        super().__init__(batch_max=BATCH_MAX, waiting_max=WAITING_MAX, in_flight_max=1)
        self._db = db
        self._guesses = GuessLimiter(per_s=WRONG_PER_MINUTE / 60, at_once=WRONG_AT_ONCE, shared_by=shared_by)
        self._guesses_of_addresses = AddressGuessLimiter(shared_by=shared_by)
        # Reads a promo code with its uses as they are now; None if it does not exist.
        self.read: Callable[[CodeUse], Awaitable[PromoCode | None]] = self.grouped("orders-promo", self._read_alone)

    async def discount(self, owner: str, reservation: Reservation, use: CodeUse, address: str | None) -> Discount:
        """Raises `PromoCodeNotValid`, `TooManyWrongCodes`."""
        async with (
            self._guesses_of_addresses.guess(reservation.event_id, address) as guess,
            self._guesses.guess(owner, guess),
        ):
            found = await self.read(use)
            rejection = validate(found, reservation.lines)
            guess.wrong = rejection == "unknown"
        if rejection is not None:
            raise _not_valid(rejection)
        assert found is not None
        return found.discount(reservation.lines, reservation.currency)

    async def redeem(self, connection: AsyncConnection, uses: Sequence[CodeUse]) -> Redeemed:
        """Refuses each use that exceeds a limit, after those before it. Nobody else can redeem their codes until the
        transaction ends. A repeated request counts its own earlier order, but its key answers before this.
        """
        bound = {"event_ids": [use.event_id for use in uses], "codes": [use.code for use in uses]}
        await connection.execute(_LOCK, bound)
        granted: Counter[tuple[str, ...]] = Counter()
        refused = {}
        for use, promo in zip(uses, await self._read(connection, uses), strict=True):
            assert promo is not None, "codes are never deleted"
            code, customer = use[:2], use[:3]
            if rejection := promo.over_limit(uses=granted[code] + 1, customer_uses=granted[customer] + 1):
                refused[use.reference] = _not_valid(rejection)
            else:
                granted[code] += 1
                granted[customer] += 1
        kept = [use._asdict() for use in uses if use.reference not in refused]
        return Redeemed(refused, REDEMPTIONS, {"uses": orjson.dumps(kept).decode()})

    async def refusals(self, event_id: str, currency: str, step_minor: int) -> list[str]:
        """One sentence for each active code that takes off no multiple of the step."""
        of, wrong = promo_code.c, promo_code.c.amount_minor % step_minor != 0
        query = select(of.code).where(of.event_id == event_id, of.stopped_at.is_(None), wrong).order_by(of.code)
        in_steps = f"takes off no multiple of {format_money(step_minor, currency)}."
        async with self._db.connect() as connection:
            found = await connection.scalars(query.limit(NAMED_MAX))
        return [f"promo code {code}: {in_steps}" for code in found]

    async def _read_alone(self, uses: list[CodeUse]) -> Sequence[PromoCode | None]:
        async with self._db.connect() as connection:
            return await self._read(connection, uses)

    async def _read(self, connection: AsyncConnection, uses: Sequence[CodeUse]) -> list[PromoCode | None]:
        """The code of each use, in order; None if it does not exist."""
        bound = {
            "event_ids": [use.event_id for use in uses], "codes": [use.code for use in uses],
            "customer_keys": [use.customer_key for use in uses],
        }  # fmt: skip
        rows = await connection.execute(_READ, bound)
        found = {tuple(row[:3]): PromoCode(*row[3:]) for row in rows}
        return [found.get(use[:3]) for use in uses]
