"""What fans and shops send and are answered, as types. Generated from the OpenAPI document by `make api-documents`."""

from typing import Any, Literal, NotRequired, TypedDict


class AdjustmentView(TypedDict):
    """A discount, a fee or a tax; an `included` one is part of the price already. `percent` is a decimal as text."""

    kind: str
    name: str
    percent: str | None
    amount_minor: int
    included: bool


class AttemptView(TypedDict):
    """The latest payment attempt. `checkout_url` while the buyer has to pay on the provider's page."""

    n: int
    status: str
    reason: str | None
    checkout_url: str | None


class BestAvailable(TypedDict):
    """The best places next to each other, in one section or anywhere, at most at this price each."""

    quantity: int
    section_id: NotRequired[str | None]
    max_price_minor: NotRequired[int | None]
    split: NotRequired[bool]


class ShownPicture(TypedDict):
    """A picture: its address, which changes with its content, its size in pixels, and what it shows in words."""

    url: str
    width: int
    height: int
    alt: str


class BrandDetails(TypedDict):
    """The seller. `stylesheet` has the colours and fonts of the brand; null if it has none. `accent_dark` is never null
    where `accent` is not.
    """

    name: NotRequired[str | None]
    logo: NotRequired[ShownPicture | None]
    accent: NotRequired[str | None]
    accent_dark: NotRequired[str | None]
    background: NotRequired[str | None]
    background_dark: NotRequired[str | None]
    stylesheet: NotRequired[str | None]
    help_url: NotRequired[str | None]
    terms_url: NotRequired[str | None]
    imprint_url: NotRequired[str | None]
    privacy_url: NotRequired[str | None]


class ChallengeAnswer(TypedDict):
    """A challenge of ALTCHA: find the number whose hash begins with the key prefix in `parameters`."""

    parameters: dict[str, Any]
    signature: str


class CustomerDetails(TypedDict):
    """Who buys. Limits per customer count by the e-mail address."""

    name: str
    email: str
    check_spelling: NotRequired[bool]
    phone: NotRequired[str | None]


class CustomerView(TypedDict):
    """Who ordered."""

    name: str | None
    email: str | None


class EmailChange(TypedDict):
    """The right e-mail address of an order."""

    email: str
    check_spelling: NotRequired[bool]


class Entrants(TypedDict):
    """The entrants of one lane: entry numbers 1 to `n`, `taken` of them in use, and the Merkle root over all."""

    n: int
    taken: NotRequired[int]
    hash: str


class EntryProof(TypedDict):
    """Proof that an entry number was counted: `receipt` commits to the holder, `path` leads to the Merkle root."""

    event_id: str
    epoch: int
    lane: NotRequired[int]
    entry: int
    entrants_n: int
    receipt: str
    path: list[str]


class EstimateChanged(TypedDict):
    """Why the estimate grew or was withdrawn, and when."""

    reason: Literal["rate-lowered", "throttled", "recovering", "room-full", "fans-returned", "slower", "start-moved", "paused", "stock-low", "unknown"]
    at: str


class EventCard(TypedDict):
    """An event in a list."""

    event_id: str
    name: str
    venue: str
    starts_at: str
    ends_at: NotRequired[str | None]
    timezone: str
    currency: str
    price_from_minor: int
    picture: NotRequired[ShownPicture | None]


class EventLimits(TypedDict):
    """Limits of tickets (0 is unlimited), and how long a hold and a payment last."""

    tickets_per_order: int
    tickets_per_customer: int
    tour_tickets_per_customer: int
    hold_ttl_s: int
    pay_ttl_s: int


class PriceLevelDetails(TypedDict):
    """Rows, first and last, with a price of their own; they are counted from the front, from 1."""

    name: str
    rows: list[Any]
    price_minor: int


