"""Push operators' stock changes from PostgreSQL to Redis: which seats are blocked, and how many GA places.

Each push carries the current rows with the event's version. Redis refuses a version older than its own, and then the
rows are read again, so pushes that overtake each other end right and repeating one does no harm.
"""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from sqlalchemy import Row, text
from sqlalchemy.ext.asyncio import AsyncEngine

from services.inventory.layout.selection import SeatPosition, StockSelection
from services.inventory.metrics import DRIFT
from services.inventory.redis_stock.client import Change, RedisStock
from services.inventory.store.change import DirtySet
from services.inventory.store.reservations import read_seat_statuses
from services.inventory.store.snapshot import MARKS
from shared.concurrency.coalescing import chunks
from shared.postgres.engine import snapshot

SEATS_PER_SCRIPT = 500  # a script blocks Redis: a few milliseconds for so many
# By status the marks that a seat may have in Redis so far. One that was held meanwhile is blocked all the same, because
# PostgreSQL will refuse that hold.
PUSHED, REFUSED = {"blocked": ".hs", "available": "x"}, {"held": ".", "sold": "."}
TRIES_MAX = 5
VERSION = text("SELECT version FROM inventory.event WHERE event_id = :event_id")
SECTIONS = text(
    "SELECT section_id, capacity + overbooked_accepted AS capacity, blocked, seats_remaining FROM inventory.section "
    "WHERE event_id = :event_id AND section_id = ANY(CAST(:section_ids AS text[]))"
)


class PushedStock(NamedTuple):
    """Some places in PostgreSQL at one version of the event: seats by status, and rows of GA sections."""

    version: int
    seats: dict[SeatPosition, str]
    ga: Sequence[Row[Any]]


async def push_stock(
    db: AsyncEngine, redis_stock: RedisStock, event_id: str, dirty: DirtySet, *, refused: bool = False
) -> PushedStock | None:
    """Updates Redis for these places, and returns them. If Redis is away, reconciliation corrects the difference later.

    `refused`: PostgreSQL refused a hold of them, so Redis grants none that is held or sold there.
    """
    stock = None
    with redis_stock.follows([event_id]):
        for _ in range(TRIES_MAX):
            stock = await _read(db, event_id, dirty)
            if stock is None:
                return None
            places = _places(stock, refused=refused)
            if await redis_stock.follow(event_id, places=places, version=stock.version) != "stale":
                return stock
        DRIFT.labels("sync").inc()
    return stock


async def _read(db: AsyncEngine, event_id: str, dirty: DirtySet) -> PushedStock | None:
    """In one snapshot, so that the version belongs to the rows."""
    values: dict[str, Any] = {"event_id": event_id}
    async with snapshot(db) as connection:
        version: int | None = (await connection.execute(VERSION, values)).scalar()
        seats = await read_seat_statuses(connection, event_id, sorted(dirty.seats))
        ga = (await connection.execute(SECTIONS, values | {"section_ids": sorted(dirty.ga)})).all()
    return None if version is None else PushedStock(version, seats, ga)


def _places(stock: PushedStock, *, refused: bool) -> Iterator[Change]:
    """The changes, with at most `SEATS_PER_SCRIPT` seats in each."""
    for row in stock.ga:
        left = {"left": row.seats_remaining} if refused else {}
        yield {"id": row.section_id, "capacity": row.capacity, "blocked": row.blocked, **left}
    for status, marks in {**PUSHED, **(REFUSED if refused else {})}.items():
        seats = sorted(seat for seat, its in stock.seats.items() if its == status)
        for some in chunks(seats, SEATS_PER_SCRIPT):
            yield {"from": marks, "to": MARKS[status], "seats": StockSelection(tuple(some)).text()}
