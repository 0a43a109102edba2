"""An HTTP server on loopback that fails on demand, in the ways that other people's servers do."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Self


class FaultyServer:
    """A subclass answers its requests; `silent` and `dripping` never end."""

    def __init__(self) -> None:
        self.url = ""
        self.closing = asyncio.Event()

    async def respond(self, head: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answers a request of which only the head was read."""
        raise NotImplementedError

    async def handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await self.respond((await reader.readuntil(b"\r\n\r\n")).decode(), reader, writer)
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    async def answer(self, writer: asyncio.StreamWriter, status: str, *headers: str, body: bytes = b"") -> None:
        lines = [f"HTTP/1.1 {status}", f"content-length: {len(body)}", "connection: close", *headers]
        writer.write("\r\n".join([*lines, "\r\n"]).encode() + body)
        await writer.drain()

    async def silent(self, writer: asyncio.StreamWriter) -> None:
        await self.closing.wait()

    async def dripping(self, writer: asyncio.StreamWriter) -> None:
        """Sends a byte now and then, so that no single read times out."""
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 100000\r\n\r\n")
        while not self.closing.is_set():
            writer.write(b" ")
            await writer.drain()
            await asyncio.sleep(0.02)

    @asynccontextmanager
    async def listening(self, path: str = "") -> AsyncIterator[Self]:
        server = await asyncio.start_server(self.handle, "127.0.0.1", 0)
        self.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}{path}"
        try:
            yield self
        finally:
            self.closing.set()
            server.close()
            await server.wait_closed()
