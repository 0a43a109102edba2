"""The fans' documents, rendered from templates.

An event's page carries the answers that its script would ask for first: the event, its prices, what is left, the line.
So the first view takes four requests, and says the truth before any script has run. A page is rendered at most once a
second for each event and language, however many open it; without inventory or orders it comes with less, and its script
asks. What concerns one fan is not rendered with it: it has slots for that.
"""

import asyncio
import re
from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

import orjson
from mako.lookup import TemplateLookup

from features.pages.contracts import ShopClient
from features.pages.gateway.event_page import (
    ICON_SIZES,
    KEPT_S,
    READS_MAX,
    EventFacts,
    FactsReader,
    app_icons,
    event_data,
    for_script,
    starts_at,
)
from features.pages.gateway.formats import lobby, moment
from features.pages.gateway.stock import EventStock
from services.gateway.tuning import DEFAULTS
from services.gateway.waiting_line.cache import LineCache
from shared.concurrency.coalescing import CachedReads
from shared.contracts.catalogue import EventCard, EventLimits
from shared.errors.problems import Problem
from shared.web.answers import Document
from shared.web.built_files import Asset, assets
from shared.web.request import VARY
from shared.words.words import LANGUAGES, Words, words

PAGES = Path(__file__).parents[1]
BUILT = PAGES / "dist"
TEMPLATES = TemplateLookup(
    [str(PAGES / "templates")], default_filters=["h"], strict_undefined=True, input_encoding="utf-8"
)
INDENTED = re.compile(r"\n\s+")
STEPS = ("loading", "lobby", "waiting")
_slot = re.compile("\x00([a-z_]+)\x00")
HTML = "text/html; charset=utf-8"
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


def slot(name: str) -> str:
    """A slot, in a template."""
    return f"\x00{name}\x00"


class Shell:
    """A rendered page in pieces, every other one the name of a slot: it is rendered once for many, and a fan's own part
    is put in for each. So a fan's position never gets into a copy that others are sent, and costs no rendering.
    """

    def __init__(self, text: str) -> None:
        self._pieces = _slot.split(text)

    def filled(self, values: Mapping[str, str]) -> str:
        """The page with these values, which are HTML, in its slots; a slot without one stays empty."""
        pieces = list(self._pieces)
        pieces[1::2] = [values.get(name, "") for name in pieces[1::2]]
        return "".join(pieces)


def step_slots(step: str) -> dict[str, str]:
    """The slots that show one step of the event's page; sections of later steps belong to scripts and stay hidden."""
    return {"step": step, **{f"{name}_hidden": "" if name == step else "hidden" for name in STEPS}}


class EventShell(NamedTuple):
    """An event's page with slots, and the same for fans without a place and for those of whom that is not known."""

    facts: EventFacts
    stock: EventStock | None
    shell: Shell
    without_place: Document
    maybe_with_place: Document


class EventPages:
    """The pages of events."""

    def __init__(self, lines: LineCache, shop: ShopClient, public_url: str) -> None:
        self.reader = FactsReader(lines, shop, events_max=DEFAULTS.events_max)
        self._lines, self._public_url = lines, public_url
        self._pages: CachedReads[EventShell] = CachedReads(
            kept_s=KEPT_S, keys_max=DEFAULTS.events_max, in_flight_max=READS_MAX
        )

    async def page(self, event_id: str, language: str, *, may_have_place: bool) -> Document:
        """The event's page; to a fan who cannot have a place it says so, and its script need not ask."""
        page = await self.shell(event_id, language)
        return page.maybe_with_place if may_have_place else page.without_place

    async def shell(self, event_id: str, language: str) -> EventShell:
        """The page with its slots, for a fan's own part."""
        known = self._lines.cached(event_id) is not None
        return await self._pages.get(f"{event_id} {language}", partial(self._render, event_id, language), known=known)

    async def _render(self, event_id: str, language: str) -> EventShell:
        facts, text = await self.reader.facts(event_id), words(language)
        event, line, stock = facts.event, facts.line, EventStock.of(facts)
        brought = _brought(event_id, facts)
        there = starts_at(event) if event else None
        known = for_script(orjson.dumps(brought, option=orjson.OPT_NON_STR_KEYS))
        shell = Shell(rendered(
            "event.html", language, event_id=event_id, event=event, slot=slot, public_url=self._public_url,
            when=text.date(there) if there else "", time=text.time(there) if there else "",
            line=line, lobby=lobby(text, line.public(), event.timezone if event else "UTC") if line else None,
            stock=stock.rows(text) if stock else [], left_now=stock.left_now(text) if stock else "",
            limits=limit_words(text, event.limits) if event else "", least=stock.least(text) if stock else "",
            facts=f"{known[:-1]}{slot('status')}}}" if brought else "{}",
            data=event_data(facts, self._public_url) if event else "",
            touch_icon=app_icons(event.brand.logo if event and event.brand else None, app_icon_files())[0]["src"],
        ))  # fmt: skip
        none = step_slots("lobby" if line else "loading")
        none |= {"status": f',"/events/{quote(event_id)}/queue/status":null'}
        unknown = step_slots("loading") | {"own": rendered("go_on.html", language)}
        return EventShell(facts, stock, shell, *(_shared(shell.filled(slots), language) for slots in (none, unknown)))

    async def close(self) -> None:
        """Cancels the reads under way."""
        await self._pages.close()
        await self.reader.close()


