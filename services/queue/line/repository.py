"""The line in PostgreSQL: one method for each set-based statement.

Writes that follow from Redis' state run under the fence and name the generation they came from; after a rebuild or a
reset they change nothing.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from sqlalchemy import Row, TextClause

from services.queue.line.replies import TickEvent, runs
from services.queue.tables import outbox
from shared.contracts.events import Event
from shared.messaging.outbox import emit_events
from shared.postgres.engine import AsyncConnection, statement

SHARED_LOCK, EXCLUSIVE_LOCK, INSERT_PLACES_IN_DB, LIVE_PLACES, GET_PLACES, LOCK_PLACES = (
    statement(__package__, verb)
    for verb in ("shared_lock", "exclusive_lock", "insert_places_in_db", "live_places", "get_places", "lock_places")
)
INSERT_CALLS, INSERT_MISSES, SAVE_HEADS, INSERT_CLAIMS, END_PLACES, END_CALLS, LANES = (
    statement(__package__, verb)
    for verb in ("insert_calls", "insert_misses", "save_heads", "insert_claims", "end_places", "end_calls", "lanes")
)

IS_CURRENT_GENERATION, USER_PLACES, LANE_TOTALS, LOCK_LANE, OPEN_SLOTS = (
    statement(__package__, verb)
    for verb in ("is_current_generation", "user_places", "lane_totals", "lock_lane", "open_slots")
)

PlaceId = tuple[int, int]  # lane, join_seq


class PlaceRow(NamedTuple):
    """A place and its last call, if it was ever called: `call` to `expires_at_ms`. `end_reason` is None while the place
    is live; `bought`: the holder bought more than a second ago and the place is still live.
    """

    lane: int
    join_seq: int
    holder: str
    end_reason: str | None
    bought: bool
    call: int | None
    state: str | None
    deadline_ms: int | None
    jti: str | None
    expires_at_ms: int | None


class TickResult(NamedTuple):
    """The result of saving a tick's changes: numbers without a live place, calls that are new, how many calls were
    missed, and places that ended with their last miss.
    """

    void: list[PlaceId]
    called: list[PlaceId]
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
        holders, users = zip(*joins, strict=True)
        rows = await self._rows(INSERT_PLACES_IN_DB, lane=lane, holders=list(holders), user_ids=list(users))
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

    async def open_slots(self, after: PlaceId, *, slots_max: int) -> list[PlaceId]:
        """The next places after this one whose last call is standing or claimed, in key order."""
        lane, seq = after
        rows = await self._rows(OPEN_SLOTS, lane=lane, join_seq=seq, slots_max=slots_max)
        return [(row.lane, row.join_seq) for row in rows]

    async def insert_claims(
        self, claims: Sequence[tuple[int, int, int, str, int]], *, generation: int
    ) -> dict[PlaceId, tuple[str, int]]:
        """Records claims as (lane, join_seq, call, jti, expires_at_ms); jti and expiry of each place claimed now."""
        await self.lock([(lane, seq) for lane, seq, *_ in claims])
        lanes, seqs, calls, jtis, expires = map(list, zip(*claims, strict=True))
        rows = await self._rows(
            INSERT_CLAIMS,
            lanes=lanes,
            join_seqs=seqs,
            calls=calls,
            jtis=jtis,
            expires_at_ms=expires,
            generation=generation,
        )
        return {(row.lane, row.join_seq): (row.jti, row.expires_at_ms) for row in rows}

    async def save_tick_events(self, changes: Sequence[TickEvent]) -> TickResult:
        """Saves the changes of ticks. Idempotent."""
        calls = [c for c in changes if c.kind == "called"]
        misses = [c for c in changes if c.kind in ("missed", "spent")]
        called = await self._rows(INSERT_CALLS, **_event_columns(calls)) if calls else ()
        missed = await self._rows(INSERT_MISSES, **_event_columns(misses)) if misses else ()
        missed_now = {(row.lane, row.join_seq) for row in missed}
        spent = [(c.lane, c.join_seq) for c in misses if c.kind == "spent" and (c.lane, c.join_seq) in missed_now]
        ended = await self.end(spent, end_reason="expired", unclaimed=True) if spent else {}
        return TickResult(
            void=[(row.lane, row.join_seq) for row in called if row.void],
            called=[(row.lane, row.join_seq) for row in called if row.fresh],
            missed=len(missed),
            ended=list(ended),
        )

    async def save_heads(self, lanes: Sequence[Mapping[str, Any]]) -> None:
        """Saves each lane's head and totals from the state of a tick."""
        columns = {"lanes": "lane", "head_seqs": "head_seq", "fair_shares": "fair_share"}
        columns |= {name: name for name in ("calls", "contended_calls", "contention_periods")}
        await self._rows(SAVE_HEADS, **{name: [at[field] for at in lanes] for name, field in columns.items()})

    async def lane_totals(self) -> dict[int, LaneTotals]:
        """The totals of each lane."""
        return {
            row.lane: LaneTotals(row.calls, row.contended_calls, row.fair_share, row.contention_periods)
            for row in await self._rows(LANE_TOTALS)
        }

    async def lock(self, place_ids: Iterable[PlaceId]) -> set[PlaceId]:
        """Locks the live ones of these places, in key order."""
        return {(row.lane, row.join_seq) for row in await self._rows(LOCK_PLACES, **_place_columns(place_ids))}

    async def end(self, place_ids: Sequence[PlaceId], *, end_reason: str, unclaimed: bool) -> dict[PlaceId, str]:
        """Ends live places and their calls; the reason each ended. With `unclaimed`, places with a session stay."""
        if not place_ids:
            return {}
        await self.lock(place_ids)
        rows = await self._rows(END_PLACES, end_reason=end_reason, unclaimed=unclaimed, **_place_columns(place_ids))
        ended = {(row.lane, row.join_seq): row.end_reason for row in rows}
        if ended:
            await self._rows(END_CALLS, **_place_columns(ended))
        return ended

    async def lanes(self) -> dict[int, tuple[int, int]]:
        """Head and highest committed number of each lane."""
        return {row.lane: (row.head_seq, row.tail_seq) for row in await self._rows(LANES)}

    async def emit_joined(self, lane: int, numbers: Collection[int]) -> None:
        """Emits the event of places that the database numbered."""
        if numbers:
            await emit_events(self._connection, outbox, [joined(self.event_id, self.epoch, lane, numbers)])

    async def emit(self, kind: str, place_ids: Iterable[PlaceId], **more: Any) -> None:
        """Emits one `place.*` event for a whole batch: one for each fan would cost more than the join itself."""
        places = sorted(place_ids)
        if places:
            after = {"epoch": self.epoch, "places": places, **more}
            event = Event(type=f"place.{kind}", event_id=self.event_id, aggregate=f"line/{self.epoch}", after=after)
            await emit_events(self._connection, outbox, [event])


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


def _place_columns(place_ids: Iterable[PlaceId]) -> dict[str, list[int]]:
    pairs = list(place_ids)
    return {"lanes": [lane for lane, _ in pairs], "join_seqs": [seq for _, seq in pairs]}


def _event_columns(changes: Sequence[TickEvent]) -> dict[str, list[int]]:
    return {
        "lanes": [c.lane for c in changes],
        "join_seqs": [c.join_seq for c in changes],
        "calls": [c.call for c in changes],
        "ats_ms": [c.at_ms for c in changes],
    }
