"""A called fan's pass: claim it, get more time with it, leave."""

from contextlib import suppress
from typing import Any

from services.gateway.api.requests import cookie_field, fan_of, may_bypass
from services.gateway.metrics import CLAIMS
from services.gateway.state import State
from services.gateway.waiting_line.place_client import ENDED_STATES
from services.gateway.waiting_line.snapshot import LineSnapshot
from shared.contracts.queue import Claimed
from shared.errors.problems import AlreadyExtended, NotAdmitted, PlaceExpired, Problem, RoomClosed, SoldOut, StaleEpoch
from shared.runtime.clock import now_ms, rfc3339
from shared.security.tokens import pass_cookie, queue_cookie
from shared.web.answers import NO_STORE, Answer, json_answer
from shared.web.request import Request


async def claim(request: Request) -> Answer:
    """Issues the pass of a called fan. Fans who are far from being called are refused from the cached line while it
    is fresh.
    """
    state, event_id, token = await fan_of(request)
    line = await state.line_cache.line_in_epoch(event_id, token.epoch)
    state.heartbeats.record(event_id, token.epoch, token.lane, token.join_seq)
    waits = not line.may_be_called(line.position(token.lane, token.join_seq))
    if waits and state.line_cache.is_fresh(line) and not may_bypass(request.scope, line, token):
        CLAIMS.labels("not-admitted-by-frame").inc()
        raise not_admitted(line)
    try:
        claimed = await state.place_client.claim(token)
    except SoldOut as sold_out:
        raise SoldOut(sold_out.detail, status=410) from sold_out
    CLAIMS.labels(claimed.word).inc()
    return _pass_answer(state, event_id, claimed, line)


async def extend(request: Request) -> Answer:
    """Gives a fan more time to choose: the session's length again, from now on, once."""
    state, event_id, token = await fan_of(request)
    extended = await state.place_client.extend(token)
    claimed = extended.claimed
    if claimed.word == "admitted" and extended.outcome == "before":
        raise AlreadyExtended
    if claimed.word == "admitted" and extended.outcome == "too-late":
        raise PlaceExpired("The session is ending now. Join the line again.", place="expired", why="session")
    return _pass_answer(state, event_id, claimed, await state.line_cache.line_in_epoch(event_id, token.epoch))


def _pass_answer(state: State, event_id: str, claimed: Claimed, line: LineSnapshot) -> Answer:
    """Raises `PlaceExpired`, or what keeps a waiting fan out."""
    if claimed.word in ENDED_STATES:
        why: dict[str, Any] = {"why": claimed.why} if claimed.why is not None else {}
        raise PlaceExpired(f"This place is {claimed.word}. Join the line again.", place=claimed.word, **why)
    if claimed.admission is None or claimed.expires_at_ms is None:
        raise not_admitted(line)
    body = {
        "pass": claimed.admission,
        "expires_at": rfc3339(claimed.expires_at_ms),
        "checkout_key": claimed.checkout_key,
        "status": "admitted",
    }
    max_age_s = max(0, (claimed.expires_at_ms - now_ms()) // 1000)
    kept = cookie_field(state, pass_cookie, event_id, claimed.admission, max_age_s=max_age_s)
    return json_answer(body, NO_STORE, kept)


def not_admitted(line: LineSnapshot) -> Problem:
    """The problem of a fan without a call: not called yet, or the sale is over."""
    if line.frame.state == "closed":
        return RoomClosed()
    if line.frame.state == "sold_out":
        return SoldOut("All tickets are sold.", status=410)
    return NotAdmitted(status=409, retry_after_s=max(1, line.poll_min_ms // 1000))


async def leave(request: Request) -> Answer:
    """Ends the place. A place from before a reset of the line has ended already."""
    state, event_id, token = await fan_of(request)
    with suppress(StaleEpoch):
        await state.place_client.leave(token)
    deleted = (cookie_field(state, name, event_id, "", max_age_s=0) for name in (queue_cookie, pass_cookie))
    return Answer(204, b"", (NO_STORE, *deleted))
