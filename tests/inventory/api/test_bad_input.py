"""Invalid requests: each is answered with its own problem document and changes nothing; and ids of reservations, from
the holder and the key of a request, or at random.
"""

from typing import Any

import pytest

from services.inventory.api.reservations import random_id, reservation_id_of_key
from tests.inventory.conftest import EVENT, Inventory, event_file, make_pass
from tests.support.running.suite import bearer, problem

SEAT: dict[str, Any] = {"seats": ["A-1-1"]}


@pytest.mark.parametrize(
    ("body", "status", "slug"),
    [
        ({}, 422, "invalid-request"),
        ({"seats": []}, 422, "invalid-request"),
        ({"seats": ["A-1-1", "A-1-1"]}, 422, "invalid-request"),
        ({"seats": ["A-1"]}, 422, "invalid-request"),
        ({"seats": ["A-9-1"]}, 404, "unknown-seat"),
        ({"seats": ["A-1-6"]}, 404, "unknown-seat"),
        ({"seats": ["A-01-1"]}, 404, "unknown-seat"),
        ({"seats": ["GA1-1-1"]}, 404, "unknown-section"),
        ({"ga": [{"section_id": "A", "quantity": 1}]}, 404, "unknown-section"),
        ({"ga": [{"section_id": "GA1", "quantity": 0}]}, 422, "invalid-request"),
        ({"ga": [{"section_id": "GA1", "quantity": 2**40}]}, 422, "invalid-request"),
        ({"ga_section": "GA1"}, 422, "invalid-request"),
        ({"ga": [{"section_id": "GA1", "quantity": 7}]}, 409, "limit-exceeded"),
        ({"ga": [{"section_id": "GA1", "quantity": 4}], "ga_section": "GA1", "ga_quantity": 3}, 409, "limit-exceeded"),
        ({**SEAT, "best_available": {"quantity": 2}}, 422, "invalid-request"),
        ({"best_available": {"quantity": 7}}, 409, "limit-exceeded"),
        ({**SEAT, "price": 1}, 422, "invalid-request"),
        ({**SEAT, "reminders": True}, 422, "invalid-request"),
        ({**SEAT, "email": "no\0pe@example.org"}, 422, "invalid-request"),
        ([], 422, "invalid-request"),
    ],
)
async def test_a_bad_request_is_refused(inventory: Inventory, body: Any, status: int, slug: str) -> None:
    headers = bearer(make_pass("fan"))
    answer = await inventory.fans.post(f"/events/{EVENT}/reservations", json=body, headers=headers)
    assert problem(answer) == (status, slug)
    assert await inventory.counts("A") == (15, 0)


async def test_each_wrong_credential_has_its_problem(inventory: Inventory) -> None:
    path = f"/events/{EVENT}/reservations"
    for headers, status, slug in (
        ({}, 401, "no-credential"),
        ({"authorization": "Basic x"}, 401, "bad-credential"),
        ({"authorization": "Bearer forged"}, 401, "bad-credential"),
        (bearer(make_pass("fan", lasts_s=-60)), 401, "bad-credential"),
        (bearer(make_pass("fan", event_id="other")), 403, "wrong-event"),
        ({"cookie": f"onsale_pass_{EVENT}={make_pass('fan')}"}, 403, "foreign-origin"),
        ({"authorization": f"Bearer {make_pass('fan')}", "idempotency-key": "a b"}, 400, "idempotency-key-malformed"),
    ):
        answer = await inventory.fans.post(path, json=SEAT, headers=headers)
        assert problem(answer) == (status, slug), headers
    cookie = {"cookie": f"onsale_pass_{EVENT}={make_pass('fan')}", "origin": "http://fans"}
    assert (await inventory.fans.post(path, json=SEAT, headers=cookie)).status_code == 201


@pytest.mark.parametrize("currency", ["EUE", "XYZ", "eur"])
async def test_an_event_in_an_unknown_currency_is_refused(inventory: Inventory, currency: str) -> None:
    answer = await inventory.put({**event_file(), "currency": currency})
    assert problem(answer) == (422, "invalid-request")
    assert "such as EUR" in answer.json()["detail"]
    assert not set(r"^[]{}\\$") & set(answer.json()["detail"])


async def test_malformed_and_oversized_requests_and_unknown_events_are_refused(inventory: Inventory) -> None:
    headers = bearer(make_pass("fan"))
    path = f"/events/{EVENT}/reservations"
    malformed = await inventory.fans.post(path, content=b"{", headers=headers)
    large = await inventory.fans.post(path, content=b" " * 300_000, headers=headers)
    unknown = await inventory.fans.post("/events/nowhere/reservations", json=SEAT, headers=headers)
    page = await inventory.fans.get(f"/events/{EVENT}/sections/A/seats?page_size=501", headers=headers)
    assert (malformed.status_code, large.status_code, unknown.status_code, page.status_code) == (400, 413, 404, 422)
    assert problem(unknown) == (404, "unknown-event")
    assert (await inventory.fans.get(f"/events/{EVENT}/reservations", headers=headers)).status_code == 405


