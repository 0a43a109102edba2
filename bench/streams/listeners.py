"""Thousands of listeners in a process of their own: sockets and one epoll, no loop of anybody's between them.

`python -m bench.streams.listeners` reads an order as one line of JSON, connects, says how long that took, and listens.
A line on standard input asks for what was heard since the last one asked; its end ends the process. A frame carries the
moment it was published as `@<ns>@`.
"""

import json
import os
import re
import select
import socket
import sys
import time
from array import array
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass

from onsale.local.ports import HOST
from shared.runtime.settings import development_keys
from shared.security.tokens import QueueToken, QueueTokens

EVENT, STAMP = "arena", re.compile(rb"@(\d{19})@")
CONNECTING_MAX, CONNECT_S = 200, 90.0
SOURCES = 16  # addresses to connect from: each has ports of its own
IP_BIND_ADDRESS_NO_PORT = 24
UPGRADE = "upgrade: websocket\r\nsec-websocket-version: 13\r\nsec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n"


@dataclass(frozen=True)
class Order:
    """Where to listen, how many, and as whom: `kind` is `ours`, `sse` or `websocket`; `first` is the first fan."""

    kind: str
    port: int
    path: str
    count: int
    first: int = 0

    def requests(self) -> Iterator[bytes]:
        """One request a listener; ours know who asks."""
        tokens = QueueTokens(development_keys("queue-token"))
        more = "connection: upgrade\r\n" + UPGRADE if self.kind == "websocket" else ""
        for n in range(self.first, self.first + self.count):
            if self.kind == "ours":
                token = tokens.sign(QueueToken(EVENT, 1, 0, n + 1, f"fan-{n:019d}", 0))
                more = f"authorization: Bearer {token}\r\n"
            accept = "accept: text/event-stream\r\n" if self.kind != "websocket" else ""
            yield f"GET {self.path} HTTP/1.1\r\nhost: bench\r\n{accept}{more}\r\n".encode()


class Listeners:
    """All of them, on one epoll."""

    def __init__(self, order: Order) -> None:
        self._order = order
        self._poll = select.epoll()
        self._sockets: dict[int, socket.socket] = {}
        self._asking: dict[int, bytes] = {}
        self._answered: set[int] = set()
        self.ages_ms = array("d")
        self.lost = 0

    def connect(self) -> float:
        """Everyone listens; the seconds that took. Raises `TimeoutError`."""
        began = time.perf_counter()
        waiting = deque(self._order.requests())
        while len(self._answered) + self.lost < self._order.count:
            while waiting and len(self._sockets) - len(self._answered) < CONNECTING_MAX:
                self._begin(waiting.popleft())
            self.turn(0.1)
            if time.perf_counter() - began > CONNECT_S:
                raise TimeoutError(f"{len(self._answered)} of {self._order.count} listen")
        return time.perf_counter() - began

    def _begin(self, request: bytes) -> None:
        new = socket.socket()
        new.setblocking(False)
        new.setsockopt(socket.IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, 1)
        new.bind((f"127.0.0.{2 + len(self._sockets) % SOURCES}", 0))
        new.connect_ex((HOST, self._order.port))
        fd = new.fileno()
        self._sockets[fd], self._asking[fd] = new, request
        self._poll.register(fd, select.EPOLLOUT)

    def turn(self, wait_s: float) -> bool:
        """One look at what has come; `True` when standard input has something to say."""
        told = False
        for fd, _ in self._poll.poll(wait_s, 4096):
            if fd == 0:
                told = True
            elif (request := self._asking.pop(fd, None)) is not None:
                self._ask(fd, request)
            else:
                self._hear(fd)
        return told

    def _ask(self, fd: int, request: bytes) -> None:
        try:
            self._sockets[fd].send(request)
            self._poll.modify(fd, select.EPOLLIN)
        except OSError:
            self._lose(fd)

    def _hear(self, fd: int) -> None:
        try:
            data = os.read(fd, 65536)
        except OSError:
            data = b""
        if not data:
            self._lose(fd)
            return
        now_ns = time.time_ns()
        self._answered.add(fd)
        for stamp in STAMP.findall(data):
            self.ages_ms.append((now_ns - int(stamp)) / 1e6)

    def _lose(self, fd: int) -> None:
        self._poll.unregister(fd)
        self._sockets.pop(fd).close()
        self._answered.discard(fd)
        self.lost += 1

    def serve(self) -> None:
        """Listens and answers standard input until that ends."""
        self._poll.register(0, select.EPOLLIN)
        while True:
            if self.turn(1.0):
                if not os.read(0, 4096):
                    return
                ages_ms = sorted(self.ages_ms)
                at = {str(q): ages_ms[int(q * len(ages_ms))] if ages_ms else 0.0 for q in (0.5, 0.99, 0.999)}
                say({"heard": len(ages_ms), "lost": self.lost, "ages_ms": at})
                self.ages_ms = array("d")


def say(fact: dict[str, object]) -> None:
    print(json.dumps(fact), flush=True)


def main() -> None:
    with open(0, "rb", buffering=0, closefd=False) as orders:  # nothing read ahead: epoll must see the rest
        listeners = Listeners(Order(**json.loads(orders.readline())))
    try:
        say({"seconds": listeners.connect(), "lost": listeners.lost})
    except TimeoutError as late:
        sys.exit(f"too slow: {late}")
    listeners.serve()


if __name__ == "__main__":
    main()
