"""The list of events as a page: complete before any script runs, rendered once in some seconds for each language."""

import asyncio
from contextlib import suppress
from functools import partial
from typing import NamedTuple

from services.gateway.documents import document
from services.gateway.fan_pages.formats import moment
from services.gateway.waiting_line.cache import LineCache
from shared.concurrency.coalescing import CachedReads
from shared.contracts.catalogue import EventCard
from shared.contracts.inventory import InventoryClient
from shared.contracts.orders import OrdersClient
from shared.errors.problems import Problem
from shared.web.answers import Document
from shared.words.words import Words, words

KEPT_S, PAGES_MAX, READS_MAX, AT_ONCE = 5.0, 200, 8, 8


class ShownEvent(NamedTuple):
    """An event in the words of a language; `state` is empty while the line is not known."""

    card: EventCard
    when: str
    price: str
    state: str


class CataloguePages:
    """Pages of the list, each of some events."""

    def __init__(self, lines: LineCache, inventory: InventoryClient, orders: OrdersClient) -> None:
        self._lines, self._inventory, self._orders = lines, inventory, orders
        self._kept: CachedReads[Document] = CachedReads(kept_s=KEPT_S, keys_max=PAGES_MAX, in_flight_max=READS_MAX)

    async def page(self, language: str, after: str | None) -> Document:
        """The events after this one, or the first ones. Without inventory its script asks, and says so."""
        known = after is None
        return await self._kept.get(f"{language} {after or ''}", partial(self._render, language, after), known=known)

    async def _render(self, language: str, after: str | None) -> Document:
        try:
            listed = await self._inventory.list_events(after)
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
                whole = (await self._orders.prices(card.event_id, [minor])).all_in.get(minor, minor)
                price = text("price_from", price=text.money(whole, card.currency))
        return ShownEvent(card, moment(text, card.starts_at, card.timezone), price, state)

    async def close(self) -> None:
        """Cancels the reads under way."""
        await self._kept.close()
