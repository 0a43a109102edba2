"""The fans' API of the line: join, status, the public line, pass, leave.

These are plain ASGI classes because crowds call them: each reads what it needs from the scope and writes bytes.
Problems are raised to the app's exception handlers.
"""

from functools import partial
from typing import Any

import orjson
from starlette.routing import BaseRoute
from starlette.types import Receive, Scope, Send

from services.gateway.api.passes import Claim, Extend, Leave
from services.gateway.api.requests import context, cookie_header, may_bypass, read_optional
from services.gateway.api.schemas import (
    ChallengeAnswer,
    JoinBody,
    JoinedAnswer,
    LineAnswer,
    PassAnswer,
    StatusAnswer,
)
from services.gateway.metrics import POLLS
from services.gateway.protection.identity import Claims
from services.gateway.state import State
from services.gateway.tuning import DEFAULTS
from services.gateway.waiting_line.join_batcher import Place
from services.gateway.waiting_line.snapshot import LineSnapshot
from shared.contracts.queue import JoinRequest, PlaceState
from shared.runtime.clock import now_ms, rfc3339
from shared.runtime.logging import FACTS_KEY, sale_log
from shared.security.credentials import header_fields, queue_cookie
from shared.security.tokens import QueueToken
from shared.web.fast_routes import (
    JSON,
    NO_STORE,
    BatchAnswer,
    FastRoute,
    ImmediateAnswer,
    answer,
    encode_head,
)
from shared.web.forms import FORM_KEY

JSON_HEAD = encode_head(JSON, NO_STORE)
PUBLIC_1_S = (b"cache-control", b"public, max-age=1")
PLACE_CREDENTIALS: list[dict[str, list[str]]] = [{"queueToken": []}, {"queueCookie": []}, {"userJwt": []}]
WAITING_STATES: frozenset[PlaceState] = frozenset({"prequeue", "waiting"})
_polls_computed, _polls_cached, _polls_requested = (
    POLLS.labels(source) for source in ("arithmetic", "memory", "queue")
)


class Status:
    """The status of a place: above the head computed from the cached line, below it requested from the queue."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        state, event_id = context(scope)
        token = state.token_reader.queue_token(scope, event_id) or await state.require_place(scope, event_id)
        state.rate_limits.check_fan(event_id, token.holder)
        line = await state.line_cache.line_in_epoch(event_id, token.epoch)
        position = line.position(token.lane, token.join_seq)
        if sale_log.on:
            scope[FACTS_KEY] = {"join_seq": token.join_seq, "lane": token.lane, "position": position}
        if position > 0 and not may_bypass(scope, line, token):
            body = computed_status(state, line, token, position)
        else:
            state.heartbeats.record(event_id, token.epoch, token.lane, token.join_seq)
            body = orjson.dumps(await status_from_queue(state, line, token))
        renewed = state.token_reader.needs_renewal(token)
        cookies = [_queue_token_cookie(state, event_id, state.token_reader.sign(token))] if renewed else []
        await answer(send, 200, body, JSON, NO_STORE, *cookies)

    def answer_now(self, scope: Scope) -> ImmediateAnswer | None:
        """The status of a place above the head, if this process has its line and its token needs no renewal. Nearly
        all polls of a crowd end here.
        """
        state, event_id = context(scope)
        token, line = state.token_reader.queue_token(scope, event_id), state.line_cache.cached(event_id)
        if token is None or line is None or line.epoch != token.epoch or state.token_reader.needs_renewal(token):
            return None
        position = line.position(token.lane, token.join_seq)
        if position <= 0 or may_bypass(scope, line, token):
            return None
        state.rate_limits.check_fan(event_id, token.holder)
        return ImmediateAnswer(JSON_HEAD, computed_status(state, line, token, position))


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


class Join:
    """Adds a fan to the line. A fan who joins again gets the same place."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        state, event_id = context(scope)
        if FORM_KEY in scope:
            state.token_reader.require_browser(scope)
        fan, claims = await identify(state, scope, event_id)
        given = await read_optional(receive, JoinBody)
        line = await state.line_cache.line(event_id)
        if given.from_gate and line.rollout_percent < 100:
            fan = state.token_reader.within_rollout(scope, event_id, fan, line.rollout_percent)
        with state.join_policy.arrival(scope, event_id, line) as arrival:
            fan = await state.join_policy.require_proof(scope, event_id, line, fan)
            if given.code is not None:
                fan = fan.model_copy(update={"code": given.code})
            place = await state.join_batcher.join(event_id, fan, claims, address=state.rate_limits.address_of(scope))
            arrival.is_new_fan = not place.known
        if sale_log.on:
            scope[FACTS_KEY] = {"join_seq": place.join_seq, "lane": place.lane, "known": place.known}
        status, body, kept = joined(state, await state.line_cache.line(event_id), fan, place)
        await answer(send, status, body, JSON, NO_STORE, kept)

    def answer_now(self, scope: Scope) -> BatchAnswer | None:
        """The answer to a fan who joins by an empty body, if this process has the line, the room wants no proof of work
        and the fan is no signed-in user. Nearly all joins of a crowd end here.
        """
        state, event_id = context(scope)
        line = state.line_cache.cached(event_id)
        if line is None or not state.join_policy.is_off(scope, line):
            return None
        fan = state.token_reader.fan(scope, event_id)
        if fan is None:
            return None
        state.rate_limits.check_address(scope)
        if fan.may_be_known:
            state.rate_limits.check_fan(event_id, fan.holder)

        def make(place: Place) -> ImmediateAnswer:
            now = state.line_cache.cached(event_id) or line
            status, body, kept = joined(state, now, fan, place)
            return ImmediateAnswer(JSON_HEAD + encode_head(kept), body, status)

        return BatchAnswer(state.join_batcher.enqueue(line, fan), make)


