"""Fans in a process of their own: so many arrive each second, or so many are there at any time; each buys and goes.

`python -m proof.load.fans PLAN` writes a line of JSON a second: how many answers, how they ended, how long they
took. The plan is `Plan` as JSON. At SIGTERM, or when its time is over, every fan who is still there goes at once.
"""

import asyncio
import json
import random
import signal
import sys
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from onsale.client.connection import Request
from onsale.client.problem import NO_ANSWER, Answer, json_object
from onsale.history.log import History
from onsale.local.ports import HOST
from onsale.simulate.browser import Browser, CallTimes
from onsale.simulate.observations import Observations
from onsale.simulate.profiles import CALM
from onsale.simulate.visit import Visit
from shared.http.http1 import HttpClient
from shared.routes import route

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
