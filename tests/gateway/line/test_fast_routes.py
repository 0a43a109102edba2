"""Fast routes skip the framework's middleware and give the same answers."""

import logging

import httpx
import pytest
from starlette.types import Scope

from shared.web.app import internal, public

PATH = "/events/show/queue"
REQUESTS = [
    ("GET", PATH, {}, b""),
    ("HEAD", PATH, {}, b""),
    ("GET", f"{PATH}/status", {}, b""),
    ("GET", f"{PATH}/status", {"authorization": "Bearer x.y.z"}, b""),
    ("GET", "/events/nowhere/queue", {}, b""),
    ("GET", "/events/a/b/queue", {}, b""),
    ("GET", f"{PATH}/", {}, b""),
    ("PUT", f"{PATH}/status", {}, b""),
    ("POST", PATH, {"idempotency-key": "short"}, b""),
    ("POST", PATH, {}, b'{"lane": 1}'),
    ("POST", PATH, {}, b"{"),
    ("POST", PATH, {}, b"x" * 70_000),
    ("POST", PATH, {"origin": "http://evil.example"}, b""),
    ("POST", f"{PATH}/pass", {}, b""),
    ("DELETE", PATH, {}, b""),
    ("GET", "/livez", {}, b""),
]


class WithoutFastRoutes:
    def __init__(self, app) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive, send) -> None:
        await self.app(scope, receive, send)


async def answer(app, request, request_id):
    method, path, headers, body = request
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://gateway") as client:
        headers = {**headers, "x-request-id": request_id}
        response = await client.request(method, path, headers=headers, content=body)
        other_headers = {name: value for name, value in response.headers.items() if name != "x-request-id"}
        return response.status_code, other_headers, response.content, response.headers.get("x-request-id")


async def test_a_fast_route_gives_the_same_answer_as_the_framework(app, queue):
    queue.open()
    for request in REQUESTS:
        fast = await answer(public(app), request, "request-1234")
        assert fast == await answer(WithoutFastRoutes(app), request, "request-1234"), request[:2]
        assert fast[3] == "request-1234"


async def test_requests_to_fast_routes_are_measured(fan, app, queue):
    queue.open()
    await fan.get(PATH)
    await fan.post(PATH)
    async with httpx.AsyncClient(transport=httpx.ASGITransport(internal(app)), base_url="http://x") as operator:
        metrics = (await operator.get("/metrics")).text
    for method, status in (("GET", 200), ("POST", 201)):
        labels = f'method="{method}",route="/events/{{event_id}}/queue",service="gateway",status="{status}"'
        assert f"onsale_http_request_seconds_count{{{labels}}}" in metrics


@pytest.mark.parametrize("wrap", [public, WithoutFastRoutes])
async def test_an_internal_error_reveals_nothing_on_either_route(app, queue, monkeypatch, caplog, wrap):
    queue.open()

    async def broken(event_id: str) -> None:
        raise ValueError("a secret")

    monkeypatch.setattr(type(app.state.deps.line_cache), "line", lambda cache, event_id: broken(event_id))
    with caplog.at_level(logging.ERROR):
        status, _, body, _ = await answer(wrap(app), ("GET", PATH, {}, b""), "request-1234")
    assert status == 500
    assert b"/problems/internal-error" in body
    assert b"secret" not in body
    assert "request.failed" in caplog.messages


async def test_every_request_gets_its_own_request_id(fan, queue):
    queue.open()
    ids = {(await fan.get(PATH)).headers["x-request-id"] for _ in range(5)}
    assert len(ids) == 5
    assert all(8 <= len(each) <= 64 for each in ids)
    malformed = await fan.get(PATH, headers={"x-request-id": "no spaces allowed"})
    assert malformed.headers["x-request-id"] != "no spaces allowed"
