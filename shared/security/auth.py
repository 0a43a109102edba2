"""Authenticates operators, by API key or by the session that a key began; holds them to a second person where the
settings demand one.

A session is signed, not stored: every service verifies it alone. It ends after eight hours, and with its key: whoever
removes or renames a key, or changes its role, ends the sessions that it began. An approval is signed in the same way.
"""

import hashlib
import hmac
import math
import re
import time
from collections.abc import Mapping
from typing import Annotated, Any, Literal, NamedTuple, Self
from urllib.parse import urlsplit

import orjson
from fastapi import Request, Security
from fastapi.openapi.models import HTTPBase
from fastapi.security.base import SecurityBase
from prometheus_client import Counter
from pydantic import BeforeValidator
from pydantic_settings import NoDecode

from shared.errors.problems import BadCredential, NoCredential, NotAllowed, SecondPersonNeeded, TooManyWrongCodes
from shared.rules.addresses import is_loopback
from shared.runtime.metrics import with_series
from shared.security.limits import Buckets, client_address
from shared.security.tokens import (
    HOST_ONLY,
    SAFE_METHODS,
    HeaderFields,
    Keyring,
    b64,
    bearer,
    canonical_unb64,
    cookie,
    cookie_name,
    header_fields,
    require_own_origin,
    unb64,
)

Role = Literal["viewer", "operator", "admin"]  # of operators, each may do what the one before may
# A control can be made to need a second person, because what it does cannot be taken back, or sends visitors and their
# passes to another site. Each is one route of an admin API, or one action of it, and the route says so.
CONTROL = "x-onsale-control"


def control(name: str, *, action: str | None = None) -> dict[str, Any]:
    """`openapi_extra` of the route of this control; with `action`, only where the path has this one."""
    return {CONTROL: {"name": name} | ({"action": action} if action else {})}


def control_of(extra: Mapping[str, Any] | None, action: str | None) -> str | None:
    """The control of a route with this `openapi_extra`, when its path has this action."""
    found: dict[str, str] = (extra or {}).get(CONTROL, {})
    return found.get("name") if found.get("action") in (None, action) else None


# -- operators ---------------------------------------------------------------------------------------------------------

_RANK: dict[Role, int] = {"viewer": 0, "operator": 1, "admin": 2}
SESSION_S = 8 * 3600
SESSION_COOKIE = "onsale_operator"
SESSION_MARK = "operator"
HASHED_MARK, SHA256_BYTES = "sha256=", 32
ADDRESSES_MAX = 10_000
WRONG_KEYS_PER_MINUTE = 5  # of one address
UNKNOWN_ADDRESS = "unknown"
REFUSED = with_series(
    Counter("admin_keys_refused_total", "Wrong admin keys, sessions and links: wrong, limited.", ["outcome"]),
    outcome=("wrong", "limited"),
)


class Operator(NamedTuple):
    """The caller of the admin API: the name of the key, which the audit log records, and its role."""

    name: str
    role: Role


class KeyHolder(NamedTuple):
    """A person, as far as keys tell one from another: the name and the fingerprint of a key."""

    name: str
    fingerprint: str


class OperatorSession(NamedTuple):
    """An operator, the fingerprint of the key that signed in (empty: a service asks for itself), and the expiry."""

    operator: Operator
    fingerprint: str
    expires_at_s: int

    @property
    def holder(self) -> KeyHolder:
        return KeyHolder(self.operator.name, self.fingerprint)


