"""Forms of orders: one order for a reservation, by the API's rules; and an order is read by its own token only."""

import json

import httpx
import pytest

from features.pages.forms import FormFields, SentForm, typed_fields
from features.pages.orders import next_page, order_body, order_key
from shared.rpc import sign_service_call
from shared.security.tokens import pass_cookie, sign_order_token
from shared.web.app import internal
from tests.orders.checkout.test_names import ids_of, names_of
from tests.orders.inventory import EVENT
from tests.orders.priced_event import open_sale
from tests.orders.shop import pass_of

FORM = (
    b"reservation_id=r1&expected_total_minor=6800&currency=EUR&name=+Ada+&email=ada%40example.org&promo_code="
    b"&event_id=show&method="
)


@pytest.mark.parametrize(
    ("method", "payment"),
    [
        (b"sandbox:ok", {"provider": "sandbox", "method": "ok"}),
        (b"ok", {"provider": "sandbox", "method": "ok"}),
        (b"stripe:redirect",
         {"provider": "stripe", "method": "redirect", "return_url": "https://tickets.example/o/{reference}"}),
    ],
)  # fmt: skip
def test_fields_become_the_body_of_the_api(method, payment):
    assert order_body(FormFields(FORM + method, "https://tickets.example")) == {
        "reservation_id": "r1", "expected_total_minor": 6800, "currency": "EUR",
        "customer": {"name": "Ada", "email": "ada@example.org", "check_spelling": True}, "payment": payment,
    }  # fmt: skip


def test_one_reservation_has_one_key():
    assert order_key(FormFields(FORM)) == order_key(FormFields(FORM + b"decline")) == "form.r1"


@pytest.mark.parametrize(
    ("fields", "answer", "page"),
    [
        (b"event_id=show", {"reference": "ABCDEFGH12"}, "/o/ABCDEFGH12"),
        (b"event_id=show", {"reference": "//evil.example"}, "/e/show"),
        (b"event_id=%2F%2Fevil.example", {}, "/"),
        (b"event_id=show&promo_code=A%26B", {}, "/e/show?promo=A%26B"),
    ],
)
def test_the_next_page_is_one_of_ours(fields, answer, page):
    assert next_page(SentForm({}, FormFields(fields), 202, answer)) == page


async def send(shop, path: str, fields: dict, **headers: str):
    cookie = f"{pass_cookie(EVENT)}={pass_of()}"
    own = {"cookie": cookie, "origin": str(shop.http.base_url).rstrip("/"), **headers}
    return await shop.http.post(path, data=fields, headers=own)


def form_of(reservation: str, method: str = "sandbox:ok", **changes: str) -> dict:
    return {
        "event_id": EVENT, "reservation_id": reservation, "expected_total_minor": "6800", "currency": "EUR",
        "name": "Ada", "email": "ada@example.org", "method": method, **changes,
    }  # fmt: skip


async def test_a_form_sent_twice_is_one_order_and_one_charge(shop):
    reservation = await shop.inventory.hold()
    pages = {(await send(shop, "/orders", form_of(reservation))).headers["location"] for _ in range(3)}
    [page] = pages
    reference = page.removeprefix("/o/")
    await shop.wait_until_settled(reference, "confirmed")
    assert len(await shop.charges(reference)) == 1


async def test_a_price_that_is_not_shown_any_more_charges_nothing(shop):
    answer = await send(shop, "/orders", form_of(await shop.inventory.hold(), expected_total_minor="1"))
    assert (answer.status_code, answer.headers["location"]) == (303, f"/e/{EVENT}?problem=price-changed")


async def test_an_order_is_read_by_its_own_token_only(shop):
    mine, other = [await shop.order() for _ in range(2)]
    keys = shop.settings.order_token_keys
    async with httpx.AsyncClient(transport=httpx.ASGITransport(internal(shop.app)), base_url="http://in") as inside:
        for token, status in ((sign_order_token(keys, mine), 200), (sign_order_token(keys, other), 401), ("x", 401)):
            body = json.dumps({"reference": mine, "token": token}).encode()
            headers = sign_service_call(shop.settings.service_keys, "POST", "/internal/orders/own", body)
            answer = await inside.post("/internal/orders/own", content=body, headers=headers)
            assert answer.status_code == status, token