def joined(state: State, line: LineSnapshot, fan: JoinRequest, place: Place) -> tuple[int, bytes, tuple[bytes, bytes]]:
    """Status, body and cookie of the answer to a fan who has this place; the fan is there."""
    event_id = line.frame.event_id
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
    if fan.user_id is not None:
        state.user_places.remember(token)
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
    return 200 if place.known else 201, orjson.dumps(body), _queue_token_cookie(state, event_id, text)


async def identify(state: State, scope: Scope, event_id: str) -> tuple[JoinRequest, Claims | None]:
    """Who wants to join, and the claims of a signed-in user. Raises `TooManyRequests`, `BadCredential`,
    `ForeignOrigin`, `IdempotencyKeyMalformed`.
    """
    state.rate_limits.check_address(scope)
    fan, claims = await state.token_reader.identify(scope, event_id)
    if fan.may_be_known:
        state.rate_limits.check_fan(event_id, fan.holder)
    return fan, claims


class Challenge:
    """A proof-of-work challenge in advance of joining; 204 while the room requires none."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        state, event_id = context(scope)
        fan, _ = await identify(state, scope, event_id)
        challenge = state.join_policy.challenge(scope, event_id, await state.line_cache.line(event_id), fan)
        if challenge is None:
            await answer(send, 204, b"", NO_STORE)
        else:
            await answer(send, 200, orjson.dumps(challenge), JSON, NO_STORE)


class PublicLine:
    """The public state of the line: the same bytes for everybody, cacheable for a second."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        state, event_id = context(scope)
        line = await state.line_cache.line(event_id)
        etag = (b"etag", line.etag)
        if line.etag in header_fields(scope).get(b"if-none-match", b""):
            await answer(send, 304, b"", etag, PUBLIC_1_S)
        else:
            await answer(send, 200, line.body(), JSON, etag, PUBLIC_1_S)

    def answer_now(self, scope: Scope) -> ImmediateAnswer | None:
        """The line, if this process has it and the caller no earlier one."""
        state, event_id = context(scope)
        line = state.line_cache.cached(event_id)
        if line is None or any(name == b"if-none-match" for name, _ in scope["headers"]):
            return None
        return ImmediateAnswer(encode_head(JSON, (b"etag", line.etag), PUBLIC_1_S), line.body())


def _queue_token_cookie(state: State, event_id: str, text: str) -> tuple[bytes, bytes]:
    return cookie_header(state, queue_cookie, event_id, text, max_age_s=DEFAULTS.queue_cookie_s)


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
FAST_ROUTES: list[BaseRoute] = [
    _route(
        "GET", f"{QUEUE_PATH}/status", Status(), summary="Get the status of a place", security=PLACE_CREDENTIALS,
        answers={200: ("The status", StatusAnswer)},
        refusals=UNKNOWN_EVENT | POLLED_TOO_OFTEN | {410: "The room was reset"},
    ),
    _route(
        "POST", QUEUE_PATH, Join(), summary="Join the line", security=[{}, *PLACE_CREDENTIALS],
        parameters=[IDEMPOTENCY_KEY, PROOF_OF_WORK], body=JoinBody, body_required=False,
        answers={201: ("A new place", JoinedAnswer), 200: ("The place this fan has already", JoinedAnswer)},
        refusals=UNKNOWN_EVENT | {
            400: "Malformed key", 401: "Only signed-in fans may join", 403: "Unknown code", 409: "Code used up",
            410: "Closed or sold out", 428: "Solve the challenge first",
            429: "The line is full, or too many from one address, or too many wrong codes",
        },
    ),
    _route(
        "GET", f"{QUEUE_PATH}/challenge", Challenge(), summary="Get a proof-of-work challenge",
        security=[{}, *PLACE_CREDENTIALS], parameters=[IDEMPOTENCY_KEY], refusals=UNKNOWN_EVENT,
        answers={200: ("ALTCHA's challenge", ChallengeAnswer), 204: ("None is required", None)},
    ),
    _route(
        "GET", QUEUE_PATH, PublicLine(), summary="Get the public state of the waiting room", refusals=UNKNOWN_EVENT,
        answers={200: ("The line", LineAnswer), 304: ("Unchanged", None)},
    ),
    _route(
        "POST", f"{QUEUE_PATH}/pass", Claim(), summary="Claim the pass", security=PLACE_CREDENTIALS,
        answers={200: ("Admitted", PassAnswer)},
        refusals=UNKNOWN_EVENT | POLLED_TOO_OFTEN | {409: "Not called yet", 410: "This place has ended"},
    ),
    _route(
        "POST", f"{QUEUE_PATH}/pass/extend", Extend(), summary="Get more time to choose, once",
        security=PLACE_CREDENTIALS, answers={200: ("The pass with its new end", PassAnswer)},
        refusals=UNKNOWN_EVENT | POLLED_TOO_OFTEN
        | {409: "Extended before, or not called yet", 410: "This place has ended, or ends now"},
    ),
    _route(
        "DELETE", QUEUE_PATH, Leave(), summary="Leave the line", security=PLACE_CREDENTIALS,
        answers={204: ("Left", None)}, refusals=UNKNOWN_EVENT | POLLED_TOO_OFTEN,
    ),
]  # fmt: skip
