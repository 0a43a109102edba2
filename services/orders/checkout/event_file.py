"""Applies an event file to orders: the show as tickets print it, its fees and taxes, and its share of the background;
and reads it back.

It is applied all or nothing, in one transaction. It holds for orders from then on; an order keeps the price it was
placed at.

The share of checkouts in the background can be changed without a file, too. Every process follows within a second.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from sqlalchemy import Table, func, select, update
from sqlalchemy.dialects.postgresql import insert

from services.orders.pricing.quote import Prices, TicketPrice, refusals, require_chargeable
from services.orders.problems import RehearsalNeedsSandbox
from services.orders.tables import audit_log, background_share, event_price
from services.orders.tickets import show
from shared.audit_log import Actor, of_event
from shared.contracts.admin.orders import AmountsChecked, EventFileApplied
from shared.contracts.event_file import CheckoutPart, EventFile, PricePart
from shared.contracts.event_parts.price_types import USUAL
from shared.contracts.prices import PriceRules
from shared.errors.problems import UnknownEvent
from shared.payment_provider import Provider
from shared.postgres.engine import AsyncConnection, AsyncEngine, snapshot, transaction
from shared.rules.currencies import format_money
from shared.runtime.logging import get_logger

log = get_logger("onsale.orders")
SANDBOX = "sandbox"


async def change_background_share(
    db: AsyncEngine, event_id: str, percent: float, *, actor: str, reason: str | None, rules: Prices
) -> bool:
    """Changes the share and writes it to the audit log; other processes see it within a second. False if it is the
    same already.
    """
    after, by, subject = {"background_percent": percent}, Actor(actor, reason), of_event(event_id)
    async with db.begin() as connection:
        changed = await _put(connection, background_share, event_id, after, by, action="background", subject=subject)
    rules.invalidate(event_id)
    return changed


async def _apply_share(connection: AsyncConnection, file: EventFile, *, actor: str, reason: str | None) -> bool:
    """Applies the event file's part in the caller's transaction; without one a share set by hand stays. Whether
    anything changed.
    """
    if file.checkout is None:
        return False
    after, by, subject = file.checkout.model_dump(), Actor(actor, reason), of_event(file.event_id)
    return await _put(connection, background_share, file.event_id, after, by, action="apply", subject=subject)


async def _apply_rules(connection: AsyncConnection, file: EventFile, *, actor: str, reason: str | None) -> bool:
    """Sets fees and taxes in the caller's transaction. True if that changed anything."""
    rules = PriceRules(fees=file.fees, taxes=file.taxes).model_dump(mode="json")
    after = {"currency": file.currency, "section_ids": [s.section_id for s in file.sections], "rules": rules}
    by, subject = Actor(actor, reason), f"prices:{file.event_id}"
    return await _put(connection, event_price, file.event_id, after, by, action="apply", subject=subject)


async def _put(
    connection: AsyncConnection, table: Table, event_id: str, after: Mapping[str, Any], by: Actor, *, action: str,
    subject: str,
) -> bool:  # fmt: skip
    """Writes an event's row as it is to be, and the audit log; false if it is so already. Operators of one event take
    turns by locking its row, which sales only read.
    """
    new = insert(table).values(event_id=event_id, **after).on_conflict_do_nothing()
    is_new = bool((await connection.execute(new)).rowcount)
    mine = table.c.event_id == event_id
    now = (await connection.execute(select(table).where(mine).with_for_update())).mappings().one()
    before = None if is_new else {name: now[name] for name in after}
    if before == after:
        return False
    await connection.execute(update(table).where(mine).values(**after, changed_at=func.now()))
    await audit_log.write(connection, action, by, subject=subject, before=before, after=after)
    return True


async def _stored_rules(connection: AsyncConnection, event_id: str) -> tuple[PriceRules, str]:
    """The event's fees and taxes, and its currency. Raises `UnknownEvent`."""
    query = select(event_price.c.rules, event_price.c.currency).where(event_price.c.event_id == event_id)
    if (row := (await connection.execute(query)).one_or_none()) is None:
        raise UnknownEvent
    return PriceRules.model_validate(row.rules), row.currency


async def check_amounts(
    db: AsyncEngine, event_id: str, each: Iterable[tuple[int, str | None]], providers: Mapping[str, Provider],
    prices: Prices,
) -> AmountsChecked:  # fmt: skip
    """Looks at the event's fees and codes, and at a ticket of each of these prices, given with its price type or None
    for the usual one. Raises `UnknownEvent`.
    """
    async with db.connect() as connection:
        rules, currency = await _stored_rules(connection, event_id)
    types, tickets = (await prices.rules(event_id)).types, []
    for minor, type_id in each:
        name = f"a ticket of {format_money(minor, currency)}" + (f" ({type_id})" if type_id else "")
        tickets.append(TicketPrice(name, {name: minor}, types.stored(type_id) if type_id else USUAL))
    found = refusals(tickets, rules, currency, providers, types)
    if prices.codes is not None:
        step_minor = max(provider.limits(currency).step_minor for provider in providers.values())
        found += await prices.codes.refusals(event_id, currency, step_minor)
    return AmountsChecked(refusals=found)


async def apply_event_file(
    db: AsyncEngine, file: EventFile, *, actor: str, reason: str | None, dry_run: bool, rules: Prices,
    providers: Mapping[str, Provider],
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
            await _apply_rules(connection, file, actor=actor, reason=reason),
            await _apply_share(connection, file, actor=actor, reason=reason),
        ]
    changed = any(changes)
    if not dry_run:
        rules.invalidate(file.event_id)
        log.info("event.applied", event_id=file.event_id, by=actor, changed=changed)
    return EventFileApplied(
        event_id=file.event_id, changed=changed, fees=len(file.fees), taxes=len(file.taxes), dry_run=dry_run
    )


async def read_event_file(db: AsyncEngine, event_id: str) -> PricePart:
    """Orders' part of the event file as it stands: applying it changes nothing. Raises `UnknownEvent`."""
    async with snapshot(db) as connection:
        rules, _ = await _stored_rules(connection, event_id)
        share = select(background_share.c.background_percent).where(background_share.c.event_id == event_id)
        percent = await connection.scalar(share)
    checkout = None if percent is None else CheckoutPart(background_percent=percent)
    return PricePart(fees=rules.fees, taxes=rules.taxes, checkout=checkout)
