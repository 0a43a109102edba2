"""The load of admissions: fans who watch the public line and claim their pass as soon as it has come to them.

It runs in a process of its own, over keep-alive connections, and records when each fan had the pass in hand. It ends
when the room no longer calls and everybody who was called has been answered. Requests are made beforehand and sent as
bytes, without `onsale.client`: the load is to cost less than what it measures.
"""

import asyncio
import gc
import multiprocessing
import time
from collections import Counter, deque
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import orjson
import uvloop

from bench.harness.load import Answer, AnswerReader
from shared.security.tokens import unb64

FRAME_POLL_S = 0.05
CALLING = frozenset({"prequeue", "open"})


@dataclass(frozen=True)
class Crowd:
    """Where to claim: `claims` has the request of each place in order; `line` asks for the public line. The file
    `connected` is made when all fans are connected.
    """

    host: str
    port: int
    line: bytes
    claims: Sequence[bytes]
    connections: int
    connected: Path
    within_s: float


@dataclass
class Admitted:
    """The passes in hand: when each place had its own, in seconds of the clock, and its id. `cpu_s` is what the load
    generator spent.
    """

    at_s: dict[int, float] = field(default_factory=dict)
    jtis: dict[int, str] = field(default_factory=dict)
    refused: Counter[int] = field(default_factory=Counter)
    broken: int = 0
    cpu_s: float = 0.0


class FanConnection(AnswerReader):
    """One request after another; `answered_to` gets each answer, and an `Answer` of status 0 for a broken connection
    that owes one.
    """

    def __init__(self, answered_to: Callable[["FanConnection", Answer], None]) -> None:
        super().__init__()
        self._answered_to = answered_to
        self.place = 0
        self._waits = False

    def send(self, request: bytes, place: int = 0) -> None:
        self.place, self._waits = place, True
        self._transport.write(request)

    def answered(self, answer: Answer) -> None:
        self._waits = False
        self._answered_to(self, answer)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._waits:
            self.answered(Answer(0))

    def close(self) -> None:
        self._waits = False
        self._transport.close()


class Rush:
    """The fans of one line: whoever the head has reached claims over the next free connection, in order."""

    def __init__(self, crowd: Crowd) -> None:
        self.result = Admitted()
        self.over: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._crowd = crowd
        self._free: deque[FanConnection] = deque()
        self._bodies: dict[int, bytes] = {}
        self._head = self._claimed = self._answered = 0
        self._calls = True

    async def run(self) -> Admitted:
        watcher, *fans = [await self._connect(self._line_read)]
        fans += [await self._connect(self._claim_answered) for _ in range(self._crowd.connections)]
        self._free.extend(fans)
        self._crowd.connected.touch()
        began_s = time.process_time()
        watcher.send(self._crowd.line)
        async with asyncio.timeout(self._crowd.within_s):
            await self.over
        self.result.cpu_s = time.process_time() - began_s
        for connection in (watcher, *fans):
            connection.close()
        self.result.jtis = {place: _jti(body) for place, body in self._bodies.items()}
        return self.result

    async def _connect(self, answered_to: Callable[[FanConnection, Answer], None]) -> FanConnection:
        loop = asyncio.get_running_loop()
        _, fan = await loop.create_connection(lambda: FanConnection(answered_to), self._crowd.host, self._crowd.port)
        return fan

    def _line_read(self, watcher: FanConnection, answer: Answer) -> None:
        if answer.status != 200:
            self._fail(f"the public line was answered {answer.status}")
            return
        line = orjson.loads(answer.body)
        self._head, self._calls = min(line["head_seq"], len(self._crowd.claims)), line["state"] in CALLING
        self._claim_next()
        if self._is_over():
            return
        asyncio.get_running_loop().call_later(FRAME_POLL_S, watcher.send, self._crowd.line)

    def _claim_next(self) -> None:
        while self._free and self._claimed < self._head:
            self._claimed += 1
            self._free.popleft().send(self._crowd.claims[self._claimed - 1], self._claimed)

    def _claim_answered(self, fan: FanConnection, answer: Answer) -> None:
        self._answered += 1
        if answer.status == 200:
            self.result.at_s[fan.place] = time.time()
            self._bodies[fan.place] = answer.body
        elif answer.status:
            self.result.refused[answer.status] += 1
        else:
            self.result.broken += 1
        if answer.status:
            self._free.append(fan)
        self._claim_next()
        self._is_over()

    def _is_over(self) -> bool:
        """Whether nobody is called any more and all who were have an answer."""
        over = not self._calls and self._answered == self._head
        if over and not self.over.done():
            self.over.set_result(None)
        return over

    def _fail(self, why: str) -> None:
        if not self.over.done():
            self.over.set_exception(ConnectionError(why))


def _jti(body: bytes) -> str:
    """The id in the pass of this answer."""
    claims: dict[str, str] = orjson.loads(unb64(orjson.loads(body)["pass"].split(".")[1]))
    return claims["jti"]


async def _rush(crowd: Crowd) -> Admitted:
    return await Rush(crowd).run()


def _play(crowd: Crowd) -> Admitted:
    gc.disable()
    return uvloop.run(_rush(crowd))


async def play_in_process(crowd: Crowd) -> Admitted:
    """Runs the rush in a new process, so that it does not share the caller's loop."""
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(max_workers=1, mp_context=context) as pool:
        return await asyncio.get_running_loop().run_in_executor(pool, _play, crowd)
