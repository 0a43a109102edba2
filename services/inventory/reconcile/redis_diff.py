"""The drift between the stock in Redis and in PostgreSQL, in values that stay the same from pass to pass.

The two are read a moment apart, so a hold or sale under way is in one of them only. To tell such a difference from a
lasting one, a seat is compared together with its reservation, and a count with Redis' own holds, by how far it is off:
a change under way never gives the same drift twice.
"""

import asyncio
from collections import Counter
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

import orjson
from sqlalchemy.ext.asyncio import AsyncEngine

from services.inventory.layout.layout import Layout
from services.inventory.layout.selection import SeatPosition, StockSelection
from services.inventory.redis_keys import EPOCH, Keys
from services.inventory.store.drift import Drift, SeatRow
from services.inventory.store.snapshot import (
    EACH_HOLDER,
    IN_GROUPS,
    MARKS,
    Holders,
    SectionStock,
    StockSnapshot,
    group_of,
    read_stock,
)
from shared.redis.client import Redis

MISSING, THERE = "missing", "there"
HOLDERS_PER_SCAN = 500  # as many are in memory at a time


class RedisHold(NamedTuple):
    """A live reservation as Redis has it."""

    holder: str
    stock: StockSelection


@dataclass(frozen=True, slots=True)
class RedisStockState:
    """An event's stock in Redis: maps by section, counts by `section:name`, live holds by id, and tickets by holder or
    group, as `holders` names them. It is `ready` only if every key exists. Of the groups in `moved` tickets moved
    while they were read.
    """

    ready: bool
    epoch: int
    maps: dict[str, str]
    counts: dict[str, int]
    holds: dict[str, RedisHold]
    usage: Counter[str]
    holders: Holders
    moved: frozenset[str]


class StockComparison(NamedTuple):
    """The stock in Redis and in PostgreSQL, each at one moment, and what differs."""

    redis_stock: RedisStockState
    stock: StockSnapshot
    drift: list[Drift]


async def compare_stock(
    db: AsyncEngine, redis: Redis, layout: Layout, *, lost: Collection[str] | None = None
) -> StockComparison:
    """Reads and compares both; `lost` as in `differences`. Tickets are compared by groups of holders, and where a group
    differs, both are read again and its holders compared by name.
    """
    compared = await _compare(db, redis, layout, IN_GROUPS, lost=lost)
    groups = frozenset(drift.subject for drift in compared.drift if drift.kind == "usage")
    if groups and compared.redis_stock.ready:
        compared = await _compare(db, redis, layout, EACH_HOLDER.of(groups), lost=lost)
    return compared


async def _compare(
    db: AsyncEngine, redis: Redis, layout: Layout, holders: Holders, *, lost: Collection[str] | None
) -> StockComparison:
    redis_stock = await read_redis_stock(redis, layout.event_id, layout, holders=holders)
    ids = redis_stock.holds
    stock = await read_stock(db, layout.event_id, reservation_ids=ids, check=True, holders=holders)
    # in a thread, so that requests go on meanwhile
    drift = await asyncio.to_thread(lambda: list(differences(redis_stock, stock, lost=lost)))
    return StockComparison(redis_stock, stock, drift)


async def read_redis_stock(
    redis: Redis, event_id: str, layout: Layout, *, holders: Holders = IN_GROUPS
) -> RedisStockState:
    """In one Redis transaction, so that no script runs in between; but the tickets of all holders would take Redis too
    long. They are read before, in parts, and groups in which a hold began or ended meanwhile count as `moved`.
    """
    keys = Keys.of(event_id)
    seated = layout.seated
    parts = keys.parts(seated)
    before = await redis.hgetall(keys.holds)
    usage = await _usage(redis, keys.usage, holders)
    pipe = redis.pipeline(transaction=True)
    pipe.hmget(keys.meta, "ready", "epoch").exists(*parts).hgetall(keys.counts).hgetall(keys.holds)
    for section_id in seated:
        pipe.get(keys.map + section_id)
    (ready, epoch), existing, counts, holds, *maps = await pipe.execute()
    parsed, moved = await asyncio.to_thread(_holds_and_moved, before, holds)  # parsing many holds takes a while
    return RedisStockState(
        ready=ready == b"1" and existing == len(parts), epoch=int(epoch or 0),
        maps={s: (marks or b"").decode() for s, marks in zip(seated, maps, strict=True)},
        counts={k.decode(): int(v) for k, v in counts.items() if k != EPOCH},
        holds=parsed, usage=usage, holders=holders, moved=moved,
    )  # fmt: skip


async def _usage(redis: Redis, key: str, holders: Holders) -> Counter[str]:
    """A holder who is read twice, as may happen while the hash shrinks, differs in this pass only."""
    usage, cursor = Counter[str](), None
    while cursor != 0:
        cursor, part = await redis.hscan(key, cursor or 0, match="t:*", count=HOLDERS_PER_SCAN)
        for key_of_holder, tickets in part.items():
            if (name := holders.name(key_of_holder.decode()[2:])) is not None:
                usage[name] += int(tickets)
    return usage


