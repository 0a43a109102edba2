"""Charges of the payment sandbox: idempotency keys, declines, delayed and failing answers, pages."""

import asyncio
import time
from typing import Any

import pytest

from tests.onsale.sandbox_client import SandboxClient, error_code, sandbox
from tests.support.wait import wait_until


async def test_a_charge_succeeds_is_listed_and_is_sent_as_a_webhook_signed_over_its_raw_bytes(
    client: SandboxClient,
) -> None:
    charge = await client.charged(token="tok_visa")
    assert (charge["status"], charge["captured_minor"], charge["amount_minor"]) == ("succeeded", 9350, 9350)
    assert charge["failure_reason"] is charge["checkout_url"] is None
    assert await client.list_charges(reference="order-1") == [charge]
    await wait_until(lambda: client.shop.received)
    assert client.shop.signed_rightly() == [True]
    (sent,) = client.shop.events()
    assert (sent["type"], sent["data"]) == ("charge.succeeded", {"charge": charge})


async def test_an_idempotency_key_returns_the_same_charge_and_refuses_another_body(client: SandboxClient) -> None:
    first = await client.charge(metadata={"a": 1, "b": 2})
    again = await client.charge(metadata={"b": 2, "a": 1})
    assert (again.status_code, again.headers["Idempotency-Replayed"]) == (200, "true")
    assert "Idempotency-Replayed" not in first.headers
    assert again.content == first.content
    other = await client.charge(amount_minor=1, metadata={"a": 1, "b": 2})
    assert (other.status_code, error_code(other)) == (409, "idempotency_key_reused")
    assert len(await client.list_charges()) == 1


async def test_a_hundred_simultaneous_calls_with_one_key_make_one_charge(client: SandboxClient) -> None:
    answers = await asyncio.gather(*(client.charge("slow") for _ in range(100)))
    assert sorted(answer.status_code for answer in answers) == [200] * 99 + [201]
    assert len({answer.content for answer in answers}) == len(await client.list_charges()) == 1


async def test_a_decline_fails_with_a_reason_and_cannot_be_cancelled_or_refunded(client: SandboxClient) -> None:
    charge = await client.charged("decline")
    assert (charge["status"], charge["failure_reason"], charge["captured_minor"]) == ("failed", "card_declined", 0)
    assert error_code(await client.cancel(charge)) == "already_failed"
    assert error_code(await client.refund(charge, 1)) == "not_succeeded"
    await wait_until(lambda: client.shop.event_types() == ["charge.failed"])


@pytest.mark.parametrize("method", ["slow", "timeout_after_success"])
async def test_a_charge_is_listed_before_its_delayed_answer_comes(method: str) -> None:
    async with sandbox(slow_s=5, hang_s=5) as client:
        request = asyncio.create_task(client.charge(method))
        await wait_until(client.list_charges)
        assert not request.done()
        repeat = await client.charge(method)
        assert repeat.json()["status"] == (await client.list_charges())[0]["status"] == "succeeded"
        request.cancel()
        await asyncio.gather(request, return_exceptions=True)


async def test_delayed_answers_come_in_the_end(client: SandboxClient) -> None:
    began = time.monotonic()
    assert (await client.charged("slow", key="1"))["status"] == "succeeded"
    assert (await client.charged("timeout_after_success", key="2"))["status"] == "succeeded"
    assert time.monotonic() - began >= 0.1


async def test_error_then_ok_fails_twice_for_each_key_and_charges_nothing_meanwhile(client: SandboxClient) -> None:
    for key in ("a", "b"):
        answers = [await client.charge("error_then_ok", key=key) for _ in range(4)]
        assert [answer.status_code for answer in answers] == [503, 503, 201, 200]
    assert len(await client.list_charges()) == 2


async def test_pages_list_every_charge_once_from_the_first_to_the_last(client: SandboxClient) -> None:
    ids = [(await client.charged(key=str(number), reference=f"o-{number}"))["id"] for number in range(7)]
    newest = (await client.http.get("/charges", params={"limit": 3})).json()
    assert [charge["id"] for charge in newest["charges"]] == ids[4:]
    assert newest["has_more"]
    listed: list[str] = []
    params: dict[str, Any] = {"limit": 3, "since": "2020-01-01T00:00:00+01:00"}
    while True:
        page = (await client.http.get("/charges", params=params)).json()
        listed += [charge["id"] for charge in page["charges"]]
        params["since"] = listed[-1]
        if not page["has_more"]:
            break
    assert listed == ids
    third = (await client.http.get("/charges", params={"limit": 3})).json()["charges"][0]
    assert [charge["id"] for charge in await client.list_charges(since=third["created_at"])] == ids[4:]


async def test_a_dispute_withdraws_the_money_until_it_is_won(client: SandboxClient) -> None:
    charge = await client.charged()
    path = f"/charges/{charge['id']}/dispute"
    assert error_code(await client.http.post(path, json={"status": "won"})) == "no_open_dispute"
    too_much = {"status": "open", "amount_minor": charge["amount_minor"] + 1}
    assert error_code(await client.http.post(path, json=too_much)) == "dispute_exceeds_charge"
    opened = (await client.http.post(path, json={"status": "open"})).json()["dispute"]
    assert (opened["status"], opened["withdrawn_minor"]) == ("open", charge["amount_minor"])
    assert error_code(await client.http.post(path, json={"status": "open"})) == "already_disputed"
    assert error_code(await client.refund(charge, 1)) == "refund_exceeds_charge"
    won = (await client.http.post(path, json={"status": "won"})).json()["dispute"]
    assert (won["id"], won["status"], won["withdrawn_minor"]) == (opened["id"], "won", 0)
    assert (await client.refund(charge, 1)).status_code == 201
    await wait_until(lambda: client.shop.event_types()[1:3] == ["charge.disputed", "charge.dispute_closed"])


async def test_an_inquiry_withdraws_nothing(client: SandboxClient) -> None:
    charge = await client.charged()
    asked = await client.http.post(f"/charges/{charge['id']}/dispute", json={"status": "open", "inquiry": True})
    assert asked.json()["dispute"]["withdrawn_minor"] == 0
    assert (await client.list_charges())[0]["dispute"] == asked.json()["dispute"]
