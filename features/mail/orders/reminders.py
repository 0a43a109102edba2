"""The fans' API of mail: reminders about a hold, their end with one click, and the links of orders once more.

There is one mail before a hold ends and one after, for customers who consented. Consent is given by the holder of the
reservation, here or together with the reservation; inventory keeps the latter until this service has imported it. An
opt-out is kept by customer key, an HMAC of the address, never by the address. The unsubscribe link opens a page with a
button: a mail program that fetches links must not opt anybody out.

Links go only to the address that an order has, so nobody else learns anything; a repeated request sends nothing for a
while.
"""

from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from typing import Annotated

from fastapi import APIRouter, BackgroundTasks, Depends, Path, Request
from fastapi.responses import HTMLResponse
from pydantic import BaseModel
from sqlalchemy import Column, DateTime, Table, Text, exists, func, select
from sqlalchemy.dialects.postgresql import insert

from features.mail.orders.smtp import MailServer
from services.orders.checkout.requests import ReservationId
from services.orders.model.order import SOLD_STATUSES, customer_key, owner_id
from services.orders.settings import Settings
from services.orders.state import OrdersState
from services.orders.steps.run import InventoryBatcher
from services.orders.tables import mail, metadata
from shared.concurrency.background import Quiet
from shared.contracts.fields import Body, Email
from shared.contracts.inventory import Reservation
from shared.errors.problems import BadCredential, HoldExpired, NotFound, Problem, UnknownReservation
from shared.postgres.engine import AsyncEngine, statement
from shared.rules.addresses import spellings
from shared.runtime.clock import now_ms, to_datetime
from shared.security.limits import FanLimit, client_address
from shared.security.tokens import read_order_token
from shared.web.parts import opened
from shared.web.request import VARY, language_of, request_of
from shared.words.words import DEFAULT_LANGUAGE, Words, words

mail_opt_out = Table(
    "mail_opt_out",
    metadata,
    Column("customer", Text, primary_key=True),
    Column("created_at", DateTime(timezone=True), nullable=False, server_default=func.now()),
)

_SEND_AGAIN = statement(__package__, "send_again")
ORDERS_MAX = 10
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


async def send_again(db: AsyncEngine, address: str) -> None:
    """Queues the confirmations of this address's latest orders; of an unknown address none."""
    in_ascii, in_unicode = spellings(address)
    bound = {"address": in_ascii, "in_unicode": in_unicode, "statuses": sorted(SOLD_STATUSES), "many": ORDERS_MAX}
    async with db.begin() as connection:
        await connection.execute(_SEND_AGAIN, bound)


# -- API ---------------------------------------------------------------------------------------------------------------

router = APIRouter(tags=["reminders"])


class MailDisabled(Problem, status=409):
    """No mail server is configured. Set ORDERS_SMTP_URL to send mail."""


class ReminderRequest(Body):
    """The holder's consent to two mails about this hold."""

    reservation_id: ReservationId
    email: Email


class ReminderAnswer(BaseModel):
    """The hold that reminders are sent for."""

    reservation_id: str


class LinksRequest(Body):
    """The address whose orders' links are to be mailed again."""

    email: Email


@dataclass(frozen=True, slots=True)
class Outgoing:
    """The mail of one process; without a server there is none."""

    server: MailServer | None
    link_limiter: FanLimit


OutgoingMail = Annotated[Outgoing, Depends(opened(Outgoing))]
UnsubscribeToken = Annotated[str, Path(pattern=r"^[A-Za-z0-9_-]{43}\.[A-Za-z0-9_-]{1,32}\.[A-Za-z0-9_-]{43}$")]
PAGE = """<!doctype html><html lang="{text.language}" dir="{text.direction}"><meta charset="utf-8">
<meta name="viewport" content="width=device-width"><title>{title}</title><body><h1>{title}</h1>{rest}</body></html>"""
CONFIRM_FORM = '<p>{note}</p><form method="post"><button>{button}</button></form>'
HEADERS = {
    "cache-control": "no-store",
    "referrer-policy": "no-referrer",
    "content-security-policy": "default-src 'none'; form-action 'self'; frame-ancestors 'none'",
}


@router.post("/reminders", status_code=202, summary="Subscribe to hold reminders")
async def subscribe(
    body: ReminderRequest, request: Request, state: OrdersState, outgoing: OutgoingMail
) -> ReminderAnswer:
    """Needs the pass the hold was made with. Repeating it changes nothing; nobody who opted out gets mail."""
    customers = await state.authenticator.customers(request_of(request.scope), lapsed_s=state.tuning.lapsed_pass_s)
    if outgoing.server is None:
        raise MailDisabled
    outgoing.server.check_address(body.email)
    held = await state.inventory.read(body.reservation_id)
    if held is None or not any(customer.owns(owner_id(held.event_id, held.holder)) for customer in customers):
        raise UnknownReservation
    if held.status != "pending_payment":
        raise HoldExpired
    await schedule_reminders(state.db, state.settings, held, body.email, language_of(request.scope))
    return ReminderAnswer(reservation_id=body.reservation_id)


@router.post(
    "/orders/links", status_code=204, summary="Have the links of an address's orders mailed again", tags=["orders"]
)
async def send_links(
    body: LinksRequest, request: Request, state: OrdersState, outgoing: OutgoingMail, background: BackgroundTasks
) -> None:
    """To the address that the orders have, at most once in ten minutes. The answer is the same for every address, and
    comes before anything is looked up.
    """
    if outgoing.server is None:
        raise MailDisabled
    outgoing.link_limiter.check(client_address(request.scope, state.settings.trusted_proxies) or "")
    background.add_task(send_again, state.db, body.email)


def _customer(token: UnsubscribeToken, state: OrdersState) -> str:
    try:
        return read_order_token(state.settings.customer_keys, token, purpose=UNSUBSCRIBE)
    except BadCredential as unknown:
        raise NotFound from unknown


Unsubscriber = Annotated[str, Depends(_customer)]


@router.get("/reminders/stop/{token}", include_in_schema=False)
async def confirm_unsubscribe(customer: Unsubscriber, request: Request) -> HTMLResponse:
    text = words(language_of(request.scope))
    return _page(
        text, text("mail_stop_sure"), CONFIRM_FORM.format(note=text("mail_stop_note"), button=text("mail_stop"))
    )


@router.post(
    "/reminders/stop/{token}",
    summary="Unsubscribe from reminders with one click (RFC 8058)",
    response_class=HTMLResponse,
)
async def unsubscribe(customer: Unsubscriber, request: Request, state: OrdersState) -> HTMLResponse:
    await opt_out(state.db, customer)
    text = words(language_of(request.scope))
    return _page(text, text("mail_stopped"), "")


def _page(text: Words, title: str, rest: str) -> HTMLResponse:
    headers = {**HEADERS, "content-language": text.language, "vary": VARY}
    return HTMLResponse(PAGE.format(text=text, title=title, rest=rest), headers=headers)
