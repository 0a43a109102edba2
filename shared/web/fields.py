"""Types of request fields: ids and texts with their limits, bodies that reject unknown fields, and what is said of a
value that is refused.

The command line reads the same types, so they need no FastAPI; parameters of paths and queries are in `parameters`.
"""

from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import AfterValidator, BaseModel, ConfigDict, StringConstraints

from shared.rules.email_addresses import normalize_email
from shared.web.pages.words import LANGUAGES
from shared.web.routes import EVENT_ID, SECTION_ID


def _valid_email(address: str) -> str:
    """The address as typed. Raises `ValueError` if it cannot be normalised."""
    normalize_email(address)
    return address


Role = Literal["viewer", "operator", "admin"]  # of operators, each may do what the one before may
EventId = Annotated[str, StringConstraints(pattern=f"^{EVENT_ID}$")]
SectionId = Annotated[str, StringConstraints(pattern=f"^{SECTION_ID}$")]
SeatId = Annotated[str, StringConstraints(pattern=rf"^{SECTION_ID}-[A-Za-z0-9]{{1,8}}-[0-9]{{1,5}}$")]
Language = Annotated[str, StringConstraints(pattern=f"^({'|'.join(LANGUAGES)})$")]
Currency = Annotated[str, StringConstraints(pattern=r"^[A-Z]{3}$")]
PlainText = Annotated[str, StringConstraints(pattern=r"^[^\x00]*$", min_length=1, max_length=200)]
Email = Annotated[
    str,
    StringConstraints(pattern=r"^[^@\s\x00]{1,64}@[^@\s\x00]{1,189}$", max_length=254),
    AfterValidator(_valid_email),
]


class Body(BaseModel):
    """A request body: unknown fields are rejected, and it is immutable."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class TimeSteps(NamedTuple):
    """`steps` steps of `step_s` seconds each, from `start` on."""

    start: datetime
    step_s: int
    steps: int

    def bound(self) -> dict[str, Any]:
        """The values of a statement that counts by step."""
        return self._asdict()


# -- what is said of a refused value -----------------------------------------------------------------------------------

_NAME = "letters A-Z, digits, _ and -"
WANTED: Mapping[str, str] = {  # by pattern: what a value of that form is, for whoever types one
    "^#[0-9A-Fa-f]{6}$": "a colour such as #1A2B3C",
    f"^({'|'.join(LANGUAGES)})$": f"one of the languages {', '.join(LANGUAGES)}",
    "^(event|order|webhook):[A-Za-z0-9_-]{1,64}$": "event:, order: or webhook: and an id",
    r"^/[A-Za-z0-9_.~/-]*(\*[A-Za-z0-9_.~/-]*){0,3}$": "a path such as /shop/*, with at most three *",
    "^[+0-9 ()./-]{3,32}$": "a telephone number of 3 to 32 digits, blanks and the signs + ( ) . / -",
    "^[0-9]{1,9}x[1-9][0-9]{0,2}$": "a price and how many, such as 4200x2",
    "^[0-9a-f]{16}$": "16 digits 0-9 and a-f", "^[0-9a-f]{32}$": "32 digits 0-9 and a-f",
    "^[0-9a-f]{64}$": "64 digits 0-9 and a-f",
    r"^[0-9a-f]{24}\.[a-z]{3,4}$": "the name of a picture's file as the event gives it",
    "^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$": "a UUID in small letters",
    "^[A-Z0-9]{12}$": "the 12 letters and digits of a ticket's code", "^[A-Z]{3}$": "three capital letters such as EUR",
    f"^{EVENT_ID}$": f"1 to 32 {_NAME}, and begin with a letter or digit",
    f"^{SECTION_ID}$": "1 to 32 letters A-Z, digits and _, and begin with a letter or digit",
    f"^{SECTION_ID}(,{SECTION_ID}){{0,49}}$": "at most 50 sections' ids, with commas between them",
    rf"^{SECTION_ID}-[A-Za-z0-9]{{1,8}}-[0-9]{{1,5}}$": "a seat's id such as A-12-7: section, row and number",
    r"^[A-Za-z0-9][A-Za-z0-9_-]{0,47}(\.[A-Za-z0-9_-]{1,16}){0,2}\.(png|jpg|jpeg|webp|avif|svg)$":
        "the name of a picture's file that ends in png, jpg, jpeg, webp, avif or svg",
    "^[A-Za-z0-9]{8,40}$": "an order's reference: 8 to 40 letters and digits",
    "^[A-Za-z0-9_+/-]{1,64}$": "a time zone such as Europe/Oslo",
    "^[A-Za-z0-9_-]{1,32}$": f"1 to 32 {_NAME}", "^[A-Za-z0-9_-]{1,64}$": f"1 to 64 {_NAME}",
    "^[A-Za-z0-9_-]{24}$": f"24 {_NAME}",
    r"^[A-Za-z0-9_-]{43}\.[A-Za-z0-9_-]{1,32}\.[A-Za-z0-9_-]{43}$": "the whole of a link that a mail had",
    r"^[\x21-\x7e]+$": "letters, digits and signs of ASCII, without blanks",
    r"^[\x21-\x7e]{1,255}$": "1 to 255 letters, digits and signs of ASCII, without blanks",
    r"^[^@\s\x00]{1,64}@[^@\s\x00]{1,189}$": "an e-mail address such as ada@example.org",
    r"^[^\x00-\x1f\x7f]+$": "a text of one line", r"^[^\x00-\x1f]*$": "a text of one line",
    r"^[^\x00]*$": "a text without null characters", "^[a-z-]{1,64}$": "1 to 64 small letters and -",
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
