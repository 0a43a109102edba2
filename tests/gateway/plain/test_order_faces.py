"""What the page of an order without scripts says of money that the bank or the provider took back."""

from typing import Any

import pytest

from services.gateway.fan_pages.own_order import order_view
from shared.contracts.orders import CustomerView, LineView, OrderView, OwnOrder
from shared.words.words import words

NOW = "2027-05-01T20:00:00Z"
LANGUAGES = ("en", "de", "fr", "es", "ar")


def own(**changes: Any) -> OwnOrder:
    line = LineView(
        section_id="A", seat_id="A-1-1", quantity=1, returned=0, unit_price_minor=6800, paid_minor=6800
    )  # fmt: skip
    order = OrderView(
        reference="7Q2M4XK9TB1C", event_id="show", reservation_id="r", progress=None, total_minor=6800, currency="EUR",
        charged_minor=6800, refunding_minor=0, lines=[line], extras=[], language="en",
        customer=CustomerView(name="Ada", email="ada@example.org"), created_at=NOW, expires_at=NOW,
        expires_in_seconds=0, confirmed_at=NOW, fulfilled_at=NOW, cancel_asked=False, extended=False, oversold=False,
        attempt=None, **{"refunded_minor": 0, "end_reason": None, **changes},
    )  # fmt: skip
    return OwnOrder(order=order, providers=[])


@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize(("changes", "face"), [
    ({"status": "review", "dispute": "open", "disputed_minor": 6800, "end_reason": "disputed"}, "disputed"),
    ({"status": "review", "end_reason": "refunded-outside", "refunded_minor": 100}, "review"),
    ({"status": "refunded", "dispute": "lost", "disputed_minor": 6800}, "taken_back"),
    ({"status": "refunded", "refunded_minor": 6800}, "refunded"),
    ({"status": "confirmed", "dispute": "won"}, "confirmed"),
])  # fmt: skip
def test_a_fan_reads_a_sentence_about_the_payment(language: str, changes: dict[str, Any], face: str) -> None:
    text = words(language)
    view = order_view(text, own(**changes), event_name="A show", sections={})
    assert (view.face, view.title, view.text) == (face, text(f"order_{face}"), text(f"order_{face}_text"))
    assert view.text
