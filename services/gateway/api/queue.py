"""The line's public calls: join, status, the line, pass, leave. ASGI classes, as crowds come here.

Each reads what it needs straight from the scope and answers with bytes; problems rise to the app's handlers.
"""

from collections.abc import Callable
from contextlib import suppress
from typing import Any, TypeVar

import orjson
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, ValidationError
from starlette.routing import BaseRoute, Route
from starlette.types import Receive, Scope, Send

from services.gateway.api.schemas import JoinBody, NothingBody
from services.gateway.metrics import CLAIMS, POLLS
from services.gateway.protection.identity import Claims, head
from services.gateway.state import State
from services.gateway.waiting_line.place_client import ENDED
from services.gateway.waiting_line.snapshot import LineSnapshot
from shared.contracts.queue import Claimed, PlaceState
from shared.contracts.queue import Join as FanAtTheDoor
from shared.rules.rollout import outside
from shared.runtime.clock import now_ms, rfc3339
from shared.security.auth import pass_cookie, queue_cookie, set_cookie
from shared.security.tokens import QueueToken
from shared.web.fast_routes import JSON, NO_STORE, QUIET_KEY, answer, whole_body
from shared.web.problems import NotAdmitted, PlaceExpired, Problem, RoomClosed, SoldOut, StaleEpoch

PUBLIC_1_S = (b"cache-control", b"public, max-age=1")
Body = TypeVar("Body", bound=BaseModel)
WAITING: frozenset[PlaceState] = frozenset({"prequeue", "waiting"})
_by_arithmetic, _from_memory, _by_asking = (POLLS.labels(how) for how in ("arithmetic", "memory", "queue"))


def context(scope: Scope) -> tuple[State, str]:
    """The room of this process and the event that is asked about."""
    scope[QUIET_KEY] = True
    return scope["app"].state.deps, scope["path_params"]["event_id"]


