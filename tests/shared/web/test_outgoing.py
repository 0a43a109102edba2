"""Calls to external servers: a failed call is `NotReached`, or `ResponseLost` if the server may have the request.

The HTTP/1.1 client: whole answers over reused connections, and `ConnectionLost` when one breaks.
"""

import asyncio
import ssl
import struct
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from socket import SO_LINGER, SOL_SOCKET

import certifi
import pytest

from onsale.server.serve import KEEP_ALIVE_S
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
from tests.support.running.certificates import self_signed

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
