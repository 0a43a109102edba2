"""The console's app: opens its connections, gathers figures, and ends its streams at shutdown.

It needs none of the others to start: a part that is away is named on every screen instead.
"""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

import httpx
from fastapi import FastAPI

from features.console.api import FAST_ROUTES, State, router
from features.console.approvals import Approvals
from features.console.gathering.admin_api import AdminApi
from features.console.gathering.alertmanager import Alertmanager
from features.console.gathering.frames import FrameCache
from features.console.gathering.history import Samples
from features.console.gathering.registry import Gathering
from features.console.rehearsals import Records, Rehearsals
from features.console.settings import Settings
from features.console.sign_in import OneTimeLink, Sessions
from features.console.tuning import DEFAULTS, Tuning
from shared.concurrency.background import Loops
from shared.postgres import engine as postgres_engine
from shared.postgres.schema_version import SchemaCheck
from shared.process.load import LOAD_S, Load
from shared.redis import client as redis_client
from shared.web.app import create_service
from shared.web.parts import Databases, with_settings_of_parts

TICK_S, FORGET_S = 1.0, 3600.0


def create_app(settings: Settings | None = None, tuning: Tuning = DEFAULTS) -> FastAPI:
    """The console, not yet connected to anything."""
    chosen = settings or with_settings_of_parts(Settings, "console")()

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        async with AsyncExitStack() as stack:
            db = postgres_engine.connect(chosen, name="console")
            stack.push_async_callback(db.dispose)
            await SchemaCheck(db, "console").check_at_start()
            redis = redis_client.connect(chosen.redis_url, service="console")
            stack.push_async_callback(redis.aclose)
            app.state.databases = Databases(redis, db)
            urls = (chosen.admin_url, chosen.alertmanager_url or "http:")
            verify = not all(url.startswith("http:") for url in urls)  # certificates take a while to load
            client = await stack.enter_async_context(httpx.AsyncClient(trust_env=False, verify=verify))
            admin = AdminApi(client, chosen.admin_url, chosen.service_keys, deadline_s=tuning.answer_max_s)
            frames, samples = FrameCache(redis), Samples(db, kept_days=chosen.samples_kept_days)
            alertmanager = _alertmanager(stack, client, chosen, tuning)
            second_persons = Approvals(db, chosen.service_keys, chosen.two_persons)
            link = OneTimeLink(db, chosen.link_secret)
            state = app.state.deps = State(
                settings=chosen,
                tuning=tuning,
                admin=admin,
                gathering=Gathering(
                    chosen, admin, frames, samples, alertmanager, approvals=second_persons, tuning=tuning
                ),
                samples=samples,
                approvals=second_persons,
                rehearsals=Rehearsals(Records(redis), admin, chosen, tuning),
                sessions=Sessions(chosen.admin_keys, link, app.state.wrong_keys),
            )
            app.state.on_drain += [state.gathering.end_streams, state.rehearsals.close]
            stack.push_async_callback(state.rehearsals.close)  # for servers that do not run `on_drain`
            stack.push_async_callback(state.gathering.close)
            loops = await stack.enter_async_context(Loops("console"))
            frames.start(loops)
            _start_loops(loops, state, redis)
            stack.push_async_callback(state.gathering.end_streams)  # for servers that do not run `on_drain`
            yield

    return create_service(
        "console", chosen, title="console", lifespan=lifespan, fast_routes=FAST_ROUTES, routers=[router]
    )


def _start_loops(loops: Loops, state: State, redis: redis_client.Redis) -> None:
    loops.every(TICK_S, state.gathering.tick, name="console.gathering")
    loops.every(TICK_S, state.gathering.sample, name="console.samples")
    loops.every(FORGET_S, state.samples.forget, name="console.samples_forget")
    loops.every(FORGET_S, state.approvals.forget, name="console.approvals_forget")
    presence = Load("console")
    loops.every(LOAD_S, lambda: presence.publish(redis), name="console.load")


def _alertmanager(
    stack: AsyncExitStack, client: httpx.AsyncClient, settings: Settings, tuning: Tuning
) -> Alertmanager | None:
    if not settings.alertmanager_url:
        return None
    alertmanager = Alertmanager(client, settings.alertmanager_url, deadline_s=tuning.answer_max_s)
    stack.push_async_callback(alertmanager.close)
    return alertmanager
