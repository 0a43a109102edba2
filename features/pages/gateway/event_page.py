"""The facts of one event, read at most once a second however many ask, in whatever language or form; and what its page
tells other programs of them: search engines, the home screens of phones, and the buttons on promoters' sites.
"""

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Any
from urllib.parse import quote

import orjson
from pydantic import BaseModel, Field

from features.pages.contracts import ShopClient, TypePrice
from services.gateway.waiting_line.cache import LineCache
from services.gateway.waiting_line.snapshot import LineSnapshot
from shared.concurrency.coalescing import CachedReads
from shared.contracts.catalogue import EventDetails, PriceLevelDetails, SectionDetails, SectionList, ShownPicture
from shared.contracts.prices import PRICES_MAX, PricesAnswer
from shared.errors.problems import Problem, Unavailable, UnknownEvent
from shared.rules.currencies import decimal_amount
from shared.runtime.clock import rfc3339, zone_of
from shared.web.built_files import Asset
from shared.words.words import Words

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
        left = any(each.available_seats or each.held_seats or each.reserved_seats for each in sections)
        return "sold_out" if sections and not left and state not in OVER else state

    @property
    def all_in(self) -> list[int]:
        """The prices with everything in them; without them if orders does not answer."""
        known = self.prices.all_in if self.prices else {}
        return [known.get(minor, minor) for minor in self.minors]


class FactsReader:
    """Reads the facts of events."""

    def __init__(self, lines: LineCache, shop: ShopClient, *, events_max: int) -> None:
        self._lines, self._shop = lines, shop
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
            page = await self._shop.event_page(event_id)
        except Problem:
            return EventFacts(line)
        minors = _prices_of(page.event)[:PRICES_MAX]
        prices: PricesAnswer | None = None
        with suppress(Problem):
            prices = await self._shop.prices(event_id, minors, _type_prices_of(page.event)[:PRICES_MAX])
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


def priced_places(event: EventDetails) -> Iterator[SectionDetails | PriceLevelDetails]:
    """The sections and their price levels."""
    for section in event.sections:
        yield section
        yield from section.price_levels


def _type_prices_of(event: EventDetails) -> list[TypePrice]:
    """Each price of each other price type once."""
    pairs = dict.fromkeys(pair for at in priced_places(event) for pair in at.prices.items())
    return [TypePrice(type_id=type_id, price_minor=minor) for type_id, minor in pairs]


# -- for search engines ------------------------------------------------------------------------------------------------
# JSON-LD by schema.org, in the head of the page. It is data, which no policy forbids.

AVAILABILITY = {"sold_out": "SoldOut", "closed": "SoldOut", "prequeue": "PreSale", "draft": "PreSale"}


def for_script(data: bytes) -> str:
    """JSON as the text of a `script` element: nothing in it ends the element."""
    return data.decode().replace("<", "\\u003c")


def event_data(facts: EventFacts, public_url: str) -> str:
    """Text for a `script` element."""
    event, line = facts.found, facts.line
    data: dict[str, Any] = {
        "@context": "https://schema.org", "@type": "Event", "name": event.name,
        "startDate": starts_at(event).isoformat(), "eventStatus": "https://schema.org/EventScheduled",
        "eventAttendanceMode": "https://schema.org/OfflineEventAttendanceMode",
        "location": {"@type": "Place", "name": event.venue, "address": event.venue},
        "url": public_url + event_path(event.event_id),
    }  # fmt: skip
    if event.ends_at:
        data["endDate"] = event.ends_at.astimezone(zone_of(event.timezone)).isoformat()
    if event.picture:
        data["image"] = [public_url + event.picture.url]
    if event.brand and event.brand.name:
        data["organizer"] = {"@type": "Organization", "name": event.brand.name}
    if prices := facts.all_in:
        low, high = (decimal_amount(minor, event.currency) for minor in (min(prices), max(prices)))
        data["offers"] = {
            "@type": "AggregateOffer", "lowPrice": low, "highPrice": high, "priceCurrency": event.currency,
            "availability": f"https://schema.org/{AVAILABILITY.get(facts.state or '', 'InStock')}", "url": data["url"],
        }  # fmt: skip
        if line and line.frame.sale_starts_at_ms:
            data["offers"]["validFrom"] = rfc3339(line.frame.sale_starts_at_ms)
    return for_script(orjson.dumps(data))


# -- for home screens --------------------------------------------------------------------------------------------------

ICON_MIN_PX = 144  # smaller ones make a page not installable
PAPER = "#f6f5f1"
ICON_SIZES = (192, 512)


def app_icons(logo: ShownPicture | None, ours: dict[int, Asset]) -> list[dict[str, str]]:
    """The logo if a home screen can show it, else ours."""
    if logo and logo.url.endswith(".svg"):
        return [{"src": logo.url, "sizes": "any", "type": "image/svg+xml"}]
    if logo and logo.width == logo.height >= ICON_MIN_PX:
        return [{"src": logo.url, "sizes": f"{logo.width}x{logo.height}"}]
    return [{"src": f"/static/{ours[px].name}", "sizes": f"{px}x{px}", "type": "image/png"} for px in ICON_SIZES]


def manifest(event: EventDetails, language: str, ours: dict[int, Asset]) -> bytes:
    """The manifest: its page opens without the browser's frame, in the colours of the brand."""
    brand, path = event.brand, event_path(event.event_id)
    paper = (brand and brand.background) or PAPER
    found: dict[str, Any] = {
        "id": path, "name": event.name, "short_name": event.name[:30], "description": event.venue, "lang": language,
        "start_url": path, "scope": "/", "display": "standalone", "theme_color": paper, "background_color": paper,
        "icons": app_icons(brand.logo if brand else None, ours),
    }  # fmt: skip
    return orjson.dumps(found)


# -- for buttons on other sites ----------------------------------------------------------------------------------------

POLL_S, POLL_AFTER_THE_END_S = 15, 300
LINE_SHOWN_IN = frozenset({"prequeue", "open", "last_chance", "paused", "draining"})


class ButtonAnswer(BaseModel):
    """The button's words and colours. In `status`, `{moment}` stands for `at` in the visitor's own time."""

    name: str
    state: str | None
    label: str
    status: str
    window: str = Field(description="What a screen reader adds: that it opens a window.")
    at: str | None
    direction: str
    accent: str | None
    accent_dark: str | None
    poll_after_s: int


def button(facts: EventFacts, text: Words) -> ButtonAnswer:
    """Raises `Unavailable` and `UnknownEvent`."""
    event, line, state = facts.found, facts.line, facts.state
    starts_ms = line.frame.sale_starts_at_ms if line and state == "prequeue" else None
    words = []
    if starts_ms is not None:
        words.append(text("button_starts", moment="{moment}"))
    elif state:
        words.append(text(f"state_{state}"))
    if line and state in LINE_SHOWN_IN and line.waiting:
        words.append(text("button_in_line", n=line.waiting))
    brand = event.brand
    return ButtonAnswer(
        name=event.name, state=state, label=text("button_label"), status=" · ".join(words),
        window=text("button_window"), at=rfc3339(starts_ms) if starts_ms is not None else None,
        direction=text.direction, accent=brand.accent if brand else None,
        accent_dark=brand.accent_dark if brand else None,
        poll_after_s=POLL_AFTER_THE_END_S if state in OVER else POLL_S,
    )  # fmt: skip
