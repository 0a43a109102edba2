"""The simulated crowd obeys "not now", and a crowd that could not try anything is no success."""

import asyncio
import json
import random
from collections import Counter
from pathlib import Path

import httpx
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from onsale.simulate.browser import Browser, CallTimes
from onsale.simulate.observations import Observations
from shared.rpc.http1 import HttpClient
from tests.support.running.command_line import Command
from tests.support.running.serving import serving
from tests.support.running.suite import RunningSuite


class Busy:
    """A balancer that turns away the first so many requests, in words of its own, before it lets one through."""

    def __init__(self, refusals: int) -> None:
        self.refusals, self.asked = refusals, 0

    async def answer(self, request: Request) -> Response:
        self.asked += 1
        if self.asked <= self.refusals:
            return Response("<h1>429</h1>", 429, {"retry-after": "0"}, media_type="text/html")
        return JSONResponse({"sections": []})

    @property
    def app(self) -> Starlette:
        return Starlette(routes=[Route("/sections", self.answer)])


@pytest.mark.parametrize(("refusals", "status"), [(3, 200), (1000, 429)])
async def test_a_fan_who_is_told_not_now_asks_again_later(refusals: int, status: int) -> None:
    busy, calls = Busy(refusals), CallTimes()
    async with serving(busy.app) as port, HttpClient(connections_max=1) as http, httpx.AsyncClient() as streams:
        browser = Browser(http, streams, f"http://127.0.0.1:{port}", calls, random.Random(1))
        assert (await browser.request("sections", "GET", "/sections"))[0] == status
    assert busy.asked == min(refusals + 1, 6), "patience has an end"


def test_a_crowd_that_did_nothing_is_a_failure() -> None:
    assert Observations().failures == ["nobody joined: nothing was tried"]
    went_well = Observations(joined=3, held=2, bought=1)
    assert went_well.failures == []
    assert Observations(joined=3, held=2, bought=1, failed=Counter({"sections 429": 2})).failures == [
        "2 times sections 429"
    ]
    assert Observations(joined=3, held=2).failures == ["nobody bought anything, although tickets were held"]


async def test_a_closed_room_fails_the_simulation(suite: RunningSuite, onsale: Command, tmp_path: Path) -> None:
    event_id = await suite.open_event(open=False)
    result = tmp_path / "result.json"
    options = ["--event-id", event_id, "--fans", "5", "--arrive-over", "0", "--json", str(result)]
    ended = await asyncio.to_thread(onsale, "simulate", *options, "--url", suite.url)
    assert (ended.returncode, "nobody joined: nothing was tried" in ended.stdout) == (1, True)
    assert json.loads(result.read_text())["failures"] == ["nobody joined: nothing was tried"]
