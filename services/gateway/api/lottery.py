"""The lottery's public data, with which anyone can verify it, and a fan's own proof of entry."""

from functools import partial
from inspect import getdoc

from services.gateway.state import State
from shared.contracts.fields import EVENT_ID_PATTERN
from shared.contracts.lottery import EntryProof, PublishedLottery
from shared.web.answers import JSON, NO_STORE, Answer, compressed
from shared.web.fast_routes import FastRoute
from shared.web.request import Request

PUBLIC_1_S = (b"cache-control", b"public, max-age=1")


async def published(request: Request) -> Answer:
    """Commitment and rules from the beginning; number and hash of the entrants once entry has closed; public value and
    seed once it is drawn.
    """
    state: State = request.state
    event_id = request.path["event_id"]
    found = await state.lottery_cache.published(event_id, known=state.line_cache.cached(event_id) is not None)
    return compressed(request.fields, Answer(200, found.model_dump_json().encode(), (JSON, PUBLIC_1_S)))


async def proof(request: Request) -> Answer:
    """The proof that the place of this queue token was among the entrants when entry closed."""
    state: State = request.state
    event_id = request.path["event_id"]
    token = await state.require_place(request.scope, event_id)
    state.rate_limits.check_fan(event_id, token.holder)
    found = await state.lottery_cache.prove(token)
    return compressed(request.fields, Answer(200, found.model_dump_json().encode(), (JSON, NO_STORE)))


_route = partial(FastRoute, "GET", tag="line", patterns={"event_id": EVENT_ID_PATTERN})
FAST_ROUTES = [
    _route(
        "/events/{event_id}/queue/lottery", published, summary="Get the lottery of the pre-queue",
        description=getdoc(published), answers={200: ("The lottery", PublishedLottery)},
    ),
    _route(
        "/events/{event_id}/queue/lottery/proof", proof, summary="Get my lottery entry", description=getdoc(proof),
        answers={200: ("The proof", EntryProof)},
    ),
]  # fmt: skip
