"""The gateway's app: opens its connections, starts its loops, hands them to its doors.

It has no engine of its own to be ready for: without Redis it asks the queue for frames, and joining goes on.
"""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress

from fastapi import FastAPI

from services.gateway.api import forward_auth, lottery, pages, problem_pages
from services.gateway.api import queue as api_queue
from services.gateway.api.openapi import document_hot_paths
from services.gateway.forward_auth.fail_open import FailOpenWindow
from services.gateway.forward_auth.handover_codes import OneTimeCodes
from services.gateway.forward_auth.revoked_passes import RevokedPasses
from services.gateway.protection.identity import TokenReader
from services.gateway.protection.proof_of_work import ArrivalRate, Challenges, JoinPolicy
from services.gateway.protection.rate_limits import RateLimits
from services.gateway.settings import Settings
from services.gateway.state import State
from services.gateway.waiting_line.cache import POLL_S, LineCache
from services.gateway.waiting_line.heartbeats import Heartbeats
from services.gateway.waiting_line.join_batcher import JoinBatcher
from services.gateway.waiting_line.lottery_cache import LotteryCache
from services.gateway.waiting_line.place_client import PlaceClient
from shared.contracts.lottery import LotteryClient
from shared.contracts.queue import QueueClient
from shared.redis.client import Redis, connect
from shared.rpc.client import ServiceClient, client
from shared.rpc.user_places import UserPlaces
from shared.runtime.background import Loops
from shared.security.guess_limiter import WrongCodesOfAddresses
from shared.security.tokens import PassReader
from shared.security.user_jwt import Users, signed_in
from shared.web import api_document
from shared.web.app import create_service
from shared.web.problems import Problem


def create_app(settings: Settings | None = None) -> FastAPI:
    """The gateway, not yet connected to anything."""
    chosen = settings or Settings()

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        async with AsyncExitStack() as stack:
            redis = connect(chosen.redis_url)
            stack.push_async_callback(redis.aclose)
            pool = await stack.enter_async_context(client())
            neighbour = ServiceClient(pool, chosen.queue_url, chosen.service_keys, name="queue")
            users = await stack.enter_async_context(signed_in(chosen))
            state = app.state.deps = build_state(chosen, redis, neighbour, users)
            stack.push_async_callback(_close, state)
            loops = await stack.enter_async_context(Loops())
            loops.keep(state.board.listen, name="gateway.listen")
            loops.every(POLL_S, state.board.poll, name="gateway.poll")
            loops.keep(state.revocations.listen, name="gateway.revoked")
            loops.every(POLL_S, state.revocations.ask_again, name="gateway.revocations")
            loops.keep(state.life.run, name="gateway.life")
            yield

    app = create_service(
        "gateway",
        chosen,
        title="gateway",
        lifespan=lifespan,
        routers=[forward_auth.router, lottery.router, pages.router, problem_pages.router],
        hot_routes=[*api_queue.HOT_ROUTES, *pages.MOUNTS],
    )
    document_hot_paths(app)
    api_document.complete(app)
    return app


def build_state(settings: Settings, redis: Redis, neighbour: ServiceClient, users: Users) -> State:
    queue = QueueClient(neighbour)
    board = LineCache(redis, queue, settings)
    identities = TokenReader(
        settings.queue_token_keys,
        users,
        holder_keys=settings.holder_keys,
        cache_entries_max=settings.cache_entries_max,
        secure=settings.secure_cookies,
    )
    limits = RateLimits(settings)
    places = PlaceClient(queue, waiting_max=settings.pending_requests_max, cache_entries_max=settings.cache_entries_max)
    challenges, arrivals = Challenges(settings.queue_token_keys), ArrivalRate(events_max=settings.rate_limit_keys_max)
    return State(
        settings=settings,
        board=board,
        identities=identities,
        joins=JoinBatcher(
            queue,
            board,
            waiting_max=settings.joins_waiting_max,
            wrong_codes_per_s=settings.wrong_codes_per_s,
            wrong_codes_of_addresses=WrongCodesOfAddresses(settings),
        ),
        places=places,
        user_places=UserPlaces(
            queue,
            name="gateway",
            waiting_max=settings.pending_requests_max,
            cache_entries_max=settings.cache_entries_max,
        ),
        life=Heartbeats(queue),
        passes=PassReader(settings.pass_public_keys, seal=settings.service_keys),
        handovers=OneTimeCodes(redis),
        outages=FailOpenWindow(),
        revocations=RevokedPasses(redis, queue),
        lotteries=LotteryCache(LotteryClient(neighbour)),
        door=JoinPolicy(identities, challenges, arrivals, limits=limits, places=places),
        limits=limits,
    )


async def _close(state: State) -> None:
    """Answers who waits, then says goodbye, so that the queue does not take our silence for deafness."""
    await state.joins.close()
    await state.places.close()
    await state.user_places.close()
    await state.board.close()
    await state.lotteries.close()
    await state.revocations.close()
    with suppress(Problem):
        await state.life.report(goodbye=True)
