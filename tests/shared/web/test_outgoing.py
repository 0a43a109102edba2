"""Calls to external servers: a failed call is `NotReached`, or `ResponseLost` if the server may have the request.

The HTTP/1.1 client: whole answers over reused connections, and `ConnectionLost` when one breaks.

Calls between services of one process: what over HTTP happens between two, happens here as well.
"""

import asyncio
import ssl
import struct
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from socket import SO_LINGER, SOL_SOCKET

import certifi
import httpx
import pytest
from fastapi import FastAPI
from prometheus_client import REGISTRY
from pydantic import BaseModel

from onsale.server.serve import KEEP_ALIVE_S
from shared.contracts.fields import ServiceMessage
from shared.errors import problems
from shared.http import http1
from shared.http.http1 import IDLE_MAX_S, ConnectionLost, HttpClient
from shared.http.outgoing import (
    ExternalHttpClient,
    ExternalResponse,
    NoDnsResolver,
    NotReached,
    ResponseLost,
    ResponseTooLarge,
    external_http_client,
)
from shared.process.load import Load
from shared.process.settings import ServiceSettings
from shared.rpc import ServiceClient, answered_here
from shared.runtime.logging import request_fields
from shared.security.tokens import development_keys
from shared.web.app import create_service, internal
from shared.web.internal_api import InternalApi
from tests.support.running.serving import self_signed

Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
OK = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok"


@asynccontextmanager
async def http_server(serve: Serve, context: ssl.SSLContext | None = None) -> AsyncIterator[int]:
    """A server that runs `serve` on each connection; its port."""

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await serve(reader, writer)
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(handle, "127.0.0.1", 0, ssl=context)
    async with server:
        yield server.sockets[0].getsockname()[1]


