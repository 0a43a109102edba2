"""The fans' documents, rendered from templates.

An event's page carries the answers that its script would ask for first: the event, its prices, what is left, the line.
So the first view takes four requests, and says the truth before any script has run. A page is rendered at most once a
second for each event and language, however many open it; without inventory or orders it comes with less, and its script
asks. What concerns one fan is not rendered with it: it has slots for that.
"""

import re
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote
from zoneinfo import ZoneInfo

import orjson
from mako.lookup import TemplateLookup

from services.gateway.fan_pages.formats import clock_time
from services.gateway.fan_pages.line_words import lobby
from services.gateway.fan_pages.shell import Shell, slot, step_slots
from services.gateway.fan_pages.stock import EventStock
from services.gateway.settings import Settings
from services.gateway.waiting_line.cache import LineCache
from services.gateway.waiting_line.snapshot import LineSnapshot
from shared.concurrency.cached_reads import CachedReads
from shared.contracts.catalogue import EventDetails, EventLimits
from shared.contracts.inventory import InventoryClient
from shared.contracts.orders import OrdersClient
from shared.contracts.prices import PRICES_MAX
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
    return _shared(rendered(template, language, **values), language)


class EventFacts(NamedTuple):
    """What an event's page says, as far as it is known; `brought`: the same by the path that its script would ask."""

    event: EventDetails | None
    line: LineSnapshot | None
    stock: EventStock | None
    brought: dict[str, Any]


class EventShell(NamedTuple):
    """An event's page with slots, and the same for fans without a place and for those of whom that is not known."""

    facts: EventFacts
    shell: Shell
    without_place: Document
    maybe_with_place: Document


class EventPages:
    """The pages of events."""

    def __init__(self, lines: LineCache, inventory: InventoryClient, orders: OrdersClient, settings: Settings) -> None:
        self._lines, self._inventory, self._orders = lines, inventory, orders
        self._pages: CachedReads[EventShell] = CachedReads(
            kept_s=KEPT_S, keys_max=settings.events_max, in_flight_max=READS_MAX
        )

    async def page(self, event_id: str, language: str, *, may_have_place: bool) -> Document:
        """The event's page; to a fan who cannot have a place it says so, and its script need not ask."""
        page = await self.shell(event_id, language)
        return page.maybe_with_place if may_have_place else page.without_place

    async def shell(self, event_id: str, language: str) -> EventShell:
        """The page with its slots, for a fan's own part."""
        return await self._pages.get(f"{event_id} {language}", partial(self._render, event_id, language))

    async def _render(self, event_id: str, language: str) -> EventShell:
        facts, text = await self._read(event_id), words(language)
        event, line = facts.event, facts.line
        brought = orjson.dumps(facts.brought, option=orjson.OPT_NON_STR_KEYS).decode().replace("<", "\\u003c")
        zone = event.timezone if event else "UTC"
        there = event.starts_at.astimezone(ZoneInfo(zone)) if event else None
        shell = Shell(rendered(
            "event.html", language, event_id=event_id, event=event, slot=slot,
            when=text.date(there) if there else "", time=clock_time(text, there) if there else "",
            line=line, lobby=lobby(text, line.public(), zone) if line else None,
            stock=facts.stock.rows(text) if facts.stock else [],
            left_now=facts.stock.left_now(text) if facts.stock else "",
            limits=limit_words(text, event.limits) if event else "",
            least=facts.stock.least(text) if facts.stock else "",
            facts=f"{brought[:-1]}{slot('status')}}}" if facts.brought else "{}",
        ))  # fmt: skip
        first = "lobby" if line else "loading"
        none = step_slots(first) | {"status": f',"/events/{quote(event_id)}/queue/status":null'}
        unknown = step_slots("loading") | {"own": rendered("go_on.html", language)}
        return EventShell(facts, shell, *(_shared(shell.filled(slots), language) for slots in (none, unknown)))

    async def _read(self, event_id: str) -> EventFacts:
        path, brought = f"/events/{quote(event_id)}", dict[str, Any]()
        line = event = stock = None
        with suppress(Problem):
            line = await self._lines.line(event_id)
            brought[f"{path}/queue"] = orjson.Fragment(line.body())
        with suppress(Problem):
            found = await self._inventory.event_page(event_id)
            event = found.event
            stock = EventStock(event, found.availability)
            brought[path] = event.model_dump(mode="json")
            brought[f"{path}/sections"] = found.availability.model_dump(mode="json")
            minors = stock.prices()[:PRICES_MAX]
            prices = await self._orders.prices(event_id, minors)
            stock = stock.priced(prices)
            query = "&".join(f"each={minor}" for minor in minors)
            brought[f"/orders{path}/prices?{query}"] = prices.model_dump(mode="json")
        return EventFacts(event, line, stock, brought)

    async def close(self) -> None:
        """Cancels the reads under way."""
        await self._pages.close()


def _shared(text: str, language: str) -> Document:
    return Document(text, {**HEADERS, **of_language(language)})


def of_language(language: str) -> dict[str, str]:
    """The header fields of a page in this language."""
    return {"content-language": language, "vary": "accept-language, cookie"}


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
