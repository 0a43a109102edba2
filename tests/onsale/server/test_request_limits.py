"""What strangers send that is no request: each is refused and ended, while others are answered."""

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
from onsale.server.serve import Listener
from shared.web.fast_routes import answer, read_body
from tests.support.wait import wait_until

WHOLE = b"GET /x HTTP/1.1\r\nHost: a\r\n\r\n"
LIVE = WHOLE.replace(b"/x", b"/livez")
LINE = b"X-Filler: " + b"f" * 88 + b"\r\n"


async def echo(scope: Scope, receive: Receive, send: Send) -> None:
    """Says which lines it was shown and how long the body was."""
    body = await read_body(receive)
    told = {"path": scope["path"], "lines": len(scope["headers"]), "body": len(body)}
    await answer(send, 200, orjson.dumps(told))


@pytest.fixture
async def port() -> AsyncIterator[int]:
    listener = Listener(echo, HOST, free_port())
    async with serve.running({}, [listener], {}):
        yield listener.port


class Answer(NamedTuple):
    status: int
    head: bytes
    body: Any
    ended: bool


_open: list[asyncio.StreamWriter] = []


async def dial(port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """A connection, which the test need not close."""
    reader, writer = await asyncio.open_connection(HOST, port)
    _open.append(writer)
    return reader, writer


@pytest.fixture(autouse=True)
async def closed_afterwards() -> AsyncIterator[None]:
    yield
    while _open:
        writer = _open.pop()
        writer.transport.abort()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()


async def send(port: int, *parts: bytes, ended_within_s: float = 5) -> Answer:
    """The first answer to these bytes, and whether the connection was ended after it."""
    reader, writer = await dial(port)
    for part in parts:
        writer.write(part)
        try:
            async with asyncio.timeout(0.5):
                await writer.drain()
        except (ConnectionError, TimeoutError):
            break
    return await read(reader, ended_within_s)


async def read(reader: asyncio.StreamReader, ended_within_s: float = 5) -> Answer:
    async with asyncio.timeout(5):
        head = await reader.readuntil(b"\r\n\r\n")
    fields = dict(line.lower().split(b": ", 1) for line in head.split(b"\r\n")[1:-2])
    body = orjson.loads(await reader.readexactly(int(fields[b"content-length"])))
    try:
        async with asyncio.timeout(ended_within_s):
            ended = not await reader.read(1)
    except TimeoutError:
        ended = False
    except ConnectionError:
        ended = True
    return Answer(int(head.split()[1]), head.lower(), body, ended)


def refused(found: Answer, status: int, slug: str) -> None:
    assert (found.status, found.body["type"]) == (status, f"/problems/{slug}")
    assert b"connection: close" in found.head
    assert b"application/problem+json" in found.head
    assert found.ended


async def test_a_head_of_24_mb_is_refused_and_costs_no_memory(port: int):
    before_kb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    lines = b"GET /x HTTP/1.1\r\nHost: a\r\n" + LINE * 240_000
    refused(await send(port, lines), 431, "head-too-large")
    grown_mb = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before_kb) / 1024
    assert grown_mb < 24 * 3, "the attacker's own bytes stand here twice"


async def test_a_line_of_32_mb_holds_nobody_up(port: int):
    attack = asyncio.create_task(send(port, b"GET /x HTTP/1.1\r\nHost: a\r\nX-Long: ", *[b"l" * 262_144] * 128))
    longest_s, reader, writer = 0.0, *await dial(port)
    while not attack.done():
        started_s = time.perf_counter()
        writer.write(WHOLE)
        assert (await read(reader, 0)).status == 200
        longest_s = max(longest_s, time.perf_counter() - started_s)
    refused(await attack, 431, "head-too-large")
    assert longest_s < 0.15


@pytest.mark.parametrize("lines", [101, 20_000])
async def test_a_hundred_lines_are_enough(port: int, lines: int):
    head = b"GET /x HTTP/1.1\r\nHost: a\r\n"
    assert (await send(port, head + b"A: b\r\n" * 99 + b"\r\n", ended_within_s=0)).body["lines"] == 100
    refused(await send(port, head + b"A: b\r\n" * (lines - 1) + b"\r\n"), 431, "head-too-large")