def _holds_and_moved(
    before: dict[bytes, bytes], after: dict[bytes, bytes]
) -> tuple[dict[str, RedisHold], frozenset[str]]:
    """Live holds by id, and the groups of the holders whose holds differ."""
    changed = before.items() ^ after.items()
    moved = frozenset(group_of(_parse_hold(raw).holder) for key, raw in changed if key != EPOCH)
    return {k.decode(): _parse_hold(v) for k, v in after.items() if k != EPOCH}, moved


def _parse_hold(raw: bytes) -> RedisHold:
    hold = orjson.loads(raw)
    return RedisHold(hold["holder"], StockSelection.parse(hold["selection"]))


def differences(
    redis_stock: RedisStockState, stock: StockSnapshot, *, lost: Collection[str] | None = None
) -> Iterator[Drift]:
    """Every seat, count, hold, and holder or group of holders that differs.

    `lost`: reservations that an earlier pass missed in Redis, by default all that are missing now. One that is missing
    for the first time may have been made between the two reads.
    """
    live = {hold.reservation_id: hold for hold in stock.live}
    missing = live.keys() - redis_stock.holds.keys()
    known = _expected_state(redis_stock, stock, missing if lost is None else missing.intersection(lost))
    for section_id, section in stock.sections.items():
        yield from _seat_differences(section_id, redis_stock.maps.get(section_id, ""), section, known)
        yield from _count_differences(section_id, redis_stock, section, known)
    for reservation_id in missing:
        yield Drift("hold", reservation_id, None, MISSING, THERE)
    for reservation_id, hold in redis_stock.holds.items():
        if reservation_id not in live:
            yield Drift("hold", reservation_id, None, THERE, MISSING)
        elif (expected := live[reservation_id].stock) != hold.stock:
            yield Drift("selection", reservation_id, None, hold.stock.text(), expected.text())
    for name in redis_stock.usage.keys() | known.usage.keys():
        if (actual := redis_stock.usage[name]) != known.usage[name] and group_of(name) not in redis_stock.moved:
            yield Drift("usage", name, None, actual, known.usage[name])


@dataclass(slots=True)
class _Expected:
    """What Redis must add up to: tickets by holder or group, GA tickets by section that are held, and those of them
    that are sold (`unsynced`); by seat, its reservation in Redis and in PostgreSQL.
    """

    usage: Counter[str] = field(default_factory=Counter)
    held: Counter[str] = field(default_factory=Counter)
    unsynced: Counter[str] = field(default_factory=Counter)
    owner: dict[SeatPosition, str] = field(default_factory=dict)
    db_owner: dict[SeatPosition, str] = field(default_factory=dict)

    def use(self, name: str | None, tickets: int) -> None:
        """Counts tickets of a holder or group."""
        if name is not None:
            self.usage[name] += tickets


def _expected_state(redis_stock: RedisStockState, stock: StockSnapshot, lost: Collection[str]) -> _Expected:
    """Redis' holds, those it lost, and what PostgreSQL sold; a sale that Redis still has as a hold counts once."""
    name = redis_stock.holders.name
    known = _Expected()
    for holder, tickets in stock.bought.items():
        known.use(name(holder), tickets)
    for reservation_id, hold in redis_stock.holds.items():
        known.held.update(hold.stock.ga)
        known.owner |= dict.fromkeys(hold.stock.seats, reservation_id)
        if reservation_id in stock.sold_since:
            known.unsynced.update(hold.stock.ga)
        else:
            known.use(name(hold.holder), hold.stock.quantity)
    for live in stock.live:
        known.db_owner |= dict.fromkeys(live.stock.seats, live.reservation_id)
        if live.reservation_id in lost:
            known.held.update(live.stock.ga)
            known.use(name(live.holder), live.stock.quantity)
    return known


def _seat_differences(section_id: str, marks: str, section: SectionStock, known: _Expected) -> Iterator[Drift]:
    """Seat by seat, each mark with its reservation; `?` if the map in Redis is too short."""
    if marks == section.marks:
        return
    for position, mark in enumerate(section.marks):
        if (actual := marks[position : position + 1] or "?") != mark:
            owner, db_owner = (owners.get((section_id, position), "") for owners in (known.owner, known.db_owner))
            yield Drift("seat", section_id, position, SeatRow(actual, owner), SeatRow(mark, db_owner))


def _count_differences(
    section_id: str, redis_stock: RedisStockState, section: SectionStock, known: _Expected
) -> Iterator[Drift]:
    """A seated section is compared with its map in Redis, a GA section with Redis' holds and PostgreSQL's sales."""
    if section.marks:
        marks = redis_stock.maps.get(section_id, "")
        wanted = {name: marks.count(mark) for name, mark in MARKS.items()}
    else:
        held, sold = known.held[section_id], section.sold - known.unsynced[section_id]
        left = max(0, section.capacity - section.blocked - held - sold)
        wanted = {"available": left, "held": held, "sold": sold, "blocked": section.blocked}
    for name, n in wanted.items():
        if off := redis_stock.counts.get(f"{section_id}:{name}", 0) - n:
            yield Drift("count", section_id, name, off, 0)
