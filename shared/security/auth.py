"""Authenticates operators by API key and other services by signature; `credentials` reads what fans send."""

import hashlib
import hmac
import re
import time
from collections.abc import Awaitable, Callable
from typing import Annotated, Any, Literal, NamedTuple

from fastapi import Depends, Request
from pydantic import BeforeValidator
from pydantic_settings import NoDecode

from shared.security.credentials import bearer, header_fields
from shared.security.tokens import Keyring, b64, unb64
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

Role = Literal["viewer", "operator", "admin"]
_RANK: dict[Role, int] = {"viewer": 0, "operator": 1, "admin": 2}


class Operator(NamedTuple):
    """The caller of the admin API: the name of the key, which the audit log records, and its role."""

    name: str
    role: Role


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

    def operator(self, secret: str) -> Operator:
        """Raises `BadCredential` for an unknown key. A look-up by hash has no timing side channel."""
        operator = self._operators.get(self._hash(secret))
        if operator is None:
            raise BadCredential("This admin key is unknown.")
        return operator

    def __repr__(self) -> str:
        return f"AdminKeys({len(self._operators)} keys)"


def _admin_keys(value: Any) -> Any:
    return AdminKeys(value) if isinstance(value, str) else value


AdminKeysSetting = Annotated[AdminKeys, NoDecode, BeforeValidator(_admin_keys)]


def operators(role: Role) -> Any:
    """A dependency that yields the `Operator`, who needs at least this role; keys are in `app.state.admin_keys`."""

    async def check(request: Request) -> Operator:
        token = bearer(header_fields(request.scope))
        if token is None:
            raise NoCredential
        operator: Operator = request.app.state.admin_keys.operator(token)
        if _RANK[operator.role] < _RANK[role]:
            raise NotAllowed(f"This needs the role {role}.")
        return operator

    return Depends(check)


Viewer = Annotated[Operator, operators("viewer")]
AnOperator = Annotated[Operator, operators("operator")]
AnAdmin = Annotated[Operator, operators("admin")]
