"""nginx and HAProxy with the generated configuration, in front of services that echo the requests they receive."""

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from onsale.deploy.balancers import Limits, Plan
from onsale.local.ports import HOST, free_port
from tests.support.running.serving import on_our_protocol, self_signed, serving
from tests.support.running.suite import Kind, balancer_parameters, no_cookies, plan_for_ports, problem, running_balancer
from tests.support.wait import wait_until

pytestmark = pytest.mark.parametrize("kind", balancer_parameters())
LOW_LIMITS = Limits(address_requests_per_s=1, address_burst=30, address_streams=2)
METHODS = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"]
STREAM = "/events/show/sections/updates"
StartBalancer = Callable[[Plan], str]
Balancer = Callable[..., httpx.AsyncClient]


class EchoProcess:
    """Stands for a process of every service. `received` are its requests; its streams continue once `more` is set."""

    def __init__(self) -> None:
        self.port, self.received = 0, list[str]()
        self.more = asyncio.Event()
        self.app = Starlette(
            routes=[
                Route("/readyz", self._ready),
                Route(STREAM, self._stream),
                Route("/{path:path}", self._answer, methods=METHODS),
            ]
        )

    async def _ready(self, request: Request) -> Response:
        return Response()

    async def _answer(self, request: Request) -> Response:
        self.received.append(f"{request.method} {request.url.path}")
        await request.body()
        return JSONResponse(dict(request.headers))

    async def _stream(self, request: Request) -> Response:
        async def frames() -> AsyncIterator[bytes]:
            yield b"data: first\n\n"
            await self.more.wait()
            yield b"data: second\n\n"

        return StreamingResponse(frames(), media_type="text/event-stream")


@pytest.fixture
async def echo() -> AsyncIterator[EchoProcess]:
    process = EchoProcess()
    async with serving(process.app) as process.port:
        yield process


@pytest.fixture
def balancers() -> Iterator[ExitStack]:
    """Closing it stops the balancers, before the processes whose health they check."""
    with ExitStack() as stack:
        yield stack


@pytest.fixture
def start_balancer(kind: Kind, balancers: ExitStack, tmp_path: Path) -> StartBalancer:
    return lambda plan: balancers.enter_context(running_balancer(kind, plan, tmp_path))


@pytest.fixture
def balancer(start_balancer: StartBalancer) -> Balancer:
    """Starts the balancer in front of processes on these ports; a browser that uses it."""
    return lambda *ports, **more: browser(start_balancer(plan_for_ports(*ports, **more)))


def browser(url: str, **more: Any) -> httpx.AsyncClient:
    return httpx.AsyncClient(base_url=url, timeout=20, cookies=no_cookies(), trust_env=False, **more)


async def test_paths_that_are_not_public_are_answered_with_404(balancer: Balancer, echo: EchoProcess) -> None:
    from_outside = {"x-forwarded-for": "203.0.113.9"}
    async with balancer(echo.port, trusted=("127.0.0.0/8",)) as fan:
        for path in ("/internal/joins", "/metrics", "/queue/metrics", "/readyz", "/docs", "/nothing"):
            assert problem(await fan.get(path)) == (404, "not-found"), path
        for path in ("/admin/events/show/room", "/admin/inventory/events/show", "/admin/orders"):
            assert problem(await fan.get(path, headers=from_outside)) == (404, "not-found"), path
        assert echo.received == []
        assert (await fan.get("/admin/orders")).status_code == 200, "operators call from the inside network"


async def test_a_client_cannot_forge_its_address(balancer: Balancer, echo: EchoProcess) -> None:
    forged = {"x-forwarded-for": "10.1.2.3, 198.51.100.7", "x-forwarded-proto": "https", "x-request-id": "forged-name"}
    async with balancer(echo.port) as fan:
        headers = (await fan.get("/orders", headers=forged)).json()
    assert (headers["x-forwarded-for"], headers["x-forwarded-proto"]) == (HOST, "http")
    assert headers["x-request-id"] != "forged-name"
    assert len(headers["x-request-id"]) >= 32


