"""The one port: metrics and readiness are shown to operators, everything else goes where a balancer would send it."""

import pytest
from httpx import ASGITransport, AsyncClient, Response
from starlette.types import ASGIApp, Receive, Scope, Send

from onsale.local.dev_proxy import DevProxy
from shared.security.auth import AdminKeys
from shared.web.fast_routes import answer

KEY = "k" * 24
STRANGER, NEAR = "203.0.113.9", "127.0.0.1"
GUARDED = ("/readyz", "/gateway/readyz", "/gateway/metrics")


def part(name: bytes) -> ASGIApp:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await answer(send, 200, name + b" " + scope["path"].encode())

    return app


async def ask(path: str, peer: str = NEAR, **headers: str) -> Response:
    asked = 0

    async def ready() -> list[str]:
        nonlocal asked
        asked += 1
        return []

    front = DevProxy({"gateway": part(b"public")}, {"gateway": part(b"inside")}, ready, AdminKeys(f"ops:viewer:{KEY}"))
    async with AsyncClient(transport=ASGITransport(front, client=(peer, 1)), base_url="http://x") as client:
        answers = [await client.get(path, headers=headers) for _ in range(5)]
    assert asked <= 1, "readiness is kept for a moment"
    return answers[-1]


@pytest.mark.parametrize("path", GUARDED)
async def test_a_stranger_sees_neither_metrics_nor_readiness(path: str) -> None:
    assert (await ask(path, STRANGER)).status_code == 404
    assert (await ask(path, NEAR, **{"x-forwarded-for": STRANGER})).status_code == 404, "a proxy on this machine"
    assert (await ask(path, STRANGER, **{"x-forwarded-for": NEAR})).status_code == 404
    assert (await ask(path, STRANGER, authorization="Bearer " + "x" * 24)).status_code == 404


@pytest.mark.parametrize("path", GUARDED)
async def test_an_operator_does(path: str) -> None:
    assert (await ask(path, NEAR)).status_code == 200
    assert (await ask(path, STRANGER, authorization=f"Bearer {KEY}")).status_code == 200


async def test_metrics_come_from_within_and_fans_pages_from_without() -> None:
    assert (await ask("/gateway/metrics")).text == "inside /metrics"
    assert (await ask("/gateway/livez", STRANGER)).text == "public /gateway/livez"
    assert (await ask("/events/show/queue", STRANGER)).text == "public /events/show/queue"
    assert (await ask("/metrics")).status_code == 404
