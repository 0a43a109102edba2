"""The part of orders: what the pages ask it, and the forms for pages without scripts: buy, pay again, more time,
cancel, correct the e-mail address and change names. Buying has one key for each reservation: a double press or a reload
is one order.
"""

import re
from typing import Any
from urllib.parse import urlencode

from pydantic import ValidationError

from features.pages.contracts import CheckoutFacts, OwnOrder, ReadCheckout, ReadOwnOrder, ReadPrices
from features.pages.forms import Form, FormFields, Forms, SentForm
from services.orders.api.orders import offered_providers
from services.orders.checkout.requests import QuoteRequest
from services.orders.model.order import Customer
from services.orders.model.view import order_view
from services.orders.pricing.quote import TicketsAt, quote_body
from services.orders.problems import AmountNotPayable, PromoCodeNotValid
from services.orders.state import State
from services.orders.tickets.show import read_show
from shared.contracts.event_parts.names import NAMES_MAX
from shared.contracts.orders import OrderView, QuoteAnswer
from shared.contracts.prices import PricesAnswer
from shared.errors.problems import BadCredential, Problem, TooManyWrongCodes
from shared.routes import EVENT_ID, REFERENCE
from shared.security.tokens import read_order_token
from shared.web.internal_api import InternalApi
from shared.web.parts import Part

API = InternalApi()


@API.operation("/orders/own", ReadOwnOrder)
async def read_own(state: State, question: ReadOwnOrder) -> OwnOrder:
    if read_order_token(state.settings.order_token_keys, question.token) != question.reference:
        raise BadCredential
    order = await state.store.require(question.reference)
    show = await read_show(state.store.db, order.event_id)
    return OwnOrder(
        order=OrderView.model_validate(order_view(order)), providers=offered_providers(state), names=show.names,
        names_until=show.names_end,
    )  # fmt: skip


@API.operation("/checkout/read", ReadCheckout)
async def read_checkout(state: State, question: ReadCheckout) -> CheckoutFacts:
    """A promo code that is not valid is left out of the quote, and named as the refusal."""
    customers = [Customer(question.event_id, question.holder)]
    refusal, code = None, question.promo_code
    try:
        with_code = QuoteRequest(reservation_id=question.reservation_id, promo_code=code)
        quoted = await state.checkout.quote(customers, with_code, address=question.address)
    except (PromoCodeNotValid, TooManyWrongCodes, AmountNotPayable, ValidationError) as refused:
        refusal = refused.slug if isinstance(refused, Problem) else PromoCodeNotValid.slug
        plain = QuoteRequest(reservation_id=question.reservation_id)
        quoted = await state.checkout.quote(customers, plain, address=question.address)
    quote = QuoteAnswer.model_validate(quote_body(*quoted))
    return CheckoutFacts(quote=quote, providers=offered_providers(state), refusal=refusal)


@API.operation("/events/prices", ReadPrices)
async def read_prices(state: State, question: ReadPrices) -> PricesAnswer:
    event = await state.prices.rules(question.event_id)
    each = {minor: event.all_in(TicketsAt(minor)) for minor in question.each}
    found = PricesAnswer(**event.rules.model_dump(), all_in=each)
    for one in question.each_of_type:
        at = TicketsAt(one.price_minor, type_id=event.types.stored(one.type_id))
        found.all_in_by_type.setdefault(one.type_id, {})[one.price_minor] = event.all_in(at)
    return found


# -- forms -------------------------------------------------------------------------------------------------------------

ORDER = rf"/orders/(?P<reference>{REFERENCE})"
REHEARSAL = "sandbox"
TYPED_NAMES = tuple(f"name.{n}" for n in range(1, NAMES_MAX + 1))
_event_id, _reference = re.compile(EVENT_ID), re.compile(REFERENCE)


def order_body(fields: FormFields) -> dict[str, Any]:
    return fields.given(
        reservation_id=fields.one("reservation_id"), expected_total_minor=fields.number("expected_total_minor"),
        currency=fields.one("currency"), customer={"name": fields.one("name"), **email_body(fields)},
        promo_code=fields.one("promo_code"), names=typed_names(fields), **payment_body(fields),
    )  # fmt: skip


def typed_names(fields: FormFields) -> list[str]:
    """A name for each ticket that the form asked about; an empty one is refused with its ticket."""
    number = fields.number("names")
    count = min(number, NAMES_MAX) if isinstance(number, int) else 0
    return [fields.one(f"name.{n}") or "" for n in range(1, count + 1)]


def names_body(fields: FormFields) -> dict[str, Any]:
    """Names by their tickets, or the one of the order."""
    names = {ticket: fields.one(f"name.{ticket}") or "" for ticket in fields.all("ticket")}
    return fields.given(names=names, name=fields.one("name"))


def email_body(fields: FormFields) -> dict[str, Any]:
    """The address as typed or, by the buttons below a doubtful one, the suggested one or the typed one for sure."""
    taken = fields.one("email_taken")
    doubted = taken is None and fields.one("email_kept") is None
    return {"email": taken or fields.one("email")} | ({"check_spelling": True} if doubted else {})


def payment_body(fields: FormFields) -> dict[str, Any]:
    """`method` is a test payment, or `provider:method`; the provider sends the fan back to the order's page."""
    provider, _, method = (fields.one("method") or "").rpartition(":")
    redirect = method == "redirect"
    back = f"{fields.origin}/o/{{reference}}" if redirect else None
    return {"payment": fields.given(provider=provider or REHEARSAL, method=method, return_url=back)}


def next_page(sent: SentForm) -> str:
    """The new order's page, or the event's page with what was typed there."""
    reference = str(sent.answer.get("reference", ""))
    if sent.slug is None and _reference.fullmatch(reference):
        return f"/o/{reference}"
    event_id, code = sent.fields.one("event_id") or "", sent.fields.one("promo_code")
    page = f"/e/{event_id}" if _event_id.fullmatch(event_id) else "/"
    return page + (f"?{urlencode({'promo': code})}" if code and page != "/" else "")


def order_page(sent: SentForm) -> str:
    return f"/o/{sent.path['reference']}"


def order_key(fields: FormFields) -> str | None:
    return f"form.{fields.one('reservation_id') or ''}"


PART = Part(internal_api=API, forms=Forms(
    Form(r"/orders", order_body, next_page, key=order_key, typed=("name", "email", *TYPED_NAMES)),
    Form(f"{ORDER}/email", email_body, order_page, typed=("email",)),
    Form(f"{ORDER}/names", names_body, order_page),
    Form(f"{ORDER}/payments", payment_body, order_page),
    Form(f"{ORDER}/(cancel|extend)", lambda fields: {}, order_page),
))  # fmt: skip
