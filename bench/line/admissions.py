"""P10: fans called at a steady rate and admitted, through the real gateway and queue, for a minute.

The load of admissions: fans who watch the public line and claim their pass as soon as it has come to them.

It runs in a process of its own, over keep-alive connections, and records when each fan had the pass in hand. It ends
when the room no longer calls and everybody who was called has been answered. Requests are made beforehand and sent as
bytes, without `onsale.client`: the load is to cost less than what it measures.
"""

import asyncio
import gc
import multiprocessing
import statistics
import time
from collections import Counter, deque
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import orjson
import uvloop

from bench.harness import system
from bench.harness.cost import Cost, LoadSummary, Workload, cost
from bench.harness.load import Answer, AnswerReader, quantile, request
from bench.harness.measurement import CheckFailed, Claim, Effort, Figures, Finding, Testbed, Trial
from bench.line.joins import EVENT
from bench.line.status import ROOM, open_long_line
from onsale.local.ports import HOST
from shared.contracts.event_file import EventFile
from shared.routes import Service
from shared.security.tokens import QueueToken, QueueTokens, development_keys, unb64
from tests.support.wait import wait_until

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


LINE_PATH = f"/events/{EVENT.event_id}/queue"
CONNECT_S, START_S, WARM_UP_S, DRAIN_S, CONNECTIONS, US_PER_S = 60.0, 2.0, 2.0, 20.0, 400, 1_000_000
CALLS = """
SELECT join_seq, call, state, jti, deadline_ms FROM queue.admission WHERE event_id = $1 ORDER BY join_seq, call
"""


@dataclass(frozen=True)
class Sizes:
    """How long admission is measured, at which rate, and how many wait: more than can be called in that time."""

    seconds: int
    rate_per_s: int
    places: int


FULL, QUICK = Sizes(60, 1000, 75_000), Sizes(3, 100, 2_000)


def admissions() -> Finding:
    """The finding, before it is measured."""
    return Finding(
        key="P10",
        title=f"admissions, {FULL.rate_per_s:,} a second for a minute",
        settings=[
            f"{FULL.places:,} places wait, written to the ledger beforehand. Gateway and queue, one process each, "
            f"default settings. The room calls {FULL.rate_per_s:,} a second, its burst is a second's calls and "
            "`max_active` a million; it has no stock. Sessions last 15 minutes, so none ends meanwhile.",
            "The fans are a process of their own. They read every 50 ms from the public line up to which number it was "
            "called, and each called fan claims the pass once, with a queue token signed beforehand, over "
            f"{CONNECTIONS} keep-alive connections. Fans who still wait send nothing: P2 and P3 measure them.",
            f"Measured from {WARM_UP_S:g} s after the sale's start until the room is paused, by the second in which "
            "the pass was in hand. A tick calls a fifth of a second's fans at once, so a second has the passes of four "
            "to six ticks. The time to the pass begins with the tick that made the call, by Redis' clock.",
            "Processor time: per admission, less what the same servers spend at rest.",
        ],
        find=find,
    )


async def find(testbed: Testbed, effort: Effort) -> Figures:
    """One run: the length is what is measured."""
    sizes = QUICK if effort.quick else FULL
    run = Run(sizes)
    async with testbed.trial() as trial:
        spent = await cost(trial, run.open)
    return _figures(sizes, run, spent)


