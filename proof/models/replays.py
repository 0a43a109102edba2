"""Replays the steps of a model on the real system and compares what both show after each.

The traces come from what was explored: the way to a state that a seed chooses, and on from there by chance. Two of
three pass through a death, a loss or another misfortune. The real system's processes are actors, which stand still
before each step.
"""

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from typing import Any, Protocol, TypeVar

from proof.models.explorer import Explored, ProtocolModel

S = TypeVar("S")
Shown_contra = TypeVar("Shown_contra", contravariant=True)
View = dict[str, Any]


class System(Protocol[Shown_contra]):
    """The real system, driven step by step. `shown` is what the model says that it shows, `read` what it does show."""

    async def begin(self) -> None: ...

    async def do(self, label: str) -> None: ...

    async def read(self) -> View: ...

    def shown(self, state: Shown_contra) -> View: ...


class Differs(AssertionError):
    """The real system shows something else than its model."""


async def replay(model: ProtocolModel[S], path: Sequence[str], system: System[S]) -> None:
    """Raises `Differs` with the steps so far."""
    state, done = model.start, list[str]()
    await system.begin()
    for label in path:
        state = dict(model.steps(state))[label]
        done.append(label)
        await system.do(label)
        expected, found = system.shown(state), await system.read()
        if expected != found:
            apart = {name: (expected[name], found.get(name)) for name in expected if expected[name] != found.get(name)}
            raise Differs(f"{'; '.join(done)}\nmodel and system differ in {apart}")


def traces(explored: Explored[S], rng: random.Random, *, steps: int, misfortunes: Sequence[str]) -> Iterator[list[str]]:
    """Traces without end, each of about so many steps."""
    states = list(explored.came_from)
    while True:
        for wanted in (True, True, False):
            path = _sample(explored, rng, states, steps)
            for _ in range(100):
                if not wanted or any(word in label for label in path for word in misfortunes):
                    break
                path = _sample(explored, rng, states, steps)
            yield path


def _sample(explored: Explored[S], rng: random.Random, states: Sequence[S], steps: int) -> list[str]:
    state = rng.choice(states)
    path = explored.path_to(state)
    while len(path) < steps and (possible := list(explored.model.steps(state))):
        label, state = rng.choice(possible)
        path.append(label)
    return path


class SteppedProcess:
    """A process of the real system: it stands still before each step until it is let go, or dies there."""

    def __init__(self) -> None:
        self.at = ""
        self._task: asyncio.Task[Any] | None = None
        self._go, self._still = asyncio.Event(), asyncio.Event()

    async def stop(self, name: str) -> None:
        self.at = name
        self._still.set()
        await self._go.wait()
        self._go.clear()
        self.at = ""

    async def start(self, work: Callable[["SteppedProcess"], Awaitable[Any]]) -> None:
        """Begins, and does the first step."""
        assert self._task is None, self.at
        self._task = asyncio.ensure_future(work(self))
        await self._until_still()

    async def advance(self) -> None:
        """Does the step that it stands before."""
        self._go.set()
        await self._until_still()

    async def die(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        self.at, self._task = "", None
        self._go.clear()

    async def _until_still(self) -> None:
        assert self._task is not None
        self._still.clear()
        still = asyncio.create_task(self._still.wait())
        await asyncio.wait({still, self._task}, return_when=asyncio.FIRST_COMPLETED)
        still.cancel()
        if self._task.done():
            task, self._task, self.at = self._task, None, ""
            task.result()


class SteppedDatabase:
    """A database before whose second transaction an actor stops."""

    def __init__(self, db: Any, actor: SteppedProcess, step: str) -> None:
        self._db, self._actor, self._step, self._begun = db, actor, step, 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._db, name)

    @asynccontextmanager
    async def begin(self) -> AsyncIterator[Any]:
        self._begun += 1
        if self._begun == 2:
            await self._actor.stop(self._step)
        async with self._db.begin() as connection:
            yield connection
