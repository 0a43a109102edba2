"""The shell: every answer out of a service is its own or a problem document."""

import asyncio
from contextlib import asynccontextmanager

import httpx
import pytest
from fastapi import APIRouter, FastAPI, Response
from starlette.routing import Route

from shared.rpc.client import ServiceClient
from shared.runtime.settings import ServiceSettings
from shared.security.auth import sign_service_call
from shared.web import problems
from shared.web.app import create_service, drain, internal, public
from shared.web.fields import Body
from tests.support.wait import wait_until

SETTINGS = ServiceSettings(body_max_bytes=1024, log_requests=False)
outside, inside = APIRouter(), APIRouter()


class Order(Body):
    count: int


@outside.post("/things")
async def make(order: Order) -> dict[str, int]:
    if order.count == 13:
        raise problems.SoldOut("None left.", available=0)
    return {"count": order.count // (order.count - 7)}


@outside.get("/away/{why}")
async def away(why: str) -> None:
    raise {"refused": ConnectionRefusedError, "late": TimeoutError}[why]  # as a driver does that cannot connect


@inside.post("/things")
async def ask(order: Order) -> dict[str, int]:
    if order.count == 13:
        raise problems.SoldOut("None left.", available=0)
    return {"count": order.count}


class Hot:
    async def __call__(self, scope, receive, send) -> None:
        body = (await receive())["body"]
        if body == b"13":
            raise problems.SoldOut("None left.", available=0)
        await Response(body)(scope, receive, send)


class Count(Body):
    count: int


@pytest.fixture
def app():
    @asynccontextmanager
    async def lifespan(app: FastAPI):
        yield

    async def broken() -> None:
        await made.state.look()
        if made.state.engine_away:
            raise ConnectionError

    made = create_service(
        "queue", SETTINGS, title="test", lifespan=lifespan, routers=[outside], internal_routers=[inside],
        internal_fast_routes=[Route("/hot", Hot(), methods=["POST"])], checks=lambda app: {"engine": broken},
    )  # fmt: skip
    made.state.engine_away = False
    made.state.look = lambda: asyncio.sleep(0)
    return made


def client(app, face=public) -> httpx.AsyncClient:
    return httpx.AsyncClient(transport=httpx.ASGITransport(app=face(app)), base_url="http://test")


async def test_a_problem_is_a_document(app) -> None:
    async with client(app) as browser:
        answer = await browser.post("/things", json={"count": 13}, headers={"x-request-id": "abcdefgh-1"})
    assert answer.status_code == 409
    assert answer.headers["content-type"] == "application/problem+json"
    assert answer.json() == {
        "type": "/problems/sold-out", "title": "Nothing is left of what you requested.", "status": 409,
        "detail": "None left.", "request_id": "abcdefgh-1", "available": 0,
    }  # fmt: skip
    assert answer.headers["x-request-id"] == "abcdefgh-1"


@pytest.mark.parametrize(
    ("body", "status", "slug"),
    [
        (b"{", 400, "malformed-request"),
        (b'{"count": "x"}', 422, "invalid-request"),
        (b'{"count": 1, "more": 2}', 422, "invalid-request"),
        (b"{}", 422, "invalid-request"),
        (b" " * 2000 + b'{"count": 1}', 413, "body-too-large"),
    ],
)
async def test_bad_input_has_its_own_document_and_repeats_nothing(app, body, status, slug) -> None:
    async with client(app) as browser:
        answer = await browser.post("/things", content=body, headers={"content-type": "application/json"})
    assert (answer.status_code, answer.json()["type"]) == (status, f"/problems/{slug}")
    assert '"input"' not in answer.text


@pytest.mark.parametrize("why", ["refused", "late"])
async def test_an_engine_that_cannot_be_connected_to_is_away_and_no_fault_of_ours(app, why) -> None:
    async with client(app) as browser:
        answer = await browser.get(f"/away/{why}")
    assert (answer.status_code, answer.json()["type"]) == (503, "/problems/unavailable")
    assert answer.headers["retry-after"]


async def test_a_body_without_a_length_is_bounded_too(app) -> None:
    async def endless():
        for _ in range(100):
            yield b" " * 100

    async with client(app) as browser:
        answer = await browser.post("/things", content=endless(), headers={"content-type": "application/json"})
    assert answer.status_code == 413


async def test_a_fan_who_goes_away_in_the_middle_of_a_question_is_no_fault_of_ours(app, caplog) -> None:
    said = iter([{"type": "http.request", "body": b"1", "more_body": True}, {"type": "http.disconnect"}])

    async def receive():
        return next(said)

    async def send(message) -> None:
        raise AssertionError("nobody is there to hear it")

    scope = {"type": "http", "method": "POST", "path": "/internal/hot", "headers": [], "query_string": b"",
             "http_version": "1.1", "scheme": "http", "server": ("inside", 80), "client": ("127.0.0.1", 1)}  # fmt: skip
    await internal(app)(scope, receive, send)
    assert not [record for record in caplog.records if record.levelname == "ERROR"]
    assert next(said, None) is None


async def test_a_bug_says_nothing_of_itself(app) -> None:
    async with client(app) as browser:
        answer = await browser.post("/things", json={"count": 7})
    assert (answer.status_code, answer.json()["type"]) == (500, "/problems/internal-error")
    assert "division" not in answer.text


@pytest.mark.parametrize(("method", "path", "status"), [("GET", "/nowhere", 404), ("GET", "/things", 405)])
async def test_even_a_wrong_address_is_a_problem_document(app, method, path, status) -> None:
    async with client(app) as browser:
        answer = await browser.request(method, path)
    assert answer.status_code == status == answer.json()["status"]


@pytest.mark.parametrize("path", ["/internal/things", "/internal/hot"])
async def test_internal_is_nowhere_from_outside_and_signed_inside(app, path: str) -> None:
    body = b'{"count": 3}'
    signed = sign_service_call(SETTINGS.service_keys, "POST", path, body)
    async with client(app) as browser, client(app, internal) as neighbour:
        assert (await browser.post(path, content=body, headers=signed)).status_code == 404
        assert (await neighbour.post(path, content=body, headers=signed)).json() == {"count": 3}
        assert (await neighbour.post(path, content=body)).status_code == 401
        assert (await neighbour.post(path, content=b'{"count": 4}', headers=signed)).status_code == 401
        old = sign_service_call(SETTINGS.service_keys, "POST", path, body, at_s=1_000_000)
        assert (await neighbour.post(path, content=body, headers=old)).status_code == 401
        assert (await neighbour.get("/livez")).status_code == 404


async def test_a_hot_internal_route_takes_a_body_in_parts_and_answers_with_problems(app) -> None:
    async def parts():
        yield b"1"
        yield b"3"

    signed = sign_service_call(SETTINGS.service_keys, "POST", "/internal/hot", b"13")
    async with client(app, internal) as neighbour:
        answer = await neighbour.post("/internal/hot", content=parts(), headers=signed)
        assert (answer.status_code, answer.json()["available"]) == (409, 0)
        assert (await neighbour.get("/internal/hot")).status_code == 405


async def test_a_neighbours_problem_comes_back_as_the_same_class(app) -> None:
    async with client(app, internal) as http:
        neighbour = ServiceClient(http, "http://test", SETTINGS.service_keys, name="queue")
        assert (await neighbour.call("/things", Count(count=5), Count)).count == 5
        with pytest.raises(problems.SoldOut) as raised:
            await neighbour.call("/things", Count(count=13), Count)
    assert raised.value.detail == "None left."
    assert raised.value.members == {"available": 0}


async def test_a_neighbour_that_does_not_answer_is_unavailable() -> None:
    async def gone(request: httpx.Request) -> httpx.Response:
        raise httpx.ConnectError("refused")

    async with httpx.AsyncClient(transport=httpx.MockTransport(gone)) as http:
        with pytest.raises(problems.Unavailable):
            await ServiceClient(http, "http://gone", SETTINGS.service_keys, name="queue").call(
                "/x", Count(count=1), Count
            )


async def test_readiness_follows_the_engines_and_ends_first(app) -> None:
    ended = asyncio.Event()

    async def end_streams() -> None:
        ended.set()

    app.state.on_drain.append(end_streams)
    async with client(app) as browser:
        ready = await browser.get("/readyz")
        assert (ready.status_code, ready.json()["descriptors"]["max"] > 0) == (200, True)
        app.state.engine_away = True

        async def failing() -> list[str]:
            return list((await browser.get("/readyz")).json().get("failing", []))

        await wait_until(failing)
        assert await failing() == ["engine"]
        assert (await browser.get("/readyz")).status_code == 503
        app.state.engine_away = False
        await drain(app)
        assert (await browser.get("/readyz")).status_code == 503
    assert ended.is_set()


async def test_however_many_ask_for_readiness_the_engines_are_asked_once(app) -> None:
    asked = 0

    async def count() -> None:
        nonlocal asked
        asked += 1
        await asyncio.sleep(0.01)

    app.state.look = count
    async with client(app) as browser:
        answers = await asyncio.gather(*(browser.get("/readyz") for _ in range(50)))
    assert {answer.status_code for answer in answers} == {200}
    assert asked == 1


async def test_metrics_are_inside_only(app) -> None:
    async with client(app) as stranger:
        assert (await stranger.get("/metrics")).status_code == 404
    async with httpx.AsyncClient(transport=httpx.ASGITransport(internal(app)), base_url="http://x") as collector:
        assert "onsale_http_request_seconds" in (await collector.get("/metrics")).text
        assert (await collector.get("/readyz")).status_code == 404


async def test_head_is_there_where_get_is_and_a_wrong_method_is_told_which_are_right(app) -> None:
    async with client(app) as browser:
        assert (await browser.head("/livez")).status_code == 200
        for method in ("OPTIONS", "PUT", "DELETE"):
            refused = await browser.request(method, "/things")
            assert (refused.status_code, refused.headers["allow"]) == (405, "POST"), method
        refused = await browser.post("/livez")
        assert (refused.status_code, refused.headers["allow"]) == (405, "GET, HEAD")


async def test_strangers_methods_and_paths_are_one_series_each(app) -> None:
    async def series() -> int:
        async with httpx.AsyncClient(transport=httpx.ASGITransport(internal(app)), base_url="http://x") as collector:
            return (await collector.get("/metrics")).text.count("onsale_http_request_seconds_count")

    async with client(app) as stranger:
        await stranger.put("/livez")
        await stranger.get("/nothing")
        await stranger.request("BREW", "/nothing")
        await series()  # the collector's own request is one from now on
        before = await series()
        for method in ("PUT", "PATCH", "DELETE", "OPTIONS", "BREW"):
            for path in ("/livez", "/readyz", "/version", "/things", "/away/x"):
                assert (await stranger.request(method, path)).status_code == 405
        for n in range(10):
            await stranger.get(f"/nothing/{n}")
            assert (await stranger.request(f"BREW{n}", f"/nothing/{n}")).status_code == 404
        assert await series() == before
