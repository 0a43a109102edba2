"""An SSE client on a raw socket: keeps the received bytes and parses their events."""

import asyncio
import contextlib
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Self

import orjson

from tests.notifier.frames import EVENT

UPDATES = f"/events/{EVENT}/sections/updates"


def raw_request(token: str, path: str = UPDATES, *, method: str = "GET", version: str = "HTTP/1.1") -> bytes:
    return f"{method} {path} {version}\r\nhost: x\r\nauthorization: Bearer {token}\r\n\r\n".encode()


@dataclass
class SseEvent:
    name: str
    data: Any
    frame_id: str | None


class SseClient:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer
        self.status = 0
        self.headers: dict[str, str] = {}
        self.body = b""
        self.complete = self.closed = False
        self._task: asyncio.Task[None] | None = None

    @classmethod
    async def open(cls, port: int, path: str, *, token: str | None = None, **headers: str) -> Self:
        """Opens a stream and reads its response head."""
        client = cls(*await asyncio.open_connection("127.0.0.1", port))
        fields = {"host": f"127.0.0.1:{port}", **{k.replace("_", "-"): v for k, v in headers.items()}}
        if token is not None:
            fields["authorization"] = f"Bearer {token}"
        head = "".join(f"{name}: {value}\r\n" for name, value in fields.items())
        client._writer.write(f"GET {path} HTTP/1.1\r\n{head}\r\n".encode())
        async with asyncio.timeout(5):
            await client._read_head()
        client._task = asyncio.create_task(client._read_body())
        return client

    async def _read_head(self) -> None:
        first, *lines = (await self._reader.readuntil(b"\r\n\r\n")).decode().strip().split("\r\n")
        self.status = int(first.split()[1])
        self.headers = dict(line.split(": ", 1) for line in lines)

    async def _read_body(self) -> None:
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            if "content-length" in self.headers:
                self.body = await self._reader.readexactly(int(self.headers["content-length"]))
                self.complete = True
            while not self.complete:
                size = int((await self._reader.readuntil(b"\r\n")).strip(), 16)
                self.body += (await self._reader.readexactly(size + 2))[:-2]
                self.complete = size == 0
            await self._reader.read()
        self.closed = True

    @property
    def blocks(self) -> list[dict[str, str]]:
        whole = self.body.decode().split("\n\n")[:-1]
        return [dict(line.split(": ", 1) for line in block.split("\n") if not line.startswith(":")) for block in whole]

    @property
    def events(self) -> list[SseEvent]:
        return [
            SseEvent(block["event"], orjson.loads(block["data"]), block.get("id"))
            for block in self.blocks
            if block.get("event", "beat") != "beat"
        ]

    def all(self, name: str) -> list[Any]:
        return [event.data for event in self.events if event.name == name]

    def last(self, name: str) -> Any:
        all_data = self.all(name)
        return all_data[-1] if all_data else None

    @property
    def head_seq(self) -> int | None:
        """The head of the last `line` event."""
        line = self.last("line")
        return line["head_seq"] if line else None

    @property
    def retries(self) -> list[int]:
        return [int(block["retry"]) for block in self.blocks if "retry" in block]

    @property
    def last_id(self) -> str | None:
        ids = [event.frame_id for event in self.events if event.frame_id]
        return ids[-1] if ids else None

    @property
    def problem(self) -> str:
        return str(orjson.loads(self.body)["type"]).removeprefix("/problems/")

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        self._writer.close()
        with contextlib.suppress(OSError):
            await self._writer.wait_closed()


def all_have_head(clients: Iterable[SseClient], head_seq: int) -> bool:
    return all(client.head_seq == head_seq for client in clients)
