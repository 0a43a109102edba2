"""Queue tokens, passes, order tokens, ticket codes and keyrings: only what we signed is read, and nothing of which any
character was changed.
"""

import base64
import json
import time
from collections.abc import Callable
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from hypothesis import given
from hypothesis import strategies as st

from shared.errors.problems import BadCredential
from shared.security.tickets import (
    CODE_MAX_CHARS,
    BadTicket,
    TicketCode,
    read_ticket,
    require_rotating_code,
    rotating_code,
    sign_ticket,
)
from shared.security.tokens import (
    Keyring,
    Pass,
    PassReader,
    QueueToken,
    QueueTokens,
    b64,
    checkout_key,
    development_keys,
    jwks,
    read_order_token,
    sign_order_token,
    sign_pass,
)

KEYS = development_keys("queue-token")
PASS_KEYS = development_keys("pass")
TOKEN = QueueToken("arena", 1, 0, 42, "holder", 1_700_000_000)
PASS = Pass("arena", "holder", "1-0-42-1", 1, 0, 42, 6, 1000, 2000)


def reader() -> PassReader:
    return PassReader(PASS_KEYS.public())


@pytest.mark.parametrize(
    ("text", "content", "read"),
    [
        (QueueTokens(KEYS).sign(TOKEN), TOKEN, QueueTokens(KEYS).read),
        (sign_pass(PASS_KEYS, PASS), PASS, lambda text: reader().read(text, now_s=1500)),
    ],
    ids=["queue token", "pass"],
)
@given(place=st.integers(0, 400), change=st.integers(1, 127))
def test_a_token_changed_anywhere_is_refused(
    text: str, content: object, read: Callable[[str], object], place: int, change: int
) -> None:
    at = place % len(text)
    forged = text[:at] + chr(ord(text[at]) ^ change) + text[at + 1 :]
    try:
        assert read(forged) == content  # the last character of base64 has bits that mean nothing
        assert at == len(text) - 1
    except BadCredential:
        pass


def test_an_unsigned_queue_token_is_refused() -> None:
    header = b64(json.dumps({"alg": "none", "typ": "onsale-queue", "kid": KEYS.kid}).encode())
    claims = QueueTokens(KEYS).sign(TOKEN).split(".")[1]
    for forged in (f"{header}.{claims}.", f"{header}.{claims}", "", "a.b.c", "\x00", "é.é.é"):
        with pytest.raises(BadCredential):
            QueueTokens(KEYS).read(forged)


def test_a_queue_token_has_one_text() -> None:
    """The last character of its signature has bits that mean nothing: three others decode to the same bytes."""
    text = QueueTokens(KEYS).sign(TOKEN)
    alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
    for other in {*alphabet, "=", ""} - {text[-1]}:
        with pytest.raises(BadCredential):
            QueueTokens(KEYS).read(text[:-1] + other)


def test_an_old_key_is_accepted_after_rotation_and_a_removed_one_is_not() -> None:
    old = QueueTokens(KEYS).sign(TOKEN)
    rotated = Keyring({"new": bytes(32), **KEYS.keys})
    assert QueueTokens(rotated).read(old) == TOKEN
    assert QueueTokens(rotated).sign(TOKEN) != old
    with pytest.raises(BadCredential):
        QueueTokens(Keyring({"new": bytes(32)})).read(old)


def test_a_pass_is_a_jwt_that_anyone_can_verify_with_our_jwks() -> None:
    text = sign_pass(PASS_KEYS, PASS)
    key = jwt.PyJWKSet.from_dict(jwks(PASS_KEYS.public()))[jwt.get_unverified_header(text)["kid"]]
    claims = jwt.decode(
        text, key, algorithms=["EdDSA"], audience="arena", issuer="onsale", options={"verify_exp": False}
    )
    assert (claims["sub"], claims["jti"], claims["seq"]) == ("holder", "1-0-42-1", 42)


def test_an_expired_pass_is_refused_but_can_still_be_read_with_allow_expired() -> None:
    text, caching = sign_pass(PASS_KEYS, PASS), reader()
    assert caching.read(text, now_s=1500) == PASS
    for expired in (caching, reader()):
        with pytest.raises(BadCredential):
            expired.read(text, now_s=2006)
    assert reader().read(text, now_s=9999, allow_expired=True) == PASS


def test_a_pass_signed_with_our_public_key_as_a_secret_is_refused() -> None:
    """Algorithm confusion: HS256 with the public key as its secret."""
    claims = {"aud": "arena", "sub": "h", "jti": "1", "typ": "onsale-pass", "epo": 1, "lan": 0, "seq": 1,
              "qty_max": 6, "iat": 1, "nbf": 1, "exp": 2**31, "iss": "onsale"}  # fmt: skip
    public = PASS_KEYS.public().keys[PASS_KEYS.kid]
    for forged in (
        jwt.encode(claims, public, algorithm="HS256", headers={"kid": PASS_KEYS.kid}),
        jwt.encode(claims, "", algorithm="none", headers={"kid": PASS_KEYS.kid}),
        sign_pass(development_keys("other"), PASS),
        QueueTokens(KEYS).sign(TOKEN),
    ):
        with pytest.raises(BadCredential):
            reader().read(forged, now_s=1500)


