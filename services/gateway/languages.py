"""Keeps the language that an address names (`?lang=`) in a cookie, so that the browser's next pages have it.

Scripts may read it: a balancer's page of an outage chooses by it.
"""

from fastapi import Request
from starlette.responses import Response

from services.gateway.settings import Settings
from shared.security.credentials import set_cookie
from shared.web.languages import LANGUAGE_COOKIE, named_language

COOKIE_S = 365 * 86_400


def remember_language(request: Request, response: Response, settings: Settings) -> None:
    """Has the browser keep the language that the address names."""
    named = named_language(request.scope)
    if named is not None:
        text = set_cookie(LANGUAGE_COOKIE, named, max_age_s=COOKIE_S, secure=settings.secure_cookies, readable=True)
        response.headers.append("set-cookie", text)
        response.headers["cache-control"] = "private, no-cache"
