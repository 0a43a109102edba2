"""Webhooks of the sandbox: signatures, duplicates, order and retries."""

from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from shared.http.outgoing import NotReached, ResponseLost
from tests.onsale.sandbox_client import SandboxClient, sandbox
from tests.support.running.serving import serving
from tests.support.wait import wait_until


async def test_duplicate_webhooks_carry_the_same_event_three_times(client: SandboxClient) -> None:
    await client.charged("duplicate_webhooks")
    await wait_until(lambda: len(client.shop.received) == 3)
    assert len({event["id"] for event in client.shop.events()}) == 1


async def test_reordered_webhooks_report_success_before_processing(client: SandboxClient) -> None:
    charge = await client.charged("reordered_webhooks")
    assert charge["status"] == "succeeded"
    await wait_until(lambda: client.shop.event_types() == ["charge.succeeded", "charge.processing"])
    events = client.shop.events()
    assert [event["data"]["charge"]["status"] for event in events] == ["succeeded", "processing"]
    assert events[0]["created_at"] > events[1]["created_at"]


async def test_a_webhook_is_retried_until_the_shop_answers_2xx_and_at_most_eight_times(client: SandboxClient) -> None:
    client.shop.answers = [500, 302, 404, NotReached("refused"), ResponseLost("reset")]
    await client.charged(key="1")
    await wait_until(lambda: len(client.shop.received) == 6)
    assert len({body for _, body in client.shop.received}) == 1
    client.shop.answers = [500] * 100
    await client.charged(key="2")

    async def one_webhook_is_lost() -> bool:
        health: dict[str, Any] = (await client.http.get("/healthz")).json()
        return health == {"status": "ok", "charges": 2, "webhooks_waiting": 0, "webhooks_lost": 1}

    await wait_until(one_webhook_is_lost)
    assert len(client.shop.received) == 6 + 8


async def test_only_so_many_webhooks_are_on_their_way_at_once() -> None:
    async with sandbox(webhook_senders=3) as client:
        client.shop.open.clear()
        for key in "abcdefgh":
            await client.charged(key=key)
        await wait_until(lambda: len(client.shop.received) == 3)
        assert (await client.http.get("/healthz")).json()["webhooks_waiting"] == 8
        assert len(client.shop.received) == 3
        client.shop.open.set()
        await wait_until(lambda: len(client.shop.received) == 8)
        assert all(client.shop.signed_rightly())


async def test_all_webhooks_go_over_the_same_few_connections() -> None:
    callers: list[int] = []

    async def receive(request: Request) -> Response:
        assert request.client is not None
        assert request.headers["content-type"] == "application/json"
        assert (await request.json())["type"] == "charge.succeeded"
        callers.append(request.client.port)
        return Response(status_code=204)

    shop = Starlette(routes=[Route("/hook", receive, methods=["POST"])])
    async with serving(shop) as port, sandbox(webhook_url=f"http://127.0.0.1:{port}/hook", webhook_senders=2) as client:
        for key in "abcdef":
            await client.charged("duplicate_webhooks", key=key)
        await wait_until(lambda: len(callers) == 18)
    assert len(set(callers)) <= 2


async def test_waiting_webhooks_are_limited_and_dropped_ones_are_counted() -> None:
    async with sandbox(webhooks_waiting_max=2) as client:
        await client.http.post("/control", json={"deliver_late_s": 60})
        for key in "abcde":
            await client.charged(key=key)
        health = (await client.http.get("/healthz")).json()
    assert (health["webhooks_waiting"], health["webhooks_lost"]) == (2, 3)


async def test_a_forged_webhook_has_a_wrong_signature(client: SandboxClient) -> None:
    await client.http.post("/control", json={"forge_webhook": {"data": {"charge": {"id": "x"}}}})
    await wait_until(lambda: client.shop.received)
    assert client.shop.signed_rightly() == [False]
    (forged,) = client.shop.events()
    assert (forged["type"], forged["data"]) == ("charge.succeeded", {"charge": {"id": "x"}})
    assert forged["id"].startswith("evt_")
