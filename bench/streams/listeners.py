"""Thousands of stream listeners in one process: sockets and one epoll, without an event loop.

`python -m bench.streams.listeners` reads a `ListenerGroup` as one line of JSON, connects, prints how long that took,
and listens. A line on standard input requests a report of the frames since the last one; its end ends the process. A
frame carries the time it was published as `@<ns>@`.

Starts processes of `bench.streams.listeners` and collects their reports.
"""

import asyncio
import json
import os
import re
import select
import socket
import sys
import time
from array import array
from asyncio.subprocess import PIPE, Process
from collections import deque
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from onsale.local.ports import HOST
from shared.security.tokens import QueueToken, QueueTokens, development_keys

LINE_S, STOP_S = 150.0, 30.0


EVENT, STAMP = "arena", re.compile(rb"@(\d{19})@")
CONNECTING_MAX, CONNECT_S = 200, 90.0
SOURCES = 16  # addresses to connect from: each has ports of its own
IP_BIND_ADDRESS_NO_PORT = 24
UPGRADE = "upgrade: websocket\r\nsec-websocket-version: 13\r\nsec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n"


@dataclass(frozen=True)
class ListenerGroup:
    """Where to listen, how many, and as whom: `kind` is `ours`, `sse` or `websocket`; `first` is the first fan."""

    kind: str
    port: int
    path: str
    count: int
    first: int = 0

    def requests(self) -> Iterator[bytes]:
        """One request for each listener; ours carry a token."""
        tokens = QueueTokens(development_keys("queue-token"))
        more = "connection: upgrade\r\n" + UPGRADE if self.kind == "websocket" else ""
        for n in range(self.first, self.first + self.count):
            if self.kind == "ours":
                token = tokens.sign(
                    QueueToken(EVENT, epoch=1, lane=0, join_seq=n + 1, holder=f"fan-{n:019d}", issued_at_s=0)
                )
                more = f"authorization: Bearer {token}\r\n"
            accept = "accept: text/event-stream\r\n" if self.kind != "websocket" else ""
            yield f"GET {self.path} HTTP/1.1\r\nhost: bench\r\n{accept}{more}\r\n".encode()


class Listeners:
    """All listeners of the process, on one epoll."""

    def __init__(self, group: ListenerGroup) -> None:
        self._group = group
        self._poll = select.epoll()
        self._sockets: dict[int, socket.socket] = {}
        self._connecting: dict[int, bytes] = {}
        self._answered: set[int] = set()
        self.ages_ms = array("d")
        self.lost = 0

    def connect(self) -> float:
        """Connects all listeners; the seconds that took. Raises `TimeoutError`."""
        began = time.perf_counter()
        waiting = deque(self._group.requests())
        while len(self._answered) + self.lost < self._group.count:
            while waiting and len(self._sockets) - len(self._answered) < CONNECTING_MAX:
                self._begin(waiting.popleft())
            self.poll_once(0.1)
            if time.perf_counter() - began > CONNECT_S:
                raise TimeoutError(f"{len(self._answered)} of {self._group.count} listen")
        return time.perf_counter() - began

    def _begin(self, request: bytes) -> None:
        new = socket.socket()
        new.setblocking(False)
        new.setsockopt(socket.IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, 1)
        new.bind((f"127.0.0.{2 + len(self._sockets) % SOURCES}", 0))
        new.connect_ex((HOST, self._group.port))
        fd = new.fileno()
        self._sockets[fd], self._connecting[fd] = new, request
        self._poll.register(fd, select.EPOLLOUT)

    def poll_once(self, wait_s: float) -> bool:
        """Reads what has arrived; whether standard input has a command."""
        has_command = False
        for fd, _ in self._poll.poll(wait_s, 4096):
            if fd == 0:
                has_command = True
            elif (request := self._connecting.pop(fd, None)) is not None:
                self._send_request(fd, request)
            else:
                self._read(fd)
        return has_command

    def _send_request(self, fd: int, request: bytes) -> None:
        try:
            self._sockets[fd].send(request)
            self._poll.modify(fd, select.EPOLLIN)
        except OSError:
            self._drop(fd)

    def _read(self, fd: int) -> None:
        try:
            data = os.read(fd, 65536)
        except OSError:
            data = b""
        if not data:
            self._drop(fd)
            return
        now_ns = time.time_ns()
        self._answered.add(fd)
        for stamp in STAMP.findall(data):
            self.ages_ms.append((now_ns - int(stamp)) / 1e6)

    def _drop(self, fd: int) -> None:
        self._poll.unregister(fd)
        self._sockets.pop(fd).close()
        self._answered.discard(fd)
        self.lost += 1

    def serve(self) -> None:
        """Listens and answers standard input until that ends."""
        self._poll.register(0, select.EPOLLIN)
        while True:
            if self.poll_once(1.0):
                if not os.read(0, 4096):
                    return
                ages_ms = sorted(self.ages_ms)
                at = {str(q): ages_ms[int(q * len(ages_ms))] if ages_ms else 0.0 for q in (0.5, 0.99, 0.999)}
                print_json({"received": len(ages_ms), "lost": self.lost, "ages_ms": at})
                self.ages_ms = array("d")


def print_json(value: dict[str, object]) -> None:
    print(json.dumps(value), flush=True)


def main() -> None:
    with open(0, "rb", buffering=0, closefd=False) as commands:  # nothing read ahead: epoll must see the rest
        listeners = Listeners(ListenerGroup(**json.loads(commands.readline())))
    try:
        print_json({"seconds": listeners.connect(), "lost": listeners.lost})
    except TimeoutError as late:
        sys.exit(f"too slow: {late}")
    listeners.serve()


class ConnectionsMissing(Exception):
    """Not all listeners could connect in time."""


@dataclass
class ListenerProcesses:
    """Connected listeners; `connect_s` is how long connecting took the slowest process."""

    processes: list[Process]
    connect_s: float
    lost: int

    async def collect(self) -> list[dict[str, Any]]:
        """The report of each process since the last call."""
        for process in self.processes:
            assert process.stdin is not None
            process.stdin.write(b"?\n")
        return [await _line(process) for process in self.processes]


@asynccontextmanager
async def connect_listeners(groups: Sequence[ListenerGroup]) -> AsyncIterator[ListenerProcesses]:
    """One process for each group, all connected inside this context."""
    async with AsyncExitStack() as stack:
        processes = [await stack.enter_async_context(_process(group)) for group in groups]
        reports = await asyncio.gather(*map(_line, processes))
        yield ListenerProcesses(processes, max(one["seconds"] for one in reports), sum(one["lost"] for one in reports))


@asynccontextmanager
async def _process(group: ListenerGroup) -> AsyncIterator[Process]:
    command = [sys.executable, "-P", "-m", "bench.streams.listeners"]
    environment = {"PYTHONPATH": str(Path(__file__).parents[2])}
    process = await asyncio.create_subprocess_exec(*command, stdin=PIPE, stdout=PIPE, env=environment)
    assert process.stdin is not None
    process.stdin.write(json.dumps(asdict(group)).encode() + b"\n")
    try:
        yield process
    finally:
        process.stdin.close()
        try:
            async with asyncio.timeout(STOP_S):
                await process.wait()
        except TimeoutError:  # it is still connecting
            with suppress(ProcessLookupError):
                process.kill()
            await process.wait()


async def _line(process: Process) -> dict[str, Any]:
    assert process.stdout is not None
    async with asyncio.timeout(LINE_S):
        line = await process.stdout.readline()
    if not line:
        raise ConnectionsMissing
    report: dict[str, Any] = json.loads(line)
    return report


if __name__ == "__main__":
    main()
