"""A crowd at the address of a shop behind forward-auth: sent to the waiting room, called, sent back, and let shop.

Each fan follows the answers as a browser and the fan page do. What they saw is in `ShopCrowd`: who got which answer,
whether a fan was overtaken, who reached the shop, who bought.
"""

import asyncio
import random
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from http.cookies import SimpleCookie
from urllib.parse import parse_qs, urlsplit

import httpx
import orjson

from onsale.simulate.observations import Observations
from shared.http.http1 import HttpClient, HttpResponse
from tests.support.providers.shop import PAGE, browser

ANSWERS_WITHIN_S = 60.0
Shopping = Callable[
    [httpx.AsyncClient, str], Awaitable[bool]
]  # a browser with a pass, the fan's name; whether it bought


@dataclass
class ShopCrowd:
    """`fans` visitors of `shop + page`, who arrive over `arrive_over_s` and wait until `enough` is set."""

    shop: str
    page: str
    shopping: Shopping
    observations: Observations = field(default_factory=Observations)
    enough: asyncio.Event = field(default_factory=asyncio.Event)
    first_answers: Counter[int] = field(default_factory=Counter)
    reached_shop: int = 0
    bought: int = 0
    wrong: list[str] = field(default_factory=list)
    reused_passes: Counter[int] = field(default_factory=Counter)

    async def come(self, fans: int, *, arrive_over_s: float, within_s: float) -> None:
        """All fans' visits, at most `within_s` long; fans who are shopping then may finish."""
        async with HttpClient(connections_max=64) as http, asyncio.TaskGroup() as group:
            clock = asyncio.get_running_loop().call_later(within_s, self.enough.set)
            for number in range(fans):
                group.create_task(self._visit(http, number, arrive_over_s * number / fans))
            await self.enough.wait()
            clock.cancel()

    async def _visit(self, http: HttpClient, number: int, arrives_after_s: float) -> None:
        await asyncio.sleep(arrives_after_s)
        try:
            await _Visit(self, http, f"fan-{number}").run()
        except (ConnectionError, TimeoutError, httpx.HTTPError, AssertionError) as failed:
            self.wrong.append(f"fan-{number}: {failed!r}")


class _Visit:
    """One fan: the shop's address, the waiting room, the shop."""

    def __init__(self, crowd: ShopCrowd, http: HttpClient, name: str) -> None:
        self._crowd, self._http, self._name = crowd, http, name
        self._rng = random.Random(name)
        self._cookies: dict[str, str] = {}  # of the shop's host
        self._queue = self._token = ""
        self._return_to: dict[str, str] = {}

    async def run(self) -> None:
        await self._is_sent_to_the_room()
        join_seq = await self._join()
        if await self._is_called(join_seq):
            await self._return()
            await self._shop()

    async def _is_sent_to_the_room(self) -> None:
        answer = await self._at_shop(self._crowd.shop + self._crowd.page)
        self._crowd.first_answers[answer.status_code] += 1
        assert answer.status_code == 303, answer.status_code
        room = urlsplit(answer.headers["location"])
        self._return_to = {name: values[0] for name, values in parse_qs(room.fragment).items()}
        assert self._return_to["return_to"] == self._crowd.shop + self._crowd.page
        self._queue = f"{room.scheme}://{room.netloc}/events/{room.path.removeprefix('/e/')}/queue"

    async def _join(self) -> int:
        answer = await self._ask("POST", "", {"from_gate": True})
        assert answer.status_code == 201, answer.content
        place = orjson.loads(answer.content)
        self._token = place["queue_token"]
        self._crowd.observations.joined_at_place(place["join_seq"])
        return int(place["join_seq"])

    async def _is_called(self, join_seq: int) -> bool:
        while not self._crowd.enough.is_set():
            asked_at_s = time.monotonic()
            place = orjson.loads((await self._ask("GET", "/status")).content)
            if place["status"] == "ready":
                self._crowd.observations.record_call(join_seq, time.monotonic())
                return True
            self._crowd.observations.check_not_overtaken(join_seq, asked_at_s)
            with suppress(TimeoutError):
                pause_s = place["poll_after_ms"] / 1000 * self._rng.uniform(0.8, 1.2)
                await asyncio.wait_for(self._crowd.enough.wait(), pause_s)
        return False

    async def _return(self) -> None:
        """Takes the pass and goes back to the shop with the one-time link."""
        claimed = await self._ask("POST", "/pass")
        assert claimed.status_code == 200, claimed.content
        self._token = orjson.loads(claimed.content)["pass"]
        link = await self._ask("POST", "/handover", self._return_to)
        assert link.status_code == 201, link.content
        arrival = await self._at_shop(orjson.loads(link.content)["location"])
        assert (arrival.status_code, arrival.headers["location"]) == (303, self._return_to["return_to"])

    async def _shop(self) -> None:
        """Opens the page and shops; after a purchase the pass is spent, and the page leads to the waiting room."""
        async with browser() as visitor:
            visitor.cookies.update(self._cookies)
            page = await visitor.get(self._return_to["return_to"], timeout=ANSWERS_WITHIN_S)
            assert page.status_code == 200, f"admitted, but {page.status_code}"
            self._crowd.reached_shop += 1
            if await self._crowd.shopping(visitor, self._name):
                self._crowd.bought += 1
                self._crowd.reused_passes[await _after_release(visitor, self._return_to["return_to"])] += 1

    async def _ask(self, method: str, path: str, body: object = None) -> HttpResponse:
        """What the fan page asks of the gateway."""
        headers = {"content-type": "application/json"} | (
            {"authorization": f"Bearer {self._token}"} if self._token else {}
        )
        content = b"" if body is None else orjson.dumps(body)
        url = self._queue + path
        return await self._http.request(method, url, headers=headers, content=content, timeout=ANSWERS_WITHIN_S)

    async def _at_shop(self, url: str) -> HttpResponse:
        """A page of the shop, as a browser that keeps cookies asks for it."""
        cookie = "; ".join(f"{name}={value}" for name, value in self._cookies.items())
        headers = PAGE | ({"cookie": cookie} if cookie else {})
        answer = await self._http.request("GET", url, headers=headers, timeout=ANSWERS_WITHIN_S)
        for name, morsel in SimpleCookie(answer.headers.get("set-cookie", "")).items():
            self._cookies[name] = morsel.value
        return answer


async def _after_release(visitor: httpx.AsyncClient, url: str) -> int:
    """The page's status once the slot has been released, for which it asks up to five seconds."""
    status = 200
    for _ in range(10):
        await asyncio.sleep(0.5)
        status = (await visitor.get(url, timeout=ANSWERS_WITHIN_S)).status_code
        if status != 200:
            break
    return status
