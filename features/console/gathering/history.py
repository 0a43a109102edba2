"""The figures that charts show, by their paths: the last hour in memory, a record a second, and before that samples in
the database, one in ten seconds and event, with the alarms that fired.

Any number of processes write samples: the first of a time stays, the others change nothing. Without the database there
are no samples, and everything else goes on.
"""

import time
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from operator import attrgetter
from typing import Any, NamedTuple

from sqlalchemy import delete, select
from sqlalchemy.dialects.postgresql import insert

from features.console.metrics import SAMPLES
from features.console.schemas import PastAlarm, Vitals, VitalsHistory
from features.console.tables import sample
from shared.postgres.engine import DB_AWAY, AsyncEngine, DBAPIError
from shared.runtime.logging import get_logger

log = get_logger("onsale.console")
PATHS = (
    "line.waiting", "line.called", "rate.set_per_s", "rate.effective_per_s", "rate.called_per_s",
    "rate.claimed_per_s", "stock.free", "stock.held", "stock.paying", "stock.sold", "orders.pending",
    "orders.confirmed", "wait.p50_s", "wait.p95_s", "streams.open", "room.active",
)  # fmt: skip
_figures = attrgetter(*PATHS)
POINTS_MAX = 4_000
Values = tuple[float | None, ...]
RECORDS_MAX = 3_600
ALARMS_KEY = "alarms"
DAY_S = 86_400


class Record(NamedTuple):
    """The figures of one moment, in the order of `PATHS`."""

    at_ms: int
    values: Values


def step_ms_of(from_ms: int, to_ms: int, step_s: int) -> int:
    """The step asked for, or the shortest that gives at most `POINTS_MAX` points."""
    return max(step_s, 1, -(-(to_ms - from_ms) // (POINTS_MAX * 1000))) * 1000


def thinned(records: Iterable[Record], step_ms: int) -> list[Record]:
    """The last record of each step; `records` are in the order of time."""
    steps = {record.at_ms // step_ms: record for record in records}
    return list(steps.values())[-POINTS_MAX:]


def history_of(records: Sequence[Record], alarms: list[PastAlarm]) -> VitalsHistory:
    """The same, a list for each figure."""
    return VitalsHistory(
        at_ms=[record.at_ms for record in records],
        series={path: [record.values[index] for record in records] for index, path in enumerate(PATHS)},
        alarms=alarms,
    )


class Ring:
    """The figures of one event in the last hour, in memory."""

    def __init__(self) -> None:
        self._records: deque[Record] = deque(maxlen=RECORDS_MAX)

    @property
    def last(self) -> Record | None:
        return self._records[-1] if self._records else None

    def add(self, vitals: Vitals) -> None:
        self._records.append(Record(vitals.at_ms, _figures(vitals)))

    def repeat(self, at_ms: int) -> None:
        """Adds the last record again, as that of `at_ms`."""
        self._records.append(self._records[-1]._replace(at_ms=at_ms))

    def between(self, from_ms: int, to_ms: int) -> Iterator[Record]:
        """Its records in that time, oldest first."""
        return (record for record in self._records if from_ms <= record.at_ms <= to_ms)


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
