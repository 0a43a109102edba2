"""Both balancers, for real, in front of processes that say what reached them: what passes, and as whom."""

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
from onsale.local.ports import free_port
from tests.support.running.balancers import HOST, Kind, balancing, in_front_of, parameters
from tests.support.running.certificates import self_signed
from tests.support.running.serving import serving
from tests.support.running.suite import no_cookies, problem
from tests.support.wait import wait_until

pytestmark = pytest.mark.parametrize("kind", parameters())
STRICT = Limits(
    address_requests_per_s=1, address_burst=30, holder_requests_per_s=1, holder_burst=5,
    address_streams=4, holder_streams=2,
)  # fmt: skip
METHODS = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"]
STREAM = "/events/show/sections/updates"
Start = Callable[..., str]


class Echo:
    """A process of every service. `seen` are the requests that reached it; `more` lets its streams go on."""

    def __init__(self) -> None:
        self.seen: list[str] = []
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
        self.seen.append(f"{request.method} {request.url.path}")
        await request.body()
        return JSONResponse(dict(request.headers))

    async def _stream(self, request: Request) -> Response:
        async def frames() -> AsyncIterator[bytes]:
            yield b"data: first\n\n"
            await self.more.wait()
            yield b"data: second\n\n"

        return StreamingResponse(frames(), media_type="text/event-stream")


@pytest.fixture
async def echo() -> AsyncIterator[tuple[Echo, int]]:
    process = Echo()
    async with serving(process.app) as port:
        yield process, port


@pytest.fixture
def running() -> Iterator[ExitStack]:
    """Closing it stops the balancers: before the processes they ask for their health."""
    with ExitStack() as stack:
        yield stack


@pytest.fixture
def start(kind: Kind, running: ExitStack, tmp_path: Path) -> Callable[[Plan], str]:
    return lambda plan: running.enter_context(balancing(kind, plan, tmp_path))


def browser(url: str, **more: Any) -> httpx.AsyncClient:
    return httpx.AsyncClient(base_url=url, timeout=20, cookies=no_cookies(), trust_env=False, **more)


async def test_what_is_not_public_is_not_there(start: Start, echo: tuple[Echo, int]) -> None:
    process, port = echo
    outsider = {"x-forwarded-for": "203.0.113.9"}
    async with browser(start(in_front_of(port, trusted=("127.0.0.0/8",)))) as fan:
        for path in ("/internal/joins", "/metrics", "/queue/metrics", "/readyz", "/docs", "/nothing"):
            assert problem(await fan.get(path)) == (404, "not-found"), path
        for path in ("/admin/events/show/room", "/admin/inventory/events/show", "/admin/orders"):
            assert problem(await fan.get(path, headers=outsider)) == (404, "not-found"), path
        assert process.seen == []
        assert (await fan.get("/admin/orders")).status_code == 200, "operators come from inside"


async def test_a_client_cannot_say_whose_address_it_has(start: Start, echo: tuple[Echo, int]) -> None:
    forged = {"x-forwarded-for": "10.1.2.3, 198.51.100.7", "x-forwarded-proto": "https", "x-request-id": "forged-name"}
    async with browser(start(in_front_of(echo[1]))) as fan:
        heard = (await fan.get("/orders", headers=forged)).json()
    assert (heard["x-forwarded-for"], heard["x-forwarded-proto"]) == (HOST, "http")
    assert heard["x-request-id"] != "forged-name"
    assert len(heard["x-request-id"]) >= 32


async def test_a_trusted_proxy_says_it_and_a_fan_behind_it_cannot(start: Start, echo: tuple[Echo, int]) -> None:
    async with browser(start(in_front_of(echo[1], trusted=("127.0.0.0/8", "10.0.0.0/8")))) as fan:

        async def heard(told: str) -> tuple[str, str]:
            answer = await fan.get("/orders", headers={"x-forwarded-for": told, "x-forwarded-proto": "https"})
            return answer.json()["x-forwarded-for"], answer.json()["x-forwarded-proto"]

        assert await heard("198.51.100.7") == ("198.51.100.7", "https")
        assert await heard("1.1.1.1, 198.51.100.7") == ("198.51.100.7", "https"), "what stands left of it is hearsay"
        assert await heard("1.1.1.1, 198.51.100.7, 10.9.9.9") == ("198.51.100.7", "https"), "two proxies of ours"


