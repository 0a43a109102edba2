"""What idempotency keys were used for: a key belongs to a scope, and a caller may hold passes to several.

What an order meets before it is made: what its idempotency key did earlier, and the reservation it is about.

The ledger and inventory are asked at the same time, once for all requests of the moment; a key that was used is known
although inventory is away.
"""

import asyncio
from collections.abc import Sequence
from typing import NamedTuple

from sqlalchemy import select
from sqlalchemy.dialects.postgresql import insert

from services.orders.checkout.inventory_client import InventoryBatcher
from services.orders.order.references import key_hash
from services.orders.tables import idempotency
from shared.contracts.inventory import Reservation
from shared.postgres.engine import AsyncConnection, AsyncEngine, statement
from shared.runtime.group_commit import GroupCommit
from shared.web.problems import IdempotencyKeyReused

_FIND = statement(__package__, "find_keys")


class IdempotencyLookup(NamedTuple):
    """One key, in any of these scopes."""

    scopes: tuple[str, ...]
    key_hash: bytes


class IdempotencyRecord(NamedTuple):
    """The order a key made, and the body it was sent with."""

    reference: str
    fingerprint: bytes


async def find(db: AsyncEngine, questions: Sequence[IdempotencyLookup]) -> list[IdempotencyRecord | None]:
    """One answer per question, in order."""
    pairs = [(scope, question.key_hash) for question in questions for scope in question.scopes]
    bound = {"scopes": [scope for scope, _ in pairs], "key_hashes": [key_hash.hex() for _, key_hash in pairs]}
    async with db.connect() as connection:
        rows = await connection.execute(_FIND, bound)
        known = {
            (row.scope, bytes(row.key_hash)): IdempotencyRecord(row.reference, bytes(row.fingerprint)) for row in rows
        }
    return [
        next((known[scope, key_hash] for scope in scopes if (scope, key_hash) in known), None)
        for scopes, key_hash in questions
    ]


async def used_before(connection: AsyncConnection, scope: str, key: str, fingerprint: bytes, reference: str) -> bool:
    """Whether this key did this before; from now on it did, if the caller's transaction commits. Raises
    `IdempotencyKeyReused` if it did something else.
    """
    row = {"scope": scope, "key_hash": key_hash(key), "fingerprint": fingerprint, "reference": reference}
    if (await connection.execute(insert(idempotency).values(row).on_conflict_do_nothing())).rowcount:
        return False
    stored = select(idempotency.c.fingerprint)
    stored = stored.where(idempotency.c.scope == scope, idempotency.c.key_hash == row["key_hash"])
    if await connection.scalar(stored) != fingerprint:
        raise IdempotencyKeyReused
    return True


BATCH_MAX = 200
WAITING_MAX = 5000
IN_FLIGHT_MAX = 2


class Prefetched(NamedTuple):
    """`known` wins: with it nobody needs the reservation, which may then be missing."""

    known: IdempotencyRecord | None
    reservation: Reservation | None


class Prefetch:
    """Looks at both. Raises what inventory raised to those alone whose key is new."""

    def __init__(self, db: AsyncEngine, stock: InventoryBatcher) -> None:
        self._db, self._stock = db.execution_options(isolation_level="AUTOCOMMIT"), stock
        self._group: GroupCommit[tuple[IdempotencyLookup, str], Prefetched] = GroupCommit(
            self._look, name="orders-priors", batch_max=BATCH_MAX, waiting_max=WAITING_MAX, in_flight_max=IN_FLIGHT_MAX
        )
        self.close = self._group.close

    async def read(self, question: IdempotencyLookup, reservation_id: str) -> Prefetched:
        return await self._group.submit((question, reservation_id))

    async def _look(self, asked: list[tuple[IdempotencyLookup, str]]) -> Sequence[Prefetched | BaseException]:
        questions, reservation_ids = (
            [question for question, _ in asked],
            [reservation_id for _, reservation_id in asked],
        )
        known, held = await asyncio.gather(
            find(self._db, questions), self._stock.read_many(list(reservation_ids)), return_exceptions=True
        )
        if isinstance(known, BaseException):
            raise known
        if isinstance(held, BaseException):
            return [Prefetched(before, None) if before else held for before in known]
        return [Prefetched(before, reservation) for before, reservation in zip(known, held, strict=True)]
