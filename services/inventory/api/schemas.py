"""What fans send and get: bodies with a limit on everything, and reservations as they see them."""

from typing import Annotated, Any, Self

from pydantic import ConfigDict, Field, TypeAdapter, model_validator

from services.inventory.catalogue.layout import Layout, Section
from services.inventory.reservations.repository import ReservationRow
from services.inventory.reservations.selection import Selection
from shared.contracts.event_file import PRICE_MINOR_MAX
from shared.runtime.clock import rfc3339
from shared.web.fields import Body, Email, SeatId, SectionId

TICKETS_MAX = 100


class GaAsk(Body):
    """Some tickets of one GA section."""

    section_id: SectionId
    quantity: int = Field(ge=1, le=TICKETS_MAX)


class BestAvailable(Body):
    """So many places together, the best there are: in one section, or anywhere, at most at this price each."""

    quantity: int = Field(ge=1, le=TICKETS_MAX)
    section_id: SectionId | None = None
    max_price_minor: int | None = Field(None, ge=0, le=PRICE_MINOR_MAX)
    split: bool = Field(False, description="In groups, if there are not so many seats together")


class ReservationAsk(Body):
    """Seats, GA tickets, or both; `ga_section` and `ga_quantity` are shorthand for one entry of `ga`. Or the best
    available.
    """

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"seats": ["A-1-1", "A-1-2"], "ga": [{"section_id": "GA1", "quantity": 2}]}]}
    )

    seats: list[SeatId] = Field(default_factory=list, max_length=TICKETS_MAX)
    ga: list[GaAsk] = Field(default_factory=list, max_length=20)
    ga_section: SectionId | None = None
    ga_quantity: int | None = Field(None, ge=0, le=TICKETS_MAX)
    best_available: BestAvailable | None = None
    email: Email | None = None
    reminders: bool = Field(False, description="Consent to mail before the hold ends and when it has, if mail is sent")

    @model_validator(mode="after")
    def _something(self) -> Self:
        if (self.ga_section is None) != (not self.ga_quantity):
            raise ValueError("ga_section and ga_quantity go together")
        named = self.seats or self.ga or self.ga_section
        if not named and self.best_available is None:
            raise ValueError("ask for seats, for GA tickets, for both, or for the best available")
        if named and self.best_available is not None:
            raise ValueError("best_available stands alone")
        if self.reminders and self.email is None:
            raise ValueError("reminders need an email")
        if len(set(self.seats)) != len(self.seats):
            raise ValueError("a seat may be asked for once")
        return self

    def tickets(self) -> dict[str, int]:
        """GA tickets by section, however they were asked for."""
        tickets: dict[str, int] = {self.ga_section: self.ga_quantity or 0} if self.ga_section else {}
        for part in self.ga:
            tickets[part.section_id] = tickets.get(part.section_id, 0) + part.quantity
        return tickets


class KeepAsk(Body):
    """What of a reservation is kept; seats and GA tickets that are not named are given back."""

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"seats": ["A-1-1"], "ga": [{"section_id": "GA1", "quantity": 1}]}]}
    )

    seats: list[SeatId] = Field(default_factory=list, max_length=TICKETS_MAX)
    ga: list[GaAsk] = Field(default_factory=list, max_length=20)

    @model_validator(mode="after")
    def _something_once(self) -> Self:
        if not self.seats and not self.ga:
            raise ValueError("name what is kept; DELETE gives all of it back")
        if len(set(self.seats)) != len(self.seats) or len({part.section_id for part in self.ga}) != len(self.ga):
            raise ValueError("a seat and a section may be named once")
        return self


RESERVATION_ASK: TypeAdapter[ReservationAsk] = TypeAdapter(ReservationAsk)
PAGE = Annotated[int, Field(ge=1, le=10_000)]
PAGE_SIZE = Annotated[int, Field(ge=1, le=500)]


def reservation_body(
    reservation_id: str, status: str, reserved_until_ms: int, currency: str, basket: Selection | ReservationRow
) -> dict[str, Any]:
    """A reservation as its fan sees it."""
    ga = [{"section_id": section_id, "quantity": quantity} for section_id, quantity, _ in basket.ga]
    return {
        "reservation_id": reservation_id,
        "reserved_until": rfc3339(reserved_until_ms),
        "seats": [seat_id for _, _, seat_id, _ in basket.seats],
        "ga_section": ga[0]["section_id"] if ga else None,
        "ga_quantity": ga[0]["quantity"] if ga else 0,
        "ga": ga,
        "total_amount_minor_units": basket.total_minor,
        "currency": currency,
        "status": status,
    }


def record_body(record: ReservationRow) -> dict[str, Any]:
    return reservation_body(record.reservation_id, record.status, record.reserved_until_ms, record.currency, record)


def event_card(layout: Layout) -> dict[str, Any]:
    """An event in a list."""
    return {
        "event_id": layout.event_id,
        "name": layout.name,
        "venue": layout.venue,
        "starts_at": rfc3339(round(layout.starts_at.timestamp() * 1000)),
        "timezone": layout.timezone,
        "currency": layout.currency,
        "price_from_minor": min(section.price_from_minor for section in layout.sections.values()),
    }


def event_body(layout: Layout) -> dict[str, Any]:
    """An event with its sections, prices and limits."""
    limits = ("tickets_per_order", "tickets_per_customer", "tour_tickets_per_customer", "hold_ttl_s", "pay_ttl_s")
    return {
        **event_card(layout),
        "limits": {name: getattr(layout, name) for name in limits},
        "sections": [_section_body(section, layout.currency) for section in layout.sections.values()],
    }


def _section_body(section: Section, currency: str) -> dict[str, Any]:
    return {
        "section_id": section.section_id, "name": section.name, "kind": section.kind, "type": section.type,
        "capacity": section.capacity, "price_minor": section.price_from_minor, "currency": currency,
        "price_levels": [
            {"name": level.name, "rows": [level.first, level.last], "price_minor": level.price_minor}
            for level in section.levels
        ],
        "rows": section.rows if section.kind == "seated" else None,
        "seats_per_row": section.seats_per_row if section.kind == "seated" else None,
    }  # fmt: skip
