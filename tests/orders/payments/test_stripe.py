"""What only Stripe does: idempotency keys that expire, paged lists, hundredths of currencies without any."""

import asyncio

import pytest
import pytest_asyncio

from services.orders.payments.provider import NotSent, ProviderRejected, ProviderTimeout
from services.orders.payments.stripe import Stripe
from shared.rpc.outgoing import external_http_client
from shared.runtime.clock import now_ms
from tests.orders.provider_setups import StripeSetup
from tests.support.wait import wait_until


@pytest_asyncio.fixture(loop_scope="session")
async def setup(environment):
    await environment.clear()
    async with external_http_client(connections_max=8) as client:
        yield StripeSetup(client, environment.stripe_url, environment.stripe)


async def test_a_key_in_use_elsewhere_is_waited_for(setup):
    """A repeat is answered with 409 while the first call is still running."""
    first = asyncio.ensure_future(setup.create("silent"))
    await wait_until(lambda: ("POST", "/v1/payment_intents") in setup.doors.calls)
    with pytest.raises(ProviderTimeout):
        await setup.create("silent")
    with pytest.raises(ProviderTimeout):
        await first


async def test_a_refund_is_made_once_though_stripe_has_forgotten_its_key(setup):
    charge = await setup.create()
    first = await setup.provider.refund(charge.charge_ref, amount_minor=100, key="k")
    setup.doors.forget_keys()
    assert await setup.provider.refund(charge.charge_ref, amount_minor=100, key="k") == first


async def test_the_whole_list_is_read_and_none_of_it_twice(setup):
    asked = {"transfer_group": "R", "metadata": {"reference": "R", "key": "k"}}
    for _ in range(205):
        setup.doors.books.pay(setup.doors.books.intent(asked, amount=1, currency="eur"))
    setup.doors.books.pay(setup.doors.books.intent({"metadata": {}}, amount=1, currency="eur"))
    listed = [charge.charge_ref for charge in await setup.provider.list_since(now_ms() - 60_000)]
    assert (len(listed), len(set(listed))) == (205, 205)


async def test_amounts_without_hundredths_have_them_at_stripe_for_some(setup):
    for currency, there in (("ISK", 50_000), ("JPY", 500), ("EUR", 500)):
        charge = await setup.create(amount_minor=500, currency=currency, key=currency)
        assert (charge.amount_minor, charge.currency) == (500, currency)
        assert setup.doors.books.objects[charge.charge_ref]["amount"] == there


async def test_a_card_that_needs_its_bank_is_declined_where_nobody_can_be_sent_there(setup):
    asked = {"token": "pm_card_threeDSecure2Required"}
    declined = await setup.create(**asked, key="1")
    assert (declined.status, declined.reason) == ("failed", "authentication_required")
    sent = await setup.create(**asked, key="2", return_url="https://tickets.example/back")
    assert (sent.status, sent.checkout_url) == ("requires_action", f"https://bank.example/{sent.charge_ref}")


async def test_what_is_missing_is_refused_before_stripe_is_asked(setup):
    for asked in ({"method": "card", "token": None}, {"method": "redirect", "return_url": None}):
        with pytest.raises(ProviderRejected, match="missing"):
            await setup.create(**asked)
    assert setup.doors.calls == []


async def test_a_key_stripe_does_not_know_charges_nobody_and_is_no_ones_fault(setup):
    async with external_http_client(connections_max=8) as client:
        stranger = Stripe(client, setup.url, secret_key="sk_wrong", webhook_secrets=[], timeout_s=10.0)
        with pytest.raises(NotSent, match="credentials"):
            await stranger.create(setup.asks())
