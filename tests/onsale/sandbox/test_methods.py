"""The sandbox provider misbehaves exactly as it says, and never loses or repeats money it does not admit to."""

import asyncio
import hashlib
import hmac
import time
from typing import Any

import pytest

from tests.onsale.sandbox_fan import SECRET, Fan, error_code, sandbox
from tests.support.wait import wait_until


async def test_a_charge_succeeds_is_in_the_books_and_is_told_with_a_signature_over_the_raw_bytes(fan: Fan) -> None:
    charge = await fan.charged(token="tok_visa")
    assert charge["status"] == "succeeded"
    assert charge["captured_minor"] == charge["amount_minor"] == 9350
    assert charge["failure_reason"] is charge["checkout_url"] is None
    assert await fan.books(reference="order-1") == [charge]
    await wait_until(lambda: fan.shop.received)
    header, body = fan.shop.received[0]
    stamp, mac = (part.split("=")[1] for part in header.split(","))
    assert hmac.new(SECRET.encode(), f"{stamp}.".encode() + body, hashlib.sha256).hexdigest() == mac
    assert abs(time.time() - int(stamp)) < 60
    (told,) = fan.shop.events()
    assert told["type"] == "charge.succeeded"
    assert told["data"] == {"charge": charge}


async def test_a_key_answers_the_same_charge_and_refuses_another_body(fan: Fan) -> None:
    first = await fan.charge(metadata={"a": 1, "b": 2})
    again = await fan.charge(metadata={"b": 2, "a": 1})
    assert (again.status_code, again.headers["Idempotency-Replayed"]) == (200, "true")
    assert "Idempotency-Replayed" not in first.headers
    assert again.content == first.content
    other = await fan.charge(amount_minor=1, metadata={"a": 1, "b": 2})
    assert (other.status_code, error_code(other)) == (409, "idempotency_key_reused")
    assert len(await fan.books()) == 1


async def test_three_hundred_simultaneous_calls_with_one_key_make_one_charge(fan: Fan) -> None:
    answers = await asyncio.gather(*(fan.charge("slow") for _ in range(300)))
    assert sorted(answer.status_code for answer in answers) == [200] * 299 + [201]
    assert len({answer.content for answer in answers}) == len(await fan.books()) == 1


async def test_a_replay_repeats_the_first_answer_although_the_charge_moved_on(fan: Fan) -> None:
    first = await fan.charge("late_success")
    await fan.settled(first.json(), "succeeded")
    assert (await fan.charge("late_success")).content == first.content


async def test_a_decline_fails_with_a_reason_and_cannot_be_cancelled_or_refunded(fan: Fan) -> None:
    charge = await fan.charged("decline")
    assert (charge["status"], charge["failure_reason"]) == ("failed", "card_declined")
    assert charge["captured_minor"] == 0
    assert error_code(await fan.http.post(f"/charges/{charge['id']}/cancel")) == "already_failed"
    assert error_code(await fan.refund(charge, 1)) == "not_succeeded"
    await wait_until(lambda: fan.shop.heard() == ["charge.failed"])


@pytest.mark.parametrize("method", ["slow", "timeout_after_success"])
async def test_a_charge_is_in_the_books_before_its_delayed_answer_comes(method: str) -> None:
    async with sandbox(slow_s=5, hang_s=5) as fan:
        waiting = asyncio.create_task(fan.charge(method))
        await wait_until(fan.books)
        assert not waiting.done()
        repeat = await fan.charge(method)
        assert repeat.json()["status"] == (await fan.books())[0]["status"] == "succeeded"
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)


async def test_delayed_answers_come_in_the_end(fan: Fan) -> None:
    began = time.monotonic()
    assert (await fan.charged("slow", key="1"))["status"] == "succeeded"
    assert (await fan.charged("timeout_after_success", key="2"))["status"] == "succeeded"
    assert time.monotonic() - began >= 0.1


async def test_an_error_comes_twice_for_each_key_and_books_nothing(fan: Fan) -> None:
    for key in ("a", "b"):
        answers = [await fan.charge("error_then_ok", key=key) for _ in range(4)]
        assert [answer.status_code for answer in answers] == [503, 503, 201, 200]
    assert len(await fan.books()) == 2


async def test_pages_lead_from_the_first_charge_to_the_last_without_gap_or_repeat(fan: Fan) -> None:
    ids = [(await fan.charged(key=str(number), reference=f"o-{number}"))["id"] for number in range(7)]
    newest = (await fan.http.get("/charges", params={"limit": 3})).json()
    assert [charge["id"] for charge in newest["charges"]] == ids[4:]
    assert newest["has_more"]
    seen: list[str] = []
    asked: dict[str, Any] = {"limit": 3, "since": "2020-01-01T00:00:00+01:00"}
    while True:
        page = (await fan.http.get("/charges", params=asked)).json()
        seen += [charge["id"] for charge in page["charges"]]
        asked["since"] = seen[-1]
        if not page["has_more"]:
            break
    assert seen == ids
    third = (await fan.http.get("/charges", params={"limit": 3})).json()["charges"][0]
    assert [charge["id"] for charge in await fan.books(since=third["created_at"])] == ids[4:]
