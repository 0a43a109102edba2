"""Decisions about an order in review: only allowed ones, once, and a worker executes them."""

import asyncio
from collections import Counter
from typing import Any

from tests.orders.shop import Shop
from tests.support.wait import wait_until


async def stray_charge(shop: Shop, *, amount_minor: int = 100) -> tuple[str, str]:
    """An order whose provider charged another amount, and its reservation."""
    held = shop.holds.hold()
    reference = await shop.order_of(held, method="redirect", return_url="http://shop/o/back")
    await wait_until(lambda: shop.attempt_is(reference, "requires_action"))
    stray = {"reference": reference, "amount_minor": amount_minor, "currency": "EUR", "method": "ok"}
    answer = await shop.sandbox.post("/charges", json=stray, headers={"idempotency-key": f"stray-{reference}"})
    assert answer.status_code == 201
    assert (await shop.operate(f"{reference}/retry")).status_code == 202
    return reference, held


def problem(answer: Any) -> tuple[int, str]:
    return answer.status_code, answer.json()["type"].removeprefix("/problems/")


async def test_money_of_a_wrong_amount_goes_back_when_a_person_says_so(shop: Shop) -> None:
    reference, held = await stray_charge(shop)
    await shop.is_now(reference, "review")
    (order,) = (await shop.look_up(status="review"))["orders"]
    assert (order["end_reason"], order["may_be_resolved_by"]) == ("mismatch", ["refund"])
    for decision in ("confirm", "expire"):
        assert problem(await shop.operate(f"{reference}/resolve", decision=decision)) == (409, "decision-not-allowed")
    answers = await asyncio.gather(*(shop.operate(f"{reference}/resolve", decision="refund") for _ in range(5)))
    assert Counter(answer.status_code for answer in answers) == {202: 1, 409: 4}
    await shop.is_now(reference, "refunded")
    await wait_until(lambda: shop.holds.reservations[held].status == "cancelled")
    assert await shop.net_minor(reference) == 0
    assert [e[0] for e in await shop.entries()] == ["charge", "refund"]
    assert problem(await shop.operate(f"{reference}/resolve", decision="refund")) == (409, "decision-not-allowed")
    assert await shop.audit() == {}


async def in_review(shop: Shop, reference: str, reason: str) -> None:
    await shop.run(
        "UPDATE orders.\"order\" SET status = 'review', end_reason = :reason, wake_count = wake_count + 1, "
        "due_at = NULL WHERE reference = :reference",
        reference=reference, reason=reason,
    )  # fmt: skip


async def test_an_outcome_nobody_will_ever_know_ends_and_later_money_goes_back(shop: Shop) -> None:
    held = shop.holds.hold()
    reference = await shop.order_of(held, method="redirect", return_url="http://shop/o/back")
    await wait_until(lambda: shop.attempt_is(reference, "requires_action"))
    await wait_until(lambda: not shop.app.state.deps.worker_pool.queue.rows)
    await in_review(shop, reference, "unknown")
    assert (await shop.operate(f"{reference}/resolve", decision="expire")).status_code == 202
    await shop.is_now(reference, "expired")
    await wait_until(lambda: shop.holds.reservations[held].status == "cancelled")
    charge = (await shop.charges(reference))[0]
    await shop.sandbox.post(f"/pay/{charge['id']}", data={"choice": "pay"})
    await shop.operate(f"{reference}/retry")
    await shop.is_now(reference, "refunded")
    assert await shop.net_minor(reference) == 0
    assert "reacquire" not in {path for path, *_ in shop.holds.asked}, "an operator ended it"
    assert await shop.audit() == {}


async def test_money_that_matches_is_confirmed_by_taking_the_stock_again(shop: Shop) -> None:
    reference, held = await stray_charge(shop, amount_minor=6801)
    await shop.is_now(reference, "review")
    exact = {"reference": reference, "amount_minor": 6800, "currency": "EUR", "method": "ok"}
    await shop.sandbox.post("/charges", json=exact, headers={"idempotency-key": "exact"})
    await shop.operate(f"{reference}/retry")
    await wait_until(lambda: charges_known(shop, reference, 2))
    shop.holds.change(held, status="expired")
    shop.holds.taken.add(held)
    assert (await shop.operate(f"{reference}/resolve", decision="confirm")).status_code == 202
    await shop.is_now(reference, "review")
    assert (await shop.row(reference)).end_reason == "taken", "somebody else has the stock: it is asked anew"
    shop.holds.taken.clear()
    assert (await shop.operate(f"{reference}/resolve", decision="confirm")).status_code == 202
    await shop.is_now(reference, "confirmed")
    await wait_until(lambda: net_is(shop, reference, 6800))
    assert shop.holds.reservations[held].status == "confirmed"
    assert await shop.audit() == {}


async def charges_known(shop: Shop, reference: str, n: int) -> bool:
    return len((await shop.row(reference)).charges) == n


async def net_is(shop: Shop, reference: str, minor: int) -> bool:
    return await shop.net_minor(reference) == minor
