"""Ids that follow from what they name, so that a retry finds the same again: of orders, tickets, charges and customers.

An order remembers its owner as `event_id:holder`, its owner id; a signed-in user is the same holder at every event.
"""

import hashlib
from typing import NamedTuple

from shared.rules.addresses import normalize_email
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


def ticket_id(reference: str, line_no: int, n: int) -> str:
    """60 bits derived from the ticket's place in its order; it is no secret."""
    return readable_code(hashlib.sha256(f"ticket:{reference}:{line_no}:{n}".encode()).digest())


def provider_key(reference: str, n: int) -> str:
    """The key of the n-th attempt at its provider."""
    return f"{reference}:{n}"


def owner_id(event_id: str, holder: str) -> str:
    """The owner id of an order: one holder at one event."""
    return f"{event_id}:{holder}"


class Customer(NamedTuple):
    """Who buys: a holder at one event or, without an event, a signed-in user."""

    event_id: str | None
    holder: str

    def owns(self, owner: str) -> bool:
        """Whether an order with this owner id is this customer's."""
        event_id, _, holder = owner.partition(":")
        return holder == self.holder and self.event_id in (None, event_id)
