"""The line on disk: set-based statements, one a verb. What is fenced says which filling of the engine it came from."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from sqlalchemy import Row, TextClause

from services.queue.line.replies import TickEvent, runs
from services.queue.tables import outbox
from shared.contracts.events import Event
from shared.messaging.outbox import tell
from shared.postgres.engine import AsyncConnection, statement

FENCE, FENCE_ALONE, JOIN_IN_DB, LIVE_PLACES, STANDS, LOCK_PLACES = (
    statement(__package__, verb)
    for verb in ("fence", "fence_alone", "join_in_db", "live_places", "stands", "lock_places")
)
RECORD_CALLS, RECORD_MISSES, RECORD_HEADS, RECORD_CLAIMS, END_PLACES, END_CALLS, LANES = (
    statement(__package__, verb)
    for verb in ("record_calls", "record_misses", "record_heads", "record_claims", "end_places", "end_calls", "lanes")
)

FILLED_BY, USER_PLACES, TALLIES, LOCK_LANE, OPEN_SLOTS = (
    statement(__package__, verb) for verb in ("filled_by", "user_places", "tallies", "lock_lane", "open_slots")
)

PlaceId = tuple[int, int]  # lane, join_seq


class PlaceRow(NamedTuple):
    """How a place stands in the ledger. `state` is its last call's, if it was ever called; `bought`: more than a second
    ago, and it has not ended.
    """

    lane: int
    join_seq: int
    holder: str
    how: str | None
    bought: bool
    call: int | None
    state: str | None
    deadline_ms: int | None
    jti: str | None
    expires_at_ms: int | None


class TickResult(NamedTuple):
    """What came of writing a tick's changes: numbers without a place, calls written now, places at their end."""

    void: list[PlaceId]
    called: list[PlaceId]
    missed: int
    spent: list[PlaceId]


class LaneTotals(NamedTuple):
    """What a lane was given: calls; those of turns in which lanes contended, its due of them by weight; how many times
    such turns began.
    """

    calls: int
    contested: int
    due: float
    contests: int