async def test_the_address_comes_from_a_trusted_proxy_and_not_from_the_fan_behind_it(
    balancer: Balancer, echo: EchoProcess
) -> None:
    async with balancer(echo.port, trusted=("127.0.0.0/8", "10.0.0.0/8")) as fan:

        async def forwarded_as(forwarded_for: str) -> tuple[str, str]:
            answer = await fan.get("/orders", headers={"x-forwarded-for": forwarded_for, "x-forwarded-proto": "https"})
            return answer.json()["x-forwarded-for"], answer.json()["x-forwarded-proto"]

        assert await forwarded_as("198.51.100.7") == ("198.51.100.7", "https")
        assert await forwarded_as("1.1.1.1, 198.51.100.7") == ("198.51.100.7", "https"), (
            "addresses left of it are not trusted"
        )
        assert await forwarded_as("1.1.1.1, 198.51.100.7, 10.9.9.9") == ("198.51.100.7", "https"), "two trusted proxies"


async def test_requests_are_limited_per_address_whatever_credential_they_seem_to_have(
    balancer: Balancer, echo: EchoProcess
) -> None:
    async with balancer(echo.port, limits=LOW_LIMITS, trusted=("127.0.0.0/8",)) as fan:

        async def count_answered(addresses: list[str], **headers: str) -> int:
            """How many simultaneous requests are answered; the others are refused."""
            path = "/events/show/queue/status"
            requests = (fan.get(path, headers={"x-forwarded-for": address, **headers}) for address in addresses)
            answers = await asyncio.gather(*requests)
            for refused in (answer for answer in answers if answer.status_code != 200):
                assert problem(refused) == (429, "too-many-requests")
                assert refused.headers["retry-after"] == "1"
            return sum(answer.status_code == 200 for answer in answers)

        fans = [f"a.b.fan-{n}" for n in range(90)]
        answered = [await count_answered(["198.51.100.2"], authorization=f"Bearer {token}") for token in fans]
        assert 30 <= sum(answered) < 90
        cookies = {"cookie": "onsale_queue_show=a.b.decoy; onsale_pass_show=a.b.other"}
        assert await count_answered(["198.51.100.3"] * 25, **cookies) == 25, "the services count fans"
        assert 30 <= await count_answered([f"2001:db8:1:2::{n:x}" for n in range(1, 91)]) < 90, "a whole /64"
        assert await count_answered(["2001:db8:1:3::1"]) == 1


async def test_a_proxy_in_front_may_name_its_client_with_a_port_or_not_at_all(
    balancer: Balancer, echo: EchoProcess
) -> None:
    async with balancer(echo.port, trusted=("127.0.0.0/8",)) as fan:
        for forwarded, address in (
            ("198.51.100.7:51234", "198.51.100.7"), ("1.1.1.1, 198.51.100.7:443", "198.51.100.7"),
            ("[2001:db8::1]:443", "2001:db8::1"), ("2001:db8::1", "2001:db8::1"),
            ("unknown", "unknown"), ("1.1.1.1, _hidden", "unknown"),
        ):  # fmt: skip
            answer = await fan.get("/orders", headers={"x-forwarded-for": forwarded})
            assert answer.json()["x-forwarded-for"] == address, forwarded


async def test_a_browser_gets_a_page_for_every_error_of_the_balancer(balancer: Balancer, echo: EchoProcess) -> None:
    person = {"accept": "text/html,application/xhtml+xml,*/*;q=0.8"}

    def is_page(answer: httpx.Response, status: int) -> bool:
        return (answer.status_code, answer.headers["content-type"]) == (status, "text/html; charset=utf-8")

    async with balancer(echo.port, limits=LOW_LIMITS) as fan:
        nowhere = await fan.get("/nowhere", headers=person)
        assert is_page(nowhere, 404)
        assert "script-src 'sha256-" in nowhere.headers["content-security-policy"]
        assert problem(await fan.get("/nowhere")) == (404, "not-found")
        answers = await asyncio.gather(*(fan.get("/e/show", headers=person) for _ in range(90)))
        busy = [answer for answer in answers if answer.status_code == 429]
        assert busy
        assert all(is_page(answer, 429) and answer.headers["retry-after"] == "1" for answer in busy)
        assert "tries again by itself" in busy[0].text
    async with balancer(free_port()) as fan:
        page, program = await asyncio.gather(fan.get("/e/show", headers=person), fan.get("/e/show"))
        assert is_page(page, 503)
        assert page.headers["retry-after"] == "1"
        assert program.headers["content-type"] == "application/problem+json"


