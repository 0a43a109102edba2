"""`make proof`: looks for what nobody thought of. Models, upgrades, bad input, held load and random faults share the
time.

With `--minutes` it takes about so long and runs these parts alone; without, every test, every drill and thousands of
new histories come first, then the parts for four hours. Exit code 1 if anything was found.
"""

import argparse
import importlib
import logging
import os
import random
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Sequence

from tests.drills import recoveries
from tests.proof.part import Budget, Result

PARTS = {"models": 0.15, "swarm": 0.35, "upgrades": 0.15, "bad_input": 0.2, "load": 0.15}  # shares of the time
DEFAULT_MINUTES = 240.0
SEED_BELOW = 10**6
PYTEST = [sys.executable, "-m", "pytest", "-q", "-m", "", "--timeout", "14400"]
LONG_TESTS: tuple[tuple[list[str], dict[str, str]], ...] = (  # first, without --minutes: a command, its environment
    (["make", "coverage"], {}),
    (["make", "drills"], {}),
    ([*PYTEST, "tests/properties"], {"ONSALE_EXAMPLES": "2000"}),
    ([*PYTEST, "tests/browser/buying/test_random_actions.py"], {"ONSALE_CLICKING_S": "3600"}),
)
Part = Callable[[Budget], Result]


def parse_options(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make proof", description=__doc__)
    parser.add_argument("--minutes", type=float, help="run the parts alone, for about so long")
    parser.add_argument("--seed", type=int, help="makes the random choices; by default a new one, which is printed")
    parser.add_argument("--parts", type=lambda text: text.split(","), default=list(PARTS), help=", ".join(PARTS))
    parser.add_argument("--save", action="store_true", help="add what was tried to docs/reference/recovery.md")
    options = parser.parse_args(arguments)
    if unknown := set(options.parts) - PARTS.keys():
        parser.error(f"no such part: {', '.join(sorted(unknown))}; there are {', '.join(PARTS)}")
    if options.minutes is not None and options.minutes <= 0:
        parser.error("--minutes must be positive")
    options.seed = random.randrange(SEED_BELOW) if options.seed is None else options.seed
    return options


def long_tests() -> list[str]:
    """Runs the tests that take hours; the commands that failed."""
    return [
        f"failed: {' '.join(command)}"
        for command, environ in LONG_TESTS
        if subprocess.run(command, env={**environ, **os.environ}, check=False).returncode
    ]


def run_parts(parts: Sequence[str], budget: Budget, load: Callable[[str], Part]) -> Result:
    """Gives each part its share of the time that is left, so that one that ends early leaves more to the others."""
    whole, began_s = Result(), time.monotonic()
    for number, name in enumerate(parts):
        left_s = max(0.0, budget.seconds - (time.monotonic() - began_s))
        share = PARTS[name] / sum(PARTS[other] for other in parts[number:])
        part = Budget(left_s * share, budget.seed)
        print(f"{name}: {part.seconds:.0f} s, seed {part.seed}", flush=True)
        try:
            result = load(name)(part)
        except Exception:  # noqa: BLE001 - a part that breaks off has found something, and the others go on
            result = Result(found=[f"{name} broke off: {traceback.format_exc()}"])
        whole.add(result)
    return whole


def load(name: str) -> Part:
    part: Part = importlib.import_module(f"tests.proof.{name}.run").run
    return part


def last_line(result: Result, *, seed: int, seconds: float) -> str:
    counts = ", ".join(f"{count:,} {name}" for name, count in result.counts.items())
    return f"proof: seed {seed}, {seconds / 60:.1f} minutes: {counts}; found: {len(result.found)}"


def main(options: argparse.Namespace, load: Callable[[str], Part] = load) -> int:
    logging.disable()  # what the services under test would say in this process
    began_s = time.monotonic()
    failed = long_tests() if options.minutes is None else []
    budget = Budget(60 * (options.minutes or DEFAULT_MINUTES), options.seed)
    result = run_parts(options.parts, budget, load)
    result.found = failed + result.found
    seconds = time.monotonic() - began_s
    if options.save:
        recoveries.keep_tried(result, seconds)
    for found in result.found:
        print(f"found: {found}")
    print(last_line(result, seed=options.seed, seconds=seconds))
    return 1 if result.found else 0


if __name__ == "__main__":
    sys.exit(main(parse_options()))
