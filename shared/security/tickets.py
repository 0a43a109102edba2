"""The code on a ticket: whom to let in where, signed with Ed25519, so that a scanner needs a public key and no network.

`T1.kid.event.ticket.section.seat.order.window.signature[.beat]`: no part has a dot of its own. Where codes move,
`window` is their length in seconds, and the beat, which the signature does not cover, is an HMAC of the present window
under a secret of this ticket: a screenshot is soon worth nothing.
"""

import hmac
import re
from collections.abc import Mapping
from typing import NamedTuple

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from shared.security.tokens import Keyring, b64, unb64

FORM = "T1"
CODE_MAX_CHARS = 400
BEAT_CHARS = 8
WINDOWS_LATE_MAX = 1  # a phone's clock and the way to the scanner
_WINDOW = re.compile(r"0|[1-9][0-9]{0,3}")


class BadTicket(Exception):
    """The code admits nobody; the message says why."""


class TicketCode(NamedTuple):
    """What a code says. `seat_id` is empty without a seat; `window_s` is 0 where codes stand still."""

    event_id: str
    ticket_id: str
    section_id: str
    seat_id: str
    order: str
    window_s: int = 0


def sign_ticket(keys: Keyring, ticket: TicketCode) -> str:
    """The same ticket gives the same code, as long as the same key signs."""
    kid, key = keys.signer()
    signed = ".".join((FORM, kid, *map(str, ticket)))
    return f"{signed}.{b64(key.sign(signed.encode()))}"


def beat(secret: bytes, window_s: int, *, at_s: float) -> str:
    """The part of a moving code that is good now."""
    return _beat(secret, int(at_s) // window_s)


def _beat(secret: bytes, window: int) -> str:
    return b64(hmac.digest(secret, window.to_bytes(8, "big"), "sha256"))[:BEAT_CHARS]


def read_ticket(keys: Mapping[str, Ed25519PublicKey], code: str) -> TicketCode:
    """What a code says, if one of these keys signed it; whether its beat is good is for `require_beat`."""
    parts = code.strip().split(".")
    if len(code) > CODE_MAX_CHARS or len(parts) not in (9, 10) or parts[0] != FORM or not _WINDOW.fullmatch(parts[7]):
        raise BadTicket("this is no ticket of ours")
    key = keys.get(parts[1])
    if key is None:
        raise BadTicket(f"it is signed by a key that is not known here: {parts[1]}")
    try:
        key.verify(unb64(parts[8]), ".".join(parts[:8]).encode())
    except (InvalidSignature, ValueError) as forged:
        raise BadTicket("its signature is wrong") from forged
    event_id, ticket_id, section_id, seat_id, order, window_s = parts[2:8]
    return TicketCode(event_id, ticket_id, section_id, seat_id, order, int(window_s))


def require_beat(ticket: TicketCode, secret: bytes, code: str, *, at_s: float) -> None:
    """Raises `BadTicket` if a moving code is older, or newer, than one window."""
    shown = code.strip().rpartition(".")[2]
    now = int(at_s) // ticket.window_s
    near = range(now - WINDOWS_LATE_MAX, now + WINDOWS_LATE_MAX + 1)
    if not any(hmac.compare_digest(shown.encode(), _beat(secret, window).encode()) for window in near):
        raise BadTicket("this code has passed: show the order page, not a picture of it")
