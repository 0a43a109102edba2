"""The code on a ticket: event, place and order, signed with Ed25519, so a scanner needs a public key and no network.

`T1.kid.event.ticket.section.seat.order.window.signature[.rotating code]`: no part contains a dot. Where the event has
price types it is `T2`, with the type between window and signature. For tickets with rotating codes, `window` is their
length in seconds. The rotating code, which the signature does not cover, is an HMAC of the present window under a
secret of this ticket, so a screenshot soon expires.
"""

import hmac
import json
import re
from collections.abc import Mapping
from typing import NamedTuple

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from shared.security.tokens import Keyring, b64, unb64

PARTS = {"T1": 8, "T2": 9}  # by format: how many parts are signed
CODE_MAX_CHARS = 400
ROTATING_CODE_CHARS = 8
WINDOWS_LATE_MAX = 1  # for the phone's clock and the time until the scan
_WINDOW = re.compile(r"0|[1-9][0-9]{0,3}")


class BadTicket(Exception):
    """The code is not valid; the message gives the reason."""


class TicketCode(NamedTuple):
    """The content of a code. `seat_id` is empty without a seat, `type_id` without price types; `window_s` is 0 without
    rotating codes.
    """

    event_id: str
    ticket_id: str
    section_id: str
    seat_id: str
    order: str
    window_s: int = 0
    type_id: str = ""


def published_keys(document: bytes) -> dict[str, Ed25519PublicKey]:
    """The keys of a JWK set that verify tickets, by kid. Raises `ValueError` if it is none, or has none of them."""
    try:
        usable = [key for key in json.loads(document)["keys"] if key["crv"] == "Ed25519"]
        keys = {key["kid"]: Ed25519PublicKey.from_public_bytes(unb64(key["x"])) for key in usable}
    except (KeyError, TypeError, ValueError) as broken:
        raise ValueError("not a JWK set") from broken
    if not keys:
        raise ValueError("a JWK set without a key of tickets")
    return keys


def sign_ticket(keys: Keyring, ticket: TicketCode) -> str:
    """The signed code; the same ticket and key give the same code."""
    kid, key = keys.signer()
    named = ("T2", kid, *ticket) if ticket.type_id else ("T1", kid, *ticket[:-1])
    signed = ".".join(map(str, named))
    return f"{signed}.{b64(key.sign(signed.encode()))}"


def rotating_code(secret: bytes, window_s: int, *, at_s: float) -> str:
    """The rotating code at `at_s`."""
    return _rotating_code(secret, int(at_s) // window_s)


def _rotating_code(secret: bytes, window: int) -> str:
    return b64(hmac.digest(secret, window.to_bytes(8, "big"), "sha256"))[:ROTATING_CODE_CHARS]


def read_ticket(keys: Mapping[str, Ed25519PublicKey], code: str) -> TicketCode:
    """The content of a code signed by one of these keys; `require_rotating_code` checks its rotating code."""
    parts = code.strip().split(".")
    count = PARTS.get(parts[0], 0)
    if (
        len(code) > CODE_MAX_CHARS or not count or len(parts) not in (count + 1, count + 2)
        or not _WINDOW.fullmatch(parts[7])
    ):  # fmt: skip
        raise BadTicket("not a ticket code")
    key = keys.get(parts[1])
    if key is None:
        raise BadTicket(f"signed by an unknown key: {parts[1]}")
    try:
        key.verify(unb64(parts[count]), ".".join(parts[:count]).encode())
    except (InvalidSignature, ValueError) as forged:
        raise BadTicket("its signature is wrong") from forged
    event_id, ticket_id, section_id, seat_id, order, window_s = parts[2:8]
    return TicketCode(
        event_id=event_id, ticket_id=ticket_id, section_id=section_id, seat_id=seat_id, order=order,
        window_s=int(window_s), type_id=parts[8] if count > PARTS["T1"] else "",
    )  # fmt: skip


def require_rotating_code(ticket: TicketCode, secret: bytes, code: str, *, at_s: float) -> None:
    """Raises `BadTicket` if the rotating code is more than one window old or early."""
    presented = code.strip().rpartition(".")[2]
    now = int(at_s) // ticket.window_s
    near = range(now - WINDOWS_LATE_MAX, now + WINDOWS_LATE_MAX + 1)
    if not any(hmac.compare_digest(presented.encode(), _rotating_code(secret, window).encode()) for window in near):
        raise BadTicket("this code has expired: show the order page, not a picture of it")
