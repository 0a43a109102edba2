"""Ticket codes: verified offline with public keys, and refused if any character is changed."""

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from shared.security.tickets import (
    CODE_MAX_CHARS,
    BadTicket,
    TicketCode,
    read_ticket,
    require_rotating_code,
    rotating_code,
    sign_ticket,
)
from shared.security.tokens import Keyring, development_keys

KEYS = development_keys("ticket")
TICKET = TicketCode("arena-2026", "ABCDEFGH1234", "A", "A-1-12", "QRSTVW")
SECRET = b"s" * 32


def public(keys: Keyring) -> dict[str, Ed25519PublicKey]:
    return {kid: Ed25519PublicKey.from_public_bytes(raw) for kid, raw in keys.public().keys.items()}


def test_a_ticket_is_verified_with_public_keys_alone():
    code = sign_ticket(KEYS, TICKET)
    assert read_ticket(public(KEYS), code) == TICKET
    assert sign_ticket(KEYS, TICKET) == code
    assert len(code) < CODE_MAX_CHARS / 2, "a smaller code can be scanned from farther away"
    standing = TICKET._replace(seat_id="")
    assert read_ticket(public(KEYS), sign_ticket(KEYS, standing)) == standing


def test_a_ticket_signed_before_a_key_rotation_stays_valid():
    before = sign_ticket(KEYS, TICKET)
    after = Keyring({"k2": b"2" * 32, **KEYS.keys})
    assert read_ticket(public(after), before) == read_ticket(public(after), sign_ticket(after, TICKET)) == TICKET
    with pytest.raises(BadTicket, match="signed by an unknown key: k2"):
        read_ticket(public(KEYS), sign_ticket(after, TICKET))


def test_a_ticket_code_changed_anywhere_is_refused():
    code = sign_ticket(KEYS, TICKET)
    for at in range(len(code) - 1):  # the last character of base64 has bits that mean nothing
        other = code[:at] + ("B" if code[at] != "B" else "C") + code[at + 1 :]
        with pytest.raises(BadTicket):
            read_ticket(public(KEYS), other)
    for broken in ("", ".", "T1", code + ".x.y", code.replace(".0.", ".30."), "T1" + "." * 8, "ü" * 9, code * 9):
        with pytest.raises(BadTicket):
            read_ticket(public(KEYS), broken)


def test_a_screenshot_of_a_rotating_code_expires():
    rotating = TICKET._replace(window_s=15)
    signed = sign_ticket(KEYS, rotating)
    shown = f"{signed}.{rotating_code(SECRET, 15, at_s=1_000)}"
    assert read_ticket(public(KEYS), shown) == rotating
    for at_s in (990, 1_000, 1_019):
        require_rotating_code(rotating, SECRET, shown, at_s=at_s)
    for code, at_s in ((shown, 1_020), (shown, 974), (signed, 1_000), (f"{signed}.ü", 1_000)):
        with pytest.raises(BadTicket, match="expired"):
            require_rotating_code(rotating, SECRET, code, at_s=at_s)
    with pytest.raises(BadTicket, match="expired"):
        require_rotating_code(rotating, b"t" * 32, shown, at_s=1_000)
