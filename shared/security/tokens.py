"""What a fan shows: self-contained tokens, whose verification needs no look-up, and how a request carries them.

A queue token is a compact JWS (HS256) with a fixed header. A pass is a JWT (EdDSA) that any origin can verify with our
JWKS. The algorithm is fixed and never read from the token.

A Bearer header, if present, is the only credential considered; else cookies are. A write with a cookie must come from a
page of the same origin. Everything works on the ASGI scope, without objects of a framework, because every poll of a
crowd comes by here.
"""

import base64
import binascii
import hashlib
import hmac
import re
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol, Self, TypeVar

import orjson
from cachetools import FIFOCache
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from shared.errors.problems import BadCredential, ForeignOrigin, NoCredential

if TYPE_CHECKING:
    from starlette.types import Scope

TOKEN_MAX_CHARS = 2048
BEARER_MAX_CHARS = 8000  # tokens of identity providers can be long; the header still fits a balancer's limit of 8 KiB


def b64(raw: bytes) -> str:
    """Base64url without padding."""
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()


def unb64(text: str) -> bytes:
    """The bytes of base64url without padding; raises `ValueError` on anything else."""
    try:
        return base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
    except (binascii.Error, UnicodeEncodeError) as broken:
        raise ValueError("not base64url") from broken


def canonical_unb64(text: str) -> bytes:
    """As `unb64`, for the canonical encoding of `b64` only: unused bits and padding would be aliases of a token."""
    raw = unb64(text)
    if b64(raw) != text:
        raise ValueError("not canonical base64url")
    return raw


@dataclass
class Keyring:
    """Secret keys by kid. The first signs; all of them verify, so keys can rotate during a sale.

    `keys` is never modified, only replaced as a whole: caches of derived values compare its identity.
    """

    keys: dict[str, bytes]

    def replace(self, other: "Keyring") -> None:
        """Replaces the keys for every user of this keyring."""
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
        message = b""
        for part in parts:
            raw = part.encode() if isinstance(part, str) else part
            message += len(raw).to_bytes(4, "big") + raw
        return hmac.digest(self.keys[self.kid if kid is None else kid], message, "sha256")

    @cached_property
    def _ed25519(self) -> dict[str, Ed25519PrivateKey]:
        return {kid: Ed25519PrivateKey.from_private_bytes(raw[:32]) for kid, raw in self.keys.items()}

    def signer(self) -> tuple[str, Ed25519PrivateKey]:
        """The current kid and its key, read as an Ed25519 seed."""
        return self.kid, self._ed25519[self.kid]

    def public(self) -> "Keyring":
        """The Ed25519 public keys, 32 bytes each, for verifiers."""
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


QUEUE_CLAIMS = ("evt", "epo", "lan", "seq", "sub", "iat")
_queue_claims = itemgetter(*QUEUE_CLAIMS)


def _queue_header(kid: str) -> str:
    return b64(orjson.dumps({"alg": "HS256", "typ": "onsale-queue", "kid": kid}))


class QueueTokens:
    """Signs and reads queue tokens. Reading costs one HMAC and no I/O."""

    def __init__(self, keys: Keyring) -> None:
        self._keys = keys
        self._refresh_keys()

    def _refresh_keys(self) -> None:
        self._known_keys = self._keys.keys
        self._header = _queue_header(self._keys.kid)
        self._macs = {_queue_header(kid): hmac.new(raw, digestmod="sha256") for kid, raw in self._known_keys.items()}

    def _mac(self, header: str, signed: str) -> str:
        """The signature by the key of this header. Copying a keyed hash takes two thirds of keying a new one."""
        mac = self._macs[header].copy()
        mac.update(signed.encode())
        return b64(mac.digest())

    def signed_by_current_key(self, text: str) -> bool:
        """Whether the present key signed this token, by its header."""
        return text.startswith(self._header)

    def sign(self, token: QueueToken) -> str:
        if self._known_keys is not self._keys.keys:
            self._refresh_keys()
        claims = dict(zip(QUEUE_CLAIMS, token, strict=True))
        signed = f"{self._header}.{b64(orjson.dumps(claims))}"
        return f"{signed}.{self._mac(self._header, signed)}"

    def recognises(self, text: str) -> bool:
        """Whether the header is that of a queue token; `read` verifies it."""
        if self._known_keys is not self._keys.keys:
            self._refresh_keys()
        return text.partition(".")[0] in self._macs

    def read(self, text: str) -> QueueToken:
        """Raises `BadCredential` for anything but a token we signed."""
        if self._known_keys is not self._keys.keys:
            self._refresh_keys()
        try:
            header, claims, mac = text[:TOKEN_MAX_CHARS].split(".")
            expected = self._mac(header, f"{header}.{claims}")
            if not hmac.compare_digest(mac.encode(), expected.encode()):  # the texts: the same bytes have aliases
                raise BadCredential
            return QueueToken._make(_queue_claims(orjson.loads(base64.urlsafe_b64decode(f"{claims}=="))))
        except (ValueError, KeyError, UnicodeEncodeError) as broken:
            raise BadCredential from broken


