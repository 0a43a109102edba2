"""An event for search engines: JSON-LD by schema.org, in the page's head. It is data, which no policy forbids."""

from typing import Any

import orjson

from services.gateway.event_page.facts import EventFacts, event_path, starts_at
from shared.rules.money import decimal_amount
from shared.runtime.clock import rfc3339, zone_of

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
