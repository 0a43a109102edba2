"""`make night`: half a million fans come in a burst; ten thousand tickets are sold, paid and confirmed; all hear it.

The five services and the databases run on this machine, as does the crowd. Exit code 1 if a guarantee did not hold.
"""

import argparse
import asyncio
import multiprocessing
import sys
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import get_args

import uvloop
from rich.console import Console

from bench.harness.measurement import Testbed, cpu_seconds, testbed
from bench.night import crowd, suite
from bench.night.crowd import Plan
from bench.night.fan import Pool, Sale
from bench.night.result import Night
from bench.night.streams import processes_for
from bench.night.suite import Rules
from shared.routes import Service

DATA_DIR = Path(__file__).parents[2] / ".onsale"
FANS_PER_STREAM, FANS_PER_S = 10, 4_000


def parse_options(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """Options from the command line."""
    parser = argparse.ArgumentParser(prog="python -m bench.night", description=__doc__)
    parser.add_argument("--fans", type=int, default=500_000, help="how many come; with fewer, all else is smaller too")
    parser.add_argument("--arrive-over", type=float, help="seconds over which they come; by default one for 4,000 fans")
    parser.add_argument("--tickets", type=int, help="how many there are; by default one for fifty fans")
    parser.add_argument("--streams", type=int, help="fans with a stream; by default one of ten")
    parser.add_argument(
        "--rate", type=float, default=150, help="admissions per second; by default what checkout carries on two cores"
    )
    parser.add_argument("--max-active", type=int, help="fans inside at once; by default two for each ticket")
    parser.add_argument("--begin", type=float, help="seconds until the sale; by default when the last fan comes")
    parser.add_argument("--polls-per-s", type=int, default=suite.POLLS_PER_S, help="GATEWAY_POLLS_PER_S")
    parser.add_argument("--window-ms", type=int, default=suite.WINDOW_MS, help="time between two frames of a stream")
    parser.add_argument("--minutes", type=float, default=15, help="give up after this long")
    parser.add_argument("--core-hour", type=float, default=0.03, help="what an hour of one rented core costs")
    parser.add_argument("--save", action="store_true", help="write bench/results/night.json and docs/images/night.svg")
    given = parser.parse_args(arguments)
    given.arrive_over = given.fans / FANS_PER_S if given.arrive_over is None else given.arrive_over
    given.begin = given.arrive_over if given.begin is None else given.begin
    if given.fans < 1 or given.rate <= 0 or given.minutes <= 0 or given.begin < 0 or given.arrive_over < 0:
        parser.error("fans, rate and minutes must be positive, begin and arrive-over not negative")
    given.tickets = given.tickets or max(1, given.fans // 50)
    given.streams = given.fans // FANS_PER_STREAM if given.streams is None else given.streams
    given.max_active = given.max_active or max(1000, 2 * given.tickets)
    if given.streams > given.fans:
        parser.error("more streams than fans")
    return given


async def night(engines: Testbed, options: argparse.Namespace) -> Night:
    """Runs the whole night and closes its books."""
    rules = Rules(
        options.rate, options.max_active, options.begin, polls_per_s=options.polls_per_s, window_ms=options.window_ms
    )
    async with engines.trial() as trial:
        running = await suite.start(trial, rules, notifiers=processes_for(options.streams))
        await running.open(suite.event(options.tickets, rules))
        pools: dict[Pool, Service] = {"stock": "inventory", "orders": "orders"}
        plan = Plan(
            Sale(suite.EVENT_ID, suite.SECTION_ID),
            fans=options.fans,
            arrive_over_s=options.arrive_over,
            streams=options.streams,
            ports={pool: running.ports[pools.get(pool, "gateway")] for pool in get_args(Pool)},
            notifier_ports=running.notifier_ports,
            seconds_max=options.minutes * 60,
        )
        before = cpu_seconds(trial)
        with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
            fans = asyncio.get_running_loop().run_in_executor(pool, crowd.run, plan)
            record = await fans
        spent = {name: seconds - before[name] for name, seconds in cpu_seconds(trial).items()}
        record.observations.capacity = options.tickets
        return Night(plan, options.tickets, record, rules=rules, spent_s=spent, wrong_books=await running.wrong_books())


async def main(options: argparse.Namespace) -> int:
    """Runs the night, prints it, and saves it if asked to; the exit code."""
    console = Console(highlight=False)
    async with testbed(DATA_DIR) as engines:
        result = await night(engines, options)
    result.show(console, core_hour=options.core_hour)
    if options.save:
        result.save(Path(__file__).parents[2])
    return 1 if result.failures else 0


if __name__ == "__main__":
    sys.exit(uvloop.run(main(parse_options())))
