"""The fans' API of the line: join, status, the public line, pass, leave. Crowds call it, so it is fast routes."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from typing import Any

import orjson
from starlette.types import Scope

from services.gateway.api.schemas import EmptyBody, JoinBody, JoinedAnswer, LineAnswer, PassAnswer, StatusAnswer
from services.gateway.metrics import CLAIMS, POLLS
from services.gateway.state import State
from services.gateway.tuning import DEFAULTS
from services.gateway.waiting_line.join_batcher import Place
from services.gateway.waiting_line.place_client import ENDED_STATES
from services.gateway.waiting_line.snapshot import LineSnapshot
from shared.contracts.queue import Claimed, JoinRequest, PlaceState
from shared.errors.problems import AlreadyExtended, NotAdmitted, PlaceExpired, Problem, RoomClosed, SoldOut, StaleEpoch
from shared.runtime.clock import now_ms, rfc3339
from shared.security.tokens import QueueToken, User, pass_cookie, queue_cookie, set_cookie
from shared.web.answers import JSON, NO_STORE, Answer, Later, json_answer
from shared.web.before_join import JoinAttempt, hooked
from shared.web.fast_routes import FastRoute
from shared.web.request import Field, Request

JSON_FIELDS = (JSON, NO_STORE)
PUBLIC_1_S = (b"cache-control", b"public, max-age=1")
PLACE_CREDENTIALS: list[dict[str, list[str]]] = [{"queueToken": []}, {"queueCookie": []}, {"userJwt": []}]
WAITING_STATES: frozenset[PlaceState] = frozenset({"prequeue", "waiting"})
_polls_computed, _polls_cached, _polls_requested = (
    POLLS.labels(source) for source in ("arithmetic", "memory", "queue")
)


def context(request: Request) -> tuple[State, str]:
    """The state of this process and the event id of the path."""
    return request.state, request.path["event_id"]


async def fan_of(request: Request) -> tuple[State, str, QueueToken]:
    """As `context`, and the place of the fan, whose rate is checked. The body is empty."""
    state, event_id = context(request)
    token = await state.require_place(request.scope, event_id)
    state.rate_limits.check_fan(event_id, token.holder)
    await request.json(EmptyBody, empty=b"{}")
    return state, event_id, token


def cookie_field(state: State, name: Callable[..., str], event_id: str, value: str, *, max_age_s: int) -> Field:
    secure = state.settings.secure_cookies
    kept = set_cookie(name(event_id, secure=secure), value, max_age_s=max_age_s, secure=secure)
    return b"set-cookie", kept.encode()


def _queue_token_cookie(state: State, event_id: str, text: str) -> Field:
    return cookie_field(state, queue_cookie, event_id, text, max_age_s=DEFAULTS.queue_cookie_s)


def may_bypass(request: Request, line: LineSnapshot, token: QueueToken) -> bool:
    """Whether a place above the head may have been called nevertheless: a feature lets it pass the line by, or did when
    it got its pass.
    """
    for passes_by in request.state.passes_by:
        if passes_by(line.frame, token.holder):
            return True
    return b"onsale_pass_" in request.fields.get(b"cookie", b"")


# -- status ------------------------------------------------------------------------------------------------------------


def status(request: Request) -> Answer | Awaitable[Answer]:
    """The status of a place: at once if this process has its line, it is above the head and its token needs no renewal,
    as nearly all polls of a crowd.
    """
    state, event_id = context(request)
    token, line = state.token_reader.queue_token(request.scope, event_id), state.line_cache.cached(event_id)
    if token is None or line is None or line.epoch != token.epoch or state.token_reader.needs_renewal(token):
        return _status(request, token)
    position = line.position(token.lane, token.join_seq)
    if position <= 0 or may_bypass(request, line, token):
        return _status(request, token)
    state.rate_limits.check_fan(event_id, token.holder)
    request.facts = {"join_seq": token.join_seq, "lane": token.lane, "position": position}
    return Answer(200, computed_status(state, line, token, position), JSON_FIELDS)


async def _status(request: Request, token: QueueToken | None) -> Answer:
    """Above the head computed from the line, below it requested from the queue."""
    state, event_id = context(request)
    token = token or await state.require_place(request.scope, event_id)
    state.rate_limits.check_fan(event_id, token.holder)
    line = await state.line_cache.line_in_epoch(event_id, token.epoch)
    position = line.position(token.lane, token.join_seq)
    request.facts = {"join_seq": token.join_seq, "lane": token.lane, "position": position}
    if position > 0 and not may_bypass(request, line, token):
        body = computed_status(state, line, token, position)
    else:
        state.heartbeats.record(event_id, token.epoch, token.lane, token.join_seq)
        body = orjson.dumps(await status_from_queue(state, line, token))
    renewed = state.token_reader.needs_renewal(token)
    cookies = [_queue_token_cookie(state, event_id, state.token_reader.sign(token))] if renewed else []
    return Answer(200, body, (*JSON_FIELDS, *cookies))


def computed_status(state: State, line: LineSnapshot, token: QueueToken, position: int) -> bytes:
    """The status of a place above the head; its fan is there."""
    state.heartbeats.record(token.event_id, token.epoch, token.lane, token.join_seq)
    _polls_computed.inc()
    body = waiting_status(line, token, position)
    state.line_cache.record_estimate(token.event_id, token.lane, body.get("rank") or token.join_seq, body)
    return orjson.dumps(body)


def waiting_status(line: LineSnapshot, token: QueueToken, position: int) -> dict[str, Any]:
    """The status of a place above the head."""
    estimates = line.estimates(position, token.lane)
    return {
        "status": "prequeue" if line.before_sale or token.lane in line.closed_lanes else "waiting",
        "join_seq": token.join_seq,
        **line.public_position(token.lane, token.join_seq, position),
        **estimates,
        "estimate_changed": line.estimate_changed(token.issued_at_s, token.lane),
        "head_seq": line.heads.get(token.lane, 0),
        "state": line.frame.state,
        "poll_after_ms": line.poll_after_ms(estimates["estimated_wait_time"], token.join_seq, position),
        **line.heartbeat(token.join_seq, position),
        "message": line.message,
    }


async def status_from_queue(state: State, line: LineSnapshot, token: QueueToken) -> dict[str, Any]:
    """The status of a place at or below the head, which only the queue knows."""
    status = state.place_client.cached_status(token)
    if status is None:
        _polls_requested.inc()
        status = await state.place_client.status(token)
    else:
        _polls_cached.inc()
    waits = status.status in WAITING_STATES
    return {
        "status": status.status,
        "join_seq": token.join_seq,
        **line.public_position(token.lane, token.join_seq, line.position(token.lane, token.join_seq)),
        **({} if waits else {"position_in_queue": 0}),
        "estimated_wait_time": None if waits else 0,
        "estimate_changed": None,
        "head_seq": line.heads.get(token.lane, 0),
        "state": line.frame.state,
        "poll_after_ms": line.poll_min_ms
        if waits or status.status == "ready"
        else line.poll_after_ms(None, token.join_seq),
        "message": line.message,
        **({"until": rfc3339(status.until_ms)} if status.until_ms is not None else {}),
        **({"why": status.why} if status.why is not None else {}),
    }


# -- joining -----------------------------------------------------------------------------------------------------------


def join(request: Request) -> Later | Awaitable[Answer]:
    """Adds a fan to the line; a fan who joins again gets the same place. It waits for nothing but the batch, as nearly
    all joins of a crowd, if the body is empty, this process has the line, no feature has to do with this join, and the
    fan is no signed-in user.
    """
    state, event_id = context(request)
    line = state.line_cache.cached(event_id)
    if request.has_body or request.form is not None or line is None:
        return _join(request)
    for hook in state.before_join:
        if hook.wants(request, line.frame):
            return _join(request)
    fan = state.token_reader.fan(request.scope, event_id)
    if fan is None:
        return _join(request)
    state.rate_limits.check_address(request.scope)
    if fan.may_be_known:
        state.rate_limits.check_fan(event_id, fan.holder)

    def make(ended: "asyncio.Future[Place]") -> Answer:
        return _joined(request, state.line_cache.cached(event_id) or line, fan, ended.result())

    return Later(state.join_batcher.join(line, fan), make)


async def _join(request: Request) -> Answer:
    state, event_id = context(request)
    scope = request.scope
    if request.form is not None:
        state.token_reader.require_browser(scope)
    fan, user = await identify(state, scope, event_id)
    given = await request.json(JoinBody, empty=b"{}")
    line = await state.line_cache.line(event_id)
    if given.code is not None:
        fan = fan.model_copy(update={"code": given.code})
    attempt = JoinAttempt(request, line.frame, fan, from_gate=given.from_gate)
    async with hooked(state.before_join, attempt):
        claims = None if user is None else user.claims
        place = await state.join_batcher.join(await state.line_cache.line(event_id), attempt.fan, claims)
        attempt.is_new = not place.known
    return _joined(request, await state.line_cache.line(event_id), attempt.fan, place, user)


def _joined(request: Request, line: LineSnapshot, fan: JoinRequest, place: Place, user: User | None = None) -> Answer:
    """The answer to a fan who has this place; the fan is there."""
    state, event_id = context(request)
    request.facts = {"join_seq": place.join_seq, "lane": place.lane, "known": place.known}
    token = QueueToken(
        event_id=event_id,
        epoch=place.epoch,
        lane=place.lane,
        join_seq=place.join_seq,
        holder=fan.holder,
        issued_at_s=now_ms() // 1000,
    )
    state.heartbeats.record(event_id, token.epoch, token.lane, token.join_seq)
    waits, same_line = place.status in WAITING_STATES, line.epoch == token.epoch
    position = line.position(token.lane, token.join_seq) if same_line else 0
    estimates = line.estimates(position, place.lane) if waits else {"estimated_wait_time": 0}
    text = state.token_reader.sign(token)
    if user is not None:
        user.remember(token)
    body = {
        "queue_token": text if fan.user_id is None else None,
        "join_seq": token.join_seq,
        "lane": token.lane,
        **(line.public_position(token.lane, token.join_seq, position) if same_line else {"position_in_queue": 0}),
        **estimates,
        "status": place.status,
        "epoch": token.epoch,
        "poll_after_ms": line.poll_after_ms(estimates["estimated_wait_time"], token.join_seq, position),
        **(line.heartbeat(token.join_seq, position) if waits else {}),
    }
    kept = _queue_token_cookie(state, event_id, text)
    return Answer(200 if place.known else 201, orjson.dumps(body), (*JSON_FIELDS, kept))


async def identify(state: State, scope: Scope, event_id: str) -> tuple[JoinRequest, User | None]:
    """Who wants to join, and as which signed-in user. Raises `TooManyRequests`, `BadCredential`,
    `ForeignOrigin`, `IdempotencyKeyMalformed`.
    """
    state.rate_limits.check_address(scope)
    fan, user = await state.token_reader.identify(scope, event_id)
    if fan.may_be_known:
        state.rate_limits.check_fan(event_id, fan.holder)
    return fan, user


# -- the public line ---------------------------------------------------------------------------------------------------


def public_line(request: Request) -> Answer | Awaitable[Answer]:
    """The public state of the line: the same bytes for everybody, cacheable for a second."""
    state, event_id = context(request)
    line = state.line_cache.cached(event_id)
    return _public_line(request) if line is None else _line_answer(request, line)


async def _public_line(request: Request) -> Answer:
    state, event_id = context(request)
    return _line_answer(request, await state.line_cache.line(event_id))


def _line_answer(request: Request, line: LineSnapshot) -> Answer:
    etag = (b"etag", line.etag)
    if line.etag in request.fields.get(b"if-none-match", b""):
        return Answer(304, b"", (etag, PUBLIC_1_S))
    return Answer(200, line.body(), (JSON, etag, PUBLIC_1_S))


# -- the pass ----------------------------------------------------------------------------------------------------------


async def claim(request: Request) -> Answer:
    """Issues the pass of a called fan. Fans who are far from being called are refused from the cached line while it
    is fresh.
    """
    state, event_id, token = await fan_of(request)
    line = await state.line_cache.line_in_epoch(event_id, token.epoch)
    state.heartbeats.record(event_id, token.epoch, token.lane, token.join_seq)
    waits = not line.may_be_called(line.position(token.lane, token.join_seq))
    if waits and state.line_cache.is_fresh(line) and not may_bypass(request, line, token):
        CLAIMS.labels("not-admitted-by-frame").inc()
        raise _not_admitted(line)
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
        raise _not_admitted(line)
    body = {
        "pass": claimed.admission,
        "expires_at": rfc3339(claimed.expires_at_ms),
        "checkout_key": claimed.checkout_key,
        "status": "admitted",
    }
    max_age_s = max(0, (claimed.expires_at_ms - now_ms()) // 1000)
    kept = cookie_field(state, pass_cookie, event_id, claimed.admission, max_age_s=max_age_s)
    return json_answer(body, NO_STORE, kept)


def _not_admitted(line: LineSnapshot) -> Problem:
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


# -- the routes --------------------------------------------------------------------------------------------------------

QUEUE_PATH = "/events/{event_id}/queue"
IDEMPOTENCY_KEY = {
    "name": "Idempotency-Key",
    "in": "header",
    "required": False,
    "schema": {"type": "string", "minLength": 22, "maxLength": 128},
    "description": "A UUID or at least 22 random characters of your own, kept secret. Joining again with it returns "
    "the same place. Never take one from a link. In a browser it counts together with the cookie `onsale_browser`.",
}
PROOF_OF_WORK = {
    "name": "Onsale-Proof-Of-Work",
    "in": "header",
    "required": False,
    "schema": {"type": "string", "maxLength": 2048},
    "description": "Base64 of ALTCHA's `{challenge, solution}`, if the room requires it; good for one place.",
}
UNKNOWN_EVENT = {404: "Unknown event"}
POLLED_TOO_OFTEN = {429: "Polled far more often than `poll_after_ms` says"}
_route = partial(FastRoute, tag="line")
FAST_ROUTES = [
    _route(
        "GET", f"{QUEUE_PATH}/status", status, summary="Get the status of a place", security=PLACE_CREDENTIALS,
        answers={200: ("The status", StatusAnswer)},
        refusals=UNKNOWN_EVENT | POLLED_TOO_OFTEN | {410: "The room was reset"},
    ),
    _route(
        "POST", QUEUE_PATH, join, summary="Join the line", security=[{}, *PLACE_CREDENTIALS],
        parameters=[IDEMPOTENCY_KEY, PROOF_OF_WORK], body=JoinBody, body_required=False,
        answers={201: ("A new place", JoinedAnswer), 200: ("The place this fan has already", JoinedAnswer)},
        refusals=UNKNOWN_EVENT | {
            400: "Malformed key", 401: "Only signed-in fans may join", 403: "Unknown code", 409: "Code used up",
            410: "Closed or sold out", 428: "Solve the challenge first",
            429: "The line is full, or too many from one address, or too many wrong codes",
        },
    ),
    _route(
        "GET", QUEUE_PATH, public_line, summary="Get the public state of the waiting room", refusals=UNKNOWN_EVENT,
        answers={200: ("The line", LineAnswer), 304: ("Unchanged", None)},
    ),
    _route(
        "POST", f"{QUEUE_PATH}/pass", claim, summary="Claim the pass", security=PLACE_CREDENTIALS,
        answers={200: ("Admitted", PassAnswer)},
        refusals=UNKNOWN_EVENT | POLLED_TOO_OFTEN | {409: "Not called yet", 410: "This place has ended"},
    ),
    _route(
        "POST", f"{QUEUE_PATH}/pass/extend", extend, summary="Get more time to choose, once",
        security=PLACE_CREDENTIALS, answers={200: ("The pass with its new end", PassAnswer)},
        refusals=UNKNOWN_EVENT | POLLED_TOO_OFTEN
        | {409: "Extended before, or not called yet", 410: "This place has ended, or ends now"},
    ),
    _route(
        "DELETE", QUEUE_PATH, leave, summary="Leave the line", security=PLACE_CREDENTIALS,
        answers={204: ("Left", None)}, refusals=UNKNOWN_EVENT | POLLED_TOO_OFTEN,
    ),
]  # fmt: skip
