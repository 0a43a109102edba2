"""What callers may send, within its limits. A token is a provider's name for a card; a card's own number is refused."""

from typing import Annotated, Literal, Self

from pydantic import AwareDatetime, Field, StringConstraints, field_validator, model_validator

from shared.contracts.prices import AmountOrPercent, PriceRules
from shared.web.fields import Body, Currency, Email, PlainText, SeatId, SectionId

AMOUNT_MAX = 10**12
TICKETS_MAX = 100
RATE_MAX_PER_S = 200.0
USES_MAX = 100_000
Name = Annotated[str, StringConstraints(pattern=r"^[a-z_]{1,32}$")]
Token = Annotated[str, StringConstraints(pattern=r"^[\x21-\x7e]+$", min_length=1, max_length=200)]
Url = Annotated[str, StringConstraints(pattern=r"^https?://[\x21-\x7e]+$", max_length=2000)]
Phone = Annotated[str, StringConstraints(pattern=r"^[+0-9 ()./-]{3,32}$")]
ReservationId = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_-]{1,64}$")]
PromoCode = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_-]{1,64}$")]


class Customer(Body):
    """Who buys. The e-mail address is also what limits per customer are counted by."""

    name: PlainText
    email: Email
    phone: Phone | None = None


class Payment(Body):
    """How to charge: a provider's method, with a token or by sending the fan to the provider and back."""

    provider: Name = "sandbox"
    method: Name
    token: Token | None = None
    return_url: Url | None = None


class NewOrder(Body):
    """A purchase of one reservation, at the price the fan was shown."""

    reservation_id: ReservationId
    expected_total_minor: int = Field(strict=True, ge=0, le=AMOUNT_MAX)
    currency: Currency
    customer: Customer
    payment: Payment
    promo_code: PromoCode | None = None

    @field_validator("customer")
    @classmethod
    def _name_is_not_blank(cls, customer: Customer) -> Customer:
        if not customer.name.strip():
            raise ValueError("the name must not be blank")
        return customer


class QuoteAsked(Body):
    """What would this reservation cost, with this promo code if there is one?"""

    reservation_id: ReservationId
    promo_code: PromoCode | None = None


class PromoCodeAsk(AmountOrPercent):
    """A promo code as it shall be: what it takes off, how often, when, and off which tickets; no section means any."""

    uses_max: int | None = Field(None, ge=1, le=USES_MAX)
    customer_uses_max: int | None = Field(None, ge=1, le=USES_MAX)
    valid_from: AwareDatetime | None = None
    valid_until: AwareDatetime | None = None
    section_ids: list[SectionId] = Field(default_factory=list, max_length=500)
    tickets_min: int = Field(1, ge=1, le=100, description="so many tickets of these sections at least")
    reason: PlainText | None = None

    @model_validator(mode="after")
    def _ends_after_it_begins(self) -> Self:
        if self.valid_from and self.valid_until and self.valid_until <= self.valid_from:
            raise ValueError("valid_until must be after valid_from")
        return self


class NewPayment(Body):
    """Another attempt."""

    payment: Payment


class SomeTickets(Body):
    """Tickets of a GA section."""

    section_id: SectionId
    quantity: int = Field(ge=1, le=TICKETS_MAX)


class Tickets(Body):
    """Which tickets of an order, each once."""

    seats: list[SeatId] = Field(default_factory=list, max_length=TICKETS_MAX)
    ga: list[SomeTickets] = Field(default_factory=list, max_length=TICKETS_MAX)

    @model_validator(mode="after")
    def _each_once(self) -> Self:
        sections = [some.section_id for some in self.ga]
        if not (self.seats or self.ga):
            raise ValueError("name at least one ticket")
        if len(set(self.seats)) < len(self.seats) or len(set(sections)) < len(sections):
            raise ValueError("name every seat and every section once")
        return self


class Reason(Body):
    """Why; it is kept."""

    reason: PlainText


class RefundAsked(Reason):
    """An amount, or some tickets, or, without either, all that is left; and whether the tickets may be bought again."""

    amount_minor: int | None = Field(None, strict=True, ge=1, le=AMOUNT_MAX)
    tickets: Tickets | None = None
    return_to_sale: bool = False

    @model_validator(mode="after")
    def _one_of_them(self) -> Self:
        if self.amount_minor is not None and (self.tickets is not None or self.return_to_sale):
            raise ValueError("an amount gives no tickets back")
        return self


class ResolveAsked(Reason):
    """What a person decided about an order in review."""

    decision: Literal["confirm", "refund", "expire"]
    return_to_sale: bool = False


class EventRefundAsked(Reason):
    """Everybody's money goes back, at this pace."""

    rate_per_s: float = Field(10.0, gt=0, le=RATE_MAX_PER_S)
    return_to_sale: bool = False


class EventRefundResumed(Reason):
    """It goes on, at another pace if one is given."""

    rate_per_s: float | None = Field(None, gt=0, le=RATE_MAX_PER_S)


class PricesAnswer(PriceRules):
    """An event's fees and taxes, and what they make of the prices that were asked about, in minor units."""

    all_in: dict[int, int] = Field(default_factory=dict, description="By price: one ticket with everything in it.")
    together_minor: int | None = Field(None, description="One order of all lines that were asked about.")
