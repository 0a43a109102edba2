"""Applies an event file to orders: the show as tickets print it, its fees and taxes, and its share of the background;
and reads it back.

It is applied all or nothing, in one transaction. It holds for orders from then on; an order keeps the price it was
placed at.
"""

from collections.abc import Mapping

from services.orders.checkout import background_share
from services.orders.checkout.background_share import BackgroundShare
from services.orders.pricing import admin as pricing
from services.orders.pricing.calculator import require_chargeable
from services.orders.pricing.quote import PriceRulesCache
from services.orders.problems import RehearsalNeedsSandbox
from services.orders.providers.provider import Provider
from services.orders.tickets import show
from shared.contracts.admin.prices import EventFileApplied
from shared.contracts.event_file import CheckoutPart, EventFile, PricePart
from shared.postgres.engine import AsyncEngine, snapshot, transaction
from shared.runtime.logging import get_logger

log = get_logger("onsale.orders")
SANDBOX = "sandbox"


async def apply_event_file(
    db: AsyncEngine, file: EventFile, *, actor: str, reason: str | None, dry_run: bool, rules: PriceRulesCache,
    shares: BackgroundShare, providers: Mapping[str, Provider],
) -> EventFileApplied:  # fmt: skip
    """With `dry_run` everything is checked and nothing is changed. Raises `RehearsalNeedsSandbox`, and `InvalidRequest`
    for amounts that cannot be charged.
    """
    if file.rehearsal and set(providers) != {SANDBOX}:
        raise RehearsalNeedsSandbox(f"Payments go to {', '.join(providers)}: a rehearsal could move real money.")
    require_chargeable(file, providers)
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


async def read_event_file(db: AsyncEngine, event_id: str) -> PricePart:
    """Orders' part of the event file as it stands: applying it changes nothing. Raises `UnknownEvent`."""
    async with snapshot(db) as connection:
        rules = await pricing.stored_rules(connection, event_id)
        percent = await background_share.stored_percent(connection, event_id)
    checkout = None if percent is None else CheckoutPart(background_percent=percent)
    return PricePart(fees=rules.fees, taxes=rules.taxes, checkout=checkout)
