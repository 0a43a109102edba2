"""The session's cookie: no script can read it, and no other site can send it along."""

from starlette.types import Scope

from shared.security.auth import SESSION_S, session_cookie
from shared.security.credentials import HOST_ONLY, header_fields


def set_session(scope: Scope, text: str) -> str:
    """The `Set-Cookie` value that begins a session."""
    return _cookie(scope, text, SESSION_S)


def clear_session(scope: Scope) -> str:
    """The `Set-Cookie` value that ends it in this browser."""
    return _cookie(scope, "", 0)


def _cookie(scope: Scope, text: str, max_age_s: int) -> str:
    name = session_cookie(header_fields(scope))
    secure = "; Secure" if name.startswith(HOST_ONLY) else ""
    return f"{name}={text}; Path=/; Max-Age={max_age_s}; HttpOnly; SameSite=Strict{secure}"
