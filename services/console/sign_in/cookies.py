"""The session's cookie: no script can read it, and no other site can send it along."""

from starlette.types import Scope

from shared.security.auth import SESSION_S, session_cookie
from shared.security.credentials import HOST_ONLY, header_fields, set_cookie


def set_session(scope: Scope, text: str) -> str:
    """The `Set-Cookie` value that begins a session."""
    return _cookie(scope, text, SESSION_S)


def clear_session(scope: Scope) -> str:
    """The `Set-Cookie` value that ends it in this browser."""
    return _cookie(scope, "", 0)


def _cookie(scope: Scope, text: str, max_age_s: int) -> str:
    name = session_cookie(header_fields(scope))
    return set_cookie(name, text, max_age_s=max_age_s, secure=name.startswith(HOST_ONLY), same_site="Strict")
