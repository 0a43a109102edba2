"""A double of inventory and orders, as the pages ask them."""

import asyncio
from collections.abc import Sequence
from typing import Any

from features.pages.contracts import EventPageFacts, ListedEvents, TypePrice
from shared.contracts.catalogue import EventCard, EventDetails, SectionAvailability, SectionList
from shared.contracts.prices import PricesAnswer
from shared.errors.problems import Unavailable


class Shop:
    """Inventory and orders; they count questions, and answer nothing while `away`. `more` changes the event."""

    def __init__(self) -> None:
        self.away, self.asked = False, 0
        self.more: dict[str, Any] = {}
        self.left: int | None = None
        self.reserved = 0

    async def event_page(self, event_id: str) -> EventPageFacts:
        self.asked += 1
        await asyncio.sleep(0)
        if self.away:
            raise Unavailable
        event = EventDetails.model_validate({
            "event_id": event_id, "name": "<i>Show</i>", "venue": "Arena", "starts_at": "2030-06-01T18:00:00Z",
            "timezone": "Europe/Berlin", "currency": "EUR", "price_from_minor": 100,
            "limits": {"tickets_per_order": 6, "tickets_per_customer": 0, "tour_tickets_per_customer": 0,
                       "hold_ttl_s": 300, "pay_ttl_s": 600},
            "sections": [
                {"section_id": name, "name": name, "kind": "seated", "type": "std", "capacity": 10, "price_minor": 100,
                 "regular_price_minor": 100, "currency": "EUR", "rows": 1, "seats_per_row": 10,
                 "price_levels": [{"name": "front", "rows": (1, 1), "price_minor": 300}]}
                for name in ("A", "B")
            ],
            **self.more,
        })  # fmt: skip
        return EventPageFacts(event=event, availability=SectionList(sections=self._sections()))

    async def list_events(self, after: str | None) -> ListedEvents:
        """Two events; a second page has one more."""
        self.asked += 1
        if self.away:
            raise Unavailable
        names = ["show", "gig"] if after is None else ["late"]
        events = [(await self.event_page(name)).event for name in names]
        cards = [EventCard.model_validate(event.model_dump(include=set(EventCard.model_fields))) for event in events]
        return ListedEvents(events=cards, more=after is None)

    def _sections(self) -> list[SectionAvailability]:
        """None, unless a test says how much is left."""
        if self.left is None:
            return []
        return [SectionAvailability(
            section_id="A", name="A", kind="seated", type="std", total_seats=10, available_seats=self.left,
            held_seats=0, reserved_seats=self.reserved, price_minor=100, currency="EUR",
        )]  # fmt: skip

    async def prices(self, event_id: str, each: list[int], of_types: Sequence[TypePrice] = ()) -> PricesAnswer:
        found = PricesAnswer(all_in={minor: minor + 50 for minor in each})
        for one in of_types:
            found.all_in_by_type.setdefault(one.type_id, {})[one.price_minor] = one.price_minor + 50
        return found
