"""The fans' API of mail: reminders about a hold, their end with one click, and the links of orders once more.

The unsubscribe link opens a page with a button: a mail program that fetches links must not opt anybody out.
"""

from typing import Annotated

from fastapi import APIRouter, BackgroundTasks, Depends, Path, Request
from fastapi.responses import HTMLResponse

from services.orders.api.schemas import LinksRequest, ReminderAnswer, ReminderRequest
from services.orders.mail import reminders
from services.orders.mail.addresses import check_address, send_again
from services.orders.problems import MailDisabled
from services.orders.state import OrdersState
from shared.errors.problems import BadCredential, NotFound
from shared.security.limits import client_address
from shared.security.tokens import read_order_token
from shared.web.request import VARY, language_of, request_of
from shared.words.words import Words, words

router = APIRouter(tags=["reminders"])
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
async def subscribe(body: ReminderRequest, request: Request, state: OrdersState) -> ReminderAnswer:
    """Needs the pass the hold was made with. Repeating it changes nothing; nobody who opted out gets mail."""
    customers = await state.authenticator.customers(request_of(request.scope), lapsed_s=state.tuning.lapsed_pass_s)
    check_address(state.mail_server, body.email, check_spelling=False)
    await reminders.subscribe(
        state.db, state.inventory, state.settings, customers=customers, reservation_id=body.reservation_id,
        address=body.email, language=language_of(request.scope),
    )  # fmt: skip
    return ReminderAnswer(reservation_id=body.reservation_id)


@router.post(
    "/orders/links", status_code=204, summary="Have the links of an address's orders mailed again", tags=["orders"]
)
async def send_links(body: LinksRequest, request: Request, state: OrdersState, background: BackgroundTasks) -> None:
    """To the address that the orders have, at most once in ten minutes. The answer is the same for every address, and
    comes before anything is looked up.
    """
    if state.settings.smtp_url is None:
        raise MailDisabled
    state.link_limiter.check(client_address(request.scope, state.settings.trusted_proxies) or "")
    background.add_task(send_again, state.db, body.email)


def _customer(token: UnsubscribeToken, state: OrdersState) -> str:
    try:
        return read_order_token(state.settings.customer_keys, token, purpose=reminders.UNSUBSCRIBE)
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
    await reminders.opt_out(state.db, customer)
    text = words(language_of(request.scope))
    return _page(text, text("mail_stopped"), "")


def _page(text: Words, title: str, rest: str) -> HTMLResponse:
    headers = {**HEADERS, "content-language": text.language, "vary": VARY}
    return HTMLResponse(PAGE.format(text=text, title=title, rest=rest), headers=headers)
