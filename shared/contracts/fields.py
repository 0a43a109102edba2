"""Types of request fields: ids and texts with their limits, bodies that reject unknown fields, and what is said of a
value that is refused.

The command line reads the same types, so they need no FastAPI; those of paths and queries are in `web.request`.

What the pages of every list of the admin APIs have in common.
"""

import re
import unicodedata
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Final, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, StringConstraints

from shared.errors.problems import InvalidRequest, MalformedRequest, Problem
from shared.routes import EVENT_ID, SECTION_ID
from shared.rules.addresses import normalize_email
from shared.rules.currencies import CURRENCIES
from shared.words.words import LANGUAGES

_INVISIBLE: Final = {"Cc", "Cf", "Cs", "Co", "Cn"}
_BLANKS: Final = re.compile(r"\s+")
_DOMAIN_END: Final = re.compile(r"\.(?![0-9]+$)[a-z0-9-]{2,}$")  # a name below a top-level one, and no IP address
TYPED_MAX, TIDIED_MAX, CODE_MAX = 200, 1_000, 64


def tidy(typed: str) -> str:
    """A text as it was meant: without the blanks and invisible characters that pasting brings along, each run of
    blanks and line breaks as one blank.
    """
    kept = (letter if unicodedata.category(letter) not in _INVISIBLE else "" for letter in _BLANKS.sub(" ", typed))
    return " ".join(unicodedata.normalize("NFC", "".join(kept)).split())


def code_as_shown(typed: str) -> str:
    """A code in the one way in which it is shown: upper case, with single blanks and plain dashes."""
    folded = tidy(typed)
    for _ in range(2):  # a few letters fold to others that fold again
        folded = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", folded).casefold().upper())
    dashed = ("-" if unicodedata.category(letter) == "Pd" or letter == "\u2212" else letter for letter in folded)
    return tidy("".join(dashed))


def code_key(typed: str) -> str:
    """What two ways to type a code have in common: case, blanks and kinds of dashes make no difference."""
    return unicodedata.normalize("NFC", code_as_shown(typed).replace(" ", ""))


def _tidied(value: Any) -> Any:
    return (tidy(value) or None) if isinstance(value, str) and len(value) <= TIDIED_MAX else value


def _trimmed(value: Any) -> Any:
    """Without the blanks at both ends. An invisible character stays: an address that has one is refused."""
    return value.strip() if isinstance(value, str) else value


def _new_code(typed: str) -> str:
    key = code_key(typed)
    if not 1 <= len(key) <= CODE_MAX or not any(map(str.isalnum, key)) or set(key) & set("/\\"):
        raise ValueError(f"a code has 1 to {CODE_MAX} letters, digits and signs such as - and %, without / and \\")
    return typed


def _active_currency(code: str) -> str:
    if code not in CURRENCIES:
        raise ValueError("not the code of a currency that is in use, such as EUR (ISO 4217)")
    return code


def _valid_email(address: str) -> str:
    """The address as typed. Raises `ValueError` if it cannot be normalised, and for a domain without a dot."""
    if not _DOMAIN_END.search(normalize_email(address)):
        raise ValueError("the part after the @ needs a dot, as in name@example.org")
    return address


EVENT_ID_PATTERN: Final = f"^{EVENT_ID}$"
SECTION_ID_PATTERN: Final = f"^{SECTION_ID}$"
LABEL: Final = "[A-Za-z0-9]{1,8}"  # of a row or a seat
SEAT_ID_PATTERN: Final = rf"^{SECTION_ID}-{LABEL}-{LABEL}$"
NO_NULL: Final = r"^[^\x00]*$"
EventId = Annotated[str, StringConstraints(pattern=EVENT_ID_PATTERN)]
SectionId = Annotated[str, StringConstraints(pattern=SECTION_ID_PATTERN)]
SeatId = Annotated[str, StringConstraints(pattern=SEAT_ID_PATTERN)]
LANGUAGE: Final = f"^({'|'.join(LANGUAGES)})$"
Language = Annotated[str, StringConstraints(pattern=LANGUAGE)]
CURRENCY: Final = "^[A-Z]{3}$"
StoredCurrency = Annotated[str, StringConstraints(pattern=CURRENCY)]
Currency = Annotated[StoredCurrency, AfterValidator(_active_currency)]
ReasonText = Annotated[str, StringConstraints(pattern=r"^[^\x00]*$", max_length=500)]
PlainText = Annotated[str, StringConstraints(pattern=NO_NULL, min_length=1, max_length=200)]
TypedCode = Annotated[Annotated[str, StringConstraints(max_length=TYPED_MAX)] | None, BeforeValidator(_tidied)]
NewCode = Annotated[str, AfterValidator(_new_code)]
EMAIL: Final = r"^[^@\s\x00]{1,64}@[^@\s\x00]{1,189}$"
Email = Annotated[
    str,
    BeforeValidator(_trimmed),
    StringConstraints(pattern=EMAIL, max_length=254),
    AfterValidator(_valid_email),
]