class SectionDetails(TypedDict):
    """A section with its lowest price, and that of rows in no price level; `rows` and `seats_per_row` are null for
    general admission.
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
    rows: int | None
    seats_per_row: int | None


class EventDetails(TypedDict):
    """An event with its limits and sections. `map_hash` names its map; null if it has too many seats for one."""

    event_id: str
    name: str
    venue: str
    starts_at: str
    ends_at: NotRequired[str | None]
    timezone: str
    currency: str
    price_from_minor: int
    picture: NotRequired[ShownPicture | None]
    limits: EventLimits
    sections: list[SectionDetails]
    map_hash: NotRequired[str | None]
    brand: NotRequired[BrandDetails | None]


class EventPage(TypedDict):
    """Events by their start."""

    next: str | None
    events: list[EventCard]


class Fee(TypedDict):
    """A fee on top of the tickets; a percentage is of their price after the discount. A free ticket carries no fee per
    ticket, a free order no fee per order.
    """

    amount_minor: NotRequired[int | None]
    percent: NotRequired[float | str | None]
    name: str
    per: NotRequired[Literal["ticket", "order"]]


class GaTickets(TypedDict):
    """Tickets of one GA section."""

    section_id: str
    quantity: int


class HallStage(TypedDict):
    """The stage: its centre and its size."""

    at: list[Any]
    size: list[Any]


class SectionLabels(TypedDict):
    """What stands on a section's rows, and on their seats in the order of `number`: those of row `n` are
    `seats[of_rows[n]]`, as rows of the same seats share one list.
    """

    rows: list[str]
    seats: list[list[str]]
    of_rows: list[int]


class SectionRows(TypedDict):
    """The rows of a section, and how many rows and seats per row there are; `labels` is null where both are counted."""

    at: list[Any]
    pitch: float
    spacing: float
    curve: NotRequired[float]
    angle: NotRequired[float]
    count: int
    seats: int
    labels: SectionLabels | None


class SectionShape(TypedDict):
    """A section on the map; `rows` is null for general admission."""

    section_id: str
    outline: list[list[Any]]
    rows: SectionRows | None


class HallGeometry(TypedDict):
    """The whole map. Seats are in map order: by the sections of this list, then by row, then by number."""

    size: list[Any]
    stage: HallStage | None
    sections: list[SectionShape]


class HandoverBody(TypedDict):
    """Where the fan came from: the values from the fragment of the fan page's address."""

    return_to: str
    gate: str


class JoinBody(TypedDict):
    """Sent by a fan who joins. `code` is an access code that opens a lane; it never stands in an address. `from_gate`:
    a protected site redirected this fan, so the rollout has already selected them to wait.
    """

    code: NotRequired[str | None]
    from_gate: NotRequired[bool]


class JoinedAnswer(TypedDict):
    """A place in the line. The same token is also set as an HttpOnly cookie."""

    queue_token: str | None
    join_seq: int
    lane: int
    position_in_queue: int | None
    rank: NotRequired[int | None]
    estimated_wait_time: int | None
    estimated_wait_low: NotRequired[int | None]
    estimated_wait_high: NotRequired[int | None]
    status: Literal["prequeue", "waiting", "ready", "admitted", "completed", "expired", "left"]
    epoch: int
    poll_after_ms: int


class KeepBody(TypedDict):
    """The places of a reservation to keep; all others are released."""

    seats: NotRequired[list[str]]
    ga: NotRequired[list[GaTickets]]


class LaneAnswer(TypedDict):
    """A lane other than the general one. Its fans are called from `opens_at` on."""

    head_seq: int
    tail_seq: int
    name: str
    code_required: bool
    opens_at: NotRequired[str | None]


class Throttled(TypedDict):
    """The rate is throttled below the operator's: the share that is left, and the reason."""

    factor: float
    reason: Literal["inventory-refuses", "inventory-slow", "inventory-full", "orders-refuses", "orders-slow", "orders-full", "easing", "recovering"]


class LineAnswer(TypedDict):
    """The public state of the line; `head_seq`, `tail_seq` and `opens_at` are those of lane 0."""

    state: Literal["draft", "prequeue", "open", "paused", "draining", "last_chance", "sold_out", "closed"]
    epoch: int
    head_seq: int
    tail_seq: int
    rate_per_s: float
    live_ratio: float
    message: str | None
    throttled: NotRequired[Throttled | None]
    sale_starts_at: str | None
    server_time: str
    lottery: NotRequired[Literal["open", "closed", "drawn"] | None]
    opens_at: NotRequired[str | None]
    lanes: NotRequired[dict[str, LaneAnswer] | None]


class LineView(TypedDict):
    """Tickets of one seat or section. `paid_minor` is what they cost together with discounts, fees and taxes."""

    section_id: str
    seat_id: str | None
    quantity: int
    returned: int
    unit_price_minor: int
    paid_minor: int


class LinksRequest(TypedDict):
    """The address whose orders' links are to be mailed again."""

    email: str


