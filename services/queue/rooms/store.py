"""Stores waiting rooms and their lanes: changes of configuration and state, each with an audit log entry."""

from collections.abc import AsyncIterator, Collection, Mapping
from contextlib import asynccontextmanager
from typing import Any, Literal, NamedTuple

from sqlalchemy import ColumnElement, delete, func, select, update
from sqlalchemy.dialects.postgresql import insert

from services.queue.problems import LaneInUse, RoomStateConflict
from services.queue.rooms.model import (
    RequestedBy,
    WaitingRoom,
    every_room,
    from_row,
    ordering_of,
    read,
)
from services.queue.tables import admit_key, audit_log, lane, place, room
from shared.audit_log import of_event
from shared.contracts.admin.queue import AdmitResult, ConfiguredState
from shared.contracts.event_file import EventFile
from shared.contracts.ranking import JOINS, Ranking
from shared.contracts.room_options import RoomOptions
from shared.errors.problems import IdempotencyInFlight, IdempotencyKeyReused, InvalidRequest, VersionMismatch
from shared.features import orderings
from shared.postgres.engine import AsyncConnection, AsyncEngine, statement, transaction
from shared.web.request import key_hash

Action = Literal["open", "pause", "resume", "drain", "close"]
TRANSITIONS: dict[Action, tuple[frozenset[ConfiguredState], ConfiguredState]] = {
    "open": (frozenset({"draft", "closed", "draining", "open"}), "open"),
    "pause": (frozenset({"open", "paused"}), "paused"),
    "resume": (frozenset({"paused", "open"}), "open"),
    "drain": (frozenset({"open", "paused", "draining"}), "draining"),
    "close": (frozenset({"draft", "open", "paused", "draining", "closed"}), "closed"),
}
NOT_RUNNING: frozenset[ConfiguredState] = frozenset({"draft", "closed"})

EXCLUSIVE_LOCK = statement(__package__, "exclusive_lock")  # of a room: nobody joins or is called meanwhile


class AppliedRoom(NamedTuple):
    """The room after an event file was applied; whether it was created, and whether anything changed."""

    room: WaitingRoom
    created: bool
    changed: bool


