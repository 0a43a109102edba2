"""Reverse proxy of `onsale up`: it routes as a load balancer does; only operators get metrics and readiness."""

import pytest
from httpx import ASGITransport, AsyncClient, Response
from starlette.types import ASGIApp, Receive, Scope, Send

from onsale.local.dev_proxy import DevProxy, RemoteService
from shared.security.auth import AdminKeys
from shared.web.fast_routes import answer

KEY = "k" * 24
STRANGER, LOCAL = "203.0.113.9", "127.0.0.1"
GUARDED = ("/readyz", "/gateway/readyz", "/gateway/metrics")


def service(name: bytes) -> ASGIApp:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await answer(send, 200, name + b" " + scope["path"].encode())

    return app


async def get(path: str, peer: str = LOCAL, **headers: str) -> Response:
    checks = 0

    async def ready() -> list[str]:
        nonlocal checks
        checks += 1
        return []

    proxy = DevProxy(
        {"gateway": service(b"public")}, {"gateway": service(b"internal")}, ready, AdminKeys(f"ops:viewer:{KEY}")
    )
    async with AsyncClient(transport=ASGITransport(proxy, client=(peer, 1)), base_url="http://x") as client:
        answers = [await client.get(path, headers=headers) for _ in range(5)]
    assert checks <= 1, "readiness is cached for a moment"
    return answers[-1]


@pytest.mark.parametrize("path", GUARDED)
async def test_a_stranger_gets_neither_metrics_nor_readiness(path: str) -> None:
    assert (await get(path, STRANGER)).status_code == 404
    assert (await get(path, LOCAL, **{"x-forwarded-for": STRANGER})).status_code == 404, "a proxy on this machine"
    assert (await get(path, STRANGER, **{"x-forwarded-for": LOCAL})).status_code == 404
    assert (await get(path, STRANGER, authorization="Bearer " + "x" * 24)).status_code == 404


@pytest.mark.parametrize("path", GUARDED)
async def test_an_operator_gets_metrics_and_readiness(path: str) -> None:
    assert (await get(path, LOCAL)).status_code == 200
    assert (await get(path, STRANGER, authorization=f"Bearer {KEY}")).status_code == 200


async def test_metrics_come_from_the_internal_api_and_fans_routes_from_the_public_one() -> None:
    assert (await get("/gateway/metrics")).text == "internal /metrics"
    assert (await get("/gateway/livez", STRANGER)).text == "public /gateway/livez"
    assert (await get("/events/show/queue", STRANGER)).text == "public /events/show/queue"
    assert (await get("/metrics")).status_code == 404


@pytest.mark.parametrize("accepted", [None, "br, gzip"])
async def test_another_process_is_asked_for_the_encodings_that_the_client_takes(accepted: str | None) -> None:
    seen = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        seen.append(dict(scope["headers"])[b"accept-encoding"].decode())
        await answer(send, 200, b"here")

    async with AsyncClient(transport=ASGITransport(app), base_url="http://service") as between:
        remote = RemoteService(between, "http://service")
        async with AsyncClient(transport=ASGITransport(remote), base_url="http://x") as client:
            del client.headers["accept-encoding"]
            await client.get("/events", headers={"accept-encoding": accepted} if accepted else {})
    assert seen == [accepted or "identity"]
