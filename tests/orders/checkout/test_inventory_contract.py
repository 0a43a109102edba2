"""Inventory's requests to orders get the same answers from orders and from its double in the tests of inventory."""

import pytest

from shared.contracts.orders import PaymentRef
from shared.web.app import internal
from tests.contracts.internal_calls import call_internal, client_of
from tests.inventory.conftest import ORDER_ANSWERS, Orders
from tests.orders.shop import Shop


async def order_in_state(shop: Shop, state: str) -> PaymentRef:
    total_minor = 0 if state == "free" else 6800
    reservation_id = await shop.inventory.hold(total_minor=total_minor)
    if state == "unknown":
        return PaymentRef(reservation_id=reservation_id, order_reference="N0B0DY0000")
    method = {"pending": "redirect", "cancelled": "decline"}.get(state, "ok")
    payment = {"return_url": "http://shop/o/back"} if state == "pending" else {}
    reference = await shop.order_of(reservation_id, method=method, total_minor=total_minor, **payment)
    if state == "cancelled":
        await shop.expire(reference)
    await shop.wait_for_status(reference, {"pending": "pending", "cancelled": "expired"}.get(state, "confirmed"))
    return PaymentRef(reservation_id=reservation_id, order_reference=reference)


@pytest.mark.parametrize("state", ORDER_ANSWERS)
async def test_orders_and_its_double_answer_inventory_alike(state: str, shop: Shop) -> None:
    ref, double = await order_in_state(shop, state), Orders()
    double.states[ref.order_reference] = state
    async with client_of(internal(shop.app)) as client:
        refs = [ref.model_dump()]
        payments = await call_internal(client, "/reservations/status", payments=refs)
        refunds = [await call_internal(client, "/orders/refund", refunds=refs, reason="oversell") for _ in range(2)]
    assert payments == (200, (await double.payments([ref])).model_dump())
    assert refunds == [(200, (await double.refund([ref], reason="oversell")).model_dump())] * 2
    if state == "sold":
        await shop.wait_for_status(ref.order_reference, "refunded")