class AdminKeys:
    """API keys, stored by the hash of their secret; written `name:role:secret[,…]`, or `name:role:sha256=hash` for a
    service, which needs no more.
    """

    def __init__(self, text: str = "") -> None:
        self._operators: dict[bytes, Operator] = {}
        for entry in filter(None, text.split(",")):
            name, role, secret = [*entry.strip().split(":", 2), "", ""][:3]
            if not re.fullmatch(r"[A-Za-z0-9_.-]{1,64}", name) or role not in _RANK or len(secret) < 20:
                raise ValueError("an admin key is name:viewer|operator|admin:secret of at least 20 characters")
            hashed = secret.startswith(HASHED_MARK)
            digest = unb64(secret.removeprefix(HASHED_MARK)) if hashed else self._hash(secret)
            if len(digest) != SHA256_BYTES:
                raise ValueError("an admin key's sha256 is base64url of 32 bytes")
            self._operators[digest] = Operator(name, role)

    def hashed(self) -> str:
        """The same keys, written by their hashes."""
        return ",".join(f"{name}:{role}:{HASHED_MARK}{b64(h)}" for h, (name, role) in self._operators.items())

    @staticmethod
    def _hash(secret: str) -> bytes:
        return hashlib.sha256(secret.encode()).digest()

    @staticmethod
    def _fingerprint(hashed: bytes) -> str:
        return b64(hashlib.sha256(hashed).digest()[:12])

    def operator(self, secret: str) -> Operator:
        """Raises `BadCredential` for an unknown key. A look-up by hash has no timing side channel."""
        operator = self._operators.get(self._hash(secret))
        if operator is None:
            raise BadCredential("This admin key is unknown.")
        return operator

    def session(self, secret: str, *, now_s: float) -> OperatorSession:
        """The session that this key begins. Raises `BadCredential`."""
        return OperatorSession(self.operator(secret), self._fingerprint(self._hash(secret)), int(now_s) + SESSION_S)

    def admin_session(self, *, now_s: float) -> OperatorSession:
        """The session of the first admin, for the one-time link. Raises `BadCredential` if no key has that role."""
        for hashed, operator in self._operators.items():
            if operator.role == "admin":
                return OperatorSession(operator, self._fingerprint(hashed), int(now_s) + SESSION_S)
        raise BadCredential("No admin key is set.")

    def has(self, operator: Operator, fingerprint: str) -> bool:
        """Whether this is still the name and the role of the key with this fingerprint."""
        return any(
            known == operator and self._fingerprint(hashed) == fingerprint for hashed, known in self._operators.items()
        )

    def __repr__(self) -> str:
        return f"AdminKeys({len(self._operators)} keys)"


def _admin_keys(value: Any) -> Any:
    return AdminKeys(value) if isinstance(value, str) else value


AdminKeysSetting = Annotated[AdminKeys, NoDecode, BeforeValidator(_admin_keys)]


def sign_session(keys: Keyring, session: OperatorSession) -> str:
    """The session as a text for a cookie or a Bearer header: an HMAC by the key of services, which all of them have."""
    claims = b64(orjson.dumps([*session.operator, session.fingerprint, session.expires_at_s]))
    return f"{SESSION_MARK}.{keys.kid}.{claims}.{b64(keys.mac(SESSION_MARK, claims))}"


def read_session(keys: Keyring, admin_keys: AdminKeys, text: str, *, now_s: float) -> OperatorSession:
    """Raises `BadCredential` unless a service signed it, it has not expired, and its key is still set with this role.

    A service that asks for itself has no key: it may only view.
    """
    try:
        mark, kid, claims, mac = text.split(".")
        expected = keys.mac(SESSION_MARK, claims, kid=kid)
        if mark != SESSION_MARK or not hmac.compare_digest(canonical_unb64(mac), expected):
            raise BadCredential
    except (ValueError, KeyError) as broken:
        raise BadCredential from broken
    name, role, fingerprint, expires_at_s = orjson.loads(canonical_unb64(claims))
    operator = Operator(name, role)
    current = admin_keys.has(operator, fingerprint) if fingerprint else role == "viewer"
    if now_s >= expires_at_s or not current:
        raise BadCredential("This session has ended. Sign in again.")
    return OperatorSession(operator, fingerprint, expires_at_s)


def session_cookie(fields: HeaderFields) -> str:
    """The name of the cookie: bound to this host and HTTPS, except at an address of this machine itself."""
    try:
        host = urlsplit("//" + fields.get(b"host", b"").decode("latin-1")).hostname or ""
    except ValueError:
        host = ""
    return cookie_name(SESSION_COOKIE, secure=not is_loopback(host))


