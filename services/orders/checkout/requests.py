"""Requests of fans who buy: a new order, another payment and a quote, each within its limits.

A payment token is a provider's name for a card; a card's own number is refused in any field, so that none is ever
stored or logged. The hash of a body tells a repeated request from another one with its idempotency key.
"""

import hashlib
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from operator import not_
from typing import Annotated, Any

from asyncpg.exceptions import LockNotAvailableError
from pydantic import BeforeValidator, Field, StringConstraints, field_validator

from services.orders.model.order import OrderLine
from services.orders.problems import CardNumberRefused, EmailLikelyMistyped, TicketNamesRefused
from services.orders.steps.run import MailPort
from shared.contracts.admin.orders import AMOUNT_MAX
from shared.contracts.event_parts.names import NamesWanted, TicketNames
from shared.contracts.fields import TYPED_MAX, Body, Currency, Email, Language, PlainText, TypedCode, tidy
from shared.errors.problems import IdempotencyInFlight
from shared.postgres.engine import DBAPIError
from shared.rules.addresses import suggested_address


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
    names: TicketNames = Field(
        default_factory=list,
        exclude_if=not_,
        description="The name on each ticket, in the order of the quote's lines, where the event asks for them.",
    )
    language: Language | None = Field(
        None, description="Of mails and papers; without it, that of the browser: `onsale_lang`, else `Accept-Language`."
    )

    @field_validator("customer")
    @classmethod
    def _name_is_not_blank(cls, customer: CustomerDetails) -> CustomerDetails:
        if not tidy(customer.name):
            raise ValueError("the name must not be blank")
        return customer


def require_names(needed: NamesWanted, lines: Sequence[OrderLine], names: Sequence[str]) -> None:
    """Raises `TicketNamesRefused` unless there is a name for each ticket, or none where the event asks for none."""
    places = [line.seat_id or line.section_id for line in lines for _ in range(line.quantity)]
    wanted = len(places) if needed == "ticket" else 0
    if len(names) == wanted:
        return
    if not wanted:
        why = "one name an order, that of the customer" if needed == "order" else "no names"
        detail = f"The event asks for {why}: leave `names` out."
    elif len(names) < wanted:
        n = len(names) + 1
        detail = f"Ticket {n} of {wanted} ({places[n - 1]}) has no name, and the event asks for one on each."
    else:
        detail = f"There are {len(names)} names for {wanted} tickets."
    raise TicketNamesRefused(detail, names=needed, tickets=wanted)


class NewPayment(Body):
    """Another payment attempt."""

    payment: Payment


class QuoteRequest(Body):
    """A reservation to price, with a promo code if there is one."""

    reservation_id: ReservationId
    promo_code: TypedCode = None


DIGITS_MIN, DIGITS_MAX = 13, 19
OWN_ID_FIELDS = ("reservation_id",)  # hexadecimal: may look like anything by chance
_DIGIT_GROUPS = re.compile(r"\+?\d+(?:[ ._()/-]{1,2}\d+)*")
_DIGIT_GROUPS_ALONE = re.compile(
    rf"(?<![^\W_]){_DIGIT_GROUPS.pattern}(?![^\W_])"
)  # digits amid letters are part of an id


_MAYBE_CARD = re.compile(rf"\d(?:[ ._()/-]{{0,2}}\d){{{DIGITS_MIN - 1}}}")


def refuse_card_numbers(body: Body, as_json: str | None = None) -> None:
    """Raises `CardNumberRefused`, which names the field and never repeats its value. `as_json` is the body as JSON, if
    the caller has it already.
    """
    if not _MAYBE_CARD.search(as_json or body.model_dump_json()):
        return  # the quick way out: too few digits anywhere
    for field, text in _texts(body.model_dump()):
        if field.split(".")[-1] not in OWN_ID_FIELDS and looks_like_card_number(text, is_token=field.endswith("token")):
            raise CardNumberRefused(f"{field}: this looks like a card number. Send the provider's token for the card.")


def looks_like_card_number(text: str, *, is_token: bool = False) -> bool:
    """Whether a text contains 13 to 19 digits with a valid check digit, in one piece or grouped as on cards, the first
    from 2 to 9. A telephone number with a `+` is none, nor digits amid letters, except in a token. A token of nothing
    but 13 to 19 digits always counts.
    """
    if is_token and re.fullmatch(rf"\d{{{DIGITS_MIN},{DIGITS_MAX}}}", text):
        return True
    rows = (
        re.findall(r"\d+", row)
        for row in (_DIGIT_GROUPS if is_token else _DIGIT_GROUPS_ALONE).findall(text)
        if not row.startswith("+")
    )
    return any(_is_card(digits) for groups in rows for digits in _adjacent_groups(groups))


def _adjacent_groups(groups: list[str]) -> Iterator[str]:
    """Every concatenation of adjacent groups that is short enough for a card."""
    for first in range(len(groups)):
        digits = ""
        for group in groups[first:]:
            digits += group
            if len(digits) > DIGITS_MAX:
                break
            yield digits


def _is_card(digits: str) -> bool:
    if len(digits) < DIGITS_MIN or digits[0] in "01":
        return False
    doubled = (int(digit) * (2 if place % 2 else 1) for place, digit in enumerate(reversed(digits)))
    return sum(value - 9 if value > 9 else value for value in doubled) % 10 == 0


def _texts(value: Any, field: str = "") -> Iterator[tuple[str, str]]:
    if isinstance(value, str):
        yield field, value
    elif isinstance(value, dict):
        for name, inner in value.items():
            yield from _texts(inner, f"{field}.{name}" if field else name)
    elif isinstance(value, list):
        for inner in value:
            yield from _texts(inner, field)


def fingerprint_of(request: Body) -> bytes:
    """The hash of a request's body. Raises `CardNumberRefused`."""
    body = request.model_dump_json()
    refuse_card_numbers(request, body)
    return hashlib.sha256(body.encode()).digest()


@contextmanager
def key_in_flight() -> Iterator[None]:
    """Raises `IdempotencyInFlight` if a row stays locked for too long: the first request with this key still runs."""
    try:
        yield
    except DBAPIError as failed:
        if isinstance(getattr(failed.orig, "__cause__", None), LockNotAvailableError):
            raise IdempotencyInFlight from failed
        raise


def check_address(mail_port: MailPort, address: str, check_spelling: bool) -> None:
    """Raises a problem for an address that can never be mailed and, with `check_spelling`, `EmailLikelyMistyped` with a
    `suggestion`.
    """
    mail_port.check_address(address)
    if check_spelling and (suggestion := suggested_address(address)) is not None:
        raise EmailLikelyMistyped(suggestion=suggestion)
