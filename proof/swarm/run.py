"""The swarm: random sales with random faults and random settings, as real processes, one trial after the other.

`run` is the part of `make proof`; `python -m proof.swarm` runs single plans.

Shrinks a plan that fails: fewer faults by delta debugging, then fewer actions, fewer fans, and default settings.
"""

import asyncio
import random
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

from proof.part import Budget, Result
from proof.swarm.faults.machine import missing, possible
from proof.swarm.plan import Plan, PlannedFault
from proof.swarm.site import PostgresTemplate
from proof.swarm.trial import Outcome, try_plan
from tests.support.engines.engines import fast_directory

T = TypeVar("T")
TRIES_MAX = 24
Fails = Callable[[Plan], Awaitable[bool]]


class Shrinker:
    """`fails` runs a plan, several times if chance has a part in it. At most `tries_max` plans are tried."""

    def __init__(self, fails: Fails, *, tries_max: int = TRIES_MAX) -> None:
        self._fails, self.tries_left = fails, tries_max

    async def smallest(self, plan: Plan) -> Plan:
        """A plan that still fails and is as small as was found."""
        plan = await self._fewer(plan, "faults")
        plan = await self._fewer(plan, "actions")
        plan = await self._fewer(plan, "fans")
        for simpler in (Plan.with_default_settings, Plan.with_one_copy):
            if (candidate := simpler(plan)) != plan and await self._still_fails(candidate):
                plan = candidate
        return plan

    async def _fewer(self, plan: Plan, name: str) -> Plan:
        """Removes parts of this list, first large ones: all of it, halves, quarters, single entries."""
        if getattr(plan, name) and await self._still_fails(without := _with(plan, name, ())):
            return without
        parts = 2
        while len(entries := getattr(plan, name)) > 1:
            for rest in _without_a_part(entries, parts):
                if await self._still_fails(smaller := _with(plan, name, rest)):
                    plan, parts = smaller, max(2, parts - 1)
                    break
            else:
                if parts >= len(entries) or self.tries_left <= 0:
                    break
                parts = min(len(entries), parts * 2)
        return plan

    async def _still_fails(self, plan: Plan) -> bool:
        if self.tries_left <= 0:
            return False
        self.tries_left -= 1
        return await self._fails(plan)


def _with(plan: Plan, name: str, entries: tuple[Any, ...]) -> Plan:
    changes: dict[str, Any] = {name: entries}
    return replace(plan, **changes)


def _without_a_part(entries: Sequence[T], parts: int) -> Iterator[tuple[T, ...]]:
    """The entries without each of so many parts of about equal size."""
    for number in range(parts):
        begin, end = number * len(entries) // parts, (number + 1) * len(entries) // parts
        yield (*entries[:begin], *entries[end:])


SMALL_S = 45.0  # a budget below it gets one small trial
SHRINK_AT_LEAST_S = 600.0  # a budget below it has no time to shrink what was found
REPEATS = 3
TRIAL_S = 40.0  # a trial, about
KEPT = Path(__file__).parents[2] / ".onsale" / "proof"


def run(budget: Budget) -> Result:
    """Trials with seeds derived from the budget's until the time is over."""
    if lacking := sorted(missing()):
        say(f"not tried, as this machine lacks {', '.join(lacking)}: {_kinds_without(lacking)}")
    return asyncio.run(_run(budget))


async def _run(budget: Budget) -> Result:
    until_s = time.monotonic() + budget.seconds
    with tempfile.TemporaryDirectory(prefix="onsale-swarm-", dir=fast_directory()) as folder:
        return await trials(budget, await PostgresTemplate(Path(folder)).make(), until_s=until_s)


