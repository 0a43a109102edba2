"""The store of orders: the one place that reads an order, and the one that writes it.

Concurrent reads, inserts and updates are batched, one statement each, which the server commits as it ends. A request
about an order that exists changes it under the lock of its row in `open_order` (`change`), and then wakes its owner.
"""

import re
import uuid
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, suppress
from dataclasses import MISSING, fields, replace
from functools import partial
from typing import Any, NamedTuple

import orjson
from sqlalchemy import text

from services.orders.model.order import (
    Adjustment,
    Attempt,
    Charge,
    JournalEntry,
    LineTicket,
    Order,
    OrderLine,
    Refund,
    TicketReturn,
)
from services.orders.model.references import provider_key
from services.orders.model.update import OrderUpdate, Ownership, Row
from shared.concurrency.background import wake
from shared.concurrency.coalescing import GroupCommits, by_halves, chunks
from shared.postgres.engine import (
    DB_AWAY,
    AsyncConnection,
    AsyncEngine,
    DBAPIError,
    raw_statement,
    retry_deadlocks,
    statement,
)
from shared.runtime.clock import Clocks, rfc3339

BATCH_MAX = 200
WAITING_MAX = 5000
IN_FLIGHT_MAX = 2  # a batch that waits for a row lock does not hold up the others
REFERENCES_MAX = 1000
NOTIFIED_MAX = 500  # references in one notification, which takes 8,000 bytes
CHANNEL = "orders_open"
_FIND_KEY = statement(__package__, "find_key")
_READ = statement(__package__, "read")
_WAKE = statement(__package__, "wake")
_NOTIFY = text("SELECT pg_notify(:channel, :message)")
_head, *_parts = re.split(r"^-- part (\w+)$", raw_statement(__package__, "save"), flags=re.MULTILINE)
_PARTS = dict(zip(_parts[::2], _parts[1::2], strict=True))
_statements: dict[tuple[str, ...], Any] = {}
_TABLES = {"charges": Charge, "refunds": Refund, "returns": TicketReturn, "extras": Adjustment}
_defaults_of: dict[type, tuple[tuple[str, Any], ...]] = {}


class NotWritten(Exception):
    """Another process owns this order now, or something was asked of it since it was read."""


class OrderLost(Exception):
    """Another process owns this order now, or it is not open any more."""


class Written(NamedTuple):
    """What the database set; times in ms since the epoch. `version` is None if nothing visible changed."""

    version: int | None
    confirmed_at_ms: int | None
    fulfilled_at_ms: int | None


class OpenOrder(NamedTuple):
    """An order that is open, as its owner keeps it in mind."""

    reference: str
    event_id: str
    join_seq: int
    epoch: int
    due_in_s: float = 0.0


class Woken(NamedTuple):
    """An order that was asked for something, and the process that owns it."""

    owner: str
    open_order: OpenOrder


class OrderKey(NamedTuple):
    """An idempotency key, of one of these owners: a caller may hold passes to several events."""

    owner_ids: tuple[str, ...]
    key_hash: bytes


class KnownKey(NamedTuple):
    """The order that a key created, and the hash of the body it came with."""

    reference: str
    fingerprint: bytes