async def test_a_doubtful_address_is_asked_about_with_what_was_typed_and_two_buttons(shop):
    reservation = await shop.inventory.hold()
    typed = form_of(reservation, name="Zoë & Ada", email="ada@gmial.com")
    asked = await send(shop, "/orders", typed)
    assert asked.headers["location"] == f"/e/{EVENT}?problem=email-likely-mistyped"
    kept = asked.headers.get_list("set-cookie")[-1]
    assert "; HttpOnly;" in kept
    assert "Max-Age=600" in kept
    fields = {b"cookie": kept.partition(";")[0].encode()}
    assert typed_fields(fields, secure=False) == {"name": "Zoë & Ada", "email": "ada@gmial.com"}
    taken = await send(shop, "/orders", typed | {"email_taken": "ada@gmail.com"})
    reference = taken.headers["location"].removeprefix("/o/")
    assert "onsale_typed=; Path=/; Max-Age=0" in taken.headers.get_list("set-cookie")[-1]
    assert (await shop.view(reference))["customer"]["email"] == "ada@gmail.com"
    other = form_of(await shop.inventory.hold(), email="ada@gmial.com") | {"email_kept": "1"}
    reference = (await send(shop, "/orders", other)).headers["location"].removeprefix("/o/")
    assert (await shop.view(reference))["customer"]["email"] == "ada@gmial.com"


async def test_an_address_is_corrected_by_a_form(shop):
    reservation = await shop.inventory.hold()
    reference = (await send(shop, "/orders", form_of(reservation))).headers["location"].removeprefix("/o/")
    asked = await send(shop, f"/orders/{reference}/email", {"email": "ada@hotnail.com"})
    assert asked.headers["location"] == f"/o/{reference}?problem=email-likely-mistyped"
    done = await send(shop, f"/orders/{reference}/email", {"email": "x@y.zz", "email_taken": "ada@hotmail.com"})
    assert done.headers["location"] == f"/o/{reference}"
    assert (await shop.view(reference))["customer"]["email"] == "ada@hotmail.com"


@pytest.mark.parametrize(
    ("typed", "names"),
    [
        (b"names=2&name.1=+Ada+&name.2=Bob&name.3=x", ["Ada", "Bob"]),
        (b"names=2&name.1=&name.2=Bob", ["", "Bob"]),
        (b"name.1=Ada", None),
        (b"names=x&name.1=Ada", None),
        (b"names=999", [""] * 100),
    ],
)
def test_the_fields_of_names_are_told_in_their_order(typed: bytes, names: list[str] | None) -> None:
    assert order_body(FormFields(FORM + b"ok&" + typed)).get("names") == names


async def test_names_are_bought_and_changed_by_forms(shop):
    sale = await open_sale(shop, sales={"names": "ticket"})
    event, reservation = {"event_id": sale.event_id}, await sale.hold()
    cookie = {"cookie": f"{pass_cookie(sale.event_id)}={pass_of(event_id=sale.event_id)}"}
    typed = form_of(reservation, **event, expected_total_minor="10000", names="2") | {"name.1": "Ada", "name.2": " "}
    refused = await send(shop, "/orders", typed, **cookie)
    assert refused.headers["location"] == f"/e/{sale.event_id}?problem=invalid-request"
    kept = {b"cookie": refused.headers.get_list("set-cookie")[-1].partition(";")[0].encode()}
    assert typed_fields(kept, secure=False) == {"name": "Ada", "email": "ada@example.org", "name.1": "Ada"}
    bought = await send(shop, "/orders", typed | {"name.2": "Grace"}, **cookie)
    reference = bought.headers["location"].removeprefix("/o/")
    await sale.wait_for_status(reference, "confirmed")
    first, second = await ids_of(sale, reference)
    fields = {"ticket": [first, second], f"name.{first}": "Ada", f"name.{second}": "Mary"}
    done = await send(shop, f"/orders/{reference}/names", fields, **cookie)
    assert done.headers["location"] == f"/o/{reference}"
    assert await names_of(sale, reference) == ["Ada", "Mary"]
    empty = await send(shop, f"/orders/{reference}/names", {"ticket": first, f"name.{first}": " "}, **cookie)
    assert empty.headers["location"] == f"/o/{reference}?problem=invalid-request"
    one = await send(shop, f"/orders/{reference}/names", {"name": "Bob"}, **cookie)
    assert one.headers["location"] == f"/o/{reference}?problem=name-change-refused"
