"""Webhooks of the sandbox: signed, repeated, reordered and tried again, exactly as it says."""

import hashlib
import hmac
from typing import Any

from tests.onsale.sandbox_fan import SECRET, Fan, sandbox
from tests.support.wait import wait_until


async def test_duplicate_webhooks_carry_the_same_event_three_times(fan: Fan) -> None:
    await fan.charged("duplicate_webhooks")
    await wait_until(lambda: len(fan.shop.received) == 3)
    assert len({event["id"] for event in fan.shop.events()}) == 1


async def test_reordered_webhooks_tell_of_the_success_before_the_processing(fan: Fan) -> None:
    charge = await fan.charged("reordered_webhooks")
    assert charge["status"] == "succeeded"
    await wait_until(lambda: fan.shop.heard() == ["charge.succeeded", "charge.processing"])
    told = fan.shop.events()
    assert [event["data"]["charge"]["status"] for event in told] == ["succeeded", "processing"]
    assert told[0]["created_at"] > told[1]["created_at"]


async def test_a_webhook_is_tried_again_until_the_shop_says_2xx_and_no_more_than_eight_times(fan: Fan) -> None:
    fan.shop.answers = [500, 302, 404]
    await fan.charged(key="1")
    await wait_until(lambda: len(fan.shop.received) == 4)
    assert len({body for _, body in fan.shop.received}) == 1
    fan.shop.answers = [500] * 100
    await fan.charged(key="2")

    async def lost() -> bool:
        health: dict[str, Any] = (await fan.http.get("/healthz")).json()
        return health == {"status": "ok", "charges": 2, "webhooks_waiting": 0, "webhooks_lost": 1}

    await wait_until(lost)
    assert len(fan.shop.received) == 4 + 8


async def test_waiting_webhooks_are_bounded_and_the_lost_are_counted() -> None:
    async with sandbox(webhooks_waiting_max=2) as fan:
        await fan.http.post("/control", json={"deliver_late_s": 60})
        for key in "abcde":
            await fan.charged(key=key)
        health = (await fan.http.get("/healthz")).json()
    assert (health["webhooks_waiting"], health["webhooks_lost"]) == (2, 3)


async def test_a_forged_webhook_has_a_signature_that_does_not_hold(fan: Fan) -> None:
    await fan.http.post(
        "/control", json={"forge_webhook": {"type": "charge.succeeded", "data": {"charge": {"id": "x"}}}}
    )
    await wait_until(lambda: fan.shop.received)
    header, body = fan.shop.received[0]
    stamp, mac = (part.split("=")[1] for part in header.split(","))
    assert hmac.new(SECRET.encode(), f"{stamp}.".encode() + body, hashlib.sha256).hexdigest() != mac
    (told,) = fan.shop.events()
    assert told["data"] == {"charge": {"id": "x"}}
    assert told["id"].startswith("evt_")
