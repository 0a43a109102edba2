"""What the pages ask inventory and orders beyond the API of fans, and the client that asks. A page is shown without
what takes longer than a second.
"""

from collections.abc import Sequence
from functools import partial
from operator import not_

from pydantic import AwareDatetime, Field

from shared.contracts.catalogue import EventCard, EventDetails, SeatPage, SectionList
from shared.contracts.event_parts.names import NamesWanted
from shared.contracts.fields import ServiceMessage
from shared.contracts.inventory import Reservation
from shared.contracts.orders import OrderView, ProviderAnswer, QuoteAnswer
from shared.contracts.prices import PRICES_MAX, PricesAnswer
from shared.rpc import ServiceClient

DEADLINE_S = 1.0


class ListEvents(ServiceMessage):
    """The events on sale after the one with this id, or the first ones, by their start."""

    after: str | None = None


class ListedEvents(ServiceMessage):
    """Some of them; `more` says whether others follow."""

    events: list[EventCard]
    more: bool


class ReadEventPage(ServiceMessage):
    """Asks for what an event's page shows."""

    event_id: str


class EventPageFacts(ServiceMessage):
    """What an event's page shows: the event, and what is left of its sections."""

    event: EventDetails
    availability: SectionList


class ReadSeats(ServiceMessage):
    """Asks for a page of a section's seats, as a fan with a pass sees them."""

    event_id: str
    section_id: str
    page: int = Field(1, ge=1)
    page_size: int = Field(ge=1, le=500)


class FindReservation(ServiceMessage):
    """Asks for the live reservation of a holder."""

    event_id: str
    holder: str


class FoundReservation(ServiceMessage):
    """The holder's live reservation, which may be `extended` once; null without one. `prices` are those of all price
    types at the place of each of its lines; empty where the event has none.
    """

    reservation: Reservation | None = None
    extended: bool = False
    prices: list[dict[str, int]] = Field(default_factory=list)


class TypePrice(ServiceMessage):
    """A price of a price type."""

    type_id: str
    price_minor: int


class ReadPrices(ServiceMessage):
    """Asks for an event's fees and taxes, and for these prices with all of them, also of other price types."""

    event_id: str
    each: list[int] = Field(max_length=PRICES_MAX)
    each_of_type: list[TypePrice] = Field(default_factory=list, max_length=PRICES_MAX, exclude_if=not_)


class ReadCheckout(ServiceMessage):
    """Asks what a hold of this holder costs, with a promo code that came from this client address."""

    event_id: str
    holder: str
    reservation_id: str = Field(pattern=r"^[A-Za-z0-9_-]{1,64}$")
    promo_code: str | None = None
    address: str | None = None


class CheckoutFacts(ServiceMessage):
    """What a hold costs, and how it may be paid; `refusal` is the slug of the problem with the promo code."""

    quote: QuoteAnswer
    providers: list[ProviderAnswer]
    refusal: str | None = None


class ReadOwnOrder(ServiceMessage):
    """Asks for an order by its own token."""

    reference: str
    token: str


class OwnOrder(ServiceMessage):
    """An order, how it may be paid again, and which names its buyer may change until when."""

    order: OrderView
    providers: list[ProviderAnswer]
    names: NamesWanted = "none"
    names_until: AwareDatetime | None = None


class ShopClient:
    """Typed calls to inventory and orders."""

    def __init__(self, inventory: ServiceClient, orders: ServiceClient) -> None:
        self._inventory = partial(inventory.call, deadline_s=DEADLINE_S)
        self._orders = partial(orders.call, deadline_s=DEADLINE_S)

    async def list_events(self, after: str | None) -> ListedEvents:
        return await self._inventory("/events/list", ListEvents(after=after), ListedEvents)

    async def event_page(self, event_id: str) -> EventPageFacts:
        return await self._inventory("/events/page", ReadEventPage(event_id=event_id), EventPageFacts)

    async def find(self, event_id: str, holder: str) -> FoundReservation:
        question = FindReservation(event_id=event_id, holder=holder)
        return await self._inventory("/reservations/of-holder", question, FoundReservation)

    async def section_seats(self, question: ReadSeats) -> SeatPage:
        """Raises `UnknownEvent`, and `Problem` `unknown-section`."""
        return await self._inventory("/sections/seats", question, SeatPage)

    async def prices(self, event_id: str, each: list[int], of_types: Sequence[TypePrice] = ()) -> PricesAnswer:
        question = ReadPrices(event_id=event_id, each=each, each_of_type=list(of_types))
        return await self._orders("/events/prices", question, PricesAnswer)

    async def checkout(self, question: ReadCheckout) -> CheckoutFacts:
        """Raises `UnknownReservation`, `HoldExpired`."""
        return await self._orders("/checkout/read", question, CheckoutFacts)

    async def own_order(self, question: ReadOwnOrder) -> OwnOrder:
        """Raises `BadCredential` for a token of another order, and the problem `unknown-order`."""
        return await self._orders("/orders/own", question, OwnOrder)
