"""The gate in front of any origin: a proxy asks whether a request may pass, and lets it through or not.

A yes is always 200, the one status that all four proxies take for it. A no is a redirect or a problem as it stands,
except for nginx, which knows only 401 and 403: there the words travel in headers, and its configuration says them.
"""

import re
import time
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request, Response
from pydantic import Field

from services.gateway.forward_auth.decision import Decision, admitted, decide
from services.gateway.forward_auth.handover_codes import HANDOVER_S, Grant
from services.gateway.forward_auth.request import RETURN_MAX_CHARS, OriginalRequest, Proxy, asked, site_of, with_code
from services.gateway.metrics import GATE_CHECKS, GATE_RELEASES
from services.gateway.problems import ReturnUrlNotAllowed
from services.gateway.state import State
from shared.security.auth import pass_cookie, require_credential
from shared.security.key_rotation import JWKS_MAX_AGE_S
from shared.security.tokens import jwks
from shared.web.exception_handlers import REQUEST_ID_KEY
from shared.web.fields import Body, EventIdPath
from shared.web.problems import MEDIA_TYPE, MalformedRequest, Problem, WrongEvent
from shared.web.routes import EVENT_ID

ANY_METHOD = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"]
EventQuery = Annotated[str, Query(pattern=f"^{EVENT_ID}$")]
router = APIRouter(tags=["gate"])


@router.get(
    "/gate/{proxy}/check", summary="Decide a forward-auth request",
    responses={
        303: {"description": "To the waiting room"}, 401: {"description": "To the waiting room, as nginx takes it"},
        403: {"description": "No, or no such event: proxies tell 403 from everything else"},
    },
)  # fmt: skip
async def check(request: Request, proxy: Proxy, event: EventQuery) -> Response:
    """200 with `X-Onsale-Verdict`, and `X-Onsale-Holder` of who has a pass; else as this proxy needs its no."""
    return await _check(request, proxy, event, "")


@router.api_route("/gate/envoy/check{tail:path}", methods=ANY_METHOD, include_in_schema=False)
async def check_for_envoy(request: Request, tail: str) -> Response:
    """Envoy puts the original path and query behind ours, so the event comes in a header its configuration sets."""
    event_id = request.headers.get("x-onsale-event") or ("" if tail else request.query_params.get("event", ""))
    raw: bytes = request.scope["raw_path"]  # as it was written: an escaped dot is not a dot
    return await _check(request, "envoy", event_id, raw.partition(b"/check")[2].decode("latin-1"))


async def _check(request: Request, proxy: Proxy, event_id: str, tail: str) -> Response:
    try:
        verdict = await _judge(request, proxy, event_id, tail)
    except Problem as refused:
        verdict = Decision(refused.slug, problem=refused)
    GATE_CHECKS.labels(proxy, verdict.word).inc()
    return _answer(proxy, verdict, request.scope.get(REQUEST_ID_KEY))


async def _judge(request: Request, proxy: Proxy, event_id: str, tail: str) -> Decision:
    if not re.fullmatch(EVENT_ID, event_id):
        raise MalformedRequest("Say which event: X-Onsale-Event, or ?event= where the proxy can.")
    about: OriginalRequest = asked(request, proxy, event_id, tail)
    return await decide(request.app.state.deps, about)


def _answer(proxy: Proxy, verdict: Decision, request_id: str | None) -> Response:
    """The verdict in the words of this proxy."""
    headers = {"cache-control": "no-store", "x-onsale-verdict": verdict.word}
    if verdict.holder:
        headers["x-onsale-holder"] = verdict.holder
    if verdict.cookie:
        headers["set-cookie"] = verdict.cookie
    nginx = proxy == "nginx"
    if verdict.location:
        headers["x-onsale-location" if nginx else "location"] = verdict.location
        return Response(status_code=401 if nginx else 303, headers=headers)
    if verdict.problem is None:
        return Response(headers=headers)
    problem = verdict.problem
    if nginx:
        problem.code = 403 if problem.code in (403, 404) else 401
    body = problem.body(request_id)
    if nginx:
        headers["x-onsale-problem"] = body.decode("ascii", "replace")
    return Response(body, problem.code, {**problem.headers(), **headers}, MEDIA_TYPE)


class HandoverBody(Body):
    """Where the fan came from, as the gate there told the fan page."""

    return_to: Annotated[str, Field(max_length=RETURN_MAX_CHARS)]
    gate: Annotated[str, Field(pattern=r"^[A-Za-z0-9_-]{24}$")]


@router.post("/events/{event_id}/queue/handover", status_code=201, summary="Create a one-time return link")
async def hand_over(request: Request, response: Response, event_id: EventIdPath, body: HandoverBody) -> dict[str, Any]:
    """For a fan with a pass: the address to go to, with a code that is good once, for seconds, in that browser."""
    state: State = request.app.state.deps
    text = require_credential(request, pass_cookie(event_id, secure=state.settings.secure_cookies))
    line = await state.board.line(event_id)
    await admitted(state, event_id, [text], line)
    site = site_of(body.return_to, line.frame.options.gate)
    if site is None:
        raise ReturnUrlNotAllowed
    response.headers["cache-control"] = "no-store"
    code = await state.handovers.give(Grant(event_id=event_id, site=site, gate=body.gate, admission=text))
    return {"location": with_code(body.return_to.partition("#")[0], code), "good_for_s": HANDOVER_S}


@router.post("/gate/release", summary="Release the slot of a pass")
async def release(request: Request, event: EventQuery) -> dict[str, str]:
    """By the pass itself: the session is over, and the pass is dead before its slot is free. Twice is once; `admitted`
    means that a reservation lets it stand.
    """
    state: State = request.app.state.deps
    text = require_credential(request, pass_cookie(event, secure=state.settings.secure_cookies))
    admission = state.passes.read(text, now_s=time.time())
    if admission.event_id != event:
        raise WrongEvent
    status = await state.places.release(admission)
    GATE_RELEASES.labels(status).inc()
    return {"status": status}


@router.get("/.well-known/jwks.json", summary="List public keys of passes")
async def public_keys(request: Request, response: Response) -> dict[str, list[dict[str, str]]]:
    """The JWK set any origin verifies passes with; during a rotation it holds the old key and the new."""
    state: State = request.app.state.deps
    response.headers["cache-control"] = f"public, max-age={JWKS_MAX_AGE_S}"
    return jwks(state.settings.pass_public_keys)


@router.get("/.well-known/ticket-keys.json", summary="List public keys of tickets")
async def ticket_keys(request: Request, response: Response) -> dict[str, list[dict[str, str]]]:
    """The JWK set scanners load before the doors open; tickets are verified without asking anybody."""
    state: State = request.app.state.deps
    response.headers["cache-control"] = f"public, max-age={JWKS_MAX_AGE_S}"
    return jwks(state.settings.ticket_public_keys)
