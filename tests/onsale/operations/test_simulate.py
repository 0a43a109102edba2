"""`onsale simulate`: simulated fans retry after 429, and a run in which no fan joined or bought fails."""

import random
from collections import Counter

import httpx
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from onsale.client import Problem
from onsale.simulate.browser import Browser, CallTimes
from onsale.simulate.observations import Observations
from shared.http.http1 import HttpClient
from tests.support.running.serving import serving


class BusyBalancer:
    """A load balancer that refuses the first `refusals` requests with a page of its own."""

    def __init__(self, refusals: int) -> None:
        self.refusals, self.requests = refusals, 0

    async def answer(self, request: Request) -> Response:
        self.requests += 1
        if self.requests <= self.refusals:
            return Response("<h1>429</h1>", 429, {"retry-after": "0"}, media_type="text/html")
        return JSONResponse({"sections": []})

    @property
    def app(self) -> Starlette:
        return Starlette(routes=[Route("/events/e/sections", self.answer)])


@pytest.mark.parametrize(("refusals", "status"), [(3, 200), (1000, 429)])
async def test_a_simulated_fan_retries_after_429_up_to_five_times(refusals: int, status: int) -> None:
    busy, calls = BusyBalancer(refusals), CallTimes()
    async with serving(busy.app) as port, HttpClient(connections_max=1) as http, httpx.AsyncClient() as streams:
        browser = Browser(http, streams, f"http://127.0.0.1:{port}", calls, random.Random(1))
        if status == 200:
            assert await browser.sections("e") == {"sections": []}
        else:
            with pytest.raises(Problem) as refused:
                await browser.sections("e")
            assert (refused.value.status, refused.value.title) == (status, "HTTP 429")
    assert calls.endings["sections", 429] == min(refusals, 6)
    assert busy.requests == min(refusals + 1, 6), "no sixth retry"


def test_a_run_without_joins_or_purchases_fails() -> None:
    assert Observations().failures == ["nobody joined: nothing was tried"]
    successful = Observations(joined=3, held=2, bought=1)
    assert successful.failures == []
    assert Observations(joined=3, held=2, bought=1, failed=Counter({"sections 429": 2})).failures == [
        "2 times sections 429"
    ]
    assert Observations(joined=3, held=2).failures == ["nobody bought anything, although tickets were held"]
