"""Inventory requests the refund of an oversold order: it is made once, in full, and the fan reads the reason."""

import asyncio

from shared.web.app import internal
from tests.contracts.internal_calls import call_internal, client_of
from tests.orders.reported_amounts import events_of
from tests.orders.shop import Shop


async def request_refund(shop: Shop, reference: str, reservation_id: str) -> str:
    """As inventory does; returns the answer."""
    refs = [{"order_reference": reference, "reservation_id": reservation_id}]
    async with client_of(internal(shop.app)) as client:
        status, body = await call_internal(client, "/orders/refund", refunds=refs, reason="oversell")
    assert status == 200, body
    return str(body["refunds"][0])


async def test_an_oversold_order_is_refunded_once_despite_repeated_requests_and_shows_the_reason(shop: Shop) -> None:
    reservation_id = await shop.inventory.hold()
    reference = await shop.order_of(reservation_id)
    await shop.wait_until_settled(reference, "confirmed")
    assert (await shop.view(reference))["oversold"] is False
    answers = await asyncio.gather(*(request_refund(shop, reference, reservation_id) for _ in range(6)))
    assert set(answers) == {"asked"}
    await shop.wait_until_settled(reference, "refunded")
    assert await request_refund(shop, reference, reservation_id) == "asked"
    assert [c["refunded_minor"] for c in await shop.charges(reference)] == [6800]
    assert [entry[0] for entry in await shop.money_entries()] == ["charge", "refund"]
    assert await shop.scalar("SELECT count(*) FROM orders.checkout_command WHERE command_type = 'refund'") == 1
    assert await shop.query("SELECT requested_by, reason FROM orders.refund") == [("oversell", "oversell")]
    assert await shop.violated_invariants() == {}
    assert (await shop.view(reference))["oversold"] is True
    events = await events_of(shop, reference)
    assert [event["after"]["reason"] for event in events if event["type"] == "order.refunded"] == ["oversell"]


async def test_the_refund_of_a_pending_order_is_answered_later(shop: Shop) -> None:
    reservation_id = await shop.inventory.hold()
    reference = await shop.order_of(reservation_id, method="redirect", return_url="http://shop/o/back")
    assert await request_refund(shop, reference, reservation_id) == "later"
    assert await request_refund(shop, reference, "0" * 32) == "none", "another reservation's order"
    assert await request_refund(shop, "0" * 26, reservation_id) == "none"
    assert await shop.scalar("SELECT count(*) FROM orders.refund") == 0
