"""An organiser's server on loopback that takes webhooks, and behaves at its worst on demand."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from standardwebhooks.webhooks import Webhook


@dataclass(frozen=True)
class Received:
    """One webhook as it came in."""

    path: str
    headers: dict[str, str]
    body: str

    def verified(self, secret: str) -> Any:
        """What the official library makes of it; raises if the signature is wrong."""
        return Webhook(secret).verify(self.body, self.headers)


@dataclass
class Receiver:
    """Each request is answered by the next of `moods`, and then well: failing, moved, gone, huge, silent, dripping or
    cut; `held` are answered when `let_go` is set.
    """

    url: str = ""
    faults: list[str] = field(default_factory=list)
    received: list[Received] = field(default_factory=list)
    at_once: int = 0
    at_once_max: int = 0
    release: asyncio.Event = field(default_factory=asyncio.Event)
    _leave: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def kinds(self) -> list[str]:
        """What was told, in order of arrival."""
        return [one.body.split('"type": "')[1].split('"')[0] for one in self.received]

    async def take(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.at_once += 1
        self.at_once_max = max(self.at_once_max, self.at_once)
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
            headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in head[1:])}
            body = (await reader.readexactly(int(headers["content-length"]))).decode()
            self.received.append(Received(head[0].split(" ")[1], headers, body))
            mood = self.faults.pop(0) if self.faults else "good"
            await getattr(self, f"_{mood}")(writer)
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            self.at_once -= 1
            writer.close()

    async def _answer(self, writer: asyncio.StreamWriter, status: str, *more: str) -> None:
        lines = [f"HTTP/1.1 {status}", "content-length: 0", "connection: close", *more]
        writer.write(("\r\n".join(lines) + "\r\n\r\n").encode())
        await writer.drain()

    async def _good(self, writer: asyncio.StreamWriter) -> None:
        await self._answer(writer, "204 Taken")

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
        await self._leave.wait()

    async def _dripping(self, writer: asyncio.StreamWriter) -> None:
        """A byte now and then: no single read is late."""
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 1000\r\n\r\n")
        while not self._leave.is_set():
            writer.write(b" ")
            await writer.drain()
            await asyncio.sleep(0.02)

    async def _huge(self, writer: asyncio.StreamWriter) -> None:
        """A success whose body never ends."""
        writer.write(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n")
        while not self._leave.is_set():
            writer.write(b"10000\r\n" + b"x" * 0x10000 + b"\r\n")
            await writer.drain()


@asynccontextmanager
async def receiving() -> AsyncIterator[Receiver]:
    """It listens inside this context."""
    receiver = Receiver()
    server = await asyncio.start_server(receiver.take, "127.0.0.1", 0)
    receiver.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    try:
        yield receiver
    finally:
        receiver._leave.set()
        receiver.release.set()
        server.close()
        await server.wait_closed()
