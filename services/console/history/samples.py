"""Samples of figures in the database, one in ten seconds and event, for charts of what was before; with the alarms that
fired.

Any number of processes write: the first sample of a time stays, the others change nothing. Without the database there
are no samples, and everything else goes on.
"""

import time
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from sqlalchemy import delete, select
from sqlalchemy.dialects.postgresql import insert

from services.console.history.figures import PATHS, Record
from services.console.metrics import SAMPLES
from services.console.tables import sample
from shared.postgres.engine import DB_AWAY, AsyncEngine, DBAPIError
from shared.runtime.logging import get_logger

log = get_logger("onsale.console")
ALARMS_KEY = "alarms"
DAY_S = 86_400


class Sample(NamedTuple):
    """The record of an event at a time that is a multiple of ten seconds. `alarms` has the summaries of those that
    fired, by name.
    """

    event_id: str
    at_10s: int
    record: Record
    alarms: Mapping[str, str] = {}


class Samples:
    """All samples."""

    def __init__(self, db: AsyncEngine, *, kept_days: int) -> None:
        self._db, self._kept_days = db, kept_days

    async def keep(self, samples: Sequence[Sample]) -> None:
        """Writes samples; those that are there already stay."""
        rows = [{"event_id": one.event_id, "at_10s": one.at_10s, "values": _values(one)} for one in samples]
        if not rows:
            return
        try:
            async with self._db.begin() as connection:
                await connection.execute(insert(sample).on_conflict_do_nothing(), rows)
            SAMPLES.labels("kept").inc(len(rows))
        except (*DB_AWAY, DBAPIError) as away:
            SAMPLES.labels("failed").inc(len(rows))
            log.warning("console.samples_lost", samples=len(rows), error=type(away).__name__)

    async def between(self, event_id: str, from_ms: int, to_ms: int) -> list[Sample]:
        """The samples of that time, oldest first; none without the database."""
        wanted = (
            select(sample.c.at_10s, sample.c["values"])
            .where(sample.c.event_id == event_id, sample.c.at_10s.between(from_ms // 1000, to_ms // 1000))
            .order_by(sample.c.at_10s)
        )
        try:
            async with self._db.connect() as connection:
                rows = (await connection.execute(wanted)).all()
        except (*DB_AWAY, DBAPIError) as away:
            log.warning("console.samples_unread", event_id=event_id, error=type(away).__name__)
            return []
        return [_sample(event_id, at_10s, values) for at_10s, values in rows]

    async def forget(self) -> None:
        """Deletes what is too old."""
        oldest = int(time.time()) - self._kept_days * DAY_S
        async with self._db.begin() as connection:
            await connection.execute(delete(sample).where(sample.c.at_10s < oldest))


def _values(one: Sample) -> dict[str, Any]:
    values: dict[str, Any] = dict(zip(PATHS, one.record.values, strict=True))
    return values | {ALARMS_KEY: dict(one.alarms)} if one.alarms else values


def _sample(event_id: str, at_10s: int, values: Mapping[str, Any]) -> Sample:
    record = Record(at_10s * 1000, tuple(values.get(path) for path in PATHS))
    return Sample(event_id, at_10s, record, values.get(ALARMS_KEY, {}))
