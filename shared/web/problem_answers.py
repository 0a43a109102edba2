"""Turns every exception into a problem document (RFC 9457), expected or not, of a fast route as of the framework."""

from collections.abc import Mapping, Sequence
from typing import Any

from fastapi import FastAPI
from fastapi import Request as FrameworkRequest
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.routing import Match
from starlette.types import Scope

from shared.contracts.fields import refusal
from shared.errors import problems
from shared.errors.database import is_unstorable
from shared.errors.outages import CERTAIN, POSSIBLE, in_one_line, is_outage, problem_of
from shared.errors.problems import Problem
from shared.runtime.logging import get_logger
from shared.web.answers import Answer, fields_of
from shared.web.pages import problem_page
from shared.web.parameters import language_of

log = get_logger("onsale.http")
KNOWN = {404: problems.NotFound, 405: problems.MethodNotAllowed, 400: problems.MalformedRequest}
REQUEST_KEY = "onsale.request"  # under which the framework's scope has the request


def problem_of_exception(raised: Exception, path: str) -> Problem | None:
    """What is answered to an exception; None if it is a bug. An outage is logged."""
    if isinstance(raised, Problem):
        return raised
    if is_unstorable(raised):
        return problems.InvalidRequest("A text contains a null character, or a number is too large.")
    if not is_outage(raised):
        return None
    log.error("dependency.unavailable", error=in_one_line(raised), path=path)
    return problem_of(raised)


def invalid_request(errors: Sequence[Mapping[str, Any]]) -> Problem:
    """Unreadable JSON is 400; an invalid value is 422 and names its field, without repeating the value."""
    if any(error["type"] == "json_invalid" for error in errors):
        return problems.MalformedRequest("The body is not JSON.")
    fields = [
        {"field": ".".join(str(part) for part in error["loc"][1:]) or str(error["loc"][0]), "message": refusal(error)}
        for error in errors[:20]
    ]
    return problems.InvalidRequest(" ".join(f"{f['field']}: {f['message']}" for f in fields[:3]), errors=fields)


def document(problem: Problem, request_id: str | None = None) -> Answer:
    """The problem for programs."""
    headers = {"content-type": problems.MEDIA_TYPE, **problem.headers()}
    return Answer(problem.code, problem.body(request_id), fields_of(headers))


def problem_answer(scope: Scope, problem: Problem, request_id: str | None = None) -> Answer:
    """The answer to a problem: an HTML page for people, a problem document for programs."""
    if not problem_page.wanted(scope["method"], (value for name, value in scope["headers"] if name == b"accept")):
        return document(problem, request_id)
    language = language_of(scope)
    headers = {"content-type": problem_page.MEDIA_TYPE, **problem_page.headers(problem), "content-language": language}
    return Answer(problem.code, problem_page.page(problem, language).encode(), fields_of(headers))


def add_exception_handlers(app: FastAPI) -> None:
    """Has the framework answer every exception so."""

    async def expected(request: FrameworkRequest, raised: Exception) -> Answer:
        problem = problem_of_exception(raised, request.url.path)
        if problem is None:
            raise raised
        return _answer(request, problem)

    async def invalid(request: FrameworkRequest, refused: RequestValidationError) -> Answer:
        return _answer(request, invalid_request(refused.errors()))

    async def http(request: FrameworkRequest, raised: HTTPException) -> Answer:
        if isinstance(raised.__cause__, Problem):  # raised while the framework was reading the body
            return _answer(request, raised.__cause__)
        made = _answer(request, KNOWN.get(raised.status_code, problems.InternalError)(status=raised.status_code))
        if raised.status_code != problems.MethodNotAllowed.status:
            return made
        allowed = ", ".join(_allowed(app, request)).encode()
        return made._replace(fields=(*made.fields, (b"allow", allowed)))

    async def unexpected(request: FrameworkRequest, raised: Exception) -> Answer:
        return _answer(request, problems.InternalError())

    handlers: dict[Any, Any] = {
        **dict.fromkeys((Problem, *CERTAIN, *POSSIBLE), expected), RequestValidationError: invalid,
        HTTPException: http, Exception: unexpected,
    }  # fmt: skip
    for kind, handler in handlers.items():
        app.add_exception_handler(kind, handler)


def _answer(request: FrameworkRequest, problem: Problem) -> Answer:
    known = request.scope.get(REQUEST_KEY)
    if known is None:
        return problem_answer(request.scope, problem)
    known.facts = {"reason": problem.slug}
    return problem_answer(request.scope, problem, known.id)


def _allowed(app: FastAPI, request: FrameworkRequest) -> list[str]:
    """The methods that this path supports."""
    scope = {**request.scope, "path_params": {}}
    methods = ("GET", "POST", "PUT", "PATCH", "DELETE")
    taken = [m for m in methods if any(row.matches({**scope, "method": m})[0] is Match.FULL for row in app.routes)]
    return ["GET", "HEAD", *taken[1:]] if taken[:1] == ["GET"] else taken
