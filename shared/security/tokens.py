"""Tokens that carry what a check needs, so that checking asks nobody.

Queue token: a compact JWS HS256 with a fixed header. Pass: a JWT EdDSA any origin can verify with our JWKS. The
algorithm is fixed by us, never read from the token.
"""

import base64
import binascii
import hmac
import re
import time
from collections import OrderedDict
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple, Self

import orjson
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from shared.web.problems import BadCredential

TOKEN_MAX_CHARS = 2048
BEARER_MAX_CHARS = 8000  # an identity provider's may be long; with its name it fits the 8 KiB a balancer gives a field


def b64(raw: bytes) -> str:
    """Base64url without padding."""
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()


def unb64(text: str) -> bytes:
    """The bytes of base64url without padding; raises `ValueError` on anything else."""
    try:
        return base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
    except (binascii.Error, UnicodeEncodeError) as broken:
        raise ValueError("not base64url") from broken


def exact(text: str) -> bytes:
    """As `unb64`, of the one spelling that `b64` writes: unused bits and padding would be more names of the same."""
    raw = unb64(text)
    if b64(raw) != text:
        raise ValueError("not as we write it")
    return raw


@dataclass
class Keyring:
    """Secret keys by kid. The first signs; all of them verify, so keys can rotate while fans wait.

    `keys` is never changed in place, only replaced as a whole: who derived something from it compares identities.
    """

    keys: dict[str, bytes]

    def replace(self, other: "Keyring") -> None:
        """From now on these are the keys, for whoever holds this ring."""
        self.keys = other.keys
        self.__dict__.pop("_ed25519", None)

    @classmethod
    def parse(cls, text: str) -> Self:
        """From `kid:base64url[,kid:base64url…]`, newest first."""
        keys: dict[str, bytes] = {}
        for part in text.split(","):
            kid, _, encoded = part.strip().partition(":")
            if not re.fullmatch(r"[A-Za-z0-9_-]{1,32}", kid) or len(raw := unb64(encoded)) < 32:
                raise ValueError("a keyring is kid:base64url of at least 32 bytes, separated by commas")
            keys[kid] = raw
        return cls(keys)

    def text(self) -> str:
        return ",".join(f"{kid}:{b64(raw)}" for kid, raw in self.keys.items())

    @property
    def kid(self) -> str:
        return next(iter(self.keys))

    def mac(self, *parts: str | bytes, kid: str | None = None) -> bytes:
        """HMAC-SHA256 over the parts, each prefixed with its length so that no two lists collide."""
        told = b""
        for part in parts:
            raw = part.encode() if isinstance(part, str) else part
            told += len(raw).to_bytes(4, "big") + raw
        return hmac.digest(self.keys[kid or self.kid], told, "sha256")

    @cached_property
    def _ed25519(self) -> dict[str, Ed25519PrivateKey]:
        return {kid: Ed25519PrivateKey.from_private_bytes(raw[:32]) for kid, raw in self.keys.items()}

    def signer(self) -> tuple[str, Ed25519PrivateKey]:
        """The current kid with its key read as an Ed25519 seed."""
        return self.kid, self._ed25519[self.kid]

    def public(self) -> "Keyring":
        """The Ed25519 public keys, 32 bytes each: all that a verifier needs."""
        return Keyring(
            {kid: key.public_key().public_bytes(Encoding.Raw, PublicFormat.Raw) for kid, key in self._ed25519.items()}
        )


class QueueToken(NamedTuple):
    """Signed proof of a place in the line."""

    event_id: str
    epoch: int
    lane: int
    join_seq: int
    holder: str
    issued_at_s: int


def _queue_header(kid: str) -> str:
    return b64(orjson.dumps({"alg": "HS256", "typ": "onsale-queue", "kid": kid}))


