"""Verifies webhooks signed as `t=<unix>,v1=<hex>[,v1=<hex>]`: HMAC-SHA256 over the time, a dot and the raw body.

Stripe's format; the sandbox signs in the same way.
"""

import hashlib
import hmac
from collections.abc import Sequence

from services.orders.providers.provider import SignatureInvalid

TOLERANCE_S = 300


def verify(header: str, body: bytes, *, secrets: Sequence[str], now_s: float) -> None:
    """Raises `SignatureInvalid` unless one of the secrets signed this body within `TOLERANCE_S`."""
    at, given = _parts(header)
    if abs(now_s - at) > TOLERANCE_S:
        raise SignatureInvalid
    signed = f"{at}.".encode() + body
    expected = [hmac.new(secret.encode(), signed, hashlib.sha256).hexdigest() for secret in secrets]
    if not any(hmac.compare_digest(mac.encode(), each.encode()) for mac in given for each in expected):
        raise SignatureInvalid


def _parts(header: str) -> tuple[int, list[str]]:
    """The time and every `v1`."""
    parts = [part.strip().partition("=") for part in header.split(",")]
    times = [value for name, _, value in parts if name == "t"]
    if len(times) != 1 or not (times[0].isascii() and times[0].isdigit() and len(times[0]) < 12):
        raise SignatureInvalid
    return int(times[0]), [value for name, _, value in parts if name == "v1"]