async def test_a_long_address_and_a_long_trailer_are_part_of_the_head(port: int):
    refused(await send(port, b"GET /" + b"x" * 70_000 + b" HTTP/1.1\r\nHost: a\r\n\r\n"), 431, "head-too-large")
    chunked = b"POST /x HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\nX-Trailer: "
    refused(await send(port, chunked, *[b"t" * 65_536] * 4), 431, "head-too-large")


async def test_a_trailer_never_becomes_a_header(port: int):
    chunked = b"POST /x HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n"
    told = await send(port, chunked, b"Authorization: Bearer x\r\n\r\n", ended_within_s=0)
    assert told.body == {"path": "/x", "lines": 2, "body": 3}


async def test_a_body_larger_than_a_head_may_be_is_no_head(port: int):
    body = b"b" * 1_000_000
    told = await send(port, b"POST /x HTTP/1.1\r\nHost: a\r\nContent-Length: 1000000\r\n\r\n" + body, ended_within_s=0)
    assert told.body["body"] == 1_000_000
    chunks = b"".join(b"1\r\nc\r\n" for _ in range(30_000)) + b"0\r\n\r\n"
    head = b"POST /x HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"
    assert (await send(port, head + chunks, ended_within_s=0)).body["body"] == 30_000


async def test_many_requests_in_one_chunk_are_all_answered(port: int):
    reader, writer = await dial(port)
    writer.write(WHOLE * 5_000)
    for _ in range(5_000):
        assert (await read(reader, 0)).status == 200


@pytest.mark.parametrize(
    "lines",
    [
        b"GET /x HTTP/1.1\r\n",
        b"GET /x HTTP/1.1\r\nHost: a\r\nHost: b\r\n",
        b"GET /x HTTP/1.0\r\nHost: a\r\nHost: a\r\n",
    ],
)
async def test_a_request_without_a_host_or_with_two_is_refused(port: int, lines: bytes):
    refused(await send(port, lines + b"\r\n"), 400, "malformed-request")


async def test_a_balancers_check_by_http_1_0_needs_no_host(port: int):
    assert (await send(port, b"GET /readyz HTTP/1.0\r\n\r\n")).status == 200


