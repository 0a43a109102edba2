"""The forms of orders for pages without scripts: buy, pay again, more time, cancel and correct the e-mail address.

Buying has one key for each reservation, so that a double press or a reload is one order.
"""

import re
from typing import Any
from urllib.parse import urlencode

from shared.routes import EVENT_ID, REFERENCE
from shared.web.forms import Form, SentForm
from shared.web.request import FormFields

ORDER = rf"/orders/(?P<reference>{REFERENCE})"
REHEARSAL = "sandbox"
_event_id, _reference = re.compile(EVENT_ID), re.compile(REFERENCE)


def order_body(fields: FormFields) -> dict[str, Any]:
    return fields.given(
        reservation_id=fields.one("reservation_id"), expected_total_minor=fields.number("expected_total_minor"),
        currency=fields.one("currency"), customer={"name": fields.one("name"), **email_body(fields)},
        promo_code=fields.one("promo_code"), **payment_body(fields),
    )  # fmt: skip


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


FORMS = (
    Form(r"/orders", order_body, next_page, key=order_key, typed=("name", "email")),
    Form(f"{ORDER}/email", email_body, order_page, typed=("email",)),
    Form(f"{ORDER}/payments", payment_body, order_page),
    Form(f"{ORDER}/(cancel|extend)", lambda fields: {}, order_page),
)
