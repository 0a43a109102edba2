"""Requests of fans who buy: a new order, another payment and a quote, each within its limits.

A payment token is a provider's name for a card; a card's own number is refused.
"""

import re
from typing import Annotated, Any

from pydantic import BeforeValidator, Field, StringConstraints, field_validator

from shared.contracts.admin.orders import AMOUNT_MAX
from shared.contracts.fields import TYPED_MAX, Body, Currency, Email, Language, PlainText, TypedCode, tidy


def _without_pasted_blanks(value: Any) -> Any:
    """A number that is well written stays as it was typed."""
    as_typed = not isinstance(value, str) or len(value) > TYPED_MAX or re.fullmatch(PHONE[1:-1], value)
    return value if as_typed else tidy(value)


Name = Annotated[str, StringConstraints(pattern=r"^[a-z_]{1,32}$")]
Token = Annotated[str, StringConstraints(pattern=r"^[\x21-\x7e]+$", min_length=1, max_length=200)]
Url = Annotated[str, StringConstraints(pattern=r"^https?://[\x21-\x7e]+$", max_length=2000)]
PHONE = r"^[+0-9 ()./-]{3,32}$"
Phone = Annotated[str, BeforeValidator(_without_pasted_blanks), StringConstraints(pattern=PHONE)]
ReservationId = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_-]{1,64}$")]


CheckSpelling = Annotated[
    bool,
    Field(
        exclude=True,
        description="Refuse an address whose domain looks mistyped with `email-likely-mistyped`, before anything is "
        "done. Who is sure sends it again without this.",
    ),
]


class CustomerDetails(Body):
    """Who buys. Limits per customer count by the e-mail address."""

    name: PlainText
    email: Email
    check_spelling: CheckSpelling = False
    phone: Phone | None = None


class Payment(Body):
    """How to charge: a provider's method, with a token or by redirecting the fan to the provider and back."""

    provider: Name = "sandbox"
    method: Name
    token: Token | None = None
    return_url: Url | None = None


class NewOrder(Body):
    """A purchase of one reservation, at the price the fan was shown."""

    reservation_id: ReservationId
    expected_total_minor: int = Field(strict=True, ge=0, le=AMOUNT_MAX)
    currency: Currency
    customer: CustomerDetails
    payment: Payment
    promo_code: TypedCode = None
    language: Language | None = Field(
        None, description="Of mails and papers; without it, that of the browser: `onsale_lang`, else `Accept-Language`."
    )

    @field_validator("customer")
    @classmethod
    def _name_is_not_blank(cls, customer: CustomerDetails) -> CustomerDetails:
        if not tidy(customer.name):
            raise ValueError("the name must not be blank")
        return customer


class NewPayment(Body):
    """Another payment attempt."""

    payment: Payment


class QuoteRequest(Body):
    """A reservation to price, with a promo code if there is one."""

    reservation_id: ReservationId
    promo_code: TypedCode = None
