"""Idempotency records: which order a key created, and with which body.

`Prefetch` reads the record and the reservation of new requests together, once for all concurrent ones. A key that was
used is found even while inventory is unavailable.
"""

import asyncio
from collections.abc import Sequence
from typing import NamedTuple

from sqlalchemy import select
from sqlalchemy.dialects.postgresql import insert

from services.orders.checkout.inventory_client import InventoryBatcher
from services.orders.order.references import key_hash
from services.orders.tables import idempotency
from shared.concurrency.group_commit import GroupCommit
from shared.contracts.inventory import Reservation
from shared.postgres.engine import AsyncConnection, AsyncEngine, statement
from shared.web.problems import IdempotencyKeyReused

_FIND_IDEMPOTENCY_KEYS = statement(__package__, "find_idempotency_keys")
BATCH_MAX = 200
WAITING_MAX = 5000
IN_FLIGHT_MAX = 2


class IdempotencyLookup(NamedTuple):
    """One key in several scopes: a caller may hold passes to several events."""

    scopes: tuple[str, ...]
    key_hash: bytes


class IdempotencyRecord(NamedTuple):
    """The order that a key created, and the hash of the body it came with."""

    reference: str
    fingerprint: bytes


async def find_records(db: AsyncEngine, lookups: Sequence[IdempotencyLookup]) -> list[IdempotencyRecord | None]:
    """One record per lookup, in order; None for a new key."""
    pairs = [(scope, lookup.key_hash) for lookup in lookups for scope in lookup.scopes]
    bound = {"scopes": [scope for scope, _ in pairs], "key_hashes": [key_hash.hex() for _, key_hash in pairs]}
    async with db.connect() as connection:
        rows = await connection.execute(_FIND_IDEMPOTENCY_KEYS, bound)
        known = {
            (row.scope, bytes(row.key_hash)): IdempotencyRecord(row.reference, bytes(row.fingerprint)) for row in rows
        }
    return [
        next((known[scope, key_hash] for scope in scopes if (scope, key_hash) in known), None)
        for scopes, key_hash in lookups
    ]


async def used_before(connection: AsyncConnection, scope: str, key: str, fingerprint: bytes, reference: str) -> bool:
    """Whether this key was used before; if not, it is stored in the caller's transaction. Raises `IdempotencyKeyReused`
    if it came with another body.
    """
    row = {"scope": scope, "key_hash": key_hash(key), "fingerprint": fingerprint, "reference": reference}
    if (await connection.execute(insert(idempotency).values(row).on_conflict_do_nothing())).rowcount:
        return False
    stored = select(idempotency.c.fingerprint)
    stored = stored.where(idempotency.c.scope == scope, idempotency.c.key_hash == row["key_hash"])
    if await connection.scalar(stored) != fingerprint:
        raise IdempotencyKeyReused
    return True


class Prefetched(NamedTuple):
    """With a `record` the reservation is not needed and may be missing."""

    record: IdempotencyRecord | None
    reservation: Reservation | None


class Prefetch:
    """Reads record and reservation of each request. An error of inventory only fails requests with a new key."""

    def __init__(self, db: AsyncEngine, inventory: InventoryBatcher) -> None:
        self._db, self._inventory = db.execution_options(isolation_level="AUTOCOMMIT"), inventory
        self._group: GroupCommit[tuple[IdempotencyLookup, str], Prefetched] = GroupCommit(
            self._read_batch,
            name="orders-prefetch",
            batch_max=BATCH_MAX,
            waiting_max=WAITING_MAX,
            in_flight_max=IN_FLIGHT_MAX,
        )
        self.close = self._group.close

    async def read(self, lookup: IdempotencyLookup, reservation_id: str) -> Prefetched:
        return await self._group.submit((lookup, reservation_id))

    async def _read_batch(
        self, requests: list[tuple[IdempotencyLookup, str]]
    ) -> Sequence[Prefetched | BaseException]:  # fmt: skip
        lookups, reservation_ids = [lookup for lookup, _ in requests], [each for _, each in requests]
        records, reservations = await asyncio.gather(
            find_records(self._db, lookups), self._inventory.read_many(reservation_ids), return_exceptions=True
        )
        if isinstance(records, BaseException):
            raise records
        if isinstance(reservations, BaseException):
            return [Prefetched(record, None) if record else reservations for record in records]
        return list(map(Prefetched, records, reservations))