class QueueTokens:
    """Signs and reads queue tokens. Reading costs one HMAC and no I/O."""

    def __init__(self, keys: Keyring) -> None:
        self._keys = keys
        self._follow()

    def _follow(self) -> None:
        self._followed = self._keys.keys
        self._header = _queue_header(self._keys.kid)
        self._by_header = {_queue_header(kid): raw for kid, raw in self._followed.items()}

    def signed_lately(self, text: str) -> bool:
        """Whether it is the present key that signed this token."""
        return text.startswith(self._header)

    def sign(self, token: QueueToken) -> str:
        if self._followed is not self._keys.keys:
            self._follow()
        claims = dict(zip(("evt", "epo", "lan", "seq", "sub", "iat"), token, strict=True))
        signed = f"{self._header}.{b64(orjson.dumps(claims))}"
        return f"{signed}.{b64(hmac.digest(self._keys.keys[self._keys.kid], signed.encode(), 'sha256'))}"

    def is_one(self, text: str) -> bool:
        """Whether this claims to be a queue token of ours, by its header; that it is good is for `read` to say."""
        if self._followed is not self._keys.keys:
            self._follow()
        return text.partition(".")[0] in self._by_header

    def read(self, text: str) -> QueueToken:
        """Raises `BadCredential` for anything but a token we signed."""
        if self._followed is not self._keys.keys:
            self._follow()
        try:
            header, claims, mac = text[:TOKEN_MAX_CHARS].split(".")
            expected = hmac.digest(self._by_header[header], f"{header}.{claims}".encode(), "sha256")
            if not hmac.compare_digest(exact(mac), expected):
                raise BadCredential
            c = orjson.loads(unb64(claims))
            return QueueToken(c["evt"], c["epo"], c["lan"], c["seq"], c["sub"], c["iat"])
        except (ValueError, KeyError, UnicodeEncodeError) as broken:
            raise BadCredential from broken


@dataclass(frozen=True, slots=True)
class Pass:
    """Admission to buy: who, for which event, by which call, until when (seconds since the epoch)."""

    event_id: str
    holder: str
    jti: str
    epoch: int
    lane: int
    join_seq: int
    qty_max: int
    issued_at_s: int
    expires_at_s: int


PASS_ISSUER = "onsale"  # noqa: S105 - a name, not a secret
PASS_TYPE = "onsale-pass"  # noqa: S105 - a type, not a secret
PASS_LEEWAY_S = 5
NOT_BEFORE_LEEWAY_S = 60  # the engine's clock dates a pass, and may be so far ahead of whoever reads it
SEAL = b',"seal":"'
SIGNATURE_BYTES = 64


def _pass_header(kid: str) -> str:
    return b64(orjson.dumps({"alg": "EdDSA", "kid": kid, "typ": "JWT"}))


def sign_pass(keys: Keyring, admission: Pass, *, seal: Keyring | None = None) -> str:
    """A JWT EdDSA. The same admission gives the same bytes: Ed25519 is deterministic.

    Sealed with a secret that neighbours share, it carries an HMAC over the header and the claims before it.
    """
    kid, key = keys.signer()
    claims = {
        "iss": PASS_ISSUER, "aud": admission.event_id, "sub": admission.holder, "jti": admission.jti, "typ": PASS_TYPE,
        "epo": admission.epoch, "lan": admission.lane, "seq": admission.join_seq, "qty_max": admission.qty_max,
        "iat": admission.issued_at_s, "nbf": admission.issued_at_s - NOT_BEFORE_LEEWAY_S, "exp": admission.expires_at_s,
    }  # fmt: skip
    header, told = _pass_header(kid), orjson.dumps(claims)
    if seal is not None:
        told = told[:-1] + SEAL + f"{seal.kid}.{_seal(seal, seal.kid, header, told[:-1])}".encode() + b'"}'
    signed = f"{header}.{b64(told)}"
    return f"{signed}.{b64(key.sign(signed.encode()))}"


def _seal(keys: Keyring, kid: str, header: str, claims: bytes) -> str:
    return b64(keys.mac("pass", header, claims, kid=kid))


