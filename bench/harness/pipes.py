"""Requests to Valkey and PostgreSQL over many connections, each a closed loop.

For Valkey an operation is a generator that yields prepared commands, one write each, and receives their replies;
PostgreSQL is called through asyncpg. The latency is that of a whole operation.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, cast
from urllib.parse import urlsplit

import hiredis

from bench.harness.load import quantile

Operation = Generator[tuple[bytes, int], list[Any], None]


@dataclass
class Timing:
    """The result of a run: fans served, seconds, and the latency of each operation."""

    fans: int = 0
    seconds: float = 0.0
    latencies_ms: list[float] = field(default_factory=list)

    def add(self, other: "Timing") -> None:
        self.fans += other.fans
        self.seconds += other.seconds
        self.latencies_ms += other.latencies_ms

    @property
    def per_second(self) -> float:
        return self.fans / self.seconds

    @property
    def p95_ms(self) -> float:
        return self.quantile_ms(0.95)

    def quantile_ms(self, share: float) -> float:
        """The latency that this share of the requests did not exceed."""
        return quantile(self.latencies_ms, share)


def prepare(*commands: Sequence[object]) -> tuple[bytes, int]:
    """Commands as one write, and the number of their replies."""
    plain = [tuple(part if isinstance(part, bytes) else str(part) for part in command) for command in commands]
    return b"".join(hiredis.pack_command(command) for command in plain), len(commands)  # type: ignore[arg-type]


def one_round_trip(*commands: Sequence[object]) -> Operation:
    """An operation of one round trip."""
    return _one_round_trip(prepare(*commands))


def _one_round_trip(prepared: tuple[bytes, int]) -> Operation:
    yield prepared


class Pipe(asyncio.Protocol):
    """One connection, one operation after another."""

    def __init__(self) -> None:
        self._reader = hiredis.Reader()
        self._replies: list[Any] = []
        self._replies_expected = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def start(self, operations: Iterator[Operation], latencies_ms: list[float]) -> "asyncio.Future[None]":
        """Works through the operations, together with the other pipes, until there are none left."""
        self._operations, self._latencies_ms = operations, latencies_ms
        self._done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._begin()
        return self._done

    def _begin(self) -> None:
        operation = next(self._operations, None)
        if operation is None:
            self._done.set_result(None)
            return
        self._operation, self._started_s = operation, time.perf_counter()
        self._write(*next(operation))

    def _write(self, prepared: bytes, wanted: int) -> None:
        self._replies, self._replies_expected = [], wanted
        self._transport.write(prepared)

    def data_received(self, data: bytes) -> None:
        self._reader.feed(data)
        while (reply := self._reader.gets()) is not False:
            if isinstance(reply, hiredis.ReplyError):
                self._done.set_exception(reply)
                self._transport.abort()
                return
            self._replies.append(reply)
            if len(self._replies) == self._replies_expected:
                self._send_next()

    def _send_next(self) -> None:
        try:
            self._write(*self._operation.send(self._replies))
        except StopIteration:
            self._latencies_ms.append((time.perf_counter() - self._started_s) * 1000)
            self._begin()

    def connection_lost(self, exc: Exception | None) -> None:
        if not self._done.done():
            self._done.set_exception(exc or ConnectionError("Valkey closed the connection"))

    def close(self) -> None:
        self._transport.close()


class Pipes:
    """Connections to one Valkey."""

    def __init__(self, pipes: list[Pipe]) -> None:
        self._pipes = pipes

    @classmethod
    async def open(cls, redis_url: str, connections: int) -> "Pipes":
        at = urlsplit(redis_url)
        assert at.hostname is not None
        assert at.port is not None
        loop, pipes = asyncio.get_running_loop(), []
        for _ in range(connections):
            _, pipe = await loop.create_connection(Pipe, at.hostname, at.port)
            pipes.append(pipe)
            if at.password:
                await pipe.start(iter([one_round_trip(("AUTH", at.password))]), [])
        return cls(pipes)

    async def run(self, operations: Iterable[Operation], *, fans: int) -> Timing:
        """Runs all operations over all connections; `fans` is how many they serve."""
        shared, latencies_ms = iter(operations), list[float]()
        started_s = time.perf_counter()
        await asyncio.gather(*(pipe.start(shared, latencies_ms) for pipe in self._pipes))
        return Timing(fans, time.perf_counter() - started_s, latencies_ms)

    def close(self) -> None:
        for pipe in self._pipes:
            pipe.close()


async def run_calls(calls: Iterable[Callable[[], Awaitable[object]]], *, connections: int, fans: int) -> Timing:
    """Runs coroutines, `connections` at a time."""
    shared, latencies_ms = iter(calls), list[float]()

    async def work() -> None:
        for call in shared:
            started_s = time.perf_counter()
            await call()
            latencies_ms.append((time.perf_counter() - started_s) * 1000)

    started_s = time.perf_counter()
    await asyncio.gather(*(work() for _ in range(connections)))
    return Timing(fans, time.perf_counter() - started_s, latencies_ms)
