"""Forms of pages without scripts: each becomes a request of the same API, and its answer a redirect to a page.

A part lists the forms of its service; a form's endpoint, its limits, cookies and problems are those of the API, so
there is one set of business rules. A form is accepted from a page of this origin only, whatever its credentials. The
answer is 303 to a page, with `problem=<slug>` if the API refused; the page has the words. So a reload repeats the page
and never the request.
"""

import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any
from urllib.parse import parse_qsl, urlencode

import orjson
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from shared.errors.problems import ForeignOrigin, MalformedRequest, Problem
from shared.security.tokens import HeaderFields, cookie, cookie_name, require_own_origin, set_cookie
from shared.web.answers import NO_STORE, Answer, document
from shared.web.request import Request

FORM_BYTES_MAX, TYPED_CHARS_MAX = 16_384, 3_000
FIELDS_MAX, FIELD_CHARS_MAX = 256, 2_000
PLAIN_COOKIE, PLAIN_COOKIE_S = "onsale_plain", 86_400
TYPED_COOKIE, TYPED_COOKIE_S = "onsale_typed", 600
REPLACED = frozenset({b"content-type", b"content-length", b"accept", b"accept-encoding", b"idempotency-key"})
_idempotency_key = re.compile(r"[A-Za-z0-9._:-]{1,200}")


class FormFields:
    """The fields of a form from a page of `origin`, without surrounding blanks; an empty field counts as left out."""

    def __init__(self, body: bytes, origin: str = "") -> None:
        self.origin = origin
        try:
            pairs = parse_qsl(body.decode("ascii"), max_num_fields=FIELDS_MAX)
        except ValueError as broken:
            raise MalformedRequest("The form could not be read.") from broken
        self._fields = [(name, text) for name, value in pairs if (text := value.strip()[:FIELD_CHARS_MAX])]
        self.first = dict(reversed(self._fields))

    def one(self, name: str) -> str | None:
        """The field's first value."""
        return self.first.get(name)

    def all(self, name: str) -> list[str]:
        return [text for other, text in self._fields if other == name]

    def number(self, name: str) -> int | str | None:
        """The field as a number; other text stays as it is, so that the endpoint refuses it."""
        text = self.one(name)
        return int(text) if text is not None and re.fullmatch(r"[0-9]{1,9}", text) else text

    def numbers_below(self, prefix: str) -> dict[str, int | str | None]:
        """The numbers of the fields whose names begin with `prefix.`, by the rest of the name."""
        start = f"{prefix}."
        return {name.removeprefix(start): self.number(name) for name, _ in self._fields if name.startswith(start)}

    def below(self, prefix: str) -> list[tuple[str, str]]:
        """All fields whose names begin with `prefix.`, by the rest of the name."""
        start = f"{prefix}."
        return [(name.removeprefix(start), text) for name, text in self._fields if name.startswith(start)]

    def among(self, names: Sequence[str]) -> list[tuple[str, str]]:
        """The fields with these names; one that ends with a dot stands for all names that begin with it."""
        starts = tuple(name for name in names if name.endswith("."))
        return [(name, text) for name, text in self._fields if name in names or name.startswith(starts)]

    def given(self, **values: Any) -> dict[str, Any]:
        """These values without those that were left out."""
        return {name: value for name, value in values.items() if value not in (None, [], {})}


@dataclass(frozen=True, slots=True)
class SentForm:
    """A form with the API's answer to it; `path` are the parts of the form's path."""

    path: Mapping[str, str]
    fields: FormFields
    status: int
    answer: Mapping[str, Any]

    @property
    def slug(self) -> str | None:
        """The problem's slug; None if the API accepted."""
        return str(self.answer.get("type", "")).rpartition("/")[2] or "internal-error" if self.status >= 400 else None


@dataclass(frozen=True, slots=True)
class Form:
    """One form: the path that it is posted to (a regular expression with names), the JSON body of its fields, the page
    to show next, and its Idempotency-Key. With `method` the field `_method` may ask for that method instead of POST.
    The fields `typed` stay in a cookie of this browser while the API refuses, so that nobody has to type them again;
    a name that ends with a dot stands for all that begin with it.
    """

    path: str
    body: Callable[[FormFields], dict[str, Any]]
    page: Callable[[SentForm], str]
    method: str = "POST"
    key: Callable[[FormFields], str | None] = lambda fields: fields.one("key")
    cookies: Callable[[SentForm], Mapping[str, str]] = lambda sent: {}
    typed: tuple[str, ...] = ()


