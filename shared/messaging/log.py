"""The event log as the suite uses it: facts are added in their order, and read on from a point by whoever keeps one.

A log has streams. All that one source tells of one on-sale is in one stream, in the order in which it was told, at
least once. A position is an opaque text that belongs to one stream; readers keep it themselves, with the effect.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol

START = ""  # the position before all that is still there
PUBLISH_S = 4.0  # less than the lease of a relay: who gives up still holds it


class Told(NamedTuple):
    """An event on its way into the log. By `id`, its own, a log that can recognises a repetition."""

    id: str
    event_id: str
    type: str
    body: str


class Entry(NamedTuple):
    """An event in the log, as it was written, and where to read on after it."""

    stream: str
    position: str
    body: bytes


class LogAway(Exception):
    """The event log does not take or give what was asked in time."""


class LogRefused(Exception):
    """The event log cannot be used as it was asked for. The message is one clear line."""


class EventLog(Protocol):
    """What relays and readers need of a log. It connects when it is first used, and again whenever it has to."""

    async def publish(self, source: str, batch: Sequence[Told]) -> None:
        """Adds the batch in order and returns when it will not be lost. If it raises, a beginning may have been added:
        the batch is given again.
        """
        ...

    async def streams(self, source: str) -> list[str]:
        """The names of the streams in which everything is that this source tells."""
        ...

    async def read(self, positions: Mapping[str, str], *, count: int, wait_s: float) -> list[Entry]:
        """What comes after `positions` (stream → position), each stream in its order, `count` of each at most; nothing
        if nothing comes within `wait_s`.
        """
        ...

    async def close(self) -> None:
        """Lets the connection go."""
        ...
