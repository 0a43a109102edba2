"""Applies an event file to orders: the show as tickets print it, its fees and taxes, and its share of the background.

All of it or nothing, in one transaction. It holds for orders from then on; an order keeps the price it was placed at.
"""

from services.orders.checkout import background_share
from services.orders.checkout.background_share import BackgroundShare
from services.orders.pricing import admin as pricing
from services.orders.pricing.rules_cache import PriceRulesCache
from services.orders.tickets import show
from shared.contracts.admin.prices import EventFileApplied
from shared.contracts.event_file import EventFile
from shared.postgres.engine import AsyncEngine, transaction
from shared.runtime.logging import get_logger

log = get_logger("onsale.orders")


async def apply_event_file(
    db: AsyncEngine, file: EventFile, *, actor: str, reason: str | None, dry_run: bool, rules: PriceRulesCache,
    shares: BackgroundShare,
) -> EventFileApplied:  # fmt: skip
    """With `dry_run` everything is checked and nothing is changed."""
    async with transaction(db, dry_run=dry_run) as connection:
        changes = [
            await show.apply(connection, file, actor=actor),
            await pricing.apply(connection, file, actor=actor, reason=reason),
            await background_share.apply(connection, file, actor=actor, reason=reason),
        ]
    changed = any(changes)
    if not dry_run:
        rules.invalidate(file.event_id)
        await shares.refresh()
        log.info("event.applied", event_id=file.event_id, by=actor, changed=changed)
    return EventFileApplied(
        event_id=file.event_id, changed=changed, fees=len(file.fees), taxes=len(file.taxes), dry_run=dry_run
    )
