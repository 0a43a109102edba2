"""Forms of pages without scripts: each becomes a request of the same API, and its answer a redirect to a page.

A service lists its forms; a form's endpoint, its limits, cookies and problems are those of the API, so there is one set
of business rules. A form is accepted from a page of this origin only, whatever its credentials. The answer is 303 to a
page, with `problem=<slug>` if the API refused; the page has the words. So a reload repeats the page and never the
request.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qsl, urlencode

import orjson
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from shared.errors.problems import ForeignOrigin, MalformedRequest, Problem
from shared.security.credentials import (
    HeaderFields,
    cookie,
    cookie_name,
    header_fields,
    require_own_origin,
    set_cookie,
)
from shared.web.exception_handlers import send_problem
from shared.web.fast_routes import NO_STORE, answer, limited_body, read_body

MEDIA_TYPE = b"application/x-www-form-urlencoded"
FORM_BYTES_MAX, FIELDS_MAX, FIELD_CHARS_MAX, TYPED_CHARS_MAX = 16_384, 256, 2_000, 3_000
FORM_KEY = "onsale.form"  # the fields, for an endpoint that treats fans without scripts in a way of its own
PLAIN_COOKIE, PLAIN_COOKIE_S = "onsale_plain", 86_400
TYPED_COOKIE, TYPED_COOKIE_S = "onsale_typed", 600
REPLACED = frozenset({b"content-type", b"content-length", b"accept", b"idempotency-key"})
_idempotency_key = re.compile(r"[A-Za-z0-9._:-]{1,200}")


class FormFields:
    """The fields of a form from a page of `origin`, without surrounding blanks; an empty field counts as left out."""

    def __init__(self, body: bytes, origin: str = "") -> None:
        self.origin = origin
        try:
            pairs = parse_qsl(body.decode("ascii"), max_num_fields=FIELDS_MAX)
        except ValueError as broken:
            raise MalformedRequest("The form could not be read.") from broken
        self._values: dict[str, list[str]] = {}
        for name, value in pairs:
            if text := value.strip()[:FIELD_CHARS_MAX]:
                self._values.setdefault(name, []).append(text)

    def one(self, name: str) -> str | None:
        """The field's first value."""
        return self._values.get(name, [None])[0]

    def all(self, name: str) -> list[str]:
        return self._values.get(name, [])

    def number(self, name: str) -> int | str | None:
        """The field as a number; other text stays as it is, so that the endpoint refuses it."""
        text = self.one(name)
        return int(text) if text is not None and re.fullmatch(r"[0-9]{1,9}", text) else text

    def below(self, prefix: str) -> dict[str, str]:
        """The fields whose names begin with `prefix.`, by the rest of the name."""
        start = f"{prefix}."
        return {name.removeprefix(start): values[0] for name, values in self._values.items() if name.startswith(start)}

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
    The fields `typed` stay in a cookie of this browser while the API refuses, so that nobody has to type them again.
    """

    path: str
    body: Callable[[FormFields], dict[str, Any]]
    page: Callable[[SentForm], str]
    method: str = "POST"
    key: Callable[[FormFields], str | None] = lambda fields: fields.one("key")
    cookies: Callable[[SentForm], Mapping[str, str]] = lambda sent: {}
    typed: tuple[str, ...] = ()


class Forms:
    """The forms of one service, in front of its app."""

    def __init__(self, app: ASGIApp, forms: tuple[Form, ...], *, secure_cookies: bool) -> None:
        self._app, self._secure = app, secure_cookies
        self._forms = [(re.compile(form.path), form) for form in forms]

    def matches(self, scope: Scope) -> bool:
        """Whether this request is one of the forms."""
        if scope["type"] != "http" or scope["method"] != "POST" or not self._forms:
            return False
        media_type = next((value for name, value in scope["headers"] if name == b"content-type"), b"")
        return media_type.partition(b";")[0].strip().lower() == MEDIA_TYPE and self._find(scope) is not None

    def _find(self, scope: Scope) -> tuple[Form, re.Match[str]] | None:
        found = ((form, pattern.fullmatch(scope["path"])) for pattern, form in self._forms)
        return next(((form, match) for form, match in found if match), None)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        found = self._find(scope)
        assert found is not None, "matches() was asked before"
        form, match = found
        try:
            origin = _require_own_page(scope, secure=self._secure)
            fields = FormFields(await read_body(limited_body(receive, FORM_BYTES_MAX, what="A form")), origin)
        except Problem as problem:
            await send_problem(problem, None, send)
            return
        kept, status, body = await self._request(scope, form, fields)
        sent = SentForm(match.groupdict(), fields, status, body)
        page = form.page(sent)
        if sent.slug is not None and "problem=" not in page:
            page += f"{'&' if '?' in page else '?'}problem={sent.slug}"
        for name, value in {PLAIN_COOKIE: "1", **form.cookies(sent)}.items():
            text = set_cookie(name, value, max_age_s=PLAIN_COOKIE_S, secure=self._secure)
            kept.append((b"set-cookie", text.replace(" HttpOnly;", "").encode()))  # the page's script reads them
        if form.typed:
            kept.append((b"set-cookie", self._typed(form, sent).encode()))
        await answer(send, 303, b"", (b"location", page.encode()), NO_STORE, *kept)

    def _typed(self, form: Form, sent: SentForm) -> str:
        """`set-cookie` that keeps what was typed in a refused form, or forgets it."""
        kept = urlencode(sent.fields.given(**{name: sent.fields.one(name) for name in form.typed}))
        refused = sent.slug is not None and len(kept) <= TYPED_CHARS_MAX
        name = cookie_name(TYPED_COOKIE, secure=self._secure)
        return set_cookie(
            name, kept if refused else "", max_age_s=TYPED_COOKIE_S if refused else 0, secure=self._secure
        )

    async def _request(
        self, scope: Scope, form: Form, fields: FormFields
    ) -> tuple[list[tuple[bytes, bytes]], int, Mapping[str, Any]]:
        """The cookies, status and JSON of the API's answer."""
        body, written = orjson.dumps(form.body(fields)), list[bytes]()
        headers = [pair for pair in scope["headers"] if pair[0] not in REPLACED]
        headers += [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))]
        key = form.key(fields)
        if key is not None and _idempotency_key.fullmatch(key):
            headers.append((b"idempotency-key", key.encode()))
        method = form.method if fields.one("_method") == form.method else "POST"
        head: Message = {"status": 500, "headers": []}

        async def receive() -> Message:
            return {"type": "http.request", "body": body}

        async def collect(message: Message) -> None:
            if message["type"] == "http.response.start":
                head.update(message)
            else:
                written.append(message.get("body", b""))

        inner = {**scope, "method": method, "headers": headers, FORM_KEY: fields}
        await self._app(inner, receive, collect)
        kept = [(name, value) for name, value in head["headers"] if name.lower() == b"set-cookie"]
        try:
            found = orjson.loads(b"".join(written) or b"{}")
        except orjson.JSONDecodeError:
            found = {}
        return kept, head["status"], found if isinstance(found, dict) else {}


def typed_fields(fields: HeaderFields, *, secure: bool) -> dict[str, str]:
    """What was typed in the form that was refused last."""
    return dict(parse_qsl(cookie(fields, cookie_name(TYPED_COOKIE, secure=secure)) or ""))


def _require_own_page(scope: Scope, *, secure: bool) -> str:
    """The origin of the page that sent the form. Raises `ForeignOrigin` unless it is ours."""
    fields = header_fields(scope)
    require_own_origin(fields, secure=secure)
    if fields.get(b"sec-fetch-site", b"same-origin") != b"same-origin":
        raise ForeignOrigin
    return fields[b"origin"].decode("latin-1")