@dataclass(frozen=True, slots=True)
class Pass:
    """Admission to buy: the holder, the event, the place that was called, and the expiry (seconds since the epoch)."""

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
NOT_BEFORE_LEEWAY_S = 60  # Redis' clock dates a pass and may be this far ahead of a verifier's
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
    header, payload = _pass_header(kid), orjson.dumps(claims)
    if seal is not None:
        payload = payload[:-1] + SEAL + f"{seal.kid}.{_seal(seal, seal.kid, header, payload[:-1])}".encode() + b'"}'
    signed = f"{header}.{b64(payload)}"
    return f"{signed}.{b64(key.sign(signed.encode()))}"


def _seal(keys: Keyring, kid: str, header: str, claims: bytes) -> str:
    return b64(keys.mac("pass", header, claims, kid=kid))


class PassSettings(Protocol):
    """The settings of a service that reads passes."""

    @property
    def pass_public_keys(self) -> Keyring: ...
    @property
    def service_keys(self) -> Keyring: ...
    @property
    def cache_entries_max(self) -> int: ...


class PassReader:
    """Verifies passes and caches the latest `cache_entries_max` of them.

    Verifying a signature takes 67 µs, the seal (an HMAC for services) 4 µs: a service with the key of seals checks the
    seal first, and the signature if the seal is missing or wrong. If the same claims come with another signature, the
    signature is verified: a pass has one encoding, so limits that count tokens count a fan once. The header is compared
    with known ones, never parsed: a token cannot choose the algorithm.
    """

    def __init__(self, public_keys: Keyring, *, seal: Keyring | None = None, cache_entries_max: int = 65_536) -> None:
        self._keys, self._seal = public_keys, seal
        self._cache: FIFOCache[str, tuple[str, Pass]] = FIFOCache(cache_entries_max)
        self._refresh_keys()

    @classmethod
    def of(cls, settings: PassSettings) -> Self:
        """The reader of a service, which has the key of seals."""
        return cls(settings.pass_public_keys, seal=settings.service_keys, cache_entries_max=settings.cache_entries_max)

    def _refresh_keys(self) -> None:
        """Adopts the present keys and clears the cache: a cached pass may be signed by a key that is gone."""
        self._known_keys = self._keys.keys
        self._by_header = {
            _pass_header(kid): Ed25519PublicKey.from_public_bytes(raw) for kid, raw in self._known_keys.items()
        }
        self._cache.clear()

    def recognises(self, text: str) -> bool:
        """Whether the header is that of a pass; `read` verifies it."""
        if self._known_keys is not self._keys.keys:
            self._refresh_keys()
        return text.partition(".")[0] in self._by_header

    def read(self, text: str, *, now_s: float, allow_expired: bool = False) -> Pass:
        """Raises `BadCredential`. With `allow_expired` an expired pass still identifies its holder."""
        if self._known_keys is not self._keys.keys:
            self._refresh_keys()
        signed, _, signature = text.rpartition(".")
        known, admission = self._cache.get(signed, (None, None))
        if admission is None or known != signature:
            admission = self._verify(text, by_seal=known is None)
            self._cache[signed] = signature, admission
        if not allow_expired and now_s > admission.expires_at_s + PASS_LEEWAY_S:
            raise BadCredential("This pass has expired.")
        return admission

    def _verify(self, text: str, *, by_seal: bool) -> Pass:
        if len(text) > TOKEN_MAX_CHARS:
            raise BadCredential
        try:
            header, claims, signature = text.split(".")
            key, payload, signed = self._by_header[header], canonical_unb64(claims), canonical_unb64(signature)
            if len(signed) != SIGNATURE_BYTES or not (by_seal and self._is_sealed(header, payload)):
                key.verify(signed, f"{header}.{claims}".encode())
            return _pass(orjson.loads(payload))
        except (InvalidSignature, KeyError, TypeError, ValueError) as broken:
            raise BadCredential from broken

    def _is_sealed(self, header: str, payload: bytes) -> bool:
        claims, mark, rest = payload.rpartition(SEAL)
        if self._seal is None or not mark or not rest.endswith(b'"}'):
            return False
        kid, _, seal = rest[:-2].decode("ascii").partition(".")
        return kid in self._seal.keys and hmac.compare_digest(seal, _seal(self._seal, kid, header, claims))


