"""The event streams of the notifier's API: one for an event, one for an order. Both require a token or a cookie."""

import re
from contextlib import suppress
from functools import partial

from starlette.types import ASGIApp

from services.notifier.feeds.feed import ALL_SEATS, SectionFilter, StreamFilter
from services.notifier.problems import MalformedFilter
from services.notifier.state import State
from services.notifier.streams import sse_starlette
from services.notifier.streams.open_stream import TRANSPORTS, Listener
from shared.errors.problems import BadCredential, NotAdmitted, NotAllowed, NotFound, Problem, WrongEvent
from shared.routes import EVENT_ID, REFERENCE, SECTION_ID
from shared.runtime.clock import now_s
from shared.security.tokens import (
    Pass,
    credentials,
    first_valid,
    order_cookie,
    pass_cookie,
    queue_cookie,
    read_order_token,
)
from shared.web.fast_routes import FastRoute
from shared.web.request import Request

EVENT_PATH = "/events/{event_id}/sections/updates"
ORDER_PATH = "/orders/{reference}/updates"
SECTIONS_MAX = 50
_event_id, _reference = re.compile(EVENT_ID), re.compile(REFERENCE)
_filter = re.compile(rf"{SECTION_ID}(,{SECTION_ID}){{0,{SECTIONS_MAX - 1}}}")


async def sections_updates(request: Request) -> ASGIApp:
    """The line and availability, for holders of a place or a pass, and for signed-in users; with seats for holders of a
    pass.
    """
    state, event_id = request.state, _require_match(_event_id, request.path["event_id"])
    query = request.parameters
    stream_filter = StreamFilter(_section_filter(query.get("sections")), _seats_filter(query.get("seats")))
    with_seats = stream_filter.seats is not None
    return partial(
        state.streams.serve,
        listener=await (_admitted if with_seats else _authenticate)(request, state, event_id),
        lease_feed=partial(state.feeds.event, event_id, with_seats=with_seats),
        transport=TRANSPORTS[state.settings.transport],
        stream_filter=stream_filter,
    )


async def order_updates(request: Request) -> ASGIApp:
    """One order, for holders of its token and for the user who made it."""
    state, reference = request.state, _require_match(_reference, request.path["reference"])
    token, *_ = credentials(request.scope, order_cookie(reference, secure=state.settings.secure_cookies))
    user = await _owner_to_check(token, state, reference)
    return partial(
        state.streams.serve,
        listener=Listener(f"order/{reference}"),
        lease_feed=partial(state.feeds.order, reference, user=user),
        transport=sse_starlette.serve,
    )


async def _owner_to_check(token: str, state: State, reference: str) -> str | None:
    """`None` if this is the order's token; for a user's JWT the holder, who must own the order. Raises `NotAllowed` for
    the token of another order, `BadCredential`.
    """
    try:
        order_of_token = read_order_token(state.settings.order_token_keys, token)
    except BadCredential:
        return (await state.users.identify(token)).holder
    if order_of_token != reference:
        raise NotAllowed("This token is for another order. Send the token of this order.")
    return None


def _require_match(pattern: re.Pattern[str], name: str) -> str:
    if not pattern.fullmatch(name):
        raise NotFound
    return name


def _section_filter(text: str | None) -> SectionFilter:
    """The sections of `?sections=A,GA1`; `None` for all sections. Raises `MalformedFilter`."""
    if text is None:
        return None
    if len(text) > SECTIONS_MAX * 33 or not _filter.fullmatch(text):
        raise MalformedFilter
    return frozenset(text.split(","))


def _seats_filter(text: str | None) -> frozenset[str] | None:
    """The sections of `?seats=A,B`, `ALL_SEATS` of `?seats=*`, or `None`. Raises `MalformedFilter`."""
    return ALL_SEATS if text == "*" else _section_filter(text)