async def test_a_refusal_names_the_taken_seats_or_the_tickets_left(inventory: Inventory) -> None:
    await inventory.reserve("first", seats=["A-1-1", "A-1-2"], ga_section="GA1", ga_quantity=3)
    taken = await inventory.reserve("second", seats=["A-1-2", "A-1-3"])
    assert (problem(taken), taken.json()["seats"]) == ((409, "seats-taken"), ["A-1-2"])
    await inventory.put(event_file(tickets_per_order=20, tickets_per_customer=20))
    sold_out = await inventory.reserve("third", token=make_pass("third", qty_max=20), ga_section="GA1", ga_quantity=18)
    assert (problem(sold_out), sold_out.json()["available"]) == ((409, "sold-out"), {"GA1": 17})
    assert sold_out.json()["detail"] == "Only 17 of these tickets are left in Floor."


async def test_a_repeated_key_returns_its_reservation_in_the_present_state(inventory: Inventory) -> None:
    first = (await inventory.reserve(key="key-1", **SEAT)).json()
    again = await inventory.reserve(key="key-1", **SEAT)
    assert (again.status_code, again.json()) == (201, first)
    other = await inventory.reserve(key="key-1", seats=["A-1-2"])
    assert problem(other) == (422, "idempotency-key-reused")
    assert (await inventory.fan_request("DELETE", first["reservation_id"])).status_code == 204
    assert (await inventory.reserve(key="key-1", **SEAT)).json() == {**first, "status": "cancelled"}
    assert await inventory.counts("A") == (15, 0)
    assert await inventory.hold("other", key="key-1", **SEAT) != first["reservation_id"]


async def test_a_reservation_of_another_fan_is_not_found(inventory: Inventory) -> None:
    reservation_id = await inventory.hold(**SEAT)
    for method, more in (("GET", ""), ("DELETE", ""), ("POST", "/extend")):
        answer = await inventory.fan_request(method, reservation_id, "thief", more=more)
        unknown = await inventory.fan_request(method, "0" * 32, more=more)
        assert problem(answer) == problem(unknown) == (404, "unknown-reservation")
    assert await inventory.counts("A") == (14, 1)


async def test_an_expired_pass_still_opens_its_live_reservation(inventory: Inventory) -> None:
    reservation_id = await inventory.hold(**SEAT)
    assert (await inventory.fan_request("GET", reservation_id, lasts_s=-60)).status_code == 200
    assert (await inventory.fan_request("DELETE", reservation_id, lasts_s=-60)).status_code == 204
    assert problem(await inventory.fan_request("GET", reservation_id, lasts_s=-60)) == (401, "bad-credential")


async def test_a_reservation_in_payment_or_sold_cannot_be_released(inventory: Inventory) -> None:
    reservation_id = await inventory.hold(**SEAT)
    await inventory.step("begin-payment", reservation_id, "order-1")
    paying = await inventory.fan_request("DELETE", reservation_id)
    by_operator = await inventory.admin("POST", f"/reservations/{reservation_id}/release", reason="a fan asked")
    await inventory.step("confirm", reservation_id, "order-1")
    bought = await inventory.fan_request("DELETE", reservation_id)
    assert paying.json()["type"] == by_operator["type"] == "/problems/payment-in-progress"
    assert bought.json()["type"] == "/problems/already-bought"


async def test_admin_and_internal_endpoints_need_a_key(inventory: Inventory) -> None:
    path = f"/admin/inventory/events/{EVENT}"
    assert (await inventory.fans.put(path, json=event_file())).status_code == 401
    assert (await inventory.fans.post(f"{path}/release-all", headers={"authorization": "Bearer x"})).status_code == 401
    for read in ("/stock", "/changes", "/seats.csv", "/sales.csv", "/audit", "/hold-times", "/reconcile"):
        assert (await inventory.fans.get(path + read)).status_code == 401, read
    assert (await inventory.internal.post("/internal/stock", json={"event_id": EVENT})).status_code == 401
    assert (await inventory.fans.post("/internal/stock", json={"event_id": EVENT})).status_code == 404


async def test_an_order_has_no_more_tickets_than_the_event_and_the_pass_allow(inventory: Inventory) -> None:
    await inventory.put(event_file(tickets_per_order=4, tickets_per_customer=0))
    bodies: list[dict[str, Any]] = [{"ga": [{"section_id": "GA1", "quantity": quantity}]} for quantity in (3, 5)]
    three, five = bodies
    assert problem(await inventory.reserve("fan", **five)) == (409, "limit-exceeded")
    with_pass = make_pass("fan", qty_max=2)
    assert problem(await inventory.reserve("fan", token=with_pass, **three)) == (409, "limit-exceeded")
    assert (await inventory.reserve("fan", **three)).status_code == 201


def test_two_fans_with_one_key_have_two_reservations() -> None:
    one, other = (reservation_id_of_key("show", holder, "my-key") for holder in ("ann", "ben"))
    assert one != other
    assert one == reservation_id_of_key("show", "ann", "my-key")
    assert one != reservation_id_of_key("another", "ann", "my-key")


def test_ids_of_reservations_cannot_be_guessed() -> None:
    suffixes = {random_id()[12:] for _ in range(600)}  # after the time, from more than one reading of randomness
    assert len(suffixes) == 600
    assert {len(suffix) for suffix in suffixes} == {20}
