"""The store of orders: the one place that reads an order, the one that writes it, and the one that publishes it.

Concurrent reads, inserts and updates are batched, one statement each, which the server commits as it ends. A request
about an order that exists changes it under the lock of its row in `open_order` (`change`), and then wakes its owner.

Only orders that somebody listens to are published. A process that shows an order subscribes to its channel before it
reads the order, and an order is written before it is published. So whoever is not a subscriber yet reads the order as
it was written. A frame that is lost is made good by the process that shows the order: it reads it again when nothing
was heard for a while.

Inventory is told whether the order that is paying for a reservation still needs its hold. An order that is missing gets
a tombstone, and can never be created.
"""

import re
import uuid
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, suppress
from dataclasses import MISSING, asdict, fields, replace
from functools import partial
from typing import Any, Literal

import orjson
from cachetools import TTLCache
from redis.exceptions import RedisError
from sqlalchemy import ColumnElement, and_, literal_column, or_, select, text
from sqlalchemy.dialects.postgresql import insert

from services.orders.model.order import (
    Adjustment,
    Attempt,
    Charge,
    Customer,
    JournalEntry,
    LineTicket,
    OpenOrder,
    Order,
    OrderLine,
    Refund,
    TicketReturn,
    TypeNames,
    owner_id,
    provider_key,
)
from services.orders.model.update import OrderUpdate, Row
from services.orders.model.view import order_frame
from services.orders.problems import UnknownOrder
from services.orders.tables import HOLDER_SQL, SIGNED_IN_SQL, order
from shared.concurrency.background import wake
from shared.concurrency.coalescing import GroupCommits, by_halves, chunks
from shared.contracts.frames import order_channel
from shared.contracts.orders import PaymentRef
from shared.postgres.engine import (
    DB_AWAY,
    AsyncConnection,
    AsyncEngine,
    DBAPIError,
    raw_statement,
    retry_deadlocks,
    statement,
)
from shared.redis.client import Redis, subscribed_channels
from shared.runtime.clock import Clocks, rfc3339

BATCH_MAX = 200
WAITING_MAX = 5000
IN_FLIGHT_MAX = 2  # a batch that waits for a row lock does not hold up the others
REFERENCES_MAX = 1000
REOPENED = "reopened"  # before references that are nobody's to look at, but not as they were sold any more
SOLD_S, SOLD_MAX = 1.0, 10_000  # a sold order is kept for so long: its fan nearly always asks once more, and soon
NOTIFIED_MAX = 500  # references in one notification, which takes 8,000 bytes
PaymentStatus = Literal["live", "dead", "absent"]
TOMBSTONE = "tombstone"
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


