"""The web app of a service: its listeners, problem documents, health checks and metrics."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import httpx
import pytest
from fastapi import APIRouter, FastAPI
from prometheus_client import REGISTRY

from shared.contracts.fields import Body
from shared.errors import problems
from shared.process.settings import ServiceSettings
from shared.rpc import ServiceClient, sign_service_call
from shared.web.answers import Answer
from shared.web.app import create_service, drain, internal, public
from shared.web.fast_routes import FastRoute
from shared.web.internal_api import InternalApi
from shared.web.request import Request
from tests.support.wait import wait_until

SETTINGS = ServiceSettings(log_requests=False)
public_router, API = APIRouter(), InternalApi()


class Order(Body):
    count: int


@public_router.post("/things")
async def create_thing(order: Order) -> dict[str, int]:
    if order.count == 13:
        raise problems.SoldOut("None left.", available=0)
    return {"count": order.count // (order.count - 7)}


@public_router.get("/lists/{length}")
async def get_list(length: int) -> list[int]:
    return [7] * length


@public_router.get("/outages/{kind}")
async def outage(kind: str) -> None:
    raise {"refused": ConnectionRefusedError, "late": TimeoutError}[kind]  # as a driver that cannot connect


@API.operation("/things", Order)
async def create_internal_thing(state: None, order: Order) -> Order:
    if order.count == 13:
        raise problems.SoldOut("None left.", available=0)
    return Order(count=order.count)


async def broken(request: Request) -> Answer:
    await asyncio.sleep(0)
    raise ZeroDivisionError("division")


@pytest.fixture
def app():
    @asynccontextmanager
    async def lifespan(app: FastAPI):
        yield

    async def check_redis() -> None:
        await created.state.redis_check()
        if created.state.redis_is_down:
            raise ConnectionError

    created = create_service(
        "queue", SETTINGS, title="test", lifespan=lifespan, routers=[public_router], internal_api=API,
        fast_routes=[FastRoute("GET", "/broken", broken)], checks=lambda app: {"redis": check_redis},
        body_max_bytes=1024,
    )  # fmt: skip
    created.state.redis_is_down = False
    created.state.redis_check = lambda: asyncio.sleep(0)
    return created


@pytest.fixture
async def browser(app) -> AsyncIterator[httpx.AsyncClient]:
    """A client of the public listener."""
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app=public(app)), base_url="http://test") as client:
        yield client


@pytest.fixture
async def service(app) -> AsyncIterator[httpx.AsyncClient]:
    """A client of the internal listener: another service, or Prometheus."""
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app=internal(app)), base_url="http://test") as client:
        yield client


async def test_a_problem_is_answered_as_a_problem_document(browser) -> None:
    answer = await browser.post("/things", json={"count": 13}, headers={"x-request-id": "abcdefgh-1"})
    assert answer.status_code == 409
    assert answer.headers["content-type"] == "application/problem+json"
    assert answer.json() == {
        "type": "/problems/sold-out", "title": "Not enough tickets are left.", "status": 409,
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
async def test_invalid_input_is_a_problem_that_does_not_repeat_the_input(browser, body, status, slug) -> None:
    answer = await browser.post("/things", content=body, headers={"content-type": "application/json"})
    assert (answer.status_code, answer.json()["type"]) == (status, f"/problems/{slug}")
    assert '"input"' not in answer.text


@pytest.mark.parametrize("kind", ["refused", "late"])
async def test_a_failed_connection_to_a_database_is_503(browser, kind) -> None:
    answer = await browser.get(f"/outages/{kind}")
    assert (answer.status_code, answer.json()["type"]) == (503, "/problems/unavailable")
    assert answer.headers["retry-after"]


async def test_a_body_without_a_content_length_is_bounded_too(browser) -> None:
    async def endless():
        for _ in range(100):
            yield b" " * 100

    answer = await browser.post("/things", content=endless(), headers={"content-type": "application/json"})
    assert answer.status_code == 413


async def test_a_fan_who_disconnects_during_a_request_causes_no_error_log(app, caplog) -> None:
    messages = iter([{"type": "http.request", "body": b"1", "more_body": True}, {"type": "http.disconnect"}])

    async def receive():
        return next(messages)

    async def send(message) -> None:
        raise AssertionError("the client has disconnected")

    scope = {"type": "http", "method": "POST", "path": "/internal/things", "headers": [], "query_string": b"",
             "http_version": "1.1", "scheme": "http", "server": ("test", 80), "client": ("127.0.0.1", 1)}  # fmt: skip
    await internal(app)(scope, receive, send)
    assert not [record for record in caplog.records if record.levelname == "ERROR"]
    assert next(messages, None) is None


@pytest.mark.parametrize(("method", "path"), [("POST", "/things"), ("GET", "/broken")])
async def test_an_internal_error_shows_no_details(browser, method: str, path: str) -> None:
    answer = await browser.request(method, path, json={"count": 7})
    assert (answer.status_code, answer.json()["type"]) == (500, "/problems/internal-error")
    assert "division" not in answer.text


@pytest.mark.parametrize(("method", "path", "status"), [("GET", "/nowhere", 404), ("GET", "/things", 405)])
async def test_a_wrong_path_or_method_is_a_problem_document(browser, method, path, status) -> None:
    answer = await browser.request(method, path)
    assert answer.status_code == status == answer.json()["status"]


async def test_internal_routes_are_404_on_the_public_listener_and_need_a_signature(service, browser) -> None:
    path, body = "/internal/things", b'{"count": 3}'
    signed = sign_service_call(SETTINGS.service_keys, "POST", path, body)
    assert (await browser.post(path, content=body, headers=signed)).status_code == 404
    assert (await service.post(path, content=body, headers=signed)).json() == {"count": 3}
    assert (await service.post(path, content=body)).status_code == 401
    assert (await service.post(path, content=b'{"count": 4}', headers=signed)).status_code == 401
    old = sign_service_call(SETTINGS.service_keys, "POST", path, body, at_s=1_000_000)
    assert (await service.post(path, content=body, headers=old)).status_code == 401
    assert (await service.get("/livez")).status_code == 404


async def test_a_fast_route_accepts_a_body_in_parts_and_answers_with_problems(service) -> None:
    async def parts():
        yield b'{"count"'
        yield b": 13}"

    signed = sign_service_call(SETTINGS.service_keys, "POST", "/internal/things", b'{"count": 13}')
    answer = await service.post("/internal/things", content=parts(), headers=signed)
    assert (answer.status_code, answer.json()["available"]) == (409, 0)
    assert (await service.get("/internal/things")).status_code == 405


async def test_a_problem_of_another_service_is_raised_as_the_same_class(service) -> None:
    queue = ServiceClient(service, "http://test", SETTINGS.service_keys, name="queue")
    assert (await queue.call("/things", Order(count=5), Order)).count == 5
    with pytest.raises(problems.SoldOut) as raised:
        await queue.call("/things", Order(count=13), Order)
    assert raised.value.detail == "None left."
    assert raised.value.members == {"available": 0}


async def test_a_service_that_does_not_answer_is_unavailable() -> None:
    async def refuse(request: httpx.Request) -> httpx.Response:
        raise httpx.ConnectError("refused")

    async with httpx.AsyncClient(transport=httpx.MockTransport(refuse)) as http:
        with pytest.raises(problems.Unavailable):
            await ServiceClient(http, "http://gone", SETTINGS.service_keys, name="queue").call(
                "/x", Order(count=1), Order
            )


async def test_readiness_follows_its_checks_and_ends_when_draining(app, browser) -> None:
    drained = asyncio.Event()

    async def end_streams() -> None:
        drained.set()

    app.state.on_drain.append(end_streams)
    ready = await browser.get("/readyz")
    assert (ready.status_code, ready.json()["descriptors"]["max"] > 0) == (200, True)
    app.state.redis_is_down = True

    async def failing() -> list[str]:
        return list((await browser.get("/readyz")).json().get("failing", []))

    await wait_until(failing)
    assert await failing() == ["redis"]
    assert (await browser.get("/readyz")).status_code == 503
    app.state.redis_is_down = False
    await drain(app)
    stopping = await browser.get("/readyz")
    assert (stopping.status_code, stopping.json()["detail"]) == (503, "This process is stopping.")
    assert drained.is_set()


async def test_concurrent_readiness_requests_share_one_check(app, browser) -> None:
    checks = 0

    async def count_check() -> None:
        nonlocal checks
        checks += 1
        await asyncio.sleep(0.01)

    app.state.redis_check = count_check
    answers = await asyncio.gather(*(browser.get("/readyz") for _ in range(50)))
    assert {answer.status_code for answer in answers} == {200}
    assert checks == 1


async def test_metrics_are_on_the_internal_listener_only(service, browser) -> None:
    assert (await browser.get("/metrics")).status_code == 404
    assert "onsale_http_request_seconds" in (await service.get("/metrics")).text
    assert (await service.get("/readyz")).status_code == 404


async def test_a_failure_is_counted_in_a_series_that_stood_at_0(browser, service) -> None:
    def count(route: str, method: str) -> float:
        labels = {"service": "queue", "route": route, "method": method}
        found = REGISTRY.get_sample_value("onsale_http_failures_total", labels)
        assert found is not None, "it stood at 0 before the first failure"
        return found

    count("/internal/things", "POST")
    before, away_before = count("/things", "POST"), count("/outages/{kind}", "GET")
    assert (await browser.post("/things", json={"count": 7})).status_code == 500
    assert (await browser.post("/things", json={"count": 13})).status_code == 409
    assert count("/things", "POST") == before + 1
    assert (await browser.get("/outages/refused")).status_code == 503
    assert count("/outages/{kind}", "GET") == away_before + 1


async def test_metrics_speak_the_format_that_is_asked_for(service) -> None:
    plain = await service.get("/metrics")
    open_metrics = await service.get("/metrics", headers={"accept": "application/openmetrics-text; version=1.0.0"})
    assert plain.headers["content-type"].startswith("text/plain")
    assert open_metrics.headers["content-type"].startswith("application/openmetrics-text")
    assert open_metrics.text.endswith("# EOF\n")
    assert not plain.text.endswith("# EOF\n")


async def test_head_works_where_get_does_and_405_lists_the_allowed_methods(browser) -> None:
    assert (await browser.head("/livez")).status_code == 200
    for method in ("OPTIONS", "PUT", "DELETE"):
        refused = await browser.request(method, "/things")
        assert (refused.status_code, refused.headers["allow"]) == (405, "POST"), method
    refused = await browser.post("/livez")
    assert (refused.status_code, refused.headers["allow"]) == (405, "GET, HEAD")


async def test_a_long_answer_is_compressed_for_clients_that_accept_it(browser) -> None:
    for length, accepted, encoding in ((1000, "gzip", "gzip"), (1000, "identity", None), (10, "gzip", None)):
        answer = await browser.get(f"/lists/{length}", headers={"accept-encoding": accepted})
        assert (answer.headers.get("content-encoding"), answer.json()) == (encoding, [7] * length)
        assert answer.headers.get("vary") == ("Accept-Encoding" if length > 10 else None), "caches keep them apart"


async def test_unknown_methods_and_paths_are_one_metric_series_each(browser, service) -> None:
    async def series() -> int:
        return (await service.get("/metrics")).text.count("onsale_http_request_seconds_count")

    await browser.put("/livez")
    await browser.get("/nothing")
    await browser.request("BREW", "/nothing")
    await series()  # Prometheus' own request is one from now on
    before = await series()
    for method in ("PUT", "PATCH", "DELETE", "OPTIONS", "BREW"):
        for path in ("/livez", "/readyz", "/version", "/things", "/outages/x"):
            assert (await browser.request(method, path)).status_code == 405
    for n in range(10):
        await browser.get(f"/nothing/{n}")
        assert (await browser.request(f"BREW{n}", f"/nothing/{n}")).status_code == 404
    assert await series() == before
