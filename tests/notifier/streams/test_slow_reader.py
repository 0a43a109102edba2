"""A reader that does not read is skipped, then gets a snapshot or is disconnected, and delays nobody."""

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
from tests.notifier.client import SseClient
from tests.notifier.conftest import EVENT, Notifier, Start, fan, stock
from tests.notifier.page import update_line
from tests.support.wait import wait_until

MANY = {f"S{n}": 1 for n in range(300)}


class Sleeper:
    """A real socket with small buffers, not read until the test reads."""

    def __init__(self, port: int, token: str) -> None:
        self.socket = socket.socket()
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        self.socket.connect(("127.0.0.1", port))
        path = f"/events/{EVENT}/sections/updates"
        self.socket.sendall(f"GET {path} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {token}\r\n\r\n".encode())
        self.socket.setblocking(False)
        self.events = b""
        self.over = False

    def read(self) -> bytes:
        try:
            while some := self.socket.recv(1 << 20):
                self.events += some
            self.over = True
        except BlockingIOError:
            pass
        except ConnectionError:
            self.over = True
        return self.events

    def cut_off(self) -> bool:
        self.read()
        return self.over


def received_lately(client: SseClient, data: bytes) -> bool:
    return data in client.body[-40_000:]


async def flood(notifier: Notifier, client: SseClient, versions: range) -> float:
    """Publishes these versions one after the other, waiting for the client; returns the longest wait in seconds."""
    longest_s = 0.0
    for version in versions:
        began = time.monotonic()
        await notifier.show(stock(version, **dict.fromkeys(MANY, 10**6 + version), A=version))
        data = f'"available_seats":{version},'.encode()
        await wait_until(partial(received_lately, client, data), interval_s=0.002)
        longest_s = max(longest_s, time.monotonic() - began)
    return longest_s


def behind(notifier: Notifier) -> int:
    return len(notifier.state.hub.paused)


@pytest.mark.parametrize("transport", TRANSPORTS)
async def test_a_slow_reader_delays_nobody_and_later_gets_the_present(start: Start, transport: str):
    notifier = await start(window_ms=0, socket_buffer_bytes=8192, transport=transport)
    sleeper = Sleeper(notifier.port, fan(2))
    client = await notifier.listen()
    await wait_until(lambda: len(notifier.state.hub) == 2)
    given_s = notifier.state.settings.slow_reader_max_s
    assert await flood(notifier, client, range(1000, 1040)) < given_s / 2, "nobody waits until the sleeper is cut off"
    assert behind(notifier) == 1
    await wait_until(lambda: b'"available_seats":1039,' in sleeper.read())
    assert sleeper.events.count(b"event: sections") < 30, "what was skipped is not sent later"
    await wait_until(lambda: behind(notifier) == 0)  # the reader may have read before the hub's turn to notice
    await flood(notifier, client, range(1040, 1042))
    await wait_until(lambda: b'"available_seats":1041,' in sleeper.read())
    sleeper.socket.close()


@pytest.mark.parametrize("transport", TRANSPORTS)
async def test_a_reader_that_never_reads_is_disconnected(start: Start, transport: str):
    settings = {"window_ms": 0, "socket_buffer_bytes": 8192, "slow_reader_max_s": 0.2, "heartbeat_s": 1}
    notifier = await start(**settings, transport=transport)
    sleeper = Sleeper(notifier.port, fan(2))
    client = await notifier.listen()
    await wait_until(lambda: len(notifier.state.hub) == 2)
    await flood(notifier, client, range(1000, 1040))
    await wait_until(lambda: len(notifier.state.hub) == 1)
    await wait_until(lambda: notifier.state.limiter._open == 1)
    assert not client.closed
    await wait_until(sleeper.cut_off)
    sleeper.socket.close()


