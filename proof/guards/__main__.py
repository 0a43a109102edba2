"""`python -m proof --only guards`: takes each guard out in a copy of the tree and wants its test red.

`--touched COMMIT` takes only the guards whose file or test changed since the commit, `--match WORD` those whose file,
promise or test has the word. `--save` writes the page docs/develop/guards.md and runs nothing. Exit code 1 if a
test stayed green, or was red before.
"""

import argparse
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from queue import SimpleQueue

from proof.guards.guard import Guard, node_id, tiers
from proof.guards.page import GUARDS, save
from proof.guards.removal import Tree, baseline, copied_tree, take_out
from proof.pieces import changed_since

WORKERS = 2


def parse_options(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m proof.guards", description=__doc__)
    parser.add_argument("--touched", metavar="COMMIT", help="only guards in files that changed since this commit")
    parser.add_argument("--match", metavar="WORD", default="", help="only guards that name this word")
    parser.add_argument("--workers", type=int, default=WORKERS, help=f"guards taken out at a time ({WORKERS})")
    parser.add_argument("--save", action="store_true", help="write docs/develop/guards.md")
    return parser.parse_args(arguments)


def chosen(options: argparse.Namespace) -> list[Guard]:
    guards = [guard for guard in GUARDS if options.match in f"{guard.path} {guard.keeps} {guard.test}"]
    if options.touched is None:
        return guards
    changed = set(changed_since(options.touched))
    return [guard for guard in guards if guard.path in changed or node_id(guard.test).partition("::")[0] in changed]


def take_out_all(guards: Sequence[Guard], workers: int) -> list[str]:
    """A sentence for each guard whose test did not notice, or was not green to begin with."""
    nodes = {guard.test: node_id(guard.test) for guard in guards}
    tier_of = tiers(nodes.values())
    with ExitStack() as stack:
        trees = SimpleQueue[Tree]()
        for _ in range(workers):
            trees.put(stack.enter_context(copied_tree()))

        def one(guard: Guard) -> str:
            tree, began_s = trees.get(), time.monotonic()
            try:
                found = take_out(guard, tree).verdict
            finally:
                trees.put(tree)
            tier = tier_of[nodes[guard.test]]
            print(f"{found:8} {tier:5} {time.monotonic() - began_s:4.0f} s  {guard.path}: {guard.keeps}", flush=True)
            return found

        tree = trees.get()
        before = baseline(sorted(set(nodes.values())), tree)
        trees.put(tree)
        with ThreadPoolExecutor(workers) as pool:
            verdicts = list(pool.map(one, guards))
    broken = {*before.red, *(test for test, _ in before.broken), *(set(nodes.values()) - set(before.passed))}
    found = [f"{node} fails with every guard in place" for node in sorted(broken)]
    found += [
        f"{guard.path}: {guard.keeps} ({guard.test} is {said})"
        for guard, said in zip(guards, verdicts, strict=True)
        if said != "red"
    ]
    return found


def main(options: argparse.Namespace) -> int:
    if options.save:
        save()
        return 0
    guards = chosen(options)
    found = take_out_all(guards, options.workers) if guards else []
    for sentence in found:
        print(f"found: {sentence}")
    print(f"guards: {len(guards)} taken out; found: {len(found)}")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(parse_options()))