def tls_context(folder: Path) -> ssl.SSLContext:
    """TLS of a server with a self-signed certificate for `localhost` and 127.0.0.1."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(self_signed(folder), folder / "site.key")
    return context


def answer_with(*parts: bytes, then: str = "ends", pause_s: float = 0) -> Serve:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            await reader.readuntil(b"\r\n\r\n")
            for part in parts:
                writer.write(part)
                await writer.drain()
                await asyncio.sleep(pause_s)
            if then == "resets":
                writer.get_extra_info("socket").setsockopt(SOL_SOCKET, SO_LINGER, struct.pack("ii", 1, 0))
            elif then == "hangs":
                await reader.read()
            if then != "stays":
                return

    return serve


async def send_request(
    client: ExternalHttpClient, port: int, *, timeout_s: float = 5, scheme: str = "http"
) -> ExternalResponse:
    url = f"{scheme}://127.0.0.1:{port}/charges?limit=1"
    return await client.request("POST", url, headers={"idempotency-key": "k"}, content=b"{}", timeout_s=timeout_s)


@pytest.mark.parametrize(
    ("serve", "timeout_s"),
    [
        (answer_with(), 5), (answer_with(then="resets"), 5), (answer_with(then="hangs"), 0.2),
        (answer_with(b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nhalf"), 5),
        (answer_with(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhalf"), 5),
        (answer_with(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nnumber\r\n"), 5),
        (answer_with(b"HTTP/1.1 two hundred\r\n\r\n"), 5), (answer_with(b"garbage\r\n\r\n"), 5),
        (answer_with(b"HTTP/1.1 200 OK\r\nx: " + b"y" * 100_000 + b"\r\n\r\n"), 5),
        (answer_with(b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\n", *[b"drip"] * 25, pause_s=0.05), 0.3),
    ],
    ids=[
        "closes", "resets", "silent", "half a body", "half a chunk", "no chunk", "no status", "no HTTP", "endless head",
        "drips",
    ],
)  # fmt: skip
async def test_a_call_that_the_server_may_have_received_is_a_lost_response(serve: Serve, timeout_s: float) -> None:
    async with http_server(serve) as port, external_http_client(connections_max=2) as client:
        began_s = time.monotonic()
        with pytest.raises(ResponseLost):
            await send_request(client, port, timeout_s=timeout_s)
        assert time.monotonic() - began_s < 3


async def test_a_call_that_cannot_have_reached_its_server_is_not_reached(tmp_path: Path) -> None:
    context = tls_context(tmp_path)
    async with external_http_client(connections_max=2) as client:
        async with http_server(answer_with(OK)) as closed_port:
            pass
        with pytest.raises(NotReached):
            await send_request(client, closed_port)
        async with http_server(answer_with(OK)) as plain_port:
            with pytest.raises(NotReached):
                await send_request(client, plain_port, scheme="https")
        async with http_server(answer_with(OK), context) as tls_port:
            with pytest.raises(NotReached, match="CERTIFICATE_VERIFY_FAILED"):
                await send_request(client, tls_port, scheme="https")
        for url in ("http://nobody.invalid/", "http:///x", "http://127.0.0.1:99999/"):
            with pytest.raises(NotReached):
                await client.request("GET", url, headers={}, timeout_s=0.3)


async def test_a_certificate_is_checked_against_the_intended_server_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    context = tls_context(tmp_path)
    monkeypatch.setattr(certifi, "where", lambda: str(tmp_path / "site.crt"))
    pinned_client = external_http_client(connections_max=2, keep_open=False, resolver=NoDnsResolver())
    async with http_server(answer_with(OK, then="stays"), context) as port, pinned_client as client:
        url = f"https://127.0.0.1:{port}/"
        answer = await client.request("GET", url, headers={}, timeout_s=5, server_name="localhost")
        assert (answer.status_code, answer.content) == (200, b"ok")
        with pytest.raises(NotReached, match="CERTIFICATE_VERIFY_FAILED"):
            await client.request("GET", url, headers={}, timeout_s=5, server_name="evil.example")
        with pytest.raises(NotReached, match="DNS"):
            await client.request("GET", f"https://localhost:{port}/", headers={}, timeout_s=5)


async def test_an_answer_that_is_too_large_is_cut_off_and_keeps_its_status() -> None:
    large = b"HTTP/1.1 201 Created\r\nconnection: close\r\n\r\n" + b"x" * 5000
    async with http_server(answer_with(large, then="hangs")) as port, external_http_client(connections_max=2) as client:
        with pytest.raises(ResponseTooLarge) as cut:
            await client.request("GET", f"http://127.0.0.1:{port}/", headers={}, timeout_s=5, answer_max_bytes=4000)
        assert cut.value.status_code == 201


async def test_calls_share_the_allowed_number_of_connections_and_keep_them_open() -> None:
    open_now, most, opened = 0, 0, 0

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal open_now, most, opened
        open_now, opened = open_now + 1, opened + 1
        most = max(most, open_now)
        try:
            await answer_with(OK, then="stays", pause_s=0.01)(reader, writer)
        finally:
            open_now -= 1

    async with http_server(serve) as port, external_http_client(connections_max=4) as client:
        responses = await asyncio.gather(*(send_request(client, port) for _ in range(40)))
        assert {answer.status_code for answer in responses} == {200}
        assert (most, opened) == (4, 4)


async def test_a_call_without_a_free_connection_in_time_is_not_reached() -> None:
    async with http_server(answer_with(then="hangs")) as port, external_http_client(connections_max=1) as client:
        first, second = await asyncio.gather(
            send_request(client, port, timeout_s=0.5), send_request(client, port, timeout_s=0.1), return_exceptions=True
        )
        assert (type(first), type(second)) == (ResponseLost, NotReached)


async def test_redirects_are_not_followed_and_cookies_are_not_stored() -> None:
    heads: list[bytes] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            heads.append(await reader.readuntil(b"\r\n\r\n{}"))
            writer.write(b"HTTP/1.1 307 Go\r\nlocation: /x\r\nset-cookie: a=b\r\ncontent-length: 0\r\n\r\n")

    async with http_server(serve) as port, external_http_client(connections_max=1) as client:
        for _ in range(2):
            assert (await send_request(client, port)).status_code == 307
    assert len(heads) == 2
    assert b"cookie" not in heads[1].lower()
    assert b"POST /charges?limit=1 HTTP/1.1\r\n" in heads[0]
    assert b"accept-encoding: identity\r\n" in heads[0].lower()


WHOLE = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nX-A: b\r\n\r\nhello"
CHUNKED = b"HTTP/1.1 201 Created\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhe\r\n3\r\nllo\r\n0\r\n\r\n"
LAST = b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok"
CUT = b"HTTP/1.1 200 OK\r\nContent-Length: 50\r\n\r\nhel"
GARBAGE = b"SMTP ready\r\n\r\n"


class Server:
    """Answers each request with the next of `answers`; an empty answer closes, None never answers."""

    def __init__(self, *answers: bytes | None) -> None:
        self.answers, self.connections = list(answers), 0
        self.requests: list[bytes] = []

    async def __call__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            while self.answers:
                head = await reader.readuntil(b"\r\n\r\n")
                length = next(int(line[16:]) for line in head.split(b"\r\n") if line.startswith(b"content-length: "))
                self.requests.append(head + await reader.readexactly(length))
                answer = self.answers.pop(0)
                if answer is None:
                    await reader.read()  # until the client leaves
                elif not answer or answer in (CUT, LAST):
                    writer.write(answer or b"")
                    await writer.drain()
                    return
                else:
                    writer.write(answer)
        except asyncio.IncompleteReadError:
            pass
        finally:
            writer.close()


async def post(*raw: bytes | None, times: int = 1, timeout: float = 5):
    server = Server(*raw)
    listening = await asyncio.start_server(server, "127.0.0.1", 0)
    port = listening.sockets[0].getsockname()[1]
    try:
        async with HttpClient(connections_max=2) as client:
            answers = [
                await client.post(
                    f"http://127.0.0.1:{port}/a?b=c", content=b"body", headers={"x": "y"}, timeout=timeout
                )
                for _ in range(times)
            ]
        return server, answers
    finally:
        listening.close()


async def test_a_connection_that_its_server_may_be_closing_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http1, "IDLE_MAX_S", 0)
    server, answers = await post(WHOLE, WHOLE, times=2)
    assert [answer.content for answer in answers] == [b"hello", b"hello"]
    assert server.connections == 2
    assert KEEP_ALIVE_S - IDLE_MAX_S >= 10, "so long may the client be busy and not know that it was closed"


async def test_whole_answers_arrive_over_one_connection() -> None:
    server, answers = await post(WHOLE, CHUNKED, WHOLE, times=3)
    assert [(a.status_code, a.content) for a in answers] == [(200, b"hello"), (201, b"hello"), (200, b"hello")]
    assert answers[0].headers["x-a"] == "b"
    assert server.connections == 1
    assert server.requests[0].startswith(b"POST /a?b=c HTTP/1.1\r\nhost: 127.0.0.1")
    assert server.requests[0].endswith(b"x: y\r\n\r\nbody")


async def test_a_closed_connection_is_replaced() -> None:
    server, answers = await post(LAST, LAST, times=2)
    assert [a.content for a in answers] == [b"ok", b"ok"]
    assert server.connections == 2


@pytest.mark.parametrize("answer", [CUT, b"", GARBAGE])
async def test_a_broken_answer_is_a_lost_connection(answer) -> None:
    with pytest.raises(ConnectionLost):
        await post(answer)


async def test_a_refused_connection_is_a_lost_connection() -> None:
    async with HttpClient() as client:
        with pytest.raises(ConnectionLost):
            await client.post("http://127.0.0.1:9/", content=b"", headers={}, timeout=5)


async def test_a_late_answer_is_a_timeout() -> None:
    with pytest.raises(TimeoutError):
        await post(None, timeout=0.05)


SETTINGS = ServiceSettings(log_requests=False)


class Asked(ServiceMessage):
    kind: str


class Answered(ServiceMessage):
    kind: str
    request_id: str = ""


class Stock:
    """The state of the service. Calls wait for `may_answer`; `ended` counts those that were answered."""

    def __init__(self) -> None:
        self.may_answer, self.begun, self.ended = asyncio.Event(), 0, 0
        self.may_answer.set()


SOLD_OUT = problems.SoldOut("None left.", available=(0, 1))  # one for all members of a batch
RAISED: dict[str, Callable[[], Exception]] = {
    "sold-out": lambda: SOLD_OUT,
    "overloaded": lambda: problems.Overloaded(retry_after_s=7),
    "away": lambda: ConnectionRefusedError("as a driver that cannot connect"),
    "bug": lambda: KeyError("the secret of a bug"),
}


def api() -> InternalApi:
    found = InternalApi()

    @found.operation("/ask", Asked)
    async def ask(state: Stock, question: Asked) -> Answered:
        state.begun += 1
        await state.may_answer.wait()
        state.ended += 1
        if question.kind in RAISED:
            failed = RAISED[question.kind]()
            raise failed
        return Answered(kind=question.kind, request_id=request_fields.get().get("request_id", ""))

    @found.operation("/heartbeats", Asked)
    async def heartbeats(state: Stock, question: Asked) -> Answered:
        return Answered(kind=question.kind)

    return found


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    yield


@pytest.fixture
def load() -> Load:
    return Load("inventory")


@pytest.fixture
def app(load: Load) -> FastAPI:
    created = create_service(
        "inventory", SETTINGS, title="test", lifespan=lifespan, internal_api=api(), load=load
    )  # fmt: skip
    created.state.deps = Stock()
    return created


@pytest.fixture
async def over_http(app: FastAPI) -> AsyncIterator[ServiceClient]:
    transport = httpx.ASGITransport(app=internal(app), raise_app_exceptions=False)
    async with httpx.AsyncClient(transport=transport) as http:
        yield ServiceClient(http, "http://inventory", SETTINGS.service_keys, name="inventory")


@pytest.fixture
def here(app: FastAPI) -> Iterator[ServiceClient]:
    """A client that finds nobody by HTTP."""

    def refuse(request: httpx.Request) -> httpx.Response:
        raise httpx.ConnectError("refused")

    http = httpx.AsyncClient(transport=httpx.MockTransport(refuse))
    with answered_here("inventory", app.state.own_process):
        yield ServiceClient(http, "http://nowhere", development_keys("other"), name="inventory")


async def asked(service: ServiceClient, kind: str, *, deadline_s: float = 2.0) -> Answered:
    return await service.call("/ask", Asked(kind=kind), Answered, deadline_s=deadline_s)


async def test_a_service_of_this_process_is_called_without_http(here: ServiceClient, app: FastAPI) -> None:
    assert (await asked(here, "stock")).kind == "stock"
    assert app.state.deps.ended == 1


async def test_a_service_that_has_ended_is_called_by_http_again(over_http: ServiceClient) -> None:
    async def ended(path: str, question: BaseModel) -> BaseModel:
        raise AssertionError(path)

    with answered_here("inventory", ended):
        pass
    assert (await asked(over_http, "stock")).kind == "stock"


@pytest.mark.parametrize("kind", RAISED)
async def test_a_problem_is_raised_as_it_is_over_http(
    kind: str, app: FastAPI, over_http: ServiceClient, load: Load, caplog: pytest.LogCaptureFixture
) -> None:
    """The log of a bug or an outage included."""
    raised, logged, counted, refused = [], [], [], []
    for own in (False, True):
        caplog.clear()
        before, refused_before = failures(), load._slots[-1].refused
        called = "inventory" if own else "nobody"
        with answered_here(called, app.state.own_process), pytest.raises(problems.Problem) as caught:
            await asked(over_http, kind)
        problem = caught.value
        raised.append((type(problem), problem.code, problem.detail, problem.retry_after_s, problem.members))
        logged.append([record.getMessage() for record in caplog.records if record.levelname == "ERROR"])
        counted.append(failures() - before)
        refused.append(load._slots[-1].refused - refused_before)
    assert raised[0] == raised[1]
    assert logged[0] == logged[1]
    assert counted == [kind != "sold-out"] * 2
    assert refused == [kind in ("overloaded", "away")] * 2
    assert "secret" not in str(raised)


def failures() -> float:
    labels = {"service": "inventory", "route": "/internal/ask", "method": "POST"}
    return REGISTRY.get_sample_value("onsale_http_failures_total", labels) or 0.0


async def test_one_problem_for_several_callers_is_several_objects(here: ServiceClient) -> None:
    found = await asyncio.gather(*(asked(here, "sold-out") for _ in range(2)), return_exceptions=True)
    assert found[0] is not found[1], "each caller raises its own, with its own traceback"


async def test_a_call_that_takes_too_long_is_unavailable_and_ends_on_its_own(here: ServiceClient, app: FastAPI) -> None:
    stock: Stock = app.state.deps
    stock.may_answer.clear()
    with pytest.raises(problems.Unavailable, match="in time"):
        await asked(here, "stock", deadline_s=0.05)
    assert (stock.begun, stock.ended) == (1, 0)
    stock.may_answer.set()
    await app.state.own_process.finish(5)
    assert stock.ended == 1, "as on a server whose client has closed the connection"


async def test_a_call_goes_on_though_its_caller_was_cancelled(here: ServiceClient, app: FastAPI) -> None:
    stock: Stock = app.state.deps
    stock.may_answer.clear()
    caller = asyncio.create_task(asked(here, "stock"))
    await asyncio.sleep(0.01)
    caller.cancel()
    await asyncio.gather(caller, return_exceptions=True)
    assert caller.cancelled()
    stock.may_answer.set()
    await app.state.own_process.finish(5)
    assert stock.ended == 1


async def test_no_more_calls_run_at_once_than_over_connections(here: ServiceClient, app: FastAPI) -> None:
    stock: Stock = app.state.deps
    stock.may_answer.clear()
    callers = [asyncio.create_task(asked(here, "stock")) for _ in range(50)]
    await asyncio.sleep(0.05)
    assert stock.begun == 32
    stock.may_answer.set()
    assert len(await asyncio.gather(*callers)) == 50


async def test_a_call_is_measured_and_logged_for_the_request_that_caused_it(here: ServiceClient) -> None:
    labels = {"service": "inventory", "route": "/internal/ask", "method": "POST", "status": "200"}
    before = REGISTRY.get_sample_value("onsale_http_request_seconds_count", labels) or 0.0
    token = request_fields.set({"request_id": "abcdefgh-1"})
    try:
        assert (await asked(here, "stock")).request_id == "abcdefgh-1"
    finally:
        request_fields.reset(token)
    assert REGISTRY.get_sample_value("onsale_http_request_seconds_count", labels) == before + 1
