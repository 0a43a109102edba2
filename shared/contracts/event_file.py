"""The event file: one YAML document that describes an on-sale for the queue, inventory and orders.

`PUT /admin/{service}/events/{event_id}` takes the whole file, as JSON, at each of the three.
"""

from datetime import datetime, timedelta
from functools import cache, cached_property
from typing import Annotated, Literal, Self
from zoneinfo import available_timezones

from pydantic import AfterValidator, AwareDatetime, Field, model_validator

from shared.contracts.admin.checks import Check, suspicious
from shared.contracts.event_parts.names import NamesWanted
from shared.contracts.event_parts.price_types import (
    PRICE_MINOR_MAX,
    TYPES_MAX,
    PriceType,
    Trait,
    TypePrices,
    require_sound,
)
from shared.contracts.event_parts.seat_labels import (
    SEATS_PER_ROW_MAX,
    LabelsPart,
    RowName,
    Rows,
    SeatLabels,
    Seats,
)
from shared.contracts.event_parts.traits import Run, SeatTraits, runs_of
from shared.contracts.fields import (
    Body,
    Currency,
    EventId,
    PlainText,
    RatePerS,
    SectionId,
    SingleSeatRule,
    StoredCurrency,
)
from shared.contracts.file_parts import EventFields, with_file_parts
from shared.contracts.prices import PriceRules
from shared.contracts.ranking import JOINS, OrderingName
from shared.contracts.room_options import RoomOptions

SEATS_PER_EVENT_MAX = 1_000_000
SHOW_MAX = timedelta(days=366)


_timezones = cache(available_timezones)  # it walks through thousands of files


def _valid_timezone(name: str) -> str:
    if name not in _timezones():
        raise ValueError("not the name of a time zone, such as Europe/Berlin")
    return name


Timezone = Annotated[str, Field(max_length=64), AfterValidator(_valid_timezone)]


class RoomPart(RoomOptions):
    """The waiting room. A null time means now (opening, start) or never (end)."""

    queue_opens_at: AwareDatetime | None = None
    sale_starts_at: AwareDatetime | None = None
    sale_ends_at: AwareDatetime | None = None
    ordering: OrderingName = JOINS
    rate_per_s: RatePerS = Field(50, description="Calls per second; 0 stops calling at the next tick.")
    burst: int = Field(
        50, ge=1, le=100_000, description="Most calls saved up while nobody waits; a lower rate cuts them."
    )
    max_active: int = Field(2000, ge=0, le=1_000_000)
    session_s: int = Field(900, ge=10, le=86_400)
    claim_window_s: int = Field(120, ge=5, le=3600)
    liveness_window_s: int = Field(30, ge=2, le=600)
    max_misses: int = Field(2, ge=1, le=100)
    returning_share: float = Field(0.2, ge=0, le=1)
    max_line: int | None = Field(None, ge=1, le=100_000_000)
    stock_coupling: bool = True

    @model_validator(mode="after")
    def _in_order(self) -> Self:
        times: list[datetime] = [t for t in (self.queue_opens_at, self.sale_starts_at, self.sale_ends_at) if t]
        if times != sorted(times):
            raise ValueError("queue_opens_at, sale_starts_at and sale_ends_at must be in that order")
        return self


class TourPart(Body):
    """The ticket limit of one customer over all events of a tour. Each event file names the tour and its own limit,
    which is usually the same.
    """

    tour_id: EventId
    tickets_per_customer: int = Field(ge=1, le=1000)


@with_file_parts("sales")
class SalesPart(Body):
    """The durations of holds and the limits per customer; 0 means no limit."""

    hold_ttl_s: int = Field(600, ge=5, le=86_400)
    pay_ttl_s: int = Field(300, ge=5, le=86_400)
    grace_s: int = Field(5, ge=0, le=300)
    tickets_per_order: int = Field(6, ge=1, le=100)
    tickets_per_customer: int = Field(6, ge=0, le=1000)
    avoid_single_seats: bool = Field(True, description="Best available avoids leaving a single seat.")
    single_seats: SingleSeatRule = Field(
        "tell", description="What happens to who chooses seats that leave one alone: nothing, told, or refused."
    )
    active_reservations_per_customer: int = Field(1, ge=0, le=100)
    open_orders_per_customer: int = Field(1, ge=0, le=100)
    tour: TourPart | None = Field(None, description="The tour of this event, with a limit over all its events.")
    accessible_release_at: AwareDatetime | None = Field(
        None,
        description="When best available begins to offer wheelchair and companion places to everybody, last of all. "
        "Default: only when an operator releases them.",
    )
    hold_ttl_b_s: int | None = Field(None, ge=5, le=86_400, description="Hold duration of variant B in an experiment.")
    hold_ttl_b_percent: float = Field(0, ge=0, le=100, description="Share of fans in variant B.")
    names: NamesWanted = Field("none", description="Names on tickets: the buyer's (`order`), or one of each ticket.")
    names_until: AwareDatetime | None = Field(
        None, description="Until when the buyer may change names. Default: until the show starts."
    )

    @model_validator(mode="after")
    def _variant_b_has_a_duration(self) -> Self:
        if self.hold_ttl_b_percent and self.hold_ttl_b_s is None:
            raise ValueError("hold_ttl_b_percent needs hold_ttl_b_s")
        return self

    @model_validator(mode="after")
    def _names_to_change(self) -> Self:
        if self.names_until is not None and self.names == "none":
            raise ValueError("names_until needs names: order or ticket")
        return self


