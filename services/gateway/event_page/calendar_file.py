"""An event's entry for a calendar."""

from datetime import datetime

from services.gateway.event_page.facts import event_path
from shared.contracts.catalogue import EventDetails
from shared.web.pages.calendar_file import CalendarEntry


def calendar_entry(event: EventDetails, public_url: str, now: datetime) -> CalendarEntry:
    """Its id is that of the event at this address."""
    return CalendarEntry(
        uid=f"{event.event_id}@{public_url.partition('://')[2]}", made_at=now, starts_at=event.starts_at,
        ends_at=event.ends_at, zone=event.timezone, name=event.name, venue=event.venue,
        url=public_url + event_path(event.event_id),
    )  # fmt: skip
