"""Orders end to end with a provider that takes 50 ms: ours in the background, against charging within the request."""

import statistics
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from functools import partial

from bench.harness import load
from bench.harness.load import Load, LoadResult, quantile
from bench.harness.measurement import (
    US_PER_S,
    CheckFailed,
    Claim,
    Effort,
    Figures,
    Finding,
    Testbed,
    Trial,
    bare_per_cpu_s,
    budget_claim,
    cpu_seconds,
)
from bench.orders.orders import PASS_PUBLIC_KEY, purchases, serve_ours, serve_textbook
from onsale.local.ports import HOST, free_port
from shared.postgres.engine import raw_statement
from shared.security.tokens import b64, development_keys
from tests.support.wait import wait_until

PROVIDER_S, ORDERS, QUICK_ORDERS, POLL_S, TIMEOUT_S = 0.05, 6_000, 60, 0.2, 120.0
PACED_SHARE = 0.8
PARTS = ("orders", "inventory", "PostgreSQL", "Valkey")
HEADINGS = (
    "design", "server processes", "orders/s, POST to confirmed", "POST p50 ms", "POST p95 ms", "confirmed after p50 s",
    "p95 s", "processor µs an order", *(f"{part} µs" for part in PARTS),
)  # fmt: skip
BUDGET_US = (4_000, 2_000)
CONFIRMATION_TIMES = raw_statement(__package__, "confirmation_times")


@dataclass
class Design:
    """One way to process orders; `serve` returns the port, `table` holds its orders."""

    name: str
    serve: Callable[[Trial, int], Awaitable[int]]
    table: str
    processes: int
    rounds: list[tuple[float, ...]] = field(default_factory=list)

    def median(self) -> tuple[float, ...]:
        return tuple(map(statistics.median, zip(*self.rounds, strict=True)))

    def row(self) -> tuple[str, ...]:
        rate, p50_ms, p95_ms, p50_s, p95_s, *costs_us = self.median()
        times = f"{p50_ms:,.0f}", f"{p95_ms:,.0f}", f"{p50_s:.2f}", f"{p95_s:.2f}"
        return self.name, str(self.processes), f"{rate:,.0f}", *times, *(f"{cost_us:,.0f}" for cost_us in costs_us)

    @property
    def per_second(self) -> float:
        return self.median()[0]

    @property
    def cost_us(self) -> float:
        """Processor time of an order, the provider's apart."""
        return self.median()[5]


def checkout() -> Finding:
    """The finding, before it is measured."""
    return Finding(
        key="Checkout",
        title="orders end to end with the sandbox at 50 ms",
        settings=[
            f"{ORDERS:,} fans with a reservation each order as fast as they are answered; from the first order's row "
            "to the last confirmation, by the ledger. The sandbox provider is a process of its own and takes "
            f"{PROVIDER_S * 1000:.0f} ms for a charge.",
            "Ours: the orders process and the inventory process, default settings; charged in the background, sold at "
            "inventory, confirmed; the provider's webhooks are verified, stored and applied meanwhile.",
            "Textbook: the request writes the order in one transaction, charges, and confirms in a second one before "
            "it answers; no webhooks, no second service, nothing that would find a payment after a crash. Two "
            "processes, as ours has; once it asks the provider over httpx, as most would write it, and once over "
            "aiohttp, as ours does.",
            f"The last row is ours with fans who come at {PACED_SHARE:.0%} of the rate it had when all came at once.",
            "Processor time is that of servers and engines, the provider's left out.",
        ],
        find=find,
    )


async def find(testbed: Testbed, effort: Effort) -> Figures:
    """Measures all designs alternately, then ours at a slower pace."""
    designs = [
        Design("ours", serve_with_provider, 'orders."order"', 2),
        Design("textbook, in the request, httpx", partial(_serve_textbook, client="httpx"), "textbook.orders", 2),
        Design("textbook, in the request, aiohttp", partial(_serve_textbook, client="aiohttp"), "textbook.orders", 2),
    ]
    count = QUICK_ORDERS if effort.quick else ORDERS
    for _ in range(effort.rounds):
        for design in designs:
            async with testbed.trial() as trial:
                design.rounds.append(await _round(trial, design, count, effort.connections))
    mine, *rivals = designs
    best = min(rivals, key=lambda rival: rival.cost_us)
    paced = Design(f"ours, fans at {PACED_SHARE:.0%} of that", serve_with_provider, 'orders."order"', 2)
    async with testbed.trial() as trial:
        pause_s = effort.connections / (PACED_SHARE * mine.per_second)
        paced.rounds.append(await _round(trial, paced, count, effort.connections, pause_s=pause_s))
    posted_ms, others_ms = mine.median()[2], best.median()[2]
    return Figures(HEADINGS, [design.row() for design in (*designs, paced)], [
        Claim("P0 whole purchases, provider at 50 ms", f"{mine.per_second:,.0f}/s, {mine.cost_us:,.0f} µs",
              f"best of {len(rivals)}, {best.name}, {best.per_second:,.0f}/s, {best.cost_us:,.0f} µs",
              f"{best.cost_us / mine.cost_us:.2f} ×", "at least 2.5, aim 5"),
        *(Claim("whole purchases a second", f"{mine.per_second:,.0f}/s", f"{rival.name} {rival.per_second:,.0f}/s",
                f"{mine.per_second / rival.per_second:.2f} ×", "at least 2.5, aim 5") for rival in rivals),
        budget_claim("whole purchase", mine.cost_us, BUDGET_US, await bare_per_cpu_s(testbed, effort)),
        Claim("until a fan is answered, p95", f"{posted_ms:,.0f} ms", f"{best.name} {others_ms:,.0f} ms",
              f"{others_ms / posted_ms:.1f} × sooner"),
        Claim(f"confirmed, p95, at {PACED_SHARE:.0%} of the rate", f"{paced.median()[4]:.2f} s",
              f"all at once {mine.median()[4]:.2f} s", "", "at most 3 s"),
    ], [f"{count:,} orders answered 202 = confirmed = charged once, in every round"])  # fmt: skip