async def trials(budget: Budget, template: PostgresTemplate, *, until_s: float) -> Result:
    """One trial at least, and no other that would end long after this time (monotonic)."""
    result = Result()
    for seed in seeds(budget.seed):
        plan = small_plan(seed) if budget.seconds < SMALL_S else any_plan(seed)
        keep = KEPT / f"{seed}-{time.time():.0f}"
        try:
            outcome = await try_plan(plan, template, keep=keep)
            report(outcome)
            if outcome.found:
                say(f"Logs, history and database are in {keep}")
            shrinks = budget.seconds >= SHRINK_AT_LEAST_S
            result.add(await _result(outcome, template, shrinks_until_s=until_s if shrinks else 0.0))
        except Exception as broken:  # noqa: BLE001 - the next trial may say more
            result.found.append(f"seed {seed}: the trial itself broke: {broken!r}: {plan.json()}")
        if time.monotonic() + TRIAL_S > until_s:
            break
    return result


async def _result(outcome: Outcome, template: PostgresTemplate, *, shrinks_until_s: float) -> Result:
    """Of one trial. Only the faults of the smallest plan that still fails count as guilty."""
    result = Result(_counts(outcome))
    guilty: Sequence[PlannedFault] = ()
    if outcome.found:
        smallest, times = await shrunk(outcome.plan, template, until_s=shrinks_until_s)
        guilty = smallest.faults
        result.found.append(_sentence(outcome, smallest, times))
    result.trials += outcome.trials(guilty)
    return result


def seeds(first: int) -> Iterator[int]:
    """The budget's own seed, then others that follow from it."""
    yield first
    rng = random.Random(first)
    while True:
        yield rng.getrandbits(32)


def any_plan(seed: int) -> Plan:
    """With every kind of fault that this machine allows."""
    return Plan.from_seed(seed, possible(missing()))


def small_plan(seed: int) -> Plan:
    """Few fans and two faults, each service once."""
    return Plan.from_seed(seed, possible(missing()), fans_max=8, faults_max=2).with_one_copy()


async def shrunk(plan: Plan, template: PostgresTemplate, *, until_s: float = float("inf")) -> tuple[Plan, str]:
    """The smallest plan that was found to fail until this time (monotonic), and how often it did. A plan that does not
    fail again is not shrunk.
    """
    if time.monotonic() > until_s:
        return plan, ""

    async def fails(candidate: Plan) -> bool:
        for _ in range(REPEATS if time.monotonic() < until_s else 0):
            try:
                outcome = await try_plan(candidate, template)
            except Exception as broken:  # noqa: BLE001 - says nothing of the product
                say(f"shrinking: {len(candidate.faults)} faults: the trial itself broke: {broken!r}")
                continue
            say(f"shrinking: {len(candidate.faults)} faults, {len(candidate.fans)} fans: {outcome.found[:1] or 'ok'}")
            if outcome.found:
                return True
        return False

    if not await fails(plan):
        return plan, "; it did not fail again"
    smallest = await Shrinker(fails).smallest(plan)
    failed = [bool((await try_plan(smallest, template)).found) for _ in range(REPEATS)]
    return smallest, f"; the smallest plan failed {sum(failed)} of {REPEATS} times"


def _counts(outcome: Outcome) -> dict[str, int]:
    return {"trials": 1, "faults": len(outcome.plan.faults), "acknowledgements": outcome.acknowledgements}


def _sentence(outcome: Outcome, smallest: Plan, times: str) -> str:
    return (
        f"seed {outcome.plan.seed}: {outcome.found[0]}{times}: "
        f"make proof ARGS=\"--only swarm --seed {outcome.plan.seed}\", or save as a file for "
        f"`python -m proof.swarm --plan FILE`: {smallest.json()}"
    )  # fmt: skip


def report(outcome: Outcome) -> None:
    plan = outcome.plan
    say(
        f"seed {plan.seed}: {len(plan.fans)} fans, {outcome.bought} bought, "
        f"{outcome.acknowledgements} acknowledgements; "
        f"{', '.join(fault.what for fault in plan.faults) or 'no fault'}: {'; '.join(outcome.found) or 'survived'}"
    )  # fmt: skip


def _kinds_without(lacking: Sequence[str]) -> str:
    return ", ".join(sorted(set(possible(())) - set(possible(lacking))))


def say(line: str) -> None:
    print(line, flush=True)