class OrderStore(GroupCommits):
    """Use inside `async with`; leaving it finishes what is queued. `owner` is this process, under a name that none had
    before. `on_wake` hears of orders of this process that were asked for something. `latest` are open orders of this
    process as they were last read or inserted; one that is just being changed is not among them.
    """

    def __init__(self, db: AsyncEngine, clocks: Clocks) -> None:
        super().__init__(batch_max=BATCH_MAX, waiting_max=WAITING_MAX, in_flight_max=IN_FLIGHT_MAX)
        self.clocks, self.owner = clocks, uuid.uuid4().hex
        self.on_wake: Callable[[OpenOrder], None] = lambda _: None
        self.latest: dict[str, Order] = {}
        self._transactions = db
        self.db = db.execution_options(isolation_level="AUTOCOMMIT")
        # Reads an order; None for an unknown reference or a tombstone.
        self.read: Callable[[str], Awaitable[Order | None]] = self.grouped("orders-read", self._read, rests=True)
        self._read_claimed = self.grouped("orders-read-own", self._read_rows, rests=True)
        # Finds the order that an idempotency key created.
        self.find_key: Callable[[OrderKey], Awaitable[KnownKey | None]] = self.grouped("orders-keys", self._find_keys)
        # Writes an update. Raises `NotWritten`.
        self.save: Callable[[OrderUpdate], Awaitable[Written]]
        self.save = self.grouped("orders-save", partial(save, self.db), rests=True)

    async def read_all(self, references: Sequence[str]) -> dict[str, Order]:
        """Reads orders at once, by reference; unknown references and tombstones are left out."""
        found = await read_many(self.db, references)
        return {reference: self._on_slowest_clock(order) for reference, order in found.items()}

    async def read_claimed(self, claim: Ownership) -> Order:
        """The order of this claim. Raises `OrderLost`."""
        row = await self._read_claimed(claim.reference)
        if row is None or (row["owner"], row["epoch"]) != (claim.owner, claim.epoch):
            raise OrderLost(claim.reference)
        return self._on_slowest_clock(read_order(row))

    async def change(
        self, reference: str, decide: Callable[[AsyncConnection, Order], Awaitable[OrderUpdate | None]], *,
        sync: bool = False, take: bool = False,
    ) -> bool:  # fmt: skip
        """Changes an order as `decide` says, which reads it as it is and may write more in the same transaction, and
        wakes its owner; with `take` that is this process from now on. False if it decided to change nothing. What
        `decide` raises changes nothing either.
        """

        async def write() -> list[Woken] | None:
            async with self._transactions.connect() as connection, connection.begin() as transaction:
                woken = await wake_in(connection, [reference], owner=self.owner, sync=sync, take=take)
                order = (await read_in(connection, [reference]))[reference]
                update = await decide(connection, self._on_slowest_clock(order))
                if update is None:
                    await transaction.rollback()
                    return None
                await save_in(connection, update)
            return woken

        woken = await retry_deadlocks(write)
        if woken is not None:
            await self.tell(woken, taken=take)
        return woken is not None

    def begin(self) -> AbstractAsyncContextManager[AsyncConnection]:
        """A transaction, for what changes no order."""
        return self._transactions.begin()

    async def wake(self, references: Sequence[str], *, sync: bool = False) -> list[str]:
        """Lets the owners of these orders look at them now; orders that are not open become so. Returns those that
        exist.
        """
        async with self.db.connect() as connection:
            woken = await wake_in(connection, references, owner=self.owner, sync=sync)
        await self.tell(woken)
        return [one.open_order.reference for one in woken]

    async def tell(self, woken: Sequence[Woken], *, taken: bool = False) -> None:
        """Tells the owners of these orders, after the commit: a notification inside a transaction serialises commits.
        One that is lost is found by the owner's next sweep. With `taken` who owned them before is told, too.
        """
        for one in woken:
            if one.owner == self.owner:
                self.on_wake(one.open_order)
        others = (one.open_order.reference for one in woken if taken or one.owner != self.owner)
        with suppress(*DB_AWAY):
            for some in chunks(others, NOTIFIED_MAX):
                await notify(self.db, ",".join(some))

    async def _find_keys(self, keys: Sequence[OrderKey]) -> list[KnownKey | None]:
        pairs = [(owner_id, key.key_hash) for key in keys for owner_id in key.owner_ids]
        bound = {"owner_ids": [owner_id for owner_id, _ in pairs], "key_hashes": [each.hex() for _, each in pairs]}
        async with self.db.connect() as connection:
            rows = await connection.execute(_FIND_KEY, bound)
            known = {
                (row.owner_id, bytes(row.key_hash)): KnownKey(row.reference, bytes(row.fingerprint)) for row in rows
            }
        return [
            next((known[owner_id, key_hash] for owner_id in owner_ids if (owner_id, key_hash) in known), None)
            for owner_ids, key_hash in keys
        ]

    async def _read(self, references: list[str]) -> Sequence[Order | None]:
        found = await self.read_all(list(dict.fromkeys(references)))
        return [found.get(reference) for reference in references]

    async def _read_rows(self, references: list[str]) -> Sequence[Row | None]:
        async with self.db.connect() as connection:
            found = await _rows_in(connection, list(dict.fromkeys(references)))
        return [found.get(reference) for reference in references]

    def _on_slowest_clock(self, order: Order) -> Order:
        """Judges a pending order by the slowest clock (PostgreSQL, Redis, this process), so that no hold ends before
        any of them says so.
        """
        slowest_ms = self.clocks.slowest_ms()
        return replace(order, now_ms=slowest_ms) if order.status == "pending" and slowest_ms < order.now_ms else order


