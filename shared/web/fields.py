"""Types of request fields: ids and texts with their limits, and bodies that reject unknown fields.

The command line reads the same types, so they need no FastAPI; parameters of paths and queries are in `parameters`.
"""

import re
import unicodedata
from datetime import datetime
from typing import Annotated, Any, Final, Literal, NamedTuple

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, StringConstraints

from shared.rules.currencies import CURRENCIES
from shared.rules.email_addresses import normalize_email
from shared.web.pages.words import LANGUAGES
from shared.web.routes import EVENT_ID, SECTION_ID

_MISMATCH: Final = re.compile(r"String should match pattern '(.*)'", re.DOTALL)
_SENTENCES: Final[dict[str, str]] = {}
_INVISIBLE: Final = {"Cc", "Cf", "Cs", "Co", "Cn"}
_BLANKS: Final = re.compile(r"\s+")
_DOMAIN_END: Final = re.compile(r"\.(?![0-9]+$)[a-z0-9-]{2,}$")  # a name below a top-level one, and no IP address
TYPED_MAX, TIDIED_MAX, CODE_MAX = 200, 1_000, 64
_OTHER: Final = "Some characters are not allowed here, or the length is not right"


def pattern(text: str, sentence: str) -> str:
    """A regular expression of a field, and the sentence by which a value that does not match is refused."""
    _SENTENCES[text] = sentence
    return text


def refusal(message: str) -> str:
    """A validator's message as people read it: never a regular expression."""
    found = _MISMATCH.fullmatch(message)
    return _SENTENCES.get(found[1], _OTHER) if found else message


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


Role = Literal["viewer", "operator", "admin"]  # of operators, each may do what the one before may
_ID: Final = "Use 1 to 32 letters (A to Z), digits{} and _; the first is a letter or a digit"
EVENT_ID_PATTERN: Final = pattern(f"^{EVENT_ID}$", _ID.format(", -"))
SECTION_ID_PATTERN: Final = pattern(f"^{SECTION_ID}$", _ID.format(""))
LABEL: Final = "[A-Za-z0-9]{1,8}"  # of a row or a seat
SEAT_ID_PATTERN: Final = pattern(
    rf"^{SECTION_ID}-{LABEL}-{LABEL}$", "Name the seat by section, row and seat, such as A-3-12"
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
TypedCode = Annotated[Annotated[str, StringConstraints(max_length=TYPED_MAX)] | None, BeforeValidator(_tidied)]
NewCode = Annotated[str, AfterValidator(_new_code)]
EMAIL: Final = pattern(r"^[^@\s\x00]{1,64}@[^@\s\x00]{1,189}$", "Use an e-mail address, such as ada@example.org")
Email = Annotated[
    str,
    BeforeValidator(_trimmed),
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
