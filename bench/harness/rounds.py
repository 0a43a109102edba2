"""One round of one side, with the processor time of all its processes and engines; bare uvicorn, to scale budgets."""

import base64
import gc
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import orjson

from bench.harness import load
from bench.harness.cost import cpu_seconds
from bench.harness.load import Load, LoadResult, request
from bench.harness.measurement import CheckFailed, Effort, Round, Side, Target, summarize
from bench.harness.testbed import Testbed, Trial
from onsale.local.ports import HOST

SAMPLE = orjson.dumps([[["content-type", "application/json"], ["content-length", "13"]], '{"bare":true}'])


async def one_round(testbed: Testbed, side: Side, effort: Effort) -> Round:
    """Starts one side, loads it, compares its database with its answers, stops it. Raises `CheckFailed`."""
    async with testbed.trial() as trial, side.open(trial) as target:
        gc.collect()
        before = cpu_seconds(trial)
        result = await load.run_in_process(
            Load(HOST, target.port, target.requests, effort.connections, effort.seconds, repeat=target.repeat,
                 expected_status=target.expected_status, warm_up_s=min(1.0, effort.seconds))
        )  # fmt: skip
        spent_s = sum((cpu_seconds(trial) - before).values())
        if not spent_s:
            raise CheckFailed("there is no processor time to read: this needs Linux")
        return summarize(result, await target.check(result), wanted=target.expected_status, cpu_s=spent_s)


async def bare_per_cpu_s(testbed: Testbed, effort: Effort) -> float:
    """What bare uvicorn answers per second of processor time on this machine, now."""
    return (await one_round(testbed, Side("bare uvicorn", _open_bare), effort)).per_cpu_s


@asynccontextmanager
async def _open_bare(trial: Trial) -> AsyncIterator[Target]:
    port = await trial.serve_textbook("bare", BENCH_ANSWER=base64.b64encode(SAMPLE).decode())

    async def check(result: LoadResult) -> list[str]:
        return [f"{result.statuses[200]:,} answers"]

    yield Target(port, [request("GET", "/")], True, check, expected_status=200)
