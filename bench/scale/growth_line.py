"""The cost of a join, a status poll and a tick in a line of a given length."""

import asyncio
import time

from bench.harness import load, system
from bench.harness.cost import REST_S, US_PER_S
from bench.harness.load import Load
from bench.harness.measurement import CheckFailed, Effort, Testbed, Trial, cpu_s
from bench.line.joins import EVENT, JOIN
from bench.line.status import ROOM, open_long_line, status_requests
from bench.line.waiting_rooms import Queue, queue
from onsale.local.ports import HOST
from services.queue.rooms.model import RequestedBy

TICKS, QUICK_TICKS, CALLS_A_TICK, RATE_PER_S = 400, 20, 50, 1000
STATUS_FANS = 1_000


async def services_cost(testbed: Testbed, effort: Effort, size: int) -> dict[str, float]:
    """µs of processor time for a join and for a status, with `size` places in the database before."""
    async with testbed.trial() as trial:
        ports = await system.serve(trial, ("queue", "gateway"))
        await open_long_line(trial, ports["queue"], size)
        await trial.sql("CHECKPOINT")
        await system.until_line_is_shown(ports["gateway"], ROOM, tail_seq=size)
        requests = status_requests(EVENT.event_id, range(max(1, size - STATUS_FANS), size + 1))
        status = await cost(trial, effort, ports["gateway"], requests, wanted=200)
        join = await cost(trial, effort, ports["gateway"], [JOIN], wanted=201)
        return {"join": join, "status": status}


async def cost(
    trial: Trial, effort: Effort, port: int, requests: list[bytes], *, wanted: int, repeat: bool = True
) -> float:
    """µs of processor time of this trial's servers and both databases for one answer, less what they spend at rest."""
    pids = [*trial.pids.values(), *trial.testbed.pids.values()]
    resting_s = cpu_s(*pids)
    await asyncio.sleep(REST_S)
    started_s, before_s = time.perf_counter(), cpu_s(*pids)
    at_rest = (before_s - resting_s) / REST_S
    sent = Load(HOST, port, requests, effort.connections, effort.seconds, warm_up_s=0.2, repeat=repeat,
                expected_status=wanted)  # fmt: skip
    result = await load.run_in_process(sent)
    spent_s = cpu_s(*pids) - before_s - at_rest * (time.perf_counter() - started_s)
    if not result.statuses[wanted]:
        raise CheckFailed(f"nothing was answered {wanted}: {dict(result.statuses)}, {result.broken} broken")
    return max(0.0, spent_s) * US_PER_S / result.statuses[wanted]


async def tick_cost(testbed: Testbed, effort: Effort, size: int) -> dict[str, float]:
    """µs inside Valkey for a tick that calls fifty, and for one that calls nobody."""
    ticks = QUICK_TICKS if effort.quick else TICKS
    waits = {"claim_window_s": 3600, "liveness_window_s": 600}
    async with (
        testbed.trial() as trial,
        queue(trial, EVENT.event_id, rate_per_s=RATE_PER_S, burst=CALLS_A_TICK, **waits) as line,
    ):
        await line.join_all(size)
        line.advance_clock(3 * 600_000)  # past the time in which places count as live without a heartbeat
        await line.report_all_alive(size)
        await line.tick()
        calling = await _ticks(line, ticks, RATE_PER_S)
        await line.state.rooms.change(line.room.event_id, {"rate_per_s": 0}, RequestedBy("bench"))
        await line.line.configure(await line.state.rooms.get(line.room.event_id))
        await line.tick()
        idle = await _ticks(line, ticks, 0)
        return {f"tick, {CALLS_A_TICK} calls": calling, "tick, no calls": idle}


async def _ticks(line: Queue, ticks: int, rate_per_s: int) -> float:
    """µs of Redis for a tick, in simulated time. Raises `CheckFailed` if it called at rate 0, or not otherwise."""
    calls, before_us = 0, await _script_us(line)
    for _ in range(ticks):
        line.advance_clock(CALLS_A_TICK * 1000 // RATE_PER_S)
        calls += await line.tick()
    spent_us = await _script_us(line) - before_us
    if (calls > 0) != (rate_per_s > 0):
        raise CheckFailed(f"{ticks} ticks called {calls} at {rate_per_s}/s")
    return spent_us / ticks


async def _script_us(line: Queue) -> int:
    """µs that Redis has spent in scripts so far."""
    return int((await line.redis.info("commandstats"))["cmdstat_evalsha"]["usec"])