@dataclass
class Run:
    """One sale, from the line before its start to the comparison with the tables."""

    sizes: Sizes
    admitted: Admitted = field(default_factory=Admitted)
    calls: list[Mapping[str, Any]] = field(default_factory=list)
    measured_from_s: float = 0.0

    def event(self, starts_at: datetime) -> EventFile:
        rate = self.sizes.rate_per_s
        room = {"rate_per_s": rate, "burst": rate, "max_active": 1_000_000, "stock_coupling": False,
                "sale_starts_at": starts_at}  # fmt: skip
        return EVENT.model_copy(update={"room": EVENT.room.model_copy(update=room)})

    @asynccontextmanager
    async def open(self, trial: Trial) -> AsyncIterator[Workload]:
        ports = await system.serve(trial, ("queue", "gateway"))
        await open_long_line(trial, ports["queue"], self.sizes.places)
        await system.until_line_is_shown(ports["gateway"], ROOM, tail_seq=self.sizes.places)
        claims = claim_requests(self.sizes.places)
        yield Workload(partial(self._drive, trial, ports, claims), partial(self._check, trial))

    async def _drive(self, trial: Trial, ports: Mapping[Service, int], claims: list[bytes]) -> LoadSummary:
        connected, sale_s = trial.testbed.data_dir / "fans-are-connected", WARM_UP_S + self.sizes.seconds
        crowd = Crowd(
            HOST, ports["gateway"], request("GET", LINE_PATH), claims, connections=CONNECTIONS, connected=connected,
            within_s=START_S + sale_s + DRAIN_S,
        )  # fmt: skip
        connected.unlink(missing_ok=True)
        playing = asyncio.create_task(play_in_process(crowd))
        await wait_until(lambda: connected.exists() or playing.done(), timeout_s=CONNECT_S)
        starts_at = datetime.now(UTC) + timedelta(seconds=START_S)
        self.measured_from_s = starts_at.timestamp() + WARM_UP_S
        await system.apply_room(self.event(starts_at), ports["queue"])
        await asyncio.wait([playing], timeout=starts_at.timestamp() + sale_s - time.time())
        async with system.operator(ports["queue"]) as admin:
            await admin.set_room_state(EVENT.event_id, "pause", {"reason": "measured"})
        self.admitted = await playing
        return LoadSummary(len(self.admitted.at_s), statistics.mean(self.by_second()), 0.0)

    async def _check(self, trial: Trial) -> list[str]:
        self.calls = await trial.rows(CALLS, EVENT.event_id)
        return compare(self.calls, self.admitted)

    def by_second(self) -> list[int]:
        """Passes in hand in each measured second."""
        seconds = Counter(int((at_s - self.measured_from_s) // 1) for at_s in self.admitted.at_s.values())
        return [seconds[second] for second in range(self.sizes.seconds)]

    def waits_ms(self) -> list[float]:
        """Milliseconds from the call to the pass, of those who had it in a measured second."""
        window_ms, until_s = EVENT.room.claim_window_s * 1000, self.measured_from_s + self.sizes.seconds
        return [
            at_s * 1000 - (call["deadline_ms"] - window_ms)
            for call in self.calls
            if self.measured_from_s <= (at_s := self.admitted.at_s[call["join_seq"]]) < until_s
        ]


def claim_requests(places: int) -> list[bytes]:
    """The claim of each place of the line, signed beforehand."""
    tokens, issued_s = QueueTokens(development_keys("queue-token")), int(time.time())
    signed = (
        tokens.sign(QueueToken(EVENT.event_id, 1, 0, n, f"fan-{n}", issued_at_s=issued_s)) for n in range(1, places + 1)
    )
    return [request("POST", f"{LINE_PATH}/pass", authorization=f"Bearer {token}") for token in signed]


def compare(calls: Sequence[Mapping[str, Any]], admitted: Admitted) -> list[str]:
    """Checks the calls on disk, in the order of their places, against the passes in hand. Raises `CheckFailed`."""
    places = [call["join_seq"] for call in calls]
    twice = len(places) - len(set(places))
    lost = [call for call in calls if call["state"] != "claimed" or admitted.jtis.get(call["join_seq"]) != call["jti"]]
    skipped = len(set(range(1, max(places, default=0) + 1)) - set(places))
    inversions = sum(later["deadline_ms"] < earlier["deadline_ms"] for earlier, later in pairwise(calls))
    unknown = len(admitted.jtis.keys() - set(places))
    if twice or lost or skipped or inversions or unknown or not calls:
        raise CheckFailed(
            f"{len(calls)} calls: {twice} twice, {len(lost)} lost, {skipped} passed over, {inversions} inversions, "
            f"{unknown} passes without a call; answered otherwise {dict(admitted.refused)}, {admitted.broken} broken"
        )
    return [f"{len(calls):,} calls on disk = passes in hand, with the same ids", "nobody lost, nobody called twice",
            "called in the order of the numbers, nobody passed over"]  # fmt: skip


def _figures(sizes: Sizes, run: Run, spent: Cost) -> Figures:
    by_second, waits_ms = run.by_second(), run.waits_ms()
    mean, median, worst = statistics.mean(by_second), statistics.median(by_second), min(by_second)
    p50_ms, p99_ms = quantile(waits_ms, 0.5), quantile(waits_ms, 0.99)
    fans_us = run.admitted.cpu_s * US_PER_S / spent.load.count
    headings = ("", "a second", "median second", "worst second", "p50 ms", "p99 ms",
                *(f"{name} µs" for name in spent.cpu_us), "load generator µs")  # fmt: skip
    row = (
        f"{sizes.places:,} wait, {sizes.rate_per_s:,}/s", f"{mean:,.0f}", f"{median:,.0f}", f"{worst:,}",
        f"{p50_ms:.0f}", f"{p99_ms:.0f}", *(f"{us:,.0f}" for us in spent.cpu_us.values()), f"{fans_us:,.0f}",
    )  # fmt: skip
    each = ", ".join(f"{name} {us:,.0f}" for name, us in spent.cpu_us.items())
    claims = [
        Claim(
            f"P10 admissions a second, {sizes.seconds} s",
            f"{median:,.0f} in the median second, {worst:,} in the worst",
            f"rate set to {sizes.rate_per_s:,}", f"{mean / sizes.rate_per_s:.3f} ×",
            f"at least {sizes.rate_per_s:,} in the median second",
        ),
        Claim("P10 from the call to the pass in hand", f"p50 {p50_ms:.0f} ms, p99 {p99_ms:.0f} ms", "–", "–"),
        Claim("P10 processor time of an admission, all in", f"{sum(spent.cpu_us.values()):,.0f} µs", each, "–"),
        Claim("P10 fans lost, called twice, overtaken", "0, 0, 0", "–", "–", "0, 0, 0"),
    ]  # fmt: skip
    return Figures(headings, [row], claims, spent.checked)
