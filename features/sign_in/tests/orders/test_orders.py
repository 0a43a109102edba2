"""Signed-in users order and read their orders with a JWT alone, at any event."""

import asyncio
from typing import Any

import pytest

from features.sign_in.users import holder_of
from tests.orders.conftest import OrdersProcesses
from tests.orders.shop import Shop
from tests.support.providers.identity_provider import AUDIENCE, ISSUER, SECRET, jwt_by_secret
from tests.support.running.suite import bearer, problem


@pytest.fixture
async def shop(processes: OrdersProcesses) -> Shop:
    return await processes.open(user_jwt_secret=SECRET, user_jwt_issuer=ISSUER, user_jwt_audience=AUDIENCE)


async def hold_for(shop: Shop, user_id: str) -> str:
    return await shop.inventory.hold(holder_of(shop.settings.holder_keys, user_id))


async def place(shop: Shop, user_id: str, reservation_id: str, key: str) -> Any:
    headers = {**bearer(jwt_by_secret(user_id)), "idempotency-key": key}
    return await shop.http.post("/orders", json=shop.body(reservation_id), headers=headers)


async def test_a_user_orders_and_reads_the_order_with_a_jwt_only(shop: Shop) -> None:
    answer = await place(shop, "ada", await hold_for(shop, "ada"), "a-key")
    assert answer.status_code == 202
    reference = answer.json()["reference"]
    read = await shop.http.get(f"/orders/{reference}", headers=bearer(jwt_by_secret("ada", device=2)))
    assert (read.status_code, read.json()["reference"]) == (200, reference)
    refused = await shop.http.get(f"/orders/{reference}", headers=bearer(jwt_by_secret("bob")))
    assert problem(refused) == (404, "unknown-order")
    cancelled = await shop.http.post(f"/orders/{reference}/cancel", headers=bearer(jwt_by_secret("bob")))
    assert problem(cancelled) == (404, "unknown-order")


async def test_the_same_request_from_several_devices_makes_one_order(shop: Shop) -> None:
    reservation_id = await hold_for(shop, "ada")
    answers = await asyncio.gather(*(place(shop, "ada", reservation_id, "same-key") for _ in range(10)))
    assert {answer.status_code for answer in answers} == {202}
    assert len({answer.json()["reference"] for answer in answers}) == 1


async def test_a_user_cannot_order_another_users_hold(shop: Shop) -> None:
    reservation_id = await hold_for(shop, "ada")
    assert problem(await place(shop, "bob", reservation_id, "a-key")) == (404, "unknown-reservation")
    assert problem(await place(shop, "ada", "0" * 32, "a-key")) == (404, "unknown-reservation")
    assert (await place(shop, "ada", reservation_id, "a-key")).status_code == 202


async def test_a_user_lists_their_orders_of_all_events_newest_first(shop: Shop) -> None:
    mine = [(await place(shop, "ada", await hold_for(shop, "ada"), f"key-{n}")).json()["reference"] for n in range(3)]
    await place(shop, "bob", await hold_for(shop, "bob"), "another-key")
    await shop.run(
        "UPDATE orders.\"order\" SET event_id = 'elsewhere',"
        " owner_id = 'elsewhere:' || split_part(owner_id, chr(58), 2) WHERE reference = :reference",
        reference=mine[0],
    )
    listed = await shop.http.get("/orders", headers=bearer(jwt_by_secret("ada")))
    assert [order["reference"] for order in listed.json()["orders"]] == mine[::-1]
    second = await shop.http.get("/orders?page=2&page_size=2", headers=bearer(jwt_by_secret("ada")))
    assert [order["reference"] for order in second.json()["orders"]] == mine[:1]
    assert (await shop.http.get("/orders", headers=bearer(jwt_by_secret("nobody")))).json()["orders"] == []


async def test_an_invalid_jwt_is_refused(shop: Shop) -> None:
    reservation_id = await hold_for(shop, "ada")
    for jwt in (jwt_by_secret("ada", exp=1), jwt_by_secret("ada", iss="other"), jwt_by_secret("ada", secret="z" * 40)):
        headers = {**bearer(jwt), "idempotency-key": "a-key"}
        refused = await shop.http.post("/orders", json=shop.body(reservation_id), headers=headers)
        assert problem(refused) == (401, "bad-credential")
        assert problem(await shop.http.get("/orders", headers=bearer(jwt))) == (401, "bad-credential")
