"""The fans' documents, rendered from templates.

An event's page carries the answers that its script would ask for first: the event, its prices, what is left, the line.
So the first view takes four requests, and shows the truth before any script has run. A page is rendered at most once a
second for each event and language, however many open it; without inventory or orders it comes with less, and its script
asks.
"""

import re
from contextlib import suppress
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import quote
from zoneinfo import ZoneInfo

import orjson
from mako.lookup import TemplateLookup

from services.gateway.settings import Settings
from services.gateway.waiting_line.cache import LineCache
from shared.concurrency.cached_reads import CachedReads
from shared.contracts.catalogue import EventDetails, EventLimits
from shared.contracts.inventory import InventoryClient
from shared.contracts.orders import OrdersClient
from shared.contracts.prices import PRICES_MAX
from shared.web.languages import VARY
from shared.web.pages.built_files import assets
from shared.web.pages.document import Document
from shared.web.pages.words import LANGUAGES, Words, words
from shared.web.problems import Problem

PAGES = Path(__file__).parent / "pages"
BUILT = PAGES / "dist"
KEPT_S, READS_MAX = 1.0, 64
TEMPLATES = TemplateLookup(
    [str(PAGES / "templates")], default_filters=["h"], strict_undefined=True, input_encoding="utf-8"
)
INDENTED = re.compile(r"\n\s+")
HEADERS = {
    "content-security-policy": "default-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'self'",
    "x-content-type-options": "nosniff",
    "referrer-policy": "same-origin",
    "cache-control": "no-cache",
}


def rendered(template: str, language: str, **values: object) -> str:
    """A page of this template in this language; values are escaped, and the template's indentation is not sent."""
    page = TEMPLATES.get_template(template)
    languages = [words(each) for each in LANGUAGES]
    text: str = page.render(assets=assets(BUILT), text=words(language), languages=languages, **values)
    return INDENTED.sub("\n", text)


def document(template: str, language: str, **values: object) -> Document:
    """The same, ready to be sent to many."""
    headers = {**HEADERS, "content-language": language, "vary": VARY}
    return Document(rendered(template, language, **values), headers)


class EventPages:
    """The pages of events."""

    def __init__(self, lines: LineCache, inventory: InventoryClient, orders: OrdersClient, settings: Settings) -> None:
        self._lines, self._inventory, self._orders = lines, inventory, orders
        self._pages: CachedReads[Document] = CachedReads(
            kept_s=KEPT_S, keys_max=settings.events_max, in_flight_max=READS_MAX
        )

    async def page(self, event_id: str, language: str, *, may_have_place: bool) -> Document:
        """The event's page; to a fan who cannot have a place it says so, and its script need not ask."""
        key = f"{event_id} {language} {may_have_place}"
        return await self._pages.get(key, partial(self._render, event_id, language, may_have_place=may_have_place))

    async def _render(self, event_id: str, language: str, *, may_have_place: bool) -> Document:
        event, brought = await self._read(event_id)
        if not may_have_place:
            brought[f"/events/{quote(event_id)}/queue/status"] = None
        facts = orjson.dumps(brought, option=orjson.OPT_NON_STR_KEYS).decode().replace("<", "\\u003c")
        text = words(language)
        when, limits = (text.date(_starts_at(event)), limit_words(text, event.limits)) if event else ("", "")
        return document("event.html", language, event=event, when=when, limits=limits, facts=facts)

    async def _read(self, event_id: str) -> tuple[EventDetails | None, dict[str, Any]]:
        """The event, and the answers by the path that the script would ask."""
        path, brought = f"/events/{quote(event_id)}", dict[str, Any]()
        with suppress(Problem):
            line = await self._lines.line(event_id)
            brought[f"{path}/queue"] = orjson.Fragment(line.body())
        event = None
        with suppress(Problem):
            found = await self._inventory.event_page(event_id)
            event = found.event
            brought[path] = event.model_dump(mode="json")
            brought[f"{path}/sections"] = found.availability.model_dump(mode="json")
            minors = _prices_of(event)[:PRICES_MAX]
            prices = await self._orders.prices(event_id, minors)
            query = "&".join(f"each={minor}" for minor in minors)
            brought[f"/orders{path}/prices?{query}"] = prices.model_dump(mode="json")
        return event, brought

    async def close(self) -> None:
        """Cancels the reads under way."""
        await self._pages.close()


def _prices_of(event: EventDetails) -> list[int]:
    """Each price once, in the order in which the page's script asks for them."""
    return list(dict.fromkeys(
        minor
        for section in event.sections
        for minor in (section.price_minor, *(level.price_minor for level in section.price_levels))
    ))  # fmt: skip


LIMITS = {
    "tickets_per_order": "event_limit", "tickets_per_customer": "limit_customer",
    "tour_tickets_per_customer": "limit_tour",
}  # fmt: skip


def limit_words(text: Words, limits: EventLimits) -> str:
    """The limits of an event, as `web/fans/limits.js` has them: one that another makes pointless is left out."""
    per_order = limits.tickets_per_order
    shown = [
        text(key, n=n)
        for name, key in LIMITS.items()
        if (n := getattr(limits, name)) and (name == "tickets_per_order" or n != per_order)
    ]
    return " · ".join(shown)


def _starts_at(event: EventDetails) -> datetime:
    return event.starts_at.astimezone(ZoneInfo(event.timezone))
