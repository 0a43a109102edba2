"""Invalid requests to orders are answered with a problem document and change nothing."""

import time
from typing import Any

import pytest
from sqlalchemy import select

from onsale.sandbox.webhooks import sign
from services.orders.checkout.requests import looks_like_card_number
from services.orders.tables import webhook_inbox
from tests.orders.shop import VIEWER, pass_header, pass_of, succeeded_webhook
from tests.support.running.suite import problem
from tests.support.wait import wait_until

UNKNOWN = "AAAAAAAAAAAA"


BAD_ORDERS: list[tuple[dict[str, Any], int, str]] = [
    ({"reservation_id": "unknown"}, 404, "unknown-reservation"),
    ({"reservation_id": "x" * 65}, 422, "invalid-request"),
    ({"expected_total_minor": 6700}, 409, "price-changed"),
    ({"expected_total_minor": -1}, 422, "invalid-request"),
    ({"expected_total_minor": 2**70}, 422, "invalid-request"),
    ({"currency": "USD"}, 409, "price-changed"),
    ({"currency": "euro"}, 422, "invalid-request"),
    ({"currency": "EUE"}, 422, "invalid-request"),
    ({"surprise": 1}, 422, "invalid-request"),
    ({"promo_code": "FREE"}, 422, "promo-code-not-valid"),
    ({"customer": {"name": "A", "email": "nobody"}}, 422, "invalid-request"),
    ({"customer": {"name": "A\x00", "email": "a@b.org"}}, 422, "invalid-request"),
    ({"customer": {"name": " ", "email": "a@b.org"}}, 422, "invalid-request"),
    ({"payment": {"provider": "nobody", "method": "ok"}}, 422, "invalid-request"),
    ({"payment": {"method": "magic"}}, 422, "invalid-request"),
    ({"payment": {"method": "ok", "return_url": "javascript:alert(1)"}}, 422, "invalid-request"),
    ({"payment": {"method": "ok", "token": "4242424242424242"}}, 422, "card-number-refused"),
    ({"payment": {"method": "ok", "token": "tok_4242-4242-4242-4242"}}, 422, "card-number-refused"),
    ({"payment": {"method": "ok", "return_url": "https://a.example/4242424242424242"}}, 422, "card-number-refused"),
    ({"customer": {"name": "Ada 4242 4242 4242 4242 12/27 123", "email": "a@b.org"}}, 422, "card-number-refused"),
    ({"customer": {"name": "Ada", "email": "4242424242424242@b.org"}}, 422, "card-number-refused"),
    ({"customer": {"name": "Ada", "email": "a@b.org", "phone": "4242-4242-4242-4242"}}, 422, "card-number-refused"),
    ({"promo_code": "4242424242424242"}, 422, "card-number-refused"),
]


NEEDS_THE_RESERVATION = ("unknown-reservation", "price-changed", "promo-code-not-valid")


async def test_an_invalid_order_is_refused_and_leaves_the_hold_unchanged(shop):
    """What needs no reservation is refused before the hold is bound; whatever else, the hold is as it was."""
    reservation = await shop.inventory.hold()
    before = await shop.inventory.read(reservation)
    for change, status, slug in BAD_ORDERS:
        calls = len(shop.inventory.steps)
        answer = await shop.post({**shop.body(reservation), **change})
        assert problem(answer) == (status, slug), change
        assert answer.headers["content-type"] == "application/problem+json"
        assert "4242" not in answer.text
        assert await shop.inventory.read(reservation) == before, change
        assert slug in NEEDS_THE_RESERVATION or len(shop.inventory.steps) == calls, change


async def test_a_changed_price_is_refused_with_the_new_prices(shop):
    answer = await shop.post(shop.body(await shop.inventory.hold(total_minor=7000)))
    prices = answer.json()
    assert (prices["total_minor"], prices["currency"], prices["lines"][0]["unit_price_minor"]) == (7000, "EUR", 7000)


async def test_somebody_elses_reservation_or_order_is_not_found(shop):
    reservation = await shop.inventory.hold("owner")
    answer = await shop.post(shop.body(reservation), holder="thief")
    assert problem(answer) == (404, "unknown-reservation")
    reference = (await shop.post(shop.body(reservation), holder="owner")).json()["reference"]
    shop.http.cookies.clear()
    stranger = pass_header("thief")
    for path in (f"/orders/{reference}", f"/orders/{UNKNOWN}"):
        answer = await shop.http.get(path, headers=stranger)
        assert problem(answer) == (404, "unknown-order")
        assert (await shop.http.get(path)).status_code == 401
    assert (await shop.http.post(f"/orders/{reference}/cancel", headers=stranger)).status_code == 404
    other_event = pass_header("owner", event_id="another") | {"idempotency-key": "k"}
    answer = await shop.http.post("/orders", json=shop.body(reservation), headers=other_event)
    assert answer.json()["type"] == "/problems/unknown-reservation"