async def test_streams_are_not_buffered_and_one_too_many_is_told_when_to_reconnect(
    balancer: Balancer, echo: EchoProcess
) -> None:
    async with balancer(echo.port, limits=LOW_LIMITS) as fan:
        streams = [fan.stream("GET", STREAM, headers={"authorization": "Bearer a.b.c"}) for _ in range(2)]
        lines = [(await stream.__aenter__()).aiter_lines() for stream in streams]
        assert [await anext(line) for line in lines] == ["data: first"] * 2, (
            "the first frame arrives while the stream is open"
        )
        refused = await fan.get(STREAM, headers={"authorization": "Bearer a.b.c"})
        event = 'retry: 10000\nevent: turned_away\ndata: {"why":"full"}\n\n'
        assert (refused.status_code, refused.text) == (200, event), "an EventSource reconnects after that"
        assert refused.headers["content-type"].startswith("text/event-stream")
        echo.more.set()
        assert [[text async for text in line if text] for line in lines] == [["data: second"]] * 2
        for stream in streams:
            await stream.__aexit__(None, None, None)

        async def is_accepted() -> bool:
            return "first" in (await fan.get(STREAM, headers={"authorization": "Bearer a.b.c"})).text

        await wait_until(is_accepted)


async def test_a_body_over_the_limit_is_refused_with_a_problem_document(balancer: Balancer, echo: EchoProcess) -> None:
    async with balancer(echo.port) as fan:
        assert problem(await fan.post("/orders", content=b"x" * 300_000)) == (413, "body-too-large")
        assert echo.received == []
        answer = await fan.post("/orders", content=b"x" * 60_000)
        assert answer.status_code == 200


async def test_an_oversized_head_reaches_no_process(balancer: Balancer, echo: EchoProcess) -> None:
    async with balancer(echo.port) as fan:
        assert (await fan.get("/orders", headers={"x-filler": "f" * 100_000})).status_code in (400, 431)
        many = [(f"x-filler-{n}", "f" * 400) for n in range(200)]
        assert (await fan.get("/orders", headers=many)).status_code in (400, 431)
        assert echo.received == []


UNREADABLE = {
    "random bytes": b"\x16\x03\x01\x02\x00\x01\r\n\r\n",
    "CONNECT": b"CONNECT a:80 HTTP/1.1\r\nHost: a\r\n\r\n",
    "no path": b"GET HTTP/1.1\r\nHost: a\r\n\r\n",
    "an unknown coding": b"POST /orders HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
}


@pytest.mark.parametrize("request_bytes", UNREADABLE.values(), ids=UNREADABLE)
async def test_what_cannot_be_read_is_refused_and_not_a_server_error(
    start_balancer: StartBalancer, echo: EchoProcess, kind: Kind, request_bytes: bytes
) -> None:
    url = start_balancer(plan_for_ports(echo.port))
    reader, writer = await asyncio.open_connection(HOST, int(url.rpartition(":")[2]))
    writer.write(request_bytes)
    answer = await reader.readuntil(b"\r\n\r\n")
    writer.transport.abort()
    assert answer[:10] == b"HTTP/1.1 4", answer
    if kind == "nginx":
        assert b"\r\nContent-Type: application/problem+json\r\n" in answer
    assert echo.received == []


async def test_a_client_that_asks_whether_to_continue_gets_the_whole_answer(kind: Kind, tmp_path: Path) -> None:
    """HAProxy loses the body of an answer whose head came together with `100 Continue`."""
    async with on_our_protocol(EchoProcess().app) as (port, _):
        with running_balancer(kind, plan_for_ports(port), tmp_path) as url:
            reader, writer = await asyncio.open_connection(HOST, int(url.rpartition(":")[2]))
            writer.write(b"PUT /orders HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 3\r\n\r\nabc")
            async with asyncio.timeout(5):
                assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 100 ")
                head = (await reader.readuntil(b"\r\n\r\n")).lower()
                length = next(line for line in head.split(b"\r\n") if line.startswith(b"content-length: "))
                assert await reader.readexactly(int(length[16:]))
            writer.transport.abort()


