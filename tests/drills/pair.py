"""Two processes of every service behind both balancers, and what fans see of them while parts of it go away."""

import asyncio
import signal
import time
from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import httpx

from onsale.deploy.balancers import SERVICES_WITH_INTERNAL_API, Plan, Process
from shared.web.routes import SERVICES
from tests.drills.crowd import PatientFan
from tests.drills.fleet import HOST, Fleet, Program, until
from tests.support.running.balancers import KINDS, UNLIMITED, Kind, command, elsewhere, program
from tests.support.running.suite import Fan, bearer, no_cookies

DRAIN_DELAY_S = 3
ASKED_BY: dict[str, Kind] = {"queue": "haproxy", "inventory": "nginx", "orders": "haproxy"}


def installed() -> list[Kind]:
    return [kind for kind in KINDS if Path(program(kind)).exists()]


class Pair:
    """The fleet, and the addresses of the balancers in front of it. Neighbours ask each other through them too."""

    def __init__(self, folder: Path, postgres_url: str) -> None:
        plans = {kind: elsewhere(Plan(limits=UNLIMITED)) for kind in installed()}
        inside = {name: plans[ASKED_BY[name]].internal[name] for name in SERVICES_WITH_INTERNAL_API}
        environ = {f"ONSALE_{name.upper()}_URL": f"http://{address}" for name, address in inside.items()}
        environ |= {"ONSALE_DRAIN_DELAY_S": str(DRAIN_DELAY_S), "ONSALE_POSTGRES_POOL_MAX": "5"}
        environ |= {"GATEWAY_ADDRESS_JOINS_BURST": "100000", "ONSALE_LOG_REQUESTS": "false"}
        self.fleet = Fleet(folder / "data", postgres_url, copies=2, environ=environ)
        self.urls: dict[Kind, str] = {kind: f"http://{plan.listen}" for kind, plan in plans.items()}
        self.balancers: dict[Kind, Program] = {}
        for kind, plan in plans.items():
            (folder / kind).mkdir()
            told = command(kind, replace(plan, processes=self._processes()), folder / kind)
            self.balancers[kind] = Program(told, folder / f"{kind}.log")

    def _processes(self) -> dict[Any, list[Process]]:
        ports = self.fleet.ports, self.fleet.internal_ports
        return {
            name: [Process(f"{HOST}:{public}", f"{HOST}:{internal}") for public, internal in zip(*both, strict=True)]
            for name in SERVICES
            for both in [[each[name] for each in ports]]
        }

    def start(self) -> "Pair":
        for balancer in self.balancers.values():
            balancer.start()
        self.fleet.start().wait_until_ready()
        for kind, url in self.urls.items():
            until(lambda url=url: httpx.get(f"{url}/events", trust_env=False).is_success, what=kind)
        return self

    def end(self) -> None:
        for balancer in self.balancers.values():
            balancer.end(signal.SIGTERM)
        self.fleet.end()


@dataclass
class Answer:
    """One answer, or its absence (`status` 0)."""

    at_s: float
    took_s: float
    call: str
    status: int
    retry_after: bool


class Watched(httpx.AsyncHTTPTransport):
    """Notes how every request ended."""

    def __init__(self) -> None:
        super().__init__(limits=httpx.Limits(max_connections=300))
        self.answers: list[Answer] = []

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        began_s, status, again = time.monotonic(), 0, False
        try:
            response = await super().handle_async_request(request)
            status, again = response.status_code, "retry-after" in response.headers
            return response
        finally:
            now_s, path = time.monotonic(), request.url.path.rpartition("/")[2]
            self.answers.append(Answer(now_s, now_s - began_s, f"{request.method} …/{path}", status, again))

    @property
    def lost(self) -> list[Answer]:
        """What did not end well for who asked."""
        return [answer for answer in self.answers if answer.status == 0 or answer.status >= 500]

    def told(self) -> Counter[tuple[str, int]]:
        return Counter((answer.call, answer.status) for answer in self.lost)


def watched_browser(url: str) -> tuple[httpx.AsyncClient, Watched]:
    transport = Watched()
    return httpx.AsyncClient(base_url=url, transport=transport, timeout=30, cookies=no_cookies()), transport


class SteadyFan(PatientFan):
    """Asks for everything once: whatever does not end well is a failure."""

    async def come_in(self) -> "SteadyFan":
        await self.join()
        await self.wait_for_the_call(within_s=60)
        await self.claim()
        return self

    async def buys(self, method: str = "ok", **wish: Any) -> dict[str, Any]:
        return await self.ending(await self._ordered(await self.hold(**wish), method), within_s=60)


class Ear:
    """A page with a stream: comes back after the pause it was told, saying what it heard last."""

    def __init__(self, browser: httpx.AsyncClient, fan: Fan) -> None:
        self._browser, self._path, self._headers = browser, f"{fan.path}/sections/updates", bearer(fan.token)
        self.frames, self.ends, self.deaf_s = 0, 0, 0.0
        self._last_pass, self._retry_s = "", 0.5

    async def listen(self, until_set: asyncio.Event) -> None:
        heard_s = time.monotonic()
        while not until_set.is_set():
            headers = self._headers | ({"last-event-id": self._last_pass} if self._last_pass else {})
            try:
                async with self._browser.stream("GET", self._path, headers=headers) as stream:
                    assert stream.status_code == 200, stream.status_code
                    async for line in stream.aiter_lines():
                        if until_set.is_set():
                            return
                        if line:
                            self.deaf_s = max(self.deaf_s, time.monotonic() - heard_s)
                            heard_s = time.monotonic()
                        self._hear(line)
            except httpx.TransportError:
                pass
            self.ends += 1
            await asyncio.sleep(self._retry_s)

    def _hear(self, line: str) -> None:
        name, _, value = line.partition(": ")
        if name == "id":
            self._last_pass, self.frames = value, self.frames + 1
        elif name == "retry":
            self._retry_s = int(value) / 1000


class Crowd:
    """Fans behind one balancer, so many at any time, each followed by the next, and some pages with streams."""

    def __init__(
        self, pair: Pair, kind: Kind, event_id: str, fan: type[PatientFan], *, at_once: int, ears: int
    ) -> None:
        self.browser, self.seen = watched_browser(pair.urls[kind])
        self.pages, self.streams = watched_browser(pair.urls[kind])
        self._event_id, self._fan, self._at_once, self._ears = event_id, fan, at_once, ears
        self._over = asyncio.Event()
        self.ends: list[str] = []
        self.ears: list[Ear] = []

    async def begin(self) -> None:
        fans = [await self._fan(self.browser, self._event_id).come_in() for _ in range(self._ears)]
        self.ears = [Ear(self.pages, fan) for fan in fans]
        lives = [self._one_after_the_other() for _ in range(self._at_once)]
        self._living = asyncio.gather(*lives, *(ear.listen(self._over) for ear in self.ears))

    async def _one_after_the_other(self) -> None:
        while not self._over.is_set():
            fan = await self._fan(self.browser, self._event_id).come_in()
            self.ends.append(str((await fan.buys(ga=[{"section_id": "GA", "quantity": 1}]))["status"]))

    def check(self) -> None:
        """Raises what a fan met."""
        if self._living.done():
            self._living.result()

    async def end(self) -> None:
        """Everybody finishes what they have begun."""
        self._over.set()
        try:
            await self._living
        finally:
            await self.browser.aclose()
            await self.pages.aclose()
