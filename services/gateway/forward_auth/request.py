"""What a proxy tells of the request it asks about: method, address and head, as each of the four says it.

nginx sends what its snippet sets, Traefik and Caddy send `X-Forwarded-*`, Envoy asks with the request's own method and
path. A browser's page is told from an API call by what the browser says of itself.

The rules of a room's gate: what needs no pass, and where a fan may be sent back to. No I/O, linear in the input.
"""

import re
from dataclasses import dataclass
from typing import Literal

from fastapi import Request
from starlette.datastructures import Headers

from shared.contracts.room_options import GateRules
from shared.security.auth import cookie_name, pass_cookie
from shared.security.tokens import TOKEN_MAX_CHARS
from shared.web.problems import MalformedRequest

Proxy = Literal["nginx", "traefik", "caddy", "envoy"]
HANDOVER = "onsale_handover"
URI_MAX_CHARS = 4096
_HOST = re.compile(r"(?:[A-Za-z0-9.-]{1,253}|\[[0-9A-Fa-f:.]{2,45}\])(?::[0-9]{1,5})?")
_URI = re.compile(r"/[!-~]*")
_METHOD = re.compile(r"[A-Z]{3,16}")
_GATE_ID = re.compile(r"[A-Za-z0-9_-]{22}")
_FROM: dict[Proxy, tuple[str, str]] = {
    "nginx": ("x-original-method", "x-original-uri"),
    "traefik": ("x-forwarded-method", "x-forwarded-uri"),
    "caddy": ("x-forwarded-method", "x-forwarded-uri"),
}


def gate_cookie(event_id: str, *, secure: bool = False) -> str:
    """The cookie by which a protected site's gate knows a browser again."""
    return cookie_name(f"onsale_gate_{event_id}", secure=secure)


@dataclass(frozen=True, slots=True)
class OriginalRequest:
    """A request to the protected site."""

    event_id: str
    method: str
    site: str
    uri: str
    headers: Headers
    cookies: dict[str, str]

    @property
    def secure(self) -> bool:
        """Whether the site is asked over HTTPS, where cookies are its own alone."""
        return self.site.startswith("https:")

    @property
    def path(self) -> str:
        return self.uri.partition("?")[0]

    @property
    def handover(self) -> str | None:
        """The one-time code in the address, if there is one."""
        found = (part for part in self.uri.partition("?")[2].split("&") if part.startswith(f"{HANDOVER}="))
        return next(found, "").partition("=")[2][:64] or None

    def url(self, *, code: str | None = None) -> str:
        """The address asked for, without a code or with this one."""
        return with_code(self.site + self.uri, code)

    @property
    def is_page(self) -> bool:
        """Whether a person navigates here: browsers say so; of an old one, wanting HTML and no script's mark is it."""
        mode = self.headers.get("sec-fetch-mode")
        if mode is not None:
            return mode == "navigate"
        return "x-requested-with" not in self.headers and "text/html" in self.headers.get("accept", "")

    @property
    def gate_id(self) -> str | None:
        found = self.cookies.get(gate_cookie(self.event_id, secure=self.secure), "")
        return found if _GATE_ID.fullmatch(found) else None

    @property
    def passes(self) -> list[str]:
        """Passes that the request shows. `Authorization` may be the site's own business, so the cookie comes first."""
        scheme, _, bearer = self.headers.get("authorization", "").partition(" ")
        kept = self.cookies.get(pass_cookie(self.event_id, secure=self.secure), "")
        shown = [kept, bearer if scheme.lower() == "bearer" else ""]
        return [text for text in shown if 0 < len(text) <= TOKEN_MAX_CHARS]


def asked(request: Request, proxy: Proxy, event_id: str, tail: str) -> OriginalRequest:
    """What this check is about. Raises `MalformedRequest` for an address no browser would send."""
    if proxy == "envoy":
        query = request.url.query if tail else ""
        method, uri = request.method, (tail or "/") + (f"?{query}" if query else "")
    else:
        names = _FROM[proxy]
        method, uri = request.headers.get(names[0], request.method), request.headers.get(names[1], "/")
    told = None if proxy == "envoy" else request.headers.get("x-forwarded-host")  # Envoy asks with the site's own Host
    host = told or request.headers.get("host", "")
    scheme = "https" if request.headers.get("x-forwarded-proto", "").lower() == "https" else "http"
    fit = _HOST.fullmatch(host) and _METHOD.fullmatch(method) and _URI.fullmatch(uri) and len(uri) <= URI_MAX_CHARS
    if not fit:
        raise MalformedRequest("The original request's method, host or address could not be read.")
    return OriginalRequest(event_id, method, f"{scheme}://{host.lower()}", uri, request.headers, request.cookies)


def with_code(url: str, code: str | None) -> str:
    """The address without its code, or with this one; the rest of it stays as it was written."""
    path, _, query = url.partition("?")
    parts = [part for part in query.split("&") if part and not part.startswith(f"{HANDOVER}=")]
    parts += [f"{HANDOVER}={code}"] if code else []
    return f"{path}?{'&'.join(parts)}" if parts else path


RETURN_MAX_CHARS = 2048
_PLAIN = re.compile(r"/[A-Za-z0-9_.~/@:,+=-]*")
_ADDRESS = re.compile(r"(https?://[a-z0-9.-]{1,253}(?::[0-9]{1,5})?)(?:[/?][!-~]*)?")


def needs_no_pass(asked: OriginalRequest, rules: GateRules) -> bool:
    """Health checks, assets and what else the room lets through, and a browser's question before a call from another of
    the seller's own sites. Anybody can claim to be that question.

    A path that is not written plainly (escapes, dots that climb, doubled slashes) never matches: the site may read it
    as another one.
    """
    if asked.method == "OPTIONS":
        ours = {*rules.return_to, rules.waiting_room} - {None}
        return "access-control-request-method" in asked.headers and asked.headers.get("origin") in ours
    if asked.method not in ("GET", "HEAD") or not rules.let_through:
        return False
    path = asked.path
    plain = _PLAIN.fullmatch(path) and "//" not in path and "/." not in path and ".." not in path
    return bool(plain) and any(matches(pattern, path) for pattern in rules.let_through)


def matches(pattern: str, path: str) -> bool:
    """Whether the path is of this pattern, in which `*` stands for any characters; each part is looked for once."""
    first, *rest = pattern.split("*")
    if not rest:
        return path == first
    if not path.startswith(first) or not path.endswith(rest[-1]):
        return False
    at, end = len(first), len(path) - len(rest[-1])
    for part in rest[:-1]:
        found = path.find(part, at, end)
        if found < 0:
            return False
        at = found + len(part)
    return at <= end


def site_of(address: str, rules: GateRules) -> str | None:
    """The allowed site that this address lies on, or nothing."""
    fits = _ADDRESS.fullmatch(address) if len(address) <= RETURN_MAX_CHARS and "\\" not in address else None
    return fits[1] if fits and fits[1] in rules.return_to else None
