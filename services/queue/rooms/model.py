"""The waiting room of an event: its row, its fields in Redis, its configuration for operators, and its ordering."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from datetime import datetime
from functools import cache, reduce
from typing import Any, Final

from pydantic import TypeAdapter
from sqlalchemy import Row, Select, func, select

from services.queue.problems import RoomStateConflict
from services.queue.tables import lane, room
from shared.audit_log import Actor
from shared.contracts.admin.queue import ConfiguredState
from shared.contracts.event_file import RoomPart
from shared.contracts.file_parts import GuardedChange
from shared.contracts.ranking import JOINS, UNKNOWN_PENDING, Ranking
from shared.contracts.room_options import RoomOptions, StoredRoomOptions
from shared.errors.problems import Problem, UnknownEvent
from shared.features import load, orderings
from shared.postgres.engine import AsyncConnection
from shared.runtime.clock import from_datetime

NEVER_MS = 2**52
STORED: Final = TypeAdapter[RoomOptions](StoredRoomOptions)


@dataclass(frozen=True, slots=True)
class RequestedBy(Actor):
    """Who requests a change of a room and why. `version` is the one they read: a room with another one is not changed.
    `refuses` says why they, alone, may not make a guarded change.
    """

    version: int | None = None
    refuses: Callable[[GuardedChange], Problem | None] | None = None


@dataclass(frozen=True)
class WaitingRoom:
    """One event's waiting room. `version` is of its configuration; `generation` numbers the rebuilds of Redis from the
    database; `fence` is the number of its advisory lock.
    """

    event_id: str
    epoch: int
    version: int
    generation: int
    redis_instance_id: str
    state: ConfiguredState
    message: str | None
    queue_opens_at: datetime | None
    sale_starts_at: datetime | None
    sale_ends_at: datetime | None
    ordering: str
    rate_per_s: float
    burst: int
    max_active: int
    session_s: int
    claim_window_s: int
    liveness_window_s: int
    max_misses: int
    returning_share: float
    max_line: int | None
    tickets_per_order: int
    stock_coupling: bool
    options: RoomOptions
    lanes: tuple[int, ...]
    fence: int
    ranking: Ranking

    def redis_fields(self) -> dict[str, Any]:
        return {
            "state": self.state,
            "opens_ms": _ms(self.queue_opens_at) or 0,
            "starts_ms": NEVER_MS if self.ranking.pending else self.starts_ms or 0,
            "ends_ms": _ms(self.sale_ends_at) or 0,
            "rate_per_s": self.rate_per_s,
            "burst": self.burst,
            "max_active": self.max_active,
            "session_s": self.session_s,
            "claim_window_s": self.claim_window_s,
            "liveness_window_ms": self.liveness_window_s * 1000,
            "max_misses": self.max_misses,
            "returning_share": self.returning_share,
            "max_line": self.max_line or 0,
            "stock_coupling": int(self.stock_coupling),
            **self._lane_redis_fields(),
        }

    def _lane_redis_fields(self) -> dict[str, int]:
        fields: dict[str, int] = {}
        for one in self.options.lanes:
            fields[f"weight:{one.lane}"] = one.weight
            fields[f"lane_opens_ms:{one.lane}"] = one.opens_ms
            fields[f"lane_max:{one.lane}"] = one.max_line or 0
        return fields

    @property
    def opens_ms(self) -> int | None:
        return _ms(self.queue_opens_at)

    @property
    def starts_ms(self) -> int | None:
        return _ms(self.sale_starts_at)

    def public_message(self, at_ms: int) -> str | None:
        """The message to everybody in the line: the operator's, or why the sale has not begun."""
        late = self.starts_ms is not None and at_ms >= self.starts_ms
        return self.message or (self.ranking.pending if late else None)

    def changes_within(self, now_ms: int, ms: int) -> bool:
        """Whether one of the room's times, or of its lanes', is at most so far away in either direction."""
        times = (self.opens_ms, self.starts_ms, _ms(self.sale_ends_at), *(lane.opens_ms for lane in self.options.lanes))
        return any(at_ms is not None and abs(at_ms - now_ms) <= ms for at_ms in times)

    def configuration(self) -> dict[str, Any]:
        """The configuration as operators read it and the audit log keeps it."""
        hidden = {"event_id", "generation", "redis_instance_id", "lanes", "fence", "options", "ranking"}
        values = {field.name: getattr(self, field.name) for field in fields(self) if field.name not in hidden}
        plain = {name: v.isoformat() if isinstance(v, datetime) else v for name, v in values.items()}
        return plain | self.options.model_dump(mode="json")

    def event_file_part(self) -> RoomPart:
        """The part of the event file by which the room would be as it is. Raises `RoomStateConflict` if no file can say
        so any more.
        """
        if self.ordering not in _orderings():
            raise RoomStateConflict(f"ordering: {self.ordering} belongs to a feature that is not installed here.")
        columns = RoomPart.model_fields.keys() - RoomOptions.model_fields.keys()
        return RoomPart.model_validate({name: getattr(self, name) for name in columns} | dict(self.options))


