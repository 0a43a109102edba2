"""Every provider keeps the protocol: one suite for the sandbox and for Stripe's double."""

import time

import pytest
import pytest_asyncio

from services.orders.payments.provider import (
    AlreadySucceeded,
    NotSent,
    OutcomeUnknown,
    ProviderRejected,
    ProviderTimeout,
    RateLimited,
    SignatureInvalid,
)
from shared.rpc.outgoing import ExternalHttpClient, NotReached, external_http_client
from shared.runtime.clock import now_ms, now_s
from tests.orders.provider_setups import ProviderSetup, SandboxSetup, StripeSetup


@pytest_asyncio.fixture(params=["sandbox", "stripe"], loop_scope="session")
async def setup(request, environment):
    await environment.clear()
    async with external_http_client(connections_max=8) as client:
        if request.param == "sandbox":
            yield SandboxSetup(client, environment.sandbox_url, environment.sandbox)
        else:
            yield StripeSetup(client, environment.stripe_url, environment.stripe)


async def test_one_key_makes_one_charge(setup: ProviderSetup):
    first, again = await setup.create(), await setup.create()
    assert (first.status, first.charge_ref, first.key) == ("succeeded", again.charge_ref, "ORDER1:1")
    assert (first.reference, first.amount_minor, first.currency) == ("ORDER1", 6800, "EUR")
    assert [charge.charge_ref for charge in await setup.provider.find("ORDER1")] == [first.charge_ref]
    assert abs(first.occurred_at_ms - now_ms()) < 5000
    with pytest.raises(ProviderRejected):
        await setup.create(amount_minor=1)


async def test_a_declined_card_says_why_and_moves_no_money(setup: ProviderSetup):
    declined = await setup.create("decline")
    assert (declined.status, bool(declined.reason)) == ("failed", True)
    assert {charge.status for charge in await setup.provider.find("ORDER1")} == {"failed"}


async def test_silence_is_not_an_answer_and_the_charge_is_found_at_once(setup: ProviderSetup):
    with pytest.raises(ProviderTimeout):
        await setup.create("silent")
    assert [charge.status for charge in await setup.provider.find("ORDER1")] == ["succeeded"]


async def test_too_many_calls_wait_their_turn(setup: ProviderSetup):
    await setup.stumble("limited")
    with pytest.raises(RateLimited):
        await setup.create()


async def test_a_broken_provider_leaves_the_outcome_unknown(setup: ProviderSetup):
    await setup.stumble("broken")
    with pytest.raises(OutcomeUnknown) as unknown:
        await setup.create()
    assert not isinstance(unknown.value, ProviderTimeout)


async def test_nobody_there_is_not_processed(setup: ProviderSetup, monkeypatch):
    async def refused(*_: object, **__: object) -> None:
        raise NotReached("refused")

    monkeypatch.setattr(ExternalHttpClient, "request", refused)
    with pytest.raises(NotSent):
        await setup.create()


async def test_a_fan_is_sent_away_pays_and_comes_back(setup: ProviderSetup):
    sent = await setup.create("redirect")
    assert sent.status == "requires_action"
    assert sent.checkout_url
    assert (await setup.provider.fetch(sent.charge_ref)).status == "requires_action"
    await setup.pay(sent)
    paid = await setup.provider.fetch(sent.charge_ref)
    assert (paid.status, paid.key, paid.amount_minor, paid.checkout_url) == ("succeeded", sent.key, 6800, None)
    assert [charge.charge_ref for charge in await setup.provider.find("ORDER1")] == [paid.charge_ref]
    with pytest.raises(AlreadySucceeded):
        await setup.provider.cancel(sent.charge_ref)


async def test_what_is_not_paid_yet_can_be_called_off_twice(setup: ProviderSetup):
    sent = await setup.create("redirect")
    for _ in range(2):
        assert (await setup.provider.cancel(sent.charge_ref)).status == "cancelled"
    assert (await setup.provider.fetch(sent.charge_ref)).status == "cancelled"


async def test_what_succeeded_cannot_be_called_off(setup: ProviderSetup):
    with pytest.raises(AlreadySucceeded):
        await setup.provider.cancel((await setup.create()).charge_ref)


@pytest.mark.parametrize("way", ["ok", "redirect"])
async def test_what_was_authorised_is_taken_once(setup: ProviderSetup, way):
    promised = await setup.create(way, capture=False)
    if way == "redirect":
        await setup.pay(promised)
        promised = await setup.provider.fetch(promised.charge_ref)
    assert (promised.status, promised.amount_minor) == ("authorised", 6800)
    for _ in range(2):
        taken = await setup.provider.capture(promised.charge_ref)
        assert (taken.status, taken.charge_ref, taken.amount_minor) == ("succeeded", promised.charge_ref, 6800)
    with pytest.raises(AlreadySucceeded):
        await setup.provider.cancel(promised.charge_ref)


async def test_what_was_authorised_and_given_up_cannot_be_taken(setup: ProviderSetup):
    promised = await setup.create(capture=False)
    assert (await setup.provider.cancel(promised.charge_ref)).status == "cancelled"
    with pytest.raises(ProviderRejected):
        await setup.provider.capture(promised.charge_ref)


async def test_money_goes_back_once_for_each_key_and_never_beyond_the_charge(setup: ProviderSetup):
    charge = await setup.create()

    async def back(amount_minor: int, key: str) -> str:
        return await setup.provider.refund(charge.charge_ref, amount_minor=amount_minor, key=key)

    part = await back(1800, "one")
    assert await back(1800, "one") == part
    assert await back(5000, "two") != part
    with pytest.raises(ProviderRejected):
        await back(1, "three")


async def test_an_order_finds_its_own_charges_alone(setup: ProviderSetup):
    await setup.create()
    await setup.create(reference="ORDER2", key="ORDER2:1")
    second = await setup.create(key="ORDER1:2")
    found = await setup.provider.find("ORDER1")
    assert [charge.key for charge in found] == ["ORDER1:1", "ORDER1:2"]
    assert found[1].charge_ref == second.charge_ref
    assert await setup.provider.find("ORDER3") == []


async def test_the_books_can_be_read_from_a_time_on_oldest_first(setup: ProviderSetup):
    since_ms = now_ms() - 1000
    keys = [f"ORDER1:{n}" for n in range(3)]
    for key in keys:
        await setup.create(key=key)
    assert [charge.key for charge in await setup.provider.list_since(since_ms)] == keys
    assert await setup.provider.list_since(since_ms + 60_000) == []


async def test_only_the_providers_own_recent_webhooks_are_believed(setup: ProviderSetup):
    signature, body = setup.webhook()
    note = setup.provider.verify_webhook({setup.header: signature}, body, now_s=now_s())
    assert note is not None
    assert (note.webhook_id, note.reference, bool(note.succeeded)) == ("evt_1", "ORDER1", True)
    for header, sent in (
        (signature, body.replace(b"ORDER1", b"ORDER2")),
        (signature, body + b" "),
        (setup.webhook(secret="another's")[0], body),
        (setup.webhook(late_s=301)[0], body),
        ("", body),
        (f"t={int(time.time())}", body),
        (f"t={int(time.time())},v1=ü", body),
    ):
        with pytest.raises(SignatureInvalid):
            setup.provider.verify_webhook({setup.header: header}, sent, now_s=now_s())
