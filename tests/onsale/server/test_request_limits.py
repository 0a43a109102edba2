"""Limits on requests: invalid, oversized and incomplete ones are refused and their connections closed; others are
answered meanwhile.
"""

import asyncio
import contextlib
import os
import resource
import sys
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any, NamedTuple

import orjson
import pytest
from starlette.types import Receive, Scope, Send

from onsale.local.ports import HOST, free_port
from onsale.server import request_limits, serve
from onsale.server.one_port import Listener
from shared.web.answers import Answer
from tests.support.running.serving import whole_body
from tests.support.wait import wait_until

REQUEST = b"GET /x HTTP/1.1\r\nHost: a\r\n\r\n"
LIVENESS_REQUEST = REQUEST.replace(b"/x", b"/livez")
HEADER_LINE = b"X-Filler: " + b"f" * 88 + b"\r\n"


async def echo(scope: Scope, receive: Receive, send: Send) -> None:
    """Answers the path, the number of header lines, the last one's value and the length of the body."""
    body, headers = await whole_body(receive), scope["headers"]
    received = {"path": scope["path"], "lines": len(headers), "body": len(body)}
    received["last"] = headers[-1][1].decode() if headers else None
    await Answer(200, orjson.dumps(received))(scope, receive, send)


@pytest.fixture
async def port() -> AsyncIterator[int]:
    listener = Listener(echo, HOST, free_port())
    async with serve.running({}, [listener], {}):
        yield listener.port


class Response(NamedTuple):
    status: int
    head: bytes
    body: Any
    closed: bool


_open: list[asyncio.StreamWriter] = []


async def open_connection(port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """A connection that is closed after the test."""
    reader, writer = await asyncio.open_connection(HOST, port)
    _open.append(writer)
    return reader, writer


@pytest.fixture(autouse=True)
async def connections_close_afterwards() -> AsyncIterator[None]:
    yield
    while _open:
        writer = _open.pop()
        writer.transport.abort()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()


async def send(port: int, *parts: bytes, closed_within_s: float = 5) -> Response:
    """The first response to these bytes, and whether the server closed the connection after it."""
    reader, writer = await open_connection(port)
    for part in parts:
        writer.write(part)
        try:
            async with asyncio.timeout(0.5):
                await writer.drain()
        except (ConnectionError, TimeoutError):
            break
    return await read(reader, closed_within_s)


async def read(reader: asyncio.StreamReader, closed_within_s: float = 5) -> Response:
    async with asyncio.timeout(5):
        head = await reader.readuntil(b"\r\n\r\n")
    fields = dict(line.lower().split(b": ", 1) for line in head.split(b"\r\n")[1:-2])
    body = orjson.loads(await reader.readexactly(int(fields[b"content-length"])))
    try:
        async with asyncio.timeout(closed_within_s):
            closed = not await reader.read(1)
    except TimeoutError:
        closed = False
    except ConnectionError:
        closed = True
    return Response(int(head.split()[1]), head.lower(), body, closed)


def assert_refused(response: Response, status: int, slug: str) -> None:
    assert (response.status, response.body["type"]) == (status, f"/problems/{slug}")
    assert b"connection: close" in response.head
    assert b"application/problem+json" in response.head
    assert response.closed


async def test_a_head_of_24_mb_is_refused_and_costs_no_memory(port: int):
    before_kb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    lines = b"GET /x HTTP/1.1\r\nHost: a\r\n" + HEADER_LINE * 240_000
    assert_refused(await send(port, lines), 431, "head-too-large")
    grown_mb = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before_kb) / 1024
    assert grown_mb < 24 * 3, "this process holds the request's bytes twice"


async def test_a_header_line_of_32_mb_delays_no_other_request(port: int):
    attack = asyncio.create_task(send(port, b"GET /x HTTP/1.1\r\nHost: a\r\nX-Long: ", *[b"l" * 262_144] * 128))
    longest_s, reader, writer = 0.0, *await open_connection(port)
    while not attack.done():
        started_s = time.perf_counter()
        writer.write(REQUEST)
        assert (await read(reader, 0)).status == 200
        longest_s = max(longest_s, time.perf_counter() - started_s)
    assert_refused(await attack, 431, "head-too-large")
    assert longest_s < 0.15


