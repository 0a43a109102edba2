"""A light load generator: many keep-alive connections, each sends a prebuilt request and waits for the whole answer.

Closed loop, in a process of its own, no parsing beyond the status and `Content-Length`. Latencies are recorded between
the warm-up and the end; statuses and bodies from first to last, so that a database can be compared with them.
"""

import asyncio
import gc
import itertools
import multiprocessing
import random
import re
import time
from array import array
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from typing import cast

import uvloop

DRAIN_MAX_S = 20.0
HEAD_MAX_BYTES = 16 * 1024
CONTENT_LENGTH = re.compile(rb"\r\ncontent-length: *(\d+)", re.IGNORECASE)
RETRY_AFTER = re.compile(rb"\r\nretry-after: *(\d+)", re.IGNORECASE)
STATUSES_WITHOUT_BODY = frozenset({204, 304})


@dataclass(frozen=True)
class Load:
    """What to send, where, over how many connections and for how long. `repeat` starts over at the end of the list.

    Answers with `expected_status` count; their bodies are kept if that is 201 or 202. A fan waits about `pause_s`
    between an answer and the next request. Connections go to `port` and `more_ports` alternately.
    """

    host: str
    port: int
    requests: Sequence[bytes]
    connections: int
    seconds: float
    warm_up_s: float = 1.0
    repeat: bool = False
    expected_status: int = 201
    pause_s: float = 0.0
    more_ports: tuple[int, ...] = ()


@dataclass
class LoadResult:
    """The answers. `latencies_ms` has those with the expected status inside the measured time only."""

    seconds: float
    statuses: Counter[int] = field(default_factory=Counter)
    latencies_ms: "array[float]" = field(default_factory=lambda: array("d"))
    created: list[bytes] = field(default_factory=list)
    refused: list[bytes] = field(default_factory=list)
    broken: int = 0
    ran_out: bool = False

    @property
    def per_second(self) -> float:
        return len(self.latencies_ms) / self.seconds


@dataclass(frozen=True, slots=True)
class Answer:
    """One answer; status 0: the connection broke before it."""

    status: int
    body: bytes = b""
    head: bytes = b""

    @property
    def retry_after_s(self) -> float | None:
        """What `Retry-After` says, in seconds."""
        found = RETRY_AFTER.search(self.head)
        return float(found[1]) if found else None


class RequestSource:
    """Supplies the next request until the time is over, and records the answers."""

    def __init__(self, load: Load) -> None:
        self.result = LoadResult(load.seconds)
        self._expected_status = load.expected_status
        self.pause_s = load.pause_s
        self._requests: Iterator[bytes] = itertools.cycle(load.requests) if load.repeat else iter(load.requests)
        self.measured_from = time.perf_counter() + load.warm_up_s
        self.ends_at = self.measured_from + load.seconds

    def next_request(self) -> bytes | None:
        """The next request; None when the time is over or the list is used up."""
        if time.perf_counter() >= self.ends_at:
            return None
        request = next(self._requests, None)
        self.result.ran_out = self.result.ran_out or request is None
        return request

    def record(self, status: int, body: bytes, sent_at: float) -> None:
        result, now = self.result, time.perf_counter()
        result.statuses[status] += 1
        if status != self._expected_status:
            result.refused.append(body)
            return
        if status in (201, 202):
            result.created.append(body)
        if self.measured_from <= now < self.ends_at:
            result.latencies_ms.append((now - sent_at) * 1000)


class AnswerReader(asyncio.Protocol):
    """One connection whose answers come one after another; `answered` gets each."""

    def __init__(self) -> None:
        self._buffer = b""
        self._body_from = self._whole = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's type is less exact

    def answered(self, answer: Answer) -> None:
        raise NotImplementedError

    def data_received(self, data: bytes) -> None:
        self._buffer = self._buffer + data if self._buffer else data
        if not self._whole and not self._read_head():
            return
        if len(self._buffer) >= self._whole:
            whole, self._buffer = self._buffer[: self._whole], self._buffer[self._whole :]
            self._whole = 0
            self.answered(Answer(int(whole[9:12]), whole[self._body_from :], whole[: self._body_from]))

    def _read_head(self) -> bool:
        """Whether the whole head has arrived; then the length of the answer is known."""
        end = self._buffer.find(b"\r\n\r\n")
        if end < 0:
            if len(self._buffer) > HEAD_MAX_BYTES:
                self._transport.abort()
            return False
        length = CONTENT_LENGTH.search(self._buffer, 0, end)
        if length is None and int(self._buffer[9:12]) not in STATUSES_WITHOUT_BODY:
            self._transport.abort()  # a chunked answer cannot be measured here; it counts as a broken connection
            return False
        self._body_from = end + 4
        self._whole = self._body_from + (int(length[1]) if length else 0)
        return True


class Connection(AnswerReader):
    """One fan after another over one connection; `done` is set when there is nothing more to send."""

    def __init__(self, source: RequestSource) -> None:
        super().__init__()
        self._source = source
        self._sent_at = 0.0
        self.waiting = False
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def send_next(self) -> None:
        request = self._source.next_request()
        if request is None:
            self._transport.close()
            return
        self.waiting = True
        self._sent_at = time.perf_counter()
        self._transport.write(request)

    def answered(self, answer: Answer) -> None:
        self.waiting = False
        self._source.record(answer.status, answer.body, self._sent_at)
        self.continue_after_pause()

    def continue_after_pause(self) -> None:
        """The next request, after the pause if there is one."""
        if self._source.pause_s:
            pause_s = self._source.pause_s * random.uniform(0.5, 1.5)
            asyncio.get_running_loop().call_later(pause_s, self.send_next)
        else:
            self.send_next()

    def connection_lost(self, exc: Exception | None) -> None:
        if self.waiting:
            self._source.result.broken += 1
        if not self.done.done():
            self.done.set_result(None)


async def drive(load: Load) -> LoadResult:
    """Runs the load in this event loop. Raises `TimeoutError` when answers are missing long after the end."""
    loop = asyncio.get_running_loop()
    source = RequestSource(load)
    connections: list[Connection] = []
    ports = (load.port, *load.more_ports)
    for n in range(load.connections):
        _, connection = await loop.create_connection(lambda: Connection(source), load.host, ports[n % len(ports)])
        connections.append(connection)
    for connection in connections:
        connection.continue_after_pause()
    async with asyncio.timeout(load.warm_up_s + load.seconds + DRAIN_MAX_S):
        await asyncio.gather(*(connection.done for connection in connections))
    return source.result


def run(load: Load) -> LoadResult:
    """Run the load with a loop of this process, which has nothing else to do."""
    gc.disable()
    return uvloop.run(drive(load))


async def run_in_process(load: Load) -> LoadResult:
    """Run the load in a new process, so that it does not share the caller's loop."""
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(max_workers=1, mp_context=context) as pool:
        return await asyncio.get_running_loop().run_in_executor(pool, run, load)


def quantile(values: Sequence[float], share: float) -> float:
    """The value that this share of the values does not exceed; 0 without any."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))] if ordered else 0.0


def request(method: str, path: str, body: bytes = b"", **headers: str) -> bytes:
    """A whole request as bytes; underscores in header names become hyphens."""
    lines = [f"{method} {path} HTTP/1.1", "host: bench"]
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    if body:
        lines.append("content-type: application/json")
    lines.append(f"content-length: {len(body)}")
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body
