"""What features decide about a line: the lane that a code opens, and who is called without waiting."""

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

from services.queue.line.repository import PlaceId
from services.queue.rooms.model import WaitingRoom
from shared.postgres.engine import AsyncConnection


class OpenedLanes(NamedTuple):
    """The lanes that codes open, by holder, and for others the slug of the problem that refuses their join."""

    lanes: dict[str, int]
    refused: dict[str, str]


class JoinCodes(Protocol):
    """The codes of one batch of joins."""

    async def open(self, driver: Any, holders: Collection[str], *, lock: bool) -> OpenedLanes:
        """The answer for those of these holders who have a code: before numbers are given, and with `lock` in the
        transaction that inserts the places, until it ends.
        """

    async def placed(self, driver: Any, lane: int, join_seqs: Mapping[str, int]) -> None:
        """These holders, some with a code, have places in the lane, in this transaction."""


class Bypass(Protocol):
    """Who is called without waiting for their turn."""

    def among(self, room: WaitingRoom, places: Iterable[tuple[PlaceId, str]]) -> set[PlaceId]:
        """Those of these places, with their holders, that need not wait. Without I/O."""

    async def call(self, room: WaitingRoom, place_ids: Iterable[PlaceId]) -> set[PlaceId]:
        """Calls them if a slot is free; those that were called. None is while Redis is unavailable."""

    async def ever_among(self, connection: AsyncConnection, room: WaitingRoom) -> Callable[[str], bool] | None:
        """Whether a holder need not have waited at some time until now; `None` if everybody had to."""


@dataclass(slots=True)
class LineRules:
    """Parts of features fill it in when they open. `codes` gets the codes of a batch, by holder."""

    codes: Callable[[WaitingRoom, Mapping[str, str]], JoinCodes] | None = None
    bypass: Bypass | None = None
