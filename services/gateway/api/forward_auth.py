"""Forward-auth for protected sites: whether a request may pass, and the release of its slot.

A yes is always 200, the one status that all four proxies accept for it. A no is a redirect or a problem, except for
nginx, which knows only 401 and 403: it gets location and problem in headers, from which its configuration answers.
"""

import re
from typing import Annotated

from fastapi import APIRouter, Query, Request, Response
from pydantic import Field

from services.gateway.api.schemas import PublicKeys, ReturnLink, SlotReleased
from services.gateway.forward_auth.decision import Decision
from services.gateway.forward_auth.handover_codes import CODE_LIFETIME_S
from services.gateway.forward_auth.request import RETURN_MAX_CHARS, Proxy, read_request
from services.gateway.metrics import CHECKS
from services.gateway.state import State
from shared.contracts.fields import Body
from shared.errors.problems import MEDIA_TYPE, MalformedRequest, Problem
from shared.routes import EVENT_ID
from shared.security.key_rotation import JWKS_MAX_AGE_S
from shared.security.tokens import Keyring, credentials, jwks, pass_cookie
from shared.web.request import EventIdPath, request_of

ANY_METHOD = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"]
VERDICT_HEADERS = {
    "X-Onsale-Verdict": {"description": "Why the request may pass", "schema": {"type": "string"}},
    "X-Onsale-Holder": {"description": "The holder of the pass, if there is one", "schema": {"type": "string"}},
}
EventQuery = Annotated[str, Query(pattern=f"^{EVENT_ID}$")]
router = APIRouter(tags=["gate"])


@router.get(
    "/gate/{proxy}/check", summary="Decide a forward-auth request", response_class=Response,
    responses={
        200: {"description": "May pass; the answer is in the headers", "headers": VERDICT_HEADERS},
        303: {"description": "Redirect to the waiting room"},
        401: {"description": "Redirect to the waiting room, in the form that nginx accepts"},
        403: {"description": "Refused, or no such event: proxies distinguish 403 from everything else"},
    },
)  # fmt: skip
async def check(request: Request, proxy: Proxy, event: EventQuery) -> Response:
    """200 with `X-Onsale-Verdict`, and `X-Onsale-Holder` of a pass's holder; else a refusal in this proxy's form."""
    return await _check(request, proxy, event, "")


@router.api_route("/gate/envoy/check{tail:path}", methods=ANY_METHOD, include_in_schema=False)
async def check_for_envoy(request: Request, tail: str) -> Response:
    """Envoy appends the original path and query to ours, so its configuration names the event in a header."""
    event_id = request.headers.get("x-onsale-event") or ("" if tail else request.query_params.get("event", ""))
    raw: bytes = request.scope["raw_path"]  # unescaped, because an escaped dot is not a dot
    return await _check(request, "envoy", event_id, raw.partition(b"/check")[2].decode("latin-1"))


async def _check(request: Request, proxy: Proxy, event_id: str, tail: str) -> Response:
    state: State = request.app.state.deps
    try:
        if not re.fullmatch(EVENT_ID, event_id):
            raise MalformedRequest("Name the event: in the header X-Onsale-Event, or in ?event= if the proxy can.")
        decision = await state.forward_auth.decide(read_request(request, proxy, event_id, tail))
    except Problem as problem:
        decision = Decision(problem.slug, problem=problem)
    CHECKS.labels(proxy, decision.verdict).inc()
    return _respond(proxy, decision, request_of(request.scope).id)


def _respond(proxy: Proxy, decision: Decision, request_id: str | None) -> Response:
    """The decision in the form that this proxy accepts."""
    headers = {"cache-control": "no-store", "x-onsale-verdict": decision.verdict}
    if decision.holder:
        headers["x-onsale-holder"] = decision.holder
    if decision.cookie:
        headers["set-cookie"] = decision.cookie
    nginx = proxy == "nginx"
    if decision.location:
        headers["x-onsale-location" if nginx else "location"] = decision.location
        return Response(status_code=401 if nginx else 303, headers=headers)
    problem = decision.problem
    if problem is None:
        return Response(headers=headers)
    if nginx:
        problem.code = 403 if problem.code in (403, 404) else 401
    body = problem.body(request_id)
    if nginx:
        headers["x-onsale-problem"] = body.decode("ascii", "replace")
    return Response(body, problem.code, {**problem.headers(), **headers}, MEDIA_TYPE)


class HandoverBody(Body):
    """Where the fan came from: the values from the fragment of the fan page's address."""

    return_to: Annotated[str, Field(max_length=RETURN_MAX_CHARS)]
    gate: Annotated[str, Field(pattern=r"^[A-Za-z0-9_-]{24}$")]


@router.post("/events/{event_id}/queue/handover", status_code=201, summary="Create a one-time return link")
async def create_return_link(
    request: Request, response: Response, event_id: EventIdPath, body: HandoverBody
) -> ReturnLink:
    """Returns a fan with a pass to the protected site. The link carries a code that works once, for `good_for_s`
    seconds, in the browser that the site sent here.
    """
    state: State = request.app.state.deps
    text, *_ = credentials(request.scope, pass_cookie(event_id, secure=state.settings.secure_cookies))
    location = await state.forward_auth.create_return_link(event_id, text, body.return_to, body.gate)
    response.headers["cache-control"] = "no-store"
    return ReturnLink(location=location, good_for_s=CODE_LIFETIME_S)


@router.post("/gate/release", summary="Release the slot of a pass")
async def release_slot(request: Request, event: EventQuery) -> SlotReleased:
    """Ends the session of the pass that is sent: the pass stops working before its slot is free. Releasing twice is
    releasing once; `admitted` means that a reservation keeps the session.
    """
    state: State = request.app.state.deps
    text, *_ = credentials(request.scope, pass_cookie(event, secure=state.settings.secure_cookies))
    return SlotReleased(status=await state.forward_auth.release_slot(event, text))


@router.get("/.well-known/jwks.json", summary="List public keys of passes")
async def pass_keys(request: Request, response: Response) -> PublicKeys:
    """The JWK set that verifies passes; during a rotation it holds the old key and the new one."""
    return _jwks(response, request.app.state.deps.settings.pass_public_keys)


@router.get("/.well-known/ticket-keys.json", summary="List public keys of tickets")
async def ticket_keys(request: Request, response: Response) -> PublicKeys:
    """The JWK set that verifies tickets. Scanners load it before the doors open and then work offline."""
    return _jwks(response, request.app.state.deps.settings.ticket_public_keys)


def _jwks(response: Response, keys: Keyring) -> PublicKeys:
    response.headers["cache-control"] = f"public, max-age={JWKS_MAX_AGE_S}"
    return PublicKeys.model_validate(jwks(keys))
