"""One request: what came, whose it is, in which language, and what a handler says about it; the parameters of paths
and queries with their limits. A page, an order, a mail and a problem have one rule for the language.
"""

import hashlib
import re
from collections.abc import Callable, Mapping
from functools import cache
from operator import itemgetter
from types import MappingProxyType
from typing import Annotated, Any, TypeVar, cast, get_args, get_origin
from urllib.parse import parse_qs

from fastapi import FastAPI, Header, Path, Query
from pydantic import BaseModel, ValidationError
from starlette.datastructures import QueryParams
from starlette.requests import ClientDisconnect
from starlette.types import Message, Receive, Scope

from shared.contracts.fields import EVENT_ID_PATTERN, SECTION_ID_PATTERN, PlainText, invalid_request
from shared.errors.problems import (
    BodyTooLarge,
    IdempotencyKeyMalformed,
    IdempotencyKeyMissing,
)
from shared.routes import REFERENCE
from shared.security.tokens import HeaderFields, cookie, header_fields
from shared.words.words import DEFAULT_LANGUAGE, LANGUAGES

REQUEST_KEY = "onsale.request"  # under which the framework's scope has the request
LANGUAGE_COOKIE = "onsale_lang"
VARY = "accept-language, cookie"
RANGES_MAX = 16  # of an Accept-Language
Field = tuple[bytes, bytes]  # of a header
_language_range = re.compile(
    r"\s*([a-z]+)(?:-[a-z0-9-]*)?\s*(?:;\s*(?:q=(\d+\.?\d*|\.\d+)\s*)?)?", re.ASCII | re.IGNORECASE
)
FORM = b"application/x-www-form-urlencoded"
Model = TypeVar("Model", bound=BaseModel)
Opened = TypeVar("Opened")


class Request:
    """One request. `path` has the path's parameters, `route` its template. A handler may set `facts`, which the log of
    a sale's steps shows, and `added`, header fields of any answer, a problem included.
    """

    id, route = "", "none"
    path: Mapping[str, str] = MappingProxyType({})
    form: Mapping[str, str] | None = None  # the fields of the form that it stands for
    quiet = picked = traced = False  # not logged; its steps are; it is traced
    facts: Mapping[str, Any] = MappingProxyType({})
    added: tuple[Field, ...] = ()
    started_s, status, number = 0.0, 0, 0  # of the listener: when it came, how it ended, its number at the load

    def __init__(self, app: FastAPI, scope: Scope, receive: Receive, *, body_max_bytes: int) -> None:
        self.app, self.scope, self.receive, self.body_max_bytes = app, scope, receive, body_max_bytes
        self.fields: HeaderFields = header_fields(scope)  # by name; of a repeated one, the first

    @property
    def state(self) -> Any:
        """The service's state."""
        return self.app.state.deps

    def part(self, kind: type[Opened]) -> Opened:
        """The object of this class that a feature's part opened."""
        return cast("Opened", self.app.state.parts[kind])

    @property
    def method(self) -> str:
        return str(self.scope["method"])

    @property
    def is_form(self) -> bool:
        """Whether a page without scripts posts a form."""
        is_post = self.scope["method"] == "POST"
        return is_post and self.fields.get(b"content-type", b"").partition(b";")[0].strip().lower() == FORM

    @property
    def has_body(self) -> bool:
        """Whether a body follows the head."""
        return self.fields.get(b"content-length", b"0") != b"0" or b"transfer-encoding" in self.fields

    async def body(self, limit: int | None = None, *, what: str = "The body") -> bytes:
        """The whole body. Raises `BodyTooLarge`, `ClientDisconnect`."""
        receive = self.bounded(limit, what=what)
        body, more = b"", True
        while more:
            message = await receive()
            if message["type"] == "http.disconnect":
                raise ClientDisconnect
            body += message.get("body", b"")
            more = message.get("more_body", False)
        return body

    def bounded(self, limit: int | None = None, *, what: str = "The body") -> Receive:
        """`receive` that raises `BodyTooLarge` past the limit, told by the head or found while reading."""
        most, taken = limit or self.body_max_bytes, 0
        declared = self.fields.get(b"content-length", b"0")

        async def counted() -> Message:
            nonlocal taken
            message: Message = {}
            if declared.isdigit() and int(declared) <= most:
                message = await self.receive()
                taken += len(message.get("body", b""))
            if not message or taken > most:
                raise BodyTooLarge(f"{what} may have at most {most} bytes.")
            return message

        return counted

    async def json(self, model: type[Model], *, empty: bytes = b"") -> Model:
        """The body as `model`; `empty` stands for an empty one. Raises `InvalidRequest`, `MalformedRequest`."""
        return parse_model(await self.body() or empty, model)

    def header(self, name: bytes) -> str | None:
        """The header field of this name, in small letters."""
        value = self.fields.get(name)
        return None if value is None else value.decode("latin-1")

    @property
    def parameters(self) -> QueryParams:
        """The parameters of the query; of a repeated one, the last."""
        return QueryParams(self.scope["query_string"])

    def query(self, model: type[Model]) -> Model:
        """The parameters of the query. Raises `InvalidRequest`."""
        sent = parse_qs(self.scope["query_string"].decode("latin-1"), keep_blank_values=True)
        lists = _lists_of(model)
        values = {name: several if name in lists else several[-1] for name, several in sent.items()}
        return _validated("query", model.model_validate, values)


