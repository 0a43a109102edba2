"""A slow reader: the hub skips it, sends the current state later or disconnects it, and delays no other stream; what
the detached transport relies on in uvicorn for that, and the fallback to ASGI with an untested version.
"""

import asyncio
import gc
import hashlib
import inspect
import itertools
import socket
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from typing import Any

import pytest
import uvicorn
import uvloop
from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from services.notifier.metrics import ENDED
from services.notifier.settings import Settings
from services.notifier.streams import asgi, detached
from services.notifier.streams.asgi import AsgiStream
from services.notifier.streams.detached import DetachedStream
from services.notifier.streams.handshake import StreamHandshake, set_half_open_timeout
from services.notifier.topics.hub import Hub
from services.notifier.topics.topic import Topic
from services.notifier.tuning import Tuning
from shared.contracts.frames import OrderFrame, StockFrame
from shared.runtime.descriptors import descriptors_open
from tests.notifier.client import SseClient, all_have_head, raw_request
from tests.notifier.conftest import TRANSPORTS, Notifier, Start
from tests.notifier.frames import line_frame, order_frame, stock_frame
from tests.notifier.page import update_line
from tests.notifier.tokens import queue_token
from tests.support.running.serving import serve
from tests.support.wait import wait_until

MANY_SECTIONS = {f"S{n}": 1 for n in range(300)}


class UnreadStream:
    """A stream on a real socket with small buffers, which is read only when the test calls `read`."""

    def __init__(self, port: int, request: bytes) -> None:
        self.socket = socket.socket()
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        self.socket.connect(("127.0.0.1", port))
        self.socket.sendall(request)
        self.socket.setblocking(False)
        self.body = b""
        self.ended = False

    def read(self) -> bytes:
        try:
            while data := self.socket.recv(1 << 20):
                self.body += data
            self.ended = True
        except BlockingIOError:
            pass
        except ConnectionError:
            self.ended = True
        return self.body

    def is_disconnected(self) -> bool:
        self.read()
        return self.ended


def big_frame(notifier: Notifier, version: int) -> StockFrame | OrderFrame:
    """A state of some 30 KiB that contains this version as a number of seats."""
    if notifier.of_order:
        more = {"available_seats": version, "items": "x" * 30_000}
        return order_frame(version, "pending").model_copy(update={"body": more})
    return stock_frame(version, **dict.fromkeys(MANY_SECTIONS, 10**6 + version), A=version)


def has_version(body: bytes, version: int) -> bool:
    return f'"available_seats":{version},'.encode() in body[-70_000:]


async def flood(notifier: Notifier, client: SseClient, versions: Iterable[int]) -> float:
    """Publishes these versions, each after the client received the last; returns the longest wait in seconds."""
    longest_s = 0.0
    for version in versions:
        began_s = time.monotonic()
        await notifier.publish(big_frame(notifier, version))
        await wait_until(lambda version=version: has_version(client.body, version), interval_s=0.002)  # type: ignore[misc]
        longest_s = max(longest_s, time.monotonic() - began_s)
    return longest_s


def paused_count(notifier: Notifier) -> int:
    return len(notifier.state.hub.paused)


SlowReader = Callable[..., Awaitable[tuple[Notifier, UnreadStream, SseClient]]]


@pytest.fixture
async def slow_reader(start: Start) -> AsyncIterator[SlowReader]:
    """Starts a notifier with small buffers, one stream that is not read, and one that is."""
    streams: list[UnreadStream] = []

    async def run(**settings: Any) -> tuple[Notifier, UnreadStream, SseClient]:
        notifier = await start(**{"window_ms": 0, "socket_buffer_bytes": 8192, **settings})
        streams.append(UnreadStream(notifier.port, raw_request(notifier.token(2), notifier.path)))
        client = await notifier.join()
        await wait_until(lambda: len(notifier.state.hub) == 2)
        return notifier, streams[-1], client

    yield run
    for stream in streams:
        stream.socket.close()


