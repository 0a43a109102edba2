"""P1: durable joins through the real gateway and queue, one process each, against the textbook design.

What the lines of a sale cost a join, the hottest step that writes: off, one in a hundred, and all of them.

`ONSALE_BENCH_BEFORE=/path/to/an/earlier/checkout` adds that code as a side, in the same run: what a boolean costs where
the lines are off.
"""

import os
import statistics
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from datetime import UTC, datetime
from functools import partial

import orjson

from bench.harness import system
from bench.harness.load import LoadResult, request
from bench.harness.measurement import (
    CheckFailed,
    Claim,
    Effort,
    Figures,
    Finding,
    Measurement,
    Side,
    Target,
    Testbed,
    Trial,
    one_round,
)
from shared.contracts.event_file import EventFile, GaSection

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


EVENT = EventFile(
    event_id="bench",
    name="Measured",
    venue="Here",
    currency="EUR",
    starts_at=datetime(2030, 1, 1, tzinfo=UTC),
    sections=[GaSection(section_id="GA", name="Floor", kind="ga", capacity=100_000, price_minor=5000)],
)
PLACES = """
INSERT INTO queue.place (event_id, epoch, lane, join_seq, holder)
SELECT '{event_id}', 1, 0, n, 'fan-' || n FROM generate_series(1, {count}) n
"""
JOIN = request("POST", f"/events/{EVENT.event_id}/queue", origin="http://bench")


def joins() -> Measurement:
    """The measurement, before it is run."""
    return Measurement(
        key="P1",
        title="durable joins",
        unit="joins answered 201 per second",
        at_least=3.5,
        aim=6,
        budget_us=(200, 130),
        settings=[
            "Every request is a new anonymous fan; each answer carries a number, a position and a signed token.",
            "Ours: gateway and queue, one process each, default settings. The room is open and the gatekeeper ticks; "
            "inventory does not run, so nobody is called meanwhile.",
            "Textbook: one uvicorn process, FastAPI function endpoint; per request `INCR`, `ZADD` + `ZRANK` in one "
            "round trip, one committed `INSERT`, HS256 token by PyJWT; asyncpg without an ORM, 32 connections.",
        ],
        sides=(Side("ours", open_ours), Side("textbook", open_textbook)),
    )


@asynccontextmanager
async def open_ours(trial: Trial) -> AsyncIterator[Target]:
    ports = await system.serve(trial, ("queue", "gateway"))
    await system.open_room(EVENT, ports["queue"])

    async def check(result: LoadResult) -> list[str]:
        return await compare(trial, result, "queue.place")

    yield Target(ports["gateway"], [JOIN], True, check)


@asynccontextmanager
async def open_textbook(trial: Trial) -> AsyncIterator[Target]:
    port = await trial.serve_textbook("textbook_joins")

    async def check(result: LoadResult) -> list[str]:
        return await compare(trial, result, "textbook.place")

    yield Target(port, [JOIN], True, check)


async def compare(trial: Trial, result: LoadResult, table: str) -> list[str]:
    """Checks that every answered number is on disk, once. Raises `CheckFailed`."""
    answered = [orjson.loads(body)["join_seq"] for body in result.created]
    rows = await trial.count(f"SELECT count(*) FROM {table} WHERE event_id = $1", EVENT.event_id)
    known = await trial.count(
        f"SELECT count(DISTINCT join_seq) FROM {table} WHERE event_id = $1 AND join_seq = ANY($2)",
        EVENT.event_id,
        answered,
    )
    if not len(answered) == known == rows:
        raise CheckFailed(
            f"{len(answered)} joins answered, {len(set(answered))} numbers, {known} of them and {rows} on disk"
        )
    return [f"{rows:,} answers = rows on disk", "no number twice"]
