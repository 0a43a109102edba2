"""Mail about a hold, for who asked for it: once before it ends, once after, and never again after one click.

Asking is consent, given by the holder of the reservation for an address of theirs. Opting out is kept by customer, not
by address: an HMAC that says nothing.

Consent to reminders that was given with a reservation: fetched from inventory, which keeps it until we have it.
"""

import hmac
from datetime import timedelta
from typing import Annotated

from fastapi import APIRouter, Path, Request, Response
from sqlalchemy import exists, select
from sqlalchemy.dialects.postgresql import insert

from services.orders.api.auth import owner_id
from services.orders.api.schemas import ReservationId
from services.orders.checkout.inventory_client import InventoryBatcher
from services.orders.order.references import customer_key
from services.orders.problems import MailDisabled
from services.orders.settings import Settings
from services.orders.state import State
from services.orders.tickets.tables import mail, mail_opt_out
from shared.contracts.inventory import Reservation
from shared.postgres.engine import AsyncEngine
from shared.runtime.clock import now_ms, to_datetime
from shared.security.tokens import Keyring, b64, unb64
from shared.web.fields import Body, Email
from shared.web.problems import HoldExpired, NotFound, Problem, UnknownReservation

TURN_S = 2.0


class ConsentImporter:
    """One turn takes all there are. What is taken twice is owed once."""

    def __init__(self, db: AsyncEngine, stock: InventoryBatcher, settings: Settings) -> None:
        self._db, self._stock, self._settings = db, stock, settings

    async def turn(self) -> None:
        heard: list[str] = []
        while True:
            try:
                consents = (await self._stock.consents(heard)).consents
            except Problem:
                return  # inventory is away: what was not said to be heard comes again
            for consent in consents:
                await schedule_reminders(self._db, self._settings, consent.reservation, consent.email)
            heard = [consent.reservation.reservation_id for consent in consents]
            if not heard:
                return


router = APIRouter(tags=["reminders"])
AFTER_S = 5
StopToken = Annotated[str, Path(pattern=r"^[A-Za-z0-9_-]{43}\.[A-Za-z0-9_-]{1,32}\.[A-Za-z0-9_-]{43}$")]
PAGE = """<!doctype html><html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>Reminders</title><body><h1>{title}</h1>{rest}</body></html>"""
ASK = '<p>Mail about orders you make still comes.</p><form method="post"><button>No more reminders</button></form>'
HEADERS = {
    "cache-control": "no-store",
    "referrer-policy": "no-referrer",
    "content-security-policy": "default-src 'none'; form-action 'self'; frame-ancestors 'none'",
}


class ReminderAsked(Body):
    """The holder's consent to two mails about this hold."""

    reservation_id: ReservationId
    email: Email


@router.post("/reminders", status_code=202, summary="Subscribe to hold reminders")
async def remind(asked: ReminderAsked, request: Request) -> dict[str, str]:
    """With the pass the hold was made with. Asking again changes nothing; who opted out is not mailed."""
    state: State = request.app.state.deps
    buyers = await state.callers.customers(request, lapsed_s=state.settings.lapsed_pass_s)
    if state.settings.smtp_url is None:
        raise MailDisabled
    held = await state.stock.read(asked.reservation_id)
    if held is None or not any(buyer.owns(owner_id(held.event_id, held.holder)) for buyer in buyers):
        raise UnknownReservation
    if held.status != "pending_payment":
        raise HoldExpired
    await schedule_reminders(state.db, state.settings, held, asked.email)
    return {"reservation_id": held.reservation_id}


async def schedule_reminders(db: AsyncEngine, settings: Settings, held: Reservation, address: str) -> None:
    """Both mails, the reminder only if its time has not passed; once a hold, and none to whoever opted out."""
    if await is_stopped(db, customer_key(settings.customer_keys, address)):
        return
    ends_at = to_datetime(held.reserved_until_ms)
    due = {"hold_over": ends_at + timedelta(seconds=held.grace_s + AFTER_S)}
    remind_at = ends_at - timedelta(seconds=settings.reminder_lead_s)
    if remind_at > to_datetime(now_ms()):
        due["remind"] = remind_at
    rows = [
        {"mail_key": f"{kind}:{held.reservation_id}", "kind": kind, "address": address, "event_id": held.event_id,
         "reservation_id": held.reservation_id, "due_at": due_at}
        for kind, due_at in due.items()
    ]  # fmt: skip
    async with db.begin() as connection:
        await connection.execute(insert(mail).values(rows).on_conflict_do_nothing())


@router.get("/reminders/stop/{token}", include_in_schema=False)
async def ask_stop(token: StopToken, request: Request) -> Response:
    """A mail program that looks at links must not opt anybody out."""
    _customer(request.app.state.deps.settings.customer_keys, token)
    return _page("No more reminders?", ASK)


@router.post("/reminders/stop/{token}", summary="Unsubscribe from reminders with one click (RFC 8058)")
async def stop(token: StopToken, request: Request) -> Response:
    state: State = request.app.state.deps
    customer = _customer(state.settings.customer_keys, token)
    async with state.db.begin() as connection:
        await connection.execute(insert(mail_opt_out).values(customer=customer).on_conflict_do_nothing())
    return _page("You will get no more reminders.", "")


def stop_token(keys: Keyring, customer: str) -> str:
    """What opts this customer out, and does nothing else."""
    return f"{customer}.{keys.kid}.{b64(keys.mac('mail-stop', customer))}"


async def is_stopped(db: AsyncEngine, customer: str) -> bool:
    async with db.connect() as connection:
        return bool(await connection.scalar(select(exists().where(mail_opt_out.c.customer == customer))))


def _customer(keys: Keyring, token: str) -> str:
    customer, kid, mac = token.split(".")
    try:
        if hmac.compare_digest(unb64(mac), keys.mac("mail-stop", customer, kid=kid)):
            return customer
    except (KeyError, ValueError) as broken:
        raise NotFound from broken
    raise NotFound


def _page(title: str, rest: str) -> Response:
    return Response(PAGE.format(title=title, rest=rest), media_type="text/html", headers=HEADERS)