class CheckoutPart(Body):
    """The share of fans whose order is processed in the background; the others' is processed in their request."""

    background_percent: float = Field(100, ge=0, le=100)


TYPE_PRICES = "Prices of price types here, by type_id."


class PriceLevel(Body):
    """The rows of a section from the first to the last given, at their own price."""

    name: PlainText
    rows: tuple[RowName, RowName]
    price_minor: int = Field(strict=True, ge=0, le=PRICE_MINOR_MAX)
    fee_minor: int = Field(0, strict=True, ge=0, le=PRICE_MINOR_MAX)
    prices: TypePrices = Field(default_factory=dict, description=TYPE_PRICES)


class SeatedSection(Body):
    """A block of numbered seats: a seat is `{section_id}-{row}-{seat}`, by what stands on its row and on the chair."""

    section_id: SectionId
    name: PlainText
    kind: Literal["seated"]
    rows: Rows = Field(
        description="How many, or the label of each from the front, such as `[A, B, AA]`; a row with other seats is "
        "`{row: C, seats: …}`. At most 1,000; split a larger block into two sections."
    )
    seats_per_row: int = Field(ge=1, le=SEATS_PER_ROW_MAX, description="Split a longer row into two sections.")
    seats: Seats | None = Field(
        None,
        description="The labels of a row's seats from left to right, as who looks at the stage sees them: `odd`, "
        "`even from the right`, `consecutive from 101`, or a list. Default: `consecutive`.",
    )
    price_minor: int = Field(strict=True, ge=0, le=PRICE_MINOR_MAX)
    fee_minor: int = Field(0, strict=True, ge=0, le=PRICE_MINOR_MAX)
    prices: TypePrices = Field(default_factory=dict, description=TYPE_PRICES)
    price_levels: list[PriceLevel] = Field(default_factory=list, max_length=50)
    traits: SeatTraits = Field(
        default_factory=dict,
        description="Places for wheelchairs and who comes with one, with a restricted view, without steps: by trait "
        "the seats, such as `A-1`, `A-3..8`, or `A` for a row.",
    )

    @property
    def row_count(self) -> int:
        return self.rows if isinstance(self.rows, int) else len(self.rows)

    @property
    def capacity(self) -> int:
        return self.row_count * self.seats_per_row

    @property
    def own_labels(self) -> LabelsPart | None:
        """The labels that the file gives; None if rows and seats are only counted."""
        rows = None if isinstance(self.rows, int) else self.rows
        return LabelsPart(rows=rows, seats=self.seats) if rows or self.seats else None

    @cached_property
    def labels(self) -> SeatLabels:
        return SeatLabels.of(self.row_count, self.seats_per_row, self.own_labels)

    @model_validator(mode="after")
    def _each_seat_has_its_labels(self) -> Self:
        assert self.labels.rows
        return self

    @model_validator(mode="after")
    def _each_row_has_one_price(self) -> Self:
        last = -1
        for first_row, last_row, level in sorted((*self.rows_of(level), level.name) for level in self.price_levels):
            if not last < first_row <= last_row:
                raise ValueError(f"price level {level!r}: rows must be given from the front and not overlap")
            last = last_row
        return self

    @model_validator(mode="after")
    def _each_trait_has_its_seats(self) -> Self:
        assert self.trait_runs is not None
        return self

    @cached_property
    def trait_runs(self) -> dict[Trait, list[Run]]:
        """By trait the positions in the section's map. Raises `ValueError`."""
        try:
            width = self.seats_per_row + 1
            return {trait: runs_of(seats, self.labels, width) for trait, seats in self.traits.items()}
        except ValueError as unknown:
            raise ValueError(f"traits: {unknown}") from unknown

    def rows_of(self, level: PriceLevel) -> tuple[int, int]:
        """The first and the last row of a price level, counted from 0. Raises `ValueError`."""
        first, last = (self.labels.row_number(name) for name in level.rows)
        if first is None or last is None:
            gone = level.rows[0] if first is None else level.rows[1]
            named = f"from {self.labels.rows[0]} to {self.labels.rows[-1]}"
            raise ValueError(f"price level {level.name!r}: there is no row {gone}; the rows are {named}")
        return first, last


def _require_apart(one: SeatedSection, other: SeatedSection) -> None:
    if not (one.own_labels or other.own_labels):
        return
    seats = dict(one.labels.front(one.row_count))
    for row, labels in other.labels.front(other.row_count):
        if twice := sorted(set(labels).intersection(seats.get(row, ()))):
            raise ValueError(
                f"sections {one.section_id} and {other.section_id} are both called {one.name!r} and have a seat "
                f"{twice[0]} in row {row}: give one another name, or other labels"
            )