class WrongKeys:
    """Refuses wrong keys: the first few of an address in a minute with what is wrong, further ones as too many.

    A right key is never refused: an office whose colleagues mistype theirs, or somebody at the same address who
    guesses, locks nobody out. Keys are long and random, so that guessing is hopeless at any rate.
    """

    def __init__(self, *, shared_by: int = 1) -> None:
        per_s, burst = WRONG_KEYS_PER_MINUTE / 60, WRONG_KEYS_PER_MINUTE
        self._buckets = Buckets(per_s=per_s, burst=burst, keys_max=ADDRESSES_MAX, shared_by=shared_by)

    def refusal(self, wrong: BadCredential, address: str | None) -> BadCredential | TooManyWrongCodes:
        """Counts a wrong key; the problem to answer with. All unknown addresses count as one."""
        wait_s = self._buckets.take(address or UNKNOWN_ADDRESS, now_s=time.monotonic())
        REFUSED.labels("limited" if wait_s else "wrong").inc()
        if not wait_s:
            return wrong
        detail = "Too many wrong keys were tried from this address. The right one is accepted at any time."
        return TooManyWrongCodes(detail, retry_after_s=math.ceil(wait_s))


def signed_in(request: Request) -> OperatorSession:
    """Who calls: by a key or a session as Bearer token, or else by the session's cookie; a write with a cookie must
    come from our own pages. Raises `NoCredential`, `BadCredential`, `ForeignOrigin`, `TooManyWrongCodes`.
    """
    fields, state = header_fields(request.scope), request.app.state
    token = bearer(fields)
    if token is not None:
        try:
            return _session_of(state, token)
        except BadCredential as wrong:
            address = client_address(request.scope, state.settings.trusted_proxies)
            raise state.wrong_keys.refusal(wrong, address) from wrong
    token = cookie(fields, name := session_cookie(fields))
    if token is None:
        raise NoCredential
    if request.method not in SAFE_METHODS:
        require_own_origin(fields, secure=name.startswith(HOST_ONLY))
    return read_session(state.settings.service_keys, state.admin_keys, token, now_s=time.time())


def _session_of(state: Any, token: str) -> OperatorSession:
    """The session of this Bearer token, a key or a session. Raises `BadCredential`."""
    if token.startswith(f"{SESSION_MARK}."):
        return read_session(state.settings.service_keys, state.admin_keys, token, now_s=time.time())
    session: OperatorSession = state.admin_keys.session(token, now_s=time.time())
    return session


def require_role(operator: Operator, role: Role) -> None:
    """Raises `NotAllowed` for a lesser role."""
    if _RANK[operator.role] < _RANK[role]:
        raise NotAllowed(f"This needs the role {role}.")


# -- the second person -------------------------------------------------------------------------------------------------

APPROVAL_HEADER = "onsale-approval"
APPROVAL_MARK = "approval"
APPROVAL_S = 600


class ApprovedRequest(NamedTuple):
    """What is approved: nothing of it may differ when it is sent. Headers that are absent are empty."""

    method: str
    path: str
    body_sha256: str
    idempotency_key: str
    if_match: str

    @classmethod
    def of(cls, path: str, body: bytes, *, idempotency_key: str | None, if_match: str | None) -> Self:
        """The POST request with this body."""
        return cls("POST", path, hashlib.sha256(body).hexdigest(), idempotency_key or "", if_match or "")


def sign_approval(
    keys: Keyring, request: ApprovedRequest, requester: KeyHolder, approver: OperatorSession, *, expires_at_s: int
) -> str:
    """The approval as a text for the header `Onsale-Approval`, signed as a session is."""
    claims = b64(orjson.dumps([*request, *requester, *approver.operator, approver.fingerprint, expires_at_s]))
    return f"{APPROVAL_MARK}.{keys.kid}.{claims}.{b64(keys.mac(APPROVAL_MARK, claims))}"