class Forms:
    """The forms of one service, in front of its API."""

    def __init__(self, *forms: Form) -> None:
        self.paths = [form.path for form in forms]
        self._forms = [(re.compile(form.path), form) for form in forms]

    def answering(self, request: Request, api: Callable[[Request], Awaitable[Answer]]) -> ASGIApp | None:
        """Answers the form by what `api` answers to the request that it stands for; None if no form has this path."""
        for pattern, form in self._forms:
            if match := pattern.fullmatch(request.scope["path"]):
                return partial(self._send, partial(self._answer, request, form, match.groupdict(), api))
        return None

    async def _send(self, make: Callable[[], Awaitable[Answer]], scope: Scope, receive: Receive, send: Send) -> None:
        with suppress(ClientDisconnect):
            await (await make())(scope, receive, send)

    async def _answer(
        self, request: Request, form: Form, path: Mapping[str, str], api: Callable[[Request], Awaitable[Answer]]
    ) -> Answer:
        secure: bool = request.app.state.settings.secure_cookies
        try:
            origin = _require_own_page(request.fields, secure=secure)
            fields = FormFields(await request.body(FORM_BYTES_MAX, what="A form"), origin)
        except Problem as problem:
            return document(problem)
        answered = await api(_inner(request, form, fields))
        sent = SentForm(path, fields, answered.status, orjson.loads(answered.body or b"{}"))
        page = form.page(sent)
        if sent.slug is not None and "problem=" not in page:
            page += f"{'&' if '?' in page else '?'}problem={sent.slug}"
        kept = [(name, value) for name, value in answered.fields if name == b"set-cookie"]
        for name, value in {PLAIN_COOKIE: "1", **form.cookies(sent)}.items():
            text = set_cookie(name, value, max_age_s=PLAIN_COOKIE_S, secure=secure, readable=True)
            kept.append((b"set-cookie", text.encode()))  # the page's script reads them
        if form.typed:
            kept.append((b"set-cookie", _typed(form, sent, secure=secure).encode()))
        return Answer(303, b"", ((b"location", page.encode()), NO_STORE, *kept))


def _typed(form: Form, sent: SentForm, *, secure: bool) -> str:
    """`set-cookie` that keeps what was typed in a refused form, or forgets it."""
    kept = urlencode(sent.fields.among(form.typed))
    refused = sent.slug is not None and len(kept) <= TYPED_CHARS_MAX
    name = cookie_name(TYPED_COOKIE, secure=secure)
    return set_cookie(name, kept if refused else "", max_age_s=TYPED_COOKIE_S if refused else 0, secure=secure)


def _inner(request: Request, form: Form, fields: FormFields) -> Request:
    """The request of the API that the form stands for."""
    body = orjson.dumps(form.body(fields))
    headers = [pair for pair in request.scope["headers"] if pair[0] not in REPLACED]
    headers += [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))]
    key = form.key(fields)
    if key is not None and _idempotency_key.fullmatch(key):
        headers.append((b"idempotency-key", key.encode()))
    method = form.method if fields.one("_method") == form.method else "POST"

    async def receive() -> Message:
        return {"type": "http.request", "body": body}

    scope = {**request.scope, "method": method, "headers": headers}
    inner = Request(request.app, scope, receive, body_max_bytes=request.body_max_bytes)
    inner.form = fields.first
    return inner


def typed_fields(fields: HeaderFields, *, secure: bool) -> dict[str, str]:
    """What was typed in the form that was refused last."""
    return typed_form(fields, secure=secure).first


def typed_form(fields: HeaderFields, *, secure: bool) -> FormFields:
    """The same as a form; nothing if it cannot be read."""
    try:
        return FormFields((cookie(fields, cookie_name(TYPED_COOKIE, secure=secure)) or "").encode())
    except MalformedRequest:
        return FormFields(b"")


def _require_own_page(fields: HeaderFields, *, secure: bool) -> str:
    """The origin of the page that sent the form. Raises `ForeignOrigin` unless it is ours."""
    require_own_origin(fields, secure=secure)
    if fields.get(b"sec-fetch-site", b"same-origin") != b"same-origin":
        raise ForeignOrigin
    return fields[b"origin"].decode("latin-1")
