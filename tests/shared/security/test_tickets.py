"""The code on a ticket: verified without asking anybody, and worth nothing once a sign of it is another."""

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from shared.runtime.settings import development_keys
from shared.security.tickets import (
    CODE_MAX_CHARS,
    BadTicket,
    TicketCode,
    read_ticket,
    require_rotating_code,
    rotating_code,
    sign_ticket,
)
from shared.security.tokens import Keyring

KEYS = development_keys("ticket")
TICKET = TicketCode("arena-2026", "ABCDEFGH1234", "A", "A-1-12", "QRSTVW")
SECRET = b"s" * 32


def public(keys: Keyring) -> dict[str, Ed25519PublicKey]:
    return {kid: Ed25519PublicKey.from_public_bytes(raw) for kid, raw in keys.public().keys.items()}


def test_a_ticket_is_verified_with_nothing_but_public_keys():
    code = sign_ticket(KEYS, TICKET)
    assert read_ticket(public(KEYS), code) == TICKET
    assert sign_ticket(KEYS, TICKET) == code
    assert len(code) < CODE_MAX_CHARS / 2, "the smaller the code, the farther a scanner may be"
    standing = TICKET._replace(seat_id="")
    assert read_ticket(public(KEYS), sign_ticket(KEYS, standing)) == standing


def test_a_ticket_of_before_a_rotation_stays_good():
    before = sign_ticket(KEYS, TICKET)
    after = Keyring({"k2": b"2" * 32, **KEYS.keys})
    assert read_ticket(public(after), before) == read_ticket(public(after), sign_ticket(after, TICKET)) == TICKET
    with pytest.raises(BadTicket, match="signed by an unknown key: k2"):
        read_ticket(public(KEYS), sign_ticket(after, TICKET))


def test_whatever_sign_of_it_is_changed_it_admits_nobody():
    code = sign_ticket(KEYS, TICKET)
    for place in range(len(code) - 1):  # the very last sign has bits that mean nothing
        other = code[:place] + ("B" if code[place] != "B" else "C") + code[place + 1 :]
        with pytest.raises(BadTicket):
            read_ticket(public(KEYS), other)
    for broken in ("", ".", "T1", code + ".x.y", code.replace(".0.", ".30."), "T1" + "." * 8, "ü" * 9, code * 9):
        with pytest.raises(BadTicket):
            read_ticket(public(KEYS), broken)


def test_a_picture_of_a_moving_code_is_soon_worth_nothing():
    moving = TICKET._replace(window_s=15)
    signed = sign_ticket(KEYS, moving)
    shown = f"{signed}.{rotating_code(SECRET, 15, at_s=1_000)}"
    assert read_ticket(public(KEYS), shown) == moving
    for at_s in (990, 1_000, 1_019):
        require_rotating_code(moving, SECRET, shown, at_s=at_s)
    for code, at_s in ((shown, 1_020), (shown, 974), (signed, 1_000), (f"{signed}.ü", 1_000)):
        with pytest.raises(BadTicket, match="expired"):
            require_rotating_code(moving, SECRET, code, at_s=at_s)
    with pytest.raises(BadTicket, match="expired"):
        require_rotating_code(moving, b"t" * 32, shown, at_s=1_000)
