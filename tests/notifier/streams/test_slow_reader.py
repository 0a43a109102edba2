"""A slow reader: the hub skips it, sends the current state later or disconnects it, and delays no other stream."""

import asyncio
import itertools
import socket
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from typing import Any

import pytest

from services.notifier.metrics import ENDED
from services.notifier.settings import Settings
from services.notifier.streams.asgi import AsgiStream
from services.notifier.streams.handshake import set_half_open_timeout
from services.notifier.topics.hub import Hub
from services.notifier.topics.topic import Topic
from shared.contracts.frames import OrderFrame, StockFrame
from tests.notifier.client import SseClient, raw_request
from tests.notifier.conftest import TRANSPORTS, Notifier, Start
from tests.notifier.frames import order_frame, stock_frame
from tests.notifier.page import update_line
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
