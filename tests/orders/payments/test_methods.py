"""However the provider behaves, an order ends confirmed and paid once, or neither confirmed nor paid."""

import asyncio
from functools import partial

import pytest

from services.orders.payments.sandbox import METHODS
from tests.support.wait import wait_until

ENDS_UNPAID = {"decline": "expired"}
NEEDS_THE_FAN = {"redirect"}
NEVER_BY_ITSELF = {"decline": "failed", "success_after_cancel": "processing", "redirect": "requires_action"}


@pytest.mark.parametrize("webhooks", [True, False])
async def test_every_method_ends_in_exactly_one_of_confirmed_or_refunded(processes, webhooks):
    """All methods at once, with webhooks and without."""
    shop = await processes.open(webhooks=webhooks, provider_timeout_s=0.5)
    methods = sorted(METHODS)
    references = dict(zip(methods, await asyncio.gather(*map(shop_order(shop), methods)), strict=True))
    for method, status in NEVER_BY_ITSELF.items():
        await wait_until(partial(shop.attempt_is, references[method], status))
        await shop.expire(references[method])
    ended = {
        method: await shop.settled(reference, "confirmed", "expired", "cancelled", "refunded")
        for method, reference in references.items()
        if method not in NEVER_BY_ITSELF
    }
    assert set(ended.values()) == {"confirmed"}
    assert await shop.settled(references["decline"], "expired") == "expired"
    assert await shop.settled(references["redirect"], "expired") == "expired"
    await wait_until(lambda: _is_paid(shop, references["success_after_cancel"]))
    await shop.settled(references["success_after_cancel"], "confirmed", "refunded")
    if webhooks:
        await wait_until(lambda: _is_quiet(shop))
    assert await shop.audit() == {}
    assert await shop.entries() == await shop.booked()


async def test_a_second_success_is_refunded_alone(shop):
    reference = await shop.order(method="double_success")
    await shop.settled(reference, "confirmed")
    charges = await shop.charges(reference)
    assert sorted((c["captured_minor"], c["refunded_minor"]) for c in charges) == [(6800, 0), (6800, 6800)]
    seen = await shop.see(reference)
    assert (seen["charged_minor"], seen["refunded_minor"]) == (13600, 6800)


async def test_a_timeout_is_unknown_and_never_failed(processes):
    shop = await processes.open(provider_timeout_s=0.1)
    reference = await shop.order(method="timeout_after_success")
    seen = set()

    async def confirmed() -> bool:
        order = await shop.see(reference)
        seen.add(order["attempt"]["status"])
        return bool(order["status"] == "confirmed")

    await wait_until(confirmed)
    assert seen <= {"processing", "succeeded"}
    assert len(await shop.charges(reference)) == 1


async def test_provider_errors_end_in_cancelled_and_released(processes):
    """`error_then_ok` fails twice, and one retry is not enough."""
    shop = await processes.open(payment_retries=0)
    reference = await shop.order(method="error_then_ok")
    await shop.settled(reference, "cancelled")
    await wait_until(lambda: [path for path, *_ in processes.holds.asked][-1] == "release")
    assert await shop.charges(reference) == []


async def test_orders_are_taken_while_the_provider_is_down_and_wait_for_it(processes):
    shop = await processes.open(payment_retries=1, retry_max_s=0.05)
    await shop.sandbox.post("/control", json={"down_for_s": 60})
    references = [await shop.order() for _ in range(3)]
    await wait_until(lambda: _errors(shop, references[0]))
    assert [await shop.status(reference) for reference in references] == ["pending"] * 3
    await shop.sandbox.post("/control", json={"down_for_s": 0})
    for reference in references:
        await shop.settled(reference, "confirmed")
        assert len(await shop.charges(reference)) == 1


async def test_orders_wait_their_turn_at_a_provider_that_takes_few_calls(processes):
    """No error is allowed, and twelve orders meet a provider limited to five calls a second."""
    shop = await processes.open(payment_retries=0, retry_max_s=0.3)
    await shop.sandbox.post("/control", json={"rate_limit_per_s": 5})
    references = await asyncio.gather(*(shop.order() for _ in range(12)))
    await wait_until(lambda: _any_waits(shop, references))
    await shop.sandbox.post("/control", json={"rate_limit_per_s": 0})
    for reference in references:
        await shop.settled(reference, "confirmed")


async def test_another_amount_than_ordered_goes_to_review(shop):
    """The provider charged another amount under our reference."""
    reference = await shop.order(method="redirect")
    await wait_until(lambda: _attempted(shop, reference))
    odd = {"reference": reference, "amount_minor": 1, "currency": "EUR", "method": "ok"}
    await shop.sandbox.post("/charges", json=odd, headers={"idempotency-key": "odd"})
    await wait_until(lambda: _has(shop, reference, "review"))
    assert (await shop.charges(reference))[0]["refunded_minor"] == 0


def shop_order(shop):
    async def order(method):
        payment = {"return_url": "http://shop/o/back"} if method in NEEDS_THE_FAN else {}
        return await shop.order_of(shop.holds.hold(), method=method, **payment)

    return order


async def _is_paid(shop, reference):
    return any(charge["status"] == "succeeded" for charge in await shop.charges(reference))


async def _is_quiet(shop):
    return (await shop.sandbox.get("/healthz")).json()["webhooks_waiting"] == 0


async def _any_waits(shop, references):
    return any([(await shop.row(reference)).errors for reference in references])


async def _errors(shop, reference):
    return (await shop.row(reference)).errors > 4


async def _attempted(shop, reference):
    return (await shop.see(reference))["attempt"]["status"] == "requires_action"


async def _has(shop, reference, status):
    return await shop.status(reference) == status
