"""Rooms as the ledger keeps them: configuration, state and audit. The engine is given a copy; the ledger decides."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from datetime import datetime
from typing import Any, Literal

from sqlalchemy import Row, func, select, update
from sqlalchemy.dialects.postgresql import insert

from services.queue.lanes import add_lanes, engine_fields, set_lanes
from services.queue.problems import RoomChanged, RoomStateConflict
from services.queue.tables import lane, room, room_change
from shared.clock import from_datetime
from shared.contracts.event_file import EventFile
from shared.contracts.room_options import RoomOptions
from shared.postgres import AsyncConnection, AsyncEngine
from shared.problems import UnknownEvent

State = Literal["draft", "open", "paused", "draining", "closed"]
Action = Literal["open", "pause", "resume", "close"]
TRANSITIONS: dict[Action, tuple[frozenset[State], State]] = {
    "open": (frozenset({"draft", "closed", "open"}), "open"),
    "pause": (frozenset({"open", "paused"}), "paused"),
    "resume": (frozenset({"paused", "open"}), "open"),
    "close": (frozenset({"draft", "open", "paused", "draining", "closed"}), "closed"),
}


@dataclass(frozen=True)
class Room:
    """One event's room. `version` is of its configuration; `fill` counts the fillings of the engine; `fence` is the
    number of its advisory lock.
    """

    event_id: str
    epoch: int
    version: int
    fill: int
    engine: str
    state: State
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

    def fields(self) -> list[str]:
        """Names and values of the engine's copy, flat."""
        named: dict[str, Any] = {
            "state": self.state,
            "opens_ms": _ms(self.queue_opens_at) or 0,
            "starts_ms": _ms(self.sale_starts_at) or 0,
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
            **engine_fields(self.options.lanes),
        }
        return [str(value) for pair in named.items() for value in pair]

    @property
    def opens_ms(self) -> int | None:
        return _ms(self.queue_opens_at)

    @property
    def starts_ms(self) -> int | None:
        return _ms(self.sale_starts_at)

    def configuration(self) -> dict[str, Any]:
        """What operators see and the audit keeps."""
        hidden = {"event_id", "fill", "engine", "lanes", "fence", "options"}
        told = {name: value for name, value in asdict(self).items() if name not in hidden}
        plain = {name: v.isoformat() if isinstance(v, datetime) else v for name, v in told.items()}
        return plain | self.options.model_dump(mode="json")


def _ms(at: datetime | None) -> int | None:
    return None if at is None else from_datetime(at)


_of_room = select(lane.c.lane).where(lane.c.event_id == room.c.event_id, lane.c.epoch == room.c.epoch)
_lanes = func.array(_of_room.scalar_subquery()).label("lanes")
_fence = func.hashtextextended("queue " + room.c.event_id, 0).label("fence")
_room = select(room, _lanes, _fence)


def _from(row: Row[Any]) -> Room:
    named = row._asdict()
    given = {field.name: named[field.name] for field in fields(Room)}
    options = RoomOptions.model_validate(named["options"])
    return Room(**{**given, "lanes": tuple(sorted(named["lanes"])), "options": options})


