"""Parameters of requests: ids of paths with their limits, time steps of a report, the `Idempotency-Key`, and the
language of who asks, by one rule for pages, orders, mails and problems.
"""

import hashlib
import re
from datetime import UTC, datetime
from typing import Annotated

from fastapi import Depends, Header, Path, Query
from pydantic import AwareDatetime
from starlette.datastructures import QueryParams
from starlette.types import Scope

from shared.contracts.fields import EVENT_ID_PATTERN, SECTION_ID_PATTERN, PlainText, TimeSteps
from shared.errors.problems import IdempotencyKeyMalformed, IdempotencyKeyMissing, InvalidRequest
from shared.routes import REFERENCE
from shared.security.tokens import cookie, header_fields
from shared.words.words import LANGUAGES, accepted_language

LANGUAGE_COOKIE = "onsale_lang"
VARY = "accept-language, cookie"
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


def language_of(scope: Scope) -> str:
    """One of `LANGUAGES`: that of `?lang=`, else of the cookie, else of the browser's settings."""
    fields = header_fields(scope)
    chosen = named_language(scope) or cookie(fields, LANGUAGE_COOKIE)
    return chosen if chosen in LANGUAGES else accepted_language(fields.get(b"accept-language", b"").decode("latin-1"))


def named_language(scope: Scope) -> str | None:
    """The language that the address names."""
    named = QueryParams(scope["query_string"]).get("lang")
    return named if named in LANGUAGES else None
