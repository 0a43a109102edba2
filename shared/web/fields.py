"""Types of request fields: ids and texts with their limits, and bodies that reject unknown fields."""

from datetime import UTC, datetime
from typing import Annotated, Any, NamedTuple

from fastapi import Depends, Path, Query
from pydantic import AfterValidator, AwareDatetime, BaseModel, ConfigDict, StringConstraints

from shared.rules.email_addresses import normalize_email
from shared.web.problems import InvalidRequest
from shared.web.routes import EVENT_ID, REFERENCE, SECTION_ID

STEPS_MAX, STEP_S_MAX = 400, 31 * 86_400


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


class TimeSteps(NamedTuple):
    """`steps` steps of `step_s` seconds each, from `start` on."""

    start: datetime
    step_s: int
    steps: int

    def bound(self) -> dict[str, Any]:
        """The values of a statement that counts by step."""
        return self._asdict()


async def _time_steps(
    start: Annotated[AwareDatetime, Query(alias="from")],
    step_s: Annotated[int, Query(ge=1, le=STEP_S_MAX)],
    steps: Annotated[int, Query(ge=1, le=STEPS_MAX)] = STEPS_MAX,
) -> TimeSteps:
    if not datetime(2000, 1, 1, tzinfo=UTC) <= start <= datetime(2999, 1, 1, tzinfo=UTC):
        raise InvalidRequest("from: must be a time between the years 2000 and 2999.")
    return TimeSteps(start, step_s, steps)


TimeStepsQuery = Annotated[TimeSteps, Depends(_time_steps)]
