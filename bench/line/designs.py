"""Usual designs of a line, compared with ours: on the same PostgreSQL and Redis, with the same data, alternately.

Our line as one of the compared designs: its Redis part by the real scripts, and its joins with the database.
"""

import functools
import random
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from typing import Self

from bench.baselines.line_designs import Design, ListAndHash, PostgresQueue, SortedSet, fan, portions
from bench.harness.measurement import Claim, Effort, Figures, Finding, Testbed, Trial
from bench.harness.pipes import Operation, Pipes, Timing, prepare, run_calls
from bench.line.joins import PLACES
from bench.line.waiting_rooms import Queue, queue
from onsale.server.pauses import short_pauses
from services.gateway.waiting_line.snapshot import LineSnapshot, Polls
from services.gateway.waiting_line.wait_estimate import WaitEstimate
from services.queue import redis_keys
from services.queue.admission.gatekeeper import TICK
from services.queue.line.redis_line import ACKNOWLEDGE, ALLOCATE, COMMIT_JOIN
from shared.contracts.frames import LaneHead, LineFrame
from shared.contracts.queue import JoinBatch, JoinRequest
from shared.redis.client import Argument, Script
from shared.runtime.clock import now_ms

RATE_PER_S = 20  # of simulated time: real time adds little to it
ROOM = {"rate_per_s": RATE_PER_S, "burst": 100, "liveness_window_s": 600, "claim_window_s": 3600}


class OurLine:
    """Joins by `allocate` and `commit_join`, calls by `tick` and its acknowledgement; a position needs no Redis."""

    name = "ours, the engine's part"

    event_id = "memory"

    def __init__(self, trial: Trial, line: Queue, pipes: Pipes, connections: int) -> None:
        self._trial, self._line, self._pipes, self._connections = trial, line, pipes, connections
        self._joined = self._admitted = self._batches = 0
        self._offset_ms = 0
        room = line.room
        self._event, self._epoch = room.event_id, room.epoch
        self._alive = dict(
            zip(("alive_0", "alive_1", "alive_2"), redis_keys.alive(self._event, self._epoch, 0), strict=True)
        )

    @classmethod
    @asynccontextmanager
    async def on(cls, trial: Trial, *, connections: int) -> AsyncIterator[Self]:
        pipes = await Pipes.open(trial.redis_url, connections)
        try:
            async with queue(trial, cls.event_id, **ROOM) as line:
                for script in (ALLOCATE, COMMIT_JOIN, TICK, ACKNOWLEDGE):
                    await line.redis.script_load(script.source)
                yield cls(trial, line, pipes, connections)
        finally:
            pipes.close()

    async def fill(self, count: int) -> None:
        await self._line.join_all(count)
        await self._line.tick()
        self._joined = count

    async def bytes_kept(self) -> int:
        """Bytes by all keys of the event."""
        keys = [key async for key in self._line.redis.scan_iter(f"queue:{{{self._event}}}:*")]
        return sum([await self._line.redis.memory_usage(key, samples=0) for key in keys])

    async def join(self, count: int, *, each: int) -> Timing:
        operations = [self._join(len(fans)) for fans in portions(0, count, each)]
        self._joined += count
        return await self._pipes.run(operations, fans=count)

    def _join(self, count: int) -> Operation:
        self._batches += 1
        batch, inflight = f"batch-{self._batches}", redis_keys.inflight(self._event, self._epoch, 0)
        own: dict[str, Argument] = {
            "epoch": self._epoch,
            "lane": 0,
            "inflight": inflight,
            "clock_offset_ms": self._offset_ms,
        }
        [[_, first, granted, _]] = yield self._packed(ALLOCATE, {**own, "batch_id": batch, "count": count})
        member, runs = f"{first}:{granted}:{batch}", [first, first + granted - 1]
        of_lane: dict[str, Argument] = {**self._alive, **self._lane("taken", "done")}
        yield self._packed(
            COMMIT_JOIN, {**own, **self._of("called", "active"), **of_lane, "member": member, "runs": runs}
        )

    async def position(self, count: int) -> Timing:
        """Computes positions from a frame as the gateway does; nothing is sent."""
        snapshot = self._snapshot()
        waiting = random.Random(count).choices(range(self._admitted + 1, self._joined + 1), k=count)
        timing, started_s = Timing(count), time.perf_counter()
        for n in waiting:
            at_s = time.perf_counter()
            snapshot.position(0, n)
            timing.latencies_ms.append((time.perf_counter() - at_s) * 1000)
        timing.seconds = time.perf_counter() - started_s
        return timing

    def _snapshot(self) -> LineSnapshot:
        lanes = {0: LaneHead(head_seq=self._admitted, tail_seq=self._joined)}
        frame = LineFrame(
            event_id=self._event, epoch=1, version=1, ready=True, at_ms=0, state="open", lanes=lanes, rate_per_s=50
        )
        return LineSnapshot(frame, estimate=WaitEstimate(per_place_s=0.02), received_s=0, polls=Polls(1000, 30_000))

    async def admit(self, count: int, *, each: int) -> Timing:
        before = await self._calls()
        operations = [self._admit(len(part)) for part in portions(0, count, each)]
        timing = await self._pipes.run(operations, fans=count)
        timing.fans = await self._calls() - before  # the real time of the run adds a few calls
        self._admitted += timing.fans
        return timing

    def _admit(self, count: int) -> Operation:
        self._offset_ms += count * 1000 // RATE_PER_S
        unwritten = redis_keys.unwritten(self._event, self._epoch)
        stock: dict[str, Argument] = {"stock_available": -1, "holders_holding": 0, "stock": "unknown"}
        stock |= {"holds_begun": 0, "holds_released": 0, "stock_version": 0}
        lanes: dict[str, Argument] = {"lane_keys": redis_keys.of_lanes(self._event, self._epoch, [0]), "lanes": [0]}
        own: dict[str, Argument] = {
            "epoch": self._epoch,
            "unwritten": unwritten,
            "heartbeat_gap": 0,
            "clock_offset_ms": self._offset_ms,
            "others_ms": now_ms() + self._offset_ms,
        }
        [[_, _, changes, _]] = yield self._packed(
            TICK, {**own, **self._of("called", "active", "misses"), **stock, **lanes}
        )
        if changes:
            number = changes[-1].partition(b":")[0]
            generation = self._line.room.generation
            yield self._packed(ACKNOWLEDGE, {"unwritten": unwritten, "generation": generation, "up_to": number})

    async def _calls(self) -> int:
        return int(await self._line.redis.hget(redis_keys.room(self._event), "calls") or 0)

    def _packed(self, script: Script, named: Mapping[str, Argument]) -> tuple[bytes, int]:
        names, arguments = script.bind({"room": redis_keys.room(self._event), **named})
        return prepare(("EVALSHA", script.sha, len(names), *names, *arguments))

    def _of(self, *names: str) -> dict[str, Argument]:
        return {name: getattr(redis_keys, name)(self._event, self._epoch) for name in names}

    def _lane(self, *names: str) -> dict[str, Argument]:
        return {name: getattr(redis_keys, name)(self._event, self._epoch, 0) for name in names}


