"""Event files: apply one to the database, idempotently, without taking a place that is held, sold or blocked.

Applying takes the same exclusive lock as a rebuild, so no hold is written meanwhile. If seats are added or removed the
Redis epoch rises and Redis is rebuilt; GA capacity, prices, limits and blocked places change while sales go on.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import orjson
from sqlalchemy import RowMapping, delete, insert, select, text, update
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from services.inventory import tables
from services.inventory.layout.selection import POOL, SeatPosition, section_of
from services.inventory.problems import StockConflict
from services.inventory.redis_stock.client import RedisStock
from services.inventory.redis_stock.push import push_stock
from services.inventory.redis_stock.rebuild import EXCLUSIVE_LOCK, RedisStockMonitor
from services.inventory.store.change import DirtySet, StockChange
from services.inventory.store.snapshot import count_sections
from shared.concurrency.background import wake
from shared.contracts.admin.inventory import EventApplied
from shared.contracts.event_file import SEATS_PER_EVENT_MAX, EventFile, GaSection, SeatedSection
from shared.contracts.event_parts.price_types import QUOTA_MAX, quota_id
from shared.contracts.event_parts.seat_labels import SeatLabels, stored_labels
from shared.postgres.engine import statement, transaction
from shared.runtime.logging import get_logger

log = get_logger("onsale.inventory")
INSERT_SEATS = statement(__package__, "insert_seats")
Row = Mapping[str, Any]


async def add_section(change: StockChange, wanted: Row) -> None:
    """Inserts a section; all of it is available."""
    row = {"event_id": change.event_id, "seats_remaining": wanted["capacity"], **wanted}
    await change.connection.execute(insert(tables.section).values(**row))
    if wanted["kind"] == "seated":
        await _insert_seats(change, wanted, first=1)


async def resize_rows(change: StockChange, now: Row, wanted: Row) -> None:
    """Adds or removes rows at the back; for any other shape, or other labels, the section is replaced. Raises
    `StockConflict`.
    """
    if (now["kind"], wanted["kind"]) != ("seated", "seated") or not _same_in_front(now, wanted):
        await remove_section(change, now)
        await add_section(change, wanted)
        return
    section_id = now["section_id"]
    if wanted["rows"] < now["rows"]:
        await _delete_seats(change, section_id, from_position=wanted["rows"] * (now["seats_per_row"] + 1))
    else:
        await _insert_seats(change, wanted, first=now["rows"] + 1)
    more = wanted["capacity"] - now["capacity"]
    values = {**wanted, "seats_remaining": tables.section.c.seats_remaining + more, "version": now["version"] + 1}
    await _update_section(change, section_id, values)
    del change.sections[section_id]


def _same_in_front(now: Row, wanted: Row) -> bool:
    """Whether the rows that both have are of the same seats."""
    rows = min(now["rows"], wanted["rows"])
    if now["seats_per_row"] != wanted["seats_per_row"]:
        return False
    return _labels(now).front(rows) == _labels(wanted).front(rows)


def _labels(row: Row) -> SeatLabels:
    return stored_labels(row["rows"], row["seats_per_row"], row["labels"])


async def _update_section(change: StockChange, section_id: str, values: Row) -> None:
    mine = tables.section.c.event_id == change.event_id, tables.section.c.section_id == section_id
    await change.connection.execute(update(tables.section).where(*mine).values(**values))


async def remove_section(change: StockChange, now: Row) -> None:
    """Deletes a section. Raises `StockConflict` unless all of it is available."""
    section_id = now["section_id"]
    if now["kind"] == "seated":
        await _delete_seats(change, section_id, from_position=0)
    elif now["kind"] == "type" and (taken := now["capacity"] - now["seats_remaining"]):
        detail = f"{taken} tickets of the price type {now['name']} are held or sold, so it stays. Nothing was changed."
        raise StockConflict(detail, section_id=section_id, taken=taken)
    elif taken := now["capacity"] - now["seats_remaining"]:
        live, out = taken - now["blocked"], now["blocked"]
        detail = f"{live} places of {section_id} are held or sold, {out} are blocked or allotted. Nothing was changed."
        raise StockConflict(detail, section_id=section_id, taken=taken)
    mine = tables.section.c.event_id == change.event_id, tables.section.c.section_id == section_id
    await change.connection.execute(delete(tables.section).where(*mine))
    del change.sections[section_id]


async def _remove_pools(change: StockChange, section_id: str) -> None:
    """Deletes the empty pools of a section. Raises `StockConflict` if one has places."""
    for pool in change.pools_of(section_id):
        if places := change.sections[pool]["capacity"]:
            name = pool.partition(POOL)[2]
            detail = f"{places} places of {section_id} are in the allotment {name}, so it stays. Nothing was changed."
            raise StockConflict(detail, section_id=section_id, taken=places)
        await remove_section(change, change.sections[pool])


async def _insert_seats(change: StockChange, wanted: Row, *, first: int) -> None:
    labels = _labels(wanted)
    await change.connection.execute(
        INSERT_SEATS,
        {
            "event_id": change.event_id, "section_id": wanted["section_id"], "seats_per_row": wanted["seats_per_row"],
            "first": first, "rows": list(labels.rows[first - 1 :]), "of_rows": list(labels.of_rows[first - 1 :]),
            "seats": orjson.dumps(labels.seats).decode(),
        },
    )  # fmt: skip


async def _delete_seats(change: StockChange, section_id: str, *, from_position: int) -> None:
    """Deletes the seats from this position on. Raises `StockConflict`, which names those that are not available."""
    seat = tables.seat.c
    these = seat.event_id == change.event_id, seat.section_id == section_id, seat.position >= from_position
    query = select(tables.seat).where(*these, seat.status != "available").order_by(seat.position).with_for_update()
    taken: dict[str, list[SeatPosition]] = {}
    for row in (await change.connection.execute(query)).mappings():
        taken.setdefault(row["status"], []).append((section_id, row["position"]))
    if taken:
        raise change.conflict(taken)
    await change.connection.execute(delete(tables.seat).where(*these))


SHAPE = ("kind", "rows", "seats_per_row")


def _same_shape(now: Row, wanted: Row) -> bool:
    return all(now[name] == wanted[name] for name in SHAPE) and _same_in_front(now, wanted)


class EventFilePart(Protocol):
    """A part of event files that a feature stores."""

    async def store(self, change: StockChange, file: EventFile, *, dry_run: bool) -> bool:
        """Stores the part of this file, after its sections, in the same transaction; whether that changed anything.
        What it raises is the operator's answer, and then nothing of the file is applied. A dry run is rolled back.
        `change.detail["event"]` is what the audit log says of the event.
        """
        ...

    async def file_fields(self, connection: AsyncConnection, event: RowMapping) -> Mapping[str, Any]:
        """The part's fields, as stored for this row of `inventory.event`: to apply them changes nothing."""
        ...