async def test_an_address_and_a_fan_ask_so_often_and_no_more(start: Start, echo: tuple[Echo, int]) -> None:
    """A fan is known by the token, in a header or a cookie; another fan of the same address is not hurt."""
    plan = in_front_of(echo[1], limits=STRICT, trusted=("127.0.0.0/8",))
    async with browser(start(plan)) as fan:

        async def ask(address: str, **headers: str) -> httpx.Response:
            return await fan.get("/events/show/queue/status", headers={"x-forwarded-for": address, **headers})

        async def passed(n: int, address: str, **headers: str) -> int:
            """How many of `n` at once."""
            answers = await asyncio.gather(*(ask(address, **headers) for _ in range(n)))
            for refused in (answer for answer in answers if answer.status_code != 200):
                assert problem(refused) == (429, "too-many-requests")
                assert refused.headers["retry-after"] == "1"
            return sum(answer.status_code == 200 for answer in answers)

        school = "198.51.100.1"
        assert 5 <= await passed(25, school, authorization="Bearer aaaa.bbbb.first-one") < 25
        assert await passed(3, school, cookie="x=1; onsale_queue_show=aaaa.bbbb.second-one; y=2") == 3
        assert 5 <= await passed(40, "198.51.100.9", cookie="onsale_queue_show=aaaa.bbbb.third-one; y=2") < 40
        crowd = await asyncio.gather(*(ask("198.51.100.2", authorization=f"Bearer a.b.fan-{n}") for n in range(90)))
        assert 30 <= sum(answer.status_code == 200 for answer in crowd) < 90, "the address has its own limit"
        network = await asyncio.gather(*(ask(f"2001:db8:1:2::{n:x}") for n in range(1, 91)))
        assert 30 <= sum(answer.status_code == 200 for answer in network) < 90, "an IPv6 customer has a whole /64"
        assert await passed(1, "2001:db8:1:3::1") == 1


async def test_a_person_is_shown_a_page_whatever_the_balancer_says(start: Start, echo: tuple[Echo, int]) -> None:
    person = {"accept": "text/html,application/xhtml+xml,*/*;q=0.8"}

    def is_page(answer: httpx.Response, status: int) -> bool:
        return (answer.status_code, answer.headers["content-type"]) == (status, "text/html; charset=utf-8")

    async with browser(start(in_front_of(echo[1], limits=STRICT))) as fan:
        nowhere = await fan.get("/nowhere", headers=person)
        assert is_page(nowhere, 404)
        assert "script-src 'sha256-" in nowhere.headers["content-security-policy"]
        assert problem(await fan.get("/nowhere")) == (404, "not-found")
        crowd = await asyncio.gather(*(fan.get("/e/show", headers=person) for _ in range(90)))
        busy = [answer for answer in crowd if answer.status_code == 429]
        assert busy
        assert all(is_page(answer, 429) and answer.headers["retry-after"] == "1" for answer in busy)
        assert "tries again by itself" in busy[0].text
    async with browser(start(in_front_of(free_port()))) as fan:
        alone, program = await asyncio.gather(fan.get("/e/show", headers=person), fan.get("/e/show"))
        assert is_page(alone, 503)
        assert alone.headers["retry-after"] == "1"
        assert program.headers["content-type"] == "application/problem+json"


async def test_streams_pass_unbuffered_and_who_holds_too_many_is_told_when_to_come_back(
    start: Start, echo: tuple[Echo, int]
) -> None:
    process, port = echo
    async with browser(start(in_front_of(port, limits=STRICT))) as fan:
        held = [fan.stream("GET", STREAM, headers={"authorization": "Bearer a.b.c"}) for _ in range(2)]
        lines = [(await one.__aenter__()).aiter_lines() for one in held]
        assert [await anext(line) for line in lines] == ["data: first"] * 2, "before the stream goes on"
        full = await fan.get(STREAM, headers={"authorization": "Bearer a.b.c"})
        said = 'retry: 10000\nevent: turned_away\ndata: {"why":"full"}\n\n'
        assert (full.status_code, full.text) == (200, said), "an EventSource comes back after that"
        assert full.headers["content-type"].startswith("text/event-stream")
        process.more.set()
        assert [[text async for text in line if text] for line in lines] == [["data: second"]] * 2
        for one in held:
            await one.__aexit__(None, None, None)

        async def let_in() -> bool:
            return "first" in (await fan.get(STREAM, headers={"authorization": "Bearer a.b.c"})).text

        await wait_until(let_in)


async def test_too_large_a_body_and_nobody_there_are_problem_documents(start: Start, echo: tuple[Echo, int]) -> None:
    process, port = echo
    async with browser(start(in_front_of(port))) as fan:
        assert problem(await fan.post("/orders", content=b"x" * 300_000)) == (413, "body-too-large")
        assert process.seen == []
        heard = await fan.post("/orders", content=b"x" * 60_000)
        assert heard.status_code == 200


async def test_a_head_larger_than_anybody_needs_reaches_no_process(start: Start, echo: tuple[Echo, int]) -> None:
    process, port = echo
    async with browser(start(in_front_of(port))) as fan:
        assert (await fan.get("/orders", headers={"x-filler": "f" * 100_000})).status_code in (400, 431)
        many = [(f"x-filler-{n}", "f" * 400) for n in range(200)]
        assert (await fan.get("/orders", headers=many)).status_code in (400, 431)
        assert process.seen == []


