"""A TCP proxy between the notifier and Redis, which a test can disconnect, restore or silence."""

import asyncio
import contextlib
from typing import Any
from urllib.parse import urlsplit


class RedisProxy:
    """While `silent`, connections stay open and no byte passes."""

    def __init__(self, url: str) -> None:
        redis = urlsplit(url)
        self._address = (redis.hostname, redis.port)
        self._password = redis.password or ""
        self._open: list[asyncio.StreamWriter] = []
        self._pumps: set[asyncio.Future[Any]] = set()
        self._server: asyncio.Server | None = None
        self.silent = False
        self.port = 0

    @property
    def url(self) -> str:
        return f"redis://:{self._password}@127.0.0.1:{self.port}/0"

    async def restore(self) -> None:
        self._server = await asyncio.start_server(self._relay, "127.0.0.1", self.port)
        self.port = self._server.sockets[0].getsockname()[1]

    async def disconnect(self) -> None:
        if self._server is not None:
            self._server.close()
            self._server = None
        for writer in self._open:
            writer.transport.abort()
        await asyncio.gather(*self._pumps)
        self._open.clear()

    async def _relay(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        redis_reader, redis_writer = await asyncio.open_connection(*self._address)
        self._open += [writer, redis_writer]
        if self._server is None:  # the test disconnected it meanwhile
            await self.disconnect()
            return
        self._pumps.add(task := asyncio.gather(self._pump(reader, redis_writer), self._pump(redis_reader, writer)))
        task.add_done_callback(self._pumps.discard)

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(65536):
                if not self.silent:
                    writer.write(data)
        writer.close()