@dataclass(frozen=True, slots=True)
class AppliedStock:
    """Whether the file changed anything, and which places Redis must be updated for; none if it will be rebuilt."""

    changed: bool
    dirty: DirtySet


async def apply_event_file(
    db: AsyncEngine, file: EventFile, *, actor: str = "system", reason: str | None = None, dry_run: bool = False,
    parts: Sequence[EventFilePart] = (),
) -> AppliedStock:  # fmt: skip
    """Raises `StockConflict`, or the problem of a feature's part, and then nothing was changed. A dry run changes
    nothing, and checks the same but what such a part leaves out of it.
    """
    async with transaction(db, dry_run=dry_run) as connection:
        await connection.execute(EXCLUSIVE_LOCK, {"event_id": file.event_id})
        before = await _event(connection, file)
        change = StockChange(connection, file.event_id, before["version"] if before else 0)
        query = select(tables.section.c.section_id).where(tables.section.c.event_id == file.event_id)
        await change.lock((await connection.execute(query)).scalars())
        _require_same_currency(change, file, before)
        seats_changed, metadata_changed = await _apply_sections(change, file)
        for part in parts:
            metadata_changed |= await part.store(change, file, dry_run=dry_run)
        wanted = _event_row(file)
        event_changed = before is None or any(before[name] != value for name, value in wanted.items())
        changed = seats_changed or metadata_changed or event_changed
        if changed:
            raised: dict[str, Any] = {"redis_epoch": tables.event.c.redis_epoch + 1} if seats_changed else {}
            mine = tables.event.c.event_id == file.event_id
            await connection.execute(update(tables.event).where(mine).values(**wanted, **raised))
            event = _audit_values(file) | change.detail.get("event", {})
            change.detail |= {"event": event, "redis_rebuilt": seats_changed}
            await change.write(actor=actor, action="apply", reason=reason)
    return AppliedStock(changed, DirtySet() if seats_changed else change.dirty)