class LineRepository:
    """The statements on one event and epoch, in the caller's transaction."""

    def __init__(self, connection: AsyncConnection, event_id: str, epoch: int) -> None:
        self._connection = connection
        self.event_id, self.epoch = event_id, epoch

    async def _rows(self, what: TextClause, **values: Any) -> Sequence[Row[Any]]:
        result = await self._connection.execute(what, {"event_id": self.event_id, "epoch": self.epoch, **values})
        return result.fetchall() if result.returns_rows else ()

    async def fence(self) -> None:
        """Holds off a filling until the transaction ends. What follows must name the filling it came from."""
        await self._connection.execute(FENCE, {"event_id": self.event_id})

    async def filled_by(self, fill: int) -> bool:
        """Whether the engine has not been filled anew since `fill`, nor the room reset. Under the fence it stays so."""
        return bool(await self._rows(FILLED_BY, fill=fill))

    async def lock_lane(self, lane: int) -> bool:
        """Keeps the lane's row from others until the transaction ends; false when there is no such lane."""
        return bool(await self._rows(LOCK_LANE, lane=lane))

    async def join_in_db(self, lane: int, joins: Sequence[tuple[str, str | None]]) -> dict[str, int]:
        """Inserts (holder, user_id) under the ledger's own next numbers, by holder. The caller locked the lane."""
        holders, users = zip(*joins, strict=True)
        rows = await self._rows(JOIN_IN_DB, lane=lane, holders=list(holders), user_ids=list(users))
        return {row.holder: row.join_seq for row in rows}

    async def live_places(self, holders: Iterable[str]) -> dict[str, PlaceId]:
        """The live place of each holder who has one."""
        rows = await self._rows(LIVE_PLACES, holders=list(holders))
        return {row.holder: (row.lane, row.join_seq) for row in rows}

    async def user_places(self, holders: Iterable[str]) -> dict[str, PlaceId]:
        """The place of each signed-in holder who ever had one, the live one first."""
        rows = await self._rows(USER_PLACES, holders=list(holders))
        return {row.holder: (row.lane, row.join_seq) for row in rows}

    async def get_places(self, seats: Iterable[PlaceId]) -> dict[PlaceId, PlaceRow]:
        """How these places stand."""
        rows = await self._rows(STANDS, **_columns(seats))
        return {(row.lane, row.join_seq): PlaceRow(**row._asdict()) for row in rows}

    async def open_slots(self, after: PlaceId, *, slots_max: int) -> list[PlaceId]:
        """The next places after this one with a call that stands or is claimed, in order."""
        lane, seq = after
        rows = await self._rows(OPEN_SLOTS, lane=lane, join_seq=seq, slots_max=slots_max)
        return [(row.lane, row.join_seq) for row in rows]

    async def claims(
        self, claims: Sequence[tuple[int, int, int, str, int]], *, fill: int
    ) -> dict[PlaceId, tuple[str, int]]:
        """Writes (lane, join_seq, call, jti, expires_at_ms); jti and expiry of each place that is claimed now."""
        await self.lock([(lane, seq) for lane, seq, *_ in claims])
        lanes, seqs, calls, jtis, expires = map(list, zip(*claims, strict=True))
        rows = await self._rows(
            RECORD_CLAIMS, lanes=lanes, join_seqs=seqs, calls=calls, jtis=jtis, expires_at_ms=expires, fill=fill
        )
        return {(row.lane, row.join_seq): (row.jti, row.expires_at_ms) for row in rows}

    async def record(self, changes: Sequence[TickEvent]) -> TickResult:
        """Writes what ticks did; writing it again changes nothing."""
        calls = [c for c in changes if c.what == "called"]
        misses = [c for c in changes if c.what in ("missed", "spent")]
        called = await self._rows(RECORD_CALLS, **_change_columns(calls)) if calls else ()
        missed = await self._rows(RECORD_MISSES, **_change_columns(misses)) if misses else ()
        risen = {(row.lane, row.join_seq) for row in missed}
        spent = [(c.lane, c.join_seq) for c in misses if c.what == "spent" and (c.lane, c.join_seq) in risen]
        ended = await self.end(spent, how="expired", unclaimed=True) if spent else {}
        return TickResult(
            void=[(row.lane, row.join_seq) for row in called if row.void],
            called=[(row.lane, row.join_seq) for row in called if row.fresh],
            missed=len(missed),
            spent=list(ended),
        )

    async def save_heads(self, lanes: Sequence[Mapping[str, Any]]) -> None:
        """Writes how far each lane has come, and its tally, as a tick told them."""
        columns = {"lanes": "lane", "head_seqs": "head_seq", "dues": "due"}
        columns |= {name: name for name in ("calls", "contested", "contests")}
        await self._rows(RECORD_HEADS, **{name: [at[told] for at in lanes] for name, told in columns.items()})

    async def tallies(self) -> dict[int, LaneTotals]:
        """What each lane was given of the calls."""
        return {
            row.lane: LaneTotals(row.calls, row.contested, row.due, row.contests) for row in await self._rows(TALLIES)
        }

    async def lock(self, seats: Iterable[PlaceId]) -> set[PlaceId]:
        """Locks those of the places that are live, in key order."""
        return {(row.lane, row.join_seq) for row in await self._rows(LOCK_PLACES, **_columns(seats))}

    async def end(self, seats: Sequence[PlaceId], *, how: str, unclaimed: bool) -> dict[PlaceId, str]:
        """Ends live places and their calls; how each ended. `unclaimed` leaves those that have a session alone."""
        if not seats:
            return {}
        await self.lock(seats)
        rows = await self._rows(END_PLACES, how=how, unclaimed=unclaimed, **_columns(seats))
        ended = {(row.lane, row.join_seq): row.how for row in rows}
        if ended:
            await self._rows(END_CALLS, **_columns(ended))
        return ended

    async def lanes(self) -> dict[int, tuple[int, int]]:
        """Head and highest number on disk of each lane."""
        return {row.lane: (row.head_seq, row.tail_seq) for row in await self._rows(LANES)}

    async def tell_joined(self, lane: int, numbers: Collection[int]) -> None:
        """Tells of places that the ledger numbered."""
        if numbers:
            await tell(self._connection, outbox, [joined(self.event_id, self.epoch, lane, numbers)])

    async def tell(self, what: str, seats: Iterable[PlaceId], **more: Any) -> None:
        """One `place.*` event for a whole batch: an event a fan would cost more than the join itself."""
        places = sorted(seats)
        if places:
            after = {"epoch": self.epoch, "places": places, **more}
            event = Event(type=f"place.{what}", event_id=self.event_id, aggregate=f"line/{self.epoch}", after=after)
            await tell(self._connection, outbox, [event])


def joined(event_id: str, epoch: int, lane: int, numbers: Iterable[int]) -> Event:
    """One `place.joined` for a whole batch, as runs of numbers."""
    after = {"epoch": epoch, "lane": lane, "join_seqs": runs(numbers)}
    return Event(type="place.joined", event_id=event_id, aggregate=f"line/{epoch}", after=after)


def by_lane(seats: Iterable[PlaceId]) -> dict[int, list[int]]:
    """The numbers of each lane, as the engine's scripts take them."""
    lanes: dict[int, list[int]] = {}
    for lane, seq in seats:
        lanes.setdefault(lane, []).append(seq)
    return lanes


def _columns(seats: Iterable[PlaceId]) -> dict[str, list[int]]:
    pairs = list(seats)
    return {"lanes": [lane for lane, _ in pairs], "join_seqs": [seq for _, seq in pairs]}


def _change_columns(changes: Sequence[TickEvent]) -> dict[str, list[int]]:
    return {
        "lanes": [c.lane for c in changes],
        "join_seqs": [c.join_seq for c in changes],
        "calls": [c.call for c in changes],
        "ats_ms": [c.at_ms for c in changes],
    }
