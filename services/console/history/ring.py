"""The figures of the last hour in memory, one record a second."""

from collections import deque
from collections.abc import Iterator

from services.console.history.figures import Record, record_of
from shared.contracts.admin.console import Vitals

RECORDS_MAX = 3_600


class Ring:
    """Of one event."""

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
