"""Streams of fans, in processes of their own: one process may not have descriptors enough for all, nor the time to read
them.

The crowd sends a process each stream to open, and hears what ends the wait of its fan.
"""

import asyncio
import gc
import multiprocessing
import os
import re
import resource
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from multiprocessing.connection import Connection
from typing import NamedTuple

import uvloop

from bench.night.fan import Listen, WaitEnd
from onsale.client.fan import OVER
from onsale.local.ports import HOST

EACH_MAX = 17_000  # streams of one process, and of one notifier: below the 20,000 that both may have open
CONNECTING_MAX, SOURCES, TOLD_S = 100, 8, 1.0
LINE = re.compile(rb"event: line\n(?:id: [^\n]*\n)?data: (\{[^\n]*\})")
HEAD_SEQ, STATE = re.compile(rb'"head_seq":(\d+)'), re.compile(rb'"state":"(\w+)"')
LINES_KEPT, ENDS_MAX = 256, 1_000


class Opened(NamedTuple):
    """A stream to open: the fan's number, and the place and the request of its `Listen`."""

    number: int
    join_seq: int
    data: bytes


@dataclass
class Held:
    """What a process has seen: streams that are open, streams that broke, frames, bytes, its processor time."""

    open: int = 0
    lost: int = 0
    frames: int = 0
    bytes: int = 0
    cpu_s: float = 0.0


Told = Held | list[tuple[int, WaitEnd]]


def processes_for(streams: int) -> int:
    """How many processes hold so many streams, and how many notifiers serve them."""
    return max(1, -(-streams // EACH_MAX))


class Stream(asyncio.Protocol):
    """A fan's stream. It goes on until the night ends: fans keep the page open."""

    def __init__(self, holder: "Holder", opened: Opened) -> None:
        self._holder, self._opened, self._waits = holder, opened, True

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._holder.held.open += 1
        transport.write(self._opened.data)  # type: ignore[attr-defined]

    def data_received(self, data: bytes) -> None:
        holder = self._holder
        holder.held.frames += 1
        holder.held.bytes += len(data)
        line = holder.line_of(data)
        if line is not None and self._waits and (line[0] >= self._opened.join_seq or line[1]):
            self._end_wait("sold out" if line[1] else "called")

    def connection_lost(self, exc: Exception | None) -> None:
        self._holder.held.open -= 1
        self._holder.held.lost += 1
        if self._waits:
            self._end_wait("lost")

    def _end_wait(self, wait_end: WaitEnd) -> None:
        self._waits = False
        self._holder.tell(self._opened.number, wait_end)


class Holder:
    """All streams of one process."""

    def __init__(self, pipe: Connection, port: int) -> None:
        self.held = Held()
        self._pipe, self._port = pipe, port
        self._wanted: deque[Opened] = deque()
        self._connecting = 0
        self._ends: list[tuple[int, WaitEnd]] = []
        self._lines: dict[bytes, tuple[int, bool] | None] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._over = asyncio.Event()

    async def run(self) -> None:
        """Until the crowd says that it is over."""
        _watch(self._pipe, self._read)
        while not self._over.is_set():
            self.report()
            try:
                async with asyncio.timeout(TOLD_S):
                    await self._over.wait()
            except TimeoutError:
                continue
        self.report()

    def tell(self, number: int, wait_end: WaitEnd) -> None:
        """Those that end in the same turn are told at once."""
        if not self._ends:
            asyncio.get_running_loop().call_soon(self._send_ends)
        self._ends.append((number, wait_end))

    def report(self) -> None:
        """Tells the crowd what was seen so far."""
        spent = resource.getrusage(resource.RUSAGE_SELF)
        self.held.cpu_s = spent.ru_utime + spent.ru_stime
        self._pipe.send(self.held)

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
            if len(self._lines) > LINES_KEPT:
                self._lines.clear()
            self._lines[data] = line
            return line

    def _send_ends(self) -> None:
        ends, self._ends = self._ends[:ENDS_MAX], self._ends[ENDS_MAX:]
        self._pipe.send(ends)
        if self._ends:
            asyncio.get_running_loop().call_soon(self._send_ends)

    def _read(self) -> None:
        while self._pipe.poll():
            opened: Opened | None = self._pipe.recv()
            if opened is None:
                asyncio.get_running_loop().remove_reader(self._pipe.fileno())
                self._over.set()
                return
            self._wanted.append(opened)
        self._connect()

    def _connect(self) -> None:
        while self._wanted and self._connecting < CONNECTING_MAX:
            self._connecting += 1
            task = asyncio.ensure_future(self._open(self._wanted.popleft()))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _open(self, opened: Opened) -> None:
        source = f"127.0.0.{2 + opened.number % SOURCES}"  # each has ports of its own
        try:
            await asyncio.get_running_loop().create_connection(
                partial(Stream, self, opened), HOST, self._port, local_addr=(source, 0)
            )
        except OSError:
            self.held.lost += 1
            self.tell(opened.number, "lost")
        self._connecting -= 1
        self._connect()


def _watch(pipe: Connection, read: Callable[[], None]) -> None:
    """Calls `read` when something has arrived. The loop makes a pipe non-blocking, but a message may come in parts."""
    asyncio.get_running_loop().add_reader(pipe.fileno(), read)
    os.set_blocking(pipe.fileno(), True)


def hold(pipe: Connection, port: int) -> None:
    """A process of streams."""
    gc.disable()

    async def run() -> None:
        await Holder(pipe, port).run()

    uvloop.run(run())


class StreamProcesses:
    """The crowd's side: opens streams, and calls `ended` with a fan's number when its wait is over."""

    def __init__(self, ports: Sequence[int], ended: Callable[[int, WaitEnd], None]) -> None:
        self._ended, self.most, self._count = ended, 0, 0
        self.held = [Held() for _ in ports]
        context, self._pipes, self._processes = multiprocessing.get_context("spawn"), list[Connection](), []
        for port in ports:
            ours, theirs = context.Pipe()
            process = context.Process(target=hold, args=(theirs, port), daemon=True)
            process.start()
            theirs.close()
            self._pipes.append(ours)
            self._processes.append(process)

    def start(self) -> None:
        """Listens to the processes, in the running loop."""
        for n, pipe in enumerate(self._pipes):
            _watch(pipe, partial(self._read, n))

    def open(self, number: int, listen: Listen) -> None:
        """Opens the stream of this fan, at the process whose turn it is."""
        self._count += 1
        self._pipes[self._count % len(self._pipes)].send(Opened(number, listen.join_seq, listen.data))

    @property
    def open_now(self) -> int:
        return sum(held.open for held in self.held)

    def stop(self) -> None:
        """Ends the processes; `held` has what each has seen."""
        for n, pipe in enumerate(self._pipes):
            asyncio.get_running_loop().remove_reader(pipe.fileno())
            pipe.send(None)
            while True:
                try:
                    told: Told = pipe.recv()
                except EOFError:
                    break
                if isinstance(told, Held):
                    self.held[n] = told
        for process in self._processes:
            process.join()

    def _read(self, n: int) -> None:
        pipe = self._pipes[n]
        while pipe.poll():
            told: Told = pipe.recv()
            if isinstance(told, Held):
                self.held[n] = told
                self.most = max(self.most, self.open_now)
            else:
                for number, wait_end in told:
                    self._ended(number, wait_end)
