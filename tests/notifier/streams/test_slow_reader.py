"""A slow reader: the hub skips it, sends the current state later or disconnects it, and delays no other stream."""

import asyncio
import socket
import time
from functools import partial
from typing import Any

import pytest

from services.notifier.broadcast.hub import Hub
from services.notifier.broadcast.topic import Topic
from services.notifier.metrics import ENDED
from services.notifier.settings import Settings
from services.notifier.streams.asgi import AsgiStream
from services.notifier.streams.handshake import set_half_open_timeout
from services.notifier.streams.open_stream import TRANSPORTS
from tests.notifier.client import SseClient, raw_request
from tests.notifier.conftest import Notifier, Start
from tests.notifier.frames import stock_frame
from tests.notifier.page import update_line
from tests.notifier.tokens import queue_token
from tests.support.wait import wait_until

MANY_SECTIONS = {f"S{n}": 1 for n in range(300)}


class UnreadStream:
    """A stream on a real socket with small buffers, which is read only when the test calls `read`."""

    def __init__(self, port: int, token: str) -> None:
        self.socket = socket.socket()
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        self.socket.connect(("127.0.0.1", port))
        self.socket.sendall(raw_request(token))
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


def has_received(client: SseClient, data: bytes) -> bool:
    return data in client.body[-40_000:]


async def flood(notifier: Notifier, client: SseClient, versions: range) -> float:
    """Publishes these versions, each after the client received the last; returns the longest wait in seconds."""
    longest_s = 0.0
    for version in versions:
        began_s = time.monotonic()
        await notifier.publish(stock_frame(version, **dict.fromkeys(MANY_SECTIONS, 10**6 + version), A=version))
        data = f'"available_seats":{version},'.encode()
        await wait_until(partial(has_received, client, data), interval_s=0.002)
        longest_s = max(longest_s, time.monotonic() - began_s)
    return longest_s


def paused_count(notifier: Notifier) -> int:
    return len(notifier.state.hub.paused)


@pytest.mark.parametrize("transport", TRANSPORTS)
async def test_a_slow_reader_delays_no_other_stream_and_later_gets_the_current_state(start: Start, transport: str):
    notifier = await start(window_ms=0, socket_buffer_bytes=8192, transport=transport)
    slow_reader = UnreadStream(notifier.port, queue_token(2))
    client = await notifier.listen()
    await wait_until(lambda: len(notifier.state.hub) == 2)
    allowed_s = notifier.state.settings.slow_reader_max_s
    assert await flood(notifier, client, range(1000, 1040)) < allowed_s / 2, (
        "no stream waits until the hub disconnects the slow reader"
    )
    assert paused_count(notifier) == 1
    await wait_until(lambda: b'"available_seats":1039,' in slow_reader.read())
    assert slow_reader.body.count(b"event: sections") < 30, "skipped frames are not sent later"
    await wait_until(lambda: paused_count(notifier) == 0)  # the hub may notice after the client has read
    await flood(notifier, client, range(1040, 1042))
    await wait_until(lambda: b'"available_seats":1041,' in slow_reader.read())
    slow_reader.socket.close()


@pytest.mark.parametrize("transport", TRANSPORTS)
async def test_a_client_that_never_reads_is_disconnected(start: Start, transport: str):
    settings = {"window_ms": 0, "socket_buffer_bytes": 8192, "slow_reader_max_s": 0.2, "heartbeat_s": 1}
    notifier = await start(**settings, transport=transport)
    slow_reader = UnreadStream(notifier.port, queue_token(2))
    client = await notifier.listen()
    await wait_until(lambda: len(notifier.state.hub) == 2)
    await flood(notifier, client, range(1000, 1040))
    await wait_until(lambda: len(notifier.state.hub) == 1)
    await wait_until(lambda: notifier.state.limiter._open == 1)
    assert not client.closed
    await wait_until(slow_reader.is_disconnected)
    slow_reader.socket.close()


async def test_a_client_that_never_reads_is_disconnected_on_any_asgi_server(start: Start):
    notifier = await start(window_ms=0, slow_reader_max_s=0.2, heartbeat_s=1, transport_reachable=False)
    slow_reader = UnreadStream(notifier.port, queue_token(2))
    client = await notifier.listen()
    await wait_until(lambda: len(notifier.state.hub) == 2)
    version = 1000
    while len(notifier.state.hub) == 2 and not paused_count(notifier):
        await flood(notifier, client, range(version, version + 10))
        version += 10
    await wait_until(lambda: len(notifier.state.hub) == 1)
    await wait_until(lambda: notifier.state.limiter._open == 1)
    slow_reader.socket.close()


async def test_a_client_whose_machine_is_gone_is_disconnected_by_the_kernel(start: Start):
    """To the kernel, a client that reads nothing is the same as one that is gone."""
    notifier = await start(window_ms=0, socket_buffer_bytes=8192, slow_reader_max_s=300, half_open_max_s=0.3)
    ended_before = ENDED.labels("half_open")._value.get()
    slow_reader = UnreadStream(notifier.port, queue_token(2))
    client = await notifier.listen()
    await wait_until(lambda: len(notifier.state.hub) == 2)
    await flood(notifier, client, range(1000, 1040))
    await wait_until(lambda: len(notifier.state.hub) == 1)
    assert ENDED.labels("half_open")._value.get() == ended_before + 1
    assert not client.closed
    slow_reader.socket.close()


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