class ServiceMessage(BaseModel):
    """What one service tells another. It is immutable: services of one process pass the object itself, so nothing in
    it may be changed, its lists included.
    """

    model_config = ConfigDict(frozen=True)


class Body(BaseModel):
    """A request body: unknown fields are rejected, and it is immutable."""

    model_config = ConfigDict(extra="forbid", frozen=True)


def switch_value(value: Any) -> Any:
    """The command line of 0.1.0 sends a bare `off` or `on` of an event file as a boolean."""
    return {False: "off", True: "on"}[value] if isinstance(value, bool) else value


SingleSeatRule = Literal["allow", "tell", "refuse"]
Switch = Annotated[Literal["off", "observe", "on"], BeforeValidator(switch_value)]
RATE_MIN_PER_S = 0.001  # one call in 17 minutes: frames give a rate in thousandths


def _zero_or_a_thousandth(rate_per_s: float) -> float:
    if 0 < rate_per_s < RATE_MIN_PER_S:
        raise ValueError(f"0, or at least {RATE_MIN_PER_S} a second")
    return rate_per_s


RatePerS = Annotated[float, Field(ge=0, le=100_000), AfterValidator(_zero_or_a_thousandth)]


# -- what is said of a refused value -----------------------------------------------------------------------------------

_NAME = "letters A-Z, digits, _ and -"
WANTED: Mapping[str, str] = {  # by pattern: what a value of that form is, for whoever types one
    "^#[0-9A-Fa-f]{6}$": "a colour such as #1A2B3C",
    f"^({'|'.join(LANGUAGES)})$": f"one of the languages {', '.join(LANGUAGES)}",
    "^(event|order|webhook):[A-Za-z0-9_-]{1,64}$": "event:, order: or webhook: and an id",
    r"^/[A-Za-z0-9_.~/-]*(\*[A-Za-z0-9_.~/-]*){0,3}$": "a path such as /shop/*, with at most three *",
    "^[+0-9 ()./-]{3,32}$": "a telephone number of 3 to 32 digits, blanks and the signs + ( ) . / -",
    "^[0-9]{1,9}x[1-9][0-9]{0,2}(:[a-z][a-z0-9_]{0,23})?$":
        "a price and how many, such as 4200x2, or 2100x2:child of a price type",
    "^[0-9]{1,9}:[a-z][a-z0-9_]{0,23}$": "a price and its price type, such as 2100:child",
    "^[0-9a-f]{16}$": "16 digits 0-9 and a-f", "^[0-9a-f]{32}$": "32 digits 0-9 and a-f",
    "^[0-9a-f]{64}$": "64 digits 0-9 and a-f",
    r"^[0-9a-f]{24}\.[a-z]{3,4}$": "the name of a picture's file as the event gives it",
    "^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$": "a UUID in small letters",
    "^[A-Z0-9]{12}$": "the 12 letters and digits of a ticket's code",
    "^[A-Z]{3}$": "a currency's three letters such as EUR",
    f"^{EVENT_ID}$": f"1 to 32 {_NAME}, and begin with a letter or digit",
    f"^{SECTION_ID}$": "1 to 32 letters A-Z, digits and _, and begin with a letter or digit",
    f"^{SECTION_ID}(,{SECTION_ID}){{0,49}}$": "at most 50 sections' ids, with commas between them",
    SEAT_ID_PATTERN: "a seat's id such as A-12-7: section, row and seat",
    r"^[A-Za-z0-9][A-Za-z0-9_-]{0,47}(\.[A-Za-z0-9_-]{1,16}){0,2}\.(png|jpg|jpeg|webp|avif|svg)$":
        "the name of a picture's file that ends in png, jpg, jpeg, webp, avif or svg",
    "^[A-Za-z0-9]{8,40}$": "an order's reference: 8 to 40 letters and digits",
    f"^{LABEL}$": "a label of 1 to 8 letters A-Z and digits",
    rf"^{LABEL}(-{LABEL}(\.\.{LABEL})?)?$": "a row such as A, a seat such as A-1, or neighbours such as A-3..8",
    "^(consecutive|odd|even)(?: from (0|[1-9][0-9]{0,6}))?(?: from the (left|right))?$":
        "consecutive, odd or even, such as odd from 101 from the right",
    "^[A-Za-z0-9_+/-]{1,64}$": "a time zone such as Europe/Oslo",
    "^[A-Za-z0-9_-]{1,32}$": f"1 to 32 {_NAME}", "^[A-Za-z0-9_-]{1,64}$": f"1 to 64 {_NAME}",
    "^[A-Za-z0-9_-]{24}$": f"24 {_NAME}",
    r"^[A-Za-z0-9_-]{43}\.[A-Za-z0-9_-]{1,32}\.[A-Za-z0-9_-]{43}$": "the whole of a link that a mail had",
    r"^[\x21-\x7e]+$": "letters, digits and signs of ASCII, without blanks",
    r"^[\x21-\x7e]{1,255}$": "1 to 255 letters, digits and signs of ASCII, without blanks",
    r"^[^@\s\x00]{1,64}@[^@\s\x00]{1,189}$": "an e-mail address such as ada@example.org",
    r"^[^\x00-\x1f\x7f]+$": "a text of one line", r"^[^\x00-\x1f]*$": "a text of one line",
    r"^[^\x00]*$": "a text without null characters", "^[a-z-]{1,64}$": "1 to 64 small letters and -",
    "^[a-z][a-z0-9_]{0,23}$": "1 to 24 small letters, digits and _, and begin with a letter",
    "^[a-z]{1,32}$": "1 to 32 small letters", "^[a-z_]{1,32}$": "1 to 32 small letters and _",
    "^ep_[0-9a-f]{16}$": "the id of a webhook's endpoint, which begins with ep_",
    r"^https://[^\s\"'<>\\^`{|}\x00-\x20\x7f]+$": "an address that begins with https:// and has no blanks or quotes",
    r"^https?://[\x21-\x7e]+$": "an address that begins with http:// or https://",
    r"^https?://[a-z0-9.-]{1,253}(:[0-9]{1,5})?$": "a site such as https://shop.example.org, without a path",
}  # fmt: skip
_BY_KIND = {
    "missing": "This is missing.", "extra_forbidden": "There is no such field.", "string_type": "This must be text.",
    "int_parsing": "This must be a whole number.", "int_type": "This must be a whole number.",
    "int_from_float": "This must be a whole number.",
}  # fmt: skip


