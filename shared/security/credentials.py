"""Reads the credentials of a request: the Bearer token, or else cookies.

A Bearer header, if present, is the only credential considered. A write with a cookie must come from a page of the same
origin. Everything works on the ASGI scope, without objects of a framework, because every poll of a crowd comes by here.
"""

from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from typing import Literal, TypeVar

from starlette.types import Scope

from shared.errors.problems import BadCredential, ForeignOrigin, NoCredential
from shared.security.tokens import BEARER_MAX_CHARS

SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})
SCHEMES = frozenset({b"http", b"https"})
HOST_ONLY = "__Host-"
TEXTS_MAX = 16
HeaderFields = Mapping[bytes, bytes]
Result = TypeVar("Result")


def cookie_name(name: str, *, secure: bool) -> str:
    """Over HTTPS a browser accepts `__Host-` cookies from this host alone: no other host of the domain can set ours."""
    return f"{HOST_ONLY}{name}" if secure else name


def queue_cookie(event_id: str, *, secure: bool = False) -> str:
    return cookie_name(f"onsale_queue_{event_id}", secure=secure)


def pass_cookie(event_id: str, *, secure: bool = False) -> str:
    return cookie_name(f"onsale_pass_{event_id}", secure=secure)


def order_cookie(reference: str, *, secure: bool = False) -> str:
    return cookie_name(f"onsale_order_{reference}", secure=secure)


def set_cookie(
    name: str, value: str, *, max_age_s: int, secure: bool, same_site: Literal["Lax", "Strict"] = "Lax",
    readable: bool = False,
) -> str:  # fmt: skip
    """A `Set-Cookie` value: HttpOnly unless scripts may read it. Other sites cannot post with it; `Strict` is not sent
    from their links either.
    """
    text = f"{name}={value}; Path=/; Max-Age={max_age_s}; {'' if readable else 'HttpOnly; '}SameSite={same_site}"
    return text + ("; Secure" if secure else "")


def header_fields(scope: Scope) -> HeaderFields:
    """The request's header fields by name; of a repeated one, the first."""
    return dict(reversed(scope["headers"]))


def bearer(fields: HeaderFields) -> str | None:
    """The Bearer token; raises `BadCredential` for another scheme or an oversized one."""
    value = fields.get(b"authorization")
    if value is None:
        return None
    scheme, _, token = value.partition(b" ")
    if scheme.lower() != b"bearer" or not 0 < len(token) <= BEARER_MAX_CHARS:
        raise BadCredential("The Authorization header must be a Bearer token.")
    return token.decode("latin-1")


def cookies(fields: HeaderFields) -> Iterator[tuple[str, str]]:
    """The cookies that have a value, by name, in the order of the header."""
    for part in fields.get(b"cookie", b"").decode("latin-1").split(";"):
        name, _, value = part.strip().partition("=")
        if value:
            yield name, value


def cookie(fields: HeaderFields, name: str) -> str | None:
    """The value of one cookie."""
    wanted = name.encode() + b"="
    for part in fields.get(b"cookie", b"").split(b";"):
        pair = part.strip()
        if pair.startswith(wanted):
            return pair[len(wanted) :].decode("latin-1") or None
    return None


def cookie_values(fields: HeaderFields, name: str) -> list[str]:
    """The values of a cookie that may have been sent several times: of a credential the first valid one counts."""
    wanted = name.encode() + b"="
    parts = map(bytes.strip, fields.get(b"cookie", b"").split(b";"))
    texts = [part[len(wanted) :].decode("latin-1") for part in parts if part.startswith(wanted)]
    return [text for text in texts if text][:TEXTS_MAX]


def require_own_origin(fields: HeaderFields, *, secure: bool) -> None:
    """Raises `ForeignOrigin` unless `Origin` names the requested host by the requested scheme: whoever can answer plain
    HTTP in our name must not write with the cookies of HTTPS. Secure cookies come by HTTPS, others by what the balancer
    says; without a word of it by either.
    """
    scheme, _, host = fields.get(b"origin", b"").lower().partition(b"://")
    requested = b"https" if secure else fields.get(b"x-forwarded-proto", scheme).lower()
    if not host or host != fields.get(b"host", b"").lower() or scheme != requested or scheme not in SCHEMES:
        raise ForeignOrigin


def credentials(scope: Scope, *cookie_names: str) -> list[str]:
    """The Bearer token, or else the values of these cookies, also of one that was sent twice. Raises `NoCredential` if
    there is none, `ForeignOrigin`, `BadCredential`.
    """
    fields = header_fields(scope)
    token = bearer(fields)
    if token is not None:
        return [token]
    sent = list(cookies(fields))
    texts = [text for name in cookie_names for sent_name, text in sent if sent_name == name][:TEXTS_MAX]
    if not texts:
        raise NoCredential
    if scope["method"] not in SAFE_METHODS:
        require_own_origin(fields, secure=any(name.startswith(HOST_ONLY) for name in cookie_names))
    return texts


async def first_valid(texts: Sequence[str], read: Callable[[str], Awaitable[Result]]) -> Result:
    """What `read` makes of the first text that it accepts: a pass may have expired while the queue token beside it is
    still valid. Raises the last `BadCredential`.
    """
    for text in texts[:-1]:
        try:
            return await read(text)
        except BadCredential:
            continue
    return await read(texts[-1])
