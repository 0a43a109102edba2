"""Idempotency records: which order a key created, and with which body."""

import hashlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

from asyncpg.exceptions import LockNotAvailableError
from sqlalchemy import select
from sqlalchemy.dialects.postgresql import insert

from services.orders.order.card_numbers import refuse_card_numbers
from services.orders.tables import idempotency
from shared.contracts.fields import Body
from shared.errors.problems import IdempotencyInFlight, IdempotencyKeyReused
from shared.postgres.engine import AsyncConnection, AsyncEngine, DBAPIError, statement
from shared.web.parameters import key_hash

_FIND_IDEMPOTENCY_KEYS = statement(__package__, "find_idempotency_keys")


class IdempotencyLookup(NamedTuple):
    """One key in several scopes: a caller may hold passes to several events."""

    scopes: tuple[str, ...]
    key_hash: bytes


class IdempotencyRecord(NamedTuple):
    """The order that a key created, and the hash of the body it came with."""

    reference: str
    fingerprint: bytes


def fingerprint_of(request: Body) -> bytes:
    """The hash of a request's body. Raises `CardNumberRefused`."""
    body = request.model_dump_json()
    refuse_card_numbers(request, body)
    return hashlib.sha256(body.encode()).digest()


@contextmanager
def key_in_flight() -> Iterator[None]:
    """Raises `IdempotencyInFlight` if a row stays locked for too long: the first request with this key still runs."""
    try:
        yield
    except DBAPIError as failed:
        if isinstance(getattr(failed.orig, "__cause__", None), LockNotAvailableError):
            raise IdempotencyInFlight from failed
        raise


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