class PublicValue(TypedDict):
    """A public value drawn with besides the seed: named in advance, unknown to anybody before `known_at`."""

    what: str
    known_at: str


class LotteryRules(TypedDict):
    """The rules of the draw, for `ordering: lottery`. Fans who joined before `entry_closes_at` take part."""

    entry_closes_at: str
    public_value: PublicValue


class Payment(TypedDict):
    """How to charge: a provider's method, with a token or by redirecting the fan to the provider and back."""

    provider: NotRequired[str]
    method: str
    token: NotRequired[str | None]
    return_url: NotRequired[str | None]


class NewOrder(TypedDict):
    """A purchase of one reservation, at the price the fan was shown."""

    reservation_id: str
    expected_total_minor: int
    currency: str
    customer: CustomerDetails
    payment: Payment
    promo_code: NotRequired[str | None]
    language: NotRequired[str | None]


class NewPayment(TypedDict):
    """Another payment attempt."""

    payment: Payment


class OrderAccepted(TypedDict):
    """An accepted order. `order_token` opens it for good; `checkout_url` is where the fan pays, if anywhere."""

    reference: str
    status: str
    order_token: str
    checkout_url: str | None
    expires_at: str
    expires_in_seconds: int
    poll_url: str
    updates_url: str


class OrderView(TypedDict):
    """An order as its buyer reads it. Amounts are minor units of `currency`, times RFC 3339 texts. `language` is that
    of its mails and papers. `mail_failed`: a mail about it was given up, and none was sent since. `dispute` is the
    buyer's dispute of the payment (open, won or lost by the seller), and `disputed_minor` what the provider has
    withdrawn for it.
    """

    reference: str
    event_id: str
    reservation_id: str
    status: str
    progress: str | None
    total_minor: int
    currency: str
    charged_minor: int
    refunded_minor: int
    refunding_minor: int
    disputed_minor: NotRequired[int]
    dispute: NotRequired[str | None]
    lines: list[LineView]
    extras: list[AdjustmentView]
    customer: CustomerView
    mail_failed: NotRequired[bool]
    language: str
    created_at: str
    expires_at: str
    expires_in_seconds: int
    confirmed_at: str | None
    fulfilled_at: str | None
    cancel_asked: bool
    extended: bool
    oversold: bool
    end_reason: str | None
    attempt: AttemptView | None


class OrdersPage(TypedDict):
    """A customer's orders, newest first."""

    page: int
    page_size: int
    orders: list[OrderView]


PassAnswer = TypedDict(
    "PassAnswer",
    {
        "pass": str,
        "expires_at": str,
        "checkout_key": str,
        "status": NotRequired[Literal["admitted"]],
    },
)


class Tax(TypedDict):
    """A tax on tickets and fees. `included`: their prices contain it and it is only shown; otherwise it is added."""

    name: str
    percent: float | str
    included: NotRequired[bool]


class PricesAnswer(TypedDict):
    """An event's fees and taxes, and the prices asked for with all of them, in minor units."""

    fees: NotRequired[list[Fee]]
    taxes: NotRequired[list[Tax]]
    all_in: NotRequired[dict[str, int]]
    together_minor: NotRequired[int | None]


class ProblemEntry(TypedDict):
    """One kind of problem document: what it means."""

    slug: str
    status: int
    title: str
    more: str
    retry_after_s: float | None
    service: str | None


class ProblemCatalogue(TypedDict):
    """All kinds of problem documents, sorted by slug."""

    problems: list[ProblemEntry]


class ProviderAnswer(TypedDict):
    """A payment provider and its methods."""

    name: str
    methods: list[str]


class ProvidersAnswer(TypedDict):
    """The payment providers that may be used."""

    providers: list[ProviderAnswer]


class PublicKey(TypedDict):
    """An Ed25519 public key as a JWK (RFC 8037)."""

    kty: str
    crv: str
    x: str
    kid: str
    use: str
    alg: str


class PublicKeys(TypedDict):
    """A JWK set."""

    keys: list[PublicKey]


class PublishedLottery(TypedDict):
    """A null field is not decided yet. `seed` stays secret until the draw; `commitment` is its SHA-256."""

    event_id: str
    epoch: int
    stage: str
    algorithm: NotRequired[str]
    commitment: str
    committed_at: str
    queue_opens_at: NotRequired[str | None]
    rules: LotteryRules
    closed_at: NotRequired[str | None]
    entrants: NotRequired[dict[str, Entrants]]
    counted_at: NotRequired[str | None]
    public_value: NotRequired[str | None]
    seed: NotRequired[str | None]
    drawn_at: NotRequired[str | None]