async def test_an_order_needs_a_valid_pass(shop):
    body = shop.body(await shop.inventory.hold())
    answer = await shop.http.post("/orders", json=body, headers={"idempotency-key": "k"})
    assert problem(answer) == (401, "no-credential")
    forged = {"idempotency-key": "k", "authorization": f"Bearer {pass_of()[:-6]}AAAAAA"}
    answer = await shop.http.post("/orders", json=body, headers=forged)
    assert problem(answer) == (401, "bad-credential")


async def test_an_ended_hold_cannot_be_ordered(shop):
    inventory = shop.inventory
    for ends in ([inventory.expire], [inventory.cancel], [inventory.sell, inventory.return_all]):
        reservation = await inventory.hold()
        for end in ends:
            await end(reservation)
        answer = await shop.post(shop.body(reservation))
        assert problem(answer) == (410, "hold-expired")


async def test_limits_follow_the_customer_across_holders(shop):
    shop.inventory.sales["open_orders_per_customer"] = 1
    # The first is still in payment when the second is ordered.
    first = shop.body(await shop.inventory.hold("a"), method="redirect")
    assert (await shop.post(first, holder="a")).status_code == 202
    body = shop.body(await shop.inventory.hold("b"))
    body["customer"]["email"] = "ADA@Example.org"
    answer = await shop.post(body, holder="b")
    assert problem(answer) == (409, "limit-exceeded")
    details = {name: answer.json()[name] for name in ("detail", "limit", "allowed", "used")}
    text = "Orders in payment at once: 1 so far, at most 1 in all."
    assert details == {"detail": text, "limit": "open_orders_per_customer", "allowed": 1, "used": 1}


async def test_a_malformed_body_is_400(shop):
    headers = pass_header() | {"idempotency-key": "k", "content-type": "application/json"}
    answer = await shop.http.post("/orders", content=b"{", headers=headers)
    assert problem(answer) == (400, "malformed-request")
    answer = await shop.http.post("/orders", content=b" " * 300_000, headers=headers)
    assert answer.status_code == 413


async def test_a_webhook_that_the_provider_did_not_sign_is_not_stored(shop):
    body = succeeded_webhook("evt_1", reference=UNKNOWN)
    [secret], now = shop.settings.sandbox_webhook_secrets, int(time.time())
    signature = sign(body, secret=secret, at_s=now)
    forged = {
        "no signature": (body, ""),
        "another secret": (body, sign(body, secret="wrong", at_s=now)),
        "an old signature": (body, sign(body, secret=secret, at_s=now - 400)),
        "another body": (body + b" ", signature),
    }
    for case, (sent, forged_signature) in forged.items():
        headers = {"sandbox-signature": forged_signature}
        assert (await shop.http.post("/webhooks/sandbox", content=sent, headers=headers)).status_code == 401, case
    headers = {"sandbox-signature": signature}
    assert (await shop.http.post("/webhooks/nobody", content=body, headers=headers)).status_code == 404
    assert await shop.query(select(webhook_inbox)) == []


async def test_a_webhook_for_an_unknown_order_is_stored_and_retried(shop):
    body = succeeded_webhook("evt_1", reference=UNKNOWN)
    for _ in range(2):
        await shop.deliver(body)
    await wait_until(lambda: shop.scalar(select(webhook_inbox.c.tries)))
    [row] = await shop.query(select(webhook_inbox))
    assert (row.applied_at, row.raw) == (None, body)


async def test_operators_need_an_admin_key_of_the_right_role(shop):
    reference = await shop.order()
    path = f"/admin/orders/{reference}/refund"
    shop.http.cookies.clear()
    assert (await shop.http.post(path, json={"reason": "x"})).status_code == 401
    assert (await shop.http.post(path, json={"reason": "x"}, headers=VIEWER)).status_code == 403
    searched = await shop.http.get("/admin/orders", params={"q": reference}, headers=VIEWER)
    assert searched.status_code == 403


@pytest.mark.parametrize(
    ("text", "in_token", "elsewhere"),
    [
        ("4242 4242 4242 4242", True, True), ("3782 822463 10005", True, True), ("x5555555555554444", True, False),
        ("1234567890123", True, False), ("0a4242424242424242f@example.org", True, False),
        ("4242424242424242@example.org", True, True), ("tok_1234567890", False, False),
        ("pm_1Nv0001234567890123", False, False), ("x4242424242424241", False, False),
        ("+4242 4242 4242 4242", False, False), ("1763740800000", True, False), ("0049 170 12345678", False, False),
        ("2026-11-21 15:00", False, False), ("Ada 3rd", False, False),
    ],
)  # fmt: skip
def test_card_numbers_are_distinguished_from_tokens_telephone_numbers_and_times(text, in_token, elsewhere):
    """Digits among letters are a card number in a token only, and a token of 13 to 19 digits always is one."""
    assert (looks_like_card_number(text, is_token=True), looks_like_card_number(text)) == (in_token, elsewhere)
