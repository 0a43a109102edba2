"""Ids derived from a request, so that a retry finds the same again: order references and customer keys."""

from shared.rules.email_addresses import normalize_email
from shared.security.tokens import Keyring, b64

REFERENCE_CHARS = 12
_ALPHABET = "ABCDEFGHJKMNPQRSTVWXYZ0123456789"  # 32 characters, without I, L, O and U, which are misread


def order_reference(keys: Keyring, reservation_id: str, key: str) -> str:
    """The reference of the order of this reservation, which has one holder, with this key: 60 bits that nobody else can
    compute.
    """
    return readable_code(keys.mac("reference", reservation_id, key))


def readable_code(raw: bytes) -> str:
    """The first 60 bits, in characters that people can read to each other."""
    bits = int.from_bytes(raw[:8], "big")
    return "".join(_ALPHABET[(bits >> (5 * place)) & 31] for place in range(REFERENCE_CHARS))


def customer_key(keys: Keyring, email: str) -> str:
    """Identifies a customer to inventory without telling who they are: the same for every spelling of an e-mail
    address. Dots and tags before the @ count, as only the mail provider knows whether they matter. Raises `ValueError`
    for an invalid or disguised address.
    """
    return b64(keys.mac("customer", normalize_email(email)))
