"""The public catalogue: the events on sale, as inventory answers fans and as the other parts of the suite read it."""

from typing import Literal

from pydantic import AwareDatetime

from shared.contracts.event_parts.names import NamesWanted
from shared.contracts.event_parts.price_types import Trait
from shared.contracts.fields import Page, ServiceMessage, SingleSeatRule


class ShownPicture(ServiceMessage):
    """A picture: its address, which changes with its content, its size in pixels, and what it shows in words."""

    url: str
    width: int
    height: int
    alt: str


class BrandDetails(ServiceMessage):
    """The seller. `stylesheet` has the colours and fonts of the brand; null if it has none. `accent_dark` is never null
    where `accent` is not.
    """

    name: str | None = None
    logo: ShownPicture | None = None
    accent: str | None = None
    accent_dark: str | None = None
    background: str | None = None
    background_dark: str | None = None
    stylesheet: str | None = None
    help_url: str | None = None
    terms_url: str | None = None
    imprint_url: str | None = None
    privacy_url: str | None = None


class EventCard(ServiceMessage):
    """An event in a list."""

    event_id: str
    name: str
    venue: str
    starts_at: AwareDatetime
    ends_at: AwareDatetime | None = None
    timezone: str
    currency: str
    price_from_minor: int
    picture: ShownPicture | None = None


class EventPage(Page):
    """Events by their start."""

    events: list[EventCard]


class EventLimits(ServiceMessage):
    """Limits of tickets (0 is unlimited), how long a hold and a payment last, and whether seats may leave one alone."""

    tickets_per_order: int
    tickets_per_customer: int
    tour_tickets_per_customer: int
    hold_ttl_s: int
    pay_ttl_s: int
    single_seats: SingleSeatRule = "tell"


class PriceTypeDetails(ServiceMessage):
    """A price type. The first of an event is the usual one. `sections` and `traits` are where it is sold, empty for
    everywhere; `lanes` by which lanes fans must have come, empty for all; `proof` is what is shown at the door.
    """

    type_id: str
    name: str
    per_order: int | None = None
    proof: str | None = None
    code_required: bool = False
    lanes: list[int] = []  # noqa: RUF012 - each has its own
    companion_of: list[str] = []  # noqa: RUF012
    sections: list[str] = []  # noqa: RUF012
    traits: list[Trait] = []  # noqa: RUF012


class PriceLevelDetails(ServiceMessage):
    """Rows, first and last, with a price of their own; they are counted from the front, from 1. `prices` has those of
    the other price types that are sold there.
    """

    name: str
    rows: tuple[int, int]
    price_minor: int
    prices: dict[str, int] = {}  # noqa: RUF012


class SectionDetails(ServiceMessage):
    """A section with its lowest price, and that of rows in no price level; `rows` and `seats_per_row` are null for
    general admission. `prices` has those of the other price types for rows in no price level, `traits` what all places
    of general admission have, or what some of the seats have.
    """

    section_id: str
    name: str
    kind: Literal["seated", "ga"]
    type: str
    capacity: int
    price_minor: int
    regular_price_minor: int
    currency: str
    price_levels: list[PriceLevelDetails]
    prices: dict[str, int] = {}  # noqa: RUF012
    traits: list[Trait] = []  # noqa: RUF012
    rows: int | None
    seats_per_row: int | None


class EventDetails(EventCard):
    """An event with its limits and sections. `map_hash` names its map; null if it has too many seats for one. `names`
    says which names an order must bring: none, the buyer's alone, or one for each ticket; buyers may change them until
    `names_until`. With `code_opens_places` some places are sold to fans with a code before everybody can buy them,
    with `lane_opens_places` to fans of a lane.
    """

    limits: EventLimits
    names: NamesWanted = "none"
    names_until: AwareDatetime | None = None
    price_types: list[PriceTypeDetails] = []  # noqa: RUF012
    sections: list[SectionDetails]
    map_hash: str | None = None
    brand: BrandDetails | None = None
    code_opens_places: bool = False
    lane_opens_places: bool = False


class SectionAvailability(ServiceMessage):
    """A section, what is available, held, and reserved for who names a code or came by a lane, and its lowest price."""

    section_id: str
    name: str
    kind: Literal["seated", "ga"]
    type: str
    total_seats: int
    available_seats: int
    held_seats: int
    reserved_seats: int = 0
    price_minor: int
    currency: str


class TypeAvailability(ServiceMessage):
    """A price type of which there is a number in all, and how many of it are left."""

    type_id: str
    available: int


class SectionList(ServiceMessage):
    """The sections of an event, and its price types of which there is a number in all."""

    sections: list[SectionAvailability]
    types: list[TypeAvailability] = []  # noqa: RUF012


class SeatView(ServiceMessage):
    """One seat: what stands on its row (`row`) and on the chair (`label`), and its number in the row from the left;
    the prices of the price types besides the usual one that are sold there.
    """

    seat_id: str
    row: str
    label: str = ""  # empty in an answer of 0.1.0: as its number
    number: int
    status: Literal["available", "reserved", "sold", "blocked"]
    price_minor: int
    prices: dict[str, int] = {}  # noqa: RUF012
    traits: list[Trait] = []  # noqa: RUF012


class SeatPage(ServiceMessage):
    """Some seats of a section; a GA section has none."""

    section_id: str
    total_seats: int
    page: int
    page_size: int
    seats: list[SeatView]
