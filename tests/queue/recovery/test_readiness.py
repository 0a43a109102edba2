"""Readiness is honest: false at the next probe after a database is lost or hangs, and true again once it is back."""

import asyncio

import httpx
import pytest

from services.queue.app import create_app
from services.queue.settings import Settings
from shared.web.app import READY_DEADLINE_S, READY_KEPT_S, public
from tests.support.engines.tcp_proxy import Mode, TcpProxy
from tests.support.wait import wait_until

PROBE_S = 1.0  # between two probes of a load balancer


@pytest.mark.parametrize("mode", ["resets", pytest.param("swallows", marks=pytest.mark.proof)])
@pytest.mark.parametrize("which", ["postgres", "redis"])
async def test_readiness_turns_within_one_probe_and_back(
    redis_url: str, postgres_url: str, which: str, mode: Mode
) -> None:
    with TcpProxy(postgres_url) as postgres, TcpProxy(redis_url) as redis:
        settings = Settings(redis_url=redis.url, postgres_url=postgres.url, log_requests=False)
        app = create_app(settings)
        async with (
            app.router.lifespan_context(app),
            httpx.AsyncClient(transport=httpx.ASGITransport(public(app)), base_url="http://queue") as client,
        ):

            async def probe(path: str = "/readyz") -> int:
                async with asyncio.timeout(READY_DEADLINE_S + 1):
                    return (await client.get(path)).status_code

            async def is_ready() -> bool:
                return await probe() == 200

            await wait_until(is_ready)
            lost = {"postgres": postgres, "redis": redis}[which]
            lost.set_mode(mode)
            await asyncio.sleep(max(PROBE_S, READY_KEPT_S))
            assert await probe() == 503
            assert await probe("/livez") == 200, "the process is alive; restarting it would help nobody"
            lost.set_mode("passes")
            if mode == "swallows":
                lost.set_mode("resets")  # what hung does not come back by itself
                lost.set_mode("passes")
            await wait_until(is_ready, timeout_s=10, interval_s=PROBE_S)
