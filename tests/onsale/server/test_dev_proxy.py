"""Reverse proxy of `onsale up`: it routes as a load balancer does; only operators get metrics and readiness."""

import pytest
from httpx import ASGITransport, AsyncClient, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from onsale.server.dev_proxy import DevProxy, RemoteService
from shared.security.auth import AdminKeys
from shared.web.fast_routes import answer, read_body
from tests.support.running.serving import on_our_protocol

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


async def test_a_request_that_breaks_off_never_reaches_another_process_as_a_complete_one() -> None:
    """The client leaves, or our server refuses the rest of its body: both are a disconnect to this app."""
    messages: list[Message] = [
        {"type": "http.request", "body": b"half", "more_body": True}, {"type": "http.disconnect"},
    ]  # fmt: skip
    complete: list[bytes] = []

    async def receive() -> Message:
        return messages.pop(0)

    async def send(_: Message) -> None:
        raise AssertionError("there is nobody to answer")

    async def other(scope: Scope, receive: Receive, send: Send) -> None:
        complete.append(await read_body(receive))
        await answer(send, 200, b"")

    scope = {
        "type": "http", "method": "POST", "path": "/orders", "raw_path": b"/orders", "query_string": b"",
        "headers": [(b"transfer-encoding", b"chunked")],
    }  # fmt: skip
    async with on_our_protocol(other) as (port, _), AsyncClient(trust_env=False) as client:
        await RemoteService(client, f"http://127.0.0.1:{port}")(scope, receive, send)
    assert complete == []


async def test_another_process_gets_the_path_as_it_was_sent_and_one_date_goes_back() -> None:
    async def other(scope: Scope, receive: Receive, send: Send) -> None:
        await answer(send, 200, scope["raw_path"] + b" " + scope["query_string"])

    async with on_our_protocol(other) as (port, _), AsyncClient(trust_env=False) as between:
        front = RemoteService(between, f"http://127.0.0.1:{port}")
        async with on_our_protocol(front) as (front_port, _), AsyncClient(trust_env=False) as client:
            got = await client.get(f"http://127.0.0.1:{front_port}/problems/a%3Fb%2Fc?d=%25")
    assert got.text == "/problems/a%3Fb%2Fc d=%25"
    assert len(got.headers.get_list("date")) == 1