async def _event(connection: AsyncConnection, file: EventFile) -> RowMapping | None:
    """The event's row before the change, locked; None for a new event, which is inserted."""
    query = select(tables.event).where(tables.event.c.event_id == file.event_id).with_for_update()
    found = (await connection.execute(query)).mappings().one_or_none()
    if found is None:
        await connection.execute(insert(tables.event).values(**_event_row(file)))
    return found


def _require_same_currency(change: StockChange, file: EventFile, before: RowMapping | None) -> None:
    taken = sum(row["capacity"] - row["seats_remaining"] - row["blocked"] for row in change.sections.values())
    if before is not None and before["currency"] != file.currency and taken:
        raise StockConflict(
            f"{taken} places are held or sold in {before['currency']}, so the currency cannot change.", taken=taken
        )


def _event_row(file: EventFile) -> dict[str, Any]:
    tour = file.sales.tour
    return {
        "event_id": file.event_id, "name": file.name, "venue": file.venue, "currency": file.currency,
        "starts_at": file.starts_at, "ends_at": file.ends_at, "timezone": file.zone, "rehearsal": file.rehearsal,
        **{name: value for name, value in file.sales.model_dump().items() if name in tables.event.c},
        "tour_id": tour.tour_id if tour else None,
        "tour_tickets_per_customer": tour.tickets_per_customer if tour else 0,
        "price_types": [each.model_dump(mode="json", exclude_defaults=True) for each in file.price_types],
    }  # fmt: skip


def _audit_values(file: EventFile) -> dict[str, Any]:
    row = _event_row(file)
    times = ("starts_at", "ends_at", "names_until", "accessible_release_at")
    return row | {name: row[name] and str(row[name]) for name in times}


def _section_row(section: SeatedSection | GaSection, ordinal: int) -> dict[str, Any]:
    shape, levels, labels = (0, 0), list[dict[str, Any]](), None
    traits: dict[str, Any] = {trait: [] for trait in section.traits}
    if isinstance(section, SeatedSection):
        shape, labels = (section.row_count, section.seats_per_row), section.own_labels
        traits = {trait: [list(run) for run in runs] for trait, runs in section.trait_runs.items()}
        levels = [
            {
                **level.model_dump(mode="json", exclude=None if level.prices else {"prices"}),
                "rows": [row + 1 for row in section.rows_of(level)],
            }
            for level in section.price_levels
        ]
    return {
        "section_id": section.section_id, "ordinal": ordinal, "name": section.name, "kind": section.kind,
        "rows": shape[0], "seats_per_row": shape[1],
        "capacity": section.capacity, "price_minor": section.price_minor, "fee_minor": section.fee_minor,
        "price_levels": levels, "prices": section.prices, "traits": traits,
        "labels": labels and labels.model_dump(mode="json", exclude_none=True),
    }  # fmt: skip


def _rows(file: EventFile) -> list[dict[str, Any]]:
    """The rows of its sections, and of the price types: how many there are of a type in all is counted like a section
    without places.
    """
    sections = [_section_row(section, ordinal) for ordinal, section in enumerate(file.sections)]
    nowhere = {"kind": "type", "rows": 0, "seats_per_row": 0, "price_minor": 0, "fee_minor": 0}
    empty: dict[str, Any] = {"price_levels": [], "prices": {}, "traits": {}, "labels": None}
    types = [
        {
            "section_id": quota_id(each.type_id), "ordinal": len(sections) + n, "name": each.name, **nowhere, **empty,
            "capacity": QUOTA_MAX if each.quota is None else each.quota,
        }
        for n, each in enumerate(file.price_types[1:])
    ]  # fmt: skip
    return sections + types


