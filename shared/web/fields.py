"""Types of request fields: ids and texts with their limits, and bodies that reject unknown fields.

The command line reads the same types, so they need no FastAPI; parameters of paths and queries are in `parameters`.
"""

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
LABEL = "[A-Za-z0-9]{1,8}"  # of a row or a seat
SeatId = Annotated[str, StringConstraints(pattern=rf"^{SECTION_ID}-{LABEL}-{LABEL}$")]
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
