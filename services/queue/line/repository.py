"""The line in PostgreSQL: one method for each set-based statement.

Writes that follow from Redis' state run under the fence and name the generation they came from; after a rebuild or a
reset they change nothing.
"""

from collections.abc import AsyncIterator, Collection, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import datetime
from functools import partial
from typing import Any, Literal, NamedTuple

from sqlalchemy import Row, TextClause

from services.queue.line.redis_line import TickEvent, runs
from shared.contracts.frames import Event
from shared.messaging.outbox import emit_events
from shared.postgres.engine import AsyncConnection, AsyncEngine, statement

_load = partial(statement, __package__)
SHARED_LOCK, LOCK_LANE, LOCK_PLACES = map(_load, ("shared_lock", "lock_lane", "lock_places"))
GET_PLACES, LIVE_PLACES, USER_PLACES, OPEN_SLOTS = map(
    _load, ("get_places", "live_places", "user_places", "open_slots")
)
INSERT_PLACES_IN_DB, INSERT_CALLS, INSERT_MISSES, INSERT_CLAIMS = map(
    _load, ("insert_places_in_db", "insert_calls", "insert_misses", "insert_claims")
)
END_PLACES, LANES, LANE_TOTALS = map(_load, ("end_places", "lanes", "lane_totals"))
COUNT_SLOTS, BOUGHT_PLACES = map(_load, ("count_slots", "bought_places"))
SAVE_HEADS, IS_CURRENT_GENERATION, EXTEND_CLAIMS = map(_load, ("save_heads", "is_current_generation", "extend_claims"))

PlaceId = tuple[int, int]  # lane, join_seq
EndReason = Literal["completed", "expired", "left"]


class PlaceRow(NamedTuple):
    """A place and its last call, if it was ever called: `call` to `extended`. `end_reason` is None while the place
    is live; a call of a place that has ended is over, whatever its state.
    """

    lane: int
    join_seq: int
    holder: str
    end_reason: EndReason | None
    call: int | None
    state: str | None
    deadline_ms: int | None
    jti: str | None
    expires_at_ms: int | None
    extended: bool = False

    @property
    def place_id(self) -> PlaceId:
        return self.lane, self.join_seq


class TickResult(NamedTuple):
    """The result of saving a tick's changes: numbers without a live place, those of them whose place has ended, calls
    that are new and how long each fan waited for it, how many calls were missed, and places that ended with their last
    miss.
    """

    void: list[PlaceId]
    ended_before: list[PlaceId]
    called: list[PlaceId]
    waits_s: list[float]
    missed: int
    ended: list[PlaceId]


class LaneTotals(NamedTuple):
    """How many calls a lane was given; how many of these while all lanes contended, and its share of those by weight;
    how many times the lanes began to contend.
    """

    calls: int
    contended_calls: int
    fair_share: float
    contention_periods: int


