"""The facts of one event, read at most once a second however many ask, in whatever language or form."""

from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from urllib.parse import quote

from services.gateway.waiting_line.cache import LineCache
from services.gateway.waiting_line.snapshot import LineSnapshot
from shared.concurrency.coalescing import CachedReads
from shared.contracts.catalogue import EventDetails, SectionList
from shared.contracts.inventory import InventoryClient
from shared.contracts.orders import OrdersClient
from shared.contracts.prices import PRICES_MAX, PricesAnswer
from shared.errors.problems import Problem, Unavailable, UnknownEvent
from shared.runtime.clock import zone_of

KEPT_S, READS_MAX = 1.0, 64
OVER = frozenset({"sold_out", "closed"})


@dataclass(frozen=True, slots=True)
class EventFacts:
    """What is known of an event. A part is None while the service that knows it does not answer."""

    line: LineSnapshot | None = None
    event: EventDetails | None = None
    availability: SectionList | None = None
    prices: PricesAnswer | None = None
    minors: tuple[int, ...] = ()

    @property
    def found(self) -> EventDetails:
        """The event. Raises `Unavailable`, or `UnknownEvent` if there is no line either."""
        if self.event is None:
            raise Unavailable if self.line else UnknownEvent
        return self.event

    @property
    def state(self) -> str | None:
        """The state of the line: `sold_out` also if nothing is left of the stock or may come back."""
        state = self.line.frame.state if self.line else None
        sections = self.availability.sections if self.availability else []
        left = any(each.available_seats or each.held_seats for each in sections)
        return "sold_out" if sections and not left and state not in OVER else state

    @property
    def all_in(self) -> list[int]:
        """The prices with everything in them; without them if orders does not answer."""
        known = self.prices.all_in if self.prices else {}
        return [known.get(minor, minor) for minor in self.minors]


class FactsReader:
    """Reads the facts of events."""

    def __init__(self, lines: LineCache, inventory: InventoryClient, orders: OrdersClient, *, events_max: int) -> None:
        self._lines, self._inventory, self._orders = lines, inventory, orders
        self._kept: CachedReads[EventFacts] = CachedReads(kept_s=KEPT_S, keys_max=events_max, in_flight_max=READS_MAX)

    async def facts(self, event_id: str) -> EventFacts:
        """Those of the last second."""
        known = self._lines.cached(event_id) is not None
        return await self._kept.get(event_id, partial(self._read, event_id), known=known)

    async def _read(self, event_id: str) -> EventFacts:
        line: LineSnapshot | None = None
        with suppress(Problem):
            line = await self._lines.line(event_id)
        try:
            page = await self._inventory.event_page(event_id)
        except Problem:
            return EventFacts(line)
        minors = _prices_of(page.event)[:PRICES_MAX]
        prices: PricesAnswer | None = None
        with suppress(Problem):
            prices = await self._orders.prices(event_id, minors)
        return EventFacts(line, page.event, page.availability, prices, tuple(minors))

    async def close(self) -> None:
        """Cancels the reads under way."""
        await self._kept.close()


def event_path(event_id: str) -> str:
    """The path of the event's page."""
    return f"/e/{quote(event_id)}"


def starts_at(event: EventDetails) -> datetime:
    """On the venue's clock."""
    return event.starts_at.astimezone(zone_of(event.timezone))


def _prices_of(event: EventDetails) -> list[int]:
    """Each price once, in the order in which the page's script asks for them."""
    return list(dict.fromkeys(
        minor
        for section in event.sections
        for minor in (section.price_minor, *(level.price_minor for level in section.price_levels))
    ))  # fmt: skip
