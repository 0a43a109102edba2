"""Every provider follows the protocol. The tests of a feature with a provider import these, for a `setup` of theirs."""

import time

import pytest

from shared.http.outgoing import ExternalHttpClient, NotReached
from shared.payment_provider import (
    AlreadySucceeded,
    NotSent,
    OutcomeUnknown,
    ProviderRejected,
    ProviderTimeout,
    RateLimited,
    SignatureInvalid,
)
from shared.runtime.clock import now_ms, now_s
from tests.orders.provider_setups import ProviderSetup


async def test_one_key_makes_one_charge(setup: ProviderSetup):
    first, again = await setup.create(), await setup.create()
    assert (first.status, first.charge_ref, first.key) == ("succeeded", again.charge_ref, "ORDER1:1")
    assert (first.reference, first.amount_minor, first.currency) == ("ORDER1", 6800, "EUR")
    assert [charge.charge_ref for charge in await setup.provider.find("ORDER1")] == [first.charge_ref]
    assert abs(first.occurred_at_ms - now_ms()) < 5000
    with pytest.raises(OutcomeUnknown):  # of a charge that was begun with other words: it is looked up
        await setup.create(amount_minor=1)


async def test_a_declined_card_has_a_reason_and_moves_no_money(setup: ProviderSetup):
    declined = await setup.create("decline")
    assert (declined.status, bool(declined.reason)) == ("failed", True)
    assert {charge.status for charge in await setup.provider.find("ORDER1")} == {"failed"}


async def test_a_charge_that_timed_out_is_found_at_once(setup: ProviderSetup):
    with pytest.raises(ProviderTimeout):
        await setup.create("silent")
    assert [charge.status for charge in await setup.provider.find("ORDER1")] == ["succeeded"]


@pytest.mark.parametrize(("how", "error"), [("limited", RateLimited), ("broken", OutcomeUnknown)])
async def test_a_provider_over_its_limit_charged_nothing_and_a_broken_one_may_have(setup: ProviderSetup, how, error):
    await setup.fail_next_call(how)
    with pytest.raises(error) as raised:
        await setup.create()
    assert type(raised.value) is error


async def test_a_call_without_a_connection_was_not_sent(setup: ProviderSetup, monkeypatch):
    async def refused(*_: object, **__: object) -> None:
        raise NotReached("refused")

    monkeypatch.setattr(ExternalHttpClient, "request", refused)
    with pytest.raises(NotSent):
        await setup.create()


async def test_a_fan_pays_on_the_hosted_page_and_returns(setup: ProviderSetup):
    charge = await setup.create("redirect")
    assert charge.status == "requires_action"
    assert charge.checkout_url
    assert (await setup.provider.fetch(charge.charge_ref)).status == "requires_action"
    await setup.pay(charge)
    paid = await setup.provider.fetch(charge.charge_ref)
    assert (paid.status, paid.key, paid.amount_minor, paid.checkout_url) == ("succeeded", charge.key, 6800, None)
    assert [charge.charge_ref for charge in await setup.provider.find("ORDER1")] == [paid.charge_ref]
    with pytest.raises(AlreadySucceeded):
        await setup.provider.cancel(charge.charge_ref)


async def test_an_unpaid_charge_can_be_cancelled_twice(setup: ProviderSetup):
    charge = await setup.create("redirect")
    for _ in range(2):
        assert (await setup.provider.cancel(charge.charge_ref)).status == "cancelled"
    assert (await setup.provider.fetch(charge.charge_ref)).status == "cancelled"


@pytest.mark.parametrize("scenario", ["ok", "redirect"])
async def test_an_authorised_charge_is_captured_once(setup: ProviderSetup, scenario):
    authorised = await setup.create(scenario, capture=False)
    if scenario == "redirect":
        await setup.pay(authorised)
        authorised = await setup.provider.fetch(authorised.charge_ref)
    assert (authorised.status, authorised.amount_minor) == ("authorised", 6800)
    for _ in range(2):
        captured = await setup.provider.capture(authorised.charge_ref)
        assert (captured.status, captured.amount_minor) == ("succeeded", 6800)
        assert captured.charge_ref == authorised.charge_ref
    with pytest.raises(AlreadySucceeded):
        await setup.provider.cancel(authorised.charge_ref)


async def test_a_cancelled_authorisation_cannot_be_captured(setup: ProviderSetup):
    authorised = await setup.create(capture=False)
    assert (await setup.provider.cancel(authorised.charge_ref)).status == "cancelled"
    with pytest.raises(ProviderRejected):
        await setup.provider.capture(authorised.charge_ref)


async def test_a_charge_is_refunded_once_for_each_key_and_never_beyond_its_amount(setup: ProviderSetup):
    charge = await setup.create()

    async def refund(amount_minor: int, key: str) -> str:
        return await setup.provider.refund(charge.charge_ref, amount_minor=amount_minor, key=key)

    part = await refund(1800, "one")
    assert await refund(1800, "one") == part
    assert await refund(5000, "two") != part
    with pytest.raises(ProviderRejected):
        await refund(1, "three")


async def test_only_the_charges_of_an_order_are_found_for_it(setup: ProviderSetup):
    await setup.create()
    await setup.create(reference="ORDER2", key="ORDER2:1")
    second = await setup.create(key="ORDER1:2")
    found = await setup.provider.find("ORDER1")
    assert [charge.key for charge in found] == ["ORDER1:1", "ORDER1:2"]
    assert found[1].charge_ref == second.charge_ref
    assert await setup.provider.find("ORDER3") == []


async def test_charges_since_a_time_are_listed_oldest_first(setup: ProviderSetup):
    since_ms = now_ms() - 1000
    keys = [f"ORDER1:{n}" for n in range(3)]
    for key in keys:
        await setup.create(key=key)
    assert [charge.key for charge in await setup.provider.list_since(since_ms)] == keys
    assert await setup.provider.list_since(since_ms + 60_000) == []


async def test_only_recent_webhooks_signed_by_the_provider_are_accepted(setup: ProviderSetup):
    signature, body = setup.webhook()
    webhook = setup.provider.verify_webhook({setup.header: signature}, body, now_s=now_s())
    assert webhook is not None
    assert (webhook.webhook_id, webhook.reference, bool(webhook.succeeded)) == ("evt_1", "ORDER1", True)
    for header, sent in (
        (signature, body.replace(b"ORDER1", b"ORDER2")),
        (signature, body + b" "),
        (setup.webhook(secret="another's")[0], body),
        (setup.webhook(late_s=301)[0], body),
        ("", body),
        (f"t={int(time.time())}", body),
        (f"t={int(time.time())},v1=ü", body),
        (f"t=-1,{signature}", body),
    ):
        with pytest.raises(SignatureInvalid):
            setup.provider.verify_webhook({setup.header: header}, sent, now_s=now_s())