class Rooms:
    """All rooms; `known` are as they were last read from the database. `off`: features that are switched off."""

    def __init__(self, db: AsyncEngine, off: Collection[str] = ()) -> None:
        self.db, self._off = db, off
        self.known: dict[str, WaitingRoom] = {}

    async def refresh(self) -> None:
        """Reads every room, in one statement."""
        async with self.db.connect() as plain:
            connection = await plain.execution_options(isolation_level="AUTOCOMMIT")
            rows = await connection.execute(every_room())
            self.known = {row.event_id: from_row(row) for row in rows}

    async def get(self, event_id: str) -> WaitingRoom:
        """The room as last read, or else from the database. Raises `UnknownEvent`."""
        return self.known.get(event_id) or await self.read(event_id)

    def ranking(self, event_id: str, epoch: int) -> Ranking:
        """The order in which this epoch's line is called, as last read."""
        room = self.known.get(event_id)
        return room.ranking if room is not None and room.epoch == epoch else Ranking(epoch)

    async def read(self, event_id: str) -> WaitingRoom:
        """The room from the database. Raises `UnknownEvent`."""
        async with self.db.connect() as connection:
            return self._remember(await read(connection, event_id))

    def _remember(self, room: WaitingRoom) -> WaitingRoom:
        self.known[room.event_id] = room
        return room

    async def apply(self, file: EventFile, by: RequestedBy, *, dry_run: bool = False) -> AppliedRoom:
        """Creates the room as a draft, or changes its configuration to the file's. Idempotent. A dry run changes
        nothing and raises the same problems.
        """
        if file.room.ordering not in (JOINS, *orderings(self._off)):
            raise InvalidRequest(f"ordering: {file.room.ordering} belongs to a feature that is switched off here.")
        wanted = {
            **file.room.model_dump(exclude=set(RoomOptions.model_fields)),
            "options": RoomOptions.model_validate(file.room.model_dump(include=set(RoomOptions.model_fields))),
            "tickets_per_order": file.sales.tickets_per_order,
        }
        async with transaction(self.db, dry_run=dry_run) as connection:
            await connection.execute(EXCLUSIVE_LOCK, {"event_id": file.event_id})
            new = insert(room).values(
                event_id=file.event_id,
                epoch=1,
                version=1,
                generation=0,
                redis_instance_id="",
                state="draft",
                **_columns(wanted),
            )
            created = bool((await connection.execute(new.on_conflict_do_nothing())).rowcount)
            if created:
                await add_lanes(connection, file.event_id, 1, [one.lane for one in file.room.lanes])
                await ordering_of(file.room.ordering).begin(connection, file.event_id, 1)
            before = now = await read(connection, file.event_id)
            if created:
                await ordering_of(now.ordering).check(connection, now)
                subject, after = of_event(now.event_id), now.configuration()
                await audit_log.write(connection, "create", by, subject=subject, version=now.version, after=after)
            else:
                now = await _change(connection, file.event_id, wanted, "apply", by)
        changed = created or now.version != before.version
        return AppliedRoom(now if dry_run else self._remember(now), created, changed)

    async def change(
        self, event_id: str, wanted: Mapping[str, Any], by: RequestedBy, *, action: str = "change"
    ) -> WaitingRoom:
        """Sets columns and options of the room. Raises `VersionMismatch`."""
        async with self.db.begin() as connection:
            if "lanes" in wanted:
                await connection.execute(EXCLUSIVE_LOCK, {"event_id": event_id})
            now = await _change(connection, event_id, wanted, action, by)
        return self._remember(now)

    async def transition(self, event_id: str, action: Action, by: RequestedBy) -> WaitingRoom:
        """Changes the room's state; a repeated action changes nothing. Raises `RoomStateConflict`."""
        possible, target = TRANSITIONS[action]
        async with self.db.begin() as connection:
            before = await read(connection, event_id, lock=True)
            if before.state not in possible:
                raise RoomStateConflict(f"A room that is {before.state} cannot {action}.", state=before.state)
            if action == "open" and before.state in NOT_RUNNING:
                await ordering_of(before.ordering).check(connection, before, opening=True)
            now = await _change(connection, event_id, {"state": target}, action, by)
        return self._remember(now)

    async def record_action(self, event_id: str, action: str, by: RequestedBy, **facts: Any) -> WaitingRoom:
        """Writes an action that changes no configuration to the audit log, and raises the version."""
        async with self.db.begin() as connection:
            before = await read(connection, event_id, lock=True)
            _require_version(before, by)
            raised = update(room).where(room.c.event_id == event_id).values(version=before.version + 1)
            await connection.execute(raised)
            now = await read(connection, event_id)
            after = now.configuration() | facts
            await audit_log.write(
                connection, action, by, subject=of_event(event_id), version=now.version,
                before=before.configuration(), after=after,
            )  # fmt: skip
        return self._remember(now)

    async def reset(self, event_id: str, by: RequestedBy) -> WaitingRoom:
        """Raises the epoch: a new line starts, and old tokens are invalid."""
        async with self.db.begin() as connection:
            await connection.execute(EXCLUSIVE_LOCK, {"event_id": event_id})
            before = await read(connection, event_id, lock=True)
            _require_version(before, by)
            epoch = before.epoch + 1
            await add_lanes(connection, event_id, epoch, before.lanes)
            await ordering_of(before.ordering).begin(connection, event_id, epoch)
            now = await _change(connection, event_id, {"epoch": epoch}, "reset", by)
            if before.state not in NOT_RUNNING:  # a room that is not running gets its times before it opens
                await ordering_of(now.ordering).check(connection, now)
        return self._remember(now)


async def _change(
    connection: AsyncConnection, event_id: str, wanted: Mapping[str, Any], action: str, by: RequestedBy
) -> WaitingRoom:
    before = await read(connection, event_id, lock=True)
    wanted = _with_options(before, wanted)
    _require_version(before, by)
    guarded = wanted["options"].guarded_change(before.options) if "options" in wanted else None
    if guarded is not None and by.refuses is not None and (refused := by.refuses(guarded)):
        raise refused
    if all(getattr(before, name) == value for name, value in wanted.items()):
        return before
    lanes = {one.lane for one in wanted["options"].lanes} if "options" in wanted else set(before.lanes)
    if lanes != set(before.lanes):
        await _set_lanes(connection, event_id, before.epoch, lanes)
    ordered_by, options = (wanted.get(name, getattr(before, name)) for name in ("ordering", "options"))
    rules_changed = getattr(options, ordered_by, None) != getattr(before.options, ordered_by, None)
    other_order = ordered_by != before.ordering or rules_changed
    if other_order:
        await _require_nobody_joined(connection, before)
        await ordering_of(ordered_by).begin(connection, event_id, before.epoch)
    await connection.execute(
        update(room).where(room.c.event_id == event_id).values(**_columns(wanted), version=before.version + 1)
    )
    after = await read(connection, event_id)
    if other_order or after.queue_opens_at != before.queue_opens_at:
        await ordering_of(after.ordering).check(connection, after)
    await audit_log.write(
        connection, action, by, subject=of_event(event_id), version=after.version, before=before.configuration(),
        after=after.configuration(),
    )  # fmt: skip
    return after


def _require_version(room: WaitingRoom, by: RequestedBy) -> None:
    if by.version not in (None, room.version):
        raise VersionMismatch(version=room.version)


