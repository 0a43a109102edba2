"""Inventory oversold and requests refunds: once, in full, and the fan is notified."""

import asyncio
import json
from typing import Any

import httpx

from shared.runtime.settings import development_keys
from shared.security.auth import sign_service_call
from shared.web.app import internal
from tests.orders.shop import Shop


async def ask(shop: Shop, reference: str, reservation_id: str) -> str:
    """As inventory calls it."""
    ref = {"order_reference": reference, "reservation_id": reservation_id}
    body = json.dumps({"refunds": [ref], "reason": "oversell"}).encode()
    headers = sign_service_call(development_keys("service"), "POST", "/internal/orders/refund", body)
    transport = httpx.ASGITransport(app=internal(shop.app))
    async with httpx.AsyncClient(transport=transport, base_url="http://orders") as inside:
        answer = await inside.post("/internal/orders/refund", content=body, headers=headers)
    assert answer.status_code == 200, answer.text
    return str(answer.json()["refunds"][0])


async def test_the_money_goes_back_once_though_it_is_asked_for_many_times(shop: Shop) -> None:
    held = shop.holds.hold()
    reference = await shop.order_of(held)
    await shop.settled(reference, "confirmed")
    assert set(await asyncio.gather(*(ask(shop, reference, held) for _ in range(6)))) == {"asked"}
    await shop.settled(reference, "refunded")
    assert await ask(shop, reference, held) == "asked"
    assert [c["refunded_minor"] for c in await shop.charges(reference)] == [6800]
    assert [entry[0] for entry in await shop.entries()] == ["charge", "refund"]
    assert await rows(shop, "SELECT count(*) AS n FROM orders.checkout_command WHERE command_type = 'refund'") == [(1,)]
    assert await rows(shop, "SELECT requested_by, reason FROM orders.refund") == [("oversell", "oversell")]
    assert await shop.audit() == {}


async def test_the_fan_is_told_why(shop: Shop) -> None:
    held = shop.holds.hold()
    reference = await shop.order_of(held)
    await shop.settled(reference, "confirmed")
    assert (await shop.see(reference))["oversold"] is False
    await ask(shop, reference, held)
    await shop.settled(reference, "refunded")
    assert (await shop.see(reference))["oversold"] is True
    told = await rows(shop, "SELECT body -> 'after' ->> 'reason' FROM orders.outbox "
                      "WHERE body ->> 'type' = 'order.refunded'")  # fmt: skip
    assert told == [("oversell",)]


async def test_an_order_that_is_not_through_is_asked_for_later(shop: Shop) -> None:
    held = shop.holds.hold()
    reference = await shop.order_of(held, method="redirect", return_url="http://shop/o/back")
    assert await ask(shop, reference, held) == "later"
    assert await ask(shop, reference, "0" * 32) == "none", "another reservation's order"
    assert await ask(shop, "0" * 26, held) == "none"
    assert await rows(shop, "SELECT count(*) FROM orders.refund") == [(0,)]


async def rows(shop: Shop, query: str) -> list[Any]:
    from sqlalchemy import text

    async with shop.app.state.deps.db.connect() as connection:
        return [tuple(row) for row in await connection.execute(text(query))]