@pytest.mark.parametrize("transport", TRANSPORTS)
async def test_a_slow_reader_delays_no_other_stream_and_later_gets_the_current_state(
    slow_reader: SlowReader, transport: str
):
    notifier, slow, client = await slow_reader(transport=transport)
    allowed_s = notifier.state.hub.tuning.slow_reader_max_s
    assert await flood(notifier, client, range(1000, 1040)) < allowed_s / 2, (
        "no stream waits until the hub disconnects the slow reader"
    )
    assert paused_count(notifier) == 1
    await wait_until(lambda: has_version(slow.read(), 1039))
    name = notifier.names[-1].encode()
    assert slow.body.count(b"event: " + name) < 30, "skipped frames are not sent later"
    await wait_until(lambda: paused_count(notifier) == 0)  # the hub may notice after the client has read
    await flood(notifier, client, range(1040, 1042))
    await wait_until(lambda: has_version(slow.read(), 1041))


@pytest.mark.parametrize("transport", TRANSPORTS)
async def test_a_client_that_never_reads_is_disconnected(slow_reader: SlowReader, transport: str):
    notifier, slow, client = await slow_reader(slow_reader_max_s=0.2, heartbeat_s=1, transport=transport)
    await flood(notifier, client, range(1000, 1040))
    await wait_until(lambda: notifier.state.limiter._open == 1)
    assert len(notifier.state.hub) == 1
    assert not client.closed
    await wait_until(slow.is_disconnected)


async def test_a_client_that_never_reads_is_disconnected_on_any_asgi_server(slow_reader: SlowReader):
    settings = {"slow_reader_max_s": 0.2, "heartbeat_s": 1, "socket_buffer_bytes": 65_536}
    notifier, _, client = await slow_reader(**settings, transport_reachable=False)
    versions = itertools.count(1000, 10)
    while len(notifier.state.hub) == 2 and not paused_count(notifier):
        first = next(versions)
        await flood(notifier, client, range(first, first + 10))
    await wait_until(lambda: notifier.state.limiter._open == 1)


async def test_a_client_whose_machine_is_gone_is_disconnected_by_the_kernel(slow_reader: SlowReader):
    """To the kernel, a client that reads nothing is the same as one that is gone."""
    notifier, _, client = await slow_reader(slow_reader_max_s=300, half_open_max_s=0.3)
    ended_before = ENDED.labels("half_open")._value.get()
    await flood(notifier, client, range(1000, 1040))
    await wait_until(lambda: len(notifier.state.hub) == 1)
    assert ENDED.labels("half_open")._value.get() == ended_before + 1
    assert not client.closed


class SocketOptions(dict[tuple[int, int], int]):
    """Records the options that are set on a socket."""

    def setsockopt(self, level: int, name: int, value: int) -> None:
        self[level, name] = value