def _ms(at: datetime | None) -> int | None:
    return None if at is None else from_datetime(at)


@dataclass(frozen=True)
class RoomOrdering:
    """What the order in which rooms are called needs of them. This one is that of the joins and needs nothing; that of
    a feature derives from it. Its rules are the room's option of its name. Changes are made in the transaction of
    `connection`.
    """

    pending: str | None = None

    def joined(self, rooms: Select[Any]) -> Select[Any]:
        """The query of rooms with the columns for `ranking`."""
        return rooms

    def ranking(self, row: Mapping[str, Any]) -> Ranking:
        """The ranking of a room of this ordering."""
        return Ranking(row["epoch"], self.pending)

    async def begin(self, connection: AsyncConnection, event_id: str, epoch: int) -> None:
        """A line begins, or begins anew, that nobody has joined."""

    async def check(self, connection: AsyncConnection, room: WaitingRoom, *, opening: bool = False) -> None:
        """Raises a problem if entry may not begin as the room says, or not now, when it is `opening`."""


@cache
def _orderings() -> dict[str, RoomOrdering]:
    return {JOINS: RoomOrdering(), **{name: load(brought.rooms) for name, brought in orderings().items()}}


def ordering_of(name: str) -> RoomOrdering:
    return _orderings().get(name) or RoomOrdering(UNKNOWN_PENDING)


_lane_numbers = select(lane.c.lane).where(lane.c.event_id == room.c.event_id, lane.c.epoch == room.c.epoch)
_lanes = func.array(_lane_numbers.scalar_subquery()).label("lanes")
_fence = func.hashtextextended("queue " + room.c.event_id, 0).label("fence")


@cache
def every_room() -> Select[Any]:
    """The query of all rooms, whose rows are for `from_row`."""
    return reduce(lambda rooms, each: each.joined(rooms), _orderings().values(), select(room, _lanes, _fence))


def from_row(row: Row[Any]) -> WaitingRoom:
    named = row._asdict()
    named["ranking"] = ordering_of(named["ordering"]).ranking(named)
    given = {field.name: named[field.name] for field in fields(WaitingRoom)}
    options = STORED.validate_python(named["options"])
    return WaitingRoom(**{**given, "lanes": tuple(sorted(named["lanes"])), "options": options})


async def read(connection: AsyncConnection, event_id: str, *, lock: bool = False) -> WaitingRoom:
    """The room; raises `UnknownEvent`. `lock` keeps others from changing it until the transaction ends."""
    statement = every_room().where(room.c.event_id == event_id)
    row = (await connection.execute(statement.with_for_update(of=room) if lock else statement)).first()
    if row is None:
        raise UnknownEvent
    return from_row(row)