async def read_many(db: AsyncEngine, references: Sequence[str]) -> dict[str, Order]:
    """Reads orders, by reference; unknown references and tombstones are left out."""
    async with db.connect() as connection:
        return await read_in(connection, references)


async def read_in(connection: AsyncConnection, references: Sequence[str]) -> dict[str, Order]:
    """As `read_many`, in the caller's transaction."""
    return {reference: read_order(row) for reference, row in (await _rows_in(connection, references)).items()}


async def _rows_in(connection: AsyncConnection, references: Sequence[str]) -> dict[str, Row]:
    assert len(references) <= REFERENCES_MAX
    rows = (await connection.execute(_READ, {"references": list(references)})).mappings()
    return {row["reference"]: dict(row) for row in rows}


async def wake_in(
    connection: AsyncConnection, references: Sequence[str], *, owner: str, sync: bool = False, take: bool = False
) -> list[Woken]:
    """Asks for a look at these orders in the caller's transaction, which locks them; `tell` their owners after it."""
    bound = {"references": list(references), "owner": owner, "sync": sync, "take": take}
    rows = await connection.execute(_WAKE, bound)
    return [Woken(row.owner, OpenOrder(row.reference, row.event_id, row.join_seq, row.epoch)) for row in rows]


async def notify(db: AsyncEngine, message: str) -> None:
    """Tells every process of orders: references that were asked for something, or nothing if orders were given up."""
    async with db.connect() as connection:
        await connection.execute(_NOTIFY, {"channel": CHANNEL, "message": message})


async def save(db: AsyncEngine, updates: Sequence[OrderUpdate]) -> list[BaseException | Written]:
    """Writes updates and returns one outcome for each: `Written`, `NotWritten`, or the error of its statement. If their
    statement fails, each half is written by itself.

    `db` commits each statement. Raises one of `DB_AWAY` if the database is unavailable; then the outcome is unknown.
    """
    try:
        if len({update.order.reference for update in updates}) == len(updates):
            async with db.connect() as connection:
                return await _save(connection, updates)
    except DB_AWAY:
        raise
    except DBAPIError as failed:
        if len(updates) == 1:
            return [failed]
    return await by_halves(partial(save, db), updates)


async def save_in(connection: AsyncConnection, update: OrderUpdate) -> Written:
    """Writes an update in the caller's transaction, which has locked the open order."""
    [outcome] = await _save(connection, [update])
    assert isinstance(outcome, Written), outcome
    return outcome


async def _save(connection: AsyncConnection, updates: Sequence[OrderUpdate]) -> list[BaseException | Written]:
    rows: dict[str, list[Row]] = {"orders": []}
    for update in updates:
        for part, row in _rows(update):
            rows.setdefault(part, []).append(row)
    bound: dict[str, Any] = {part: orjson.dumps(each).decode() for part, each in rows.items()}
    bound["references"] = [update.order.reference for update in updates]
    found = (await connection.execute(_statement(tuple(part for part in _PARTS if part in rows)), bound)).all()
    if "events" in rows:
        wake("orders")
    written = {row.reference: Written(row.version, row.confirmed_at_ms, row.fulfilled_at_ms) for row in found}
    return [written.get(update.order.reference) or NotWritten(update.order.reference) for update in updates]


