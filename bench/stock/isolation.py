"""One hot event among fifty: the latency of the forty-nine others, with ours and with the textbook."""

import asyncio
import base64
import functools
import itertools
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field

from bench.harness import load, system
from bench.harness.load import Load, LoadResult, quantile
from bench.harness.measurement import CheckFailed, Claim, Effort, Figures, Finding, Testbed, Trial
from bench.stock.reservations import EVENT, PASS_KEYS, PRICE_MINOR, TICKETS, reservation_request
from onsale.local.ports import HOST
from shared.contracts.event_file import GaSection

EVENTS, QUICK_EVENTS, CAPACITY = 50, 3, 100_000
FANS, PAUSE_S, HOT_FANS, SECONDS_MAX, WARM_UP_S, ROUNDS_MAX = 49, 0.25, 128, 5.0, 1.0, 2
HOT_REQUESTS, QUICK_REQUESTS, AT_MOST = (0, 4_000, 24_000), 2_000, 1.5
HEADINGS = ("side", "the hot event", "hot: reservations/s", "others: p50 ms", "others: p99 ms", "p99 to idle")
IDLE, PACED, FLAT_OUT = "idle", "paced", "flat out"


def isolation() -> Finding:
    """The finding, before it is measured."""
    return Finding(
        key="Isolation",
        title="fifty events on sale, one of them hot",
        settings=[
            f"{EVENTS} events in one process and one ledger. {FANS} fans make reservations of {TICKETS} tickets in the "
            f"{EVENTS - 1} others, one event after another, each about {PAUSE_S:g} s after their last answer.",
            f"Meanwhile the hot event is idle, or {HOT_FANS} fans reserve in it: paced, about {PAUSE_S:g} s after "
            "their last answer (ten times what a waiting room lets in by default); or flat out, at once after it.",
            "Ours: the inventory process over HTTP with pass check. Textbook: one uvicorn process, `SELECT … FOR "
            "UPDATE`, 32 connections, as in P4. The three conditions follow each other within a round.",
            "Flat out both cores are full, with the load generators among what fills them: a process more per service "
            "and a core each is what an operator would add.",
        ],
        find=find,
    )


@dataclass
class Latencies:
    """Latencies of the other events under one condition, and the reservations per second of the hot event."""

    others_ms: list[float] = field(default_factory=list)
    hot_per_s: list[float] = field(default_factory=list)

    def quantile_ms(self, share: float) -> float:
        return quantile(self.others_ms, share)


async def find(testbed: Testbed, effort: Effort) -> Figures:
    """Runs the sides alternately; all conditions one after the other on each."""
    found = {(side, condition): Latencies() for side in SIDES for condition in (IDLE, PACED, FLAT_OUT)}
    for _ in range(min(effort.rounds, ROUNDS_MAX)):
        for side, opened in SIDES.items():
            async with testbed.trial() as trial, opened(trial, QUICK_EVENTS if effort.quick else EVENTS) as port:
                for number, condition in enumerate((IDLE, PACED, FLAT_OUT)):
                    await _measure(port, effort, number, found[side, condition])
    return Figures(HEADINGS, [_row(found, *at) for at in found], _claims(found))


def _row(found: dict[tuple[str, str], Latencies], side: str, condition: str) -> tuple[str, ...]:
    latencies, idle = found[side, condition], found[side, IDLE]
    hot = sum(latencies.hot_per_s) / len(latencies.hot_per_s)
    return (side, condition, f"{hot:,.0f}", f"{latencies.quantile_ms(0.5):.1f}", f"{latencies.quantile_ms(0.99):.1f}",
            f"{latencies.quantile_ms(0.99) / idle.quantile_ms(0.99):.2f} ×")  # fmt: skip


