"""The part of the gateway: a lottery's public data, with which anyone can verify it, and a fan's own proof of entry.

Public data is cached for a second; a proof is requested once for each place at a time.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from inspect import getdoc

from features.lottery.contracts import EntryProof, NoLottery, ProofQuestion, PublishedLottery
from services.gateway.api.queue import PLACE_CREDENTIALS
from services.gateway.state import State
from shared.concurrency.background import Loops
from shared.concurrency.coalescing import CachedReads, SingleFlight
from shared.contracts.fields import EVENT_ID_PATTERN
from shared.contracts.queue import PlaceRef, RoomQuestion
from shared.errors.problems import UnknownEvent
from shared.rpc import ServiceClient
from shared.security.tokens import QueueToken
from shared.web.answers import JSON, NO_STORE, Answer, compressed
from shared.web.fast_routes import FastRoute
from shared.web.parts import Part
from shared.web.request import Request

PUBLIC_1_S = (b"cache-control", b"public, max-age=1")
PUBLISHED_TTL_S = 1.0
EVENTS_MAX = 1_000
REQUESTS_MAX = 16
LotteryAnswer = PublishedLottery | NoLottery | UnknownEvent


class LotteryCache:
    """Caches published lotteries; at most `REQUESTS_MAX` requests of each kind are under way."""

    def __init__(self, queue: ServiceClient) -> None:
        self._queue = queue
        self._published: CachedReads[LotteryAnswer] = CachedReads(
            kept_s=PUBLISHED_TTL_S, keys_max=EVENTS_MAX, in_flight_max=REQUESTS_MAX
        )
        self._proofs: SingleFlight[EntryProof] = SingleFlight(in_flight_max=REQUESTS_MAX)

    async def published(self, event_id: str, *, known: bool) -> PublishedLottery:
        """`known`: whether the event is. Raises `NoLottery`, `UnknownEvent`, `Overloaded`."""
        answer = await self._published.get(event_id, partial(self._fetch, event_id), known=known)
        if isinstance(answer, Exception):
            raise type(answer)(answer.detail)
        return answer

    async def _fetch(self, event_id: str) -> LotteryAnswer:
        try:
            return await self._queue.call("/lottery", RoomQuestion(event_id=event_id), PublishedLottery)
        except (NoLottery, UnknownEvent) as problem:
            return problem

    async def prove(self, token: QueueToken) -> EntryProof:
        """Raises `NotEntered`, `StaleEpoch`, `Overloaded`."""
        place = PlaceRef(lane=token.lane, join_seq=token.join_seq, holder=token.holder)
        question = ProofQuestion(event_id=token.event_id, epoch=token.epoch, place=place)
        ask = partial(self._queue.call, "/lottery/proof", question, EntryProof)
        return await self._proofs.run(question.model_dump_json(), ask)

    async def close(self) -> None:
        """Cancels pending requests."""
        await self._published.close()
        await self._proofs.close()


async def published(request: Request) -> Answer:
    """Commitment and rules from the beginning; number and hash of the entrants once entry has closed; public value and
    seed once it is drawn.
    """
    state: State = request.state
    event_id = request.path["event_id"]
    found = await request.part(LotteryCache).published(event_id, known=state.line_cache.cached(event_id) is not None)
    return compressed(request.fields, Answer(200, found.model_dump_json().encode(), (JSON, PUBLIC_1_S)))


async def proof(request: Request) -> Answer:
    """The proof that the place of this queue token was among the entrants when entry closed."""
    state: State = request.state
    event_id = request.path["event_id"]
    token = await state.require_place(request.scope, event_id)
    state.rate_limits.check_fan(event_id, token.holder)
    found = await request.part(LotteryCache).prove(token)
    return compressed(request.fields, Answer(200, found.model_dump_json().encode(), (JSON, NO_STORE)))


_route = partial(FastRoute, "GET", tag="line", patterns={"event_id": EVENT_ID_PATTERN})
FAST_ROUTES = [
    _route(
        "/events/{event_id}/queue/lottery", published, summary="Get the lottery of the pre-queue",
        description=getdoc(published), answers={200: ("The lottery", PublishedLottery)},
    ),
    _route(
        "/events/{event_id}/queue/lottery/proof", proof, summary="Get my lottery entry", description=getdoc(proof),
        security=PLACE_CREDENTIALS, answers={200: ("The proof", EntryProof)},
    ),
]  # fmt: skip


@asynccontextmanager
async def open_cache(state: State, _loops: Loops) -> AsyncIterator[LotteryCache]:
    settings = state.settings
    cache = LotteryCache(ServiceClient(state.connections, settings.queue_url, settings.service_keys, name="queue"))
    try:
        yield cache
    finally:
        await cache.close()


PART = Part(fast_routes=FAST_ROUTES, open=open_cache)
