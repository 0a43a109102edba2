"""Operators decide about orders in review: only allowed decisions, each once, and a worker executes them."""

import asyncio
from collections import Counter

from tests.orders.shop import Shop
from tests.support.running.suite import problem
from tests.support.wait import wait_until


async def pending_order(shop: Shop) -> tuple[str, str]:
    """An order whose fan is on the hosted page, and its reservation."""
    reservation_id = await shop.inventory.hold()
    reference = await shop.order_of(reservation_id, method="redirect", return_url="http://shop/o/back")
    await wait_until(lambda: shop.attempt_is(reference, "requires_action"))
    return reference, reservation_id


async def order_charged_wrongly(shop: Shop, *, amount_minor: int = 100) -> tuple[str, str]:
    """An order whose provider charged another amount, and its reservation."""
    reference, reservation_id = await pending_order(shop)
    await shop.charge_at_sandbox(reference, amount_minor=amount_minor, key=f"stray-{reference}")
    assert (await shop.admin_post(f"{reference}/retry")).status_code == 202
    return reference, reservation_id


async def test_an_operator_refunds_a_charge_of_a_wrong_amount(shop: Shop) -> None:
    reference, reservation_id = await order_charged_wrongly(shop)
    await shop.wait_for_status(reference, "review")
    (order,) = (await shop.admin_get(status="review"))["orders"]
    assert (order["end_reason"], order["may_be_resolved_by"]) == ("mismatch", ["refund"])
    for decision in ("confirm", "expire"):
        refused = await shop.admin_post(f"{reference}/resolve", decision=decision)
        assert problem(refused) == (409, "decision-not-allowed")
    answers = await asyncio.gather(*(shop.admin_post(f"{reference}/resolve", decision="refund") for _ in range(5)))
    assert Counter(answer.status_code for answer in answers) == {202: 1, 409: 4}
    await shop.wait_for_status(reference, "refunded")
    await wait_until(lambda: shop.inventory.has_status(reservation_id, "cancelled"))
    assert await shop.net_minor(reference) == 0
    assert [e[0] for e in await shop.money_entries()] == ["charge", "refund"]
    assert problem(await shop.admin_post(f"{reference}/resolve", decision="refund")) == (409, "decision-not-allowed")
    assert await shop.violated_invariants() == {}


async def test_an_operator_expires_an_unknown_payment_and_later_money_is_refunded(shop: Shop) -> None:
    reference, reservation_id = await pending_order(shop)
    await shop.wait_until_idle()
    await shop.run(
        "UPDATE orders.\"order\" SET status = 'review', end_reason = 'unknown' WHERE reference = :reference",
        reference=reference,
    )
    assert (await shop.admin_post(f"{reference}/resolve", decision="expire")).status_code == 202
    await shop.wait_for_status(reference, "expired")
    await wait_until(lambda: shop.inventory.has_status(reservation_id, "cancelled"))
    charge = (await shop.charges(reference))[0]
    await shop.sandbox.post(f"/pay/{charge['id']}", data={"choice": "pay"})
    await shop.admin_post(f"{reference}/retry")
    await shop.wait_for_status(reference, "refunded")
    assert await shop.net_minor(reference) == 0
    assert "reacquire" not in shop.inventory.steps
    assert await shop.violated_invariants() == {}


async def test_an_operator_confirms_a_matching_charge_by_reacquiring_the_stock(shop: Shop) -> None:
    reference, reservation_id = await order_charged_wrongly(shop, amount_minor=6801)
    await shop.wait_for_status(reference, "review")
    await shop.charge_at_sandbox(reference, amount_minor=6800, key="exact")
    await shop.admin_post(f"{reference}/retry")
    await wait_until(lambda: has_charges(shop, reference, 2))
    await shop.inventory.expire(reservation_id)
    other = await shop.inventory.sell_to_another(reservation_id)
    assert (await shop.admin_post(f"{reference}/resolve", decision="confirm")).status_code == 202
    await shop.wait_for_status(reference, "review")
    assert (await shop.row(reference)).end_reason == "taken", "somebody else has the stock"
    await shop.inventory.return_all(other)
    assert (await shop.admin_post(f"{reference}/resolve", decision="confirm")).status_code == 202
    await shop.wait_for_status(reference, "confirmed")
    await wait_until(lambda: net_is(shop, reference, 6800))
    assert await shop.inventory.status(reservation_id) == "confirmed"
    assert await shop.violated_invariants() == {}


async def has_charges(shop: Shop, reference: str, n: int) -> bool:
    return len((await shop.row(reference)).charges) == n


async def net_is(shop: Shop, reference: str, minor: int) -> bool:
    return await shop.net_minor(reference) == minor
