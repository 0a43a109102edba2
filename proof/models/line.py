"""Model of the line: places are numbered in Redis, stored in PostgreSQL, called, claimed, and rebuilt after a loss.

Two fans, two processes and one slot. Each process does one thing at a time (a join, a tick, a claim, an end, a rebuild)
and may die or pause before every write. A join whose number was refused takes the next one from the database. Redis may
lose its data or come back with those of an earlier time. Left out: lanes, lottery, rates, and silent fans.

The state of the line's model: Redis, PostgreSQL, the processes, and what has happened so far.
"""

from collections.abc import Iterator
from typing import ClassVar, NamedTuple

from proof.models.explorer import Guard, ProtocolModel, losses_of_redis

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


PROCESSES = (0, 1)
SLOTS_MAX = 1
IN_TRANSACTION = ("insert", "save", "store claim")
Step = tuple[str, LineState]


class LineProtocol(ProtocolModel[LineState]):
    """The line. `misfortunes` bounds how often Redis loses its data or goes back, and how often processes die."""

    guards: ClassVar = {
        "numbers are unique": Guard(
            "the primary key of a place",
            "Redis saves; p0 numbers a; p0 opens; p0 inserts; p0 commits; Redis goes back",
        ),
        "one live place a holder": Guard("the unique index of live holders"),
        "the generation of numbers": Guard(
            "places are inserted only if Redis was not rebuilt since their numbers were given",
            "p0 numbers a; p1 numbers b; p1 opens; p1 inserts; p1 commits; Redis is lost; p1 raises the generation",
        ),
        "the generation of calls": Guard(
            "calls are saved only if Redis was not rebuilt since they were made",
            "p0 numbers a; p0 opens; p0 inserts; p0 commits; p0 ticks; Redis is lost; p1 raises the generation",
        ),
        "the generation of claims": Guard(
            "claims are stored only if Redis was not rebuilt since it granted them",
            "p0 numbers a; p1 numbers b; p0 opens; p0 inserts; p0 commits; p1 opens; p1 inserts; p1 commits; p0 ticks;"
            "p1 claims 1; p0 dies; Redis is lost; p0 raises the generation",
        ),
        "the fence": Guard(
            "a rebuild waits for open transactions before it raises the generation",
            "p0 numbers a; p1 numbers b; p1 opens; p1 inserts; p1 commits; p0 opens; Redis is lost",
        ),
        "the scan stops at numbers in flight": Guard(
            "a tick calls nobody behind a number that is being stored",
            "p0 numbers a; p1 ticks; p1 opens; p1 saves; p1 undoes calls",
        ),
        "void calls": Guard(
            "a call is stored only for a place that has not ended",
            "p0 numbers a; p0 opens; p0 inserts; p0 commits; p0 ticks",
        ),
        "the database before the slot": Guard(
            "a slot is freed only after its place has ended in the database",
            "p0 numbers a; p1 numbers b; p0 opens; p0 inserts; p0 commits; p1 opens; p1 inserts; p1 commits; p0 ticks;"
            "p0 opens; p0 saves; p0 acknowledges; p0 claims 1; p0 opens; p0 stores the claim",
        ),
        "a void call of an ended place": Guard(
            "a place that has ended before its number was committed to Redis is called once and then never again",
            "p0 numbers a in the database; p0 ends 1; p0 frees 1",
        ),
        "a place taken for ended": Guard(
            "a place that Redis takes for ended, and the database does not, is committed again when its fan asks",
            "p0 numbers a; p1 ticks later; p1 opens; p1 saves; p1 undoes calls; p1 acknowledges",
        ),
        "new numbers are behind the head": Guard(
            "a rebuild and the database give no number that the head has passed without a place",
            "p0 numbers a; p0 dies; p0 ticks later; p0 opens; p0 saves; p0 undoes calls; p0 acknowledges;"
            "Redis is lost",
        ),
        "counters follow the database": Guard(
            "a number that only the database gave, and whose process died, is found by the loop that raises counters"
        ),
    }  # fmt: skip

    def __init__(self, *, without: str = "", misfortunes: int = 1) -> None:
        super().__init__(without=without)
        self.start = LineState(LineInRedis(), LineInDatabase(), (IDLE, IDLE), losses=misfortunes, deaths=misfortunes)
        self._continued = {
            "open insert": ("opens", self._open), "open save": ("opens", self._open),
            "open claim": ("opens", self._open), "insert": ("inserts", self._insert),
            "commit": ("commits", self._commit), "raise": ("raises the counter", self._raise_counter),
            "number": ("numbers {fan} in the database", self._number_in_database), "save": ("saves", self._save),
            "undo": ("undoes calls", self._undo), "acknowledge": ("acknowledges", self._acknowledge),
            "store claim": ("stores the claim", self._store_claim), "free": ("frees {number}", self._free),
            "end": ("ends {number}", self._end_late), "read": ("reads", self._read),
            "rebuild": ("rebuilds", self._rebuild),
        }  # fmt: skip

    def moves(self, state: LineState) -> Iterator[Step]:
        redis, writing = state.redis, self._is_writing(state)
        for p, process in enumerate(state.processes):
            if process.at and not (process.at.startswith("open") and writing):  # the others would only wait for it
                words, work = self._continued[process.at]
                yield f"p{p} {words.format(fan=process.fan, number=process.number)}", work(state, p, process)
        if redis is not None:
            for n, p in sorted(state.pending):
                pending = state.pending - {(n, p)}
                yield f"p{p} commits {n} at last", state._replace(redis=redis.commit(n), pending=pending)
            yield from self._come_back(state, redis)
        if (idle := state.idle()) is not None:
            if redis is None or redis.stale or redis.generation < state.database.generation:
                yield from self._raise_generation(state, idle)
            yield from self._begin(state, idle, redis) if redis is not None else self._begin_without(state, idle)

    def faults(self, state: LineState) -> Iterator[Step]:
        for p, process in enumerate(state.processes):
            pending = frozenset(each for each in state.pending if each[1] == p)
            if (process != IDLE or pending) and state.deaths:
                dead = state.at(p, IDLE)
                yield f"p{p} dies", dead._replace(deaths=state.deaths - 1, pending=state.pending - pending)
        yield from losses_of_redis(state)
        if (idle := state.idle()) is not None:
            for n in sorted(state.database.live().keys() - state.database.in_state("claimed")):
                yield self._end(state, idle, n)  # a fan leaves
            if idle == 0 and state.redis is not None:  # this process alone cannot reach it
                yield from self._begin_without(state, idle)

    def _come_back(self, state: LineState, redis: LineInRedis) -> Iterator[Step]:
        """Fans are still there: that is a heartbeat. One whose place Redis takes for ended asks for its status."""
        called = {n for n, _ in state.database.calls} | {n for *_, n in redis.unwritten}
        for n in sorted(state.database.live()):
            if n in redis.done:
                if n not in called and self._has("a place taken for ended"):
                    yield f"{n} asks", state._replace(redis=redis.commit(n))
            elif n <= redis.head and n not in redis.alive | redis.taken:
                yield f"{n} is here", state._replace(redis=redis._replace(alive=redis.alive | {n}))

    # -- a process begins ----------------------------------------------------------------------------------------------

    def _begin_without(self, state: LineState, p: int) -> Iterator[Step]:
        """Without Redis the database gives the numbers."""
        for fan in state.outside():
            yield f"p{p} numbers {fan} in the database", self._number_in_database(state, p, LineProcess(fan=fan))

    def _begin(self, state: LineState, p: int, redis: LineInRedis) -> Iterator[Step]:
        database = state.database
        if not any(q == p for _, q in state.pending):  # those are committed first
            for fan in state.outside():
                yield f"p{p} numbers {fan}", self._number(state, p, fan, redis)
        if (ticked := self._tick(redis, state)).unwritten or ticked != redis:
            yield f"p{p} ticks", self._ticked(state, p, ticked)
        live, claimed = database.live(), database.in_state("claimed")
        for n in sorted((redis.called - state.overdue | redis.active) & live.keys() - claimed):
            active = redis._replace(called=redis.called - {n}, active=redis.active | {n})
            process = LineProcess("open claim", number=n, generation=redis.generation)
            yield f"p{p} claims {n}", state.at(p, process)._replace(redis=active)
        for n in sorted(claimed & live.keys()):
            yield self._end(state, p, n)
        yield from self._compare(state, p, redis)
        if redis.in_flight or redis.called - state.overdue:
            yield f"p{p} ticks later", self._tick_later(state, p, redis)

    def _compare(self, state: LineState, p: int, redis: LineInRedis) -> Iterator[Step]:
        """Loops that compare Redis with the database: counters and, while nothing is being written, slots."""
        database = state.database
        if (tail := self._tail(database)) > redis.counter and self._has("counters follow the database"):
            yield f"p{p} raises the counter", state._replace(redis=redis.raise_counter(tail))
        if state.processes != (IDLE, IDLE) or redis.unwritten or redis.generation < database.generation:
            return
        open_calls = database.in_state("called", "claimed") & database.live().keys()
        if ended := redis.slots & database.ended:
            yield f"p{p} frees ended slots", state._replace(redis=redis.free(ended))
        elif redis.slots != open_calls:
            yield from self._raise_generation(state, p)

    def _number(self, state: LineState, p: int, fan: str, redis: LineInRedis) -> LineState:
        n = redis.counter + 1
        state = self._checked(state, n, redis.head)
        numbered = redis._replace(counter=n, in_flight=redis.in_flight | {(n, p)})
        return state.at(p, LineProcess("open insert", fan, n, redis.generation))._replace(redis=numbered)

    def _tail(self, database: LineInDatabase) -> int:
        """The highest number that nobody may get any more."""
        return max(database.tail, database.head if self._has("new numbers are behind the head") else 0)

    def _checked(self, state: LineState, n: int, head: int) -> LineState:
        """The state in which this number is given: its fan would wait behind everybody if the head had passed it."""
        return state if n > head else state._replace(wrong=f"{n} was given behind the head {head}")

    def _number_in_database(self, state: LineState, p: int, process: LineProcess) -> LineState:
        """The next number after the highest in the database, in one transaction that locks the lane."""
        fan, database = process.fan, state.database
        if known := database.place_of(fan):
            return state.answer(p, fan, known)
        n = self._tail(database) + 1
        state = self._checked(state, n, database.head)
        stored = state._replace(database=database.insert(n, fan), pending=state.pending | {(n, p)})
        return stored.answer(p, fan, n)

    def _end(self, state: LineState, p: int, n: int) -> Step:
        """Ends a place in the database; its slot in Redis follows."""
        if not self._has("the database before the slot") and state.redis is not None:
            freed = state._replace(redis=state.redis.free(frozenset({n})))
            return f"p{p} frees {n}", freed.at(p, LineProcess("end", number=n))
        ended = state._replace(database=state.database.end(n))
        return f"p{p} ends {n}", ended.at(p, LineProcess("free", number=n))

    def _raise_generation(self, state: LineState, p: int) -> Iterator[Step]:
        if self._is_writing(state) and self._has("the fence"):
            return
        generation = state.database.generation + 1
        database = state.database._replace(generation=generation)
        redis = state.redis and state.redis._replace(stale=False)
        raised = state._replace(database=database, redis=redis)
        yield f"p{p} raises the generation", raised.at(p, LineProcess("read", generation=generation))

    # -- a join --------------------------------------------------------------------------------------------------------

    def _open(self, state: LineState, p: int, process: LineProcess) -> LineState:
        """Begins the transaction: takes the fence and reads the generation."""
        at, guard = {
            "open insert": ("insert", "the generation of numbers"), "open save": ("save", "the generation of calls"),
            "open claim": ("store claim", "the generation of claims"),
        }[process.at]  # fmt: skip
        is_current = process.generation == state.database.generation or not self._has(guard)
        return state.at(p, process._replace(at=at, current=is_current))

    def _insert(self, state: LineState, p: int, process: LineProcess) -> LineState:
        database, fan, n = state.database, process.fan, process.number
        known = database.place_of(fan) if self._has("one live place a holder") else 0
        used = self._has("numbers are unique") and any(m == n for m, _ in database.places)
        if process.current and not known and not used:
            wrong = state.wrong or self._overtaken(state, n)
            stored = state._replace(database=database.insert(n, fan), wrong=wrong)
            return stored.at(p, process._replace(at="commit"))
        if known:
            return state.answer(p, fan, known)
        return state.at(p, LineProcess("raise", fan, self._tail(database)))

    def _overtaken(self, state: LineState, n: int) -> str:
        """Why storing `n` only now is wrong: a later place was called, although this batch came within its time."""
        redis, database = state.redis, state.database
        standing = redis.called & database.live().keys() if redis is not None and not redis.stale else NOBODY
        later = [m for m in standing.union(m for m, _ in database.calls) if m > n]
        return "" if state.late or not later else f"{max(later)} was called before {n}, which had joined"

    def _commit(self, state: LineState, p: int, process: LineProcess) -> LineState:
        n, redis = process.number, state.redis
        if redis is None:
            state = state._replace(pending=state.pending | {(n, p)})
        else:
            state = state._replace(redis=redis.commit(n, p))
        return state.answer(p, process.fan, n)

    def _raise_counter(self, state: LineState, p: int, process: LineProcess) -> LineState:
        raised = state._replace(redis=state.redis and state.redis.raise_counter(process.number))
        return raised.at(p, LineProcess("number", process.fan))

    # -- a tick --------------------------------------------------------------------------------------------------------

    def _tick(self, redis: LineInRedis, state: LineState) -> LineInRedis:
        """Ends calls that are past their deadline, and calls the next place if a slot is free."""
        missed = redis.called & state.overdue
        redis = redis._replace(
            called=redis.called - missed, done=redis.done | missed,
            unwritten=redis.unwritten | {(state.now, "missed", n) for n in missed},
        )  # fmt: skip
        if len(redis.slots) >= SLOTS_MAX:
            return redis
        limit = redis.counter
        if self._has("the scan stops at numbers in flight"):
            limit = min([limit, *(n - 1 for n, _ in redis.in_flight)])
        free = [n for n in range(1, limit + 1) if n not in redis.taken | redis.done]
        ahead = [n for n in free if n > redis.head and (redis.assume_live or n in redis.alive)]
        returners = [n for n in free if n <= redis.head and n in redis.alive]
        head = ahead[0] if ahead else max(redis.head, limit)
        called = (ahead or returners)[:1]
        return redis._replace(
            head=head, called=redis.called.union(called), taken=redis.taken.union(called),
            unwritten=redis.unwritten | {(state.now + 1, "called", n) for n in called},
        )  # fmt: skip

    def _tick_later(self, state: LineState, p: int, redis: LineInRedis) -> LineState:
        """A tick when every call so far is past its deadline, and every batch in flight is taken for dead."""
        unsaved = {n for process in state.processes for _, kind, n in process.changes if kind == "called"}
        known = redis.called | state.database.in_state("called") | unsaved
        state = state._replace(late=state.late or bool(redis.in_flight), overdue=state.overdue | known)
        return self._ticked(state, p, self._tick(redis._replace(in_flight=frozenset()), state))

    def _ticked(self, state: LineState, p: int, redis: LineInRedis) -> LineState:
        process = LineProcess("open save", generation=redis.generation, changes=redis.unwritten, head=redis.head)
        now = max([state.now, *(number + 1 for number, *_ in redis.unwritten)])
        return state.at(p, process)._replace(redis=redis, overdue=state.overdue - redis.called, now=now)

    def _save(self, state: LineState, p: int, process: LineProcess) -> LineState:
        if not process.current:
            return state.at(p, IDLE)
        database, live = state.database, state.database.live()
        called = frozenset(n for _, kind, n in process.changes if kind == "called")
        void = frozenset(called - live.keys() if self._has("void calls") else ())
        database = database.set_calls(called - void - {n for n, _ in database.calls}, "called")
        missed = frozenset(n for _, kind, n in process.changes if kind == "missed")
        missed &= live.keys() - database.in_state("claimed", "missed")  # a place that has ended has ended its calls
        database = database._replace(ended=database.ended | missed).set_calls(missed, "missed")
        database = database._replace(head=max(database.head, process.head))
        after = process._replace(at="undo", void=void, read=database) if void else process._replace(at="acknowledge")
        return state._replace(database=database).at(p, after)

    def _undo(self, state: LineState, p: int, process: LineProcess) -> LineState:
        redis, void = state.redis, process.void
        if redis is not None and redis.generation == process.generation:
            committed = void & redis.alive
            redis = redis._replace(
                called=redis.called - void, done=redis.done | (void - committed),
                taken=redis.taken - (committed - redis.done),
            )  # fmt: skip
        if redis is not None and process.read is not None and self._has("a void call of an ended place"):
            redis = redis.free(void & process.read.ended)
        return state._replace(redis=redis).at(p, process._replace(at="acknowledge", read=None))

    def _acknowledge(self, state: LineState, p: int, process: LineProcess) -> LineState:
        redis = state.redis
        if redis is not None and redis.generation == process.generation:
            last = max((number for number, *_ in process.changes), default=0)
            redis = redis._replace(unwritten=frozenset(each for each in redis.unwritten if each[0] > last))
        return state._replace(redis=redis).at(p, IDLE)

    # -- claims, ends, rebuilds ----------------------------------------------------------------------------------------

    def _store_claim(self, state: LineState, p: int, process: LineProcess) -> LineState:
        database, here = state.database, frozenset({process.number})
        refused = database.in_state("missed", "ended") & here
        if process.current and here & database.live().keys() and not refused:
            database = database.set_calls(here, "claimed")
        return state._replace(database=database).at(p, IDLE)

    def _free(self, state: LineState, p: int, process: LineProcess) -> LineState:
        redis = state.redis and state.redis.free(frozenset({process.number}))
        return state._replace(redis=redis).at(p, IDLE)

    def _end_late(self, state: LineState, p: int, process: LineProcess) -> LineState:
        return state._replace(database=state.database.end(process.number)).at(p, IDLE)

    def _read(self, state: LineState, p: int, process: LineProcess) -> LineState:
        return state.at(p, process._replace(at="rebuild", read=state.database))

    def _rebuild(self, state: LineState, p: int, process: LineProcess) -> LineState:
        redis, read = state.redis, process.read
        assert read is not None
        if redis is None or redis.generation < process.generation:
            live = frozenset(read.live())
            redis = LineInRedis(
                process.generation, max(self._tail(read), redis.counter if redis else 0), read.head,
                taken=read.in_state("called", "claimed", "ended"), done=read.ended,
                called=read.in_state("called") & live, active=read.in_state("claimed") & live,
            )  # fmt: skip
        return state._replace(redis=redis).at(p, IDLE)

    # -- rules ---------------------------------------------------------------------------------------------------------

    def broken(self, state: LineState) -> str:
        places, redis, live = state.database.places, state.redis, state.database.live()
        if state.wrong:
            return state.wrong
        if len({n for n, _ in places}) < len(places):
            return "a number was given twice"
        if len(set(live.values())) < len(live):
            return "a holder has two live places"
        if not state.answered <= places:
            return "a place that was acknowledged is lost"
        if state.database.in_state("called", "claimed") & state.database.ended:
            return "a place that has ended has a call"
        went_back = state.saved is not None and not state.losses  # Redis may not know at first who has a slot
        if redis is not None and len(redis.called - state.overdue | redis.active) > SLOTS_MAX and not went_back:
            return "Redis has more calls and sessions than slots"
        slots = state.database.in_state("called") - state.overdue | state.database.in_state("claimed")
        excused = went_back or state.late  # a call that was undone may be saved once its place is there after all
        if len(slots) > SLOTS_MAX and not excused:
            return "the database has more calls and sessions than slots"
        is_current = redis is not None and redis.generation == state.database.generation and not redis.stale
        if redis is not None and is_current and not state.late and not slots <= redis.slots:
            return "the database has a call or session that Redis does not have"
        return ""

    def unsettled(self, state: LineState) -> str:
        redis, database = state.redis, state.database
        if redis is None or redis.stale or redis.generation != database.generation:
            return "Redis was not rebuilt"
        if database.live():
            return f"{sorted(database.live())} still wait"
        if redis.slots or redis.unwritten:
            return "a slot is not free"
        return ""

    def _is_writing(self, state: LineState) -> bool:
        return any(process.at in IN_TRANSACTION for process in state.processes)