class OrderStore(GroupCommits):
    """Use inside `async with`; leaving it finishes what is queued. `owner` is this process, under a name that none had
    before. `on_wake` hears of orders of this process that were asked for something. `latest` are open orders of this
    process as they were last read or inserted; one that is just being changed is not among them. `sold` are those that
    it sold within the last second, unless anything changed since.
    """

    def __init__(self, db: AsyncEngine, clocks: Clocks) -> None:
        super().__init__(batch_max=BATCH_MAX, waiting_max=WAITING_MAX, in_flight_max=IN_FLIGHT_MAX)
        self.clocks, self.owner = clocks, uuid.uuid4().hex
        self.on_wake: Callable[[OpenOrder], None] = lambda _: None
        self.latest: dict[str, Order] = {}
        self.sold: TTLCache[str, Order] = TTLCache(SOLD_MAX, SOLD_S)
        self._transactions = db
        self.db = db.execution_options(isolation_level="AUTOCOMMIT")
        self._read_row = self.grouped("orders-read", self._read_rows, rests=True)
        # Finds the order that an idempotency key created, of one of some owners, as a caller may hold passes to several
        # events: its reference, and the hash of the body that it came with.
        self.find_key: Callable[[tuple[tuple[str, ...], bytes]], Awaitable[tuple[str, bytes] | None]]
        self.find_key = self.grouped("orders-keys", self._find_keys)
        # Writes an update and returns the order as it is then. Raises `NotWritten`.
        self.save: Callable[[OrderUpdate], Awaitable[Order]]
        self.save = self.grouped("orders-save", partial(save, self.db), rests=True)

    async def read(self, reference: str) -> Order | None:
        """Reads an order; None for an unknown reference or a tombstone."""
        row = await self._read_row(reference)
        return None if row is None else self._on_slowest_clock(read_order(row))

    async def require(self, reference: str) -> Order:
        """As `read`. Raises `UnknownOrder`."""
        found = await self.read(reference)
        if found is None:
            raise UnknownOrder
        return found

    async def read_all(self, references: Sequence[str]) -> dict[str, Order]:
        """Reads orders at once, by reference; unknown references and tombstones are left out."""
        found = await read_many(self.db, references)
        return {reference: self._on_slowest_clock(order) for reference, order in found.items()}

    async def read_claimed(self, claim: OpenOrder) -> Order:
        """The order of this claim. Raises `OrderLost`."""
        row = await self._read_row(claim.reference)
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

        async def write() -> list[OpenOrder] | None:
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

    async def references_of(
        self, customers: Sequence[Customer], opened: Sequence[str] = (), *, page: int, page_size: int
    ) -> list[str]:
        """References of these customers' orders and of the `opened` ones, newest first."""
        newest = select(order.c.reference).where(or_(order.c.reference.in_(opened), *map(_ordered_by, customers)))
        newest = newest.order_by(order.c.created_at.desc(), order.c.reference)
        async with self.db.connect() as connection:
            return list(await connection.scalars(newest.limit(page_size).offset((page - 1) * page_size)))

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
        return [one.reference for one in woken]

    async def tell(self, woken: Sequence[OpenOrder], *, taken: bool = False) -> None:
        """Tells the owners of these orders, after the commit: a notification inside a transaction serialises commits.
        One that is lost is found by the owner's next sweep. With `taken` who owned them before is told, too, and of
        orders that were closed whoever sold them.
        """
        for one in woken:
            if one.owner == self.owner:
                self.on_wake(one)
        others = (one.reference for one in woken if taken or one.owner != self.owner)
        with suppress(*DB_AWAY):
            for some in chunks(others, NOTIFIED_MAX):
                await notify(self.db, ",".join(some))
        await self.forget_sold(one.reference for one in woken if one.was_closed)

    async def forget_sold(self, references: Iterable[str]) -> None:
        """These orders are not any more as they were sold: the process that keeps them so reads them again."""
        with suppress(*DB_AWAY):
            for some in chunks(references, NOTIFIED_MAX):
                for reference in some:
                    self.sold.pop(reference, None)
                await notify(self.db, ",".join((REOPENED, *some)))

    async def _find_keys(self, keys: Sequence[tuple[tuple[str, ...], bytes]]) -> list[tuple[str, bytes] | None]:
        pairs = [(owner_id, key_hash) for owner_ids, key_hash in keys for owner_id in owner_ids]
        bound = {"owner_ids": [owner_id for owner_id, _ in pairs], "key_hashes": [each.hex() for _, each in pairs]}
        async with self.db.connect() as connection:
            rows = await connection.execute(_FIND_KEY, bound)
            known = {(row.owner_id, bytes(row.key_hash)): (row.reference, bytes(row.fingerprint)) for row in rows}
        return [
            next((known[owner_id, key_hash] for owner_id in owner_ids if (owner_id, key_hash) in known), None)
            for owner_ids, key_hash in keys
        ]

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


