"""Types of request fields: ids and texts with their limits, and bodies that reject unknown fields."""

from typing import Annotated

from fastapi import Path, Query
from pydantic import AfterValidator, BaseModel, ConfigDict, StringConstraints

from shared.rules.email_addresses import normalize_email
from shared.web.routes import EVENT_ID, REFERENCE, SECTION_ID


def _valid_email(address: str) -> str:
    """The address as typed. Raises `ValueError` if it cannot be normalised."""
    normalize_email(address)
    return address


EventId = Annotated[str, StringConstraints(pattern=f"^{EVENT_ID}$")]
SectionId = Annotated[str, StringConstraints(pattern=f"^{SECTION_ID}$")]
SeatId = Annotated[str, StringConstraints(pattern=rf"^{SECTION_ID}-[A-Za-z0-9]{{1,8}}-[0-9]{{1,5}}$")]
Currency = Annotated[str, StringConstraints(pattern=r"^[A-Z]{3}$")]
PlainText = Annotated[str, StringConstraints(pattern=r"^[^\x00]*$", min_length=1, max_length=200)]
Email = Annotated[
    str,
    StringConstraints(pattern=r"^[^@\s\x00]{1,64}@[^@\s\x00]{1,189}$", max_length=254),
    AfterValidator(_valid_email),
]

EventIdPath = Annotated[str, Path(pattern=f"^{EVENT_ID}$")]
SectionIdPath = Annotated[str, Path(pattern=f"^{SECTION_ID}$")]
ReferencePath = Annotated[str, Path(pattern=f"^{REFERENCE}$")]
ReferenceQuery = Annotated[str | None, Query(pattern=f"^{REFERENCE}$")]

DryRun = Annotated[bool, Query(description="Check everything and change nothing.")]


class Body(BaseModel):
    """A request body: unknown fields are rejected, and it is immutable."""

    model_config = ConfigDict(extra="forbid", frozen=True)