async def _require_nobody_joined(connection: AsyncConnection, room: WaitingRoom) -> None:
    """Raises `RoomStateConflict` once fans have joined: the order is fixed then. The caller holds the fence."""
    joined = select(place.c.join_seq).where(place.c.event_id == room.event_id, place.c.epoch == room.epoch)
    if (await connection.execute(joined.limit(1))).first():
        raise RoomStateConflict("Fans have joined under the present ordering. Reset the queue to change it.")


def _with_options(room: WaitingRoom, wanted: Mapping[str, Any]) -> dict[str, Any]:
    """Collects single options into `options`, with the others as they are."""
    named = {name: value for name, value in wanted.items() if name in RoomOptions.model_fields}
    others = {name: value for name, value in wanted.items() if name not in named}
    return {**others, "options": RoomOptions(**{**dict(room.options), **named})} if named else others


def _columns(wanted: Mapping[str, Any]) -> dict[str, Any]:
    return {name: v.model_dump(mode="json") if isinstance(v, RoomOptions) else v for name, v in wanted.items()}


async def _set_lanes(connection: AsyncConnection, event_id: str, epoch: int, wanted: Collection[int]) -> None:
    """Inserts and deletes lanes of the room. The caller holds the fence, so no batch of places is being written.

    Raises `LaneInUse` for a lane that had a place in this epoch. Its row is locked before that check: joins that the
    database numbers hold that row lock instead of the fence.
    """
    of_room = (lane.c.event_id == event_id, lane.c.epoch == epoch)
    rows = await connection.execute(select(lane.c.lane).where(*of_room).order_by(lane.c.lane).with_for_update())
    present = set(rows.scalars())
    gone = present - set(wanted)
    if gone:
        query = select(place.c.lane).where(place.c.event_id == event_id, place.c.epoch == epoch)
        used = (await connection.execute(query.where(place.c.lane.in_(gone)).limit(1))).scalar()
        if used is not None:
            raise LaneInUse(f"Lane {used} has places. Reset the queue before you remove it.", lane=used)
        await connection.execute(delete(lane).where(*of_room, lane.c.lane.in_(gone)))
    await add_lanes(connection, event_id, epoch, set(wanted) - present)


async def add_lanes(connection: AsyncConnection, event_id: str, epoch: int, lanes: Collection[int]) -> None:
    if lanes:
        rows = [{"event_id": event_id, "epoch": epoch, "lane": n, "head_seq": 0} for n in sorted(lanes)]
        await connection.execute(insert(lane), rows)


KEPT = func.make_interval(0, 0, 0, 1)


class AdmitKeys:
    """Idempotency keys of manual admissions of the last day, so that a double click or a repeated request calls nobody
    twice.

    A key is stored before anybody is called and its result afterwards. A request that was broken off in between leaves
    a key without a result: repeated with it, nobody is called.
    """

    def __init__(self, db: AsyncEngine) -> None:
        self._db = db

    async def take(self, event_id: str, key: str, count: int) -> AdmitResult | None:
        """Stores the key; the result of the request that stored it before. Raises `IdempotencyInFlight` while that one
        runs, `IdempotencyKeyReused` if it was for another number of fans.
        """
        row = {"event_id": event_id, "key_hash": key_hash(key), "count": count}
        async with self._db.begin() as connection:
            await connection.execute(
                delete(admit_key).where(admit_key.c.event_id == event_id, admit_key.c.created_at < func.now() - KEPT)
            )
            if (await connection.execute(insert(admit_key).values(row).on_conflict_do_nothing())).rowcount:
                return None
            stored = select(admit_key.c.count, admit_key.c.called).where(*_of_key(event_id, key))
            before, called = (await connection.execute(stored)).one()
        if before != count:
            raise IdempotencyKeyReused
        if called is None:
            raise IdempotencyInFlight
        return AdmitResult(called=called, asked=count)

    async def finish(self, event_id: str, key: str, called: int) -> None:
        """Stores how many were called."""
        async with self._db.begin() as connection:
            await connection.execute(update(admit_key).where(*_of_key(event_id, key)).values(called=called))

    @asynccontextmanager
    async def given_back_on_refusal(self, event_id: str, key: str | None) -> AsyncIterator[None]:
        """What raises in this context called nobody, so that the key may be used again."""
        try:
            yield
        except BaseException:
            if key is not None:
                async with self._db.begin() as connection:
                    await connection.execute(delete(admit_key).where(*_of_key(event_id, key)))
            raise


def _of_key(event_id: str, key: str) -> tuple[ColumnElement[bool], ColumnElement[bool]]:
    return admit_key.c.event_id == event_id, admit_key.c.key_hash == key_hash(key)
