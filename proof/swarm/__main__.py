"""Runs single plans of the swarm: `python -m proof.swarm --seed N`, or `--plan FILE` for one that was printed.

With `--shrink` the smallest plan that still fails is looked for and printed.
"""

import argparse
import asyncio
import tempfile
from pathlib import Path

from proof.swarm.plan import Plan
from proof.swarm.run import any_plan, report, say, shrunk, small_plan
from proof.swarm.site import PostgresTemplate
from proof.swarm.trial import try_plan
from tests.support.engines.engines import fast_directory


async def _main() -> int:
    parser = argparse.ArgumentParser(description="Runs one plan of the swarm.")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--plan", type=Path, help="a file with a plan as printed")
    parser.add_argument("--small", action="store_true")
    parser.add_argument("--shrink", action="store_true", help="look for the smallest plan that still fails")
    parser.add_argument("--times", type=int, default=1)
    parser.add_argument("--seeds", type=int, default=1, help="so many seeds, from --seed on")
    parser.add_argument("--keep", type=Path, help="a folder for logs, history and database of each trial that fails")
    given = parser.parse_args()
    if given.plan:
        plans = [Plan.from_json(given.plan.read_bytes())]
    else:
        draw = small_plan if given.small else any_plan
        plans = [draw(seed) for seed in range(given.seed, given.seed + given.seeds)]
    failed = False
    with tempfile.TemporaryDirectory(prefix="onsale-swarm-", dir=fast_directory()) as folder:
        template = await PostgresTemplate(Path(folder)).make()
        for number, plan in enumerate(plans * given.times):
            say(plan.json())
            keep = given.keep / f"{plan.seed}-{number}" if given.keep else None
            outcome = await try_plan(plan, template, keep=keep)
            say("\n".join(outcome.notes))
            report(outcome)
            failed |= bool(outcome.found)
            if outcome.found and given.shrink:
                smallest, times = await shrunk(plan, template)
                say(f"{smallest.json()}{times}")
    return int(failed)


if __name__ == "__main__":
    raise SystemExit(asyncio.run(_main()))
