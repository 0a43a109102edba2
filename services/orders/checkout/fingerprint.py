"""Idempotency of requests: the hash of a body, which a repeated request must have too."""

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager

from asyncpg.exceptions import LockNotAvailableError

from services.orders.checkout.card_numbers import refuse_card_numbers
from shared.contracts.fields import Body
from shared.errors.problems import IdempotencyInFlight
from shared.postgres.engine import DBAPIError


def fingerprint_of(request: Body) -> bytes:
    """The hash of a request's body. Raises `CardNumberRefused`."""
    body = request.model_dump_json()
    refuse_card_numbers(request, body)
    return hashlib.sha256(body.encode()).digest()


@contextmanager
def key_in_flight() -> Iterator[None]:
    """Raises `IdempotencyInFlight` if a row stays locked for too long: the first request with this key still runs."""
    try:
        yield
    except DBAPIError as failed:
        if isinstance(getattr(failed.orig, "__cause__", None), LockNotAvailableError):
            raise IdempotencyInFlight from failed
        raise