def _ordered_by(customer: Customer) -> ColumnElement[bool]:
    if customer.event_id is not None:
        return order.c.owner_id == owner_id(customer.event_id, customer.holder)
    return and_(literal_column(SIGNED_IN_SQL), literal_column(HOLDER_SQL) == customer.holder)


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
) -> list[OpenOrder]:
    """Asks for a look at these orders in the caller's transaction, which locks them; `tell` their owners after it."""
    bound = {"references": list(references), "owner": owner, "sync": sync, "take": take}
    rows = await connection.execute(_WAKE, bound)
    return [
        OpenOrder(row.reference, row.owner, row.epoch, row.event_id, row.join_seq, was_closed=row.was_closed)
        for row in rows
    ]


async def notify(db: AsyncEngine, message: str) -> None:
    """Tells every process of orders: references that were asked for something, or nothing if orders were given up."""
    async with db.connect() as connection:
        await connection.execute(_NOTIFY, {"channel": CHANNEL, "message": message})


async def save(db: AsyncEngine, updates: Sequence[OrderUpdate]) -> list[BaseException | Order]:
    """Writes updates and returns one outcome for each: the order as it is then, `NotWritten`, or the error of its
    statement. If their statement fails, each half is written by itself.

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


async def save_in(connection: AsyncConnection, update: OrderUpdate) -> None:
    """Writes an update in the caller's transaction, which has locked the open order."""
    [outcome] = await _save(connection, [update])
    assert isinstance(outcome, Order), outcome


async def _save(connection: AsyncConnection, updates: Sequence[OrderUpdate]) -> list[BaseException | Order]:
    rows: dict[str, list[Row]] = {"orders": []}
    for update in updates:
        for part, row in _rows(update):
            rows.setdefault(part, []).append(row)
    bound: dict[str, Any] = {part: orjson.dumps(each).decode() for part, each in rows.items()}
    bound["references"] = [update.order.reference for update in updates]
    found = (await connection.execute(_statement(tuple(part for part in _PARTS if part in rows)), bound)).all()
    if "events" in rows:
        wake("orders")
    written = {
        row.reference: {name: value for name, value in row._asdict().items() if value is not None} for row in found
    }
    return [
        update.after(**written[reference]) if reference in written else NotWritten(reference)
        for update, reference in zip(updates, bound["references"], strict=True)
    ]


def _statement(parts: tuple[str, ...]) -> Any:
    if parts not in _statements:
        _statements[parts] = text("".join((_head, *(_PARTS[part] for part in parts), _PARTS["end"])))
    return _statements[parts]


def _rows(update: OrderUpdate) -> Iterator[tuple[str, Row]]:
    """The rows of an update, each with its part of the statement."""
    order, claim, release = update.order, update.claim, update.release
    reference, changed = {"reference": order.reference}, update.changed
    for charge in changed.pop("charges", order.charges)[len(order.charges) :]:
        yield "money", {
            **reference, "kind": "charge", "provider": charge.provider, "charge_ref": charge.charge_ref,
            "provider_ref": charge.charge_ref, "amount_minor": charge.amount_minor, "currency": charge.currency,
            "occurred_at": rfc3339(charge.occurred_at_ms),
        }  # fmt: skip
    columns = {
        name: _JSON[name](value) if name in _JSON else "" if value is None else value for name, value in changed.items()
    }
    event_count = max(1, len(update.events)) if update.bumps_version else 0
    yield "orders", {
        **reference, "owner": claim and claim.owner, "epoch": claim and claim.epoch, "wakes": order.wakes,
        "synced": update.synced, "event_count": event_count, "touches": bool(event_count or update.has_news),
        "releases": release is not None, **(release._asdict() if release else {}), **columns,
    }  # fmt: skip
    for event in update.events:
        yield "events", {**reference, "body": event.model_dump(mode="json")}
    yield from ((part, {**reference, **row}) for part, row in update.rows)


# -- rows: what is the usual value of a field is left out of them; a line holds its tickets one by one, an attempt and a
# command what cannot be computed from the order and their place


def lines_json(lines: Iterable[OrderLine]) -> list[Row]:
    return [
        _compact(line, "line_no", "quantity", "tickets") | {"tickets": [_compact(one) for one in line.tickets]}
        for line in lines
    ]


