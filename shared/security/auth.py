"""Authenticates operators, by API key or by the session that a key began, and other services by signature;
`credentials` reads what fans send.

A session is signed, not stored: every service verifies it alone. It ends after eight hours, and with its key: whoever
removes or renames a key, or changes its role, ends the sessions that it began.
"""

import hashlib
import hmac
import re
import time
from collections.abc import Awaitable, Callable
from typing import Annotated, Any, NamedTuple
from urllib.parse import urlsplit

import orjson
from fastapi import Depends, Request
from pydantic import BeforeValidator
from pydantic_settings import NoDecode

from shared.rules.hosts import is_loopback
from shared.security.credentials import (
    SAFE_METHODS,
    HeaderFields,
    bearer,
    cookie,
    cookie_name,
    header_fields,
    require_own_origin,
)
from shared.security.tokens import Keyring, b64, canonical_unb64, unb64
from shared.web.fields import Role
from shared.web.problems import BadCredential, NoCredential, NotAllowed

SERVICE_HEADER = "onsale-service"
SERVICE_SKEW_MAX_S = 30


# -- services --------------------------------------------------------------------------------------------------------


def sign_service_call(keys: Keyring, method: str, path: str, body: bytes, *, at_s: int | None = None) -> dict[str, str]:
    """The headers of an internal call: an HMAC over method, path, time and the hash of the body."""
    at = str(int(time.time()) if at_s is None else at_s)
    mac = keys.mac("service", method, path, at, hashlib.sha256(body).digest())
    return {SERVICE_HEADER: f"{keys.kid}.{at}.{b64(mac)}", "content-type": "application/json"}


def check_service_call(keys: Keyring, header: str, method: str, path: str, body: bytes, *, now_s: float) -> None:
    """Raises `BadCredential` unless a service signed exactly this call within the last 30 s."""
    try:
        kid, at, mac = header.split(".")
        fresh = abs(now_s - int(at)) <= SERVICE_SKEW_MAX_S
        expected = keys.mac("service", method, path, at, hashlib.sha256(body).digest(), kid=kid)
        if fresh and hmac.compare_digest(unb64(mac), expected):
            return
    except (ValueError, KeyError) as broken:
        raise BadCredential from broken
    raise BadCredential


def services_only(keys: Keyring) -> Callable[[Request], Awaitable[None]]:
    """A FastAPI dependency that checks the signature of `/internal` routes."""

    async def check(request: Request) -> None:
        body = await request.body()
        path = request.scope["path"]
        check_service_call(keys, request.headers.get(SERVICE_HEADER, ""), request.method, path, body, now_s=time.time())

    return check


# -- operators -------------------------------------------------------------------------------------------------------

_RANK: dict[Role, int] = {"viewer": 0, "operator": 1, "admin": 2}
SESSION_S = 8 * 3600
SESSION_COOKIE = "onsale_operator"
SESSION_MARK = "operator"


class Operator(NamedTuple):
    """The caller of the admin API: the name of the key, which the audit log records, and its role."""

    name: str
    role: Role


class OperatorSession(NamedTuple):
    """An operator, the fingerprint of the key that signed in (empty: a service asks for itself), and the expiry."""

    operator: Operator
    fingerprint: str
    expires_at_s: int


class AdminKeys:
    """API keys, stored by the hash of their secret; written `name:role:secret[,…]`."""

    def __init__(self, text: str = "") -> None:
        self._operators: dict[bytes, Operator] = {}
        for entry in filter(None, text.split(",")):
            name, role, secret = [*entry.strip().split(":", 2), "", ""][:3]
            if not re.fullmatch(r"[A-Za-z0-9_.-]{1,64}", name) or role not in _RANK or len(secret) < 20:
                raise ValueError("an admin key is name:viewer|operator|admin:secret of at least 20 characters")
            self._operators[self._hash(secret)] = Operator(name, role)

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
        _, kid, claims, mac = text.split(".")
        if not hmac.compare_digest(canonical_unb64(mac), keys.mac(SESSION_MARK, claims, kid=kid)):
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


def signed_in(request: Request) -> OperatorSession:
    """Who calls: by a key or a session as Bearer token, or else by the session's cookie; a write with a cookie must
    come from our own pages. Raises `NoCredential`, `BadCredential`, `ForeignOrigin`.
    """
    fields, state, now_s = header_fields(request.scope), request.app.state, time.time()
    token = bearer(fields)
    if token is not None and not token.startswith(f"{SESSION_MARK}."):
        session: OperatorSession = state.admin_keys.session(token, now_s=now_s)
        return session
    if token is None:
        token = cookie(fields, session_cookie(fields))
        if token is None:
            raise NoCredential
        if request.method not in SAFE_METHODS:
            require_own_origin(fields)
    return read_session(state.settings.service_keys, state.admin_keys, token, now_s=now_s)


def operators(role: Role) -> Any:
    """A dependency that yields the `Operator`, who needs at least this role; keys are in `app.state.admin_keys`."""

    async def check(request: Request) -> Operator:
        operator = signed_in(request).operator
        if _RANK[operator.role] < _RANK[role]:
            raise NotAllowed(f"This needs the role {role}.")
        return operator

    return Depends(check)


Viewer = Annotated[Operator, operators("viewer")]
AnOperator = Annotated[Operator, operators("operator")]
AnAdmin = Annotated[Operator, operators("admin")]