async def closing_server(received: list[str]) -> tuple[asyncio.Server, int]:
    """A server that closes the connection of each request without an answer, and notes the request in `received`."""

    async def close_at_once(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        if b"/readyz" in head:
            writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\nconnection: close\r\n\r\n")
        else:
            received.append(head.split(b" HTTP")[0].decode())
        writer.close()

    server = await asyncio.start_server(close_at_once, HOST, 0)
    return server, server.sockets[0].getsockname()[1]


async def test_only_idempotent_requests_are_retried_at_another_process(
    balancer: Balancer, balancers: ExitStack, echo: EchoProcess
) -> None:
    """One process fails every request after receiving it. The balancer repeats a request only if twice has the effect
    of once; otherwise the fan gets 503 `no-answer`.
    """
    failed: list[str] = []
    failing, failing_port = await closing_server(failed)
    key = {"idempotency-key": "a" * 22}
    async with failing, balancer(failing_port, echo.port) as fan:
        answers = []
        while not failed:
            answers.append(await fan.post("/orders", headers={"connection": "close"}))
            assert len(answers) < 50
        assert problem(answers[-1]) == (503, "no-answer")
        assert answers[-1].headers["retry-after"] == "1"
        assert len(echo.received) == len(answers) - 1, "the failed request reached no other process"
        failed.clear()
        for method, path, headers in (
            ("GET", "/orders", {}), ("DELETE", "/events/show/queue", {}), ("POST", "/orders", key),
            ("POST", "/events/show/reservations", key), ("POST", "/events/show/queue/pass", {}),
            ("POST", "/webhooks/sandbox", {}),
        ):  # fmt: skip
            for _ in range(4):
                assert (await fan.request(method, path, headers=headers)).status_code == 200, (method, path)
        assert failed, "the failing process received some of them"
        balancers.close()


async def test_a_request_that_cannot_connect_goes_to_another_process(balancer: Balancer, echo: EchoProcess) -> None:
    async with balancer(free_port(), echo.port) as fan:
        assert [(await fan.post("/orders")).status_code for _ in range(8)] == [200] * 8


async def test_services_call_each_other_through_the_internal_listener(
    start_balancer: StartBalancer, echo: EchoProcess
) -> None:
    plan = plan_for_ports(echo.port)
    start_balancer(plan)
    async with browser(f"http://{plan.internal['queue']}") as service:
        signed = await service.post("/internal/joins", headers={"onsale-signature": "x"}, content=b"x" * 1_000_000)
        assert signed.json()["onsale-signature"] == "x"
        assert echo.received == ["POST /internal/joins"]


async def test_with_a_certificate_http_is_redirected_to_https_and_http_2_is_offered(
    start_balancer: StartBalancer, echo: EchoProcess, tmp_path: Path
) -> None:
    certificate = self_signed(tmp_path)
    plan = plan_for_ports(echo.port)
    plan = Plan(**{**vars(plan), "certificate": str(certificate)})
    url = start_balancer(plan)
    tls_context = ssl.create_default_context(cafile=str(certificate))
    async with browser(url, verify=tls_context) as fan:
        redirected = await fan.get("/orders?page=2")
        secure_url = f"https://{HOST}:{plan.listen_tls.rpartition(':')[2]}/orders?page=2"
        assert (redirected.status_code, redirected.headers["location"]) == (308, secure_url)
        secure = await fan.get(secure_url)
        assert secure.json()["x-forwarded-proto"] == "https"
        assert secure.headers["strict-transport-security"] == "max-age=31536000"
        assert (await fan.get(secure_url.replace("/orders", "/nothing"))).headers["strict-transport-security"]
    tls_context.set_alpn_protocols(["h2", "http/1.1"])
    host, _, port = plan.listen_tls.rpartition(":")
    with socket.create_connection((host, int(port))) as raw, tls_context.wrap_socket(raw, server_hostname=HOST) as tls:
        assert tls.selected_alpn_protocol() == "h2"


async def test_a_request_waits_at_haproxy_while_the_only_process_restarts(balancer: Balancer, kind: Kind) -> None:
    """nginx cannot wait: it answers 503 `no-answer` at once."""
    port = free_port()
    async with balancer(port) as fan:
        request = asyncio.create_task(fan.post("/orders", headers={"idempotency-key": "a" * 22}))
        if kind == "nginx":
            assert problem(await request) == (503, "no-answer")
            assert problem(await fan.post("/orders")) == (503, "no-answer")
            return
        await asyncio.wait({request}, timeout=2)  # by then the health check has failed
        assert not request.done()
        async with serving(EchoProcess().app, port=port):
            assert (await request).status_code == 200
