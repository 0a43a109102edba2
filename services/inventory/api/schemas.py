"""Requests and responses of the fans' API. Every field of a request has a limit."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Any, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from services.inventory.catalogue.layout import Layout, Section
from services.inventory.reservations.repository import ReservationRow
from services.inventory.reservations.selection import Selection
from shared.contracts.catalogue import (
    BrandDetails,
    EventCard,
    EventDetails,
    EventLimits,
    EventPage,
    ListedEvents,
    ShownPicture,
)
from shared.contracts.event_file import PRICE_MINOR_MAX
from shared.contracts.event_parts.brand import Brand
from shared.contracts.fields import Body, Email, EventId, SeatId, SectionId
from shared.contracts.frames import ReservationState, StockFrame
from shared.postgres.pages import PageRequest
from shared.routes import SECTION_ID
from shared.runtime.clock import rfc3339

TICKETS_MAX, SECTIONS_MAX = 100, 50
URLS = {"help_url", "terms_url", "imprint_url", "privacy_url"}


class GaTickets(Body):
    """Tickets of one GA section."""

    section_id: SectionId
    quantity: int = Field(ge=1, le=TICKETS_MAX)


class BestAvailable(Body):
    """The best places next to each other, in one section or anywhere, at most at this price each."""

    quantity: int = Field(ge=1, le=TICKETS_MAX)
    section_id: SectionId | None = None
    max_price_minor: int | None = Field(None, ge=0, le=PRICE_MINOR_MAX)
    split: bool = Field(False, description="Split into groups if there are not enough adjacent seats.")


class ReserveBody(Body):
    """Seats, GA tickets or both, or else the best available places. `ga_section` and `ga_quantity` are short for one
    entry of `ga`.
    """

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"seats": ["A-1-1", "A-1-2"], "ga": [{"section_id": "GA1", "quantity": 2}]}]}
    )

    seats: list[SeatId] = Field(default_factory=list, max_length=TICKETS_MAX)
    ga: list[GaTickets] = Field(default_factory=list, max_length=20)
    ga_section: SectionId | None = None
    ga_quantity: int | None = Field(None, ge=0, le=TICKETS_MAX)
    best_available: BestAvailable | None = None
    email: Email | None = None
    reminders: bool = Field(
        False, description="Consent to reminder mail before the hold ends and after it has expired."
    )

    @model_validator(mode="after")
    def _complete(self) -> Self:
        if (self.ga_section is None) != (not self.ga_quantity):
            raise ValueError("ga_section and ga_quantity go together")
        named = self.seats or self.ga or self.ga_section
        if not named and self.best_available is None:
            raise ValueError("name seats, GA tickets, or best_available")
        if named and self.best_available is not None:
            raise ValueError("best_available cannot be combined with seats or ga")
        if self.reminders and self.email is None:
            raise ValueError("reminders need an email")
        if len(set(self.seats)) != len(self.seats):
            raise ValueError("each seat may be named once")
        return self

    def tickets(self) -> dict[str, int]:
        """GA tickets by section, from `ga` and from the short form."""
        tickets: dict[str, int] = {self.ga_section: self.ga_quantity or 0} if self.ga_section else {}
        for part in self.ga:
            tickets[part.section_id] = tickets.get(part.section_id, 0) + part.quantity
        return tickets


class KeepBody(Body):
    """The places of a reservation to keep; all others are released."""

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"seats": ["A-1-1"], "ga": [{"section_id": "GA1", "quantity": 1}]}]}
    )

    seats: list[SeatId] = Field(default_factory=list, max_length=TICKETS_MAX)
    ga: list[GaTickets] = Field(default_factory=list, max_length=20)

    @model_validator(mode="after")
    def _something_once(self) -> Self:
        if not self.seats and not self.ga:
            raise ValueError("name the places to keep; use DELETE to release all of them")
        if len(set(self.seats)) != len(self.seats) or len({part.section_id for part in self.ga}) != len(self.ga):
            raise ValueError("each seat and each section may be named once")
        return self


PAGE_SIZE = Annotated[int, Field(ge=1, le=500)]


class SeatsQuery(BaseModel):
    """Which seats of a section."""

    page: int = Field(1, ge=1, le=10_000)
    page_size: PAGE_SIZE = 50


class EventsQuery(BaseModel):
    """Which events: those that follow on this one."""

    after: EventId | None = None
    page_size: PAGE_SIZE = 50


class VersionQuery(BaseModel):
    """The version that the address names."""

    v: str | None = Field(None, max_length=64)


class MapQuery(BaseModel):
    """The version of the map that the address names."""

    v: str | None = Field(None, max_length=64, description="`map_hash` of the event: cached for a year.")


class SectionsQuery(BaseModel):
    """The sections that are wanted."""

    sections: str | None = Field(
        None, pattern=rf"^{SECTION_ID}(,{SECTION_ID}){{0,{SECTIONS_MAX - 1}}}$", max_length=33 * SECTIONS_MAX,
        description=f"Only these sections: at most {SECTIONS_MAX}, separated by commas.",
    )  # fmt: skip


class ReservationView(BaseModel):
    """A reservation. `ga_section` and `ga_quantity` repeat the first entry of `ga`."""

    reservation_id: str
    reserved_until: str
    seats: list[str]
    ga_section: str | None
    ga_quantity: int
    ga: list[GaTickets]
    total_amount_minor_units: int
    currency: str
    status: ReservationState


def reservation_body(
    reservation_id: str,
    *,
    status: ReservationState,
    reserved_until_ms: int,
    currency: str,
    selection: Selection,
    total_minor: int,
) -> dict[str, Any]:
    """A `ReservationView` as a dict: the fast route writes it without a model."""
    shown = selection.shown()
    ga = shown["ga"]
    return {
        "reservation_id": reservation_id,
        "reserved_until": rfc3339(reserved_until_ms),
        "seats": shown["seats"],
        "ga_section": ga[0]["section_id"] if ga else None,
        "ga_quantity": ga[0]["quantity"] if ga else 0,
        "ga": ga,
        "total_amount_minor_units": total_minor,
        "currency": currency,
        "status": status,
    }


def row_body(row: ReservationRow) -> dict[str, Any]:
    return reservation_body(
        row.reservation_id, status=row.status, reserved_until_ms=row.reserved_until_ms, currency=row.currency,
        selection=row.selection, total_minor=row.total_minor,
    )  # fmt: skip


LISTED_MAX = 50


def _listed(layouts: Iterable[Layout], after: str | None) -> list[Layout]:
    """Events by their start, without rehearsals, after this one."""
    on_sale = (layout for layout in layouts if not layout.rehearsal)
    ordered = sorted(on_sale, key=lambda layout: (layout.starts_at, layout.event_id))
    if after is None:
        return ordered
    ids = [layout.event_id for layout in ordered]
    return ordered[ids.index(after) + 1 :] if after in ids else []


def event_list(layouts: Iterable[Layout], after: str | None) -> ListedEvents:
    found = _listed(layouts, after)
    cards = [EventCard.model_validate(_card(layout)) for layout in found[:LISTED_MAX]]
    return ListedEvents(events=cards, more=len(found) > LISTED_MAX)


def event_page(layouts: Iterable[Layout], page: PageRequest[str]) -> EventPage:
    """Rehearsals are not listed."""
    ordered = _listed(layouts, page.cursor)
    shown, following = page.cut(ordered, lambda layout: layout.event_id)
    return EventPage(events=[EventCard.model_validate(_card(layout)) for layout in shown], next=following)


def _card(layout: Layout) -> dict[str, Any]:
    brand = layout.brand
    return {
        "event_id": layout.event_id,
        "name": layout.name,
        "venue": layout.venue,
        "starts_at": layout.starts_at,
        "ends_at": layout.ends_at,
        "timezone": layout.timezone,
        "currency": layout.currency,
        "price_from_minor": min(section.price_from_minor for section in layout.sections.values()),
        "picture": brand.picture and _picture(layout, brand.picture.file, brand.picture.alt) if brand else None,
    }


def event_details(layout: Layout) -> EventDetails:
    limits = {name: getattr(layout, name) for name in EventLimits.model_fields}
    sections = [_section(section, layout.currency) for section in layout.sections.values()]
    facts = {**_card(layout), "limits": limits, "sections": sections, "map_hash": layout.map_hash}
    return EventDetails.model_validate({**facts, "brand": layout.brand and _brand(layout, layout.brand)})


def _picture(layout: Layout, name: str, alt: str) -> ShownPicture | None:
    """None while this process has not read it."""
    stored = layout.pictures.get(name)
    if stored is None:
        return None
    url = f"/events/{layout.event_id}/pictures/{stored.file}"
    return ShownPicture(url=url, width=stored.width, height=stored.height, alt=alt)


def _brand(layout: Layout, brand: Brand) -> BrandDetails:
    accent, accent_dark = brand.own_accents or (None, None)
    digest = brand.style_hash()
    return BrandDetails(
        **brand.model_dump(include={"name", "background", "background_dark", *URLS}),
        logo=_picture(layout, brand.logo, brand.name or "") if brand.logo else None,
        accent=accent, accent_dark=accent_dark,
        stylesheet=f"/e/{layout.event_id}/brand.css?v={digest}" if digest else None,
    )  # fmt: skip


def _section(section: Section, currency: str) -> dict[str, Any]:
    is_seated = section.kind == "seated"
    return {
        "section_id": section.section_id, "name": section.name, "kind": section.kind, "type": section.type,
        "capacity": section.capacity, "price_minor": section.price_from_minor,
        "regular_price_minor": section.price_minor, "currency": currency,
        "price_levels": [
            {"name": tier.name, "rows": [tier.first, tier.last], "price_minor": tier.price_minor}
            for tier in section.price_tiers
        ],
        "rows": section.rows if is_seated else None, "seats_per_row": section.seats_per_row if is_seated else None,
    }  # fmt: skip


def section_list(layout: Layout, frame: StockFrame) -> dict[str, Any]:
    """A `SectionList`."""
    counts = {section.section_id: section for section in frame.sections}
    return {"sections": [
        {
            "section_id": s.section_id, "name": s.name, "kind": s.kind, "type": s.type, "total_seats": s.capacity,
            "available_seats": counts[s.section_id].available, "held_seats": counts[s.section_id].held,
            "price_minor": s.price_from_minor, "currency": layout.currency,
        }
        for s in layout.sections.values() if s.section_id in counts
    ]}  # fmt: skip


def seat_page(
    section: Section, positions: Sequence[int], statuses: Mapping[int, str], *, page: int, page_size: int
) -> dict[str, Any]:
    """A `SeatPage`."""
    return {
        "section_id": section.section_id, "total_seats": section.capacity if section.kind == "seated" else 0,
        "page": page, "page_size": page_size,
        "seats": [_seat(section, position, statuses.get(position, "blocked")) for position in positions],
    }  # fmt: skip


def _seat(section: Section, position: int, status: str) -> dict[str, Any]:
    row, label = section.labels_of(position)
    return {
        "seat_id": section.seat_id(position), "row": row, "label": label,
        "number": position % (section.seats_per_row + 1) + 1, "status": status,
        "price_minor": section.price_of(position),
    }  # fmt: skip
