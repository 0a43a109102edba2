"""What the lines of a sale cost a join, the hottest step that writes: off, one in a hundred, and all of them.

`ONSALE_BENCH_BEFORE=/path/to/an/earlier/checkout` adds that code as a side, in the same run: what a boolean costs where
the lines are off.
"""

import os
import statistics
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial

from bench.harness import system
from bench.harness.load import LoadResult
from bench.harness.measurement import Claim, Effort, Figures, Finding, Side, Target
from bench.harness.rounds import one_round
from bench.harness.testbed import Testbed, Trial
from bench.line.joins import EVENT, JOIN, compare

US_PER_S = 1_000_000
SIDES = {"off": {}, "one in 100": {"ONSALE_LOG_SALE": "0.01"}, "all": {"ONSALE_LOG_SALE": "1"}}
BEFORE = "before there were lines"


def sale_log() -> Finding:
    """The finding, before it is measured."""
    return Finding(
        key="Lines",
        title="lines for each step of a sale",
        settings=[
            "Joins as in P1: gateway and queue, one process each; the lines go to a file. The sides take turns, round "
            "by round. Processor time is that of both services, PostgreSQL and Valkey, the median of the rounds.",
            "A logged join leaves its own line and those of its batches, scripts and statements in both services.",
            f"{BEFORE}: the same services from an earlier checkout (`ONSALE_BENCH_BEFORE`), where one was given.",
        ],
        find=find,
    )


async def find(testbed: Testbed, effort: Effort) -> Figures:
    """Runs the sides alternately."""
    before = os.environ.get("ONSALE_BENCH_BEFORE")
    sides = ({BEFORE: {"PYTHONPATH": before}} if before else {}) | SIDES
    us: dict[str, list[float]] = {name: [] for name in sides}
    checked: list[str] = []
    for _ in range(effort.rounds):
        for name, settings in sides.items():
            done = await one_round(testbed, Side(name, _opened(settings)), effort)
            us[name].append(US_PER_S / done.per_cpu_s)
            checked = done.checked
    median = {name: statistics.median(each) for name, each in us.items()}
    rows: list[tuple[str, ...]] = [(name, f"{median[name]:,.0f}", f"{median[name] / median['off']:.2f} ×",
             f"{min(each):,.0f} to {max(each):,.0f}") for name, each in us.items()]  # fmt: skip
    claims = [
        Claim(f"lines of a sale, {name}: processor time of a join", f"{median[name]:,.0f} µs",
              f"off {median['off']:,.0f} µs", f"{median[name] / median['off']:.2f} ×")
        for name in sides if name != "off"
    ]  # fmt: skip
    return Figures(("lines", "processor µs a join", "to off", "round by round"), rows, claims, checked)


def _opened(settings: dict[str, str]) -> Callable[[Trial], AbstractAsyncContextManager[Target]]:
    return partial(_open, settings=settings)


@asynccontextmanager
async def _open(trial: Trial, *, settings: dict[str, str]) -> AsyncIterator[Target]:
    ports = await system.serve(trial, ("queue", "gateway"), settings)
    await system.open_room(EVENT, ports["queue"])

    async def check(result: LoadResult) -> list[str]:
        return await compare(trial, result, "queue.place")

    yield Target(ports["gateway"], [JOIN], True, check)