class OurDurableLine(OurLine):
    """The same with PostgreSQL: a join is answered once it is on disk, a call is written before it is published."""

    name = "ours, on disk"
    event_id = "stored"

    async def fill(self, count: int) -> None:
        await self._trial.sql(PLACES.format(event_id=self._event, count=count), "VACUUM ANALYZE queue.place")
        await self._line.line.raise_counter(self._event, self._epoch, 0, count)
        await self._line.tick()
        self._joined = count

    async def bytes_kept(self) -> int:
        """Bytes on disk, indexes included."""
        return await self._trial.count("SELECT pg_total_relation_size('queue.place')")

    async def join(self, count: int, *, each: int) -> Timing:
        batches = [JoinBatch(
            event_id=self._event, batch_id=f"durable-{self._joined + fans[0]}",
            joins=[JoinRequest(holder=fan(self._joined + n)) for n in fans],
        ) for fans in portions(1, count, each)]  # fmt: skip
        self._joined += count
        joins = self._line.state.joins
        calls = (functools.partial(joins.join, batch) for batch in batches)
        return await run_calls(calls, connections=self._connections, fans=count)

    async def admit(self, count: int, *, each: int) -> Timing:
        before = await self._calls()
        batches = (functools.partial(self._call_batch, len(part)) for part in portions(0, count, each))
        timing = await run_calls(batches, connections=1, fans=count)
        timing.fans = await self._calls() - before
        self._admitted += timing.fans
        return timing

    async def _call_batch(self, count: int) -> None:
        self._line.advance_clock(count * 1000 // RATE_PER_S)
        await self._line.state.gatekeeper.tick(self._event)


DESIGNS = (SortedSet, ListAndHash, PostgresQueue, OurLine, OurDurableLine)
SIZES, QUICK_SIZES = (10_000, 100_000, 1_000_000), (300,)
CONNECTIONS, BATCH, RUN_FANS, QUICK_FANS, POSITIONS = 32, 100, 2_000, 100, 20_000
QUOTED = {
    SortedSet.name: "5 ms, 25,000/s",
    ListAndHash.name: "2 ms, 50,000/s",
    PostgresQueue.name: "50 ms, 2,000/s",
}
HEADINGS = ("waiting", "design", "join/s", "p95 ms", f"join/s, {BATCH} a request", "position/s", "p95 ms", "admit/s",
            "p95 ms", f"admit/s, {BATCH} a request", "bytes a fan", "people quote")  # fmt: skip
OPERATIONS = ("join", "join many", "position", "admit", "admit many")


def designs() -> Finding:
    """The finding, before it is measured."""
    return Finding(
        key="Lines",
        title="ways to keep a line",
        settings=[
            f"All designs stand filled on the same engines at once and take turns, verb by verb, with {CONNECTIONS} "
            f"connections; {RUN_FANS:,} fans join and as many are admitted per turn, so the line keeps its length.",
            "One request is one round trip in each design's best form (two for our joins: numbers, then bits). "
            f"Batched: {BATCH} fans in one request.",
            "Sorted set and list + hash keep nothing on disk beyond Valkey's own log. PostgreSQL commits every "
            "request; its position is a difference of numbers by an index, as counting would read the whole line.",
            "Ours: the engine's part alone, by the real scripts, and with its ledger as the queue runs it, in one "
            "process. Both keep signs of life, fences and calls not yet written, which the others have not. "
            "A position asks no engine: the gateway subtracts, in one process; calls on disk go one tick at a time.",
            "Bytes: `MEMORY USAGE` of all keys per waiting fan; for PostgreSQL and on disk, table and indexes.",
            "Of a batched join of ours on disk the queue's Python takes half of the processor time: it checks each fan "
            "against the room's rules, keys and codes, and makes an answer of each; the rival passes names through. "
            "PostgreSQL takes about a third more than for the rival's table: keys by event, a fence, the event for "
            "other services. The rest is Valkey's numbers and bits.",
            "What people quote is for a line of 10,000, without method.",
        ],
        find=find,
    )


@dataclass
class DesignRun:
    """One open design, and the timing of its runs by operation."""

    design: Design
    bytes_a_fan: float = 0.0
    timing: dict[str, Timing] = field(default_factory=lambda: {operation: Timing() for operation in OPERATIONS})

    async def run(self, operation: str, fans: int, positions: int) -> None:
        """Runs one operation once."""
        match operation:
            case "join" | "join many":
                timing = await self.design.join(fans, each=1 if operation == "join" else BATCH)
            case "position":
                timing = await self.design.position(positions)
            case _:
                timing = await self.design.admit(fans, each=1 if operation == "admit" else BATCH)
        self.timing[operation].add(timing)


async def find(testbed: Testbed, effort: Effort) -> Figures:
    """Measures all designs at all sizes."""
    rows, by_size = [], {}
    for size in QUICK_SIZES if effort.quick else SIZES:
        by_size[size] = await _measure(testbed, effort, size)
        rows += [_row(size, design_run) for design_run in by_size[size]]
    size, runs = by_size.popitem()
    return Figures(HEADINGS, rows, _claims(size, {design_run.design.name: design_run for design_run in runs}))


async def _measure(testbed: Testbed, effort: Effort, size: int) -> list[DesignRun]:
    """All designs with `size` fans waiting, one operation after another."""
    fans, positions = (QUICK_FANS, QUICK_FANS) if effort.quick else (RUN_FANS, POSITIONS)
    async with testbed.trial() as trial, short_pauses(), AsyncExitStack() as stack:
        runs = []
        for design in DESIGNS:
            opened: Design = await stack.enter_async_context(design.on(trial, connections=CONNECTIONS))
            await opened.fill(size)
            runs.append(DesignRun(opened, await opened.bytes_kept() / size))
        for _ in range(effort.rounds):
            for operation in OPERATIONS:
                for design_run in runs:
                    await design_run.run(operation, fans, positions)
    return runs


def _row(size: int, design_run: DesignRun) -> tuple[str, ...]:
    join, many, position, admit, admit_many = (design_run.timing[operation] for operation in OPERATIONS)
    return (
        f"{size:,}", design_run.design.name, _rate(join), f"{join.p95_ms:.2f}", _rate(many), _rate(position),
        f"{position.p95_ms:.4f}" if position.p95_ms < 0.01 else f"{position.p95_ms:.2f}", _rate(admit),
        f"{admit.p95_ms:.2f}", _rate(admit_many), f"{design_run.bytes_a_fan:.2f}",
        QUOTED.get(design_run.design.name, ""),
    )  # fmt: skip


def _rate(timing: Timing) -> str:
    return f"{timing.per_second:,.0f}"


def _claims(size: int, by_name: dict[str, DesignRun]) -> list[Claim]:
    """Ours compared with the best other design for the operation, at the longest line."""
    ours, durable = by_name[OurLine.name], by_name[OurDurableLine.name]
    compared: Sequence[tuple[str, str, DesignRun, str]] = (
        ("position", SortedSet.name, ours, "position"),
        ("batched joins in the engine", SortedSet.name, ours, "join many"),
        ("durable joins, batched", PostgresQueue.name, durable, "join many"),
    )
    return [
        Claim(
            f"{what} with {size:,} waiting", f"{_rate(mine.timing[operation])}/s",
            f"{other} {_rate(by_name[other].timing[operation])}/s",
            f"{mine.timing[operation].per_second / by_name[other].timing[operation].per_second:,.1f} ×",
        )
        for what, other, mine, operation in compared
    ]  # fmt: skip
