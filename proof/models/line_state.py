"""The state of the line's model: Redis, PostgreSQL, the processes, and what has happened so far."""

from typing import NamedTuple

Numbers = frozenset[int]
Change = tuple[int, str, int]  # its own number, which rises with time; kind; number of the place
NOBODY: Numbers = frozenset()


class LineInRedis(NamedTuple):
    """The line in Redis. `stale`: it came back as it was earlier, and nobody has noticed yet."""

    generation: int = 0
    counter: int = 0
    head: int = 0
    in_flight: frozenset[tuple[int, int]] = frozenset()  # number, process
    alive: Numbers = NOBODY
    taken: Numbers = NOBODY
    done: Numbers = NOBODY
    called: Numbers = NOBODY
    active: Numbers = NOBODY
    unwritten: frozenset[Change] = frozenset()
    assume_live: bool = True
    stale: bool = False

    @property
    def slots(self) -> Numbers:
        return self.called | self.active

    def commit(self, n: int, p: int = -1) -> "LineInRedis":
        """Makes a stored place visible to the tick; the batch of process `p` is no longer in flight."""
        here = frozenset({n})
        return self._replace(
            alive=self.alive | here, done=self.done - here, taken=self.taken - (here - self.slots),
            counter=max(self.counter, n), in_flight=self.in_flight - {(n, p)},
        )  # fmt: skip

    def free(self, numbers: Numbers) -> "LineInRedis":
        """Frees the slots of places that have ended."""
        given = frozenset(n for n in numbers if n <= self.counter)
        return self._replace(called=self.called - numbers, active=self.active - numbers, done=self.done | given)

    def raise_counter(self, n: int) -> "LineInRedis":
        return self._replace(counter=max(self.counter, n), assume_live=self.assume_live or n > self.counter)


class LineInDatabase(NamedTuple):
    """The line in PostgreSQL. `calls`: the last state of each number's call."""

    generation: int = 0
    places: frozenset[tuple[int, str]] = frozenset()  # number, fan
    ended: Numbers = NOBODY
    calls: frozenset[tuple[int, str]] = frozenset()  # number, state
    head: int = 0

    @property
    def tail(self) -> int:
        return max((n for n, _ in self.places), default=0)

    def live(self) -> dict[int, str]:
        return {n: fan for n, fan in self.places if n not in self.ended}

    def place_of(self, fan: str) -> int:
        """The live place of this fan, or 0."""
        return next((n for n, other in self.live().items() if other == fan), 0)

    def in_state(self, *states: str) -> Numbers:
        return frozenset(n for n, state in self.calls if state in states)

    def insert(self, n: int, fan: str) -> "LineInDatabase":
        return self._replace(places=self.places | {(n, fan)})

    def set_calls(self, numbers: Numbers, state: str) -> "LineInDatabase":
        others = frozenset(call for call in self.calls if call[0] not in numbers)
        return self._replace(calls=others | {(n, state) for n in numbers})

    def end(self, n: int) -> "LineInDatabase":
        """Ends a place and its open call."""
        ended = self._replace(ended=self.ended | {n})
        return ended.set_calls(frozenset({n}) & self.in_state("called", "claimed"), "ended")


class LineProcess(NamedTuple):
    """Before which step a process stands, and what it knows. `current`: its generation was, under the fence."""

    at: str = ""
    fan: str = ""
    number: int = 0
    generation: int = 0
    current: bool = False
    changes: frozenset[Change] = frozenset()
    void: Numbers = NOBODY
    head: int = 0
    read: LineInDatabase | None = None


IDLE = LineProcess()


class LineState(NamedTuple):
    redis: LineInRedis | None
    database: LineInDatabase
    processes: tuple[LineProcess, ...]
    answered: frozenset[tuple[int, str]] = frozenset()  # joins that were acknowledged
    pending: frozenset[tuple[int, int]] = frozenset()  # number, process: stored, not yet committed to Redis
    saved: LineInRedis | None = None  # to which Redis may go back
    losses: int = 0
    deaths: int = 0
    now: int = 1
    overdue: Numbers = NOBODY  # their calls are past their deadline, whoever knows of them
    late: bool = False  # a batch was written more than five seconds after its number was given
    wrong: str = ""

    def at(self, p: int, process: LineProcess) -> "LineState":
        return self._replace(processes=tuple(process if q == p else other for q, other in enumerate(self.processes)))

    def answer(self, p: int, fan: str, n: int) -> "LineState":
        return self.at(p, IDLE)._replace(answered=self.answered | {(n, fan)})

    def idle(self) -> int | None:
        """The first idle process: they are alike, so it is the one that begins something."""
        return next((p for p, process in enumerate(self.processes) if process == IDLE), None)

    def outside(self) -> list[str]:
        """Fans who have no answer yet, and for whom nobody works."""
        inside = {fan for _, fan in self.answered} | {process.fan for process in self.processes}
        return [fan for fan in ("a", "b") if fan not in inside]
