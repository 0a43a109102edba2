"""Checks the events on sale: times in order, holds against sessions, allotments, proof of work, amounts.

Queue and inventory each know a part; only a reader of both sees that they do not fit.
"""

import asyncio
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import NamedTuple

from onsale.admin_client import AdminClient
from onsale.doctor.findings import Finding
from onsale.errors import OperatorError
from shared.contracts.admin import queue
from shared.contracts.admin.checks import Check, broken, ok, suspicious
from shared.contracts.catalogue import EventCard, EventDetails
from shared.contracts.event_file import StockPart
from shared.contracts.prices import PRICES_MAX

AT_ONCE = 8
SUBJECT = "Schedule"


class Event(NamedTuple):
    """All that is known of one event."""

    details: EventDetails
    room: queue.RoomView


async def check_events(admin: AdminClient) -> list[Finding]:
    """One line for each finding, or for an event without any. Events that have started are left out."""
    now, limit = datetime.now(UTC), asyncio.Semaphore(AT_ONCE)
    try:
        pages = admin.pages("list_events_on_sale", query={"page_size": 500})
        cards: list[EventCard] = [card async for page in pages for card in page.events]
    except OperatorError as failed:
        advice = "Inventory lists them: see its lines above and its log."
        return [Finding(broken("Events", f"cannot be listed: {failed}", advice), ("inventory",))]

    async def check(event_id: str) -> list[Finding]:
        async with limit:
            return [Finding(found, (event_id,)) for found in await _check_event(admin, event_id, now)]

    ahead = [card.event_id for card in cards if card.starts_at > now]
    return [finding for found in await asyncio.gather(*map(check, ahead)) for finding in found]


async def _check_event(admin: AdminClient, event_id: str, now: datetime) -> list[Check]:
    try:
        details = await admin.read_event_on_sale(event_id)
        room = await admin.read_room(event_id)
        file = await admin.read_inventory_event(event_id)
    except OperatorError as failed:
        advice = "Apply its event file again: it is not known to every service."
        return [broken(SUBJECT, f"cannot be read: {failed}", advice)]
    own = file.findings(sale_ends_at=room.sale_ends_at, starts_at=details.starts_at, now=now)
    return check_schedule(Event(details, room), now, own) + await amounts(admin, event_id, file)


async def amounts(admin: AdminClient, event_id: str, file: StockPart) -> list[Check]:
    """Prices, fees and codes that were applied before a provider that cannot charge them was configured."""
    try:
        priced = [price for one in file.sections for price in (one, *getattr(one, "price_levels", ()))]
        each = sorted({price.price_minor + price.fee_minor for price in priced})
        parts = [each[n : n + PRICES_MAX] for n in range(0, len(each), PRICES_MAX)]
        answers = [await admin.check_amounts(event_id, each=part) for part in parts]
    except OperatorError as failed:
        return [broken("Amounts", f"cannot be checked: {failed}", "See the log of orders.")]
    advice = "Fans would fail at the last step: correct the event file or the code, and apply it again."
    found = dict.fromkeys(refusal for answer in answers for refusal in answer.refusals)
    return [broken("Amounts", refusal, advice) for refusal in found]


def check_schedule(event: Event, now: datetime, own: Sequence[Check] = ()) -> list[Check]:
    """What does not fit, with the `own` findings of its file; one `ok` if all does."""
    found = [*_order(event), *_state(event, now), *_durations(event), *own, *event.room.findings()]
    times = (event.room.queue_opens_at, event.room.sale_starts_at, event.room.sale_ends_at, event.details.starts_at)
    names = ("queue opens", "sale starts", "sale ends", "show starts")
    named = [f"{name} {at:%Y-%m-%d %H:%M}" for name, at in zip(names, times, strict=True) if at]
    return found or [ok(SUBJECT, f"{event.room.state}; {', '.join(named)}")]


def _order(event: Event) -> list[Check]:
    opens, starts, ends = event.room.queue_opens_at, event.room.sale_starts_at, event.room.sale_ends_at
    times = [at for at in (opens, starts, ends) if at]
    fix = "Correct the event file and apply it again."
    if times != sorted(times):
        return [broken(SUBJECT, "queue opening, start and end of the sale are not in this order", fix)]
    if times and times[0] >= event.details.starts_at:
        return [broken(SUBJECT, "the sale begins after the show", fix)]
    if ends and ends > event.details.starts_at:
        return [suspicious(SUBJECT, "the sale ends after the show has begun", fix)]
    return []


def _state(event: Event, now: datetime) -> list[Check]:
    room, event_id = event.room, event.details.event_id
    began = next((at for at in (room.queue_opens_at, room.sale_starts_at) if at), None)
    if room.state == "draft":
        advice = f"`onsale room open {event_id}`, until then nobody can join."
        late = began is not None and began <= now
        return [
            (broken if late else suspicious)(SUBJECT, "the room is a draft" + " and the sale has begun" * late, advice)
        ]
    if room.sale_ends_at and room.sale_ends_at <= now and room.state != "closed":
        return [
            suspicious(SUBJECT, f"the sale has ended and the room is {room.state}", f"`onsale room close {event_id}`.")
        ]
    return []


def _durations(event: Event) -> list[Check]:
    hold_s, session_s = event.details.limits.hold_ttl_s, event.room.session_s
    if hold_s > session_s:
        found = f"hold_ttl_s {hold_s} is longer than session_s {session_s}"
        return [
            suspicious(
                "Durations", found, "Seats are kept for fans whose session is over: shorten one or lengthen one."
            )
        ]
    return []
