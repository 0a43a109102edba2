"""Explores every state that a model can reach, breadth first, and checks each: no rule is broken in it, and when
nothing fails any more everything ends well. A broken rule comes with the shortest way to it.

A model is a protocol in plain Python: its states are hashable values, its steps are as small as what the real code does
between two moments at which it can be interrupted. The same model always gives the same exploration.
"""

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Generic, NamedTuple, TypeVar

S = TypeVar("S")
FINISH_STEPS_MAX = 100


class Guard(NamedTuple):
    """What the protocol checks, and the steps after which a model without it is explored until a rule is broken."""

    checks: str
    after: str = ""

    @property
    def prefix(self) -> list[str]:
        return [line.strip() for line in self.after.split(";") if line.strip()]


class ProtocolModel(Generic[S]):
    """A protocol without one of its guards, or with all of them. A step is a sentence and the state after it."""

    guards: ClassVar[Mapping[str, Guard]] = {}
    start: S

    def __init__(self, *, without: str = "", misfortunes: int = 1) -> None:
        assert not without or without in self.guards, without
        self.without = without

    def moves(self, state: S) -> Iterator[tuple[str, S]]:
        """What the protocol does next. When nothing fails any more, the first of these is done until there is none."""
        raise NotImplementedError

    def faults(self, state: S) -> Iterator[tuple[str, S]]:
        """What happens to the protocol: processes die, data is lost, fans change their minds."""
        raise NotImplementedError

    def broken(self, state: S) -> str:
        """The rule that is broken in this state; empty if none is."""
        raise NotImplementedError

    def unsettled(self, state: S) -> str:
        """What is wrong with this state as the last one; empty if nothing is."""
        raise NotImplementedError

    def _has(self, guard: str) -> bool:
        return guard != self.without

    def steps(self, state: S) -> Iterator[tuple[str, S]]:
        yield from self.moves(state)
        yield from self.faults(state)

    def follow(self, path: Sequence[str]) -> S:
        """The state after these steps."""
        state = self.start
        for label in path:
            possible = dict(self.steps(state))
            assert label in possible, f"{label!r} is not among {list(possible)}"
            state = possible[label]
        return state


def losses_of_redis(state: Any) -> Iterator[tuple[str, Any]]:
    """Redis loses its data, or comes back as it was once. The state has `redis`, `saved` and `losses` left."""
    if state.redis is None or not state.losses:
        return
    yield "Redis is lost", state._replace(redis=None, losses=state.losses - 1)
    if state.saved is None:
        yield "Redis saves", state._replace(saved=state.redis)
    else:
        back = state.saved._replace(stale=True)
        yield "Redis goes back", state._replace(redis=back, losses=state.losses - 1)


class Counterexample(NamedTuple):
    """A rule that was broken, and the steps that lead there."""

    rule: str
    path: list[str]

    def __str__(self) -> str:
        return "\n".join((*(f"{n:>3}. {label}" for n, label in enumerate(self.path, 1)), f"  => {self.rule}"))


@dataclass
class Explored(Generic[S]):
    """What was visited after the prefix. `complete`: every state, otherwise every one within `depth` steps."""

    model: ProtocolModel[S]
    prefix: Sequence[str]
    came_from: dict[S, tuple[S, str] | None]
    transitions: int = 0
    depth: int = 0
    complete: bool = False
    counterexample: Counterexample | None = None

    def path_to(self, state: S) -> list[str]:
        path: list[str] = []
        while (before := self.came_from[state]) is not None:
            state, label = before
            path.append(label)
        return [*self.prefix, *reversed(path)]


class Settling(Generic[S]):
    """Follows the first move of each state to the end, and remembers the states that end well."""

    def __init__(self, model: ProtocolModel[S]) -> None:
        self._model, self._well = model, set[S]()

    def failure(self, state: S) -> tuple[str, list[str]] | None:
        """What is wrong at the end of this state, and the steps to it; None if it ends well."""
        passed, labels = [], list[str]()
        while state not in self._well:
            passed.append(state)
            if broken := self._model.broken(state):
                return broken, labels
            move = next(self._model.moves(state), None)
            if move is None:
                if wrong := self._model.unsettled(state):
                    return f"in the end {wrong}", labels
                break
            if len(labels) == FINISH_STEPS_MAX:
                return "it never ends", labels
            labels.append(move[0])
            state = move[1]
        self._well.update(passed)
        return None


def explore(
    model: ProtocolModel[S],
    *,
    depth: int,
    prefix: Sequence[str] = (),
    states_max: int = 10**7,
    until_s: float | None = None,
) -> Explored[S]:
    """Visits all states within `depth` steps after the prefix. Stops early at a counterexample, at `states_max` states,
    or when the clock (`time.monotonic`) shows `until_s`; the depth is then the last one that was completed.
    """
    first, settling = model.follow(prefix), Settling(model)
    found, level = Explored(model, prefix, {first: None}), [first]
    while level and found.depth < depth:
        following: list[S] = []
        for state in level:
            for label, after in model.steps(state):
                found.transitions += 1
                if after in found.came_from:
                    continue
                found.came_from[after] = state, label
                following.append(after)
                if failure := settling.failure(after):
                    found.counterexample = Counterexample(failure[0], [*found.path_to(after), *failure[1]])
                    return found
            if len(found.came_from) >= states_max or (until_s is not None and time.monotonic() > until_s):
                return found
        level = following
        found.depth += 1
    found.complete = not level
    return found
