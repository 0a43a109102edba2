"""Whatever the sandbox does with a payment, the order ends confirmed and paid once, or unconfirmed and unpaid."""

import asyncio
from functools import partial

import pytest

from services.orders.payments.sandbox import METHODS
from tests.support.wait import wait_until

STUCK_ATTEMPTS = {"decline": "failed", "success_after_cancel": "processing", "redirect": "requires_action"}


@pytest.mark.parametrize("webhooks", [True, False])
async def test_every_sandbox_method_ends_in_a_paid_sale_or_without_money(processes, webhooks):
    shop = await processes.open(webhooks=webhooks, provider_timeout_s=0.5)
    methods = sorted(METHODS)
    orders = (_order(shop, method) for method in methods)
    references = dict(zip(methods, await asyncio.gather(*orders), strict=True))
    for method, status in STUCK_ATTEMPTS.items():
        await wait_until(partial(shop.attempt_is, references[method], status))
        await shop.expire(references[method])
    ended = {
        method: await shop.wait_until_settled(reference, "confirmed", "expired", "cancelled", "refunded")
        for method, reference in references.items()
        if method not in STUCK_ATTEMPTS
    }
    assert set(ended.values()) == {"confirmed"}
    assert await shop.wait_until_settled(references["decline"], "expired") == "expired"
    assert await shop.wait_until_settled(references["redirect"], "expired") == "expired"
    await wait_until(lambda: _is_paid(shop, references["success_after_cancel"]))
    await shop.wait_until_settled(references["success_after_cancel"], "confirmed", "refunded")
    if webhooks:
        await wait_until(lambda: _no_webhooks_waiting(shop))
    assert await shop.violated_invariants() == {}
    assert await shop.money_entries() == await shop.provider_entries()


async def test_only_the_second_of_two_charges_is_refunded(shop):
    reference = await shop.order(method="double_success")
    await shop.wait_until_settled(reference, "confirmed")
    charges = await shop.charges(reference)
    assert sorted((c["captured_minor"], c["refunded_minor"]) for c in charges) == [(6800, 0), (6800, 6800)]

    async def booked() -> bool:
        order = await shop.view(reference)
        return bool((order["charged_minor"], order["refunded_minor"]) == (13600, 6800))

    await wait_until(booked)  # our books follow the provider's answer


async def test_a_timed_out_attempt_is_never_shown_as_failed(processes):
    shop = await processes.open(provider_timeout_s=0.1)
    reference = await shop.order(method="timeout_after_success")
    statuses = set()

    async def confirmed() -> bool:
        order = await shop.view(reference)
        statuses.add(order["attempt"]["status"])
        return bool(order["status"] == "confirmed")

    await wait_until(confirmed)
    assert statuses <= {"processing", "succeeded"}
    assert len(await shop.charges(reference)) == 1


async def test_provider_errors_cancel_the_order_and_release_its_hold(processes):
    """`error_then_ok` fails twice, and one retry is not enough."""
    shop = await processes.open(payment_retries=0)
    reference = await shop.order(method="error_then_ok")
    await shop.wait_until_settled(reference, "cancelled")
    await wait_until(lambda: processes.holds.called_paths[-1] == "release")
    assert await shop.charges(reference) == []


async def test_orders_are_accepted_while_the_provider_is_down_and_charged_later(processes):
    shop = await processes.open(payment_retries=1, retry_max_s=0.05)
    await shop.sandbox.post("/control", json={"down_for_s": 60})
    references = [await shop.order() for _ in range(3)]
    await wait_until(lambda: _errors(shop, references[0]))
    assert [await shop.status(reference) for reference in references] == ["pending"] * 3
    await shop.sandbox.post("/control", json={"down_for_s": 0})
    for reference in references:
        await shop.wait_until_settled(reference, "confirmed")
        assert len(await shop.charges(reference)) == 1


async def test_orders_wait_for_a_provider_that_limits_its_rate(processes):
    """Twelve orders at five calls a second; a single error would cancel an order."""
    shop = await processes.open(payment_retries=0, retry_max_s=0.3)
    await shop.sandbox.post("/control", json={"rate_limit_per_s": 5})
    references = await asyncio.gather(*(shop.order() for _ in range(12)))
    await wait_until(lambda: _any_waits(shop, references))
    await shop.sandbox.post("/control", json={"rate_limit_per_s": 0})
    for reference in references:
        await shop.wait_until_settled(reference, "confirmed")


async def test_a_charge_of_another_amount_goes_to_review(shop):

    reference = await shop.order(method="redirect")
    await wait_until(lambda: shop.attempt_is(reference, "requires_action"))
    await shop.charge_at_sandbox(reference, amount_minor=1, key="another")
    await wait_until(lambda: shop.status_is(reference, "review"))
    assert (await shop.charges(reference))[0]["refunded_minor"] == 0


async def _order(shop, method):
    payment = {"return_url": "http://shop/o/back"} if method == "redirect" else {}
    return await shop.order(method=method, **payment)


async def _is_paid(shop, reference):
    return any(charge["status"] == "succeeded" for charge in await shop.charges(reference))


async def _no_webhooks_waiting(shop):
    return (await shop.sandbox.get("/healthz")).json()["webhooks_waiting"] == 0


async def _any_waits(shop, references):
    return any([(await shop.row(reference)).errors for reference in references])


async def _errors(shop, reference):
    return (await shop.row(reference)).errors > 4
