"""Every error of the API as a class with a status, a slug and a sentence (problem documents, RFC 9457).

The docstring is the title, the class line has the status, the slug comes from the class name, and a problem answered by
another service is raised as the same class. A service's own problems are in its `problems.py`; those that cross a
boundary are here.
"""

import re
from typing import Any, ClassVar

import orjson

MEDIA_TYPE = "application/problem+json"
_by_slug: dict[str, type["Problem"]] = {}


class Problem(Exception):
    """Something went wrong on our side."""

    status: ClassVar[int] = 500
    slug: ClassVar[str] = "problem"
    retry_after_default_s: ClassVar[int | None] = None

    def __init_subclass__(cls, *, status: int = 500, retry_after_s: int | None = None) -> None:
        cls.status, cls.retry_after_default_s = status, retry_after_s
        cls.slug = re.sub(r"(?<!^)(?=[A-Z])", "-", cls.__name__).lower()
        other = _by_slug.setdefault(cls.slug, cls)
        assert (other.__module__, other.__qualname__) == (cls.__module__, cls.__qualname__), f"two problems {cls.slug}"

    def __init__(
        self, detail: str | None = None, *, status: int | None = None, retry_after_s: int | None = None, **members: Any
    ) -> None:
        super().__init__(detail or self.title())
        self.detail = detail
        self.code = status or self.status
        self.retry_after_s = retry_after_s if retry_after_s is not None else self.retry_after_default_s
        self.members = members

    @classmethod
    def title(cls) -> str:
        return (cls.__doc__ or "").split("\n", 1)[0]

    def document(self, request_id: str | None = None) -> dict[str, Any]:
        """The RFC 9457 members; `detail` falls back to the title, so there is always a sentence for a person."""
        return {
            "type": f"/problems/{self.slug}",
            "title": self.title(),
            "status": self.code,
            "detail": self.detail or self.title(),
            "request_id": request_id,
            **self.members,
        }

    def headers(self) -> dict[str, str]:
        headers = {"cache-control": "no-store"}
        if self.retry_after_s is not None:
            headers["retry-after"] = str(self.retry_after_s)
        return headers

    def body(self, request_id: str | None = None) -> bytes:
        return orjson.dumps(self.document(request_id))


def known() -> list[type[Problem]]:
    """Every problem class that has been imported."""
    return list(_by_slug.values())


def from_document(status: int, body: bytes) -> Problem:
    """The problem that another service answered with; `UpstreamFailed` if it is not one of ours."""
    try:
        document = orjson.loads(body)
        slug = str(document["type"]).removeprefix("/problems/")
        known = _by_slug[slug]
    except (ValueError, KeyError, TypeError):
        return UpstreamFailed(f"Another service answered {status} without a known problem document.")
    members = {k: v for k, v in document.items() if k not in {"type", "title", "status", "detail", "request_id"}}
    return known(document.get("detail"), status=document.get("status"), **members)


def named(slug: str) -> Problem:
    """The problem with this slug, which another service found; `UpstreamFailed` if it is not one of ours."""
    return _by_slug.get(slug, UpstreamFailed)()


class InternalError(Problem):
    """Something went wrong on our side."""


class UpstreamFailed(Problem, status=502):
    """Another part of the suite answered unexpectedly."""


class Unavailable(Problem, status=503, retry_after_s=1):
    """This part of the suite cannot answer right now. Nothing was changed; try again shortly."""


class AlreadyExtended(Problem, status=409):
    """The time was extended before; that is possible once."""


class Overloaded(Problem, status=503, retry_after_s=1):
    """Too many requests are waiting. Nothing was changed; try again shortly."""


class NoAnswer(Problem, status=503, retry_after_s=1):
    """No answer came. The request may have succeeded: repeat it with the same Idempotency-Key."""


class ClocksApart(Problem, status=503, retry_after_s=5):
    """The clocks of this suite disagree. Nothing is sold until they agree again; you keep what you hold."""


class TooManyRequests(Problem, status=429, retry_after_s=1):
    """You sent too many requests. Nothing was changed; wait a moment."""


class NotFound(Problem, status=404):
    """There is nothing at this address."""


class MethodNotAllowed(Problem, status=405):
    """This address does not support that method."""


class MalformedRequest(Problem, status=400):
    """The request could not be read."""


class RequestTimeout(Problem, status=408):
    """The rest of the request did not arrive in time."""


class HeadTooLarge(Problem, status=431):
    """The request's headers are too large: at most 64 KB and 100 lines are accepted."""


class InvalidRequest(Problem, status=422):
    """A value in the request is not valid."""


class BodyTooLarge(Problem, status=413):
    """The request body is larger than this address accepts."""


class NoCredential(Problem, status=401):
    """This needs a credential: a Bearer token or our cookie."""


class BadCredential(Problem, status=401):
    """The credential is not valid: forged, expired, or from before a reset."""


class WrongEvent(Problem, status=403):
    """The credential is for another event."""


class NotAllowed(Problem, status=403):
    """This credential may not do that."""


class SecondPersonNeeded(Problem, status=403):
    """This needs the approval of a second operator. Ask for it in the console, with this control's button."""


class ForeignOrigin(Problem, status=403):
    """A write with a cookie must come from our own pages."""


class UnknownEvent(Problem, status=404):
    """There is no event with this id."""


class StaleEpoch(Problem, status=410):
    """The waiting room was reset; this place is from before the reset. Join again."""


class NotAdmitted(Problem, status=403):
    """It is not your turn yet."""


class NotInQueue(Problem, status=404):
    """You have no place in this line. Join it first."""


class PlaceExpired(Problem, status=410):
    """This place in the line has expired. You can join again at the end of the line."""


class RoomClosed(Problem, status=410):
    """The waiting room of this event is closed."""


class TooManyWrongCodes(Problem, status=429, retry_after_s=1):
    """Too many wrong codes were tried. Try yours again in a moment."""


class SoldOut(Problem, status=409):
    """Not enough tickets are left."""


class LimitExceeded(Problem, status=409):
    """This is more than one customer may have."""


class UnknownReservation(Problem, status=404):
    """There is no reservation with this id, or it is not yours."""


class HoldExpired(Problem, status=410):
    """The reservation has ended; its tickets may be on sale again."""


class VersionMismatch(Problem, status=412):
    """This was changed after you read it. Read it again, then decide."""


class PaymentInProgress(Problem, status=409):
    """A payment is in progress. Wait until it has ended."""


class IdempotencyKeyMissing(Problem, status=400):
    """This call needs an Idempotency-Key header."""


class IdempotencyKeyMalformed(Problem, status=400):
    """The Idempotency-Key must be a UUID or at least 22 random characters of A-Z a-z 0-9 . _ - :."""


class IdempotencyKeyReused(Problem, status=422):
    """This Idempotency-Key was used before with another body."""


class IdempotencyInFlight(Problem, status=409, retry_after_s=1):
    """The first request with this Idempotency-Key is still running."""
