"""The crowd in one process: lives of fans, the connections that carry their requests, and their streams.

Fans share keep-alive connections, as behind a balancer; each stream has a connection of its own. Fans come as fast as
the suite lets them in: as many joins are under way as the join pool has connections.
"""

import asyncio
import gc
import heapq
import itertools
import random
import re
import resource
import sys
import time
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, get_args

import uvloop

from bench.harness.load import Answer, AnswerReader
from bench.night.fan import Call, Fan, Life, Listen, Pause, Pool, Sale, WaitEnd
from bench.night.record import Record
from onsale.client.fan import OVER
from onsale.local.ports import HOST

TURN_S, REPORT_S, RECONNECT_S = 0.02, 5.0, 0.2
STREAMS_CONNECTING_MAX = 200
LINE = re.compile(rb"event: line\n(?:id: [^\n]*\n)?data: (\{[^\n]*\})")
HEAD_SEQ, STATE = re.compile(rb'"head_seq":(\d+)'), re.compile(rb'"state":"(\w+)"')
CONNECTIONS: Mapping[Pool, int] = {"join": 256, "line": 512, "pass": 512, "stock": 512, "orders": 512}


@dataclass(frozen=True)
class Plan:
    """How many fans come, how many of them listen to a stream, and the ports of the services; it ends after
    `seconds_max` at the latest.
    """

    sale: Sale
    fans: int
    streams: int
    ports: Mapping[Pool, int]
    notifier_port: int
    seconds_max: float


class PooledConnection(AnswerReader):
    """A keep-alive connection that takes the pool's next request when it is idle."""

    def __init__(self, pool: "ConnectionPool") -> None:
        super().__init__()
        self._pool = pool
        self._current: tuple[Call, Life, float] | None = None

    def send(self, call: Call, life: Life, requested_s: float) -> None:
        self._current = call, life, requested_s
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
    """The connections to one port. A call waits for an idle one; its time counts from when the fan wanted it, but a
    join's from when it was sent: the crowd at the door is as long as it is.
    """

    def __init__(self, crowd: "Crowd", port: int, size: int, *, from_sending: bool) -> None:
        self._crowd, self._port, self._size, self._from_sending = crowd, port, size, from_sending
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

    def send(self, call: Call, life: Life) -> None:
        self._waiting.append((call, life, time.monotonic()))
        self.send_waiting()

    def send_waiting(self) -> None:
        while self._waiting and self.idle:
            call, life, requested_s = self._waiting.popleft()
            self._crowd.record.bytes_sent += len(call.data)
            self.idle.pop().send(call, life, time.monotonic() if self._from_sending else requested_s)
        if self._waiting and self._open < self._size:
            self._open += 1
            self._crowd.background(self._connect())

    def answered(self, call: Call, life: Life, requested_s: float, answer: Answer) -> None:
        record = self._crowd.record
        record.bytes_received += len(answer.head) + len(answer.body)
        record.answered(call.name, answer.status, time.monotonic() - requested_s)
        self._crowd.go_on(life, answer)
        self.send_waiting()

    def lost(self, connection: PooledConnection) -> None:
        """The server closed this connection."""
        self._open -= 1
        if connection in self.idle:
            self.idle.remove(connection)


class Stream(asyncio.Protocol):
    """A fan's stream. It goes on until the night ends: fans keep the page open."""

    def __init__(self, crowd: "Crowd", listen: Listen, life: Life) -> None:
        self._crowd, self._listen, self._life = crowd, listen, life
        self._waits = True

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        transport.write(self._listen.data)  # type: ignore[attr-defined]

    def data_received(self, data: bytes) -> None:
        crowd = self._crowd
        crowd.record.frames += 1
        crowd.record.bytes_received += len(data)
        line = crowd.line_of(data)
        if line is not None and self._waits and (line[0] >= self._listen.join_seq or line[1]):
            self._end_wait("sold out" if line[1] else "called")

    def connection_lost(self, exc: Exception | None) -> None:
        self._crowd.streams_open -= 1
        if not self._crowd.over:
            self._crowd.record.streams_lost += 1
            if self._waits:
                self._end_wait("lost")

    def _end_wait(self, wait_end: WaitEnd) -> None:
        self._waits = False
        self._crowd.go_on(self._life, wait_end)


