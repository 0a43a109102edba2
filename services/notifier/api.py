"""The notifier's two doors: what listens there shows a token, and is then held by the hub."""

import re

from starlette.requests import Request
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from services.notifier.feeds.feed import SectionFilter
from services.notifier.problems import MalformedFilter
from services.notifier.state import State
from services.notifier.streams.open_stream import Listener, Stream
from shared.runtime.clock import now_s
from shared.security.auth import bearer, order_cookie, pass_cookie, queue_cookie, require_credential
from shared.security.order_tokens import read_order_token
from shared.security.tokens import QueueToken
from shared.security.user_jwt import User
from shared.web.problems import BadCredential, NoCredential, NotAllowed, NotFound, Problem, WrongEvent
from shared.web.routes import EVENT_ID, REFERENCE, SECTION_ID

EVENT_PATH = "/events/{event_id}/sections/updates"
ORDER_PATH = "/orders/{reference}/updates"
SECTIONS_MAX = 50
_event_id, _reference = re.compile(EVENT_ID), re.compile(REFERENCE)
_filter = re.compile(rf"{SECTION_ID}(,{SECTION_ID}){{0,{SECTIONS_MAX - 1}}}")


class SectionsUpdates:
    """`GET /events/{event_id}/sections/updates`: the line and what is left, for whoever has a place or a pass."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request, state = _asked(scope)
        event_id = _matching(_event_id, request.path_params["event_id"])
        only = _only(request.query_params.get("sections"))
        listener = await _listener(request, state, event_id)
        stream = Stream(state, scope, receive, send, transport=state.settings.transport)
        await stream.serve(listener, state.following.event(event_id), only)


class OrderUpdates:
    """`GET /orders/{reference}/updates`: one order, for who has its token, or for the user who made it."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request, state = _asked(scope)
        reference = _matching(_reference, request.path_params["reference"])
        token = require_credential(request, order_cookie(reference, secure=state.settings.secure_cookies))
        user = await _user_unless_opened(token, state, reference)
        stream = Stream(state, scope, receive, send, transport=state.settings.orders_transport)
        await stream.serve(Listener(f"order/{reference}"), state.following.order(reference, user=user))


async def _user_unless_opened(token: str, state: State, reference: str) -> str | None:
    """Nothing if the token opens this order, else the signed-in holder, who must own it. Raises `NotAllowed` for the
    token of another order, `BadCredential`.
    """
    try:
        opens = read_order_token(state.settings.order_token_keys, token)
    except BadCredential:
        return (await state.users.read(token)).holder
    if opens != reference:
        raise NotAllowed("This token opens another order.")
    return None


def _asked(scope: Scope) -> tuple[Request, State]:
    return Request(scope), scope["app"].state.deps


def _matching(pattern: re.Pattern[str], name: str) -> str:
    if not pattern.fullmatch(name):
        raise NotFound
    return name


def _only(text: str | None) -> SectionFilter:
    """The sections of `?sections=A,GA1`; `None` for all of them."""
    if text is None:
        return None
    if len(text) > SECTIONS_MAX * 33 or not _filter.fullmatch(text):
        raise MalformedFilter
    return frozenset(text.split(","))


async def _listener(request: Request, state: State, event_id: str) -> Listener:
    """Who listens, by the Bearer token or else by the first cookie that is good."""
    token = bearer(request)
    ours = (name(event_id, secure=state.settings.secure_cookies) for name in (queue_cookie, pass_cookie))
    names = (*ours, state.settings.user_jwt_cookie)
    cookies = (request.cookies.get(name) for name in names if name)
    tokens = [token] if token is not None else [cookie for cookie in cookies if cookie]
    refused: BadCredential | NoCredential = NoCredential()
    for text in tokens:
        try:
            return await _read(text, state, event_id)
        except BadCredential as bad:
            refused = bad
    raise refused


async def _read(text: str, state: State, event_id: str) -> Listener:
    """A queue token, a pass, or a user's JWT. Raises `BadCredential`, `WrongEvent`, `Unavailable`."""
    if state.queue_tokens.is_one(text):
        place = state.queue_tokens.read(text)
        _require_event(place.event_id, event_id)
        return Listener(f"{event_id}/{place.holder}", place)
    if state.passes.is_one(text):
        admission = state.passes.read(text, now_s=now_s())
        _require_event(admission.event_id, event_id)
        return Listener(f"{event_id}/{admission.holder}")
    user = await state.users.read(text)
    return Listener(f"{event_id}/{user.holder}", await _place(state, event_id, user))


async def _place(state: State, event_id: str, user: User) -> QueueToken | None:
    """The place that listening is a sign of life of; without one, a user may listen all the same."""
    try:
        return await state.user_places.place(event_id, user.holder)
    except Problem:
        return None


def _require_event(of_token: str, event_id: str) -> None:
    if of_token != event_id:
        raise WrongEvent


HOT_ROUTES = (
    Route(EVENT_PATH, SectionsUpdates(), methods=["GET"]),
    Route(ORDER_PATH, OrderUpdates(), methods=["GET"]),
)
