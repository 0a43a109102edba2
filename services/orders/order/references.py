"""Names that follow from what is known, so that a retry finds them again: references and customer keys."""

import hashlib
import re

from shared.rules.email_addresses import one_spelling
from shared.security.tokens import Keyring, b64
from shared.web.problems import IdempotencyKeyMalformed, IdempotencyKeyMissing

REFERENCE_CHARS = 12
KEY_MAX_CHARS = 255
_ALPHABET = "ABCDEFGHJKMNPQRSTVWXYZ0123456789"  # 32 signs; no I, L, O or U to misread
_KEY = re.compile(rf"[\x21-\x7e]{{1,{KEY_MAX_CHARS}}}")


def order_reference(keys: Keyring, principal: str, key: str) -> str:
    """The reference of the order this principal makes with this key: 60 bits that nobody else can compute."""
    return readable(keys.mac("reference", principal, key))


def readable(raw: bytes) -> str:
    """60 bits of it, as a person can read them to another."""
    bits = int.from_bytes(raw[:8], "big")
    return "".join(_ALPHABET[(bits >> (5 * place)) & 31] for place in range(REFERENCE_CHARS))


def customer_key(keys: Keyring, email: str) -> str:
    """One customer across holders, without telling inventory who: the same e-mail however it is typed. Dots and tags
    before the @ stay: whether they name the same mailbox only its provider knows. Raises `ValueError` for what is no
    address or hides what it is.
    """
    return b64(keys.mac("customer", one_spelling(email)))


def idempotency_key(header: str | None) -> str:
    """The key, or `IdempotencyKeyMissing`, or `IdempotencyKeyMalformed`."""
    if not header:
        raise IdempotencyKeyMissing
    if not _KEY.fullmatch(header):
        raise IdempotencyKeyMalformed(f"The Idempotency-Key must be 1 to {KEY_MAX_CHARS} visible ASCII characters.")
    return header


def key_hash(key: str) -> bytes:
    """Keys are secrets: only their hash is kept."""
    return hashlib.sha256(key.encode()).digest()