class Rooms:
    """All rooms, remembered as the ledger last told them."""

    def __init__(self, engine: AsyncEngine) -> None:
        self.engine = engine
        self.known: dict[str, Room] = {}

    async def refresh(self) -> None:
        """Reads every room; one small statement."""
        async with self.engine.connect() as connection:
            rows = await connection.execute(_room)
            self.known = {row.event_id: _from(row) for row in rows}

    async def get(self, event_id: str) -> Room:
        """As remembered, or else from the ledger. Raises `UnknownEvent`."""
        return self.known.get(event_id) or await self.read(event_id)

    async def read(self, event_id: str) -> Room:
        """From the ledger. Raises `UnknownEvent`."""
        async with self.engine.connect() as connection:
            return self._remember(await read(connection, event_id))

    def _remember(self, found: Room) -> Room:
        self.known[found.event_id] = found
        return found

    async def apply(self, file: EventFile, *, actor: str) -> tuple[Room, bool]:
        """Creates the room as a draft, or brings its configuration to the file's; applying again changes nothing.

        True when it was created.
        """
        wanted = {
            **file.room.model_dump(exclude=set(RoomOptions.model_fields)),
            "options": RoomOptions.model_validate(file.room.model_dump(include=set(RoomOptions.model_fields))),
            "tickets_per_order": file.sales.tickets_per_order,
        }
        async with self.engine.begin() as connection:
            await _fence_alone(connection, file.event_id)
            new = insert(room).values(
                event_id=file.event_id,
                epoch=1,
                version=1,
                fill=0,
                engine="",
                state="draft",
                stock_coupling=True,
                **_columns(wanted),
            )
            created = bool((await connection.execute(new.on_conflict_do_nothing())).rowcount)
            if created:
                await add_lanes(connection, file.event_id, 1, [one.lane for one in file.room.lanes])
                now = await read(connection, file.event_id)
                await _audit(connection, now, actor=actor, action="create", reason=None, before=None)
            else:
                now = await _change(connection, file.event_id, wanted, actor=actor, action="apply", reason=None)
        return self._remember(now), created

    async def change(
        self, event_id: str, wanted: Mapping[str, Any], *, actor: str, action: str, reason: str | None,
        version: int | None = None,
    ) -> Room:  # fmt: skip
        """Sets columns and options of the room. Raises `RoomChanged` if `version` is given and not the room's."""
        async with self.engine.begin() as connection:
            if "lanes" in wanted:
                await _fence_alone(connection, event_id)
            now = await _change(
                connection, event_id, wanted, actor=actor, action=action, reason=reason, version=version
            )
        return self._remember(now)

    async def move(self, event_id: str, action: Action, *, actor: str, reason: str | None) -> Room:
        """One step of the room's life; a step already taken changes nothing. Raises `RoomStateConflict`."""
        possible, target = TRANSITIONS[action]
        async with self.engine.begin() as connection:
            before = await read(connection, event_id, lock=True)
            if before.state not in possible:
                raise RoomStateConflict(f"A room that is {before.state} cannot {action}.", state=before.state)
            now = await _change(connection, event_id, {"state": target}, actor=actor, action=action, reason=reason)
        return self._remember(now)

    async def reset(self, event_id: str, *, actor: str, reason: str | None) -> Room:
        """Raises the epoch: the line starts anew and old tokens die."""
        async with self.engine.begin() as connection:
            await _fence_alone(connection, event_id)
            before = await read(connection, event_id, lock=True)
            epoch = before.epoch + 1
            await add_lanes(connection, event_id, epoch, before.lanes)
            now = await _change(connection, event_id, {"epoch": epoch}, actor=actor, action="reset", reason=reason)
        return self._remember(now)


async def read(connection: AsyncConnection, event_id: str, *, lock: bool = False) -> Room:
    """The room; raises `UnknownEvent`. `lock` keeps others from changing it until the transaction ends."""
    statement = _room.where(room.c.event_id == event_id)
    found = (await connection.execute(statement.with_for_update(of=room) if lock else statement)).first()
    if found is None:
        raise UnknownEvent
    return _from(found)


async def _fence_alone(connection: AsyncConnection, event_id: str) -> None:
    """Comes before the room's row: a rebuild takes them in this order."""
    await connection.execute(select(func.pg_advisory_xact_lock(func.hashtextextended("queue " + event_id, 0))))


async def _change(
    connection: AsyncConnection, event_id: str, wanted: Mapping[str, Any], *, actor: str, action: str,
    reason: str | None, version: int | None = None,
) -> Room:  # fmt: skip
    before = await read(connection, event_id, lock=True)
    wanted = _with_options(before, wanted)
    if version is not None and version != before.version:
        raise RoomChanged(version=before.version)
    if all(getattr(before, name) == value for name, value in wanted.items()):
        return before
    lanes = {one.lane for one in wanted["options"].lanes} if "options" in wanted else set(before.lanes)
    if lanes != set(before.lanes):
        await set_lanes(connection, event_id, before.epoch, lanes)
    await connection.execute(
        update(room).where(room.c.event_id == event_id).values(**_columns(wanted), version=before.version + 1)
    )
    after = await read(connection, event_id)
    await _audit(connection, after, actor=actor, action=action, reason=reason, before=before)
    return after


def _with_options(room: Room, wanted: Mapping[str, Any]) -> dict[str, Any]:
    """Options named one by one, put into their place beside those that stay."""
    named = {name: value for name, value in wanted.items() if name in RoomOptions.model_fields}
    others = {name: value for name, value in wanted.items() if name not in named}
    return {**others, "options": RoomOptions(**{**dict(room.options), **named})} if named else others


def _columns(wanted: Mapping[str, Any]) -> dict[str, Any]:
    return {name: v.model_dump(mode="json") if isinstance(v, RoomOptions) else v for name, v in wanted.items()}


async def _audit(
    connection: AsyncConnection, after: Room, *, actor: str, action: str, reason: str | None, before: Room | None
) -> None:
    await connection.execute(
        insert(room_change).values(
            event_id=after.event_id, actor=actor, action=action, reason=reason, version=after.version,
            before=before.configuration() if before else None, after=after.configuration(),
        )
    )  # fmt: skip
