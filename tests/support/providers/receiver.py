"""An organiser's server on loopback that receives webhooks, and fails on demand."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from standardwebhooks.webhooks import Webhook


@dataclass(frozen=True)
class Received:
    """One received webhook."""

    path: str
    headers: dict[str, str]
    body: str

    def verified(self, secret: str) -> Any:
        """The body as the official library verifies it; raises if the signature is wrong."""
        return Webhook(secret).verify(self.body, self.headers)


@dataclass
class Receiver:
    """Answers each request with the next of `faults`, then with success: failing, moved, gone, huge, silent, dripping,
    cut, or `held`, which succeeds when `release` is set.
    """

    url: str = ""
    faults: list[str] = field(default_factory=list)
    received: list[Received] = field(default_factory=list)
    concurrent: int = 0
    concurrent_max: int = 0
    release: asyncio.Event = field(default_factory=asyncio.Event)
    _closing: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def event_types(self) -> list[str]:
        """Types of the received events, in order of arrival."""
        return [webhook.body.split('"type": "')[1].split('"')[0] for webhook in self.received]

    async def handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.concurrent += 1
        self.concurrent_max = max(self.concurrent_max, self.concurrent)
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
            headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in head[1:])}
            body = (await reader.readexactly(int(headers["content-length"]))).decode()
            self.received.append(Received(head[0].split(" ")[1], headers, body))
            fault = self.faults.pop(0) if self.faults else "good"
            await getattr(self, f"_{fault}")(writer)
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            self.concurrent -= 1
            writer.close()

    async def _answer(self, writer: asyncio.StreamWriter, status: str, *headers: str) -> None:
        lines = [f"HTTP/1.1 {status}", "content-length: 0", "connection: close", *headers]
        writer.write(("\r\n".join(lines) + "\r\n\r\n").encode())
        await writer.drain()

    async def _good(self, writer: asyncio.StreamWriter) -> None:
        await self._answer(writer, "204 No Content")

    async def _held(self, writer: asyncio.StreamWriter) -> None:
        await self.release.wait()
        await self._good(writer)

    async def _failing(self, writer: asyncio.StreamWriter) -> None:
        await self._answer(writer, "500 Oh")

    async def _moved(self, writer: asyncio.StreamWriter) -> None:
        await self._answer(writer, "307 Elsewhere", f"location: {self.url}/elsewhere")

    async def _gone(self, writer: asyncio.StreamWriter) -> None:
        await self._answer(writer, "410 Gone")

    async def _cut(self, writer: asyncio.StreamWriter) -> None:
        writer.transport.abort()

    async def _silent(self, writer: asyncio.StreamWriter) -> None:
        await self._closing.wait()

    async def _dripping(self, writer: asyncio.StreamWriter) -> None:
        """Sends a byte now and then, so that no single read times out."""
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 1000\r\n\r\n")
        while not self._closing.is_set():
            writer.write(b" ")
            await writer.drain()
            await asyncio.sleep(0.02)

    async def _huge(self, writer: asyncio.StreamWriter) -> None:
        """A success whose body never ends."""
        writer.write(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n")
        while not self._closing.is_set():
            writer.write(b"10000\r\n" + b"x" * 0x10000 + b"\r\n")
            await writer.drain()


@asynccontextmanager
async def webhook_receiver() -> AsyncIterator[Receiver]:
    """A receiver that listens inside this context."""
    receiver = Receiver()
    server = await asyncio.start_server(receiver.handle, "127.0.0.1", 0)
    receiver.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    try:
        yield receiver
    finally:
        receiver._closing.set()
        receiver.release.set()
        server.close()
        await server.wait_closed()
