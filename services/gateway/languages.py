"""The language of a page: `?lang=`, which sets a cookie, or else the cookie, or else what the browser asks for."""

from fastapi import Request
from starlette.responses import Response

from services.gateway.settings import Settings
from shared.security.credentials import cookie, header_fields, set_cookie
from shared.web.pages.words import LANGUAGES, accepted_language

COOKIE, COOKIE_S = "onsale_lang", 365 * 86_400


def named_language(request: Request) -> str | None:
    """The language that the address names."""
    named = request.query_params.get("lang")
    return named if named in LANGUAGES else None


def language_of(request: Request) -> str:
    """One of `LANGUAGES`."""
    fields = header_fields(request.scope)
    chosen = named_language(request) or cookie(fields, COOKIE)
    if chosen in LANGUAGES:
        return chosen
    return accepted_language(fields.get(b"accept-language", b"").decode("latin-1"))


def remember_language(request: Request, response: Response, settings: Settings) -> None:
    """Has the browser keep the language that the address names."""
    named = named_language(request)
    if named is not None:
        text = set_cookie(COOKIE, named, max_age_s=COOKIE_S, secure=settings.secure_cookies)
        response.headers.append("set-cookie", text)
        response.headers["cache-control"] = "private, no-cache"