class LineRepository:
    """The statements for one event and epoch, in the caller's transaction."""

    def __init__(self, connection: AsyncConnection, event_id: str, epoch: int) -> None:
        self._connection = connection
        self.event_id, self.epoch = event_id, epoch

    @classmethod
    @asynccontextmanager
    async def reading(cls, db: AsyncEngine, event_id: str, epoch: int) -> "AsyncIterator[LineRepository]":
        """On a connection of its own, each statement by itself: a transaction would cost two round trips more."""
        async with db.connect() as plain:
            connection = await plain.execution_options(isolation_level="AUTOCOMMIT")
            yield cls(connection, event_id, epoch)

    async def _rows(self, statement: TextClause, **values: Any) -> Sequence[Row[Any]]:
        result = await self._connection.execute(statement, {"event_id": self.event_id, "epoch": self.epoch, **values})
        return result.fetchall() if result.returns_rows else ()

    async def fence(self) -> None:
        """Delays a rebuild until the transaction ends. The writes that follow must name their generation."""
        await self._connection.execute(SHARED_LOCK, {"event_id": self.event_id})

    async def is_current_generation(self, generation: int) -> bool:
        """Whether Redis has not been rebuilt and the room not been reset since. Under the fence it stays so."""
        return bool(await self._rows(IS_CURRENT_GENERATION, generation=generation))

    async def lock_lane(self, lane: int) -> bool:
        """Locks the lane's row until the transaction ends; false when there is no such lane."""
        return bool(await self._rows(LOCK_LANE, lane=lane))

    async def insert_places_in_db(self, lane: int, joins: Sequence[tuple[str, str | None]]) -> dict[str, int]:
        """Inserts (holder, user_id) under the database's next numbers; the number of each holder. The caller has locked
        the lane.
        """
        rows = await self._rows(INSERT_PLACES_IN_DB, lane=lane, **_columns(joins, ("holders", "user_ids")))
        return {row.holder: row.join_seq for row in rows}

    async def live_places(self, holders: Iterable[str]) -> dict[str, PlaceId]:
        """The live place of each holder who has one."""
        rows = await self._rows(LIVE_PLACES, holders=list(holders))
        return {row.holder: (row.lane, row.join_seq) for row in rows}

    async def user_places(self, holders: Iterable[str]) -> dict[str, PlaceId]:
        """The place of each signed-in holder who ever had one, the live one first."""
        rows = await self._rows(USER_PLACES, holders=list(holders))
        return {row.holder: (row.lane, row.join_seq) for row in rows}

    async def get_places(self, place_ids: Iterable[PlaceId]) -> dict[PlaceId, PlaceRow]:
        """These places, as far as they exist."""
        rows = await self._rows(GET_PLACES, **_place_columns(place_ids))
        return {(row.lane, row.join_seq): PlaceRow(**row._asdict()) for row in rows}

    async def count_slots(self, since: datetime) -> tuple[int, datetime]:
        """How many live places have a standing or claimed call, if no call before `since` is open; and the latest time
        of which that is known.
        """
        [row] = await self._rows(COUNT_SLOTS, since=since)
        return row.slots, row.since

    async def open_slots(self, since: datetime, after: PlaceId, *, slots_max: int) -> list[PlaceId]:
        """The next live places after this one with a standing or claimed call made since then, in key order."""
        lane, seq = after
        rows = await self._rows(OPEN_SLOTS, since=since, lane=lane, join_seq=seq, slots_max=slots_max)
        return _place_ids(rows)

    async def bought_places(self, *, places_max: int) -> list[PlaceRow]:
        """Live places whose holders bought more than a second ago."""
        return [PlaceRow(**row._asdict()) for row in await self._rows(BOUGHT_PLACES, places_max=places_max)]

    async def insert_claims(
        self, claims: Sequence[tuple[int, int, int, str, int]], *, generation: int
    ) -> dict[PlaceId, tuple[str, int]]:
        """Records claims as (lane, join_seq, call, jti, expires_at_ms); jti and expiry of each place claimed now."""
        await self.lock((lane, seq) for lane, seq, *_ in claims)
        columns = _columns(claims, ("lanes", "join_seqs", "calls", "jtis", "expires_at_ms"))
        rows = await self._rows(INSERT_CLAIMS, **columns, generation=generation)
        return {(row.lane, row.join_seq): (row.jti, row.expires_at_ms) for row in rows}

    async def extend_claims(
        self, place_ids: Iterable[PlaceId], *, until_ms: int, expires_after_ms: int
    ) -> dict[PlaceId, int]:
        """Extends sessions that end after `expires_after_ms` and were not extended before; the new end of each."""
        await self.lock(place_ids := list(place_ids))
        columns = _place_columns(place_ids)
        rows = await self._rows(EXTEND_CLAIMS, **columns, until_ms=until_ms, expires_after_ms=expires_after_ms)
        return {(row.lane, row.join_seq): row.expires_at_ms for row in rows}

    async def save_tick_events(self, changes: Sequence[TickEvent]) -> TickResult:
        """Saves the changes of ticks. Idempotent."""
        calls = [c for c in changes if c.kind == "called"]
        misses = [c for c in changes if c.kind in ("missed", "spent")]
        called = await self._rows(INSERT_CALLS, **_event_columns(calls)) if calls else ()
        missed = await self._rows(INSERT_MISSES, **_event_columns(misses)) if misses else ()
        missed_now = set(_place_ids(missed))
        spent = [c.place_id for c in misses if c.kind == "spent" and c.place_id in missed_now]
        ended = await self.end(spent, end_reason="expired", unclaimed=True)
        return TickResult(
            void=_place_ids(row for row in called if row.void),
            ended_before=_place_ids(row for row in called if row.ended),
            called=_place_ids(row for row in called if row.fresh),
            waits_s=[row.wait_s for row in called if row.fresh],
            missed=len(missed),
            ended=list(ended),
        )

    async def save_heads(self, lanes: Sequence[Mapping[str, Any]]) -> None:
        """Saves each lane's head and totals from the state of a tick."""
        columns = {"lanes": "lane", "head_seqs": "head_seq", "fair_shares": "fair_share"}
        columns |= {name: name for name in ("calls", "contended_calls", "contention_periods")}
        await self._rows(SAVE_HEADS, **{name: [at[field] for at in lanes] for name, field in columns.items()})

    async def lane_totals(self) -> dict[int, LaneTotals]:
        return {
            row.lane: LaneTotals(row.calls, row.contended_calls, row.fair_share, row.contention_periods)
            for row in await self._rows(LANE_TOTALS)
        }

    async def lock(self, place_ids: Iterable[PlaceId]) -> set[PlaceId]:
        """Locks the live ones of these places, in key order."""
        return set(_place_ids(await self._rows(LOCK_PLACES, **_place_columns(place_ids))))

    async def end(
        self, place_ids: Sequence[PlaceId], *, end_reason: EndReason, unclaimed: bool
    ) -> dict[PlaceId, EndReason]:
        """Ends live places, and so their calls; the reason each ended. With `unclaimed`, places with a session stay."""
        if not place_ids:
            return {}
        await self.lock(place_ids)
        rows = await self._rows(END_PLACES, end_reason=end_reason, unclaimed=unclaimed, **_place_columns(place_ids))
        return {(row.lane, row.join_seq): row.end_reason for row in rows}

    async def lanes(self) -> dict[int, tuple[int, int]]:
        """Head and highest committed number of each lane."""
        return {row.lane: (row.head_seq, row.tail_seq) for row in await self._rows(LANES)}

    async def emit_joined(self, lane: int, numbers: Collection[int]) -> None:
        """Emits the event of places that the database numbered."""
        if numbers:
            await emit_events(self._connection, "queue", [joined(self.event_id, self.epoch, lane, numbers)])

    async def emit(self, **place_ids: Collection[PlaceId]) -> None:
        """Emits one `place.*` event for all places of a kind: one for each fan would cost more than the join itself.
        All kinds of the transaction are passed together.
        """
        events = [
            Event(
                type=f"place.{kind}", event_id=self.event_id, aggregate=f"line/{self.epoch}",
                after={"epoch": self.epoch, "places": sorted(places)},
            )
            for kind, places in place_ids.items()
            if places
        ]  # fmt: skip
        await emit_events(self._connection, "queue", events)


