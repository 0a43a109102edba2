"""`python -m bench [NAME …]`: runs benchmarks, prints their ratios, and writes each to `bench/RESULTS.md` when done."""

import argparse
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

import uvloop
from rich.console import Console

from bench.harness.measurement import Effort, Finding, Measurement, Testbed, bare_per_cpu_s, one_round, testbed
from bench.journey.journey import journey
from bench.journey.peer import peer
from bench.journey.replay import replay
from bench.journey.suites import suites
from bench.line.admissions import admissions
from bench.line.designs import designs
from bench.line.joins import joins, sale_log
from bench.line.memory import memory
from bench.line.refill import refill
from bench.line.status import status
from bench.orders.checkout import checkout
from bench.orders.order_cost import order_cost
from bench.orders.orders import orders, orders_rush
from bench.orders.slow_provider import slow_provider
from bench.pages.hall_map import hall_map
from bench.pages.page_load import page_load
from bench.record import excerpts, front, machine, report, results
from bench.record.digest import digest
from bench.scale import coefficients, plan_and_night, simulation
from bench.scale.clustered import clustered
from bench.scale.growth import growth
from bench.scale.processes import processes
from bench.stock.hold_expiry import endings
from bench.stock.isolation import isolation
from bench.stock.last_tickets import last_tickets
from bench.stock.price_types import price_types
from bench.stock.redis_rebuild import reopen
from bench.stock.reservations import reservations
from bench.stock.stock_designs import stock
from bench.streams.soak import soak
from bench.streams.streams import streams

MEASUREMENTS: dict[str, Callable[[], Measurement | Finding]] = {
    "journey": journey, "suites": suites, "replay": replay, "peer": peer, "checkout": checkout, "joins": joins,
    "status": status, "admissions": admissions, "reservations": reservations, "price_types": price_types,
    "orders": orders, "orders_rush": orders_rush, "order_cost": order_cost, "slow_provider": slow_provider,
    "refill": refill,
    "memory": memory, "growth": growth, "designs": designs, "stock": stock, "last_tickets": last_tickets,
    "endings": endings, "isolation": isolation, "reopen": reopen, "streams": streams, "processes": processes,
    "clustered": clustered, "soak": soak, "map": hall_map, "pages": page_load, "sale_log": sale_log,
}  # fmt: skip
ON_THE_PAGE = [
    name for name in MEASUREMENTS if name not in ("processes", "clustered", "soak", "map", "pages", "sale_log")
]
QUICK = Effort(seconds=0.2, connections=4, rounds=1, quick=True)
PIPE_WIDTH, BUSY_CORES_MAX = 200, 1.0
BENCH_DIR = Path(__file__).parent
PAGE = BENCH_DIR.parent / "docs" / "explain" / "benchmarks.md"
DATA_DIR = BENCH_DIR.parent / ".onsale"


@dataclass(frozen=True)
class Options:
    """The command line."""

    names: Sequence[str]
    effort: Effort
    stale: bool = False
    anyway: bool = False

    def command_line(self, name: str, measurement: Measurement | Finding) -> str:
        """The command that repeats this measurement."""
        seconds, connections, rounds = self.effort.seconds, self.effort.connections, self.effort.rounds
        fixed = isinstance(measurement, Measurement) and measurement.connections is not None
        connections_option = "" if fixed else f" --connections {connections}"
        return f"python -m bench {name} --seconds {seconds:g}{connections_option} --rounds {rounds}"


def parse_options(arguments: Sequence[str] | None = None) -> Options:
    """Options from the command line; no name means all."""
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(MEASUREMENTS)}; none means all")
    parser.add_argument("--seconds", type=float, default=8, help="measured seconds of one side's round")
    parser.add_argument("--connections", type=int, default=128, help="keep-alive connections of the load generator")
    parser.add_argument("--rounds", type=int, default=3, help="rounds of each side")
    parser.add_argument("--quick", action="store_true", help="only check that it works: tiny sizes, writes nothing")
    parser.add_argument("--stale", action="store_true", help="measure nothing: list records older than their code")
    parser.add_argument("--anyway", action="store_true", help="record even what was measured on a busy machine")
    given = parser.parse_args(arguments)
    if unknown := set(given.names) - set(MEASUREMENTS):
        parser.error(f"there is no measurement {', '.join(sorted(unknown))}; there are {', '.join(MEASUREMENTS)}")
    if given.seconds <= 0 or given.connections < 1 or given.rounds < 1:
        parser.error("seconds, connections and rounds must be positive")
    effort = QUICK if given.quick else Effort(given.seconds, given.connections, given.rounds)
    return Options(given.names or list(MEASUREMENTS), effort, stale=given.stale, anyway=given.anyway)


async def main(options: Options) -> None:
    """Runs one measurement after the other; prints and saves each before the next begins."""
    console = Console(highlight=False, width=None if sys.stdout.isatty() else PIPE_WIDTH)
    if options.stale:
        show_stale(console)
        return
    async with testbed(DATA_DIR) as engines:
        about, settings = machine.machine(engines.data_dir), await engines.settings()
        for name in options.names:
            busy = await machine.busy_cores()
            measurement = MEASUREMENTS[name]()
            await measure(engines, measurement, options.effort, console)
            report.show(console, measurement)
            if busy > BUSY_CORES_MAX and not options.anyway:
                console.print(f"not recorded: {busy:.1f} cores were busy before it began (--anyway records it)")
            elif not options.effort.quick:
                date = datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC")
                how = options.command_line(name, measurement)
                save_result(name, results.Result.of(
                    measurement, date=date, how=how, machine=about, engines=settings, code=digest(name)
                ))  # fmt: skip
    if not options.effort.quick:
        simulation.write()


def save_result(name: str, result: results.Result) -> None:
    """Saves the result with the earlier ones, then writes the report, documents' tables and the plan's coefficients."""
    results.save(BENCH_DIR / "results", name, result)
    (BENCH_DIR / "RESULTS.md").write_text(results.document(results.saved(BENCH_DIR / "results", MEASUREMENTS)))
    PAGE.write_text(results.page_with(PAGE.read_text(), results.saved(BENCH_DIR / "results", ON_THE_PAGE)))
    front.write_measured()
    coefficients.update_files()
    plan_and_night.write()
    excerpts.write()


def show_stale(console: Console) -> None:
    """Lists the records that are older than the code they measured."""
    old = results.stale(BENCH_DIR / "results")
    for name, date in old.items():
        console.print(f"{name}: of {date}, and its code has changed since")
    console.print(f"{len(old)} of {len(list((BENCH_DIR / 'results').glob('*.json')))} records are stale")


async def measure(testbed: Testbed, measurement: Measurement | Finding, effort: Effort, console: Console) -> None:
    """Runs the sides alternately, so that a noisy minute of the machine affects both. A finding does that itself."""
    if isinstance(measurement, Finding):
        measurement.figures = await measurement.find(testbed, effort)
        return
    measurement.rounds = {side.name: [] for side in measurement.sides}
    if measurement.connections is not None and not effort.quick:
        effort = replace(effort, connections=measurement.connections)
    if measurement.budget_us is not None:
        measurement.bare_per_cpu_s = await bare_per_cpu_s(testbed, effort)
    for number in range(1, effort.rounds + 1):
        for side in measurement.sides:
            done = await one_round(testbed, side, effort)
            measurement.rounds[side.name].append(done)
            console.print(f"{measurement.key} round {number}, {side.name}: {done.per_second:,.0f}/s", style="dim")


if __name__ == "__main__":
    uvloop.run(main(parse_options()))
