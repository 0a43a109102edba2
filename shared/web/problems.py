"""Every error of the API as a class with a status, a slug and a sentence (problem documents, RFC 9457).

The docstring is the title, the slug comes from the class name, and a problem answered by another service is raised as
the same class. A service's own problems are in its `problems.py`; those that cross a boundary are here.
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

    def __init_subclass__(cls) -> None:
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


class InternalError(Problem):
    """Something went wrong on our side."""


class UpstreamFailed(Problem):
    """Another part of the suite answered unexpectedly."""

    status = 502


class Unavailable(Problem):
    """This part of the suite cannot answer right now. Nothing was changed; try again shortly."""

    status = 503
    retry_after_default_s = 1


class Overloaded(Problem):
    """Too many requests are waiting. Nothing was changed; try again shortly."""

    status = 503
    retry_after_default_s = 1


class NoAnswer(Problem):
    """No answer came. The request may have succeeded: repeat it with the same Idempotency-Key."""

    status = 503
    retry_after_default_s = 1


class ClocksApart(Problem):
    """The clocks of this suite disagree. Nothing is sold until they agree again; you keep what you hold."""

    status = 503
    retry_after_default_s = 5


class TooManyRequests(Problem):
    """You sent too many requests. Nothing was changed; wait a moment."""

    status = 429
    retry_after_default_s = 1


class NotFound(Problem):
    """There is nothing at this address."""

    status = 404


class MethodNotAllowed(Problem):
    """This address does not support that method."""

    status = 405


class MalformedRequest(Problem):
    """The request could not be read."""

    status = 400


class RequestTimeout(Problem):
    """The rest of the request did not arrive in time."""

    status = 408


class HeadTooLarge(Problem):
    """The request's headers are too large: at most 64 KB and 100 lines are accepted."""

    status = 431


class InvalidRequest(Problem):
    """A value in the request is not valid."""

    status = 422


class BodyTooLarge(Problem):
    """The request body is larger than this address accepts."""

    status = 413


class NoCredential(Problem):
    """This needs a credential: a Bearer token or our cookie."""

    status = 401


class BadCredential(Problem):
    """The credential is not valid: forged, expired, or from before a reset."""

    status = 401


class WrongEvent(Problem):
    """The credential is for another event."""

    status = 403


class NotAllowed(Problem):
    """This credential may not do that."""

    status = 403


class ForeignOrigin(Problem):
    """A write with a cookie must come from our own pages."""

    status = 403


class UnknownEvent(Problem):
    """There is no event with this id."""

    status = 404


class StaleEpoch(Problem):
    """The waiting room was reset; this place is from before the reset. Join again."""

    status = 410


class NotAdmitted(Problem):
    """It is not your turn yet."""

    status = 403


class NotInQueue(Problem):
    """You have no place in this line. Join it first."""

    status = 404


class PlaceExpired(Problem):
    """This place in the line has expired. You can join again at the end of the line."""

    status = 410


class RoomClosed(Problem):
    """The waiting room of this event is closed."""

    status = 410


class NoLottery(Problem):
    """The waiting room of this event has no lottery."""

    status = 404


class NotEntered(Problem):
    """There is no proof of entry for this place."""

    status = 404


class TooManyWrongCodes(Problem):
    """Too many wrong codes were tried. Try yours again in a moment."""

    status = 429
    retry_after_default_s = 1


class SoldOut(Problem):
    """Nothing is left of what you requested."""

    status = 409


class LimitExceeded(Problem):
    """This is more than one customer may have."""

    status = 409


class UnknownReservation(Problem):
    """There is no reservation with this id, or it is not yours."""

    status = 404


class HoldExpired(Problem):
    """The reservation has ended; its tickets may be on sale again."""

    status = 410


class VersionMismatch(Problem):
    """This was changed after you read it. Read it again, then decide."""

    status = 412


class PaymentInProgress(Problem):
    """A payment is in progress. Wait until it has ended."""

    status = 409


class IdempotencyKeyMissing(Problem):
    """This call needs an Idempotency-Key header."""

    status = 400


class IdempotencyKeyMalformed(Problem):
    """The Idempotency-Key must be a UUID or at least 22 random characters of A-Z a-z 0-9 . _ - :."""

    status = 400


class IdempotencyKeyReused(Problem):
    """This Idempotency-Key was used before with another body."""

    status = 422


class IdempotencyInFlight(Problem):
    """The first request with this Idempotency-Key is still running."""

    status = 409
    retry_after_default_s = 1