class Status:
    """A waiting place is arithmetic on the frame in memory; one at or below the head is asked about, in batches."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        state, event_id = context(scope)
        token = state.identities.queue_token(scope, event_id) or await state.place(scope, event_id)
        state.limits.fan(event_id, token.holder)
        line = state.board.seen(event_id)
        if line is None or line.epoch != token.epoch:
            line = await state.board.line_of(event_id, token.epoch)
        state.life.heard(event_id, token.epoch, token.lane, token.join_seq)
        position = line.position(token.lane, token.join_seq)
        if position > 0 and not may_bypass(scope, line, token):
            _by_arithmetic.inc()
            body = waiting(line, token, position)
            state.board.told(event_id, token.lane, body.get("rank") or token.join_seq, body)
        else:
            body = await status_from_queue(state, line, token)
        renewed = (_keep_place(state, token),) if state.identities.outdated(token) else ()
        await answer(send, 200, orjson.dumps(body), JSON, NO_STORE, *renewed)


def waiting(line: LineSnapshot, token: QueueToken, position: int) -> dict[str, Any]:
    """The status of a place above the head."""
    wait_s = line.estimated_wait_s(position, token.lane)
    return {
        "status": "prequeue" if line.before_sale or token.lane in line.closed_lanes else "waiting",
        "join_seq": token.join_seq,
        **line.public_position(token.lane, token.join_seq, position),
        "estimated_wait_time": wait_s,
        **line.estimated_range(position, token.lane),
        "estimate_changed": line.estimate_changed(token.issued_at_s, token.lane),
        "head_seq": line.heads.get(token.lane, 0),
        "poll_after_ms": line.poll_after_ms(wait_s, token.join_seq),
        "message": line.message,
    }


async def status_from_queue(state: State, line: LineSnapshot, token: QueueToken) -> dict[str, Any]:
    """The status of a place at or below the head: only the queue knows."""
    status = state.places.remembered(token)
    if status is None:
        _by_asking.inc()
        status = await state.places.status(token)
    else:
        _from_memory.inc()
    near = status.status == "ready" or status.status in WAITING
    return {
        "status": status.status,
        "join_seq": token.join_seq,
        **line.public_position(token.lane, token.join_seq, line.position(token.lane, token.join_seq)),
        **({} if status.status in WAITING else {"position_in_queue": 0}),
        "estimated_wait_time": None if status.status in WAITING else 0,
        "estimate_changed": None,
        "head_seq": line.heads.get(token.lane, 0),
        "poll_after_ms": line.min_poll_ms() if near else line.poll_after_ms(None, token.join_seq),
        "message": line.message,
        **({"until": rfc3339(status.until_ms)} if status.until_ms is not None else {}),
        **({"why": status.why} if status.why is not None else {}),
    }


def may_bypass(scope: Scope, line: LineSnapshot, token: QueueToken) -> bool:
    """Whether a place above the head may have been called all the same: outside the rolled-out share, or with a pass
    from when it was.
    """
    if line.rollout_percent < 100 and outside(token.event_id, token.holder, line.rollout_percent):
        return True
    return any(name == b"cookie" and b"onsale_pass_" in value for name, value in scope["headers"])


class Join:
    """Takes a fan into the line; the same fan again gets the same place."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        state, event_id = context(scope)
        fan, claims = await identify(state, scope, event_id)
        said = await read(receive, JoinBody)
        line = await state.board.line(event_id)
        if said is not None and said.from_gate and line.rollout_percent < 100:
            fan = state.identities.inside(scope, event_id, fan, line.rollout_percent)
        fan = await state.door.admit(scope, event_id, line, fan)
        if said is not None and said.code is not None:
            fan = fan.model_copy(update={"code": said.code})
        place = await state.joins.join(event_id, fan, claims, address=state.limits.address_of(scope))
        token = QueueToken(event_id, place.epoch, place.lane, place.join_seq, fan.holder, now_ms() // 1000)
        state.life.heard(event_id, token.epoch, token.lane, token.join_seq)
        line = await state.board.line(event_id)
        position = line.position(token.lane, token.join_seq) if line.epoch == token.epoch else 0
        text = state.identities.sign(token)
        if fan.user_id is not None:
            state.user_places.took(token)
        body = {
            "queue_token": text if fan.user_id is None else None,
            "join_seq": token.join_seq,
            "lane": token.lane,
            **(
                line.public_position(token.lane, token.join_seq, position)
                if line.epoch == token.epoch
                else {"position_in_queue": 0}
            ),
            "estimated_wait_time": line.estimated_wait_s(position, place.lane) if place.status in WAITING else 0,
            **(line.estimated_range(position, place.lane) if place.status in WAITING else {}),
            "status": place.status,
            "epoch": token.epoch,
        }
        kept = _cookie(state, queue_cookie, event_id, text, max_age_s=state.settings.queue_cookie_s)
        await answer(send, 200 if place.known else 201, orjson.dumps(body), JSON, NO_STORE, kept)


async def identify(state: State, scope: Scope, event_id: str) -> tuple[FanAtTheDoor, Claims | None]:
    """Who stands at the door, within the limits of their address and their own."""
    state.limits.address(scope)
    fan, claims = await state.identities.join(scope, event_id)
    if fan.may_be_known:
        state.limits.fan(event_id, fan.holder)
    return fan, claims


class Challenge:
    """Work to solve before joining, for who would rather not be sent for it: 204 while the room asks for none."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        state, event_id = context(scope)
        fan, _ = await identify(state, scope, event_id)
        challenge = state.door.challenge(scope, event_id, await state.board.line(event_id), fan)
        if challenge is None:
            await answer(send, 204, b"", NO_STORE)
        else:
            await answer(send, 200, orjson.dumps(challenge), JSON, NO_STORE)


async def read(receive: Receive, kind: type[Body]) -> Body | None:
    """What the body says, or nothing if it is empty. What `kind` does not know is refused, field by field."""
    body = await whole_body(receive)
    if not body.strip():
        return None
    try:
        return kind.model_validate_json(body)
    except ValidationError as refused:
        errors = [{**error, "loc": ("body", *error["loc"])} for error in refused.errors(include_input=False)]
        raise RequestValidationError(errors) from refused


class LineAsSeen:
    """The line as everybody sees it: the same bytes for all, cacheable for a second."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        state, event_id = context(scope)
        line = await state.board.line(event_id)
        etag = (b"etag", line.etag)
        if line.etag in head(scope).get(b"if-none-match", b""):
            await answer(send, 304, b"", etag, PUBLIC_1_S)
        else:
            await answer(send, 200, line.body(), JSON, etag, PUBLIC_1_S)


class Claim:
    """Fetches the pass of a fan who was called. Somebody not called is refused from the frame, if it is fresh."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        state, event_id = context(scope)
        token = await state.place(scope, event_id)
        state.limits.fan(event_id, token.holder)
        await read(receive, NothingBody)
        line = await state.board.line_of(event_id, token.epoch)
        state.life.heard(event_id, token.epoch, token.lane, token.join_seq)
        waits = line.position(token.lane, token.join_seq) > 0 and not may_bypass(scope, line, token)
        if waits and state.board.fresh(line):
            CLAIMS.labels("not-admitted-by-frame").inc()
            raise not_called(line)
        try:
            claimed = await state.places.claim(token)
        except SoldOut as over:
            raise SoldOut(over.detail, status=410) from over
        CLAIMS.labels(claimed.word).inc()
        await self._admit(state, line, token, claimed, send)

    async def _admit(self, state: State, line: LineSnapshot, token: QueueToken, claimed: Claimed, send: Send) -> None:
        if claimed.word in ENDED:
            why: dict[str, Any] = {"why": claimed.why} if claimed.why is not None else {}
            raise PlaceExpired(f"This place has ended: {claimed.word}. You may join again.", place=claimed.word, **why)
        if claimed.admission is None or claimed.expires_at_ms is None:
            raise not_called(line)
        body = {
            "pass": claimed.admission,
            "expires_at": rfc3339(claimed.expires_at_ms),
            "checkout_key": claimed.checkout_key,
            "status": "admitted",
        }
        max_age_s = max(0, (claimed.expires_at_ms - now_ms()) // 1000)
        kept = _cookie(state, pass_cookie, token.event_id, claimed.admission, max_age_s=max_age_s)
        await answer(send, 200, orjson.dumps(body), JSON, NO_STORE, kept)


def not_called(line: LineSnapshot) -> Problem:
    """Not yet: ask again as a waiting fan would. Or never: the sale is over."""
    if line.frame.state == "closed":
        return RoomClosed()
    if line.frame.state == "sold_out":
        return SoldOut("Every ticket has found an owner.", status=410)
    return NotAdmitted(status=409, retry_after_s=max(1, line.min_poll_ms() // 1000))


class Leave:
    """Gives up the place. A place of a line that was reset is gone already."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        state, event_id = context(scope)
        token = await state.place(scope, event_id)
        state.limits.fan(event_id, token.holder)
        await read(receive, NothingBody)
        with suppress(StaleEpoch):
            await state.places.leave(token)
        gone = (_cookie(state, name, event_id, "", max_age_s=0) for name in (queue_cookie, pass_cookie))
        await answer(send, 204, b"", NO_STORE, *gone)


def _keep_place(state: State, token: QueueToken) -> tuple[bytes, bytes]:
    """The cookie with this place's token; asking how it stands renews it when its key has rotated."""
    text = state.identities.sign(token)
    return _cookie(state, queue_cookie, token.event_id, text, max_age_s=state.settings.queue_cookie_s)


def _cookie(
    state: State, name: Callable[..., str], event_id: str, value: str, *, max_age_s: int
) -> tuple[bytes, bytes]:
    secure = state.settings.secure_cookies
    kept = set_cookie(name(event_id, secure=secure), value, max_age_s=max_age_s, secure=secure)
    return b"set-cookie", kept.encode()


PATH = "/events/{event_id}/queue"
HOT_ROUTES: list[BaseRoute] = [
    Route(f"{PATH}/status", Status(), methods=["GET"]),
    Route(PATH, Join(), methods=["POST"]),
    Route(f"{PATH}/challenge", Challenge(), methods=["GET"]),
    Route(PATH, LineAsSeen(), methods=["GET"]),
    Route(f"{PATH}/pass", Claim(), methods=["POST"]),
    Route(PATH, Leave(), methods=["DELETE"]),
]