class PassReader:
    """Verifies a pass once and remembers it, the latest `cache_entries_max` of them.

    A signature costs 67 µs, the seal 4: whoever has the neighbours' keys looks at the seal first, and at the signature
    when there is none or it does not fit. The same claims with another signature are read by that one: a pass has one
    spelling, so that who counts callers by their tokens counts a fan once. The header is compared with those we write,
    never parsed: nothing in a token can choose an algorithm.
    """

    def __init__(self, public_keys: Keyring, *, seal: Keyring | None = None, cache_entries_max: int = 50_000) -> None:
        self._keys, self._seal = public_keys, seal
        self._remembered: OrderedDict[str, tuple[str, Pass]] = OrderedDict()
        self._remembered_max = cache_entries_max
        self._follow()

    def _follow(self) -> None:
        """Forgets every pass: one may be by a key that is gone."""
        self._followed = self._keys.keys
        self._by_header = {
            _pass_header(kid): Ed25519PublicKey.from_public_bytes(raw) for kid, raw in self._followed.items()
        }
        self._remembered.clear()

    def is_one(self, text: str) -> bool:
        """Whether this claims to be a pass of ours, by its header; that it is good is for `read` to say."""
        if self._followed is not self._keys.keys:
            self._follow()
        return text.partition(".")[0] in self._by_header

    def read(self, text: str, *, now_s: float, allow_expired: bool = False) -> Pass:
        """Raises `BadCredential`. With `allow_expired` an old pass is still proof of who its holder is."""
        if self._followed is not self._keys.keys:
            self._follow()
        signed, _, signature = text.rpartition(".")
        known, admission = self._remembered.get(signed, (None, None))
        if admission is None or known != signature:
            admission = self._verify(text, by_seal=known is None)
            self._remembered[signed] = signature, admission
            if len(self._remembered) > self._remembered_max:
                self._remembered.popitem(last=False)
        if not allow_expired and now_s > admission.expires_at_s + PASS_LEEWAY_S:
            raise BadCredential("This pass has expired.")
        return admission

    def _verify(self, text: str, *, by_seal: bool) -> Pass:
        if len(text) > TOKEN_MAX_CHARS:
            raise BadCredential
        try:
            header, claims, signature = text.split(".")
            key, told, signed = self._by_header[header], exact(claims), exact(signature)
            if len(signed) != SIGNATURE_BYTES or not (by_seal and self._is_sealed(header, told)):
                key.verify(signed, f"{header}.{claims}".encode())
            return _pass(orjson.loads(told))
        except (InvalidSignature, KeyError, TypeError, ValueError) as broken:
            raise BadCredential from broken

    def _is_sealed(self, header: str, told: bytes) -> bool:
        claims, mark, rest = told.rpartition(SEAL)
        if self._seal is None or not mark or not rest.endswith(b'"}'):
            return False
        kid, _, seal = rest[:-2].decode("ascii").partition(".")
        return kid in self._seal.keys and hmac.compare_digest(seal, _seal(self._seal, kid, header, claims))


def _pass(claims: dict[str, Any]) -> Pass:
    """What a verified token claims, every claim of its type; raises `BadCredential` or `KeyError`."""
    admission = Pass(
        claims["aud"], claims["sub"], claims["jti"], claims["epo"], claims["lan"], claims["seq"], claims["qty_max"],
        claims["iat"], claims["exp"],
    )  # fmt: skip
    numbers = (admission.epoch, admission.lane, admission.join_seq, admission.qty_max, admission.issued_at_s,
               admission.expires_at_s, claims["nbf"])  # fmt: skip
    if (
        {str} != {type(admission.event_id), type(admission.holder), type(admission.jti)}
        or {int} != set(map(type, numbers))
        or (claims["iss"], claims["typ"]) != (PASS_ISSUER, PASS_TYPE)
        or claims["nbf"] > time.time() + PASS_LEEWAY_S
    ):
        raise BadCredential
    return admission


def jwks(public_keys: Keyring) -> dict[str, list[dict[str, str]]]:
    """The public keys of passes, or of tickets, as a JWK set (RFC 8037)."""
    return {
        "keys": [
            {"kty": "OKP", "crv": "Ed25519", "x": b64(raw), "kid": kid, "use": "sig", "alg": "EdDSA"}
            for kid, raw in public_keys.keys.items()
        ]
    }
