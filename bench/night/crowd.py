"""The crowd: lives of fans and the connections that carry their requests, in one process; streams have their own.

Fans come evenly over a time, whether the suite keeps up or not, and each call counts from when its fan wanted it. Fans
share keep-alive connections, as behind a balancer. What the crowd itself adds is measured beside: how late its timers
ran, and how long calls waited for a connection.

The public line as fans far back read it from a cache in front of the gateway, where that tells them to.

The cache asks the gateway once a second, as nginx does with `proxy_cache`. Its readers cost the suite nothing, so their
reads are no events here: a fan whose next read would show something goes on at a random moment of the time between two
reads.
"""

import asyncio
import gc
import heapq
import itertools
import random
import resource
import sys
import time
from collections import deque
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass
from typing import Any, get_args

import orjson
import uvloop

from bench.harness.load import Answer, AnswerReader, request
from bench.night.fan import Call, Fan, Life, Listen, Pause, Pool, ReadLine, Sale, Step, WaitEnd
from bench.night.streams import StreamProcesses
from bench.night.suite import Record
from onsale.client.fan import OVER
from onsale.local.ports import HOST

KEPT_S = 1.0


@dataclass(slots=True)
class Reader:
    """A fan far back; without a `life` once it went on."""

    life: Life | None


class PublicLine:
    """The cached answer and its readers. `go_on_later` is called with a reader, what it is sent, and after how long."""

    def __init__(self, sale: Sale, go_on_later: Callable[[Reader, Any, float], None]) -> None:
        self._data = request("GET", f"{sale.path}/queue")
        self._go_on_later = go_on_later
        self._readers: list[tuple[int, int, Reader]] = []
        self._head = self._near = self._number = 0
        self._between_s, self._is_over = KEPT_S, False

    def add(self, reads: ReadLine, life: Life) -> Reader:
        """A fan who reads from now on."""
        reader = Reader(life)
        self._number += 1
        heapq.heappush(self._readers, (reads.join_seq, self._number, reader))
        self._go_on_later(reader, None, reads.seconds)
        self._wake()
        return reader

    def refresh(self) -> Generator[Step, Any, None]:
        """What the cache does: a life that never ends."""
        while True:
            answer = yield Call("line, by the cache", "line", self._data)
            if answer.status == 200:
                self.read(orjson.loads(answer.body))
            yield Pause(KEPT_S)

    def read(self, line: dict[str, Any]) -> None:
        """A new answer is in the cache."""
        self._head, self._is_over = line["head_seq"], line["state"] in OVER
        self._near = line["near_places"] if line["heartbeat_after_ms"] else 2**63
        self._between_s = line["poll_after_ms"] / 1000
        self._wake()

    def _wake(self) -> None:
        came = "sold out" if self._is_over else None
        while self._readers and (self._is_over or self._readers[0][0] - self._head <= self._near):
            _, _, reader = heapq.heappop(self._readers)
            if reader.life is not None:
                self._go_on_later(reader, came, self._between_s * random.uniform(0.0, 1.0))


TURN_S, REPORT_S, RECONNECT_S = 0.005, 5.0, 0.2
CONNECTIONS: Mapping[Pool, int] = {"join": 512, "line": 2048, "pass": 512, "stock": 512, "orders": 512}


@dataclass(frozen=True)
class Plan:
    """How many fans come over how many seconds, how many of them listen to a stream, and the ports of the services; it
    ends after `seconds_max` at the latest.
    """

    sale: Sale
    fans: int
    arrive_over_s: float
    streams: int
    ports: Mapping[Pool, int]
    notifier_ports: tuple[int, ...]
    seconds_max: float


class PooledConnection(AnswerReader):
    """A keep-alive connection that takes the pool's next request when it is idle."""

    def __init__(self, pool: "ConnectionPool") -> None:
        super().__init__()
        self._pool = pool
        self._current: tuple[Call, Life, float, float] | None = None

    def send(self, call: Call, life: Life, wanted_s: float) -> None:
        self._current = call, life, wanted_s, time.monotonic()
        self._transport.write(call.data)

    def answered(self, answer: Answer) -> None:
        if self._current is None:
            return  # 408: the server ends a connection that was idle for long
        current, self._current = self._current, None
        self._pool.idle.append(self)
        self._pool.answered(*current, answer)

    def connection_lost(self, exc: Exception | None) -> None:
        current, self._current = self._current, None
        self._pool.lost(self)
        if current is not None:
            self._pool.answered(*current, Answer(0))


class ConnectionPool:
    """The connections to one port. A call waits for an idle one; its time counts from when the fan wanted it."""

    def __init__(self, crowd: "Crowd", name: Pool, port: int, size: int) -> None:
        self._crowd, self._name, self._port, self._size = crowd, name, port, size
        self.idle: list[PooledConnection] = []
        self._waiting: deque[tuple[Call, Life, float]] = deque()
        self._open = 0

    async def _connect(self) -> None:
        loop = asyncio.get_running_loop()
        try:
            _, connection = await loop.create_connection(lambda: PooledConnection(self), HOST, self._port)
        except OSError:
            self._open -= 1
            await asyncio.sleep(RECONNECT_S)
        else:
            self.idle.append(connection)
        self.send_waiting()

    def send(self, call: Call, life: Life, wanted_s: float) -> None:
        self._waiting.append((call, life, wanted_s))
        self.send_waiting()

    def send_waiting(self) -> None:
        record = self._crowd.record
        while self._waiting and self.idle:
            call, life, wanted_s = self._waiting.popleft()
            record.bytes_sent += len(call.data)
            self.idle.pop().send(call, life, wanted_s)
        if self._waiting and self._open < self._size:
            self._open += 1
            record.connections[self._name] = max(record.connections[self._name], self._open)
            self._crowd.background(self._connect())

    def answered(self, call: Call, life: Life, wanted_s: float, sent_s: float, answer: Answer) -> None:
        record, now_s = self._crowd.record, time.monotonic()
        record.bytes_received += len(answer.head) + len(answer.body)
        record.answered(call.name, answer.status, now_s - wanted_s, unsent_s=sent_s - wanted_s)
        self._crowd.go_on(life, answer, now_s)
        self.send_waiting()

    def lost(self, connection: PooledConnection) -> None:
        """The server closed this connection."""
        self._open -= 1
        if connection in self.idle:
            self.idle.remove(connection)


