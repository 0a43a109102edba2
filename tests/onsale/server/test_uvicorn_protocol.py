"""Head and body of an answer are sent in one write. What needs no waiting is answered without a task."""

import asyncio
import socket
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from starlette.types import Receive, Scope, Send

from shared.web.answers import Answer, Later
from shared.web.fast_routes import Found
from shared.web.listener import Pending
from tests.support.running.serving import on_our_protocol
from tests.support.wait import wait_until

DATA_SEGMENTS_IN = 152  # of Linux' `tcp_info`


class Immediate:
    """Answers `/now` at once and everything else, slower, as a task; counts its tasks."""

    def __init__(self) -> None:
        self.tasks = 0

    def begin(self, scope: Scope, receive: Receive) -> Found:
        if scope["path"] == "/now":
            return Answer(200, b"now" + scope["query_string"], ((b"x-way", b"now"),))
        if scope["path"] == "/nothing":
            return Answer(int(scope["query_string"]))
        return self.later

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        raise AssertionError("our server asks begin()")

    async def later(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.tasks += 1
        await asyncio.sleep(0.01)
        await Answer(200, b"later" + scope["query_string"])(scope, receive, send)


class Waits(Immediate):
    """Answers after a while, as a service does."""

    class _Later(Pending):
        def __init__(self) -> None:
            """Needs no listener."""

        async def run(self, send: Send | None) -> Answer | None:
            await asyncio.sleep(0.001)
            return Answer(200, b"waited" * 100)

    def begin(self, scope: Scope, receive: Receive) -> Found:
        return self._Later()


@asynccontextmanager
async def connection(app: Immediate) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter, Any]]:
    """A connection to a server with this protocol, and the server's configuration."""
    async with on_our_protocol(app) as (port, servers):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        try:
            yield reader, writer, servers
        finally:
            writer.close()


def get(path: str, *lines: str, version: str = "1.1", method: str = "GET") -> bytes:
    return "\r\n".join([f"{method} {path} HTTP/{version}", "host: x", *lines, "", ""]).encode()


async def response(reader: asyncio.StreamReader) -> tuple[bytes, bytes]:
    head = await reader.readuntil(b"\r\n\r\n")
    length = next(int(line.split(b":")[1]) for line in head.split(b"\r\n") if line.startswith(b"content-length"))
    return head, await reader.readexactly(length)


async def test_what_needs_no_waiting_is_answered_without_a_task_on_the_same_connection():
    app = Immediate()
    async with connection(app) as (reader, writer, _):
        for n in range(3):
            writer.write(get(f"/now?{n}"))
            head, body = await response(reader)
            assert body == b"now%d" % n
            assert head.startswith(b"HTTP/1.1 200 OK\r\ndate: ")
            assert b"x-way: now\r\n" in head
            assert b"connection" not in head
        assert app.tasks == 0


@pytest.mark.parametrize("app", [Immediate(), Waits()])
async def test_head_and_body_are_one_write(app: Immediate):
    async with connection(app) as (reader, writer, _):
        for _ in range(10):
            writer.write(get("/now"))
            assert (await response(reader))[1] in (b"now", b"waited" * 100)
        info = writer.get_extra_info("socket").getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 160)
        assert struct.unpack_from("I", info, DATA_SEGMENTS_IN) == (10,), "each segment wakes the reader"


@pytest.mark.proof
async def test_pipelined_requests_are_answered_in_their_order():
    paths = ["/now?1", "/later?2", "/now?3", "/now?4", "/later?5", *[f"/now?{n}" for n in range(6, 600)]]
    app = Immediate()
    async with connection(app) as (reader, writer, _):
        writer.write(b"".join(get(path) for path in paths))
        numbers = [(await response(reader))[1].decode().strip("nowlater") for _ in paths]
    assert numbers == [path.partition("?")[2] for path in paths]


async def test_requests_of_a_client_that_has_gone_are_answered_to_nobody():
    ended: list[str] = []

    class Waiting(Immediate):
        """Answers only once its client has gone."""

        async def later(self, scope: Scope, receive: Receive, send: Send) -> None:
            self.tasks += 1
            while (await receive())["type"] != "http.disconnect":
                pass
            ended.append(scope["path"])
            await Answer(200)(scope, receive, send)

    app = Waiting()
    async with connection(app) as (_, writer, _):
        writer.write(get("/1") + get("/2") + get("/3"))
        await wait_until(lambda: app.tasks)
        writer.transport.abort()
        await wait_until(lambda: ended, timeout_s=5)
        await asyncio.sleep(0)
    assert (ended, app.tasks) == (["/1"], 1)


