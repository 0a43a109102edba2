"""The payment status of an order in every state: orders, and its double in the tests of inventory, answer the same."""

import pytest

from shared.contracts.orders import PaymentRef
from shared.web.app import internal
from tests.contracts.internal_calls import call_internal, client_of
from tests.inventory.conftest import ORDER_ANSWERS, Orders
from tests.orders.shop import Shop


async def brought_to(shop: Shop, state: str) -> PaymentRef:
    """An order in this state, with its reservation."""
    total_minor = 0 if state == "free" else 6800
    held = shop.holds.hold(total_minor=total_minor)
    if state == "unknown":
        return PaymentRef(reservation_id=held, order_reference="N0B0DY0000")
    method = {"pending": "redirect", "cancelled": "decline"}.get(state, "ok")
    more = {"return_url": "http://shop/o/back"} if state == "pending" else {}
    reference = await shop.order_of(held, method=method, total_minor=total_minor, **more)
    if state == "cancelled":
        await shop.expire(reference)
    await shop.is_now(reference, {"pending": "pending", "cancelled": "expired"}.get(state, "confirmed"))
    return PaymentRef(reservation_id=held, order_reference=reference)


@pytest.mark.parametrize("state", ORDER_ANSWERS)
async def test_an_order_is_spoken_of_alike(state: str, shop: Shop) -> None:
    ref, fake = await brought_to(shop, state), Orders()
    fake.states[ref.order_reference] = state
    async with client_of(internal(shop.app)) as inside:
        refs = [ref.model_dump()]
        payments = await call_internal(inside, "/reservations/status", payments=refs)
        refunds = [await call_internal(inside, "/orders/refund", refunds=refs, reason="oversell") for _ in range(2)]
    assert payments == (200, (await fake.payments([ref])).model_dump())
    assert refunds == [(200, (await fake.refund([ref], reason="oversell")).model_dump())] * 2
    if state == "sold":
        await shop.is_now(ref.order_reference, "refunded")
