"""Our line as one of the compared designs: its Redis part by the real scripts, and its joins with the database."""

import functools
import random
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Self

from bench.baselines.line_designs import fan, portions
from bench.harness.pipes import Operation, Pipes, Timing, prepare, run_calls
from bench.harness.testbed import Trial
from bench.line.joins import PLACES
from bench.line.waiting_rooms import Queue, queue
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