async def cutting(seen: list[str]) -> tuple[asyncio.Server, int]:
    """A process that dies with the request in its hands."""

    async def cut(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        if b"/readyz" in head:
            writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\nconnection: close\r\n\r\n")
        else:
            seen.append(head.split(b" HTTP")[0].decode())
        writer.close()

    server = await asyncio.start_server(cut, HOST, 0)
    return server, server.sockets[0].getsockname()[1]


async def test_what_may_be_sent_twice_goes_to_another_process_and_nothing_else_does(
    start: Start, running: ExitStack, echo: tuple[Echo, int]
) -> None:
    """A process dies with every request it is given. What it may have done is not done again by the balancer unless
    that is the same as once; then the fan is told so.
    """
    process, port = echo
    lost: list[str] = []
    dying, dying_port = await cutting(lost)
    key = {"idempotency-key": "a" * 22}
    async with dying, browser(start(in_front_of(dying_port, port))) as fan:
        told = []
        while not lost:
            told.append(await fan.post("/orders", headers={"connection": "close"}))
            assert len(told) < 50
        assert problem(told[-1]) == (503, "no-answer")
        assert told[-1].headers["retry-after"] == "1"
        assert len(process.seen) == len(told) - 1, "it reached nobody else"
        lost.clear()
        for method, path, headers in (
            ("GET", "/orders", {}), ("DELETE", "/events/show/queue", {}), ("POST", "/orders", key),
            ("POST", "/events/show/reservations", key), ("POST", "/events/show/queue/pass", {}),
            ("POST", "/webhooks/sandbox", {}),
        ):  # fmt: skip
            for _ in range(4):
                assert (await fan.request(method, path, headers=headers)).status_code == 200, (method, path)
        assert lost, "it was asked now and then"
        running.close()


async def test_a_process_that_is_not_there_costs_nothing(start: Start, echo: tuple[Echo, int]) -> None:
    """What could not be sent goes elsewhere, whatever it is; with nobody left the answer is a problem document."""
    async with browser(start(in_front_of(free_port(), echo[1]))) as fan:
        assert [(await fan.post("/orders")).status_code for _ in range(8)] == [200] * 8


async def test_neighbours_ask_each_other_through_a_door_of_their_own(start: Start, echo: tuple[Echo, int]) -> None:
    plan = in_front_of(echo[1])
    start(plan)
    async with browser(f"http://{plan.internal['queue']}") as neighbour:
        signed = await neighbour.post("/internal/joins", headers={"onsale-signature": "x"}, content=b"x" * 1_000_000)
        assert signed.json()["onsale-signature"] == "x"
        assert echo[0].seen == ["POST /internal/joins"]


async def test_with_a_certificate_browsers_speak_http_2_over_tls(
    start: Start, echo: tuple[Echo, int], tmp_path: Path
) -> None:
    certificate = self_signed(tmp_path)
    plan = in_front_of(echo[1])
    plan = Plan(**{**vars(plan), "certificate": str(certificate)})
    url = start(plan)
    trusting = ssl.create_default_context(cafile=str(certificate))
    async with browser(url, verify=trusting) as fan:
        moved = await fan.get("/orders?page=2")
        there = f"https://{HOST}:{plan.listen_tls.rpartition(':')[2]}/orders?page=2"
        assert (moved.status_code, moved.headers["location"]) == (308, there)
        safe = await fan.get(there)
        assert safe.json()["x-forwarded-proto"] == "https"
        assert safe.headers["strict-transport-security"] == "max-age=31536000"
        assert (await fan.get(there.replace("/orders", "/nothing"))).headers["strict-transport-security"]
    trusting.set_alpn_protocols(["h2", "http/1.1"])
    host, _, port = plan.listen_tls.rpartition(":")
    with socket.create_connection((host, int(port))) as raw, trusting.wrap_socket(raw, server_hostname=HOST) as spoken:
        assert spoken.selected_alpn_protocol() == "h2"


async def test_a_request_waits_at_haproxy_while_the_only_process_restarts(start: Start, kind: Kind) -> None:
    """nginx cannot wait: it says at once that no answer came, and when to ask again."""
    port = free_port()
    async with browser(start(in_front_of(port))) as fan:
        asking = asyncio.create_task(fan.post("/orders", headers={"idempotency-key": "a" * 22}))
        if kind == "nginx":
            assert problem(await asking) == (503, "no-answer")
            assert problem(await fan.post("/orders")) == (503, "no-answer")
            return
        await asyncio.wait({asking}, timeout=2)  # by then it has been found to be away
        assert not asking.done()
        async with serving(Echo().app, port=port):
            assert (await asking).status_code == 200
