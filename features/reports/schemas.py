"""What the reports answer: flows by time, hold times, charges, settlement, comparison with providers, the ticket list
of scanners.

Counts are of fans or places, amounts are integers of the currency's minor units, times are RFC 3339 unless a name ends
in `_s`. A sum counts what our money ledger has; a comparison says where a provider's own list disagrees with it.
"""

from datetime import datetime
from typing import Literal

from pydantic import BaseModel, Field

from shared.contracts.admin.orders import Answered
from shared.contracts.fields import Page


class LineStep(BaseModel):
    """One step of time, by its number: fans who joined, and fans called for the first time and their waits."""

    step: int
    joined: int
    called: int
    wait_p50_s: float | None
    wait_p95_s: float | None


class LineHistory(BaseModel):
    """The steps in which anything happened."""

    steps: list[LineStep]


class HistogramBucket(BaseModel):
    """Holds between two edges in seconds; the last bucket has no end."""

    from_s: int
    to_s: int | None
    holds: int


class HoldTimeDistribution(BaseModel):
    """Seconds after the hold, as percentiles (by number, empty without holds) and as a histogram."""

    holds: int
    percentiles_s: dict[str, float]
    histogram: list[HistogramBucket]


class ShareEstimate(BaseModel):
    """A share, or the difference of two, with its 95 % confidence interval."""

    value: float
    low: float
    high: float


class ReturningHolders(BaseModel):
    """Holders whose hold ended unpaid, those who held again, and those who then bought."""

    left: int
    returned: int
    bought: int
    share: ShareEstimate | None


class HoldTtlSuggestion(BaseModel):
    """The shortest hold in which `kept_percent` of the buyers began to pay; null while there are too few buyers."""

    hold_ttl_s: int | None
    now_s: int
    kept_percent: int
    buyers: int
    buyers_min: int
    late_percent: float


class VariantConversion(BaseModel):
    """Holders of one variant of `hold_ttl_s`: how many, how many bought, and how many have no outcome yet."""

    arm: str
    hold_ttl_s: int | None
    fans: int
    bought: int
    open: int
    conversion: ShareEstimate | None


class VariantDifference(ShareEstimate):
    """How much more of b's holders buy than of a's, and what that shows."""

    verdict: Literal["b sells more", "a sells more", "no difference shown"]


class HoldTimesReport(BaseModel):
    """How long holders take from hold to payment, who returns, and which length of a hold sells more."""

    event_id: str
    holds: int
    fans: int
    to_payment: HoldTimeDistribution
    to_confirmed: HoldTimeDistribution
    returning: ReturningHolders
    suggestion: HoldTtlSuggestion
    arms: list[VariantConversion]
    b_minus_a: VariantDifference | None


class HoldsStep(BaseModel):
    """One step of time, by its number: holds begun, sold, expired and cancelled in it."""

    step: int
    held: int
    confirmed: int
    expired: int
    cancelled: int


class HoldsHistory(BaseModel):
    """The steps in which anything happened, and reservations by the reason of their release over the whole sale."""

    steps: list[HoldsStep]
    released: dict[str, int]


class BookedCharge(Answered):
    """A charge of our money ledger, what of it was refunded, and what the provider has withdrawn for a dispute."""

    reference: str
    provider: str
    charge_ref: str
    currency: str
    charged_minor: int
    refunded_minor: int
    disputed_minor: int = 0


class ChargePage(Page):
    """Charges of an event, oldest first."""

    charges: list[BookedCharge]


class SettlementSum(Answered):
    """Charges, refunds and disputes of one provider in one currency. `refunded_outside_minor` is the part of the
    refunds that was made at the provider itself; `disputed_minor` was withdrawn for disputes, `reinstated_minor` came
    back.
    """

    provider: str
    currency: str
    charges: int
    charged_minor: int
    refunds: int
    refunded_minor: int
    refunded_outside_minor: int = 0
    disputes: int = 0
    disputed_minor: int = 0
    reinstated_minor: int = 0
    net_minor: int


class SettlementDay(SettlementSum):
    """The same on one day."""

    day: str


