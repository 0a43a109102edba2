"""A proxy in front of PostgreSQL that loses answers to commits: the server has committed, the client cannot know."""

import asyncio
import contextlib
import re
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import urlsplit

from onsale.local.ports import HOST

COMMIT = re.compile(rb"COMMIT(?!TED)")  # not the READ COMMITTED of a BEGIN


class LossyProxy:
    """Drops the connection instead of forwarding the answer to the next `lose_next` commits of transactions whose
    statements contain `containing`.
    """

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        self._server, self._head, self._tail = (parts.hostname, parts.port), url.partition("@")[0], parts.path
        self._pumps: set[asyncio.Task[None]] = set()
        self.port = self.lose_next = self.lost = 0
        self.containing = b""

    @property
    def url(self) -> str:
        return f"{self._head}@{HOST}:{self.port}{self._tail}"

    async def forward(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Forwards one connection."""
        far_reader, far_writer = await asyncio.open_connection(*self._server)
        matches = committing = False

        async def send() -> None:
            nonlocal committing, matches
            while data := await reader.read(65536):
                matches = self.lose_next > 0 and (matches or self.containing in data)
                if matches and COMMIT.search(data):
                    self.lose_next -= 1
                    committing = True
                far_writer.write(data)
            far_writer.close()

        async def receive() -> None:
            while data := await far_reader.read(65536):
                if committing:  # the server has committed
                    self.lost += 1
                    writer.transport.abort()
                    far_writer.close()
                    return
                writer.write(data)
            writer.close()

        for pumping in (send(), receive()):
            self._pumps.add(pump := asyncio.create_task(_ignore_os_errors(pumping)))
            pump.add_done_callback(self._pumps.discard)

    async def close(self) -> None:
        for pump in self._pumps:
            pump.cancel()
        await asyncio.gather(*self._pumps, return_exceptions=True)


async def _ignore_os_errors(pumping: Coroutine[Any, Any, None]) -> None:
    with contextlib.suppress(OSError):
        await pumping


@asynccontextmanager
async def lossy_proxy(postgres_url: str) -> AsyncIterator[LossyProxy]:
    """A proxy in front of this database."""
    proxy = LossyProxy(postgres_url)
    server = await asyncio.start_server(proxy.forward, HOST, 0)
    proxy.port = server.sockets[0].getsockname()[1]
    try:
        yield proxy
    finally:
        server.close()
        await proxy.close()
