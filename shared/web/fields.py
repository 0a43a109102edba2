"""Types of request fields: ids and texts with their limits, and bodies that reject unknown fields.

The command line reads the same types, so they need no FastAPI; parameters of paths and queries are in `parameters`.
"""

import re
from datetime import datetime
from typing import Annotated, Any, Final, Literal, NamedTuple

from pydantic import AfterValidator, BaseModel, ConfigDict, StringConstraints

from shared.rules.currencies import CURRENCIES
from shared.rules.email_addresses import normalize_email
from shared.web.pages.words import LANGUAGES
from shared.web.routes import EVENT_ID, SECTION_ID

_MISMATCH: Final = re.compile(r"String should match pattern '(.*)'", re.DOTALL)
_SENTENCES: Final[dict[str, str]] = {}
_OTHER: Final = "Some characters are not allowed here, or the length is not right"


def pattern(text: str, sentence: str) -> str:
    """A regular expression of a field, and the sentence by which a value that does not match is refused."""
    _SENTENCES[text] = sentence
    return text


def refusal(message: str) -> str:
    """A validator's message as people read it: never a regular expression."""
    found = _MISMATCH.fullmatch(message)
    return _SENTENCES.get(found[1], _OTHER) if found else message


def _active_currency(code: str) -> str:
    if code not in CURRENCIES:
        raise ValueError("not the code of a currency that is in use, such as EUR (ISO 4217)")
    return code


def _valid_email(address: str) -> str:
    """The address as typed. Raises `ValueError` if it cannot be normalised."""
    normalize_email(address)
    return address


Role = Literal["viewer", "operator", "admin"]  # of operators, each may do what the one before may
_ID: Final = "Use 1 to 32 letters (A to Z), digits{} and _; the first is a letter or a digit"
EVENT_ID_PATTERN: Final = pattern(f"^{EVENT_ID}$", _ID.format(", -"))
SECTION_ID_PATTERN: Final = pattern(f"^{SECTION_ID}$", _ID.format(""))
SEAT_ID_PATTERN: Final = pattern(
    rf"^{SECTION_ID}-[A-Za-z0-9]{{1,8}}-[0-9]{{1,5}}$", "Name the seat by section, row and number, such as A-3-12"
)
NO_NULL: Final = pattern(r"^[^\x00]*$", "The text contains a null character")
EventId = Annotated[str, StringConstraints(pattern=EVENT_ID_PATTERN)]
SectionId = Annotated[str, StringConstraints(pattern=SECTION_ID_PATTERN)]
SeatId = Annotated[str, StringConstraints(pattern=SEAT_ID_PATTERN)]
LANGUAGE: Final = pattern(f"^({'|'.join(LANGUAGES)})$", f"Use one of {', '.join(LANGUAGES)}")
Language = Annotated[str, StringConstraints(pattern=LANGUAGE)]
CURRENCY: Final = pattern("^[A-Z]{3}$", "Use the code of the currency by ISO 4217: three capital letters, such as EUR")
StoredCurrency = Annotated[str, StringConstraints(pattern=CURRENCY)]
Currency = Annotated[StoredCurrency, AfterValidator(_active_currency)]
PlainText = Annotated[str, StringConstraints(pattern=NO_NULL, min_length=1, max_length=200)]
EMAIL: Final = pattern(r"^[^@\s\x00]{1,64}@[^@\s\x00]{1,189}$", "Use an e-mail address, such as ada@example.org")
Email = Annotated[
    str,
    StringConstraints(pattern=EMAIL, max_length=254),
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
