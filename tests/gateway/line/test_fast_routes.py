"""Fast routes bypass the framework; their answers are the same."""

import logging

import httpx
import pytest
from starlette.types import Scope

from shared.web.app import internal, public

PATH = "/events/show/queue"
CALLS = [
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


class LongWay:
    """The app without its fast routes."""

    def __init__(self, app) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive, send) -> None:
        await self.app(scope, receive, send)


async def answer(app, call, request_id):
    method, path, headers, body = call
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://gateway") as client:
        headers = {**headers, "x-request-id": request_id}
        response = await client.request(method, path, headers=headers, content=body)
        told = {name: value for name, value in response.headers.items() if name != "x-request-id"}
        return response.status_code, told, response.content, response.headers.get("x-request-id")


async def test_the_short_way_answers_like_the_long_one(app, queue):
    queue.open()
    for call in CALLS:
        short = await answer(public(app), call, "request-1234")
        assert short == await answer(LongWay(app), call, "request-1234"), call[:2]
        assert short[3] == "request-1234"


async def test_requests_are_measured_on_the_short_way_too(fan, app, queue):
    queue.open()
    await fan.get(PATH)
    await fan.post(PATH)
    async with httpx.AsyncClient(transport=httpx.ASGITransport(internal(app)), base_url="http://x") as operator:
        metrics = (await operator.get("/metrics")).text
    for method, status in (("GET", 200), ("POST", 201)):
        labels = f'method="{method}",route="/events/{{event_id}}/queue",service="gateway",status="{status}"'
        assert f"onsale_http_request_seconds_count{{{labels}}}" in metrics


@pytest.mark.parametrize("way", [public, LongWay])
async def test_a_bug_reveals_nothing_on_either_path(app, queue, monkeypatch, caplog, way):
    queue.open()

    async def broken(event_id: str) -> None:
        raise ValueError("a secret")

    monkeypatch.setattr(type(app.state.deps.line_cache), "line", lambda board, event_id: broken(event_id))
    with caplog.at_level(logging.ERROR):
        status, _, body, _ = await answer(way(app), ("GET", PATH, {}, b""), "request-1234")
    assert status == 500
    assert b"/problems/internal-error" in body
    assert b"secret" not in body
    assert "request.failed" in caplog.messages


async def test_every_request_has_a_name_of_its_own(fan, queue):
    queue.open()
    names = {(await fan.get(PATH)).headers["x-request-id"] for _ in range(5)}
    assert len(names) == 5
    assert all(8 <= len(name) <= 64 for name in names)
    odd = await fan.get(PATH, headers={"x-request-id": "no spaces allowed"})
    assert odd.headers["x-request-id"] != "no spaces allowed"