def joined(event_id: str, epoch: int, lane: int, numbers: Iterable[int]) -> Event:
    """One `place.joined` for a whole batch, as runs of numbers."""
    after = {"epoch": epoch, "lane": lane, "join_seqs": runs(numbers)}
    return Event(type="place.joined", event_id=event_id, aggregate=f"line/{epoch}", after=after)


def by_lane(place_ids: Iterable[PlaceId]) -> dict[int, list[int]]:
    """The numbers of each lane, as the Redis scripts take them."""
    lanes: dict[int, list[int]] = {}
    for lane, seq in place_ids:
        lanes.setdefault(lane, []).append(seq)
    return lanes


def _place_ids(rows: Iterable[Row[Any]]) -> list[PlaceId]:
    return [(row.lane, row.join_seq) for row in rows]


def _columns(rows: Iterable[Sequence[Any]], names: Sequence[str]) -> dict[str, list[Any]]:
    """Rows as one array for each column, as the statements take them."""
    given = list(rows)
    return {name: [row[at] for row in given] for at, name in enumerate(names)}


def _place_columns(place_ids: Iterable[PlaceId]) -> dict[str, list[int]]:
    return _columns(place_ids, ("lanes", "join_seqs"))


def _event_columns(changes: Sequence[TickEvent]) -> dict[str, list[int]]:
    return _columns([(*c.place_id, c.call, c.at_ms) for c in changes], ("lanes", "join_seqs", "calls", "ats_ms"))
