"""The client of fans who insist: they ask again until there is a good answer or a refusal, and note what they met."""

import asyncio
import random
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

import httpx

from onsale.client import Client, Problem
from onsale.client.connection import NO_ANSWER, Answer, Request, json_object

PAUSE_S, TIMEOUT_S = (0.1, 0.4), 20.0
AGAIN = {NO_ANSWER, 429, 503}
FOREVER_S = float("inf")
IDENTITY = {
    "join": ("join_seq", "lane"), "status": ("join_seq",), "claim": ("pass",), "hold": ("reservation_id",),
    "create_order": ("reference",),
}  # fmt: skip
"""What is the same in every answer to one request."""


class Unanswered(Exception):
    """No good answer although every fault has been over for long."""


def may_be_tried_again(problem: Problem) -> bool:
    return problem.status in AGAIN or problem.status >= 500 or problem.retry_after_s is not None


@dataclass
class Meetings:
    """What all fans of a trial met. `silences` are times (monotonic, from and to) without a good answer of a fan who
    asked; `deadline_s` is when everything must answer again, by the monotonic clock, and `patience_s` how long a
    request may take. `again` says after which problems fans ask again.
    """

    again: Callable[[Problem], bool] = may_be_tried_again
    patience_s: float = FOREVER_S
    silences: list[tuple[float, float]] = field(default_factory=list)
    refusals: Counter[str] = field(default_factory=Counter)
    failures: Counter[str] = field(default_factory=Counter)
    found: list[str] = field(default_factory=list)
    acknowledgements: int = 0
    deadline_s: float = FOREVER_S

    def longest_silence_s(self, from_s: float = 0.0, to_s: float = FOREVER_S) -> float:
        """The longest that overlaps with this time."""
        return max((end - begin for begin, end in self.silences if begin < to_s and end > from_s), default=0.0)

    async def insist(
        self, name: str, send: Callable[[], Awaitable[Answer]], rng: random.Random, *, times: int = 1
    ) -> Answer:
        """The first good answer; raises `Problem` or `Unanswered`. Of several `times` at once all good answers must
        say the same.
        """
        since_s = time.monotonic()
        while True:
            answers = await asyncio.gather(*(send() for _ in range(times)), return_exceptions=True)
            good = [answer for answer in answers if not isinstance(answer, BaseException)]
            problems = [self._noted(name, answer) for answer in answers if isinstance(answer, BaseException)]
            now_s = time.monotonic()
            if good:
                self.silences.append((since_s, now_s))
                self.acknowledgements += 1
                self._compare(name, good)
                return good[0]
            problem = problems[0]
            if not self.again(problem):
                self.silences.append((since_s, now_s))
                self.refusals[f"{name}: {problem.status} {problem.slug}"] += 1
                raise problem
            if now_s > min(self.deadline_s, since_s + self.patience_s):
                raise Unanswered(
                    f"{name} had no good answer for {now_s - since_s:.1f} s: {problem.status} {problem}"
                ) from problem
            await asyncio.sleep(rng.uniform(*PAUSE_S))

    def _noted(self, name: str, problem: BaseException) -> Problem:
        if not isinstance(problem, Problem):
            raise problem
        self.failures[f"{name}: {problem.status} {problem.slug}"] += 1
        if problem.status >= 500 and (problem.status != 503 or problem.slug == "internal-error"):
            self.found.append(f"{name} was answered {problem.status} {problem.slug}: {problem}")
        return problem

    def _compare(self, name: str, good: list[Answer]) -> None:
        identities = [identity(name, answer) for answer in good]
        if any(each != identities[0] for each in identities):
            self.found.append(f"{name}: one key, two answers: {identities}")


def identity(operation: str, answer: Answer) -> list[Any]:
    """What this answer has in common with every other to the same request."""
    document = json_object(answer.content)
    return [document.get(name) for name in IDENTITY.get(operation, ())]


class InsistentClient(Client):
    """One fan's. Who `repeats` sends every request twice at once, with the same key."""

    def __init__(
        self, url: str, meetings: Meetings, *, http: httpx.AsyncClient, rng: random.Random | None = None,
        repeats: bool = False, timeout_s: float = TIMEOUT_S,
    ) -> None:  # fmt: skip
        super().__init__(url, http=http, timeout_s=timeout_s, attempts_max=1)
        self._meetings, self._times = meetings, 2 if repeats else 1
        self._rng = rng or self._rng

    async def answer(self, request: Request) -> Answer:
        send = super().answer
        return await self._meetings.insist(request.operation, lambda: send(request), self._rng, times=self._times)