class GaSection(Body):
    """General admission: tickets without a seat."""

    section_id: SectionId
    name: PlainText
    kind: Literal["ga"]
    capacity: int = Field(ge=0, le=SEATS_PER_EVENT_MAX)
    price_minor: int = Field(strict=True, ge=0, le=PRICE_MINOR_MAX)
    fee_minor: int = Field(0, strict=True, ge=0, le=PRICE_MINOR_MAX)
    prices: TypePrices = Field(default_factory=dict, description=TYPE_PRICES)
    traits: list[Trait] = Field(default_factory=list, max_length=4, description="What all of its places have.")


Section = Annotated[SeatedSection | GaSection, Field(discriminator="kind")]


class PricePart(PriceRules):
    """What orders keeps of an event file."""

    checkout: CheckoutPart | None = Field(None, description="Default: unchanged, as an operator set it.")


@with_file_parts("event")
class StockPart(EventFields):
    """What inventory keeps of an event file."""

    event_id: EventId
    name: PlainText
    venue: PlainText
    currency: StoredCurrency
    starts_at: AwareDatetime
    ends_at: AwareDatetime | None = Field(
        None, description="When the show ends. Default: calendars are told three hours after it starts."
    )
    timezone: Timezone | None = Field(
        None, description="IANA name of the venue's time zone. Default: the UTC offset of starts_at."
    )
    rehearsal: bool = Field(
        False,
        description="A rehearsal: no list shows it to fans, nobody gets mail about it, webhooks of all events leave it "
        "out, and only the sandbox takes its payments.",
    )
    sales: SalesPart = SalesPart()
    price_types: list[PriceType] = Field(
        default_factory=list,
        max_length=TYPES_MAX,
        description="Who pays another price for the same place. The first is the usual one, at the places' own prices.",
    )
    sections: list[Section] = Field(min_length=1, max_length=500)

    @property
    def zone(self) -> str:
        """The venue's time zone: an IANA name, `UTC`, or an offset such as `+09:00`."""
        offset = self.starts_at.strftime("%z")
        return self.timezone or ("UTC" if not self.starts_at.utcoffset() else f"{offset[:3]}:{offset[3:5]}")

    def findings(self, *, sale_ends_at: datetime | None, starts_at: datetime, now: datetime) -> list[Check]:
        """Of wheelchair and companion places, besides those of features."""
        found = super().findings(sale_ends_at=sale_ends_at, starts_at=starts_at, now=now)
        subject, at = "Accessible places", self.sales.accessible_release_at
        if at is None:
            return found
        if not any({"wheelchair", "companion"} & set(section.traits) for section in self.sections):
            advice = "Name the places in `traits` of their sections, or take out `accessible_release_at`."
            return [*found, suspicious(subject, "are to be released, and no section has any", advice)]
        ends = {"after the show has begun": starts_at, "after the sale has ended": sale_ends_at}
        late = next((when for when, end in ends.items() if end and at >= end), None)
        fix = "Set `accessible_release_at` to an earlier time."
        return [*found, suspicious(subject, f"are released {late}", fix)] if late else found

    @model_validator(mode="after")
    def _ends_after_it_starts(self) -> Self:
        if self.ends_at is not None and not self.starts_at < self.ends_at <= self.starts_at + SHOW_MAX:
            raise ValueError("ends_at must be after starts_at, by a year at most")
        return self

    @model_validator(mode="after")
    def _sections_fit(self) -> Self:
        ids = [section.section_id for section in self.sections]
        if len(set(ids)) != len(ids):
            raise ValueError("every section_id must be unique")
        if sum(section.capacity for section in self.sections) > SEATS_PER_EVENT_MAX:
            raise ValueError(f"an event has at most {SEATS_PER_EVENT_MAX} places")
        return self

    @model_validator(mode="after")
    def _price_types_fit(self) -> Self:
        require_sound(self.price_types, [section.section_id for section in self.sections])
        priced = {each.type_id for each in self.price_types[1:]}
        for section in self.sections:
            levels = section.price_levels if isinstance(section, SeatedSection) else []
            for prices in [section.prices, *(level.prices for level in levels)]:
                if unknown := sorted(prices.keys() - priced):
                    has = f"there is no price type {unknown[0]} besides the usual one"
                    raise ValueError(f"section {section.section_id}: prices: {has}")
        return self

    @model_validator(mode="after")
    def _no_two_seats_are_called_the_same(self) -> Self:
        """Tickets name a section by its name: two of one name must not share a seat that the file gives a label."""
        same: dict[str, list[SeatedSection]] = {}
        for section in self.sections:
            if isinstance(section, SeatedSection):
                for other in same.setdefault(section.name, []):
                    _require_apart(other, section)
                same[section.name].append(section)
        return self


class EventFile(StockPart, PricePart):
    """One on-sale of one show, with its fees and taxes. The queue keeps `room`."""

    currency: Currency
    room: RoomPart = RoomPart()

    @model_validator(mode="after")
    def _fees_and_taxes_know_the_price_types(self) -> Self:
        self.require_types([each.type_id for each in self.price_types])
        return self