async def test_what_is_no_http_is_refused_with_a_problem(port: int):
    refused(await send(port, b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"), 400, "malformed-request")


async def test_a_web_socket_handshake_finds_nothing_here(port: int):
    handshake = (
        b"GET /x HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
        b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
    )
    refused(await send(port, handshake), 404, "not-found")


async def test_an_offer_of_http_2_is_answered_in_http_1(port: int):
    offer = b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AA\r\n\r\n"
    told = await send(port, b"GET /x HTTP/1.1\r\nHost: a\r\n" + offer)
    assert told.status == 200
    assert told.ended


async def test_a_bad_request_behind_a_good_one_leaves_the_good_ones_answer_alone(port: int):
    told = await send(port, WHOLE + b"GET /y HTTP/1.1\r\n\r\n")
    assert (told.status, told.body["path"], told.ended) == (200, "/x", True)


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(request_limits, "CHECK_INTERVAL_S", 0.05)
    monkeypatch.setattr(request_limits, "HEAD_WITHIN_S", 0.3)
    monkeypatch.setattr(request_limits, "REQUEST_WITHIN_S", 0.6)


HALVES = {
    "nothing": b"",
    "empty lines": b"\r\n",
    "half a head": b"GET /x HTTP/1.1\r\nHost: a\r\nX-Slow",
    "half a body": b"POST /x HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\nhalf",
    "half a head behind a whole request": WHOLE + b"GET /x HTTP/1.1\r\nHo",
}


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("half", HALVES.values(), ids=HALVES)
async def test_whoever_does_not_finish_a_request_is_ended(port: int, half: bytes):
    reader, writer = await dial(port)
    writer.write(half)
    if half.startswith(WHOLE):
        assert (await read(reader, 0)).status == 200
    refused(await read(reader), 408, "request-timeout")


@pytest.mark.usefixtures("impatient")
async def test_drips_do_not_keep_a_connection(port: int):
    reader, writer = await dial(port)
    writer.write(b"GET /x HTTP/1.1\r\nHost: a\r\n")
    answered = asyncio.create_task(read(reader))
    while not answered.done():
        writer.write(b"A: b\r\n")
        await asyncio.sleep(0.05)
    refused(await answered, 408, "request-timeout")


@pytest.mark.usefixtures("impatient")
async def test_a_connection_that_has_asked_may_rest(port: int):
    reader, writer = await dial(port)
    writer.write(WHOLE)
    assert not (await read(reader, 1.0)).ended
    writer.write(WHOLE)
    assert (await read(reader, 0)).status == 200


@pytest.fixture
def fill_up(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """From then on every connection is one too many."""

    def fill() -> None:
        monkeypatch.setattr(request_limits, "descriptors_max", lambda: 0)
        monkeypatch.setattr(request_limits, "descriptors_spare", lambda: 0)

    return fill


async def test_half_requests_go_first_and_idle_connections_next(port: int, fill_up: Callable[[], None]):
    halves = [await dial(port) for _ in range(2)]
    halves[0][1].write(b"GET /x HTTP/1.1\r\nHo")
    reader, writer = await dial(port)
    writer.write(WHOLE)
    assert (await read(reader, 0)).status == 200
    fill_up()
    for half, _ in halves:
        assert (await send(port, WHOLE, ended_within_s=0)).status == 200
        with contextlib.suppress(ConnectionError):
            assert not await half.read(1), "a half request made room"
    assert (await send(port, WHOLE, ended_within_s=0)).status == 200, "and so did a connection that rested"


async def test_where_everybody_is_being_answered_a_newcomer_is_refused_at_once(
    fill_up: Callable[[], None], caplog: pytest.LogCaptureFixture
):
    began, goes_on = asyncio.Event(), asyncio.Event()

    async def slow(scope: Scope, receive: Receive, send: Send) -> None:
        began.set()
        await goes_on.wait()
        await answer(send, 200, b"{}")

    listener = Listener(slow, HOST, free_port())
    async with serve.running({}, [listener], {}):
        reader, writer = await dial(listener.port)
        writer.write(WHOLE)
        await began.wait()
        fill_up()
        told = await send(listener.port, b"")
        refused(told, 503, "overloaded")
        assert b"retry-after: 1" in told.head
        goes_on.set()
        assert (await read(reader, 0)).status == 200
    said = [record for record in caplog.records if record.getMessage() == "descriptors.exhausted"]
    assert len(said) == 1
    assert "ulimit -n" in said[0].__dict__["data"]["what_binds"]


@pytest.fixture
async def confined(tmp_path: Path) -> AsyncIterator[tuple[int, Path]]:
    """A gateway on its own with a hard limit of 256 descriptors, and its log."""
    port, log = free_port(), tmp_path / "log"

    def confine() -> None:
        resource.setrlimit(resource.RLIMIT_NOFILE, (200, 256))

    with log.open("wb") as said:
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-P", "-m", "onsale", "serve", "gateway",
            env={**os.environ, "GATEWAY_PORT": str(port), "GATEWAY_LOG_REQUESTS": "false"},
            preexec_fn=confine, stderr=said,
        )  # fmt: skip
    try:
        await wait_until(lambda: answers(port), timeout_s=30)
        yield port, log
    finally:
        process.terminate()
        await process.wait()


async def answers(port: int) -> bool:
    try:
        return (await send(port, LIVE, ended_within_s=0)).status == 200
    except OSError:
        return False


async def test_with_few_descriptors_a_call_is_answered_at_once_and_the_log_says_what_binds(confined: tuple[int, Path]):
    port, log = confined
    halves = []
    for n in range(400):
        reader, writer = await dial(port)
        writer.write(b"GET /livez HTTP/1.1\r\nHo" if n % 2 else LIVE)
        halves.append((reader, writer))
        if n % 20 == 0:
            started_s = time.perf_counter()
            assert (await send(port, LIVE, ended_within_s=0)).status == 200
            assert time.perf_counter() - started_s < 2
    said = log.read_text()
    assert '"max":256' in said, "the soft limit was raised to the hard one"
    assert "descriptors.exhausted" in said
    assert "256 files and connections" in said
    for _, writer in halves:
        writer.transport.abort()
    assert await answers(port)
