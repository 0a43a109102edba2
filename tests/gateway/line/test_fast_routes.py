"""Fast routes skip the framework, and give the same answers behind our server and any other.

Claiming a pass, only after the call and always the same one; and leaving the line.
"""

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import httpx
import jwt
import orjson
import pytest
from starlette.types import Scope

from shared.contracts.queue import HeartbeatReport
from shared.security.limits import BURST_S
from shared.security.tokens import Keyring
from shared.web.app import internal, public
from tests.gateway.frames import new_frame
from tests.gateway.tokens import queue_token
from tests.support.running.serving import on_our_protocol
from tests.support.running.suite import bearer, no_cookies

PATH = "/events/show/queue"
OF_ONE_PLACE = ("queue_token", "join_seq", "position_in_queue", "estimated_wait_time", "estimated_wait_low",
                "estimated_wait_high", "poll_after_ms")  # fmt: skip
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


class AsPlainAsgi:
    """The listener as any server knows it, which has a task for each request."""

    def __init__(self, listener) -> None:
        self.listener = listener

    async def __call__(self, scope: Scope, receive, send) -> None:
        await self.listener(scope, receive, send)


@asynccontextmanager
async def server(app) -> AsyncIterator[httpx.AsyncClient]:
    """A client of the app behind the protocol that services run on."""
    async with (
        on_our_protocol(app) as (port, _),
        httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", cookies=no_cookies()) as client,
    ):
        yield client


def comparable(response: httpx.Response) -> tuple[int, bytes, dict[str, str]]:
    """Status, body and header fields, without those that differ from answer to answer."""
    varying = {"date": "", "x-request-id": "", "set-cookie": response.headers.get("set-cookie", "")[:20]}
    body = response.content.partition(b'"request_id"')[0]
    return response.status_code, body, {**response.headers, **varying}


async def test_an_answer_is_the_same_behind_our_server_and_any_other(app, queue):
    await queue.open()
    async with server(public(app)) as ours, server(AsPlainAsgi(public(app))) as plain:
        for method, path, headers, body in REQUESTS:
            headers = {**headers, "x-request-id": "request-1234", "host": "gateway"}
            answers = [await one.request(method, path, headers=headers, content=body) for one in (ours, plain)]
            assert comparable(answers[0]) == comparable(answers[1]), (method, path)
            assert answers[0].headers["x-request-id"] == "request-1234"


async def test_a_status_is_the_same_whether_it_is_answered_at_once_or_by_a_task(app, state, queue, publish_frame):
    """The places: waiting, by cookie, called, with a pass, of an old key, of an epoch to come; then not one of ours."""
    await queue.open()
    await queue.join(*(f"fan-{n}" for n in range(1, 8)))
    await publish_frame(await queue.call(7))
    old_key = dict(state.settings.queue_token_keys.keys)
    waiting = queue_token()
    state.settings.queue_token_keys.replace(Keyring({"new": b"n" * 32, **old_key}))
    renewed = queue_token(keys=state.settings.queue_token_keys)
    requests = [
        (200, bearer(renewed)), (200, {"cookie": f"onsale_queue_show={renewed}"}),
        (200, bearer(queue_token(join_seq=7, keys=state.settings.queue_token_keys))),
        (200, {**bearer(renewed), "cookie": "onsale_pass_show=x"}), (200, bearer(waiting)),
        (503, bearer(queue_token(epoch=9, keys=state.settings.queue_token_keys))),
        (401, bearer("x.y.z")), (401, {}), (401, {"authorization": "Basic x"}),
    ]  # fmt: skip
    async with server(public(app)) as fast, server(AsPlainAsgi(public(app))) as usual:
        for status, headers in requests:
            for method in ("GET", "HEAD"):
                ours, theirs = [await one.request(method, f"{PATH}/status", headers=headers) for one in (fast, usual)]
                assert ours.status_code == status
                assert comparable(ours) == comparable(theirs)