async def _round(
    trial: Trial, design: Design, count: int, connections: int, *, pause_s: float = 0.0
) -> tuple[float, ...]:
    """Rate, quantiles of the answer and of the confirmation, processor time of an order: in all, and by part."""
    port = await design.serve(trial, count)
    before = cpu_seconds(trial)
    sent = Load(HOST, port, purchases(count), connections, TIMEOUT_S, warm_up_s=0, expected_status=202, pause_s=pause_s)
    result = await load.run_in_process(sent)
    await until_confirmed(trial, design.name, design.table, result, count)
    spent = cpu_seconds(trial) - before
    parts_us = [spent[part] / count * US_PER_S for part in PARTS]
    parts_us[0] += spent["textbook_orders"] / count * US_PER_S
    times = await trial.row(CONFIRMATION_TIMES.format(table=design.table))
    answered_ms = (quantile(result.latencies_ms, share) for share in (0.5, 0.95))
    return (
        count / float(times["all_s"]), *answered_ms, float(times["p50_s"]), float(times["p95_s"]),
        sum(parts_us), *parts_us,
    )  # fmt: skip


async def until_confirmed(trial: Trial, name: str, table: str, result: LoadResult, count: int) -> None:
    """Waits until every answered order is confirmed, and charged once. Raises `CheckFailed`."""
    if result.statuses != {202: count} or result.broken:
        raise CheckFailed(f"{name}: {dict(result.statuses)}, {result.broken} broken, e.g. {result.refused[:1]}")
    await until_charged(trial, name, table, count)


async def until_charged(trial: Trial, name: str, table: str, count: int) -> None:
    """Waits until so many orders are confirmed. Raises `CheckFailed` unless each was charged once."""

    async def all_are_confirmed() -> bool:
        return await trial.count(f"SELECT count(*) FROM {table} WHERE status = 'confirmed'") >= count

    await wait_until(all_are_confirmed, timeout_s=TIMEOUT_S, interval_s=POLL_S)
    schema = table.partition(".")[0]
    charges = await trial.count(f"SELECT count(DISTINCT provider_ref) FROM {schema}.money_entry")
    if charges != count:
        raise CheckFailed(f"{name}: {charges} charges for {count} orders")


async def sandbox(trial: Trial, webhook_url: str | None, *, latency_s: float = PROVIDER_S) -> str:
    """The payment provider, which takes so long for a charge and reports to `webhook_url`; its address."""
    port = free_port()
    options = ["--webhook-url", webhook_url] if webhook_url else []
    environment = {
        "ONSALE_SANDBOX_LATENCY_S": str(latency_s),
        "ONSALE_SANDBOX_WEBHOOK_SECRET": b64(next(iter(development_keys("sandbox-webhook").keys.values()))),
    }
    command = ["onsale.sandbox", "--port", str(port), *options]
    await trial.serve("sandbox", command, port, environment, ready="/healthz")
    return f"http://{HOST}:{port}"


async def serve_with_provider(trial: Trial, count: int, *, latency_s: float = PROVIDER_S) -> int:
    """Ours, with a provider that takes so long; the port of orders."""
    orders_port = free_port()
    sandbox_url = await sandbox(trial, f"http://{HOST}:{orders_port}/webhooks/sandbox", latency_s=latency_s)
    settings = {"ONSALE_SANDBOX_URL": sandbox_url}
    ports = await serve_ours(trial, held=count, settings=settings, fixed={"orders": orders_port})
    return ports["orders"]


async def _serve_textbook(trial: Trial, count: int, *, client: str) -> int:
    more = {
        "BENCH_SANDBOX_URL": await sandbox(trial, None), "BENCH_PASS_PUBLIC_KEY": PASS_PUBLIC_KEY,
        "BENCH_PROVIDER_CLIENT": client,
    }  # fmt: skip
    return await serve_textbook(trial, held=count, processes=2, **more)