def refusal(error: Mapping[str, Any]) -> str:
    """What is wrong with a value, as a sentence: the validator's own words speak of inputs, and show patterns."""
    kind, message = error["type"], str(error["msg"])
    if kind == "string_pattern_mismatch":
        pattern = error.get("ctx", {}).get("pattern", "")
        return f"This must be {WANTED[pattern]}." if pattern in WANTED else "This does not have the form it must have."
    if kind in _BY_KIND:
        return _BY_KIND[kind]
    for theirs in ("Value error, ", "Assertion failed, "):
        message = message.removeprefix(theirs)
    for theirs in ("Input should", "String should", "List should", "Value should", "Tuple should", "Dictionary should"):
        message = message.replace(theirs, "This must", 1) if message.startswith(theirs) else message
    return message if message.endswith((".", "!", "?")) else f"{message}."


def invalid_request(errors: Sequence[Mapping[str, Any]]) -> Problem:
    """Unreadable JSON is 400; an invalid value is 422 and names its field, without repeating the value."""
    if any(error["type"] == "json_invalid" for error in errors):
        return MalformedRequest("The body is not JSON.")
    fields = [
        {"field": ".".join(str(part) for part in error["loc"][1:]) or str(error["loc"][0]), "message": refusal(error)}
        for error in errors[:20]
    ]
    return InvalidRequest(" ".join(f"{f['field']}: {f['message']}" for f in fields[:3]), errors=fields)


class Page(BaseModel):
    """One page of a list; `next` is the address of the next page, null on the last."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    next: str | None
