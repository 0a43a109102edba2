"""Reminders about a hold: one mail before it ends and one after, for customers who consented; and their opt-out.

Consent is given by the holder of the reservation, here or together with the reservation; inventory keeps the latter
until this service has imported it. An opt-out is kept by customer key, an HMAC of the address, never by the address.
"""

from collections.abc import Sequence
from contextlib import suppress
from datetime import timedelta

from sqlalchemy import exists, select
from sqlalchemy.dialects.postgresql import insert

from services.orders.model.order import Customer, customer_key, owner_id
from services.orders.problems import MailDisabled
from services.orders.settings import Settings
from services.orders.steps.run import InventoryBatcher
from services.orders.tables import mail, mail_opt_out
from shared.concurrency.background import Quiet
from shared.contracts.inventory import Reservation
from shared.errors.problems import HoldExpired, Problem, UnknownReservation
from shared.postgres.engine import AsyncEngine
from shared.runtime.clock import now_ms, to_datetime
from shared.words.words import DEFAULT_LANGUAGE

UNSUBSCRIBE = "mail-stop"  # the purpose of a token that opts a customer out
CONSENT_POLL_S = 2.0
LEAD_S = 120  # a reminder is sent so long before a hold ends
AFTER_S = 5


async def import_consents(db: AsyncEngine, stock: InventoryBatcher, settings: Settings) -> Quiet | None:
    """Imports all consents of inventory; one that is imported twice schedules its mails once. Each request acknowledges
    the batch before; what was not acknowledged comes again.
    """
    imported: list[str] = []
    with suppress(Problem):  # inventory is unavailable
        while consents := (await stock.consents(imported)).consents:
            for consent in consents:
                await schedule_reminders(db, settings, consent.reservation, consent.email, DEFAULT_LANGUAGE)
            imported = [consent.reservation.reservation_id for consent in consents]
    return None if imported else Quiet()


async def subscribe(
    db: AsyncEngine, stock: InventoryBatcher, settings: Settings, *, customers: Sequence[Customer],
    reservation_id: str, address: str, language: str,
) -> None:  # fmt: skip
    """Raises `MailDisabled`, `UnknownReservation` unless it is one of these customers', and `HoldExpired`."""
    if settings.smtp_url is None:
        raise MailDisabled
    held = await stock.read(reservation_id)
    if held is None or not any(customer.owns(owner_id(held.event_id, held.holder)) for customer in customers):
        raise UnknownReservation
    if held.status != "pending_payment":
        raise HoldExpired
    await schedule_reminders(db, settings, held, address, language)


async def schedule_reminders(
    db: AsyncEngine, settings: Settings, held: Reservation, address: str, language: str
) -> None:
    """Queues both mails once a hold, the first only if its time has not passed; none for a customer who opted out."""
    if await has_opted_out(db, customer_key(settings.customer_keys, address)):
        return
    ends_at = to_datetime(held.reserved_until_ms)
    due = {"hold_over": ends_at + timedelta(seconds=held.grace_s + AFTER_S)}
    remind_at = ends_at - timedelta(seconds=LEAD_S)
    if remind_at > to_datetime(now_ms()):
        due["remind"] = remind_at
    rows = [
        {"mail_key": f"{kind}:{held.reservation_id}", "kind": kind, "address": address, "event_id": held.event_id,
         "reservation_id": held.reservation_id, "language": language, "due_at": due_at}
        for kind, due_at in due.items()
    ]  # fmt: skip
    async with db.begin() as connection:
        await connection.execute(insert(mail).values(rows).on_conflict_do_nothing())


async def opt_out(db: AsyncEngine, customer: str) -> None:
    async with db.begin() as connection:
        await connection.execute(insert(mail_opt_out).values(customer=customer).on_conflict_do_nothing())


async def has_opted_out(db: AsyncEngine, customer: str) -> bool:
    async with db.connect() as connection:
        return bool(await connection.scalar(select(exists().where(mail_opt_out.c.customer == customer))))
