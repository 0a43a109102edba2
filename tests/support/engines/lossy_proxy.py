"""A wire to PostgreSQL on which the answer to a commit can be lost: the server has written, and we do not know."""

import asyncio
import contextlib
import re
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import urlsplit

from onsale.local.ports import HOST

COMMIT = re.compile(rb"COMMIT(?!TED)")  # not what a transaction begins with


class LossyWire:
    """Between our connections and the server. `lose_next` commits are written and never answered, of transactions in
    which somebody said `about`.
    """

    def __init__(self, url: str) -> None:
        at = urlsplit(url)
        self._server, self._head, self._tail = (at.hostname, at.port), url.partition("@")[0], at.path
        self._pumps: set[asyncio.Task[None]] = set()
        self.port = self.lose_next = self.lost = 0
        self.about = b""

    @property
    def url(self) -> str:
        return f"{self._head}@{HOST}:{self.port}{self._tail}"

    async def carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection."""
        far_reader, far_writer = await asyncio.open_connection(*self._server)
        spoken_of = committing = False

        async def there() -> None:
            nonlocal committing, spoken_of
            while some := await reader.read(65536):
                spoken_of = self.lose_next > 0 and (spoken_of or self.about in some)
                if spoken_of and COMMIT.search(some):
                    self.lose_next -= 1
                    committing = True
                far_writer.write(some)
            far_writer.close()

        async def back() -> None:
            while some := await far_reader.read(65536):
                if committing:  # it is written now
                    self.lost += 1
                    writer.transport.abort()
                    far_writer.close()
                    return
                writer.write(some)
            writer.close()

        for way in (there(), back()):
            self._pumps.add(pump := asyncio.create_task(_quietly(way)))
            pump.add_done_callback(self._pumps.discard)

    async def close(self) -> None:
        for pump in self._pumps:
            pump.cancel()
        await asyncio.gather(*self._pumps, return_exceptions=True)


async def _quietly(way: Coroutine[Any, Any, None]) -> None:
    with contextlib.suppress(OSError):
        await way


@asynccontextmanager
async def lossy_proxy(postgres_url: str) -> AsyncIterator[LossyWire]:
    """The same database at the other end of such a wire."""
    wire = LossyWire(postgres_url)
    server = await asyncio.start_server(wire.carry, HOST, 0)
    wire.port = server.sockets[0].getsockname()[1]
    try:
        yield wire
    finally:
        server.close()
        await wire.close()