def request_of(scope: Scope) -> Request:
    """The request that an endpoint of the framework answers."""
    return cast("Request", scope[REQUEST_KEY])


@cache
def _lists_of(model: type[BaseModel]) -> frozenset[str]:
    """The parameters that may come several times."""
    annotated = ((name, field.annotation) for name, field in model.model_fields.items())
    return frozenset(name for name, kind in annotated if list in [get_origin(each) for each in (kind, *get_args(kind))])


def parse_model(body: bytes, model: type[Model]) -> Model:
    """A JSON body as `model`. Raises `InvalidRequest`, `MalformedRequest`."""
    return _validated("body", model.model_validate_json, body)


def _validated(part: str, validate: Callable[[Any], Model], sent: Any) -> Model:
    try:
        return validate(sent)
    except ValidationError as refused:
        errors = refused.errors(include_url=False, include_input=False)
        raise invalid_request([{**error, "loc": (part, *error["loc"])} for error in errors]) from None


# -- language ----------------------------------------------------------------------------------------------------------


def language_of(scope: Scope) -> str:
    """One of `LANGUAGES`: that of `?lang=`, else of the cookie, else of the browser's settings."""
    fields = header_fields(scope)
    chosen = named_language(scope) or cookie(fields, LANGUAGE_COOKIE)
    return chosen if chosen in LANGUAGES else accepted_language(fields.get(b"accept-language", b"").decode("latin-1"))


def named_language(scope: Scope) -> str | None:
    """The language that the address names."""
    named = QueryParams(scope["query_string"]).get("lang")
    return named if named in LANGUAGES else None


def accepted_language(header: str) -> str:
    """The best of our languages for an `Accept-Language`; English if none of them is accepted."""
    ranges = filter(None, map(_language_range.fullmatch, header.split(",")[:RANGES_MAX]))
    rated = [(float(found[2] or 1), found[1].lower()) for found in ranges]
    ours = [(weight, language) for weight, language in rated if weight > 0 and language in LANGUAGES]
    return max(ours, key=itemgetter(0), default=(1, DEFAULT_LANGUAGE))[1]  # of equal ones the first


# -- parameters --------------------------------------------------------------------------------------------------------

REFERENCE_PATTERN = f"^{REFERENCE}$"
EventIdPath = Annotated[str, Path(pattern=EVENT_ID_PATTERN)]
SectionIdPath = Annotated[str, Path(pattern=SECTION_ID_PATTERN)]
ReferencePath = Annotated[str, Path(pattern=REFERENCE_PATTERN)]
ReferenceQuery = Annotated[str | None, Query(pattern=REFERENCE_PATTERN)]
DryRun = Annotated[bool, Query(description="Check everything and change nothing.")]
ReasonQuery = Annotated[PlainText | None, Query(alias="reason", description="Kept in the audit log.")]
IdempotencyKey = Annotated[str | None, Header(alias="Idempotency-Key")]
KEY_MAX_CHARS = 255
_KEY = re.compile(rf"[\x21-\x7e]{{1,{KEY_MAX_CHARS}}}")


def idempotency_key(header: str | None) -> str:
    """The checked key: requests with the same key are one request. Raises `IdempotencyKeyMissing` and
    `IdempotencyKeyMalformed`.
    """
    if not header:
        raise IdempotencyKeyMissing
    if not _KEY.fullmatch(header):
        raise IdempotencyKeyMalformed(f"The Idempotency-Key must be 1 to {KEY_MAX_CHARS} visible ASCII characters.")
    return header


def key_hash(key: str) -> bytes:
    """Idempotency keys are secrets: only their hash is stored."""
    return hashlib.sha256(key.encode()).digest()
