"""What a service answers: bytes, bytes that are made when a batch ends, one document for many readers, or a problem.

Every exception becomes a problem document (RFC 9457), expected or not, of a fast route as of the framework.
"""

import asyncio
import gzip
import hashlib
from collections.abc import Callable, Generator, Mapping
from functools import cached_property
from operator import is_not
from typing import Any, NamedTuple

import orjson
from cachetools import LRUCache
from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.routing import Match
from starlette.types import Receive, Scope, Send

from shared.contracts.fields import invalid_request
from shared.errors import problems
from shared.errors.database import is_unstorable
from shared.errors.outages import in_one_line, is_outage, problem_of
from shared.errors.problems import Problem
from shared.features import ProblemPage
from shared.runtime.logging import get_logger
from shared.security.tokens import HeaderFields
from shared.web.request import Field, language_of

log = get_logger("onsale.http")
METHODS = ("GET", "POST", "PUT", "PATCH", "DELETE")
KNOWN = {404: problems.NotFound, 405: problems.MethodNotAllowed, 400: problems.MalformedRequest}
JSON: Field = (b"content-type", b"application/json")
NO_STORE: Field = (b"cache-control", b"no-store")
COMPRESS_MIN_BYTES, COMPRESS_LEVEL, DOCUMENT_LEVEL = 1_000, 4, 6
DOCUMENTS_MAX = 2_000
WITHOUT_BODY = frozenset({204, 304})
VARY: Field = (b"vary", b"Accept-Encoding")
GZIP: Field = (b"content-encoding", b"gzip")


class Answer(NamedTuple):
    """A complete answer: status, body and header fields. As an ASGI app it sends itself."""

    status: int
    body: bytes = b""
    fields: tuple[Field, ...] = ()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        length = () if self.status in WITHOUT_BODY else ((b"content-length", b"%d" % len(self.body)),)
        await send({"type": "http.response.start", "status": self.status, "headers": [*length, *self.fields]})
        await send({"type": "http.response.body", "body": self.body})


class Later(NamedTuple):
    """An answer that is made when a batch ends, of its future: a server needs no task to wait for it."""

    future: "asyncio.Future[Any]"
    make: "Callable[[asyncio.Future[Any]], Answer]"

    def __await__(self) -> Generator[Any, None, Answer]:
        yield from asyncio.wait((self.future,)).__await__()
        return self.make(self.future)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await (await self)(scope, receive, send)


def json_answer(body: Any, *fields: Field, status: int = 200) -> Answer:
    """The answer with this JSON, kept by no cache unless a field says so."""
    return Answer(status, orjson.dumps(body), (JSON, *(fields or (NO_STORE,))))


def fields_of(headers: Mapping[str, str]) -> tuple[Field, ...]:
    """Header fields as an answer has them."""
    return tuple((name.encode("latin-1"), value.encode("latin-1")) for name, value in headers.items())


def encodings(fields: HeaderFields) -> set[bytes]:
    """The content encodings that the client takes."""
    return {part.partition(b";")[0].strip() for part in fields.get(b"accept-encoding", b"").split(b",")}


def compressed(fields: HeaderFields, answer: Answer, *, level: int = COMPRESS_LEVEL) -> Answer:
    """A long answer to one reader, compressed if they take that."""
    if len(answer.body) < COMPRESS_MIN_BYTES:
        return answer
    if b"gzip" not in encodings(fields):
        return answer._replace(fields=(*answer.fields, VARY))
    body = gzip.compress(answer.body, level, mtime=0)
    return answer._replace(body=body, fields=(*answer.fields, GZIP, VARY))


class Documents:
    """Documents by their names, each made again when what it shows is another object."""

    def __init__(self, most: int = DOCUMENTS_MAX) -> None:
        self._made: LRUCache[str, tuple[tuple[object, ...], Document]] = LRUCache(most)

    def of(self, name: str, *shown: object, make: "Callable[[], Document]") -> "Document":
        """The document with this name that shows these objects, which never change."""
        known = self._made.get(name)
        if known is None or any(map(is_not, known[0], shown)):
            known = self._made[name] = shown, make()
        return known[1]


class Document:
    """What many read: encoded, compressed and named by an ETag once, however many read it."""

    def __init__(self, body: bytes, media_type: str, headers: Mapping[str, str]) -> None:
        self.body = body
        self._etag = b'"%b"' % hashlib.blake2b(body, digest_size=12).hexdigest().encode()
        self._is_long = len(body) >= COMPRESS_MIN_BYTES
        vary = ", ".join(filter(None, ("accept-encoding" if self._is_long else "", headers.get("vary", ""))))
        sent = {**headers, **({"vary": vary} if vary else {}), "etag": self._etag.decode()}
        self._unchanged = Answer(304, b"", fields_of(sent))
        self._plain = Answer(200, body, fields_of({"content-type": media_type, **sent}))

    @cached_property
    def _gzipped(self) -> Answer:
        body = gzip.compress(self.body, DOCUMENT_LEVEL, mtime=0)
        return Answer(200, body, (*self._plain.fields, GZIP))

    def answer(self, fields: HeaderFields) -> Answer:
        """The document for a request with these header fields, or that it has not changed."""
        if self._etag in fields.get(b"if-none-match", b""):
            return self._unchanged
        return self._gzipped if self._is_long and b"gzip" in encodings(fields) else self._plain


# -- problems ----------------------------------------------------------------------------------------------------------


def problem_of_exception(raised: Exception, path: str, *, service: str, route: str) -> Problem:
    """What is answered to an exception. An outage is logged, and a bug, whose text is for the log alone."""
    if isinstance(raised, Problem):
        return raised
    if isinstance(raised, RequestValidationError):
        return invalid_request(raised.errors())
    if isinstance(raised, HTTPException):
        if isinstance(raised.__cause__, Problem):  # raised while the framework was reading the body
            return raised.__cause__
        return KNOWN.get(raised.status_code, problems.InternalError)(status=raised.status_code)
    if is_unstorable(raised):
        return problems.InvalidRequest("A text contains a null character, or a number is too large.")
    if is_outage(raised):
        log.error("dependency.unavailable", error=in_one_line(raised), path=path)
        return problem_of(raised)
    log.error("request.failed", service=service, route=route, exc_info=raised)
    return problems.InternalError()


def document(problem: Problem, request_id: str | None = None) -> Answer:
    """The problem for programs."""
    headers = {"content-type": problems.MEDIA_TYPE, **problem.headers()}
    return Answer(problem.code, problem.body(request_id), fields_of(headers))


def problem_answer(
    scope: Scope, problem: Problem, page: ProblemPage | None, request_id: str | None = None
) -> Answer:  # fmt: skip
    """The answer to a problem: a problem document for programs and, if there is one, a page for people."""
    accepts = (value for name, value in scope["headers"] if name == b"accept")
    if page is None or not page.wanted(scope["method"], accepts):
        return document(problem, request_id)
    language = language_of(scope)
    headers = {"content-type": page.MEDIA_TYPE, **page.headers(problem), "content-language": language}
    return Answer(problem.code, page.page(problem, language).encode(), fields_of(headers))


def allowed_methods(app: FastAPI, scope: Scope) -> Field:
    """The header field with the methods that this path supports."""
    tried = [(method, {**scope, "path_params": {}, "method": method}) for method in METHODS]
    taken = [method for method, one in tried if any(row.matches(one)[0] is Match.FULL for row in app.routes)]
    return b"allow", ", ".join(["GET", "HEAD", *taken[1:]] if taken[:1] == ["GET"] else taken).encode()
