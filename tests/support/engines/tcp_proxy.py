"""A TCP proxy in front of PostgreSQL or Redis, with faults: resets, silence, another server, a delay, lost answers.

It runs in a thread of its own, so a test that blocks does not stop it. `python -m tests.support.engines.tcp_proxy URL
DELAY_MS` prints its port and runs until standard input ends: a benchmark must not share its process with a proxy.
"""

import asyncio
import contextlib
import re
import sys
import threading
from collections.abc import AsyncIterator, Coroutine, Iterator
from pathlib import Path
from typing import Any, Literal, Self
from urllib.parse import urlsplit

from onsale.local.ports import HOST, free_port

Mode = Literal["passes", "resets", "swallows", "answers lost"]
COMMIT = re.compile(rb"COMMIT(?!TED)")  # not the READ COMMITTED of a BEGIN


class TcpProxy:
    """Forwards connections to the server at `url`; what goes there arrives `delay_s` later.

    The connection is reset instead of forwarding the answer to the next `lose_next` commits of transactions whose
    statements contain `containing`, or with `autocommit` to the next such statements, which commit as they end: the
    server has committed, and the client cannot know. `lost` counts them.
    """

    def __init__(self, url: str, *, delay_s: float = 0) -> None:
        self._url, self.port, self._delay_s = url, free_port(), delay_s
        self._mode: Mode = "passes"
        self.lose_next, self.lost, self.containing, self.autocommit = 0, 0, b"", False
        self._loop = asyncio.new_event_loop()
        self._open: set[asyncio.StreamWriter] = set()
        self._ready = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    @property
    def url(self) -> str:
        """The server's URL with the address of this proxy."""
        return with_port(self._url, self.port)

    def redirect_to(self, url: str) -> None:
        self._url = url

    def set_mode(self, mode: Mode) -> None:
        """`resets` also resets open connections; `swallows` keeps them open and forwards nothing; `answers lost`
        forwards what is sent to the server and nothing of what comes back.
        """
        self._mode = mode
        if mode == "resets":
            self._loop.call_soon_threadsafe(self._reset_connections)

    def set_delay(self, delay_s: float) -> None:
        """A shorter delay is for new connections: on an old one a later byte would overtake an earlier one."""
        self._delay_s = delay_s

    def _reset_connections(self) -> None:
        for writer in list(self._open):
            writer.transport.abort()

    async def _forward(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        server = urlsplit(self._url)
        try:
            if self._mode == "resets":
                raise ConnectionResetError
            far_reader, far_writer = await asyncio.open_connection(server.hostname, server.port)
        except OSError:
            writer.transport.abort()
            return
        ends = {writer, far_writer}
        self._open |= ends
        await self._relay(reader, writer, far_reader, far_writer)
        self._open -= ends

    async def _relay(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, far_reader: asyncio.StreamReader,
        far_writer: asyncio.StreamWriter,
    ) -> None:  # fmt: skip
        matches = committing = False

        async def send() -> None:
            nonlocal matches, committing
            while data := await reader.read(65536):
                matches = self.lose_next > 0 and (matches or self.containing in data)
                if matches and (self.autocommit or COMMIT.search(data)):
                    self.lose_next -= 1
                    committing = True
                if self._delay_s:
                    self._loop.call_later(self._delay_s, far_writer.write, data)
                elif self._mode != "swallows":
                    far_writer.write(data)

        async def receive() -> None:
            while data := await far_reader.read(65536):
                if committing:  # the server has committed
                    self.lost += 1
                    writer.transport.abort()
                    far_writer.transport.abort()
                elif self._mode not in ("swallows", "answers lost"):
                    writer.write(data)

        await asyncio.gather(_until_closed(send(), far_writer), _until_closed(receive(), writer))

    def _run(self) -> None:
        async def serve() -> None:
            self._stop = asyncio.Event()
            server = await asyncio.start_server(self._forward, HOST, self.port)
            self._ready.set()
            await self._stop.wait()
            server.close()
            self._reset_connections()

        with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
            runner.run(serve())

    def __enter__(self) -> Self:
        self._thread.start()
        self._ready.wait(10)
        return self

    def __exit__(self, *_exception: object) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(10)


async def _until_closed(pumping: Coroutine[Any, Any, None], writer: asyncio.StreamWriter) -> None:
    """Forwards in one direction until that end closes, then closes the other."""
    with contextlib.suppress(OSError):
        await pumping
    writer.close()


def with_port(url: str, port: int) -> str:
    """The URL with another port on this machine."""
    parts = urlsplit(url)
    user, at, _ = parts.netloc.rpartition("@")
    return parts._replace(netloc=f"{user}{at}{HOST}:{port}").geturl()


@contextlib.contextmanager
def tcp_proxies(*urls: str) -> Iterator[list[TcpProxy]]:
    """A proxy in front of each of these servers."""
    with contextlib.ExitStack() as stack:
        yield [stack.enter_context(TcpProxy(url)) for url in urls]


@contextlib.asynccontextmanager
async def with_delay(url: str, delay_ms: float) -> AsyncIterator[str]:
    """The same address through a proxy in a process of its own: a database that is further away."""
    command = [sys.executable, "-P", "-m", __name__, url, str(delay_ms)]
    pipe, environment = asyncio.subprocess.PIPE, {"PYTHONPATH": str(Path(__file__).parents[3])}
    process = await asyncio.create_subprocess_exec(*command, stdin=pipe, stdout=pipe, env=environment)
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        yield with_port(url, int(await process.stdout.readline()))
    finally:
        process.stdin.close()
        await process.wait()


if __name__ == "__main__":
    with TcpProxy(sys.argv[1], delay_s=float(sys.argv[2]) / 1000) as proxy:
        print(proxy.port, flush=True)  # noqa: T201
        sys.stdin.read()