class Crowd:
    """All fans: each goes on when what it waits for has happened."""

    def __init__(self, plan: Plan) -> None:
        self._plan, self.record = plan, Record()
        self.over = False
        self.streams_open = 0
        self._present = plan.fans
        self._everybody_home = asyncio.Event()
        self._pools = {
            pool: ConnectionPool(self, plan.ports[pool], CONNECTIONS[pool], from_sending=pool == "join")
            for pool in get_args(Pool)
        }
        self._timers: list[tuple[float, int, Life]] = []
        self._numbers = itertools.count()
        self._streams_wanted: deque[tuple[Listen, Life]] = deque()
        self._connecting = asyncio.Semaphore(STREAMS_CONNECTING_MAX)
        self._lines: dict[bytes, tuple[int, bool] | None] = {}
        self._tasks: set[asyncio.Task[Any]] = set()

    async def live(self) -> Record:
        """The whole night; `failed` says so if fans were left when its time was over."""
        record, plan = self.record, self._plan
        record.began_s = time.monotonic()
        for number in range(plan.fans):
            watches = number * plan.streams % plan.fans < plan.streams  # spread evenly over the crowd
            self.go_on(Fan(plan.sale, record, watches=watches).life(), None)
        helpers = [asyncio.create_task(work()) for work in (self._wake, self._tell)]
        try:
            async with asyncio.timeout(plan.seconds_max):
                await self._everybody_home.wait()
        except TimeoutError:
            record.failed["fans still there at the end"] += self._present
        self.over, record.took_s = True, time.monotonic() - record.began_s
        for helper in helpers:
            helper.cancel()
        spent = resource.getrusage(resource.RUSAGE_SELF)
        record.generator_cpu_s = spent.ru_utime + spent.ru_stime
        return record

    def go_on(self, life: Life, came: Any) -> None:
        """Runs a fan until it waits again."""
        try:
            step = life.send(came)
        except StopIteration:
            self._present -= 1
            if not self._present:
                self._everybody_home.set()
            return
        match step:
            case Call():
                self._pools[step.pool].send(step, life)
            case Pause():
                heapq.heappush(self._timers, (time.monotonic() + step.seconds, next(self._numbers), life))
            case Listen():
                self.background(self._open_stream(step, life))

    def background(self, work: Any) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def line_of(self, data: bytes) -> tuple[int, bool] | None:
        """The head of the line and whether it is sold out, by the last line frame in this data; read once for all
        streams that get the same bytes.
        """
        try:
            return self._lines[data]
        except KeyError:
            found = LINE.findall(data)
            head, state = (HEAD_SEQ.search(found[-1]), STATE.search(found[-1])) if found else (None, None)
            line = (int(head[1]), state[1].decode() in OVER) if head and state else None
            if len(self._lines) > 256:
                self._lines.clear()
            self._lines[data] = line
            return line

    async def _open_stream(self, listen: Listen, life: Life) -> None:
        async with self._connecting:
            loop = asyncio.get_running_loop()
            try:
                await loop.create_connection(partial(Stream, self, listen, life), HOST, self._plan.notifier_port)
            except OSError:
                self.record.streams_lost += 1
                self.go_on(life, "lost")
                return
        self.streams_open += 1
        self.record.streams_most = max(self.record.streams_most, self.streams_open)

    async def _wake(self) -> None:
        """Fans whose pause is over go on."""
        while True:
            now_s = time.monotonic()
            while self._timers and self._timers[0][0] <= now_s:
                self.go_on(heapq.heappop(self._timers)[2], None)
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
            print(f"{at_s:4.0f} s  {'  '.join(told)}  {self.streams_open:,} streams", file=sys.stderr, flush=True)


def run(plan: Plan) -> Record:
    """The night with a loop of this process, which has nothing else to do."""
    gc.disable()
    random.seed(1)
    return uvloop.run(Crowd(plan).live())