def _claims(found: dict[tuple[str, str], Latencies]) -> list[Claim]:
    def ratio_text(side: str, condition: str) -> str:
        late, idle = (found[side, c].quantile_ms(0.99) for c in (condition, IDLE))
        return f"{late / idle:.2f} × its idle {idle:.1f} ms"

    mine, theirs = next(iter(SIDES)), list(SIDES)[-1]
    claims = []
    for condition in (PACED, FLAT_OUT):
        late = found[mine, condition].quantile_ms(0.99)
        ratio = late / found[mine, IDLE].quantile_ms(0.99)
        claims.append(Claim(
            f"others' p99 while one event of fifty is hot, {condition}", f"{late:.1f} ms",
            f"{theirs} {ratio_text(theirs, condition)}", f"{ratio:.2f} × idle", f"at most {AT_MOST} × idle",
        ))  # fmt: skip
    return claims


async def _measure(port: int, effort: Effort, number: int, latencies: Latencies) -> None:
    """One condition: load on the other events alone, or on the hot event as well."""
    seconds, most = min(effort.seconds, SECONDS_MAX), QUICK_REQUESTS if effort.quick else HOT_REQUESTS[number]
    events = QUICK_EVENTS if effort.quick else EVENTS
    fans = Load(
        HOST, port, other_requests(events, number), min(FANS, effort.connections), seconds, warm_up_s=WARM_UP_S,
        pause_s=PAUSE_S,
    )  # fmt: skip
    loads = [fans]
    if number:
        pause_s = PAUSE_S if number == 1 else 0.0
        connections = min(HOT_FANS, effort.connections)
        hot = hot_requests(number, most)
        loads.append(Load(HOST, port, hot, connections, seconds, warm_up_s=WARM_UP_S, pause_s=pause_s))
    result = await asyncio.gather(*map(load.run_in_process, loads))
    for one in result:
        _require_all_answered(one)
    latencies.others_ms += result[0].latencies_ms
    latencies.hot_per_s.append(result[1].per_second if number else 0.0)


def _require_all_answered(result: LoadResult) -> None:
    if result.broken or result.ran_out or set(result.statuses) != {201}:
        raise CheckFailed(f"answers {dict(result.statuses)}, {result.broken} broken, ran out: {result.ran_out}")


def event_id(number: int) -> str:
    """The event's id; number 0 is the hot one."""
    return f"{EVENT.event_id}-{number}"


BODY = {"ga": [{"section_id": "GA0", "quantity": TICKETS}]}


@functools.cache
def other_requests(events: int, number: int, count: int = 1500) -> list[bytes]:
    """Reservations of new fans in all events but the hot one, one event after another."""
    numbers = itertools.cycle(range(1, events))
    return [reservation_request(number * count + n, BODY, event_id(next(numbers))) for n in range(count)]


@functools.cache
def hot_requests(number: int, count: int) -> list[bytes]:
    """Reservations in the hot event."""
    return [reservation_request(number * count + n, BODY, event_id(0)) for n in range(count)]


@asynccontextmanager
async def open_ours(trial: Trial, events: int) -> AsyncIterator[int]:
    ports = await system.serve(trial, ("inventory",))
    section = GaSection(section_id="GA0", name="Floor", kind="ga", capacity=CAPACITY, price_minor=PRICE_MINOR)
    for number in range(events):
        event = EVENT.model_copy(update={"event_id": event_id(number), "sections": [section]})
        await system.apply_to_inventory(event, ports["inventory"])
    yield ports["inventory"]


@asynccontextmanager
async def open_textbook(trial: Trial, events: int) -> AsyncIterator[int]:
    public = next(iter(PASS_KEYS.public().keys.values()))
    port = await trial.serve_textbook("textbook_reservations", BENCH_PASS_PUBLIC_KEY=base64.b64encode(public).decode())
    sections = [(event_id(number), "GA0", PRICE_MINOR, CAPACITY) for number in range(events)]
    async with trial.connection() as connection:
        await connection.copy_records_to_table("section", schema_name="textbook", records=sections)
    yield port


SIDES: dict[str, Callable[[Trial, int], AbstractAsyncContextManager[int]]] = {
    "ours": open_ours, "textbook": open_textbook,
}  # fmt: skip
