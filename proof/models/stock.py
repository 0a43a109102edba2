"""Model of the stock: a seat is held in Redis, then written in PostgreSQL, expires or is paid, and Redis is rebuilt.

One seat, two fans with a reservation each, two orders and two processes. Each process does one thing at a time and may
die or pause before every write. Redis may lose its data or come back with those of an earlier time. Left out: general
admission, limits, best available seats, clocks that disagree.
"""

from collections.abc import Iterator
from typing import ClassVar, NamedTuple

from proof.models.explorer import Guard, ProtocolModel, losses_of_redis

FANS, ORDERS, PROCESSES = ("a", "b"), ("x", "y"), (0, 1)  # a reservation is named by its fan
GRANTED = ("look up", "open hold", "write")  # before these steps a process knows the end that Redis gave its hold
Ids = frozenset[str]
NONE: Ids = frozenset()


class HoldRow(NamedTuple):
    """A reservation in PostgreSQL; a tombstone is `never`. Each change raises its version."""

    status: str
    order: str = ""
    version: int = 1

    def changed(self, status: str, order: str | None = None) -> "HoldRow":
        return HoldRow(status, self.order if order is None else order, self.version + 1)

    @property
    def is_live(self) -> bool:
        return self.status in ("pending", "paying")

    @property
    def owns_seat(self) -> bool:
        return self.is_live or self.status == "confirmed"


Rows = tuple[HoldRow | None, ...]  # by fan
MISSING: Rows = (None, None)


class RedisSeat(NamedTuple):
    """The seat in Redis: `.` available, `h` held, `s` sold. `brief`: holds with the first, short deadline."""

    epoch: int = 0
    ready: bool = True
    mark: str = "."
    holds: Ids = NONE
    brief: Ids = NONE
    timed: Ids = NONE  # with their own deadline; those in payment have none
    versions: tuple[int, ...] = (0, 0)  # of the holds by fan, from the second one on
    stale: bool = False
    soon: Ids = NONE  # of a saved copy: as in the state, whatever else is known of these holds meanwhile
    over: Ids = NONE

    def drop(self, ids: Ids, mark: str) -> "RedisSeat":
        """Ends a hold, if Redis has it."""
        if not ids & self.holds:
            return self
        mark = mark if self.mark == "h" else self.mark
        dropped = self._replace(mark=mark, holds=self.holds - ids, brief=self.brief - ids, timed=self.timed - ids)
        return dropped.of_version(ids, 0)

    def of_version(self, ids: Ids, version: int) -> "RedisSeat":
        """The first version is that of a hold that was granted or written."""
        known = version if version > 1 else 0
        return self._replace(versions=tuple(known if f in ids else v for f, v in zip(FANS, self.versions, strict=True)))

    def version(self, fan: str) -> int:
        return self.versions[FANS.index(fan)]


class HoldProcess(NamedTuple):
    """Before which step a process stands, and what it knows."""

    at: str = ""
    ids: Ids = NONE
    epoch: int = 0
    current: bool = False
    over: Ids = NONE  # past their end when it listed what is due
    is_late: bool = False  # past the end of the hold that Redis granted it
    again: bool = False  # a late payment took the seat again
    read: Rows | None = None


IDLE = HoldProcess()


class StockState(NamedTuple):
    redis: RedisSeat | None
    rows: Rows = MISSING
    epoch: int = 0
    workers: tuple[HoldProcess, ...] = (IDLE, IDLE)
    soon: Ids = NONE  # granted more than five seconds ago
    over: Ids = NONE  # past the end that their fan was given
    held: Ids = NONE  # their fan was answered
    paying: frozenset[tuple[str, str]] = frozenset()  # reservation, order: its begin was answered
    saved: RedisSeat | None = None
    losses: int = 0
    deaths: int = 0
    wrong: str = ""

    def row(self, fan: str) -> HoldRow | None:
        return self.rows[FANS.index(fan)]

    def known(self) -> Ids:
        """The reservations that were granted: the database, Redis or a process has them."""
        held = self.redis.holds if self.redis is not None else NONE
        return held.union((fan for fan in FANS if self.row(fan)), *(worker.ids for worker in self.workers))

    def at(self, p: int, worker: HoldProcess) -> "StockState":
        return self._replace(workers=tuple(worker if q == p else other for q, other in enumerate(self.workers)))

    def idle(self) -> int | None:
        """The first idle process: they are alike, so it is the one that begins something."""
        return next((p for p, worker in enumerate(self.workers) if worker == IDLE), None)

    def written(self, rows: dict[str, HoldRow]) -> "StockState":
        return self._replace(rows=tuple(rows.get(fan, self.row(fan)) for fan in FANS))