async def _admitted(request: Request, state: State, event_id: str) -> Listener:
    """The listener of a pass, as long as it is valid. Raises `NoCredential`, `BadCredential`, `WrongEvent`,
    `NotAdmitted`.
    """

    async def read(text: str) -> Listener:
        if not state.passes.recognises(text):
            raise NotAdmitted("Seats are shown to fans with a pass for this event.")
        at_s = now_s()
        admission = state.passes.read(text, now_s=at_s)
        listener = await _listener_of(admission, state, event_id)
        return listener._replace(lasts_s=admission.expires_at_s - at_s)

    return await first_valid(
        credentials(request.scope, pass_cookie(event_id, secure=state.settings.secure_cookies)), read
    )


async def _authenticate(request: Request, state: State, event_id: str) -> Listener:
    """The listener of the Bearer token, or else of the first valid cookie. Raises `NoCredential`, `BadCredential`,
    `WrongEvent`, `Unavailable`.
    """
    ours = (name(event_id, secure=state.settings.secure_cookies) for name in (queue_cookie, pass_cookie))
    names = filter(None, (*ours, state.settings.user_jwt_cookie))
    return await first_valid(credentials(request.scope, *names), partial(_read_token, state=state, event_id=event_id))


async def _read_token(text: str, *, state: State, event_id: str) -> Listener:
    """Reads a queue token, a pass, or a user's JWT. A user may listen without a place."""
    if state.queue_tokens.recognises(text):
        token = state.queue_tokens.read(text)
    elif state.passes.recognises(text):
        return await _listener_of(state.passes.read(text, now_s=now_s()), state, event_id)
    else:
        user = await state.users.identify(text)
        place = None
        with suppress(Problem):
            place = await user.place(event_id)
        return Listener(f"{event_id}/{user.holder}", place)
    if token.event_id != event_id:
        raise WrongEvent
    return Listener(f"{event_id}/{token.holder}", token, epoch=token.epoch)


async def _listener_of(admission: Pass, state: State, event_id: str) -> Listener:
    """The listener of a pass that is for this event and not revoked. Raises `WrongEvent`, `BadCredential`."""
    if admission.event_id != event_id:
        raise WrongEvent
    await state.pass_streams.require_not_revoked(admission)
    return Listener(f"{event_id}/{admission.holder}", admission=admission, epoch=admission.epoch)


LAST_EVENT_ID = {
    "name": "Last-Event-ID",
    "in": "header",
    "required": False,
    "schema": {"type": "string"},
    "description": "The last received id, `<epoch>.<version>`; browsers send it when they reconnect.",
}
SECTIONS = {
    "name": "sections",
    "in": "query",
    "required": False,
    "schema": {"type": "string"},
    "description": "Only these sections: at most 50, separated by commas.",
}
SEATS = {
    "name": "seats",
    "in": "query",
    "required": False,
    "schema": {"type": "string"},
    "description": "Also the states of the seats of these sections, or of all: `*`. Needs a pass.",
}
REFUSALS = {
    401: "No credential, or not a valid one",
    403: "The credential is for another event or order",
    404: "Unknown event or order",
    410: "The waiting room was reset after the place was given",
}
EVENT_FRAMES = (
    "A snapshot, then at most one frame per window, with the events `line`, `sections`, `seats` and `notice`."
)
ORDER_FRAMES = "Its state, then every change, with the event `order`."
FAST_ROUTES = (
    FastRoute(
        "GET", EVENT_PATH, sections_updates, tag="streams", summary="Stream the line and the sections of an event",
        parameters=[SECTIONS, SEATS, LAST_EVENT_ID], answers={200: (EVENT_FRAMES, "text/event-stream")},
        refusals=REFUSALS | {422: "Malformed filter of sections or seats"},
    ),
    FastRoute(
        "GET", ORDER_PATH, order_updates, tag="streams", summary="Stream an order",
        parameters=[LAST_EVENT_ID], answers={200: (ORDER_FRAMES, "text/event-stream")}, refusals=REFUSALS,
    ),
)  # fmt: skip
