"""P0'': whole purchases with a provider as slow as real ones are in a rush, at the pace kept with a fast one."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass

import psutil

from bench.harness import load
from bench.harness.load import Load
from bench.harness.measurement import CheckFailed, Claim, Effort, Figures, Finding, Testbed, Trial, descendants, verdict
from bench.orders.checkout import PACED_SHARE, PROVIDER_S, TIMEOUT_S, serve_with_provider, until_charged
from bench.orders.orders import purchases
from onsale.local.ports import HOST
from services.orders.tuning import DEFAULTS
from shared.postgres.engine import raw_statement

LATENCIES_S, ORDERS, QUICK_ORDERS = (PROVIDER_S, 1.0, 2.5), 8_000, 60
MORE_CONNECTIONS, SAMPLE_S, MIB = 4, 0.5, 2**20
KEPT_AT_LEAST, GROWTH_MAX = 0.95, 1.1
HEADINGS = (
    "provider takes s", "asked for a second", "confirmed a second", "refused with 503", "POST p95 ms",
    "confirmed after p50 s", "p95 s", "orders MiB at most, first half", "second half",
)  # fmt: skip
TIMES = raw_statement(__package__, "confirmation_rate")


def slow_provider() -> Finding:
    """The finding, before it is measured."""
    return Finding(
        key="P0''",
        title="whole purchases with a slow provider",
        settings=[
            f"First {ORDERS:,} fans order as fast as they are answered, with the provider at {PROVIDER_S:g} s: the "
            f"rate of this machine. Then as many come at {PACED_SHARE:.0%} of it, with each provider in turn.",
            f"The orders process and the inventory process, default settings: {DEFAULTS.workers} orders at once in a "
            f"process, without those that wait for the provider, and {DEFAULTS.in_work_max:,} with them. The sandbox "
            "is a process of its own.",
            "Confirmed a second: from the first confirmation to the last. Memory: resident, of the orders process, "
            "twice a second.",
        ],
        find=find,
    )


@dataclass(frozen=True)
class Pace:
    """One round: the provider's seconds, the rate asked for and kept, orders refused, times of answers and of
    confirmations, memory.
    """

    latency_s: float
    asked_per_s: float
    per_s: float
    refused: int
    post_p95_ms: float
    p50_s: float
    p95_s: float
    mib: Sequence[float]

    @property
    def halves_mib(self) -> tuple[float, float]:
        middle = max(1, len(self.mib) // 2)
        return max(self.mib[:middle]), max(self.mib[middle:] or self.mib)

    def row(self) -> tuple[str, ...]:
        rates = f"{self.asked_per_s:,.0f}", f"{self.per_s:,.0f}", f"{self.refused:,}"
        times = f"{self.post_p95_ms:,.0f}", f"{self.p50_s:.2f}", f"{self.p95_s:.2f}"
        return f"{self.latency_s:g}", *rates, *times, *(f"{mib:,.0f}" for mib in self.halves_mib)


async def find(testbed: Testbed, effort: Effort) -> Figures:
    count = QUICK_ORDERS if effort.quick else ORDERS
    rush = await _round(testbed, PROVIDER_S, count, effort.connections)
    more = effort.connections * MORE_CONNECTIONS
    paces = [await _round(testbed, latency_s, count, more, per_s=PACED_SHARE * rush.per_s) for latency_s in LATENCIES_S]
    checked = ["every order answered 202 was confirmed and charged once, in every round"]
    return Figures(HEADINGS, [pace.row() for pace in (rush, *paces)], claims(paces), checked)


def claims(paces: Sequence[Pace]) -> list[Claim]:
    """Each slow provider beside the fast one."""
    fast, *slow = paces
    found = []
    for pace in slow:
        before, after = pace.halves_mib
        kept, flat = pace.per_s >= KEPT_AT_LEAST * fast.per_s, after <= GROWTH_MAX * before
        found.append(Claim(
            f"P0'' whole purchases, provider at {pace.latency_s:g} s, {PACED_SHARE:.0%} of the rate",
            f"{pace.per_s:,.0f}/s; {before:,.0f} then {after:,.0f} MiB; {pace.refused:,} refused",
            f"provider at {fast.latency_s:g} s {fast.per_s:,.0f}/s",
            f"{pace.per_s / fast.per_s:.2f} ×, {verdict(met=kept and flat and not pace.refused)}",
            "the same rate, flat memory, 0 refused",
        ))  # fmt: skip
    return found


async def _round(
    testbed: Testbed, latency_s: float, count: int, connections: int, *, per_s: float | None = None
) -> Pace:
    async with testbed.trial() as trial:
        port = await serve_with_provider(trial, count, latency_s=latency_s)
        pause_s = connections / per_s if per_s else 0.0
        sent = Load(
            HOST, port, purchases(count), connections, TIMEOUT_S, warm_up_s=0, expected_status=202, pause_s=pause_s
        )
        async with _memory(trial) as mib:
            result = await load.run_in_process(sent)
            accepted = result.statuses[202]
            if {*result.statuses} - {202, 503} or result.broken or not accepted:
                raise CheckFailed(f"{dict(result.statuses)}, {result.broken} broken, e.g. {result.refused[:1]}")
            await until_charged(trial, f"provider at {latency_s:g} s", 'orders."order"', accepted)
        times = await trial.row(TIMES)
        p95_ms = load.quantile(result.latencies_ms, 0.95)
        kept = accepted / float(times["confirming_s"])
        return Pace(
            latency_s, per_s or kept, kept, refused=result.statuses[503], post_p95_ms=p95_ms,
            p50_s=float(times["p50_s"]), p95_s=float(times["p95_s"]), mib=mib,
        )  # fmt: skip


@asynccontextmanager
async def _memory(trial: Trial) -> AsyncIterator[list[float]]:
    """MiB of the orders process, one figure each half second, while this context lasts."""
    mib, processes = list[float](), [psutil.Process(pid) for pid in descendants({trial.pids["orders"]})]

    async def watch() -> None:
        while True:
            mib.append(sum(process.memory_info().rss for process in processes) / MIB)
            await asyncio.sleep(SAMPLE_S)

    watching = asyncio.create_task(watch())
    try:
        yield mib
    finally:
        watching.cancel()
