"""Fans in a process of their own: so many arrive each second, or so many are there at any time; each buys and goes.

`python -m proof.load.fans PLAN` writes a line of JSON a second: how many answers, how they ended, how long they
took. The plan is `Plan` as JSON. At SIGTERM, or when its time is over, every fan who is still there goes at once.

A process of fans, what it has written, and how a suite did in a span of seconds.
"""

import asyncio
import json
import random
import signal
import statistics
import sys
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import groupby
from pathlib import Path
from typing import Any, Literal

from onsale.client.connection import NO_ANSWER, Answer, Request, json_object
from onsale.history.transport import History
from onsale.local.ports import HOST
from onsale.simulate.browser import Browser, CallTimes
from onsale.simulate.observations import CALM, Observations
from onsale.simulate.visit import Visit
from shared.http.http1 import HttpClient
from shared.routes import route
from tests.support.running.program import Program
from tests.support.wait import wait_until

CONNECTIONS_MAX = 2_000
ANSWER_WITHIN_S = 20.0
BUSY = (429, 503)


@dataclass(frozen=True)
class Plan:
    """`per_s` fans arrive each second; without it `at_once` fans are there at any time. The first come at `from_s` of
    the clock. `ports` are those of the services; what fans are told is appended to the file `history`.
    """

    event_id: str
    ports: Mapping[str, int]
    seconds: float
    seed: int
    history: str
    per_s: float = 0
    at_once: int = 0
    from_s: float = 0


@dataclass
class Second:
    """What happened in one second. `bad`: no answer in time, a server error, or a refusal that does not say when to
    come again.
    """

    at_s: float
    answers: int = 0
    refused: int = 0
    bad: Counter[str] = field(default_factory=Counter)
    took_ms: list[float] = field(default_factory=list)
    bought: int = 0

    def line(self) -> str:
        took = sorted(self.took_ms)
        p95, slowest = (took[int(0.95 * (len(took) - 1))], took[-1]) if took else (0.0, 0.0)
        shown = vars(self) | {"took_ms": None, "p95_ms": round(p95, 1), "slowest_ms": round(slowest, 1)}
        return json.dumps({name: value for name, value in shown.items() if value is not None})


class Recorder:
    """The current second; earlier ones are printed."""

    def __init__(self) -> None:
        self.observations = Observations()
        self._now, self._bought = Second(time.time()), 0

    def record(self, operation: str, answer: Answer | None, seconds: float) -> None:
        status = answer.status_code if answer else NO_ANSWER
        self._now.answers += 1
        self._now.took_ms.append(seconds * 1000)
        if answer and status in BUSY and "retry-after" in answer.headers and json_object(answer.content).get("type"):
            self._now.refused += 1
        elif status == NO_ANSWER or status == 429 or status >= 500:
            self._now.bad[f"{operation} {status}"] += 1

    async def run(self) -> None:
        while True:
            await asyncio.sleep(1)
            self.end_second()

    def end_second(self) -> None:
        self._now.bought, self._bought = self.observations.bought - self._bought, self.observations.bought
        print(self._now.line(), flush=True)
        self._now = Second(time.time())


class RoutedBrowser(Browser):
    """Sends each request to the service of its path."""

    def __init__(self, http: HttpClient, plan: Plan, recorder: Recorder, rng: random.Random) -> None:
        history = History(Path(plan.history))
        super().__init__(http, None, "http://fans", CallTimes(), rng, history=history, timeout_s=ANSWER_WITHIN_S)
        self._ports, self._recorder = plan.ports, recorder

    def address_of(self, request: Request) -> str:
        found = route(request.path.partition("?")[0])
        assert found is not None, request.path
        return f"http://{HOST}:{self._ports[found.service]}{request.path}"

    def count(self, request: Request, answer: Answer | None, seconds: float) -> None:
        self._recorder.record(request.operation, answer, seconds)