def signed(header: str, claims: object) -> str:
    """Any header and claims under a valid signature of ours."""
    text = f"{b64(header.encode())}.{b64(json.dumps(claims, separators=(',', ':')).encode())}"
    return f"{text}.{b64(PASS_KEYS.signer()[1].sign(text.encode()))}"


HEADER = f'{{"alg":"EdDSA","kid":"{PASS_KEYS.kid}","typ":"JWT"}}'
CLAIMS = {"iss": "onsale", "aud": "arena", "sub": "holder", "jti": "1-0-42-1", "typ": "onsale-pass", "epo": 1, "lan": 0,
          "seq": 42, "qty_max": 6, "iat": 1000, "nbf": 940, "exp": 2000}  # fmt: skip


def test_a_pass_equals_the_jwt_that_pyjwt_signs() -> None:
    """So that the next two tests change the header and the claims and nothing else."""
    by_pyjwt = jwt.encode(CLAIMS, PASS_KEYS.signer()[1], algorithm="EdDSA", headers={"kid": PASS_KEYS.kid})
    assert by_pyjwt == sign_pass(PASS_KEYS, PASS) == signed(HEADER, CLAIMS)


@pytest.mark.parametrize(
    "header",
    [
        HEADER.replace("EdDSA", "HS256"),
        HEADER.replace("EdDSA", "none"),
        HEADER.replace('"typ"', '"crit":["b64"],"b64":false,"typ"'),
        HEADER.replace('"kid"', '"jku":"https://elsewhere.example","kid"'),
        HEADER.replace(",", ", "),
        HEADER.replace(f'"kid":"{PASS_KEYS.kid}",', ""),
        "{}",
        "",
    ],
)
def test_a_header_we_do_not_write_is_refused_even_with_our_signature(header: str) -> None:
    assert header != HEADER
    with pytest.raises(BadCredential):
        reader().read(signed(header, CLAIMS), now_s=1500)


WRONG_CLAIMS: list[dict[str, Any]] = [
    *({name: None} for name in CLAIMS),
    *({name: "7"} for name in ("epo", "lan", "seq", "qty_max", "iat", "nbf", "exp")),
    *({name: value} for name in ("seq", "exp", "nbf") for value in (True, 7.5, [7])),
    *({name: 7} for name in ("iss", "aud", "sub", "jti", "typ")),
    {"aud": ["arena"]}, {"iss": "somebody"}, {"typ": "onsale-queue"}, {"nbf": 2**33},
]  # fmt: skip


@pytest.mark.parametrize(
    "claims",
    [
        None, [], "text", 7, {},
        *({**CLAIMS, **wrong} for wrong in WRONG_CLAIMS),
        *({name: value for name, value in CLAIMS.items() if name != missing} for missing in CLAIMS),
    ],
)  # fmt: skip
def test_a_missing_claim_or_one_of_another_type_is_refused_even_with_our_signature(claims: object) -> None:
    with pytest.raises(BadCredential):
        reader().read(signed(HEADER, claims), now_s=1500)


def test_a_pass_that_is_not_valid_yet_is_refused_but_small_clock_differences_are_allowed() -> None:
    now_s = int(time.time())
    assert reader().read(signed(HEADER, {**CLAIMS, "nbf": now_s + 3, "exp": now_s + 60}), now_s=now_s).join_seq == 42
    with pytest.raises(BadCredential):
        reader().read(signed(HEADER, {**CLAIMS, "nbf": now_s + 60, "exp": now_s + 90}), now_s=now_s)


def test_the_cache_of_passes_is_bounded() -> None:
    caching = PassReader(PASS_KEYS.public(), cache_entries_max=2)
    for seq in range(5):
        caching.read(sign_pass(PASS_KEYS, Pass("arena", "h", str(seq), 1, 0, seq, 6, 1000, 2000)), now_s=1500)
    assert len(caching._cache) == 2


def test_an_order_token_is_valid_for_its_order_only() -> None:
    token = sign_order_token(KEYS, "ABCD1234")
    assert read_order_token(KEYS, token) == "ABCD1234"
    for forged in (token.replace("ABCD", "ABCE"), token[:-4] + "AAAA", "ABCD1234..", "", token.replace(KEYS.kid, "")):
        with pytest.raises(BadCredential):
            read_order_token(KEYS, forged)


def test_a_mac_depends_on_where_its_parts_are_divided() -> None:
    assert KEYS.mac("ab", "c") != KEYS.mac("a", "bc")


