"""The cost of a Redis cluster: joins and reservations with a standalone Redis and with three primaries."""

import os
import statistics
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import replace

from bench.harness import load
from bench.harness.load import Load
from bench.harness.measurement import Claim, Effort, Figures, Finding, Round, Target, Testbed, Trial, summarize
from bench.line import joins
from bench.stock import reservations
from onsale.local.binaries import find_redis
from onsale.local.ports import HOST
from tests.support.engines.engine_groups import Cluster

PRIMARIES, ROUNDS_MAX = 3, 3
STANDALONE, CLUSTER = "standalone", f"cluster of {PRIMARIES}"
HEADINGS = ("what", "engine", "per second", "p50 ms", "p99 ms")
WORK: dict[str, Callable[[Trial], AbstractAsyncContextManager[Target]]] = {
    "durable joins": joins.open_ours, "durable reservations": reservations.open_ours,
}  # fmt: skip


def clustered() -> Finding:
    """The finding, before it is measured."""
    return Finding(
        key="Cluster",
        title="the same services on a Redis cluster and on one engine",
        settings=[
            "Joins as in P1, reservations as in P4: the same services, requests, ledger and checks on both sides. "
            "One event, which is the dearest case: all its keys are with one primary, and the others only answer "
            "their gossip.",
            f"{PRIMARIES} primaries without replicas, on this machine, appendonly yes, appendfsync everysec, as the "
            "standalone engine. The sides take turns.",
            "Frames of the cluster are shown in shards as well, which is what `auto` means there.",
        ],
        find=find,
    )


async def find(testbed: Testbed, effort: Effort) -> Figures:
    """Runs both sides alternately for each kind of work."""
    found: dict[tuple[str, str], list[Round]] = {(what, side): [] for what in WORK for side in (STANDALONE, CLUSTER)}
    group = Cluster(find_redis(os.environ), testbed.data_dir / "cluster", replicas=False)
    try:
        urls = {STANDALONE: testbed.engines.redis_url, CLUSTER: group.url}
        for _ in range(min(effort.rounds, ROUNDS_MAX)):
            for (what, side), rounds in found.items():
                rounds.append(await _round(testbed, effort, what, urls[side]))
                group.flush_all()
    finally:
        group.end()
    return Figures(HEADINGS, [_row(*at, rounds) for at, rounds in found.items()], _claims(found))


async def _round(testbed: Testbed, effort: Effort, what: str, redis_url: str) -> Round:
    async with testbed.trial() as trial, WORK[what](replace(trial, redis_url=redis_url)) as target:
        load_plan = Load(HOST, target.port, target.requests, effort.connections, effort.seconds, repeat=target.repeat,
                     warm_up_s=min(1.0, effort.seconds))  # fmt: skip
        result = await load.run_in_process(load_plan)
        return summarize(result, await target.check(result))


def _row(what: str, side: str, rounds: list[Round]) -> tuple[str, ...]:
    p50, p99 = (statistics.median(figures) for figures in zip(*((r.p50_ms, r.p99_ms) for r in rounds), strict=True))
    return what, side, f"{_rate(rounds):,.0f}", f"{p50:.1f}", f"{p99:.1f}"


def _rate(rounds: list[Round]) -> float:
    return statistics.median(round_.per_second for round_ in rounds)


def _claims(found: dict[tuple[str, str], list[Round]]) -> list[Claim]:
    claims = []
    for what in WORK:
        mine, alone = _rate(found[what, CLUSTER]), _rate(found[what, STANDALONE])
        claims.append(Claim(
            f"{what} on a {CLUSTER}", f"{mine:,.0f}/s", f"{STANDALONE} {alone:,.0f}/s", f"{mine / alone:.2f} ×"
        ))  # fmt: skip
    return claims
