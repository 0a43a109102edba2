"""The original request behind a forward-auth check, and the room's rules for it: exempt paths, allowed return sites.

nginx sends the headers that its snippet sets, Traefik and Caddy send `X-Forwarded-*`, Envoy uses the request's own
method and path. A page is distinguished from an API call by the browser's own headers. No I/O; linear in the input.
"""

import re
from dataclasses import dataclass
from typing import Literal

from fastapi import Request
from starlette.datastructures import Headers

from features.forward_auth.rules import ForwardAuthRules
from shared.errors.problems import MalformedRequest
from shared.security.tokens import TOKEN_MAX_CHARS, cookie_name, pass_cookie

Proxy = Literal["nginx", "traefik", "caddy", "envoy"]
CODE_PARAMETER = "onsale_handover"
URI_MAX_CHARS = 4096
_HOST = re.compile(r"(?:[A-Za-z0-9.-]{1,253}|\[[0-9A-Fa-f:.]{2,45}\])(?::[0-9]{1,5})?")
_URI = re.compile(r"/[!-~]*")
_METHOD = re.compile(r"[A-Z]{3,16}")
_GATE_ID = re.compile(r"[A-Za-z0-9_-]{22}")


def gate_cookie(event_id: str, *, secure: bool = False) -> str:
    """The cookie with which a protected site identifies a browser."""
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
        """Whether the site is requested over HTTPS, where no other site can set its cookies."""
        return self.site.startswith("https:")

    @property
    def code(self) -> str | None:
        """The one-time code in the address, if there is one."""
        codes = (part for part in self.uri.partition("?")[2].split("&") if part.startswith(f"{CODE_PARAMETER}="))
        return next(codes, "").partition("=")[2][:64] or None

    def url(self, *, code: str | None = None) -> str:
        """The requested address, without a code or with this one."""
        return with_code(self.site + self.uri, code)

    @property
    def is_page(self) -> bool:
        """Whether a browser navigates: by `Sec-Fetch-Mode`; without it by `Accept`, unless a script made the call."""
        mode = self.headers.get("sec-fetch-mode")
        if mode is not None:
            return mode == "navigate"
        return "x-requested-with" not in self.headers and "text/html" in self.headers.get("accept", "")

    @property
    def gate_id(self) -> str | None:
        """The id of the browser that the site's cookie carries."""
        gate_id = self.cookies.get(gate_cookie(self.event_id, secure=self.secure), "")
        return gate_id if _GATE_ID.fullmatch(gate_id) else None

    @property
    def passes(self) -> list[str]:
        """The request's passes. The cookie comes first because `Authorization` may hold the site's own token."""
        scheme, _, bearer = self.headers.get("authorization", "").partition(" ")
        from_cookie = self.cookies.get(pass_cookie(self.event_id, secure=self.secure), "")
        candidates = [from_cookie, bearer if scheme.lower() == "bearer" else ""]
        return [text for text in candidates if 0 < len(text) <= TOKEN_MAX_CHARS]


def read_request(request: Request, proxy: Proxy, event_id: str, tail: str) -> OriginalRequest:
    """The original request of this check. Raises `MalformedRequest` for an address that no browser would send."""
    headers, host = request.headers, request.headers.get("host", "")
    if proxy == "envoy":  # it keeps the site's own Host
        query = request.url.query if tail else ""
        method, uri = request.method, (tail or "/") + (f"?{query}" if query else "")
    else:
        prefix = "x-original" if proxy == "nginx" else "x-forwarded"
        method, uri = headers.get(f"{prefix}-method", request.method), headers.get(f"{prefix}-uri", "/")
        host = headers.get("x-forwarded-host") or host
    scheme = "https" if headers.get("x-forwarded-proto", "").lower() == "https" else "http"
    is_valid = _HOST.fullmatch(host) and _METHOD.fullmatch(method) and _URI.fullmatch(uri) and len(uri) <= URI_MAX_CHARS
    if not is_valid:
        raise MalformedRequest(
            "The original request's method, host or address could not be read. Check the proxy's configuration."
        )
    return OriginalRequest(
        event_id=event_id,
        method=method,
        site=f"{scheme}://{host.lower()}",
        uri=uri,
        headers=headers,
        cookies=request.cookies,
    )


def with_code(url: str, code: str | None) -> str:
    """The address without its code, or with this one; the rest stays byte for byte."""
    path, _, query = url.partition("?")
    parts = [part for part in query.split("&") if part and not part.startswith(f"{CODE_PARAMETER}=")]
    parts += [f"{CODE_PARAMETER}={code}"] if code else []
    return f"{path}?{'&'.join(parts)}" if parts else path


RETURN_MAX_CHARS = 2048
_PLAIN_PATH = re.compile(r"/[A-Za-z0-9_.~/@:,+=-]*")
_ADDRESS = re.compile(r"(https?://[a-z0-9.-]{1,253}(?::[0-9]{1,5})?)(?:[/?][!-~]*)?")


def is_exempt(request: OriginalRequest, rules: ForwardAuthRules) -> bool:
    """Whether the request needs no pass: a path of `let_through`, such as health checks and assets, or a CORS preflight
    from one of the seller's own sites (which anybody can imitate).

    A path with escapes, parent segments or doubled slashes never matches: the site may read it as another one.
    """
    if request.method == "OPTIONS":
        own_sites = {*rules.return_to, rules.waiting_room} - {None}
        return "access-control-request-method" in request.headers and request.headers.get("origin") in own_sites
    if request.method not in ("GET", "HEAD") or not rules.let_through:
        return False
    path = request.uri.partition("?")[0]
    plain = _PLAIN_PATH.fullmatch(path) and "//" not in path and "/." not in path and ".." not in path
    return bool(plain) and any(matches(pattern, path) for pattern in rules.let_through)


def matches(pattern: str, path: str) -> bool:
    """Whether the path matches this pattern, in which `*` stands for any characters; linear in the path."""
    first, *rest = pattern.split("*")
    if not rest:
        return path == first
    if not path.startswith(first) or not path.endswith(rest[-1]):
        return False
    at, end = len(first), len(path) - len(rest[-1])
    for part in rest[:-1]:
        match_at = path.find(part, at, end)
        if match_at < 0:
            return False
        at = match_at + len(part)
    return at <= end


def allowed_site(address: str, rules: ForwardAuthRules) -> str | None:
    """The site of this address if the rules allow returning to it."""
    match = _ADDRESS.fullmatch(address) if len(address) <= RETURN_MAX_CHARS and "\\" not in address else None
    return match[1] if match and match[1] in rules.return_to else None
