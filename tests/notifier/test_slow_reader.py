"""A reader that does not read is skipped, then brought up to date or cut off, and delays nobody."""

import asyncio
import socket
import time
from functools import partial
from types import SimpleNamespace
from typing import Any

import uvloop

from services.notifier.hub import Hub
from services.notifier.settings import Settings
from services.notifier.stream import Stream
from services.notifier.topic import Connection, Topic
from shared.service import RECEIVE_KEY
from tests.notifier.conftest import EVENT, Notifier, Start, fan, serve, stock
from tests.notifier.ear import Ear
from tests.support.wait import wait_until

MANY = {f"S{n}": 1 for n in range(300)}


class Sleeper:
    """A real socket with small buffers, on which nobody reads until told."""

    def __init__(self, port: int, token: str) -> None:
        self.socket = socket.socket()
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        self.socket.connect(("127.0.0.1", port))
        path = f"/events/{EVENT}/sections/updates"
        self.socket.sendall(f"GET {path} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {token}\r\n\r\n".encode())
        self.socket.setblocking(False)
        self.heard = b""

    def read(self) -> bytes:
        try:
            while some := self.socket.recv(1 << 20):
                self.heard += some
        except (BlockingIOError, ConnectionError):
            pass
        return self.heard


def heard_lately(ear: Ear, said: bytes) -> bool:
    return said in ear.body[-40_000:]


async def flood(notifier: Notifier, ear: Ear, versions: range) -> float:
    """Shows these versions one after the other, waiting for `ear`; the longest it had to wait, in seconds."""
    longest_s = 0.0
    for version in versions:
        began = time.monotonic()
        await notifier.show(stock(version, **MANY, A=version))
        said = f'"available_seats":{version},'.encode()
        await wait_until(partial(heard_lately, ear, said), interval_s=0.002)
        longest_s = max(longest_s, time.monotonic() - began)
    return longest_s


def behind(notifier: Notifier) -> int:
    return sum(connection.catching_up is not None for connection in notifier.room.hub)


async def test_a_slow_reader_delays_nobody_and_later_gets_the_present(start: Start):
    notifier = await start(window_ms=0, socket_buffer_bytes=8192)
    sleeper = Sleeper(notifier.port, fan(2))
    ear = await notifier.listen()
    await wait_until(lambda: len(notifier.room.hub) == 2)
    assert await flood(notifier, ear, range(1000, 1040)) < 1
    assert behind(notifier) == 1
    await wait_until(lambda: b'"available_seats":1039,' in sleeper.read())
    assert sleeper.heard.count(b"event: sections") < 30, "what was skipped is not sent later"
    assert behind(notifier) == 0
    await flood(notifier, ear, range(1040, 1042))
    await wait_until(lambda: b'"available_seats":1041,' in sleeper.read())
    sleeper.socket.close()


async def test_who_never_reads_is_cut_off(start: Start):
    notifier = await start(window_ms=0, socket_buffer_bytes=8192, slow_reader_max_s=0.2)
    sleeper = Sleeper(notifier.port, fan(2))
    ear = await notifier.listen()
    await wait_until(lambda: len(notifier.room.hub) == 2)
    await flood(notifier, ear, range(1000, 1040))
    await wait_until(lambda: len(notifier.room.hub) == 1)
    await wait_until(lambda: len(notifier.serving.server.server_state.connections) == 1)
    sleeper.socket.close()


async def test_on_a_server_whose_transport_is_out_of_reach_it_is_let_go_too(start: Start):
    notifier = await start(window_ms=0, slow_reader_max_s=0.2, in_reach=False)
    sleeper = Sleeper(notifier.port, fan(2))
    ear = await notifier.listen()
    await wait_until(lambda: len(notifier.room.hub) == 2)
    version = 1000
    while len(notifier.room.hub) == 2 and not behind(notifier):
        await flood(notifier, ear, range(version, version + 10))
        version += 10
    await wait_until(lambda: len(notifier.room.hub) == 1)
    await wait_until(lambda: notifier.room.turnstile._open == 1)
    sleeper.socket.close()


def test_under_uvloop_a_reader_that_does_not_read_is_cut_off_too():
    """uvloop's transports are no `asyncio.Transport`: what we ask of one is there all the same."""
    found: list[str] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        scope[RECEIVE_KEY] = receive
        await send({"type": "http.response.start", "status": 200, "headers": []})
        room: Any = SimpleNamespace(settings=Settings(socket_buffer_bytes=8192))
        connection = Connection(send, Stream(room, scope, receive, send)._hang_up())
        message = {"type": "http.response.body", "body": b"x" * 8192, "more_body": True}
        await wait_until(lambda: not connection.write(message), interval_s=0)
        found.append("waits")
        connection.hang_up()
        while (await receive())["type"] != "http.disconnect":
            pass
        found.append("gone")

    async def run() -> None:
        serving = await serve(app)
        sleeper = Sleeper(serving.port, "x")
        await wait_until(lambda: "gone" in found)
        sleeper.socket.close()
        await serving.stop()

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(run())
    assert found == ["waits", "gone"]


class Wire:
    """A `send` that a test can make wait, as a server's does while the socket takes no more."""

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
    """A reader that catches up in the middle of a fan-out has seen more than the frame that is still going round."""
    hub, topic, wire = Hub(Settings(window_ms=0)), Topic("event", now_s=0.0), Wire()
    connection = Connection(wire.send, lambda: None)
    topic.show("line", 1, b"1.1", at_ms=1)
    hub.open(connection, topic, last_event_id=None)
    wire.free.clear()
    topic.show("line", 2, b"1.2", at_ms=1)
    await hub._write_frame(topic)
    assert heads(wire) == [b"data: 1"]
    wire.free.set()
    topic.show("line", 3, b"1.3", at_ms=1)
    await wait_until(lambda: connection.catching_up is None)
    assert heads(wire) == [b"data: 1", b"data: 3"]
    await hub._write_frame(topic)
    assert heads(wire) == [b"data: 1", b"data: 3"], "it has seen this one"
    hub.leave(connection)


async def test_one_broken_connection_does_not_stop_the_others(caplog: Any):
    hub, topic, wire = Hub(Settings(window_ms=0)), Topic("event", now_s=0.0), Wire()
    hung_up: list[str] = []

    async def broken(message: Any) -> None:
        raise RuntimeError

    topic.show("line", 1, b"1.1", at_ms=1)
    hub.open(Connection(broken, lambda: hung_up.append("broken")), topic, last_event_id=None)
    hub.open(Connection(wire.send, lambda: None), topic, last_event_id=None)
    assert (hung_up, len(hub)) == (["broken"], 1)
    assert heads(wire) == [b"data: 1"]
    hub.close(next(iter(hub)))