def test_without_tcp_user_timeout_keepalive_is_used(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delattr(socket, "TCP_USER_TIMEOUT")
    options = SocketOptions()
    set_half_open_timeout(options, 30.0)
    assert options[socket.SOL_SOCKET, socket.SO_KEEPALIVE] == 1
    tcp = socket.IPPROTO_TCP
    waited_s = options[tcp, socket.TCP_KEEPIDLE] + 3 * options[tcp, socket.TCP_KEEPINTVL]
    assert (waited_s, options[tcp, socket.TCP_KEEPCNT]) == (30, 3)


class BlockableSend:
    """An ASGI `send` that a test can block, as a server does while the socket is full."""

    def __init__(self) -> None:
        self.written: list[bytes] = []
        self.free = asyncio.Event()
        self.free.set()

    async def send(self, message: Any) -> None:
        if not self.free.is_set():
            await self.free.wait()
        self.written.append(message["body"])


def data_lines(sender: BlockableSend) -> list[bytes]:
    return [part for body in sender.written for part in body.split(b"\n") if part.startswith(b"data")]


async def test_no_older_frame_is_written_after_a_newer_one():
    """A connection that catches up during a fan-out has a later revision than the frame being written."""
    hub, topic, sender = Hub(Settings(window_ms=0)), Topic("event", now_s=0.0), BlockableSend()
    connection = AsgiStream(hub, sender.send, lambda: None, lambda: None)
    update_line(topic, 1)
    hub.open(connection, topic, last_event_id=None)
    sender.free.clear()
    update_line(topic, 2)
    await hub._write_frame(topic)
    assert data_lines(sender) == [b"data: 1"]
    sender.free.set()
    update_line(topic, 3)
    await wait_until(lambda: connection.paused_since_s is None)
    assert data_lines(sender) == [b"data: 1", b"data: 3"]
    await hub._write_frame(topic)
    assert data_lines(sender) == [b"data: 1", b"data: 3"], "the connection has this revision already"
    hub.remove(connection)


async def test_one_broken_connection_does_not_stop_the_others(caplog: Any):
    hub, topic, sender = Hub(Settings(window_ms=0)), Topic("event", now_s=0.0), BlockableSend()
    aborted: list[str] = []

    async def broken(message: Any) -> None:
        raise RuntimeError

    update_line(topic, 1)
    hub.open(AsgiStream(hub, broken, lambda: aborted.append("broken"), lambda: None), topic, last_event_id=None)
    hub.open(AsgiStream(hub, sender.send, lambda: None, lambda: None), topic, last_event_id=None)
    assert (aborted, len(hub)) == (["broken"], 1)
    assert data_lines(sender) == [b"data: 1"]
    hub.close(next(iter(hub)))


RELIED_ON = (
    HttpToolsProtocol.__init__, HttpToolsProtocol.connection_lost, HttpToolsProtocol._unset_keepalive_if_required,
    HttpToolsProtocol.handle_websocket_upgrade, HttpToolsProtocol.on_headers_complete,
    HttpToolsProtocol._start_asgi_task, HttpToolsProtocol.on_response_complete, HttpToolsProtocol.shutdown,
    RequestResponseCycle.__init__, RequestResponseCycle.run_asgi, RequestResponseCycle.send,
    RequestResponseCycle.receive, FlowControl.resume_reading,
)  # fmt: skip
TESTED_HASH = "8734502010e98fec"


def test_the_internals_of_uvicorn_are_the_tested_ones():
    assert uvicorn.__version__ in detached.TESTED_VERSIONS, (
        "This uvicorn was not tested: streams fall back to ASGI. Read services/notifier/streams/detached.py with the "
        "code named in RELIED_ON, run these tests, then add the version to TESTED_VERSIONS."
    )
    code = "".join(inspect.getsource(part) for part in RELIED_ON)
    assert hashlib.sha256(code.encode()).hexdigest()[:16] == TESTED_HASH, (
        "The code in RELIED_ON has changed, although this version of uvicorn was tested."
    )


def live_objects_of(state: Any) -> list[object]:
    """Protocols and request cycles of the server with this state."""
    objects = gc.get_objects()
    protocols = [each for each in objects if isinstance(each, HttpToolsProtocol) and each.server_state is state]
    cycles = (each for each in objects if isinstance(each, RequestResponseCycle))
    return [*protocols, *(cycle for cycle in cycles if cycle.default_headers is state.default_headers)]


async def test_a_detached_stream_keeps_no_object_of_its_request(notifier: Notifier, caplog: Any):
    gc.collect()
    gc.disable()  # so that a reference cycle would stay, and be found
    try:
        clients = [await notifier.connect(token=queue_token(n)) for n in range(5)]
        state = notifier.serving.server.server_state
        await wait_until(lambda: not state.tasks)
        assert not state.connections
        assert all(isinstance(connection, DetachedStream) for connection in notifier.state.hub)
        await wait_until(lambda: live_objects_of(state) == [])
    finally:
        gc.enable()
    await notifier.publish(line_frame(11, 6))
    await wait_until(lambda: all_have_head(clients, 6))
    for client in clients:
        await client.close()
    await wait_until(lambda: len(notifier.state.hub) == 0)
    assert not caplog.records, "the server logged no error"


async def test_an_untested_uvicorn_serves_streams_by_asgi(start: Start, monkeypatch: pytest.MonkeyPatch, caplog: Any):
    monkeypatch.setattr(uvicorn, "__version__", "99.0")
    notifier = await start()
    assert [record.getMessage() for record in caplog.records].count("transport.fallback") == 1
    await notifier.connect()
    assert [type(connection) for connection in notifier.state.hub] == [AsgiStream]


@pytest.mark.parametrize("version", ["HTTP/1.0", "HTTP/1.1"])
async def test_a_request_that_cannot_be_detached_is_served_by_asgi(notifier: Notifier, version: str):
    """A client with HTTP/1.0, and one that has already sent its next request on the same connection."""
    next_request = raw_request(queue_token(1), "/livez") if version == "HTTP/1.1" else b""
    reader, writer = await asyncio.open_connection("127.0.0.1", notifier.port)
    writer.write(raw_request(queue_token(1), version=version) + next_request)
    async with asyncio.timeout(5):
        await reader.readuntil(b"event: sections")
    assert [type(connection) for connection in notifier.state.hub] == [AsgiStream]
    writer.close()


async def test_a_listener_that_sends_data_is_disconnected(notifier: Notifier):
    reader, writer = await asyncio.open_connection("127.0.0.1", notifier.port)
    writer.write(raw_request(queue_token(1)))
    async with asyncio.timeout(5):
        await reader.readuntil(b"event: sections")
        writer.write(b"and another thing")
        assert (await reader.read()).endswith(b"\n\n\r\n0\r\n\r\n")
    assert len(notifier.state.hub) == 0
    writer.close()


@pytest.mark.parametrize("transport_class", [DetachedStream, AsgiStream])
def test_under_uvloop_a_client_that_does_not_read_is_skipped_and_disconnected(transport_class: type[Any]):
    """uvloop's transports are not `asyncio.Transport`, but have the methods that the streams use."""
    results: list[object] = []
    tuning = Tuning(socket_buffer_bytes=8192)

    async def run() -> None:
        hub, topic = Hub(Settings(), tuning), Topic("event", now_s=0.0)
        update_line(topic, "x" * 8192)

        async def app(scope: Any, receive: Any, send: Any) -> None:
            serve_stream = detached.serve if transport_class is DetachedStream else asgi.serve
            await serve_stream(
                StreamHandshake(
                    hub=hub, topic=topic, scope=scope, receive=receive, send=send, on_end=lambda: results.append("left")
                )
            )

        serving = await serve(app)
        slow_reader = UnreadStream(serving.port, raw_request("x"))
        await wait_until(lambda: len(hub) == 1)
        (connection,) = hub
        results.append(type(connection))
        await wait_until(lambda: hub.write(connection, topic.snapshot()) is False, interval_s=0)
        assert hub.paused == {connection}
        hub.disconnect(connection, reason="slow")
        await wait_until(slow_reader.is_disconnected)
        slow_reader.socket.close()
        await serving.stop()

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(run())
    assert results == [transport_class, "left"]


@pytest.mark.parametrize("loop_factory", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_the_head_comes_before_the_first_frame_and_an_ended_stream_leaves_no_descriptor(loop_factory: Any):
    async def run() -> None:
        hub, topic = Hub(Settings()), Topic("event", now_s=0.0)
        update_line(topic, "news")

        async def app(scope: Any, receive: Any, send: Any) -> None:
            await detached.serve(
                StreamHandshake(hub=hub, topic=topic, scope=scope, receive=receive, send=send, on_end=lambda: None)
            )

        serving = await serve(app)
        before = descriptors_open()
        for end in (hub.close, hub.disconnect):
            reader, writer = await asyncio.open_connection("127.0.0.1", serving.port)
            writer.write(raw_request("x"))
            async with asyncio.timeout(5):
                assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 200 OK\r\n")
                assert b"retry: " in await reader.readuntil(b"news")
                (connection,) = hub
                assert type(connection) is DetachedStream
                end(connection, reason="left")
                assert (await reader.read()).endswith(b"0\r\n\r\n") is (end == hub.close)
            writer.close()
            await wait_until(lambda: descriptors_open() == before)
        await serving.stop()

    with asyncio.Runner(loop_factory=loop_factory) as runner:
        runner.run(run())


async def test_a_stream_is_not_ended_in_the_middle_of_a_chunk():
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    hub, topic = Hub(Settings()), Topic("event", now_s=0.0)
    update_line(topic, "x" * 10_000_000)
    with theirs:
        hub.open(DetachedStream(hub, ours.detach(), lambda: None), topic, last_event_id=None)
        (connection,) = hub
        received = theirs.recv(1 << 16)  # room for an end
        hub.close(connection)
        received += b"".join(iter(lambda: theirs.recv(1 << 20), b""))
    assert 0 < len(received) < 10_000_000
    assert not received.endswith(b"0\r\n\r\n")