class QuoteAnswer(TypedDict):
    """What the reservation costs with discounts, fees and taxes, in minor units."""

    reservation_id: str
    total_minor: int
    currency: str
    lines: list[LineView]
    extras: list[AdjustmentView]


class QuoteRequest(TypedDict):
    """A reservation to price, with a promo code if there is one."""

    reservation_id: str
    promo_code: NotRequired[str | None]


class ReminderAnswer(TypedDict):
    """The hold that reminders are sent for."""

    reservation_id: str


class ReminderRequest(TypedDict):
    """The holder's consent to two mails about this hold."""

    reservation_id: str
    email: str


class ReservationView(TypedDict):
    """A reservation. `ga_section` and `ga_quantity` repeat the first entry of `ga`."""

    reservation_id: str
    reserved_until: str
    seats: list[str]
    ga_section: str | None
    ga_quantity: int
    ga: list[GaTickets]
    total_amount_minor_units: int
    currency: str
    status: Literal["pending_payment", "paying", "confirmed", "returned", "expired", "cancelled"]


class ReserveBody(TypedDict):
    """Seats, GA tickets or both, or else the best available places. `ga_section` and `ga_quantity` are short for one
    entry of `ga`.
    """

    seats: NotRequired[list[str]]
    ga: NotRequired[list[GaTickets]]
    ga_section: NotRequired[str | None]
    ga_quantity: NotRequired[int | None]
    best_available: NotRequired[BestAvailable | None]
    email: NotRequired[str | None]
    reminders: NotRequired[bool]


class ReturnLink(TypedDict):
    """The address to send the fan to."""

    location: str
    good_for_s: int


class SeatView(TypedDict):
    """One seat: what stands on its row (`row`) and on the chair (`label`), and its number in the row from the left."""

    seat_id: str
    row: str
    label: NotRequired[str]
    number: int
    status: Literal["available", "reserved", "sold", "blocked"]
    price_minor: int


class SeatPage(TypedDict):
    """Some seats of a section; a GA section has none."""

    section_id: str
    total_seats: int
    page: int
    page_size: int
    seats: list[SeatView]


class SectionAvailability(TypedDict):
    """A section, what is available and held, and its lowest price."""

    section_id: str
    name: str
    kind: Literal["seated", "ga"]
    type: str
    total_seats: int
    available_seats: int
    held_seats: int
    price_minor: int
    currency: str


class SectionList(TypedDict):
    """The sections of an event."""

    sections: list[SectionAvailability]


class ShowAnswer(TypedDict):
    """The show that tickets are for; `when` is its local time in words."""

    event_id: str
    name: str
    venue: str
    when: str


class SlotReleased(TypedDict):
    """The state of the place after the release."""

    status: Literal["prequeue", "waiting", "ready", "admitted", "completed", "expired", "left"]


class StatusAnswer(TypedDict):
    """The status of a place. Each request for it is also a heartbeat of the place."""

    status: Literal["prequeue", "waiting", "ready", "admitted", "completed", "expired", "left"]
    join_seq: int
    position_in_queue: int | None
    rank: NotRequired[int | None]
    estimated_wait_time: int | None
    estimated_wait_low: NotRequired[int | None]
    estimated_wait_high: NotRequired[int | None]
    estimate_changed: NotRequired[EstimateChanged | None]
    head_seq: int
    state: Literal["draft", "prequeue", "open", "paused", "draining", "last_chance", "sold_out", "closed"]
    poll_after_ms: int
    message: str | None
    until: NotRequired[str | None]
    why: NotRequired[Literal["unclaimed", "session"] | None]


class TicketAnswer(TypedDict):
    """A ticket; `code` is what a scanner reads, none for a void ticket."""

    ticket_id: str
    section_id: str
    seat_id: str | None
    place: str
    status: str
    void_at: str | None
    code: str | None


class TicketsAnswer(TypedDict):
    """The tickets of an order. `window_s` is how long a code is valid before it must be fetched again, 0 for ever."""

    reference: str
    event: ShowAnswer
    window_s: int
    tickets: list[TicketAnswer]
