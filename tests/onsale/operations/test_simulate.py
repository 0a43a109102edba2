"""`onsale simulate`: simulated fans retry after 429, their streams go on where they stopped, and a run in which no fan
joined or bought fails.

The books of a sale are compared until its last payments are through.
"""

import asyncio
import gc
import random
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from onsale.client import Problem
from onsale.simulate import observations
from onsale.simulate.browser import PATIENCE_S, Browser, CallTimes
from onsale.simulate.command import rare_collections
from onsale.simulate.observations import Observations
from onsale.simulate.streams import CrowdStreams
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
    async with serving(busy.app) as port, HttpClient(connections_max=1) as http:
        browser = Browser(http, None, f"http://127.0.0.1:{port}", calls, random.Random(1))
        if status == 200:
            assert await browser.sections("e") == {"sections": []}
        else:
            with pytest.raises(Problem) as refused:
                await browser.sections("e")
            assert (refused.value.status, refused.value.title) == (status, "HTTP 429")
    assert calls.endings["sections", 429] == min(refusals, 6)
    assert busy.requests == min(refusals + 1, 6), "no sixth retry"


STREAM = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n%x\r\n%b\r\n"
BUSY = b"HTTP/1.1 503 Busy\r\nretry-after: 0\r\ncontent-length: 0\r\n\r\n"
REFUSED = b'HTTP/1.1 404 No\r\ncontent-length: 37\r\n\r\n{"type": "/problems/event-not-found"}'


def stream_of(head_seq: int, *, end: bytes = b"") -> bytes:
    """A stream with one message; it breaks unless its end is `0`."""
    message = b': open\r\n\nretry: 0\nid: 1.%d\nevent: line\ndata: {"head_seq": %d}\n\n' % (head_seq, head_seq)
    return STREAM % (len(message), message) + end


@asynccontextmanager
async def watching(*answers: bytes) -> AsyncIterator[tuple[Browser, list[str]]]:
    """A browser whose streams are answered so, and the last event ids that were sent."""
    sent, given = list[str](), iter(answers)

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
        sent.append(head.partition("last-event-id: ")[2].partition("\r\n")[0])
        writer.write(next(given))
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    async with server, HttpClient() as http, CrowdStreams(connect_s=PATIENCE_S) as streams:
        yield Browser(http, streams, url, CallTimes(), random.Random(1)), sent


async def test_a_simulated_fans_stream_goes_on_where_it_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    ended, broken, after = stream_of(1, end=b"0\r\n\r\n"), stream_of(2), stream_of(3)
    async with watching(ended, BUSY, broken, after) as (browser, sent):
        monkeypatch.setattr(browser._rng, "uniform", lambda *_: 0.0)
        heads = []
        async with aclosing(browser.event_updates("e", token="t")) as updates:
            async for kind, frame in updates:
                heads.append((kind, frame["head_seq"]))
                if len(heads) == 3:
                    break
    assert heads == [("line", 1), ("line", 2), ("line", 3)]
    assert sent == ["", "1.1", "1.1", "1.2"]


async def test_a_simulated_fan_is_told_why_a_stream_is_refused() -> None:
    async with watching(REFUSED) as (browser, _):
        with pytest.raises(Problem) as refused:
            await anext(browser.event_updates("e"))
    assert (refused.value.status, refused.value.slug) == (404, "event-not-found")


async def test_the_collector_runs_rarely_during_a_simulation_and_as_before_afterwards() -> None:
    before, collections = gc.get_threshold(), list[str]()
    async with rare_collections():
        gc.callbacks.append(lambda phase, info: collections.append(phase))
        waiting = [[n] for n in range(50_000)]
        gc.callbacks.pop()
    assert (len(waiting), collections, gc.get_threshold()) == (50_000, [], before)


def test_a_run_without_joins_or_purchases_fails() -> None:
    assert Observations().failures == ["nobody joined: nothing was tried"]
    successful = Observations(joined=3, held=2, bought=1)
    assert successful.failures == []
    assert Observations(joined=3, held=2, bought=1, failed=Counter({"sections 429": 2})).failures == [
        "2 times sections 429"
    ]
    assert Observations(joined=3, held=2).failures == ["nobody bought anything, although tickets were held"]


async def test_what_is_wrong_for_a_moment_is_not_wrong_and_what_stays_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(observations, "READ_INTERVAL_S", 0.01)
    found = [["a charge is missing"], ["a charge is missing"], [], ["another"], []]

    async def read() -> list[str]:
        return found.pop(0) if len(found) > 1 else found[0]

    assert await observations.what_stays_wrong(read, settle_s=5, quiet_s=0.05) == []
    assert found == [[]], "it was read until nothing had been wrong for a while"
    found[:] = [["a charge is missing"]]
    assert await observations.what_stays_wrong(read, settle_s=0.1, quiet_s=0.05) == ["a charge is missing"]