async def test_a_join_is_the_same_whether_it_has_a_task_or_not(app, queue, publish_frame):
    """The fans: new, with a place, of another site, with a short key, of an unknown event, with rubbish for a token;
    then refused by the line, by a queue that does not answer, and by a room for signed-in fans.
    """
    await queue.open()
    key = {"idempotency-key": "k" * 32}
    async with server(public(app)) as fast, server(AsPlainAsgi(public(app))) as usual:

        async def same(status: int, headers: dict[str, str], path: str = PATH, failures: int = 0) -> None:
            answers = []
            for client in (fast, usual):
                queue.refusals = failures
                answers.append(await client.post(path, headers=headers))
                assert answers[-1].status_code == status
                assert answers[-1].headers["x-request-id"]
            assert without_place(answers[0]) == without_place(answers[1])

        await fast.post(PATH, headers=key)
        for status, headers in (
            (201, {}), (200, key), (200, {**key, "origin": str(fast.base_url), "host": fast.base_url.netloc.decode()}),
            (403, {"origin": "http://evil.example"}), (400, {"idempotency-key": "short"}),
            (401, bearer("x.y.z")), (401, {"authorization": "Basic x"}),
        ):  # fmt: skip
            await same(status, headers)
        await same(404, {}, path="/events/nowhere/queue")
        await same(503, {}, failures=2)
        await queue.configure(max_line=1)
        await same(429, {})
        await publish_frame(await queue.configure(entry={"signed_in_only": True}))
        await same(401, {})


def without_place(response: httpx.Response) -> tuple[int, dict[str, object], dict[str, str]]:
    """As `comparable`, without the number that the fan got and what follows from it."""
    status, body, fields = comparable(response)
    document = orjson.loads(body) if status in (200, 201) else {"text": body}
    return (
        status,
        {**document, **dict.fromkeys(OF_ONE_PLACE)},
        {**fields, "content-length": ""},
    )


async def test_polls_that_are_answered_at_once_are_limited_counted_and_heartbeats(app, state, queue, publish_frame):
    await publish_frame(new_frame(head=100))
    limit, token = round(state.settings.fan_calls_per_s * BURST_S), queue_token()
    async with server(public(app)) as client:
        statuses = [(await client.get(f"{PATH}/status", headers=bearer(token))).status_code for _ in range(2 * limit)]
        assert statuses[:limit] == [200] * limit
        assert 429 in statuses[limit:]
        await state.heartbeats.report()
        reports = queue.received("/heartbeats", HeartbeatReport)
        assert any(500 in event.lanes.get(0, ()) for report in reports for event in report.events)
    async with httpx.AsyncClient(transport=httpx.ASGITransport(internal(app)), base_url="http://x") as operator:
        metrics = (await operator.get("/metrics")).text
    labels = 'method="GET",route="/events/{event_id}/queue/status",service="gateway",status="200"'
    counted = float(metrics.partition(f"onsale_http_request_seconds_count{{{labels}}} ")[2].partition("\n")[0])
    assert counted >= limit


async def test_requests_to_fast_routes_are_measured(fan, app, queue):
    await queue.open()
    await fan.get(PATH)
    await fan.post(PATH)
    async with httpx.AsyncClient(transport=httpx.ASGITransport(internal(app)), base_url="http://x") as operator:
        metrics = (await operator.get("/metrics")).text
    for method, status in (("GET", 200), ("POST", 201)):
        labels = f'method="{method}",route="/events/{{event_id}}/queue",service="gateway",status="{status}"'
        assert f"onsale_http_request_seconds_count{{{labels}}}" in metrics


@pytest.mark.parametrize("listener", [lambda app: public(app), lambda app: AsPlainAsgi(public(app))])
async def test_an_internal_error_reveals_nothing(app, queue, monkeypatch, caplog, listener):
    await queue.open()

    def broken(cache, event_id: str) -> None:
        raise ValueError("a secret")

    monkeypatch.setattr(type(app.state.deps.line_cache), "cached", broken)
    with caplog.at_level(logging.ERROR):
        async with server(listener(app)) as client:
            failed = await client.get(PATH)
    assert failed.status_code == 500
    assert "/problems/internal-error" in failed.text
    assert "secret" not in failed.text
    assert "request.failed" in caplog.messages


async def test_every_request_gets_its_own_request_id(fan, queue):
    await queue.open()
    ids = {(await fan.get(PATH)).headers["x-request-id"] for _ in range(5)}
    assert len(ids) == 5
    assert all(8 <= len(each) <= 64 for each in ids)
    malformed = await fan.get(PATH, headers={"x-request-id": "no spaces allowed"})
    assert malformed.headers["x-request-id"] != "no spaces allowed"