def _pass(claims: dict[str, Any]) -> Pass:
    """The claims of a verified token, with their types checked; raises `BadCredential` or `KeyError`."""
    admission = Pass(
        event_id=claims["aud"], holder=claims["sub"], jti=claims["jti"], epoch=claims["epo"], lane=claims["lan"],
        join_seq=claims["seq"], qty_max=claims["qty_max"], issued_at_s=claims["iat"], expires_at_s=claims["exp"],
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


def sign_order_token(keys: Keyring, reference: str, *, purpose: str = "order") -> str:
    """`reference.kid.mac`: opens the order for good. With another purpose it is a key to what that purpose knows."""
    return f"{reference}.{keys.kid}.{b64(keys.mac(purpose, reference))}"


def read_order_token(keys: Keyring, text: str, *, purpose: str = "order") -> str:
    """The reference the token opens, if it was signed for this purpose; raises `BadCredential`."""
    try:
        reference, kid, mac = text[:TOKEN_MAX_CHARS].split(".")
        if hmac.compare_digest(canonical_unb64(mac), keys.mac(purpose, reference, kid=kid)):
            return reference
    except (ValueError, KeyError) as broken:
        raise BadCredential from broken
    raise BadCredential


def checkout_key(keys: Keyring, jti: str) -> str:
    """The key from which a fan's page builds its `Idempotency-Key`: stable for one pass, unguessable for others."""
    return b64(keys.mac("checkout", jti))[:32]


DEVELOPMENT_KID = "dev"


def development_keys(purpose: str) -> Keyring:
    """A 32-byte key for laptops, derived from its purpose. Anyone can compute it: production refuses it."""
    return Keyring({DEVELOPMENT_KID: hashlib.sha256(f"onsale development {purpose}".encode()).digest()})


# -- how a request carries them ----------------------------------------------------------------------------------------

SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})
SCHEMES = frozenset({b"http", b"https"})
HOST_ONLY = "__Host-"
TEXTS_MAX = 16
HeaderFields = Mapping[bytes, bytes]
Result = TypeVar("Result")


def cookie_name(name: str, *, secure: bool) -> str:
    """Over HTTPS a browser accepts `__Host-` cookies from this host alone: no other host of the domain can set ours."""
    return f"{HOST_ONLY}{name}" if secure else name


def queue_cookie(event_id: str, *, secure: bool = False) -> str:
    return cookie_name(f"onsale_queue_{event_id}", secure=secure)


def pass_cookie(event_id: str, *, secure: bool = False) -> str:
    return cookie_name(f"onsale_pass_{event_id}", secure=secure)


def order_cookie(reference: str, *, secure: bool = False) -> str:
    return cookie_name(f"onsale_order_{reference}", secure=secure)


def set_cookie(
    name: str, value: str, *, max_age_s: int, secure: bool, same_site: Literal["Lax", "Strict"] = "Lax",
    readable: bool = False,
) -> str:  # fmt: skip
    """A `Set-Cookie` value: HttpOnly unless scripts may read it. Other sites cannot post with it; `Strict` is not sent
    from their links either.
    """
    text = f"{name}={value}; Path=/; Max-Age={max_age_s}; {'' if readable else 'HttpOnly; '}SameSite={same_site}"
    return text + ("; Secure" if secure else "")


def header_fields(scope: "Scope") -> HeaderFields:
    """The request's header fields by name; of a repeated one, the first."""
    return dict(reversed(scope["headers"]))


