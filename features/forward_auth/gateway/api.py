"""Forward-auth for protected sites: whether a request may pass, the way back to them, and the release of its slot.

A yes is always 200, the one status that all four proxies accept for it. A no is a redirect or a problem, except for
nginx, which knows only 401 and 403: it gets location and problem in headers, from which its configuration answers.
"""

import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated

from fastapi import APIRouter, Depends, Query, Request, Response
from pydantic import BaseModel, Field

from features.forward_auth.gateway.decision import CHECKS, CODE_LIFETIME_S, Decision, ForwardAuth
from features.forward_auth.gateway.request import RETURN_MAX_CHARS, Proxy, read_request
from services.gateway.state import State
from services.gateway.waiting_line.cache import POLL_S
from shared.concurrency.background import Loops
from shared.contracts.fields import Body
from shared.contracts.queue import PlaceState
from shared.errors.problems import MEDIA_TYPE, MalformedRequest, Problem
from shared.routes import EVENT_ID
from shared.security.tokens import credentials, pass_cookie
from shared.web.parts import Part, opened
from shared.web.request import EventIdPath, request_of

ANY_METHOD = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"]
VERDICT_HEADERS = {
    "X-Onsale-Verdict": {"description": "Why the request may pass", "schema": {"type": "string"}},
    "X-Onsale-Holder": {"description": "The holder of the pass, if there is one", "schema": {"type": "string"}},
}
EventQuery = Annotated[str, Query(pattern=f"^{EVENT_ID}$")]
TheForwardAuth = Annotated[ForwardAuth, Depends(opened(ForwardAuth))]
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
async def check(request: Request, forward_auth: TheForwardAuth, proxy: Proxy, event: EventQuery) -> Response:
    """200 with `X-Onsale-Verdict`, and `X-Onsale-Holder` of a pass's holder; else a refusal in this proxy's form."""
    return await _check(forward_auth, request, proxy, event)


@router.api_route("/gate/envoy/check{tail:path}", methods=ANY_METHOD, include_in_schema=False)
async def check_for_envoy(request: Request, forward_auth: TheForwardAuth, tail: str) -> Response:
    """Envoy appends the original path and query to ours, so its configuration names the event in a header."""
    event_id = request.headers.get("x-onsale-event") or ("" if tail else request.query_params.get("event", ""))
    raw: bytes = request.scope["raw_path"]  # unescaped, because an escaped dot is not a dot
    return await _check(forward_auth, request, "envoy", event_id, raw.partition(b"/check")[2].decode("latin-1"))


async def _check(forward_auth: ForwardAuth, request: Request, proxy: Proxy, event_id: str, tail: str = "") -> Response:
    try:
        if not re.fullmatch(EVENT_ID, event_id):
            raise MalformedRequest("Name the event: in the header X-Onsale-Event, or in ?event= if the proxy can.")
        decision = await forward_auth.decide(read_request(request, proxy, event_id, tail))
    except Problem as problem:
        decision = Decision(problem.slug, problem=problem)
    CHECKS.labels(proxy, decision.verdict).inc()
    return _respond(proxy, decision, request_of(request.scope).id)


def _respond(proxy: Proxy, decision: Decision, request_id: str | None) -> Response:
    """The decision in the form that this proxy accepts."""
    nginx, problem = proxy == "nginx", decision.problem
    given = {
        "cache-control": "no-store", "x-onsale-verdict": decision.verdict, "x-onsale-holder": decision.holder,
        "set-cookie": decision.cookie, "x-onsale-location" if nginx else "location": decision.location,
    }  # fmt: skip
    headers = {name: value for name, value in given.items() if value}
    if problem is None:
        refusal = 401 if nginx else 303
        return Response(status_code=refusal if decision.location else 200, headers=headers)
    if nginx:
        problem.code = 403 if problem.code in (403, 404) else 401
        headers["x-onsale-problem"] = problem.body(request_id).decode("ascii", "replace")
    return Response(problem.body(request_id), problem.code, {**problem.headers(), **headers}, MEDIA_TYPE)


class HandoverBody(Body):
    """Where the fan came from: the values from the fragment of the fan page's address."""

    return_to: Annotated[str, Field(max_length=RETURN_MAX_CHARS)]
    gate: Annotated[str, Field(pattern=r"^[A-Za-z0-9_-]{24}$")]


class ReturnLink(BaseModel):
    """The address to send the fan to."""

    location: str
    good_for_s: int = Field(description="Seconds for which the code in the address works.")


@router.post(
    "/events/{event_id}/queue/handover", status_code=201, summary="Create a one-time return link",
    openapi_extra={"security": [{"queueToken": []}, {"queueCookie": []}, {"userJwt": []}]},
)  # fmt: skip
async def create_return_link(
    request: Request, response: Response, forward_auth: TheForwardAuth, event_id: EventIdPath, body: HandoverBody
) -> ReturnLink:
    """Returns a fan with a pass to the protected site. The link carries a code that works once, for `good_for_s`
    seconds, in the browser that the site sent here.
    """
    location = await forward_auth.create_return_link(event_id, _pass(request, event_id), body.return_to, body.gate)
    response.headers["cache-control"] = "no-store"
    return ReturnLink(location=location, good_for_s=CODE_LIFETIME_S)


class SlotReleased(BaseModel):
    """The state of the place after the release."""

    status: PlaceState


@router.post("/gate/release", summary="Release the slot of a pass", openapi_extra={"security": [{"pass": []}]})
async def release_slot(request: Request, forward_auth: TheForwardAuth, event: EventQuery) -> SlotReleased:
    """Ends the session of the pass that is sent: the pass stops working before its slot is free. Releasing twice is
    releasing once; `admitted` means that a reservation keeps the session.
    """
    return SlotReleased(status=await forward_auth.release_slot(event, _pass(request, event)))


def _pass(request: Request, event_id: str) -> str:
    return credentials(request.scope, pass_cookie(event_id, secure=request.app.state.settings.secure_cookies))[0]


@asynccontextmanager
async def open_forward_auth(state: State, loops: Loops) -> AsyncIterator[ForwardAuth]:
    """Learns of revoked passes as long as the process lives."""
    forward_auth = ForwardAuth(state)
    revoked = forward_auth.revoked_passes
    loops.keep(revoked.listen, name="gateway.revoked_passes")
    loops.every(POLL_S, revoked.refresh, name="gateway.revoked_passes_refresh")
    try:
        yield forward_auth
    finally:
        await revoked.close()


PART = Part(routers=[router], open=open_forward_auth)
