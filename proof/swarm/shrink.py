"""Shrinks a plan that fails: fewer faults by delta debugging, then fewer actions, fewer fans, and default settings."""

from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from proof.swarm.plan import Plan

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
