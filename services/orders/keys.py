"""What idempotency keys were used for: a key belongs to a scope, and a caller may hold passes to several."""

from collections.abc import Sequence
from typing import NamedTuple

from sqlalchemy import select
from sqlalchemy.dialects.postgresql import insert

from services.orders.references import key_hash
from services.orders.tables import idempotency
from shared.postgres import AsyncConnection, AsyncEngine, statement
from shared.problems import IdempotencyKeyReused

_FIND = statement(__package__, "find_keys")


class Question(NamedTuple):
    """One key, in any of these scopes."""

    scopes: tuple[str, ...]
    key_hash: bytes


class Known(NamedTuple):
    """The order a key made, and the body it was sent with."""

    reference: str
    fingerprint: bytes


async def find(engine: AsyncEngine, questions: Sequence[Question]) -> list[Known | None]:
    """One answer per question, in order."""
    pairs = [(scope, question.key_hash) for question in questions for scope in question.scopes]
    bound = {"scopes": [scope for scope, _ in pairs], "key_hashes": [key_hash.hex() for _, key_hash in pairs]}
    async with engine.connect() as connection:
        rows = await connection.execute(_FIND, bound)
        known = {(row.scope, bytes(row.key_hash)): Known(row.reference, bytes(row.fingerprint)) for row in rows}
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
