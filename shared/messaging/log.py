"""The event log as the suite uses it: ordered and durable; services append events to it, and others read them.

A log has streams. All events of one source about one on-sale are in one stream, in order, delivered at least once. A
position is an opaque string that belongs to one stream; a reader stores it together with the effect of what it read.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol

START = ""  # the position before the oldest entry that is kept
PUBLISH_S = 4.0  # shorter than a silent relay keeps its lock, which it therefore still has after a time-out


class PendingEvent(NamedTuple):
    """An event to be appended. A log that can do so recognises a duplicate by `id`."""

    id: str
    event_id: str
    type: str
    body: str


class LogEntry(NamedTuple):
    """An event in the log, and the position after which to continue."""

    stream: str
    position: str
    body: bytes


class LogUnavailable(Exception):
    """The event log did not accept or deliver events in time."""


class LogRefused(Exception):
    """The event log is configured wrongly. The message is one clear line."""


class EventLog(Protocol):
    """The operations that relays and readers use. A log connects at its first use and reconnects by itself."""

    async def publish(self, source: str, batch: Sequence[PendingEvent]) -> None:
        """Appends the batch in order and returns when it is durable. Raises `LogUnavailable`; then the first events may
        have been appended, and the caller publishes the whole batch again.
        """
        ...

    async def streams(self, source: str) -> list[str]:
        """The names of all streams with events of this source."""
        ...

    async def read(self, positions: Mapping[str, str], *, count: int, wait_s: float) -> list[LogEntry]:
        """The entries after `positions` (stream → position), in order within each stream, at most `count` of each; an
        empty list if none arrives within `wait_s`.
        """
        ...

    async def close(self) -> None:
        """Closes the connection."""
        ...
