"""Idempotency keys of manual admissions, so that a double click or a repeated request calls nobody twice.

A key is stored before anybody is called and its result afterwards. A request that was broken off in between leaves a
key without a result: repeated with it, nobody is called.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from sqlalchemy import ColumnElement, delete, func, select, update
from sqlalchemy.dialects.postgresql import insert

from services.queue.tables import admit_key
from shared.contracts.admin.queue import AdmitResult
from shared.errors.problems import IdempotencyInFlight, IdempotencyKeyReused
from shared.postgres.engine import AsyncEngine
from shared.web.request import key_hash

KEPT = func.make_interval(0, 0, 0, 1)


class AdmitKeys:
    """The keys of the last day."""

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
            stored = select(admit_key.c.count, admit_key.c.called).where(*_is(event_id, key))
            before, called = (await connection.execute(stored)).one()
        if before != count:
            raise IdempotencyKeyReused
        if called is None:
            raise IdempotencyInFlight
        return AdmitResult(called=called, asked=count)

    async def finish(self, event_id: str, key: str, called: int) -> None:
        """Stores how many were called."""
        async with self._db.begin() as connection:
            await connection.execute(update(admit_key).where(*_is(event_id, key)).values(called=called))

    @asynccontextmanager
    async def given_back_on_refusal(self, event_id: str, key: str | None) -> AsyncIterator[None]:
        """What raises in this context called nobody, so that the key may be used again."""
        try:
            yield
        except BaseException:
            if key is not None:
                async with self._db.begin() as connection:
                    await connection.execute(delete(admit_key).where(*_is(event_id, key)))
            raise


def _is(event_id: str, key: str) -> tuple[ColumnElement[bool], ColumnElement[bool]]:
    return admit_key.c.event_id == event_id, admit_key.c.key_hash == key_hash(key)