class Crowd:
    """All fans: each goes on when what it waits for has happened."""

    def __init__(self, plan: Plan) -> None:
        self._plan, self.record = plan, Record()
        self._present = plan.fans
        self._everybody_home = asyncio.Event()
        self._pools = {pool: ConnectionPool(self, pool, plan.ports[pool], CONNECTIONS[pool]) for pool in get_args(Pool)}
        self._timers: list[tuple[float, int, Life | Reader, Any]] = []
        self._numbers = itertools.count()
        self._watching: dict[int, Life] = {}
        self._line = PublicLine(plan.sale, self._go_on_later)
        self._streams = StreamProcesses(plan.notifier_ports, self._wait_ended)
        self._tasks: set[asyncio.Task[Any]] = set()

    async def live(self) -> Record:
        """The whole night; `failed` says so if fans were left when its time was over."""
        record, plan = self.record, self._plan
        self._streams.start()
        lives = [Fan(plan.sale, record, watches=self._watches(n)).life() for n in range(plan.fans)]
        record.began_s = time.monotonic()
        each_s = plan.arrive_over_s / plan.fans  # already in order, as a heap wants it
        self._timers = [(record.began_s + n * each_s, next(self._numbers), life, None) for n, life in enumerate(lives)]
        self.go_on(self._line.refresh(), None, record.began_s)
        helpers = [asyncio.create_task(work()) for work in (self._wake, self._tell)]
        try:
            async with asyncio.timeout(plan.seconds_max):
                await self._everybody_home.wait()
        except TimeoutError:
            record.failed["fans still there at the end"] += self._present
        record.took_s = time.monotonic() - record.began_s
        for helper in helpers:
            helper.cancel()
        self._streams.stop()
        self._count_streams()
        return record

    def _watches(self, number: int) -> bool:
        """Those who listen to a stream are spread evenly over the crowd."""
        return number * self._plan.streams % self._plan.fans < self._plan.streams

    def go_on(self, life: Life, came: Any, at_s: float) -> None:
        """Runs a fan until it waits again; what it does now it wanted at `at_s`."""
        try:
            step = life.send(came)
        except StopIteration:
            self._present -= 1
            if not self._present:
                self._everybody_home.set()
            return
        match step:
            case Call():
                self._pools[step.pool].send(step, life, at_s)
            case Pause():
                heapq.heappush(self._timers, (at_s + step.seconds, next(self._numbers), life, None))
            case ReadLine():
                self._line.add(step, life)
            case Listen():
                number = next(self._numbers)
                self._watching[number] = life
                self._streams.open(number, step)

    def _go_on_later(self, reader: Reader, came: Any, seconds: float) -> None:
        heapq.heappush(self._timers, (time.monotonic() + seconds, next(self._numbers), reader, came))

    def background(self, work: Any) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _wait_ended(self, number: int, wait_end: WaitEnd) -> None:
        self.go_on(self._watching.pop(number), wait_end, time.monotonic())

    def _count_streams(self) -> None:
        record, spent = self.record, resource.getrusage(resource.RUSAGE_SELF)
        record.streams_most = self._streams.most
        record.generator_cpu_s = spent.ru_utime + spent.ru_stime
        for held in self._streams.held:
            record.streams_lost += held.lost
            record.frames += held.frames
            record.bytes_received += held.bytes
            record.generator_cpu_s += held.cpu_s

    async def _wake(self) -> None:
        """Fans whose pause is over go on. How late each is shows what this process itself adds."""
        timers, late_ms = self._timers, self.record.late_ms
        while True:
            now_s = time.monotonic()
            while timers and timers[0][0] <= now_s:
                due_s, _, waiting, came = heapq.heappop(timers)
                if isinstance(waiting, Reader):
                    waiting.life, life = None, waiting.life
                    if life is None:
                        continue  # it went on before
                else:
                    life = waiting
                late_ms.append((time.monotonic() - due_s) * 1000)
                self.go_on(life, came, due_s)
            await asyncio.sleep(TURN_S)

    async def _tell(self) -> None:
        """A line of progress every few seconds."""
        while True:
            await asyncio.sleep(REPORT_S)
            record = self.record
            told = (
                f"{record.total(what):,} {what}" for what in ("joined", "admitted", "held", "confirmed", "informed")
            )
            at_s = time.monotonic() - record.began_s
            print(f"{at_s:4.0f} s  {'  '.join(told)}  {self._streams.open_now:,} streams", file=sys.stderr, flush=True)


def run(plan: Plan) -> Record:
    """The night with a loop of this process, which has nothing else to do."""
    gc.disable()
    random.seed(1)

    async def live() -> Record:
        return await Crowd(plan).live()

    return uvloop.run(live())