@pytest.fixture
async def joined(fan, queue) -> None:
    """This fan is the first in the line."""
    await queue.open()
    assert (await fan.post(PATH)).status_code == 201


@pytest.mark.parametrize(("ahead", "requests"), [(119, 1), (120, 0)])
async def test_a_claim_long_before_the_call_is_refused_without_a_request(fan, queue, publish_frame, ahead, requests):
    await queue.open()
    await queue.join(*(f"other-{n}" for n in range(ahead)))
    await fan.get(PATH)
    await publish_frame(new_frame(rate_per_s=10.0))
    await fan.post(PATH)
    refused = await fan.post(f"{PATH}/pass")
    assert (refused.status_code, refused.json()["type"]) == (409, "/problems/not-admitted")
    assert queue.calls["/claims"] == requests


async def test_a_fan_who_was_called_gets_the_pass_at_a_gateway_that_does_not_know_of_it_yet(fan, queue, joined):
    with queue.frames_are_lost():
        await queue.call()
    assert (await fan.post(f"{PATH}/pass")).status_code == 200


async def test_a_stale_frame_refuses_no_claim(fan, queue, joined, state):
    with queue.frames_are_lost():
        await queue.call()
    state.line_cache.cached("show").received_s -= 20
    assert (await fan.post(f"{PATH}/pass")).status_code == 200


async def test_a_called_fan_gets_the_same_pass_at_every_claim(fan, queue, joined, publish_frame):
    await publish_frame(await queue.call())
    answers = await asyncio.gather(*(fan.post(f"{PATH}/pass") for _ in range(5)))
    (body,) = {answer.content for answer in answers}
    body = answers[0].json()
    assert set(body) == {"pass", "expires_at", "checkout_key", "status"}
    assert body["status"] == "admitted"
    cookie, *flags = answers[0].headers["set-cookie"].split("; ")
    assert cookie == f"onsale_pass_show={body['pass']}"
    assert {"Path=/", "HttpOnly", "SameSite=Lax"} < set(flags)
    (max_age,) = (int(flag.removeprefix("Max-Age=")) for flag in flags if flag.startswith("Max-Age="))
    assert 800 < max_age <= 900
    assert queue.calls["/claims"] <= 3
    assert (await fan.get(f"{PATH}/status")).json()["status"] == "admitted"
    assert queue.calls["/status"] == 0, "the answer to the claim is cached"


async def test_a_pass_can_be_verified_with_the_published_keys(fan, queue, joined, publish_frame):
    await publish_frame(await queue.call())
    text = (await fan.post(f"{PATH}/pass")).json()["pass"]
    (key,) = (await fan.get("/.well-known/jwks.json")).json()["keys"]
    claims = jwt.decode(text, jwt.PyJWK(key), algorithms=["EdDSA"], audience="show", issuer="onsale")
    assert claims["seq"] == 1


async def test_an_ended_place_gets_no_pass(fan, queue, joined, publish_frame):
    await publish_frame(await queue.call())
    await queue.end(1, "expired")
    refused = await fan.post(f"{PATH}/pass")
    assert (refused.status_code, refused.json()["type"]) == (410, "/problems/place-expired")
    assert refused.json()["place"] == "expired"
    assert "set-cookie" not in refused.headers
    assert (await fan.get(f"{PATH}/status")).json()["status"] == "expired"


async def test_leaving_ends_the_place_and_deletes_its_cookies(fan, queue, joined):
    left = await fan.delete(PATH)
    assert (left.status_code, left.content) == (204, b"")
    cleared = left.headers.get_list("set-cookie")
    assert [cookie.split(";")[0] for cookie in cleared] == ["onsale_queue_show=", "onsale_pass_show="]
    assert all("Max-Age=0" in cookie for cookie in cleared)
    assert await queue.ended() == {1: "left"}
    assert (await fan.delete(PATH)).status_code == 401, "the cookies are deleted"


async def test_leaving_a_line_after_its_reset_ends_no_place(fan, queue, joined):
    await queue.reset()
    assert (await fan.delete(PATH)).status_code == 204
    assert not await queue.ended()