@pytest.mark.parametrize("request_head", [get("/now", "connection: close"), get("/now", version="1.0")])
async def test_an_immediate_answer_ends_the_connection_where_the_client_wants_it(request_head: bytes):
    async with connection(Immediate()) as (reader, writer, _):
        writer.write(request_head)
        head, _body = await response(reader)
        assert b"connection: close\r\n" in head
        assert await reader.read() == b""


async def test_a_server_that_stops_ends_connections_with_an_immediate_answer():
    async with connection(Immediate()) as (reader, writer, servers):
        writer.write(get("/now"))
        await response(reader)
        servers.close_listeners()
        writer.write(get("/now"))
        head, _body = await response(reader)
        assert head.count(b"connection: close\r\n") == 1
        assert await reader.read() == b""


class Batched(Immediate):
    """Answers `/batch` when the test ends the batch."""

    def __init__(self) -> None:
        super().__init__()
        self.results: list[asyncio.Future[bytes]] = []
        self.made: list[bytes] = []

    def begin(self, scope: Scope, receive: Receive) -> Found:
        if scope["path"] != "/batch":
            return super().begin(scope, receive)
        self.results.append(asyncio.get_running_loop().create_future())
        return Later(self.results[-1], self._make)

    def _make(self, ended: "asyncio.Future[bytes]") -> Answer:
        self.made.append(ended.result())
        return Answer(201, ended.result(), ((b"x-way", b"batch"),))


@pytest.mark.parametrize("line", ["content-length: 0", "x-nothing: 1"])
async def test_a_write_without_a_body_is_answered_when_its_batch_ends_without_a_task(line: str):
    app = Batched()
    async with connection(app) as (reader, writer, _):
        for body in (b"one", b"two"):
            writer.write(get("/batch", line, method="POST"))
            await wait_until(lambda: app.results)
            app.results.pop().set_result(body)
            head, answered = await response(reader)
            assert head.startswith(b"HTTP/1.1 201 Created\r\n")
            assert b"x-way: batch\r\n" in head
            assert answered == body
        assert app.tasks == 0


async def test_a_request_behind_one_that_waits_for_its_batch_is_answered_after_it():
    app = Batched()
    async with connection(app) as (reader, writer, _):
        writer.write(get("/batch", method="POST") + get("/now"))
        await wait_until(lambda: app.results)
        app.results.pop().set_result(b"batch")
        assert [(await response(reader))[1] for _ in range(2)] == [b"batch", b"now"]


async def test_the_answer_to_a_client_that_has_gone_is_made_nevertheless():
    """Whoever makes it counts the request, and makes room for others."""
    app = Batched()
    async with connection(app) as (_, writer, _):
        writer.write(get("/batch", method="POST"))
        await wait_until(lambda: app.results)
        writer.transport.abort()
        await asyncio.sleep(0.05)
        app.results[0].set_result(b"joined")
        await wait_until(lambda: app.made)


async def test_a_server_that_stops_answers_who_waits_for_a_batch():
    app = Batched()
    async with connection(app) as (reader, writer, servers):
        writer.write(get("/batch", method="POST"))
        await wait_until(lambda: app.results)
        servers.close_listeners()
        app.results[0].set_result(b"joined")
        head, body = await response(reader)
        assert b"connection: close\r\n" in head
        assert body == b"joined"


async def test_a_body_that_nobody_read_is_no_request():
    app = Immediate()
    async with connection(app) as (reader, writer, _):
        writer.write(get("/now", "content-length: 2", method="POST") + b"{}" + get("/now", "content-length: 2") + b"{}")
        for _ in range(2):
            assert (await response(reader))[1] == b"now"
        writer.write(get("/now?3"))
        assert (await response(reader))[1] == b"now3"
    assert app.tasks == 0


async def test_head_has_the_head_of_the_answer_alone():
    async with connection(Immediate()) as (reader, writer, _):
        writer.write(get("/now", method="HEAD") + get("/now?2"))
        head = await reader.readuntil(b"\r\n\r\n")
        assert b"content-length: 3\r\n" in head
        assert (await response(reader))[1] == b"now2"


async def test_a_request_to_change_the_protocol_ends_the_connection():
    async with connection(Immediate()) as (reader, writer, _):
        writer.write(get("/now", "connection: upgrade", "upgrade: h2c"))
        head, _body = await response(reader)
        assert b"connection: close\r\n" in head
        assert await reader.read() == b""


@pytest.mark.parametrize("status", [204, 304])
async def test_an_answer_that_can_have_no_body_has_no_length(status: int):
    async with connection(Immediate()) as (reader, writer, _):
        writer.write(get(f"/nothing?{status}") + get("/now"))
        head = await reader.readuntil(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 %d" % status)
        assert b"content-length" not in head
        assert (await response(reader))[1] == b"now"