async def _apply_sections(change: StockChange, file: EventFile) -> tuple[bool, bool]:
    """Whether seats were added or removed, and whether anything else about sections changed."""
    seats_changed = metadata_changed = False
    rows = _rows(file)
    for wanted in rows:
        section_id, now = wanted["section_id"], change.sections.get(wanted["section_id"])
        if now is None:
            await add_section(change, wanted)
            seats_changed = True
        elif not _same_shape(now, wanted):
            await _remove_pools(change, section_id)
            await resize_rows(change, now, wanted)
            seats_changed = True
        elif any((now | {"capacity": change.capacity(section_id)})[name] != value for name, value in wanted.items()):
            if wanted["kind"] != "seated":
                await resize(change, section_id, wanted["capacity"], kind=wanted["kind"])
            own = {"capacity": wanted["capacity"] - change.pooled(section_id)}
            await _update_section(change, section_id, {**wanted, **own})
            metadata_changed = True
    kept = {row["section_id"] for row in rows}
    for gone in change.sections.keys() - kept:
        if section_of(gone) in kept:
            continue
        await _remove_pools(change, gone)
        if gone in change.sections:
            await remove_section(change, change.sections[gone])
        seats_changed = True
    await change.lock(row["section_id"] for row in rows)
    return seats_changed, metadata_changed


class EventFiles:
    """Applies event files to the database, then to Redis."""

    def __init__(
        self, db: AsyncEngine, redis_stock: RedisStock, redis_monitor: RedisStockMonitor,
        parts: Sequence[EventFilePart] = (),
    ) -> None:  # fmt: skip
        self._db, self._redis_stock, self._redis_monitor, self._parts = db, redis_stock, redis_monitor, parts

    async def apply(self, file: EventFile, *, actor: str, reason: str | None, dry_run: bool) -> EventApplied:
        """Raises `StockConflict`, and then nothing was changed."""
        applied = await apply_event_file(
            self._db, file, actor=actor, reason=reason, dry_run=dry_run, parts=self._parts
        )  # fmt: skip
        if not dry_run:
            if applied.dirty:
                await push_stock(self._db, self._redis_stock, file.event_id, applied.dirty)
            await self._redis_monitor.check()
            wake("inventory")
            log.info("event_file.applied", event_id=file.event_id, by=actor, changed=applied.changed)
        capacity = sum(section.capacity for section in file.sections)
        return EventApplied(
            event_id=file.event_id, changed=applied.changed, sections=len(file.sections), capacity=capacity,
            dry_run=dry_run,
        )  # fmt: skip


RESIZE = statement(__package__, "resize_section")
TOTAL_CAPACITY = text("SELECT sum(capacity) FROM inventory.section WHERE event_id = :event_id AND kind <> 'type'")


async def resize(change: StockChange, section_id: str, capacity: int, *, kind: str = "ga") -> None:
    """Added and removed places are available ones, and none of a pool, which `capacity` counts, too. Raises
    `UnknownSection` (also for a seated one), or `StockConflict` with what is held, sold and blocked.
    """
    await change.lock([section_id])
    change.section(section_id, kind)
    pooled = change.pooled(section_id)
    if change.capacity(section_id) == capacity:
        return
    values = {"event_id": change.event_id, "section_id": section_id, "capacity": capacity - pooled}
    if not (await change.connection.execute(RESIZE, values)).rowcount:
        raise await _capacity_conflict(change, section_id, capacity)
    places = (await change.connection.execute(TOTAL_CAPACITY, {"event_id": change.event_id})).scalar_one()
    if places > SEATS_PER_EVENT_MAX:
        raise StockConflict(
            f"An event has at most {SEATS_PER_EVENT_MAX} places; with this change it would have {places}."
        )
    change.dirty.ga.add(section_id)


async def _capacity_conflict(change: StockChange, section_id: str, capacity: int) -> StockConflict:
    row = (await count_sections(change.connection, change.event_id))[section_id]
    taken = {"held": int(row["held"]), "sold": int(row["sold"]), "blocked": row["blocked"]}
    if pooled := change.pooled(section_id):
        taken["by_code"] = pooled
    counts = ", ".join(f"{n} {name.replace('_', ' ')}" for name, n in taken.items())
    least = row["capacity"] - row["available"] + pooled
    detail = (
        f"{capacity} places are too few for {section_id}: {counts}; at least {least} are needed. Nothing was changed."
    )
    return StockConflict(detail, section_id=section_id, capacity_min=least, **taken)