def attempts_json(attempts: Iterable[Attempt]) -> list[Row]:
    return [_compact(attempt, "n", "amount_minor", "currency", "provider_key") for attempt in attempts]


def extras_json(extras: Iterable[Adjustment]) -> list[Row]:
    """With all fields, as SQL reads them, but for what only few have."""
    return [
        {name: value for name, value in asdict(extra).items() if name != "base_minor" or value is not None}
        for extra in extras
    ]


def journal_json(journal: Iterable[JournalEntry]) -> list[Row]:
    return [_compact(command) for command in journal]


_JSON: dict[str, Callable[[Any], list[Row]]] = {"lines": lines_json, "attempts": attempts_json, "journal": journal_json}


def read_order(row: Mapping[str, Any]) -> Order:
    """The order that `read.sql` found."""
    values = {name: value for name, value in row.items() if name not in ("owner", "epoch")}
    for name, part in _TABLES.items():
        values[name] = tuple(part(**each) for each in row[name])
    values["lines"] = tuple(_line(n, line) for n, line in enumerate(row["lines"], start=1))
    values["attempts"] = tuple(_attempt(row, n, attempt) for n, attempt in enumerate(row["attempts"], start=1))
    values["journal"] = tuple(JournalEntry(**command) for command in row["journal"])
    values["price_types"] = TypeNames.read(row["price_types"])
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


class Frames(GroupCommits):
    """Use inside `async with`. A missing Redis is no error."""

    def __init__(self, redis: Redis) -> None:
        super().__init__(batch_max=BATCH_MAX, waiting_max=WAITING_MAX, in_flight_max=1)
        self._redis = redis
        # Publishes an order as it is now.
        self.publish: Callable[[Order], Awaitable[None]] = self.grouped("orders-show", self._publish, rests=True)

    async def _publish(self, orders: Sequence[Order]) -> Sequence[None]:
        with suppress(RedisError, OSError):
            channels = await subscribed_channels(self._redis, [order_channel(order.reference) for order in orders])
            pipe = self._redis.pipeline(transaction=False)
            for order in orders:
                if (channel := order_channel(order.reference)) in channels:
                    pipe.publish(channel, order_frame(order).model_dump_json())
            if channels:
                await pipe.execute()
        return [None] * len(orders)


async def payment_statuses(db: AsyncEngine, payments: Sequence[PaymentRef]) -> list[PaymentStatus]:
    """One status for each payment."""
    orders = await _orders_or_tombstones(db, sorted({payment.order_reference for payment in payments}))
    return [_status(orders[p.order_reference].status, orders[p.order_reference].reservation_id, p) for p in payments]


async def write_tombstone(db: AsyncEngine, reference: str) -> bool:
    """Ensures that no order can ever be created under this reference. False if there is one already."""
    return bool((await _orders_or_tombstones(db, [reference]))[reference].status == TOMBSTONE)


async def _orders_or_tombstones(db: AsyncEngine, references: Sequence[str]) -> dict[str, Any]:
    """Missing orders get a tombstone first, in a transaction of its own, so that an order in creation has either
    committed or lost before the rows are read.
    """
    tombstones = [{"reference": reference, "status": TOMBSTONE} for reference in references]
    async with db.begin() as connection:
        await connection.execute(insert(order).values(tombstones).on_conflict_do_nothing())
    query = select(order.c.reference, order.c.status, order.c.reservation_id).where(order.c.reference.in_(references))
    async with db.connect() as connection:
        return {row.reference: row for row in await connection.execute(query)}


def _status(status: str, reservation_id: str | None, payment: PaymentRef) -> PaymentStatus:
    """An order of another reservation does not need this hold. `review` and late payments still need theirs."""
    if status == TOMBSTONE:
        return "absent"
    if reservation_id != payment.reservation_id:
        return "dead"
    return "dead" if status in ("cancelled", "expired", "refunded") else "live"
