"""A TCP proxy in front of PostgreSQL or Redis that can reset connections, drop all data, or switch to another server.

It runs in its own thread, so a test that blocks does not stop it.
"""

import asyncio
import contextlib
import threading
from collections.abc import Iterator
from typing import Literal, Self
from urllib.parse import urlsplit, urlunsplit

from onsale.local.ports import HOST, free_port

Mode = Literal["passes", "resets", "swallows"]


class FaultProxy:
    """Forwards connections to the server at `url`."""

    def __init__(self, url: str) -> None:
        self._url, self.port, self._mode = url, free_port(), "passes"
        self._loop = asyncio.new_event_loop()
        self._open: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._ready = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    @property
    def url(self) -> str:
        """The server's URL with the address of this proxy."""
        parts = urlsplit(self._url)
        return urlunsplit(parts._replace(netloc=f"{parts.netloc.rpartition('@')[0]}@{HOST}:{self.port}"))

    def redirect_to(self, url: str) -> None:
        self._url = url

    def set_mode(self, mode: Mode) -> None:
        """`resets` also resets open connections; `swallows` keeps them open and forwards nothing."""
        self._mode = mode
        if mode == "resets":
            self._loop.call_soon_threadsafe(self.reset_connections)

    def reset_connections(self) -> None:
        for writer in list(self._open):
            writer.transport.abort()

    async def _forward(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._mode == "resets":
            writer.transport.abort()
            return
        parts = urlsplit(self._url)
        try:
            far_reader, far_writer = await asyncio.open_connection(parts.hostname, parts.port)
        except OSError:
            writer.transport.abort()
            return
        ends = {writer, far_writer}
        self._open |= ends
        await asyncio.gather(self._pump(reader, far_writer), self._pump(far_reader, writer))
        self._open -= ends

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(65536):
                if self._mode != "swallows":
                    writer.write(data)
        writer.close()

    def _run(self) -> None:
        async def serve() -> None:
            self._stop = asyncio.Event()
            server = await asyncio.start_server(self._forward, HOST, self.port)
            self._ready.set()
            await self._stop.wait()
            server.close()
            self.reset_connections()

        with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
            runner.run(serve())

    def __enter__(self) -> Self:
        self._thread.start()
        self._ready.wait(10)
        return self

    def __exit__(self, *_exception: object) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(10)


@contextlib.contextmanager
def fault_proxies(*urls: str) -> Iterator[list[FaultProxy]]:
    """A proxy in front of each of these servers."""
    with contextlib.ExitStack() as stack:
        yield [stack.enter_context(FaultProxy(url)) for url in urls]
