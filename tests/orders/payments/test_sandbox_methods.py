"""Whatever the sandbox does with a payment, the order ends confirmed and paid once, or unconfirmed and unpaid."""

import asyncio
from functools import partial

import pytest

from services.orders.providers import METHODS
from services.orders.settings import Settings
from tests.support.wait import wait_until

STUCK_ATTEMPTS = {"decline": "failed", "success_after_cancel": "processing", "redirect": "requires_action"}


@pytest.mark.usefixtures("early_comparison")
@pytest.mark.parametrize("webhooks", [True, pytest.param(False, marks=pytest.mark.proof)])
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


async def _order(shop, method):
    payment = {"return_url": "http://shop/o/back"} if method == "redirect" else {}
    return await shop.order(method=method, **payment)


async def _is_paid(shop, reference):
    return any(charge["status"] == "succeeded" for charge in await shop.charges(reference))


async def _no_webhooks_waiting(shop):
    return (await shop.sandbox.get("/healthz")).json()["webhooks_waiting"] == 0


def test_production_refuses_the_sandbox(monkeypatch):
    for name in ("CUSTOMER", "HOLDER", "ORDER_TOKEN", "PASS_PUBLIC", "SANDBOX_WEBHOOK", "SERVICE", "TICKET"):
        monkeypatch.setenv(f"ONSALE_{name}_KEYS", "k1:" + "A" * 43)
    with pytest.raises(ValueError, match="set ORDERS_PAYMENT_PROVIDERS, or to rehearse ONSALE_ENVIRONMENT=rehearsal"):
        Settings(environment="production", secure_cookies=True)
    assert Settings(environment="rehearsal").payment_providers == ("sandbox",)
