"""The figures that charts show, by their paths: the last hour of them, a record a second, and how they are thinned."""

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from shared.contracts.admin.console import PastAlarm, Vitals, VitalsHistory

PATHS = (
    "line.waiting", "line.called", "rate.set_per_s", "rate.effective_per_s", "rate.called_per_s",
    "rate.claimed_per_s", "stock.free", "stock.held", "stock.paying", "stock.sold", "orders.pending",
    "orders.confirmed", "wait.p50_s", "wait.p95_s", "streams.open", "room.active",
)  # fmt: skip
POINTS_MAX = 4_000
Values = tuple[float | None, ...]
RECORDS_MAX = 3_600


class Record(NamedTuple):
    """The figures of one moment, in the order of `PATHS`."""

    at_ms: int
    values: Values


def record_of(vitals: Vitals) -> Record:
    """The record of these figures."""
    return Record(vitals.at_ms, tuple(getattr(getattr(vitals, part), name) for part, name in _SPLIT))


_SPLIT = tuple(path.split(".") for path in PATHS)


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
        self._records.append(record_of(vitals))

    def repeat(self, at_ms: int) -> None:
        """Adds the last record again, as that of `at_ms`."""
        self._records.append(self._records[-1]._replace(at_ms=at_ms))

    def between(self, from_ms: int, to_ms: int) -> Iterator[Record]:
        """Its records in that time, oldest first."""
        return (record for record in self._records if from_ms <= record.at_ms <= to_ms)