def test_a_checkout_key_is_the_same_for_one_admission() -> None:
    assert checkout_key(KEYS, "1-0-42-1") == checkout_key(KEYS, "1-0-42-1") != checkout_key(KEYS, "1-0-42-2")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "k1",
        "k1:short",
        f"k1:{b64(bytes(31))}",
        "k1:" + base64.b64encode(bytes(32)).decode() + "!",
        "a b:" + "A" * 43,
    ],
)
def test_an_invalid_keyring_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"keyring|base64url"):
        Keyring.parse(text)


def test_a_keyring_is_parsed_from_its_own_text() -> None:
    keys = Keyring({"new": bytes(range(32)), "old": bytes(32)})
    assert Keyring.parse(keys.text()) == keys
    assert keys.kid == "new"


TICKET_KEYS = development_keys("ticket")
TICKET = TicketCode("arena-2026", "ABCDEFGH1234", "A", "A-1-12", "QRSTVW")
SECRET = b"s" * 32


def public(keys: Keyring) -> dict[str, Ed25519PublicKey]:
    return {kid: Ed25519PublicKey.from_public_bytes(raw) for kid, raw in keys.public().keys.items()}


def test_a_ticket_is_verified_with_public_keys_alone():
    code = sign_ticket(TICKET_KEYS, TICKET)
    assert read_ticket(public(TICKET_KEYS), code) == TICKET
    assert sign_ticket(TICKET_KEYS, TICKET) == code
    assert len(code) < CODE_MAX_CHARS / 2, "a smaller code can be scanned from farther away"
    standing = TICKET._replace(seat_id="")
    assert read_ticket(public(TICKET_KEYS), sign_ticket(TICKET_KEYS, standing)) == standing


TYPED = TICKET._replace(type_id="child")


def test_a_ticket_of_an_event_with_price_types_says_its_type():
    code = sign_ticket(TICKET_KEYS, TYPED)
    assert (code.split(".")[0], sign_ticket(TICKET_KEYS, TICKET).split(".")[0]) == ("T2", "T1")
    assert read_ticket(public(TICKET_KEYS), code) == TYPED
    assert len(code) < CODE_MAX_CHARS / 2
    rotating = TYPED._replace(window_s=15)
    shown = f"{sign_ticket(TICKET_KEYS, rotating)}.{rotating_code(SECRET, 15, at_s=1_000)}"
    assert read_ticket(public(TICKET_KEYS), shown) == rotating
    require_rotating_code(rotating, SECRET, shown, at_s=1_000)


def test_a_code_from_before_price_types_is_read_for_ever():
    key = TICKET_KEYS.signer()[1]
    signed = f"T1.{TICKET_KEYS.kid}.arena-2026.ABCDEFGH1234.A.A-1-12.QRSTVW.0"
    assert read_ticket(public(TICKET_KEYS), f"{signed}.{b64(key.sign(signed.encode()))}") == TICKET


def test_a_ticket_signed_before_a_key_rotation_stays_valid():
    before = sign_ticket(TICKET_KEYS, TICKET)
    after = Keyring({"k2": b"2" * 32, **TICKET_KEYS.keys})
    assert read_ticket(public(after), before) == read_ticket(public(after), sign_ticket(after, TICKET)) == TICKET
    with pytest.raises(BadTicket, match="signed by an unknown key: k2"):
        read_ticket(public(TICKET_KEYS), sign_ticket(after, TICKET))


@pytest.mark.parametrize("ticket", [TICKET, TYPED])
def test_a_ticket_code_changed_anywhere_is_refused(ticket: TicketCode):
    code = sign_ticket(TICKET_KEYS, ticket)
    for at in range(len(code) - 1):  # the last character of base64 has bits that mean nothing
        other = code[:at] + ("B" if code[at] != "B" else "C") + code[at + 1 :]
        with pytest.raises(BadTicket):
            read_ticket(public(TICKET_KEYS), other)
    for broken in ("", ".", "T1", code + ".x.y", code.replace(".0.", ".30."), "T1" + "." * 8,
                   "T2" + "." * 9, "T3" + code[2:], "ü" * 9, code * 9):  # fmt: skip
        with pytest.raises(BadTicket):
            read_ticket(public(TICKET_KEYS), broken)


def test_a_screenshot_of_a_rotating_code_expires():
    rotating = TICKET._replace(window_s=15)
    signed = sign_ticket(TICKET_KEYS, rotating)
    shown = f"{signed}.{rotating_code(SECRET, 15, at_s=1_000)}"
    assert read_ticket(public(TICKET_KEYS), shown) == rotating
    for at_s in (990, 1_000, 1_019):
        require_rotating_code(rotating, SECRET, shown, at_s=at_s)
    for code, at_s in ((shown, 1_020), (shown, 974), (signed, 1_000), (f"{signed}.ü", 1_000)):
        with pytest.raises(BadTicket, match="expired"):
            require_rotating_code(rotating, SECRET, code, at_s=at_s)
    with pytest.raises(BadTicket, match="expired"):
        require_rotating_code(rotating, b"t" * 32, shown, at_s=1_000)
