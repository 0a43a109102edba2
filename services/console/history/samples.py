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
from shared.alarms import ALARMS
from shared.contracts.admin.console import PastAlarm
from shared.postgres.engine import DB_AWAY, AsyncEngine, DBAPIError
from shared.runtime.logging import get_logger

log = get_logger("onsale.console")
SAMPLE_S = 10
MISSED_S = 35  # an alarm that fires again within this time has fired all along
ALARMS_KEY, ALARMS_MAX = "alarms", 200
KNOWN = {alarm.name: alarm for alarm in ALARMS}
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

    async def between(self, event_id: str, from_ms: int, to_ms: int) -> list[Record]:
        """The samples of that time, oldest first; none without the database."""
        rows = await self._read(event_id, from_ms, to_ms, sample.c["values"])
        return [Record(at * 1000, tuple(values.get(path) for path in PATHS)) for at, values in rows]

    async def alarms(self, event_id: str, from_ms: int, to_ms: int) -> list[PastAlarm]:
        """The alarms that fired in that time, newest first."""
        return _alarms(await self._read(event_id, from_ms, to_ms, sample.c["values"][ALARMS_KEY]))

    async def _read(self, event_id: str, from_ms: int, to_ms: int, wanted: Any) -> Sequence[Any]:
        rows = (
            select(sample.c.at_10s, wanted)
            .where(sample.c.event_id == event_id, sample.c.at_10s.between(from_ms // 1000, to_ms // 1000))
            .order_by(sample.c.at_10s)
        )
        try:
            async with self._db.connect() as connection:
                return (await connection.execute(rows)).all()
        except (*DB_AWAY, DBAPIError) as away:
            log.warning("console.samples_unread", event_id=event_id, error=type(away).__name__)
            return []

    async def forget(self) -> None:
        """Deletes what is too old."""
        oldest = int(time.time()) - self._kept_days * DAY_S
        async with self._db.begin() as connection:
            await connection.execute(delete(sample).where(sample.c.at_10s < oldest))


def _values(one: Sample) -> dict[str, Any]:
    values: dict[str, Any] = dict(zip(PATHS, one.record.values, strict=True))
    return values | {ALARMS_KEY: dict(one.alarms)} if one.alarms else values


def _alarms(rows: Sequence[tuple[int, Mapping[str, str] | None]]) -> list[PastAlarm]:
    """From the alarms of each sample, oldest first: each from its first sample to its last."""
    fires: dict[str, PastAlarm] = {}
    ended: list[PastAlarm] = []
    last_s = rows[-1][0] if rows else 0
    fired_at_s: dict[str, int] = {}
    for at_s, names in rows:
        for name, summary in (names or {}).items():
            if name in fires and at_s - fired_at_s[name] > MISSED_S:
                ended.append(fires.pop(name))
            fired_at_s[name] = at_s
            if name in fires:
                fires[name].ended_ms = (at_s + SAMPLE_S) * 1000
            elif name in KNOWN:
                alarm = KNOWN[name]
                fires[name] = PastAlarm(
                    name=name, severity=alarm.severity, summary=summary, do=alarm.do, since_ms=at_s * 1000,
                    ended_ms=(at_s + SAMPLE_S) * 1000,
                )  # fmt: skip
    for name, past in fires.items():
        past.ended_ms = None if fired_at_s[name] == last_s else past.ended_ms
    return sorted([*ended, *fires.values()], key=lambda alarm: -alarm.since_ms)[:ALARMS_MAX]