class TypeSettlement(Answered):
    """Tickets of a price type of an event that were charged, how many were returned with a refund, and their money in
    one currency. Without a `type_id`: all of an event without price types, and of any other what is for no tickets:
    disputes, refunds of an amount, those made in part at the provider itself, and charges that paid for no sale.
    Without an `event_id`: all that more rows would tell.
    """

    event_id: str | None
    type_id: str | None
    name: str | None
    currency: str
    tickets: int
    charged_minor: int
    returned: int
    refunded_minor: int
    disputed_minor: int
    reinstated_minor: int
    net_minor: int


class ComparedCharge(Answered):
    """A charge that our money ledger and the provider's list disagree about."""

    charge_ref: str
    reference: str | None
    amount_minor: int
    currency: str


class DifferentCharge(ComparedCharge):
    """A charge of another amount or currency at the provider."""

    theirs_minor: int
    their_currency: str


class MovedCharge(ComparedCharge):
    """A charge of which more or less was refunded or withdrawn at the provider than our money ledger has."""

    refunded_minor: int
    theirs_refunded_minor: int
    disputed_minor: int
    theirs_disputed_minor: int


class ProviderComparison(Answered):
    """A provider's list against our money ledger: charges `missing` in ours, `extra` in ours, `different` ones, and
    those whose money `moved` otherwise after they were charged; at most a thousand of each. `compared` counts all that
    were looked at.
    """

    provider: str
    compared: int
    missing: list[ComparedCharge]
    extra: list[ComparedCharge]
    different: list[DifferentCharge]
    moved: list[MovedCharge] = Field(default_factory=list)


class Settlement(Answered):
    """Sums by day, provider and currency, and over all days; the same money by event, price type and currency, at most
    two thousand rows; `compared` only if it was requested.
    """

    first: str = Field(alias="from")
    last: str = Field(alias="to")
    tz: str
    days: list[SettlementDay]
    totals: list[SettlementSum]
    types: list[TypeSettlement] = Field(default_factory=list)
    compared: list[ProviderComparison] = Field(default_factory=list)


class ScannerTicket(Answered):
    """A ticket as a scanner needs it; `secret` (base64url) only where codes rotate, `name` only where an event asks.
    `proof` is what is shown with it at the door because of its price type.
    """

    ticket_id: str
    section_id: str
    seat_id: str | None
    order: str
    status: Literal["valid", "void"]
    issued_at: str
    void_at: str | None
    void_reason: str | None
    secret: str | None
    type_id: str | None = None
    type_name: str | None = None
    proof: str | None = None
    name: str | None = None


class ScannerTickets(Answered):
    """Every ticket of an event as of a time; `window_s` is how long a rotating code is valid, 0 if codes are fixed."""

    event_id: str
    as_of: str
    window_s: int
    tickets: list[ScannerTicket]


class OrdersStep(Answered):
    """One step of time, by its number: orders created and confirmed in it, and the tickets of the latter."""

    step: int
    ordered: int
    confirmed: int
    tickets: int


class SectionSales(Answered):
    """Tickets of a section that were sold, how many of them were returned, and when the first and the last was sold."""

    section_id: str
    sold: int
    returned: int
    first_at: datetime
    last_at: datetime


class TypeSales(Answered):
    """Tickets of a price type that were sold, how many of them were returned, and what all of them cost with discounts,
    fees and taxes.
    """

    type_id: str
    name: str
    sold: int
    returned: int
    paid_minor: int
    currency: str


class EventMoney(Answered):
    """Charges and refunds of an event in one currency, how much of the refunds was made at the provider itself, and
    what is withdrawn for disputes.
    """

    currency: str
    charges: int
    charged_minor: int
    refunds: int
    refunded_minor: int
    refunded_outside_minor: int = 0
    disputes: int = 0
    disputed_minor: int = 0


class UnsoldOrders(Answered):
    """Orders that ended without a sale, or wait for a decision."""

    status: str
    reason: str
    orders: int


class OrdersHistory(Answered):
    """The steps in which anything happened; sections, price types, money and unsold orders of the whole sale."""

    steps: list[OrdersStep]
    sections: list[SectionSales]
    types: list[TypeSales] = Field(default_factory=list)
    money: list[EventMoney]
    unsold: list[UnsoldOrders]