Step = tuple[str, StockState]


class StockProtocol(ProtocolModel[StockState]):
    """The stock. `misfortunes` bounds how often Redis loses its data or goes back, and how often processes die."""

    guards: ClassVar = {
        "the seat is free": Guard("a hold is written only if its seat is available in the database"),
        "the epoch": Guard("a hold is written only if Redis was not rebuilt since it granted it"),
        "the fence": Guard("a rebuild waits for open transactions before it raises the epoch"),
        "tombstones": Guard("a hold that was taken for never written cannot be written any more"),
        "only unpaid holds expire": Guard("the expiry changes a reservation only while it is pending"),
        "only after its end": Guard("the expiry changes a reservation only past the end that its fan was given"),
        "the owner confirms": Guard("only the order that is paying may confirm"),
        "the owner releases": Guard("only the order of a reservation may release it"),
        "one payment at a time": Guard("a reservation that is being paid is begun by no other order"),
        "taken again only if free": Guard(
            "a late payment takes its seat again only if it is available",
            "p0 holds a; p0 opens; p0 writes; p0 sets the deadline; five seconds pass; the holds end; p0 scans;"
            "p0 follows; p0 holds b; p0 opens",
        ),
        "rebuilds in order": Guard(
            "a step of a rebuild changes Redis only while Redis has the epoch of this rebuild",
            "Redis is lost; p0 raises the epoch; p0 closes; p0 reads; p1 raises the epoch; p1 closes; p1 reads",
        ),
        "compared": Guard("what Redis still has differently is corrected after the database"),
    }

    def __init__(self, *, without: str = "", misfortunes: int = 1) -> None:
        super().__init__(without=without)
        self.start = StockState(RedisSeat(), losses=misfortunes, deaths=misfortunes)
        self._continued = {
            "look up": ("looks up", self._look_up), "open hold": ("opens", self._open),
            "write": ("writes", self._write), "release": ("undoes the hold", self._undo),
            "keep": ("sets the deadline", self._keep), "expire": ("expires", self._expire),
            "bury": ("buries", self._bury), "follow": ("follows", self._follow), "close": ("closes", self._close),
            "read": ("reads", self._read), "rebuild": ("rebuilds", self._rebuild),
        }  # fmt: skip

    def moves(self, state: StockState) -> Iterator[Step]:
        redis, p = state.redis, state.idle()
        for q, worker in enumerate(state.workers):
            if worker.at and not (worker.at == "open hold" and self._is_writing(state)):  # it would only wait for it
                words, work = self._continued[worker.at]
                yield f"p{q} {words}", work(state, q, worker)
        if p is not None:
            yield from self._begin(state, p, redis)
        known = state.known()
        if known - state.soon:
            saved = state.saved and state.saved._replace(soon=state.saved.holds)
            yield "five seconds pass", state._replace(soon=state.soon | known, saved=saved)
        elif known - state.over and not any(row and row.status == "paying" for row in state.rows):
            yield "the holds end", self._end_holds(state)

    def faults(self, state: StockState) -> Iterator[Step]:
        for p, worker in enumerate(state.workers):
            if worker != IDLE and state.deaths:
                yield f"p{p} dies", state.at(p, IDLE)._replace(deaths=state.deaths - 1)
        yield from self._losses(state)
        if any((row := state.row(fan)) and row.status == "paying" for fan in set(FANS) - state.over):
            yield "the holds end", self._end_holds(state)
        if (idle := state.idle()) is not None:
            yield from self._requests(state, idle)

    def _end_holds(self, state: StockState) -> StockState:
        """Of all holds that were granted, also of those that only a process or a saved copy knows."""
        known, saved = state.known(), state.saved
        workers = tuple(worker._replace(is_late=worker.at in GRANTED) for worker in state.workers)
        saved = saved and saved._replace(soon=saved.holds, over=saved.holds)
        return state._replace(soon=state.soon | known, over=state.over | known, workers=workers, saved=saved)

    def _losses(self, state: StockState) -> Iterator[Step]:
        """A hold that was never written comes back with the end that it had."""
        for label, after in losses_of_redis(state):
            redis, saved = after.redis, after.saved
            if label == "Redis saves" and saved is not None:
                saved = saved._replace(soon=state.soon & saved.holds, over=state.over & saved.holds)
                after = after._replace(saved=saved)
            elif label == "Redis goes back" and redis is not None:
                back = frozenset(fan for fan in redis.holds if state.row(fan) is None)
                soon, over = state.soon - back | redis.soon & back, state.over - back | redis.over & back
                after = after._replace(redis=redis._replace(soon=NONE, over=NONE), soon=soon, over=over)
            yield label, after

    def _requests(self, state: StockState, p: int) -> Iterator[Step]:
        """What fans and orders may ask for."""
        for fan in FANS:
            if state.redis is not None and state.redis.ready and fan not in state.held:
                yield f"p{p} holds {fan}", self._hold(state, p, fan, state.redis)
            row = state.row(fan)
            for order in ORDERS if row is not None and fan in state.held else ():
                for verb in ("begins", "confirms", "releases", "takes again"):
                    yield self._pay(state, p, verb, fan, order)

    # -- a process begins ----------------------------------------------------------------------------------------------

    def _begin(self, state: StockState, p: int, redis: RedisSeat | None) -> Iterator[Step]:
        if redis is None or redis.stale or not redis.ready or redis.epoch < state.epoch:
            if not (self._is_writing(state) and self._has("the fence")):
                yield f"p{p} raises the epoch", self._raise_epoch(state, p)
        elif due := redis.brief & state.soon | redis.timed & state.over:
            yield f"p{p} lists what is due", state.at(p, HoldProcess("expire", due, over=state.over & due))
        if pending := frozenset(fan for fan in state.over if (row := state.row(fan)) and row.status == "pending"):
            yield f"p{p} scans", self._scan(state, p, pending)
        for fan, order in sorted(state.paying):
            if (row := state.row(fan)) and (row.status, row.order) == ("paying", order):
                yield self._pay(state, p, "confirms", fan, order)
        if redis is not None and self._differs(state, redis):
            ended = frozenset(fan for fan in redis.holds if (row := state.row(fan)) and not row.is_live)
            corrected = self._after(redis, HoldProcess(ids=ended, read=state.rows))
            yield f"p{p} compares", state._replace(redis=corrected._replace(mark=_mark(state.rows)))

    def _hold(self, state: StockState, p: int, fan: str, redis: RedisSeat) -> StockState:
        """Redis decides. A repeated request continues where the first one may have died."""
        here = frozenset({fan})
        if fan in redis.holds:
            return state.at(p, HoldProcess("look up", here, redis.epoch, is_late=fan in state.over))
        if redis.mark != ".":
            return state
        held = redis._replace(mark="h", holds=redis.holds | here, brief=redis.brief | here)
        workers = tuple(worker._replace(over=worker.over - here) for worker in state.workers)  # its end is a new one
        granted = state._replace(redis=held, soon=state.soon - here, over=state.over - here, workers=workers)
        return granted.at(p, HoldProcess("open hold", here, redis.epoch))

    def _raise_epoch(self, state: StockState, p: int) -> StockState:
        epoch = max(state.epoch, state.redis.epoch if state.redis else 0) + 1
        redis = state.redis and state.redis._replace(stale=False)
        return state._replace(epoch=epoch, redis=redis).at(p, HoldProcess("close", epoch=epoch))

    def _scan(self, state: StockState, p: int, pending: Ids) -> StockState:
        rows = {fan: row for fan in pending if (row := state.row(fan))}
        expired = state.written({fan: row.changed("expired") for fan, row in rows.items()})
        return expired.at(p, HoldProcess("follow", pending, read=expired.rows))

    def _pay(self, state: StockState, p: int, verb: str, fan: str, order: str) -> Step:
        """One step of an order, decided in the database under the reservation's lock; Redis follows."""
        label, row, claim = f"p{p}: {order} {verb} {fan}", state.row(fan), (fan, order)
        assert row is not None
        here, is_owner, after = frozenset({fan}), row.order == order, state
        worker = HoldProcess("follow", here, state.epoch)
        if verb == "begins":
            free = row.status == "pending" or (row.status == "paying" and not self._has("one payment at a time"))
            if free and fan not in state.over:
                after = state.written({fan: row.changed("paying", order)})
            if (now := after.row(fan)) and now.order == order and now.status in ("paying", "confirmed"):
                after = after._replace(paying=state.paying | {claim})
        elif verb == "confirms":
            if row.status == "paying" and (is_owner or not self._has("the owner confirms")):
                after = state.written({fan: row.changed("confirmed", order)})
        elif verb == "releases":
            if row.status in ("pending", "paying") and (is_owner or not self._has("the owner releases")):
                after = state.written({fan: row.changed("expired" if fan in state.over else "cancelled")})
            after = after._replace(paying=state.paying - {claim})
        elif row.status in ("expired", "cancelled", "pending") or (row.status == "paying" and is_owner):
            worker = worker._replace(again=not row.owns_seat)
            others = [other for other in FANS if other != fan and (r := state.row(other)) and r.owns_seat]
            if row.owns_seat or not others or not self._has("taken again only if free"):
                after = state.written({fan: row.changed("confirmed", order)})
        moved = after.at(p, worker._replace(read=after.rows))
        return label, after if after.rows == state.rows else moved

    # -- a process continues -------------------------------------------------------------------------------------------

    def _open(self, state: StockState, p: int, worker: HoldProcess) -> StockState:
        is_current = worker.epoch == state.epoch or not self._has("the epoch")
        return state.at(p, worker._replace(at="write", current=is_current))

    def _look_up(self, state: StockState, p: int, worker: HoldProcess) -> StockState:
        """Redis had this hold before: the database knows whether it was written, and what became of it."""
        (fan,) = worker.ids
        row = state.row(fan)
        if row is None:
            return state.at(p, worker._replace(at="open hold"))
        if row.is_live:
            return state._replace(held=state.held | worker.ids).at(p, IDLE)
        return state.at(p, HoldProcess("follow", worker.ids, read=state.rows))

    def _write(self, state: StockState, p: int, worker: HoldProcess) -> StockState:
        (fan,) = worker.ids
        row = state.row(fan)
        if not worker.current:
            return state.at(p, IDLE)
        if row is not None:
            state = state._replace(held=state.held | (worker.ids if row.is_live else NONE))
            return state.at(p, IDLE if row.is_live else worker._replace(at="release", is_late=False))
        if self._has("the seat is free") and any(row.owns_seat for row in state.rows if row):
            return state.at(p, worker._replace(at="release", is_late=False))
        over = state.over | worker.ids if worker.is_late else state.over - worker.ids
        written = state.written({fan: HoldRow("pending")})._replace(held=state.held | worker.ids, over=over)
        return written.at(p, worker._replace(at="keep", is_late=False))

    def _expire(self, state: StockState, p: int, worker: HoldProcess) -> StockState:
        """Compare and set: a due hold is only a question."""
        may = {"pending"} if self._has("only unpaid holds expire") else {"pending", "paying"}
        rows = {fan: row for fan in worker.ids if (row := state.row(fan)) and row.status in may}
        due = {fan for fan in rows if fan in worker.over or not self._has("only after its end")}
        wrong = "a hold expired before its end" if due - state.over else ""
        state = state.written({fan: rows[fan].changed("expired") for fan in due})
        rest = HoldProcess("follow" if due == worker.ids else "bury", worker.ids, read=state.rows)
        return state._replace(wrong=state.wrong or wrong).at(p, rest)

    def _bury(self, state: StockState, p: int, worker: HoldProcess) -> StockState:
        missing = [fan for fan in worker.ids if state.row(fan) is None]
        buried = state.written({fan: HoldRow("never") for fan in missing}) if self._has("tombstones") else state
        return buried.at(p, worker._replace(at="follow", read=buried.rows))

    def _keep(self, state: StockState, p: int, worker: HoldProcess) -> StockState:
        """Redis gives the written hold its own deadline."""
        redis = state.redis
        if redis is not None and worker.ids <= redis.brief:  # in a later version it has its deadline already
            redis = redis._replace(brief=redis.brief - worker.ids, timed=redis.timed | worker.ids)
        return state._replace(redis=redis).at(p, IDLE)

    def _follow(self, state: StockState, p: int, worker: HoldProcess) -> StockState:
        """Redis follows the database, unless it is being rebuilt: then it will read the same facts."""
        redis = state.redis
        if redis is not None and redis.ready and (not worker.again or worker.epoch == redis.epoch):
            redis = self._after(redis, worker)  # what was taken again is told by its epoch: an older Redis is rebuilt
        return state._replace(redis=redis).at(p, IDLE)

    def _after(self, redis: RedisSeat, worker: HoldProcess) -> RedisSeat:
        for fan in sorted(worker.ids):
            row, here = (worker.read or MISSING)[FANS.index(fan)], frozenset({fan})
            if row is None or row.version < redis.version(fan):
                continue
            if row.is_live and fan in redis.holds:
                timed = redis.timed | here if row.status == "pending" else redis.timed - here
                redis = redis._replace(brief=redis.brief - here, timed=timed).of_version(here, row.version)
            elif not row.is_live and fan in redis.holds:
                redis = redis.drop(here, "s" if row.status == "confirmed" else ".")
            elif worker.again:
                redis = redis._replace(mark="s")
        return redis

    def _undo(self, state: StockState, p: int, worker: HoldProcess) -> StockState:
        """The database refused a hold: Redis gives it up, and takes over who has the seat there."""
        (fan,), redis = worker.ids, state.redis
        if redis is not None and redis.ready:
            redis = redis if redis.version(fan) else redis.drop(worker.ids, ".")
            refused = state.row(fan) is None and redis.mark == "."
            redis = redis._replace(mark=_mark(state.rows)) if refused else redis
        return state._replace(redis=redis).at(p, IDLE)

    def _close(self, state: StockState, p: int, worker: HoldProcess) -> StockState:
        """Redis grants nothing more from here on, and forgets what it had."""
        redis = state.redis
        if redis is None or redis.epoch <= worker.epoch:
            redis = RedisSeat(worker.epoch, ready=False)
        return state._replace(redis=redis).at(p, worker._replace(at="read"))

    def _read(self, state: StockState, p: int, worker: HoldProcess) -> StockState:
        return state.at(p, worker._replace(at="rebuild", read=state.rows))

    def _rebuild(self, state: StockState, p: int, worker: HoldProcess) -> StockState:
        redis = state.redis
        if redis is not None and (redis.epoch == worker.epoch or not self._has("rebuilds in order")):
            redis = self._as_in_database(redis._replace(ready=True), worker.read or MISSING)
        return state._replace(redis=redis).at(p, IDLE)

    # -- rules ---------------------------------------------------------------------------------------------------------

    def broken(self, state: StockState) -> str:
        if state.wrong:
            return state.wrong
        if sum(row.owns_seat for row in state.rows if row) > 1:
            return "the seat has two owners"
        if any(state.row(fan) is None for fan in state.held):
            return "a hold that was acknowledged is lost"
        for fan, order in state.paying:
            row = state.row(fan)
            if row is None or row.status not in ("paying", "confirmed") or row.order != order:
                return f"{order} was told that it is paying for {fan}, and lost it"
        redis = state.redis
        if redis is not None and redis.ready and not redis.stale and redis.epoch == state.epoch:
            live = {fan for fan in FANS if (row := state.row(fan)) and row.is_live}
            if not live <= redis.holds:
                return "the database has a hold that Redis does not have"
        return ""

    def unsettled(self, state: StockState) -> str:
        redis = state.redis
        if redis is None or not redis.ready or redis.stale or redis.epoch != state.epoch:
            return "Redis was not rebuilt"
        if any(row.is_live for row in state.rows if row) or redis.holds:
            return "the seat stays held"
        return "" if redis.mark == _mark(state.rows) else "Redis has another state of the seat than the database"

    def _differs(self, state: StockState, redis: RedisSeat) -> bool:
        is_current = redis.ready and not redis.stale and redis.epoch == state.epoch
        live = frozenset(fan for fan in FANS if (row := state.row(fan)) and row.is_live)
        written = all(state.row(fan) for fan in redis.holds)  # the others are found by their deadline
        differs = redis.mark != _mark(state.rows) or redis.holds != live
        at_rest = state.workers == (IDLE, IDLE)
        return at_rest and is_current and self._has("compared") and written and differs

    def _as_in_database(self, redis: RedisSeat, rows: Rows) -> RedisSeat:
        status = {fan: row.status for fan, row in zip(FANS, rows, strict=True) if row}
        pending = frozenset(fan for fan in status if status[fan] == "pending")
        paying = frozenset(fan for fan in status if status[fan] == "paying")
        redis = redis._replace(mark=_mark(rows), holds=pending | paying, brief=NONE, timed=pending)
        for fan, row in zip(FANS, rows, strict=True):
            redis = redis.of_version(frozenset({fan}), row.version if row and row.is_live else 0)
        return redis

    def _is_writing(self, state: StockState) -> bool:
        return any(worker.at == "write" for worker in state.workers)


def _mark(rows: Rows) -> str:
    """The seat as the database has it."""
    owners = [row.status for row in rows if row and row.owns_seat]
    return "." if not owners else "s" if "confirmed" in owners else "h"
