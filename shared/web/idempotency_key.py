"""The `Idempotency-Key` of a request: requests with the same key are one request."""

import hashlib
import re

from shared.web.problems import IdempotencyKeyMalformed, IdempotencyKeyMissing

KEY_MAX_CHARS = 255
_KEY = re.compile(rf"[\x21-\x7e]{{1,{KEY_MAX_CHARS}}}")


def idempotency_key(header: str | None) -> str:
    """The checked key. Raises `IdempotencyKeyMissing`, `IdempotencyKeyMalformed`."""
    if not header:
        raise IdempotencyKeyMissing
    if not _KEY.fullmatch(header):
        raise IdempotencyKeyMalformed(f"The Idempotency-Key must be 1 to {KEY_MAX_CHARS} visible ASCII characters.")
    return header


def key_hash(key: str) -> bytes:
    """Idempotency keys are secrets: only their hash is stored."""
    return hashlib.sha256(key.encode()).digest()
