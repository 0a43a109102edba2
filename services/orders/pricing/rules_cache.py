"""Price rules: an event's fees and taxes, cached for a second, and promo codes as they are now.

A rule that is a second old does no harm: an order is charged only the price its fan was shown, otherwise it is refused.
Concurrent reads share one statement.
"""

from collections.abc import Sequence
from typing import NamedTuple

from cachetools import TTLCache
from sqlalchemy import select

from services.orders.pricing import promo_codes
from services.orders.pricing.promo_codes import PromoCode, Redemption
from services.orders.pricing.tables import event_price
from shared.concurrency.group_commit import GroupCommit
from shared.contracts.prices import PriceRules
from shared.postgres.engine import AsyncEngine

RULES_TTL_S = 1.0
EVENTS_MAX = 1_000
BATCH_MAX = 200
WAITING_MAX = 5000


class EventRules(NamedTuple):
    """An event's fees and taxes, and the currency that they are rounded in."""

    rules: PriceRules
    currency: str


NO_RULES = EventRules(PriceRules(), "")


class PriceRulesCache:
    """`db` must commit each statement by itself."""

    def __init__(self, db: AsyncEngine) -> None:
        self._db = db
        self._cache: TTLCache[str, EventRules] = TTLCache(EVENTS_MAX, RULES_TTL_S)
        self._rules: GroupCommit[str, EventRules] = GroupCommit(
            self._read_rules, name="orders-rules", batch_max=BATCH_MAX, waiting_max=WAITING_MAX
        )
        self._codes: GroupCommit[Redemption, PromoCode | None] = GroupCommit(
            self._read_codes, name="orders-promo", batch_max=BATCH_MAX, waiting_max=WAITING_MAX
        )

    async def close(self) -> None:
        await self._rules.close()
        await self._codes.close()

    async def rules(self, event_id: str) -> EventRules:
        """The event's rules; no fees and taxes for an event without an event file."""
        return self._cache.get(event_id) or await self._rules.submit(event_id)

    def invalidate(self, event_id: str) -> None:
        """Drops the event's rules from the cache, because an operator changed them."""
        self._cache.pop(event_id, None)

    async def code(self, redemption: Redemption) -> PromoCode | None:
        return await self._codes.submit(redemption)

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
