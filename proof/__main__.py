"""`make proof`: looks for what nobody thought of. Models, upgrades, bad input, held load and random faults share the
time.

With `--minutes` it takes about so long and runs these parts alone; without, every test, every drill and thousands of
new histories come first, then the parts for four hours. `--only plans,upgrades` runs pieces (`proof/pieces.py`),
`--touched COMMIT` those that cover what changed since the commit, and `--list` with it only names them. Exit code 1 if
anything was found.
"""

import argparse
import importlib
import logging
import random
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Sequence

from proof.drills import recoveries
from proof.part import Budget, Result
from proof.pieces import PIECES, run, touched

COVERAGE = ("make", "coverage")  # every test but the drills
PARTS = {"models": 0.15, "swarm": 0.35, "upgrades": 0.15, "bad_input": 0.2, "load": 0.15}  # shares of the time
DEFAULT_MINUTES, MINUTES_OF_A_PART = 240.0, 3.0
SEED_BELOW = 10**6
Part = Callable[[Budget], Result]


def parse_options(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make proof", description=__doc__)
    parser.add_argument("--minutes", type=float, help="run the parts alone, for about so long")
    parser.add_argument("--seed", type=int, help="makes the random choices; by default a new one, which is printed")
    only = f"run these pieces alone: {', '.join(PIECES)}"
    parser.add_argument("--only", type=lambda text: text.split(","), help=only)
    parser.add_argument("--touched", metavar="COMMIT", help="run the pieces that cover what changed since this commit")
    parser.add_argument("--list", action="store_true", help="with --touched: only name them")
    parser.add_argument("--save", action="store_true", help="add what was tried to docs/reference/recovery.md")
    options = parser.parse_args(arguments)
    if unknown := set(options.only or ()) - PIECES.keys():
        parser.error(f"no such piece: {', '.join(sorted(unknown))}; there are {', '.join(PIECES)}")
    if options.minutes is not None and options.minutes <= 0:
        parser.error("--minutes must be positive")
    options.seed = random.randrange(SEED_BELOW) if options.seed is None else options.seed
    return options


def chosen(options: argparse.Namespace) -> tuple[list[str], list[str]]:
    """The pieces with a command, and the parts that share the time."""
    if options.only or options.touched:
        names = options.only or touched(options.touched)
        return [name for name in names if name not in PARTS], [name for name in names if name in PARTS]
    return [] if options.minutes else ["types", "drills", "histories", "clicks", "guards"], list(PARTS)


def long_tests(pieces: Sequence[str], since: str | None, *, all_of_it: bool) -> list[str]:
    """Runs the tests that take hours; a sentence for each command that failed."""
    failed = [f"failed: {' '.join(COVERAGE)}"] if all_of_it and subprocess.run(COVERAGE, check=False).returncode else []
    return failed + run(pieces, since)


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
    part: Part = importlib.import_module(f"proof.{name}.run").run
    return part


def last_line(result: Result, *, seed: int, seconds: float) -> str:
    counts = ", ".join(f"{count:,} {name}" for name, count in result.counts.items())
    return f"proof: seed {seed}, {seconds / 60:.1f} minutes: {counts}; found: {len(result.found)}"


def main(options: argparse.Namespace, load: Callable[[str], Part] = load) -> int:
    logging.disable()  # what the services under test would say in this process
    began_s = time.monotonic()
    pieces, parts = chosen(options)
    if options.list:
        print(*pieces, *parts, sep="\n")
        return 0
    whole = not (options.minutes or options.only or options.touched)
    failed = long_tests(pieces, options.touched, all_of_it=whole)
    minutes = options.minutes or (DEFAULT_MINUTES if whole else MINUTES_OF_A_PART * len(parts))
    result = run_parts(parts, Budget(60 * minutes, options.seed), load) if parts else Result()
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