def approver_of(
    keys: Keyring, admin_keys: AdminKeys, text: str, request: ApprovedRequest, requester: KeyHolder, *, role: Role,
    now_s: float,
) -> Operator:  # fmt: skip
    """Who approved exactly this request of this operator. Raises `SecondPersonNeeded` unless a service signed it, it
    has not expired, and the approver is somebody else, whose key is still set with a role that may do this.
    """
    try:
        mark, kid, claims, mac = text.split(".")
        signed = hmac.compare_digest(canonical_unb64(mac), keys.mac(APPROVAL_MARK, claims, kid=kid))
    except (ValueError, KeyError) as broken:
        raise SecondPersonNeeded("The approval cannot be read. Ask a second person in the console.") from broken
    if not signed or mark != APPROVAL_MARK:
        raise SecondPersonNeeded("The approval is not ours. Ask a second person in the console.")
    *approved, name, fingerprint, by, by_role, by_fingerprint, expires_at_s = orjson.loads(canonical_unb64(claims))
    approver = Operator(by, by_role)
    if now_s >= expires_at_s:
        raise SecondPersonNeeded("The approval has expired. Ask again in the console.")
    if approved != [*request]:
        raise SecondPersonNeeded("The approval is for another request. Ask again in the console.")
    if KeyHolder(name, fingerprint) != requester:
        raise SecondPersonNeeded("The approval was given to another operator. Ask for your own in the console.")
    require_second_person(requester, KeyHolder(by, by_fingerprint))
    if not admin_keys.has(approver, by_fingerprint) or _RANK[approver.role] < _RANK[role]:
        raise SecondPersonNeeded("Whoever approved this may not do so any more. Ask again in the console.")
    return approver


def require_second_person(requester: KeyHolder, approver: KeyHolder) -> None:
    """Raises `SecondPersonNeeded` for the same key, and for another key of the same name: one person may have two."""
    if requester.name == approver.name or requester.fingerprint == approver.fingerprint:
        raise SecondPersonNeeded("Nobody approves what they asked for themselves. Another operator must.")


async def _approved(request: Request, session: OperatorSession, role: Role) -> Operator:
    """The operator, named together with who approved the request if it needs a second person. The control is found by
    the route that was matched, not by the text of the path, so that no spelling of a path goes around it.
    """
    state, scope = request.app.state, request.scope
    control = control_of(scope["route"].openapi_extra, scope["path_params"].get("action"))
    if control not in state.settings.two_persons:
        return session.operator
    headers = request.headers
    text = headers.get(APPROVAL_HEADER)
    if text is None:
        raise SecondPersonNeeded(control=control)
    wanted = ApprovedRequest.of(
        scope["path"], await request.body(), idempotency_key=headers.get("idempotency-key"),
        if_match=headers.get("if-match"),
    )  # fmt: skip
    approver = approver_of(
        state.settings.service_keys, state.admin_keys, text, wanted, session.holder, role=role, now_s=time.time()
    )
    return session.operator._replace(name=f"{session.operator.name}, approved by {approver.name}")


class AtLeast(SecurityBase):
    """A dependency that yields the `Operator`, who needs at least this role and, for a control in `two_persons`, the
    approval of a second person; keys are in `app.state.admin_keys`. OpenAPI documents show the role beside the scheme.
    """

    model = HTTPBase(scheme="bearer")
    scheme_name = "adminKey"

    def __init__(self, role: Role) -> None:
        self._role = role

    async def __call__(self, request: Request) -> Operator:
        session = signed_in(request)
        require_role(session.operator, self._role)
        return await _approved(request, session, self._role)


def operators(role: Role) -> Any:
    """The dependency on an operator of at least this role."""
    return Security(AtLeast(role), scopes=[role])


Viewer = Annotated[Operator, operators("viewer")]
AnOperator = Annotated[Operator, operators("operator")]
AnAdmin = Annotated[Operator, operators("admin")]