async def live(plan: Plan, recorder: Recorder) -> None:
    """Sends fans until the time is over, or until it is cancelled."""
    rng = random.Random(plan.seed)
    async with HttpClient(connections_max=CONNECTIONS_MAX) as http, asyncio.TaskGroup() as fans:
        browser = RoutedBrowser(http, plan, recorder, rng)
        event = await browser.event(plan.event_id)
        await asyncio.sleep(plan.from_s - time.time())

        def arrive() -> asyncio.Task[None]:
            visit = Visit(event, browser, recorder.observations, seed=rng.getrandbits(64), watches=False, profile=CALM)
            return fans.create_task(visit.live(arrive_after_s=0))

        if plan.at_once:
            there = {arrive() for _ in range(plan.at_once)}
            while True:
                _, there = await asyncio.wait(there, return_when=asyncio.FIRST_COMPLETED)
                there |= {arrive() for _ in range(plan.at_once - len(there))}
        began_s = time.monotonic()
        for number in range(1 << 62):
            await asyncio.sleep(max(0.0, began_s + number / plan.per_s - time.monotonic()))
            arrive()


async def main(plan: Plan) -> None:
    recorder = Recorder()
    recording, fans = asyncio.create_task(recorder.run()), asyncio.create_task(live(plan, recorder))
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, fans.cancel)
    done, _ = await asyncio.wait({fans, recording}, timeout=plan.seconds, return_when=asyncio.FIRST_COMPLETED)
    recording.cancel()
    fans.cancel()
    await asyncio.wait({fans, recording})
    recorder.end_second()
    for task in done:
        if not task.cancelled():
            task.result()


if __name__ == "__main__":
    asyncio.run(main(Plan(**json.loads(sys.argv[1]))))


ROOT = Path(__file__).parents[2]


@dataclass(frozen=True)
class Span:
    """Seconds in a row, summed up; `p95_ms` is the median of the seconds' own."""

    seconds: int
    answers: int
    refused: int
    bad: Counter[str]
    bought: int
    p95_ms: float
    slowest_ms: float
    silence_s: int
    unsold_s: int

    @classmethod
    def of(cls, seconds: Sequence[dict[str, Any]]) -> "Span":
        """`silence_s` and `unsold_s` are the longest runs of seconds without a good answer, and without a purchase."""
        bad: Counter[str] = Counter()
        for second in seconds:
            bad.update(second["bad"])
        return cls(
            len(seconds), sum(s["answers"] for s in seconds), sum(s["refused"] for s in seconds), bad,
            sum(s["bought"] for s in seconds), statistics.median([s["p95_ms"] for s in seconds] or [0.0]),
            max([s["slowest_ms"] for s in seconds], default=0.0),
            _longest_without(s["answers"] - s["refused"] - sum(s["bad"].values()) for s in seconds),
            _longest_without(s["bought"] for s in seconds),
        )  # fmt: skip

    def __str__(self) -> str:
        bad = f", bad: {dict(self.bad)}" if self.bad else ""
        return (
            f"{self.answers} answers in {self.seconds} s, {self.bought} purchases, {self.refused} refused, "
            f"p95 {self.p95_ms:.0f} ms, slowest {self.slowest_ms:.0f} ms{bad}"
        )  # fmt: skip


def _longest_without(counts: Iterable[int]) -> int:
    """The longest run of zeros."""
    return max((len(list(run)) for some, run in groupby(counts, bool) if not some), default=0)


class Crowd:
    """Starts at once; `end` lets every fan go."""

    def __init__(self, plan: Plan, log_path: Path) -> None:
        unstarted = "ignore:coroutine"  # of fans who are let go before they have begun
        command = [sys.executable, "-W", unstarted, "-m", "proof.load.fans", json.dumps(asdict(plan))]
        self._program, self._log_path = Program(command, log_path, cwd=ROOT), log_path
        self._program.start()

    def seconds(self) -> list[dict[str, Any]]:
        """Every second that is over."""
        lines = self._log_path.read_text().split("\n")[:-1]
        broken = [line for line in lines if not line.startswith("{")]
        assert not broken, "\n".join(lines[-20:])
        return [json.loads(line) for line in lines]

    def span(self, since_s: float = 0, until_s: float = float("inf")) -> Span:
        """The seconds that began at these times of the clock."""
        return Span.of([second for second in self.seconds() if since_s <= second["at_s"] < until_s])

    async def until(self, counted: Literal["answers", "bought"]) -> None:
        """Returns once there are some; a process of fans takes seconds to start."""
        await wait_until(lambda: getattr(self.span(), counted) > 0, timeout_s=120, interval_s=0.2)

    def end(self) -> Span:
        self._program.end(signal.SIGTERM, within_s=30)
        return self.span()
