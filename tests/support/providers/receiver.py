"""An organiser's server on loopback that receives webhooks, and fails on demand."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from standardwebhooks.webhooks import Webhook

from tests.support.providers.faulty_server import FaultyServer

STATUSES = {"good": "204 No Content", "failing": "500 Oh", "gone": "410 Gone"}


@dataclass(frozen=True)
class Received:
    """One received webhook."""

    path: str
    headers: dict[str, str]
    body: str

    def verified(self, secret: str) -> Any:
        """The body as the official library verifies it; raises if the signature is wrong."""
        return Webhook(secret).verify(self.body, self.headers)


class Receiver(FaultyServer):
    """Answers each request with the next of `faults`, then with success: failing, moved, gone, huge, silent, dripping,
    cut, or `held`, which succeeds when `release` is set.
    """

    def __init__(self) -> None:
        super().__init__()
        self.faults: list[str] = []
        self.received: list[Received] = []
        self.concurrent = self.concurrent_max = 0
        self.release = asyncio.Event()

    @property
    def event_types(self) -> list[str]:
        """Types of the received events, in order of arrival."""
        return [webhook.body.split('"type": "')[1].split('"')[0] for webhook in self.received]

    async def handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.concurrent += 1
        self.concurrent_max = max(self.concurrent_max, self.concurrent)
        try:
            await super().handle(reader, writer)
        finally:
            self.concurrent -= 1

    async def respond(self, head: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        request, *lines = head.split("\r\n")
        headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines)}
        body = (await reader.readexactly(int(headers["content-length"]))).decode()
        self.received.append(Received(request.split(" ")[1], headers, body))
        match self.faults.pop(0) if self.faults else "good":
            case "moved":
                await self.answer(writer, "307 Elsewhere", f"location: {self.url}/elsewhere")
            case "cut":
                writer.transport.abort()
            case "silent":
                await self.silent(writer)
            case "dripping":
                await self.dripping(writer)
            case "huge":
                await self._endless(writer)
            case "held":
                await self.release.wait()
                await self.answer(writer, "204 No Content")
            case fault:
                await self.answer(writer, STATUSES[fault])

    async def _endless(self, writer: asyncio.StreamWriter) -> None:
        """A success whose body never ends."""
        writer.write(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n")
        while not self.closing.is_set():
            writer.write(b"10000\r\n" + b"x" * 0x10000 + b"\r\n")
            await writer.drain()


@asynccontextmanager
async def webhook_receiver() -> AsyncIterator[Receiver]:
    """A receiver that listens inside this context."""
    async with Receiver().listening() as receiver:
        try:
            yield receiver
        finally:
            receiver.release.set()
