"""The part `models` of `make proof`: explores the three models, shows that each guard is needed, and replays traces of
the models on the real services.
"""

import asyncio
import random
import sys
import time
from collections.abc import Iterator
from contextlib import AsyncExitStack
from itertools import count, cycle
from typing import Any

from proof.models import replay_line, replay_money, replay_stock
from proof.models.explorer import Explored, ProtocolModel, explore
from proof.models.line import LineProtocol
from proof.models.money import MoneyProtocol
from proof.models.replays import Differs, System, replay, traces
from proof.models.stock import StockProtocol
from proof.part import Budget, Result
from tests.support.engines.engines import copied_database, migrate_template, running_engines

MODELS: dict[type[ProtocolModel[Any]], tuple[Any, tuple[str, ...]]] = {
    LineProtocol: (replay_line.RealLine, replay_line.MISFORTUNES),
    StockProtocol: (replay_stock.RealStock, replay_stock.MISFORTUNES),
    MoneyProtocol: (replay_money.RealMoney, replay_money.MISFORTUNES),
}
EXPLORED_SHARE = 0.4  # of the seconds; the rest is for replays
DEPTH_MAX, STATES_MAX, GUARD_STATES_MAX = 100, 400_000, 20_000
TRACE_STEPS = 26
AGAIN = "python -m proof --only models"


def run(budget: Budget) -> Result:
    begun_s, result = time.monotonic(), Result()
    _remove_guards(result)
    explored = []
    for n, kind in enumerate(MODELS, 1):
        until_s = begun_s + budget.seconds * EXPLORED_SHARE * n / len(MODELS)
        explored.append(_explore(kind, until_s, result))
    if not result.found:
        with running_engines() as engines, copied_database(engines, migrate_template(engines)) as postgres_url:

            async def replay_all() -> None:
                async with AsyncExitStack() as stack:
                    systems = [
                        await MODELS[type(each.model)][0].open(stack, postgres_url, engines.redis_url)
                        for each in explored
                    ]
                    await _replay(list(zip(explored, systems, strict=True)), budget, begun_s, result)

            asyncio.run(replay_all())
    return result


def without_guard(kind: type[ProtocolModel[Any]], guard: str) -> Explored[Any]:
    """The model without this guard, explored until a rule is broken."""
    prefix = kind.guards[guard].prefix
    return explore(kind(without=guard), depth=DEPTH_MAX, prefix=prefix, states_max=GUARD_STATES_MAX)


def _remove_guards(result: Result) -> None:
    for kind in MODELS:
        for guard in kind.guards:
            if without_guard(kind, guard).counterexample is None:
                result.found.append(f"{kind.__name__} breaks no rule without the guard {guard!r}.")
        result.add(Result({"guards": len(kind.guards)}))


def _explore(kind: type[ProtocolModel[Any]], until_s: float, result: Result) -> Explored[Any]:
    """Explores with one misfortune, and once that is complete with two, and so on; the last exploration."""
    for misfortunes in count(1):
        found = explore(kind(misfortunes=misfortunes), depth=DEPTH_MAX, states_max=STATES_MAX, until_s=until_s)
        result.add(Result({"states": len(found.came_from), "transitions": found.transitions}))
        _report(
            f"models: {kind.__name__} with {misfortunes} of each misfortune: {len(found.came_from)} states, "
            f"{found.transitions} transitions, {'all' if found.complete else f'to depth {found.depth}'}"
        )
        if found.counterexample is not None:
            result.found.append(f"{kind.__name__} breaks a rule:\n{found.counterexample}\nRun {AGAIN}.")
        if not found.complete or found.counterexample or time.monotonic() > until_s:
            return found
    raise AssertionError


async def _replay(
    pairs: list[tuple[Explored[Any], System[Any]]], budget: Budget, begun_s: float, result: Result
) -> None:
    rng = random.Random(budget.seed)
    sources: list[tuple[Iterator[list[str]], Explored[Any], System[Any]]] = [
        (traces(found, rng, steps=TRACE_STEPS, misfortunes=MODELS[type(found.model)][1]), found, system)
        for found, system in pairs
    ]
    for source, found, system in cycle(sources):
        if time.monotonic() > begun_s + budget.seconds:
            return
        try:
            await replay(found.model, next(source), system)
        except Differs as differs:
            result.found.append(f"{type(found.model).__name__}: {differs}\nRun {AGAIN} --seed {budget.seed}.")
            return
        result.add(Result({"replayed traces": 1}))
        if result.counts["replayed traces"] % 100 == 0:
            _report(f"models: {result.counts['replayed traces']} traces replayed")


def _report(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()
