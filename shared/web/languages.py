"""The language of who asks, by one rule for pages, orders, mails and problems."""

from starlette.datastructures import QueryParams
from starlette.types import Scope

from shared.security.credentials import cookie, header_fields
from shared.words.words import LANGUAGES, accepted_language

LANGUAGE_COOKIE = "onsale_lang"
VARY = "accept-language, cookie"


def language_of(scope: Scope) -> str:
    """One of `LANGUAGES`: that of `?lang=`, else of the cookie, else of the browser's settings."""
    fields = header_fields(scope)
    chosen = named_language(scope) or cookie(fields, LANGUAGE_COOKIE)
    return chosen if chosen in LANGUAGES else accepted_language(fields.get(b"accept-language", b"").decode("latin-1"))


def named_language(scope: Scope) -> str | None:
    """The language that the address names."""
    named = QueryParams(scope["query_string"]).get("lang")
    return named if named in LANGUAGES else None