async def test_on_a_server_whose_transport_is_out_of_reach_it_is_let_go_too(start: Start):
    notifier = await start(window_ms=0, slow_reader_max_s=0.2, heartbeat_s=1, in_reach=False)
    sleeper = Sleeper(notifier.port, fan(2))
    client = await notifier.listen()
    await wait_until(lambda: len(notifier.state.hub) == 2)
    version = 1000
    while len(notifier.state.hub) == 2 and not behind(notifier):
        await flood(notifier, client, range(version, version + 10))
        version += 10
    await wait_until(lambda: len(notifier.state.hub) == 1)
    await wait_until(lambda: notifier.state.limiter._open == 1)
    sleeper.socket.close()


async def test_a_reader_whose_machine_has_vanished_is_found_by_the_kernel(start: Start):
    """No machine vanishes here: to the kernel, one that reads nothing more looks the same."""
    notifier = await start(window_ms=0, socket_buffer_bytes=8192, slow_reader_max_s=300, half_open_max_s=0.3)
    ended_before = ENDED.labels("half_open")._value.get()
    sleeper = Sleeper(notifier.port, fan(2))
    client = await notifier.listen()
    await wait_until(lambda: len(notifier.state.hub) == 2)
    await flood(notifier, client, range(1000, 1040))
    await wait_until(lambda: len(notifier.state.hub) == 1)
    assert ENDED.labels("half_open")._value.get() == ended_before + 1
    assert not client.closed
    sleeper.socket.close()


class Switches(dict[tuple[int, int], int]):
    """The options set on a socket."""

    def setsockopt(self, level: int, name: int, value: int) -> None:
        self[level, name] = value


def test_without_tcp_user_timeout_keepalive_is_used(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delattr(socket, "TCP_USER_TIMEOUT")
    switches = Switches()
    set_half_open_timeout(switches, 30.0)
    assert switches[socket.SOL_SOCKET, socket.SO_KEEPALIVE] == 1
    tcp = socket.IPPROTO_TCP
    waited_s = switches[tcp, socket.TCP_KEEPIDLE] + 3 * switches[tcp, socket.TCP_KEEPINTVL]
    assert (waited_s, switches[tcp, socket.TCP_KEEPCNT]) == (30, 3)


class Wire:
    """A `send` that a test can block, like a server's while the socket is full."""

    def __init__(self) -> None:
        self.written: list[bytes] = []
        self.free = asyncio.Event()
        self.free.set()

    async def send(self, message: Any) -> None:
        if not self.free.is_set():
            await self.free.wait()
        self.written.append(message["body"])


def heads(wire: Wire) -> list[bytes]:
    return [part for body in wire.written for part in body.split(b"\n") if part.startswith(b"data")]


async def test_nothing_old_is_written_after_something_newer():
    """A reader that catches up during a fan-out has a later revision than the frame being written."""
    hub, topic, wire = Hub(Settings(window_ms=0)), Topic("event", now_s=0.0), Wire()
    connection = AsgiStream(hub, wire.send, lambda: None, lambda: None)
    update_line(topic, 1)
    hub.open(connection, topic, last_event_id=None)
    wire.free.clear()
    update_line(topic, 2)
    await hub._write_frame(topic)
    assert heads(wire) == [b"data: 1"]
    wire.free.set()
    update_line(topic, 3)
    await wait_until(lambda: connection.paused_since_s is None)
    assert heads(wire) == [b"data: 1", b"data: 3"]
    await hub._write_frame(topic)
    assert heads(wire) == [b"data: 1", b"data: 3"], "it has this one already"
    hub.remove(connection)


async def test_one_broken_connection_does_not_stop_the_others(caplog: Any):
    hub, topic, wire = Hub(Settings(window_ms=0)), Topic("event", now_s=0.0), Wire()
    hung_up: list[str] = []

    async def broken(message: Any) -> None:
        raise RuntimeError

    update_line(topic, 1)
    hub.open(AsgiStream(hub, broken, lambda: hung_up.append("broken"), lambda: None), topic, last_event_id=None)
    hub.open(AsgiStream(hub, wire.send, lambda: None, lambda: None), topic, last_event_id=None)
    assert (hung_up, len(hub)) == (["broken"], 1)
    assert heads(wire) == [b"data: 1"]
    hub.close(next(iter(hub)))
