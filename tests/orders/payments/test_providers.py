"""Whatever charges fans keeps the same promises: one suite, over the sandbox and over Stripe's double alike."""

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
from shared.rpc.outgoing import NotReached, Outgoing, outgoing
from shared.runtime.clock import now_ms, now_s
from tests.orders.provider_setups import Desk, SandboxDesk, StripeDesk


@pytest_asyncio.fixture(params=["sandbox", "stripe"], loop_scope="session")
async def desk(request, street):
    await street.clear()
    async with outgoing(connections_max=8) as client:
        if request.param == "sandbox":
            yield SandboxDesk(client, street.sandbox_url, street.sandbox)
        else:
            yield StripeDesk(client, street.stripe_url, street.stripe)


async def test_one_key_makes_one_charge(desk: Desk):
    first, again = await desk.create(), await desk.create()
    assert (first.status, first.charge_ref, first.key) == ("succeeded", again.charge_ref, "ORDER1:1")
    assert (first.reference, first.amount_minor, first.currency) == ("ORDER1", 6800, "EUR")
    assert [charge.charge_ref for charge in await desk.provider.find("ORDER1")] == [first.charge_ref]
    assert abs(first.occurred_at_ms - now_ms()) < 5000
    with pytest.raises(ProviderRejected):
        await desk.create(amount_minor=1)


async def test_a_declined_card_says_why_and_moves_no_money(desk: Desk):
    declined = await desk.create("decline")
    assert (declined.status, bool(declined.reason)) == ("failed", True)
    assert {charge.status for charge in await desk.provider.find("ORDER1")} == {"failed"}


async def test_silence_is_not_an_answer_and_the_charge_is_found_at_once(desk: Desk):
    with pytest.raises(ProviderTimeout):
        await desk.create("silent")
    assert [charge.status for charge in await desk.provider.find("ORDER1")] == ["succeeded"]


async def test_too_many_calls_wait_their_turn(desk: Desk):
    await desk.stumble("limited")
    with pytest.raises(RateLimited):
        await desk.create()


async def test_a_broken_provider_leaves_the_outcome_unknown(desk: Desk):
    await desk.stumble("broken")
    with pytest.raises(OutcomeUnknown) as unknown:
        await desk.create()
    assert not isinstance(unknown.value, ProviderTimeout)


async def test_nobody_there_is_not_processed(desk: Desk, monkeypatch):
    async def refused(*_: object, **__: object) -> None:
        raise NotReached("refused")

    monkeypatch.setattr(Outgoing, "request", refused)
    with pytest.raises(NotSent):
        await desk.create()


async def test_a_fan_is_sent_away_pays_and_comes_back(desk: Desk):
    sent = await desk.create("redirect")
    assert sent.status == "requires_action"
    assert sent.checkout_url
    assert (await desk.provider.fetch(sent.charge_ref)).status == "requires_action"
    await desk.pay(sent)
    paid = await desk.provider.fetch(sent.charge_ref)
    assert (paid.status, paid.key, paid.amount_minor, paid.checkout_url) == ("succeeded", sent.key, 6800, None)
    assert [charge.charge_ref for charge in await desk.provider.find("ORDER1")] == [paid.charge_ref]
    with pytest.raises(AlreadySucceeded):
        await desk.provider.cancel(sent.charge_ref)


async def test_what_is_not_paid_yet_can_be_called_off_twice(desk: Desk):
    sent = await desk.create("redirect")
    for _ in range(2):
        assert (await desk.provider.cancel(sent.charge_ref)).status == "cancelled"
    assert (await desk.provider.fetch(sent.charge_ref)).status == "cancelled"


async def test_what_succeeded_cannot_be_called_off(desk: Desk):
    with pytest.raises(AlreadySucceeded):
        await desk.provider.cancel((await desk.create()).charge_ref)


@pytest.mark.parametrize("way", ["ok", "redirect"])
async def test_what_was_authorised_is_taken_once(desk: Desk, way):
    promised = await desk.create(way, capture=False)
    if way == "redirect":
        await desk.pay(promised)
        promised = await desk.provider.fetch(promised.charge_ref)
    assert (promised.status, promised.amount_minor) == ("authorised", 6800)
    for _ in range(2):
        taken = await desk.provider.capture(promised.charge_ref)
        assert (taken.status, taken.charge_ref, taken.amount_minor) == ("succeeded", promised.charge_ref, 6800)
    with pytest.raises(AlreadySucceeded):
        await desk.provider.cancel(promised.charge_ref)


async def test_what_was_authorised_and_given_up_cannot_be_taken(desk: Desk):
    promised = await desk.create(capture=False)
    assert (await desk.provider.cancel(promised.charge_ref)).status == "cancelled"
    with pytest.raises(ProviderRejected):
        await desk.provider.capture(promised.charge_ref)


async def test_money_goes_back_once_for_each_key_and_never_beyond_the_charge(desk: Desk):
    charge = await desk.create()

    async def back(amount_minor: int, key: str) -> str:
        return await desk.provider.refund(charge.charge_ref, amount_minor=amount_minor, key=key)

    part = await back(1800, "one")
    assert await back(1800, "one") == part
    assert await back(5000, "two") != part
    with pytest.raises(ProviderRejected):
        await back(1, "three")


async def test_an_order_finds_its_own_charges_alone(desk: Desk):
    await desk.create()
    await desk.create(reference="ORDER2", key="ORDER2:1")
    second = await desk.create(key="ORDER1:2")
    found = await desk.provider.find("ORDER1")
    assert [charge.key for charge in found] == ["ORDER1:1", "ORDER1:2"]
    assert found[1].charge_ref == second.charge_ref
    assert await desk.provider.find("ORDER3") == []


async def test_the_books_can_be_read_from_a_time_on_oldest_first(desk: Desk):
    since_ms = now_ms() - 1000
    keys = [f"ORDER1:{n}" for n in range(3)]
    for key in keys:
        await desk.create(key=key)
    assert [charge.key for charge in await desk.provider.list_since(since_ms)] == keys
    assert await desk.provider.list_since(since_ms + 60_000) == []


async def test_only_the_providers_own_recent_webhooks_are_believed(desk: Desk):
    signature, body = desk.webhook()
    note = desk.provider.verify_webhook({desk.header: signature}, body, now_s=now_s())
    assert note is not None
    assert (note.webhook_id, note.reference, bool(note.succeeded)) == ("evt_1", "ORDER1", True)
    for header, sent in (
        (signature, body.replace(b"ORDER1", b"ORDER2")),
        (signature, body + b" "),
        (desk.webhook(secret="another's")[0], body),
        (desk.webhook(late_s=301)[0], body),
        ("", body),
        (f"t={int(time.time())}", body),
        (f"t={int(time.time())},v1=ü", body),
    ):
        with pytest.raises(SignatureInvalid):
            desk.provider.verify_webhook({desk.header: header}, sent, now_s=now_s())
