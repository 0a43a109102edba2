"""Turns every exception of an app into a problem document (RFC 9457), expected or not."""

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.routing import Match
from starlette.types import Scope, Send

from shared.contracts.fields import refusal
from shared.errors import problems
from shared.errors.database import is_unstorable
from shared.errors.outages import CERTAIN, POSSIBLE, in_one_line, is_outage, problem_of
from shared.errors.problems import Problem
from shared.runtime.logging import FACTS_KEY, get_logger, sale_log
from shared.web.fast_routes import answer
from shared.web.languages import language_of
from shared.web.pages import problem_page

log = get_logger("onsale.http")
REQUEST_ID_KEY = "onsale.request_id"


def add_exception_handlers(app: FastAPI) -> None:
    """Registers the handlers of all exceptions."""

    async def expected(request: Request, problem: Problem) -> Response:
        return problem_response(request.scope, problem)

    async def invalid(request: Request, refused: RequestValidationError) -> Response:
        return problem_response(request.scope, _validation_problem(refused))

    async def http(request: Request, raised: HTTPException) -> Response:
        if isinstance(raised.__cause__, Problem):  # raised while the framework was reading the body
            return problem_response(request.scope, raised.__cause__)
        known = {404: problems.NotFound, 405: problems.MethodNotAllowed, 400: problems.MalformedRequest}
        kind = known.get(raised.status_code, problems.InternalError)
        response = problem_response(request.scope, kind(status=raised.status_code))
        if raised.status_code == problems.MethodNotAllowed.status:
            response.headers["allow"] = ", ".join(_allowed(app, request))
        return response

    async def outage(request: Request, raised: Exception) -> Response:
        return problem_response(request.scope, expected_problem(raised, path=request.url.path))

    async def unexpected(request: Request, raised: Exception) -> Response:
        return problem_response(request.scope, problems.InternalError())

    app.add_exception_handler(Problem, expected)  # type: ignore[arg-type]
    app.add_exception_handler(RequestValidationError, invalid)  # type: ignore[arg-type]
    app.add_exception_handler(HTTPException, http)  # type: ignore[arg-type]
    for kind in (*CERTAIN, *POSSIBLE):
        app.add_exception_handler(kind, outage)
    app.add_exception_handler(Exception, unexpected)


def expected_problem(raised: Exception, *, path: str) -> Problem:
    """The problem that tells of this exception. Raises it again if it is a bug."""
    if isinstance(raised, Problem):
        return raised
    if is_unstorable(raised):
        return problems.InvalidRequest("A text contains a null character, or a number is too large.")
    if not is_outage(raised):
        raise raised
    log.error("dependency.unavailable", error=in_one_line(raised), path=path)
    return problem_of(raised)


def _allowed(app: FastAPI, request: Request) -> list[str]:
    """The methods that this path supports."""
    scope = {**request.scope, "path_params": {}}
    methods = ("GET", "POST", "PUT", "PATCH", "DELETE")
    taken = [m for m in methods if any(row.matches({**scope, "method": m})[0] is Match.FULL for row in app.routes)]
    return ["GET", "HEAD", *taken[1:]] if taken[:1] == ["GET"] else taken


def _validation_problem(refused: RequestValidationError) -> Problem:
    """Unreadable JSON is 400; an invalid value is 422 and names its field, without repeating the value."""
    errors = refused.errors()
    if any(error["type"] == "json_invalid" for error in errors):
        return problems.MalformedRequest("The body is not JSON.")
    fields = [
        {"field": ".".join(str(part) for part in error["loc"][1:]) or str(error["loc"][0]), "message": refusal(error)}
        for error in errors[:20]
    ]
    return problems.InvalidRequest(" ".join(f"{f['field']}: {f['message']}" for f in fields[:3]), errors=fields)


def problem_response(scope: Scope, problem: Problem) -> Response:
    """The response to a problem: an HTML page for people, a problem document for programs."""
    if sale_log.on:
        scope.setdefault(FACTS_KEY, {})["reason"] = problem.slug
    if problem_page.wanted(scope["method"], (v for k, v in scope["headers"] if k == b"accept")):
        language = language_of(scope)
        headers = {**problem_page.headers(problem), "content-language": language}
        return Response(problem_page.page(problem, language), problem.code, headers, problem_page.MEDIA_TYPE)
    body = problem.body(scope.get(REQUEST_ID_KEY))
    return Response(body, problem.code, problem.headers(), problems.MEDIA_TYPE)


async def send_problem(problem: Problem, request_id: str | None, send: Send) -> None:
    """Sends a problem document from outside the framework."""
    fields = {"content-type": problems.MEDIA_TYPE, **problem.headers()}
    headers = [(name.encode(), value.encode()) for name, value in fields.items()]
    await answer(send, problem.code, problem.body(request_id), *headers)
