"""The gate in front of any origin: a proxy asks whether a request carries a pass, and lets it through or not.

Passes are verified offline. An admission is always 200, the one status that all four proxies take for yes.
"""

import time
from typing import Annotated, Literal

from fastapi import APIRouter, Query, Request, Response

from services.gateway.metrics import GATE_CHECKS
from services.gateway.room import Room
from shared.auth import pass_cookie, require_credential
from shared.key_stages import JWKS_MAX_AGE_S
from shared.problems import BadCredential, Problem, WrongEvent
from shared.routes import EVENT_ID
from shared.tokens import Pass, jwks

Proxy = Literal["nginx", "traefik", "caddy", "envoy"]
router = APIRouter()


@router.get("/gate/{proxy}/check", tags=["gate"], summary="Does this request carry a pass?")
async def check(request: Request, proxy: Proxy, event: Annotated[str, Query(pattern=f"^{EVENT_ID}$")]) -> Response:
    """200 with `X-Onsale-Holder`, 401 without a working pass, 403 with another event's."""
    try:
        admission = _admission(request, event)
    except Problem as refused:
        GATE_CHECKS.labels(proxy, refused.slug).inc()
        raise
    GATE_CHECKS.labels(proxy, "admitted").inc()
    return Response(headers={"x-onsale-holder": admission.holder, "cache-control": "no-store"})


def _admission(request: Request, event_id: str) -> Pass:
    room: Room = request.app.state.room
    text = require_credential(request, pass_cookie(event_id))
    admission = room.passes.read(text, now_s=time.time())
    if admission.event_id != event_id:
        raise WrongEvent
    line = room.board.seen(event_id)
    if line is not None and line.epoch > admission.epoch:
        raise BadCredential("The waiting room was reset; this pass is from before.")
    return admission


@router.get("/.well-known/jwks.json", tags=["gate"], summary="Public keys of passes")
async def public_keys(request: Request, response: Response) -> dict[str, list[dict[str, str]]]:
    """The JWK set any origin verifies passes with; during a rotation it holds the old key and the new."""
    room: Room = request.app.state.room
    response.headers["cache-control"] = f"public, max-age={JWKS_MAX_AGE_S}"
    return jwks(room.settings.pass_public_keys)
