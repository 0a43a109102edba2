"""A wire to an engine that can be cut, swallow everything, or lead to an engine that was started anew elsewhere.

It runs in a thread of its own: a test that waits does not hold it up.
"""

import asyncio
import contextlib
import threading
from collections.abc import Iterator
from typing import Literal, Self
from urllib.parse import urlsplit, urlunsplit

from onsale.local.ports import HOST, free_port

Way = Literal["passes", "resets", "swallows"]


class FaultWire:
    """Between our connections and the engine at `url`."""

    def __init__(self, url: str) -> None:
        self._url, self.port, self._way = url, free_port(), "passes"
        self._loop = asyncio.new_event_loop()
        self._open: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._ready = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    @property
    def url(self) -> str:
        """The engine's address as it is reached over this wire."""
        at = urlsplit(self._url)
        return urlunsplit(at._replace(netloc=f"{at.netloc.rpartition('@')[0]}@{HOST}:{self.port}"))

    def lead_to(self, url: str) -> None:
        self._url = url

    def becomes(self, way: Way) -> None:
        """From now on; what is open is reset, unless everything is swallowed: then it stays open and says nothing."""
        self._way = way
        if way == "resets":
            self._loop.call_soon_threadsafe(self.cut)

    def cut(self) -> None:
        for writer in list(self._open):
            writer.transport.abort()

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._way == "resets":
            writer.transport.abort()
            return
        at = urlsplit(self._url)
        try:
            far_reader, far_writer = await asyncio.open_connection(at.hostname, at.port)
        except OSError:
            writer.transport.abort()
            return
        ends = {writer, far_writer}
        self._open |= ends
        await asyncio.gather(self._pump(reader, far_writer), self._pump(far_reader, writer))
        self._open -= ends

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while some := await reader.read(65536):
                if self._way != "swallows":
                    writer.write(some)
        writer.close()

    def _run(self) -> None:
        async def serve() -> None:
            self._stop = asyncio.Event()
            server = await asyncio.start_server(self._carry, HOST, self.port)
            self._ready.set()
            await self._stop.wait()
            server.close()
            self.cut()

        with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
            runner.run(serve())

    def __enter__(self) -> Self:
        self._thread.start()
        self._ready.wait(10)
        return self

    def __exit__(self, *_ended: object) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(10)


@contextlib.contextmanager
def wired(*urls: str) -> Iterator[list[FaultWire]]:
    """A wire to each of these engines."""
    with contextlib.ExitStack() as stack:
        yield [stack.enter_context(FaultWire(url)) for url in urls]