def bearer(fields: HeaderFields) -> str | None:
    """The Bearer token; raises `BadCredential` for another scheme or an oversized one."""
    value = fields.get(b"authorization")
    if value is None:
        return None
    scheme, _, token = value.partition(b" ")
    if scheme.lower() != b"bearer" or not 0 < len(token) <= BEARER_MAX_CHARS:
        raise BadCredential("The Authorization header must be a Bearer token.")
    return token.decode("latin-1")


def cookies(fields: HeaderFields) -> Iterator[tuple[str, str]]:
    """The cookies that have a value, by name, in the order of the header."""
    for part in fields.get(b"cookie", b"").decode("latin-1").split(";"):
        name, _, value = part.strip().partition("=")
        if value:
            yield name, value


def cookie(fields: HeaderFields, name: str) -> str | None:
    """The value of one cookie."""
    wanted = name.encode() + b"="
    for part in fields.get(b"cookie", b"").split(b";"):
        pair = part.strip()
        if pair.startswith(wanted):
            return pair[len(wanted) :].decode("latin-1") or None
    return None


def cookie_values(fields: HeaderFields, name: str) -> list[str]:
    """The values of a cookie that may have been sent several times: of a credential the first valid one counts."""
    wanted = name.encode() + b"="
    parts = map(bytes.strip, fields.get(b"cookie", b"").split(b";"))
    texts = [part[len(wanted) :].decode("latin-1") for part in parts if part.startswith(wanted)]
    return [text for text in texts if text][:TEXTS_MAX]


def require_own_origin(fields: HeaderFields, *, secure: bool) -> None:
    """Raises `ForeignOrigin` unless `Origin` names the requested host by the requested scheme: whoever can answer plain
    HTTP in our name must not write with the cookies of HTTPS. Secure cookies come by HTTPS, others by what the balancer
    says; without a word of it by either.
    """
    scheme, _, host = fields.get(b"origin", b"").lower().partition(b"://")
    requested = b"https" if secure else fields.get(b"x-forwarded-proto", scheme).lower()
    if not host or host != fields.get(b"host", b"").lower() or scheme != requested or scheme not in SCHEMES:
        raise ForeignOrigin


def credentials(scope: "Scope", *cookie_names: str) -> list[str]:
    """The Bearer token, or else the values of these cookies, also of one that was sent twice. Raises `NoCredential` if
    there is none, `ForeignOrigin`, `BadCredential`.
    """
    fields = header_fields(scope)
    token = bearer(fields)
    if token is not None:
        return [token]
    sent = list(cookies(fields))
    texts = [text for name in cookie_names for sent_name, text in sent if sent_name == name][:TEXTS_MAX]
    if not texts:
        raise NoCredential
    if scope["method"] not in SAFE_METHODS:
        require_own_origin(fields, secure=any(name.startswith(HOST_ONLY) for name in cookie_names))
    return texts


async def first_valid(texts: Sequence[str], read: Callable[[str], Awaitable[Result]]) -> Result:
    """What `read` makes of the first text that it accepts: a pass may have expired while the queue token beside it is
    still valid. Raises the last `BadCredential`.
    """
    for text in texts[:-1]:
        try:
            return await read(text)
        except BadCredential:
            continue
    return await read(texts[-1])


# -- tokens of others --------------------------------------------------------------------------------------------------


class User(Protocol):
    """A signed-in fan: the provider's user id, and the holder id derived from it, the same on every device."""

    @property
    def user_id(self) -> str: ...
    @property
    def holder(self) -> str: ...
    @property
    def claims(self) -> dict[str, Any]:
        """All verified claims, for rules that need more than the user id."""

    async def place(self, event_id: str, *, epoch_min: int = 0) -> QueueToken:
        """The fan's place, whichever device took it. Raises `NotInQueue`, `UnknownEvent`, `Unavailable`."""

    def remember(self, place: QueueToken) -> None:
        """Takes note of a place that this process just gave the fan."""


async def _nobody(_text: str) -> User:
    raise BadCredential


@dataclass(slots=True)
class Users:
    """Who a token is of that is not ours, as a feature fills it in; without one nobody can sign in.

    `identify` raises `BadCredential` for an invalid token, `Unavailable` while it cannot be verified.
    """

    identify: Callable[[str], Awaitable[User]] = _nobody
