"""Parameters of requests: ids of paths with their limits, the time steps of a report, the `Idempotency-Key`."""

import hashlib
import re
from datetime import UTC, datetime
from typing import Annotated

from fastapi import Depends, Header, Path, Query
from pydantic import AwareDatetime

from shared.contracts.fields import EVENT_ID_PATTERN, SECTION_ID_PATTERN, PlainText, TimeSteps
from shared.errors.problems import IdempotencyKeyMalformed, IdempotencyKeyMissing, InvalidRequest
from shared.routes import REFERENCE

STEPS_MAX, STEP_S_MAX = 400, 31 * 86_400

REFERENCE_PATTERN = f"^{REFERENCE}$"
EventIdPath = Annotated[str, Path(pattern=EVENT_ID_PATTERN)]
SectionIdPath = Annotated[str, Path(pattern=SECTION_ID_PATTERN)]
ReferencePath = Annotated[str, Path(pattern=REFERENCE_PATTERN)]
ReferenceQuery = Annotated[str | None, Query(pattern=REFERENCE_PATTERN)]
DryRun = Annotated[bool, Query(description="Check everything and change nothing.")]
ReasonQuery = Annotated[PlainText | None, Query(alias="reason", description="Kept in the audit log.")]


async def _time_steps(
    start: Annotated[AwareDatetime, Query(alias="from")],
    step_s: Annotated[int, Query(ge=1, le=STEP_S_MAX)],
    steps: Annotated[int, Query(ge=1, le=STEPS_MAX)] = STEPS_MAX,
) -> TimeSteps:
    if not datetime(2000, 1, 1, tzinfo=UTC) <= start <= datetime(2999, 1, 1, tzinfo=UTC):
        raise InvalidRequest("from: must be a time between the years 2000 and 2999.")
    return TimeSteps(start, step_s, steps)


TimeStepsQuery = Annotated[TimeSteps, Depends(_time_steps)]

IdempotencyKey = Annotated[str | None, Header(alias="Idempotency-Key")]
KEY_MAX_CHARS = 255
_KEY = re.compile(rf"[\x21-\x7e]{{1,{KEY_MAX_CHARS}}}")


def idempotency_key(header: str | None) -> str:
    """The checked key: requests with the same key are one request. Raises `IdempotencyKeyMissing` and
    `IdempotencyKeyMalformed`.
    """
    if not header:
        raise IdempotencyKeyMissing
    if not _KEY.fullmatch(header):
        raise IdempotencyKeyMalformed(f"The Idempotency-Key must be 1 to {KEY_MAX_CHARS} visible ASCII characters.")
    return header


def key_hash(key: str) -> bytes:
    """Idempotency keys are secrets: only their hash is stored."""
    return hashlib.sha256(key.encode()).digest()