def _brought(event_id: str, found: EventFacts) -> dict[str, Any]:
    """The answers by the path that the page's script would ask."""
    path, brought = f"/events/{quote(event_id)}", dict[str, Any]()
    if found.line:
        brought[f"{path}/queue"] = orjson.Fragment(found.line.body())
    if found.event and found.availability:
        brought[path] = found.event.model_dump(mode="json")
        brought[f"{path}/sections"] = found.availability.model_dump(mode="json")
    if found.prices:
        query = "&".join(f"each={minor}" for minor in found.minors)
        brought[f"/orders{path}/prices?{query}"] = found.prices.model_dump(mode="json")
    return brought


def app_icon_files() -> dict[int, Asset]:
    """Our icon by its size in pixels."""
    return {px: assets(BUILT)[f"icon-{px}.png"] for px in ICON_SIZES}


def _shared(text: str, language: str) -> Document:
    return Document(text.encode(), HTML, {**HEADERS, **of_language(language)})


def of_language(language: str) -> dict[str, str]:
    """The header fields of a page in this language."""
    return {"content-language": language, "vary": VARY}


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


# -- the list of events: complete before any script runs, rendered once in some seconds for each language --------------

LIST_KEPT_S, LISTS_MAX, LIST_READS_MAX, AT_ONCE = 5.0, 200, 8, 8


class ShownEvent(NamedTuple):
    """An event in the words of a language; `state` is empty while the line is not known."""

    card: EventCard
    when: str
    price: str
    state: str


class CataloguePages:
    """Pages of the list, each of some events."""

    def __init__(self, lines: LineCache, shop: ShopClient) -> None:
        self._lines, self._shop = lines, shop
        self._kept: CachedReads[Document] = CachedReads(
            kept_s=LIST_KEPT_S, keys_max=LISTS_MAX, in_flight_max=LIST_READS_MAX
        )

    async def page(self, language: str, after: str | None) -> Document:
        """The events after this one, or the first ones. Without inventory its script asks, and says so."""
        known = after is None
        return await self._kept.get(f"{language} {after or ''}", partial(self._render, language, after), known=known)

    async def _render(self, language: str, after: str | None) -> Document:
        try:
            listed = await self._shop.list_events(after)
        except Problem:
            return document("index.html", language, events=None, next_after=None)
        gate, text = asyncio.Semaphore(AT_ONCE), words(language)
        events = await asyncio.gather(*(self._shown(gate, text, card) for card in listed.events))
        next_after = listed.events[-1].event_id if listed.more else None
        return document("index.html", language, events=events, next_after=next_after)

    async def _shown(self, gate: asyncio.Semaphore, text: Words, card: EventCard) -> ShownEvent:
        """The line and the price of one event; a service that does not answer leaves them empty."""
        state, price = "", ""
        async with gate:
            with suppress(Problem):
                state = (await self._lines.line(card.event_id)).frame.state
            with suppress(Problem):
                minor = card.price_from_minor
                whole = (await self._shop.prices(card.event_id, [minor])).all_in.get(minor, minor)
                price = text("price_from", price=text.money(whole, card.currency))
        return ShownEvent(card, moment(text, card.starts_at, card.timezone), price, state)

    async def close(self) -> None:
        """Cancels the reads under way."""
        await self._kept.close()
