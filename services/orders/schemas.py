"""What callers may send, within its limits. A token is a provider's name for a card; a card's own number is refused."""

from typing import Annotated

from pydantic import Field, StringConstraints, field_validator

from shared.inputs import Body, Currency, Email, PlainText

AMOUNT_MAX = 10**12
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
    expected_total_minor: int = Field(ge=0, le=AMOUNT_MAX)
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


class NewPayment(Body):
    """Another attempt."""

    payment: Payment


class RefundAsked(Body):
    """Why money goes back; it is kept."""

    reason: PlainText
