"""How fans ask: again and again until there is a good answer or a definite refusal, and what they met meanwhile."""

import asyncio
import random
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, TypeVar

from onsale.client import Problem
from onsale.client.problem import NO_ANSWER

T = TypeVar("T")
PAUSE_S = (0.1, 0.4)
AGAIN = {NO_ANSWER, 429, 503}


class Refused(Exception):
    """The suite refused for good; the fan does something else or goes home."""

    def __init__(self, call: str, problem: Problem) -> None:
        super().__init__(f"{call}: {problem.status} {problem.slug}")
        self.call, self.status, self.slug = call, problem.status, problem.slug


class Unanswered(Exception):
    """No good answer although every fault has been over for long."""


@dataclass
class Meetings:
    """What all fans of a trial met. `silences` are times (monotonic, from and to) without a good answer of a fan who
    asked; `deadline_s` is when everything must answer again, by the monotonic clock.
    """

    silences: list[tuple[float, float]] = field(default_factory=list)
    refusals: Counter[str] = field(default_factory=Counter)
    failures: Counter[str] = field(default_factory=Counter)
    found: list[str] = field(default_factory=list)
    acknowledgements: int = 0
    deadline_s: float = float("inf")

    def longest_silence_s(self, from_s: float, to_s: float) -> float:
        """The longest that overlaps with this time."""
        return max((end - begin for begin, end in self.silences if begin < to_s and end > from_s), default=0.0)

    async def insist(
        self, name: str, call: Callable[[], Awaitable[T]], rng: random.Random, *, times: int = 1,
        identity: Callable[[T], Any] | None = None,
    ) -> T:  # fmt: skip
        """The first good answer; raises `Refused` or `Unanswered`. Of several `times` at once all good answers must
        have the same `identity`.
        """
        since_s = time.monotonic()
        while True:
            answers = await asyncio.gather(*(call() for _ in range(times)), return_exceptions=True)
            good = [answer for answer in answers if not isinstance(answer, BaseException)]
            problems = [answer for answer in answers if isinstance(answer, BaseException)]
            now_s = time.monotonic()
            if good:
                self.silences.append((since_s, now_s))
                self.acknowledgements += 1
                if identity is not None and len({repr(identity(answer)) for answer in good}) > 1:
                    self.found.append(f"{name}: one key, two answers: {[identity(answer) for answer in good]}")
                return good[0]
            self._note(name, problems)
            problem = problems[0]
            assert isinstance(problem, Problem)
            if not _may_be_tried_again(problem):
                self.silences.append((since_s, now_s))
                self.refusals[f"{name}: {problem.status} {problem.slug}"] += 1
                raise Refused(name, problem)
            if now_s > self.deadline_s:
                raise Unanswered(f"{name} had no good answer for {now_s - since_s:.1f} s: {problem.status} {problem}")
            await asyncio.sleep(rng.uniform(*PAUSE_S))

    def _note(self, name: str, problems: list[BaseException]) -> None:
        for problem in problems:
            if not isinstance(problem, Problem):
                raise problem
            self.failures[f"{name}: {problem.status} {problem.slug}"] += 1
            if problem.status >= 500 and (problem.status != 503 or problem.slug == "internal-error"):
                self.found.append(f"{name} was answered {problem.status} {problem.slug}: {problem}")


def _may_be_tried_again(problem: Problem) -> bool:
    return problem.status in AGAIN or problem.status >= 500 or problem.retry_after_s is not None