GET_X, POST_X = (verb + b" /x HTTP/1.1\r\nHost: a\r\n" for verb in (b"GET", b"POST"))
CHUNKED = POST_X + b"Transfer-Encoding: chunked\r\n\r\n"
UPGRADE = b"Connection: Upgrade\r\nUpgrade: h2c\r\n"
HANDSHAKE = (
    b"Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
    b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
)
REFUSED: dict[str, tuple[list[bytes], int, str]] = {
    "101 lines": ([GET_X + b"A: b\r\n" * 100 + b"\r\n"], 431, "head-too-large"),
    "20,000 lines": ([GET_X + b"A: b\r\n" * 19_999 + b"\r\n"], 431, "head-too-large"),
    "a long URL": ([b"GET /" + b"x" * 70_000 + b" HTTP/1.1\r\nHost: a\r\n\r\n"], 431, "head-too-large"),
    "a long trailer": ([CHUNKED + b"3\r\nabc\r\n0\r\nX: ", *[b"t" * 65_536] * 4], 431, "head-too-large"),
    "no host": ([b"GET /x HTTP/1.1\r\n\r\n"], 400, "malformed-request"),
    "two hosts": ([GET_X + b"Host: b\r\n\r\n"], 400, "malformed-request"),
    "two hosts in HTTP/1.0": ([b"GET /x HTTP/1.0\r\nHost: a\r\nHost: a\r\n\r\n"], 400, "malformed-request"),
    "HTTP/0.9": ([b"GET /x\r\n\r\n"], 400, "malformed-request"),
    "HTTP/0.9 with fields": ([b"POST /x\r\nHost: a\r\nContent-Length: 1\r\n\r\nb"], 400, "malformed-request"),
    "HTTP/2.0": ([b"GET /x HTTP/2.0\r\nHost: a\r\n\r\n"], 400, "malformed-request"),
    "two codings": ([POST_X + b"Transfer-Encoding: identity, chunked\r\n\r\n0\r\n\r\n"], 400, "malformed-request"),
    "a coding twice": ([POST_X + b"Transfer-Encoding: chunked\r\n" * 2 + b"\r\n0\r\n\r\n"], 400, "malformed-request"),
    "chunks in HTTP/1.0": ([CHUNKED.replace(b"1.1", b"1.0") + b"0\r\n\r\n"], 400, "malformed-request"),
    "an upgrade with a body": ([POST_X + UPGRADE + b"Content-Length: 3\r\n\r\nabc"], 400, "malformed-request"),
    "an upgrade with chunks": ([POST_X + UPGRADE + b"Transfer-Encoding: chunked\r\n\r\n"], 400, "malformed-request"),
    "no HTTP": ([b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"], 400, "malformed-request"),
    "a WebSocket handshake": ([GET_X + HANDSHAKE], 404, "not-found"),
}


@pytest.mark.parametrize(("parts", "status", "slug"), REFUSED.values(), ids=REFUSED)
async def test_an_invalid_or_oversized_request_is_refused(port: int, parts: list[bytes], status: int, slug: str):
    assert_refused(await send(port, *parts), status, slug)


async def test_a_refused_head_request_has_no_body(port: int):
    reader, writer = await open_connection(port)
    writer.write(b"HEAD /x\x91 HTTP/1.1\r\nHost: a\r\n\r\n")
    answer = await asyncio.wait_for(reader.read(), 5)
    assert answer.startswith(b"HTTP/1.1 400 ")
    assert answer.endswith(b"\r\n\r\n")
    writer.close()


@pytest.mark.parametrize("no_head", [b"no request", b"HEADER /x HTTP/1.1\r\nHost: a"])
async def test_what_follows_a_head_request_is_refused_with_a_body(port: int, no_head: bytes):
    reader, writer = await open_connection(port)
    writer.write(b"HEAD /x HTTP/1.1\r\nHost: a\r\n\r\n" + no_head + b"\r\n\r\n")
    async with asyncio.timeout(5):
        assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 200 ")
    assert_refused(await read(reader), 400, "malformed-request")


async def test_a_head_may_have_a_hundred_lines(port: int):
    assert (await send(port, GET_X + b"A: b\r\n" * 99 + b"\r\n", closed_within_s=0)).body["lines"] == 100


async def test_a_trailer_never_becomes_a_header(port: int):
    chunked = CHUNKED + b"3\r\nabc\r\n0\r\n"
    response = await send(port, chunked, b"Authorization: Bearer x\r\n\r\n", closed_within_s=0)
    assert response.body == {"path": "/x", "lines": 2, "last": "chunked", "body": 3}


async def test_white_space_around_a_value_is_no_part_of_it(port: int):
    """A proxy that passed it on would be refused: `onsale up` answered such a request 503."""
    assert (await send(port, GET_X + b"A: \t b c\t \r\n\r\n", closed_within_s=0)).body["last"] == "b c"


@pytest.mark.parametrize(
    ("request_with_body", "size"),
    [
        (POST_X + b"Content-Length: 1000000\r\n\r\n" + b"b" * 1_000_000, 1_000_000),
        (CHUNKED + b"1\r\nc\r\n" * 30_000 + b"0\r\n\r\n", 30_000),
    ],
    ids=["whole", "chunked"],
)
async def test_a_body_may_be_larger_than_a_head(port: int, request_with_body: bytes, size: int):
    assert (await send(port, request_with_body, closed_within_s=0)).body["body"] == size


async def test_many_pipelined_requests_are_all_answered(port: int):
    reader, writer = await open_connection(port)
    writer.write(REQUEST * 5_000)
    for _ in range(5_000):
        assert (await read(reader, 0)).status == 200


async def test_a_health_check_in_http_1_0_needs_no_host(port: int):
    assert (await send(port, b"GET /readyz HTTP/1.0\r\n\r\n")).status == 200


async def test_an_upgrade_to_http_2_is_answered_in_http_1(port: int):
    offer = b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AA\r\n\r\n"
    response = await send(port, b"GET /x HTTP/1.1\r\nHost: a\r\n" + offer)
    assert response.status == 200
    assert response.closed


BAD_AFTER_GOOD = {
    "a bad head": (b"GET /y HTTP/1.1\r\n\r\n", 3),
    "a bad body": (b"POST /y HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nabc\r\n", 3),
    "a bad head with much behind it": (b"GET y\r\n\r\n" + REQUEST * 20_000, 20),
}


@pytest.mark.parametrize(("bad", "good"), BAD_AFTER_GOOD.values(), ids=BAD_AFTER_GOOD)
async def test_valid_requests_are_answered_although_a_bad_one_follows_them(port: int, bad: bytes, good: int):
    """A connection that is closed while bytes of its client are unread would lose answers on their way."""
    reader, writer = await open_connection(port)
    writer.write(REQUEST * good + bad)
    for _ in range(good):
        assert (await read(reader, 0)).status == 200
    assert_refused(await read(reader), 400, "malformed-request")


@pytest.fixture
def short_deadlines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(request_limits, "CHECK_INTERVAL_S", 0.05)
    monkeypatch.setattr(request_limits, "HEAD_WITHIN_S", 0.3)
    monkeypatch.setattr(request_limits, "REQUEST_WITHIN_S", 0.6)


INCOMPLETE = {
    "nothing": b"",
    "empty lines": b"\r\n",
    "half a head": b"GET /x HTTP/1.1\r\nHost: a\r\nX-Slow",
    "half a body": b"POST /x HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\nhalf",
    "half a head behind a whole request": REQUEST + b"GET /x HTTP/1.1\r\nHo",
}


@pytest.mark.usefixtures("short_deadlines")
@pytest.mark.parametrize("incomplete", INCOMPLETE.values(), ids=INCOMPLETE)
async def test_a_connection_that_does_not_finish_a_request_is_closed(port: int, incomplete: bytes):
    reader, writer = await open_connection(port)
    writer.write(incomplete)
    if incomplete.startswith(REQUEST):
        assert (await read(reader, 0)).status == 200
    assert_refused(await read(reader), 408, "request-timeout")


@pytest.mark.usefixtures("short_deadlines")
async def test_a_header_line_now_and_then_does_not_keep_a_connection_open(port: int):
    reader, writer = await open_connection(port)
    writer.write(b"GET /x HTTP/1.1\r\nHost: a\r\n")
    answered = asyncio.create_task(read(reader))
    while not answered.done():
        writer.write(b"A: b\r\n")
        await asyncio.sleep(0.05)
    assert_refused(await answered, 408, "request-timeout")


@pytest.mark.usefixtures("short_deadlines")
async def test_a_connection_may_be_idle_after_a_request(port: int):
    reader, writer = await open_connection(port)
    writer.write(REQUEST)
    assert not (await read(reader, 1.0)).closed
    writer.write(REQUEST)
    assert (await read(reader, 0)).status == 200


@pytest.fixture
def use_up_descriptors(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Calling it uses up all file descriptors: each connection from then on is one too many."""

    def use_up() -> None:
        monkeypatch.setattr(request_limits, "descriptors_max", lambda: 0)
        monkeypatch.setattr(request_limits, "descriptors_spare", lambda: 0)

    return use_up


async def test_incomplete_requests_are_dropped_first_and_idle_connections_next(
    port: int, use_up_descriptors: Callable[[], None]
):
    connections = [await open_connection(port) for _ in range(2)]
    connections[0][1].write(b"GET /x HTTP/1.1\r\nHo")
    reader, writer = await open_connection(port)
    writer.write(REQUEST)
    assert (await read(reader, 0)).status == 200
    use_up_descriptors()
    for dropped, _ in connections:
        assert (await send(port, REQUEST, closed_within_s=0)).status == 200
        with contextlib.suppress(ConnectionError):
            assert not await dropped.read(1), "an incomplete request is dropped"
    assert (await send(port, REQUEST, closed_within_s=0)).status == 200, "and then an idle connection"


async def test_a_new_connection_is_refused_at_once_while_all_others_are_being_answered(
    use_up_descriptors: Callable[[], None], caplog: pytest.LogCaptureFixture
):
    request_began, request_may_end = asyncio.Event(), asyncio.Event()

    async def slow(scope: Scope, receive: Receive, send: Send) -> None:
        request_began.set()
        await request_may_end.wait()
        await Answer(200, b"{}")(scope, receive, send)

    listener = Listener(slow, HOST, free_port())
    async with serve.running({}, [listener], {}):
        reader, writer = await open_connection(listener.port)
        writer.write(REQUEST)
        await request_began.wait()
        use_up_descriptors()
        response = await send(listener.port, b"")
        assert_refused(response, 503, "overloaded")
        assert b"retry-after: 1" in response.head
        request_may_end.set()
        assert (await read(reader, 0)).status == 200
    records = [record for record in caplog.records if record.getMessage() == "descriptors.exhausted"]
    assert len(records) == 1
    assert "ulimit -n" in records[0].__dict__["data"]["what_binds"]


@pytest.fixture
async def confined_gateway(tmp_path: Path) -> AsyncIterator[tuple[int, Path]]:
    """The port and log of a gateway in a process with a hard limit of 256 descriptors."""
    port, log = free_port(), tmp_path / "log"

    def limit_descriptors() -> None:
        resource.setrlimit(resource.RLIMIT_NOFILE, (200, 256))

    with log.open("wb") as stderr:
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-P", "-m", "onsale", "serve", "gateway",
            env={**os.environ, "GATEWAY_PORT": str(port), "GATEWAY_LOG_REQUESTS": "false"},
            preexec_fn=limit_descriptors, stderr=stderr,
        )  # fmt: skip
    try:
        await wait_until(lambda: is_live(port), timeout_s=90)
        yield port, log
    finally:
        process.terminate()
        await process.wait()


async def is_live(port: int) -> bool:
    try:
        return (await send(port, LIVENESS_REQUEST, closed_within_s=0)).status == 200
    except OSError:
        return False


@pytest.mark.proof
async def test_with_few_descriptors_requests_are_answered_at_once_and_the_log_names_the_limit(
    confined_gateway: tuple[int, Path],
):
    port, log = confined_gateway
    connections = []
    for n in range(400):
        reader, writer = await open_connection(port)
        writer.write(b"GET /livez HTTP/1.1\r\nHo" if n % 2 else LIVENESS_REQUEST)
        connections.append((reader, writer))
        if n % 20 == 0:
            started_s = time.perf_counter()
            assert (await send(port, LIVENESS_REQUEST, closed_within_s=0)).status == 200
            assert time.perf_counter() - started_s < 2
    text = log.read_text()
    assert '"max":256' in text, "the soft limit was raised to the hard one"
    assert "descriptors.exhausted" in text
    assert "256 files and connections" in text
    for _, writer in connections:
        writer.transport.abort()
    assert await is_live(port)