def _statement(parts: tuple[str, ...]) -> Any:
    if parts not in _statements:
        _statements[parts] = text("".join((_head, *(_PARTS[part] for part in parts), _PARTS["end"])))
    return _statements[parts]


def _rows(update: OrderUpdate) -> Iterator[tuple[str, Row]]:
    """The rows of an update, each with its part of the statement."""
    order, claim, release = update.order, update.claim, update.release
    reference = {"reference": order.reference}
    json: Row = {}
    if update.lines != order.lines:
        json["lines"] = lines_json(update.lines)
    if update.attempts or update.new_attempts:
        json["attempts"] = attempts_json(update.attempts_after)
    if update.journal != order.journal:
        json["journal"] = journal_json(update.journal)
    event_count = max(1, len(update.events)) if update.bumps_version else 0
    yield "orders", {
        **reference, "owner": claim and claim.owner, "epoch": claim and claim.epoch, "wakes": order.wakes,
        "synced": update.synced, "event_count": event_count,
        "touches": bool(json or event_count or update.changes_rows), "releases": release is not None,
        **(release._asdict() if release else {}), **update.columns, **json,
    }  # fmt: skip
    for event in update.events:
        yield "events", {**reference, "body": event.model_dump(mode="json")}
    for charge in update.charges:
        yield "money", {
            **reference, "kind": "charge", "provider": charge.provider, "charge_ref": charge.charge_ref,
            "provider_ref": charge.charge_ref, "amount_minor": charge.amount_minor, "currency": charge.currency,
            "occurred_at": rfc3339(charge.occurred_at_ms),
        }  # fmt: skip
    for part in ("money", "refunds_requested", "refunds_done", "mails"):
        yield from ((part, {**reference, **row}) for row in getattr(update, part))


# -- rows: what is the usual value of a field is left out of them; a line holds its tickets one by one, an attempt and a
# command what cannot be computed from the order and their place


def lines_json(lines: Iterable[OrderLine]) -> list[Row]:
    return [
        _compact(line, "line_no", "quantity", "tickets") | {"tickets": [_compact(one) for one in line.tickets]}
        for line in lines
    ]


def attempts_json(attempts: Iterable[Attempt]) -> list[Row]:
    return [_compact(attempt, "n", "amount_minor", "currency", "provider_key") for attempt in attempts]


def journal_json(journal: Iterable[JournalEntry]) -> list[Row]:
    return [_compact(command) for command in journal]


def read_order(row: Mapping[str, Any]) -> Order:
    """The order that `read.sql` found."""
    values = {name: value for name, value in row.items() if name not in ("owner", "epoch")}
    for name, part in _TABLES.items():
        values[name] = tuple(part(**each) for each in row[name])
    values["lines"] = tuple(_line(n, line) for n, line in enumerate(row["lines"], start=1))
    values["attempts"] = tuple(_attempt(row, n, attempt) for n, attempt in enumerate(row["attempts"], start=1))
    values["journal"] = tuple(JournalEntry(**command) for command in row["journal"])
    return Order(**values)


def _line(n: int, line: Row) -> OrderLine:
    tickets = tuple(LineTicket(**ticket) for ticket in line["tickets"])
    return OrderLine(**{**line, "tickets": tickets}, quantity=len(tickets), line_no=n)


def _attempt(row: Mapping[str, Any], n: int, attempt: Row) -> Attempt:
    return Attempt(
        **attempt, n=n, amount_minor=row["total_minor"], currency=row["currency"],
        provider_key=provider_key(row["reference"], n),
    )  # fmt: skip


def _compact(part: Any, *without: str) -> Row:
    return {
        name: value
        for name, default in _defaults(type(part))
        if name not in without and (value := getattr(part, name)) != default
    }


def _defaults(kind: type) -> tuple[tuple[str, Any], ...]:
    """The fields of a part with their usual values; `MISSING` equals no value."""
    if kind not in _defaults_of:
        _defaults_of[kind] = tuple(
            (one.name, MISSING if one.default is MISSING else one.default) for one in fields(kind)
        )
    return _defaults_of[kind]
