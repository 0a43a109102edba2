"""Two processes of every service behind nginx and HAProxy, and fans who record every answer meanwhile."""

import asyncio
import signal
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import httpx

from onsale.client import Fan
from onsale.client.fan_documents import ReserveBody
from onsale.deploy.balancers import SERVICES_WITH_INTERNAL_API, Plan, Process
from onsale.history.log import History
from onsale.history.transport import RecordingTransport
from onsale.local.ports import HOST
from proof.drills.fleet import Fleet
from shared.routes import SERVICES
from tests.support.programs import find_program
from tests.support.running.balancers import KINDS, UNLIMITED, Kind, command, on_free_ports
from tests.support.running.program import Program
from tests.support.running.suite import bearer, no_cookies
from tests.support.wait import until

DRAIN_DELAY_S = 3
ONE_PLACE: ReserveBody = {"ga": [{"section_id": "GA", "quantity": 1}]}
NewFan = Callable[[httpx.AsyncClient, str], Fan]
INTERNAL_BALANCER: dict[str, Kind] = {"queue": "haproxy", "inventory": "nginx", "orders": "haproxy"}


def installed_balancers() -> list[Kind]:
    return [kind for kind in KINDS if find_program(kind)]


class BalancedFleet:
    """The fleet and the balancers in front of it, through which services call each other too."""

    def __init__(self, folder: Path, postgres_url: str) -> None:
        plans = {kind: on_free_ports(Plan(limits=UNLIMITED)) for kind in installed_balancers()}
        internal = {name: plans[INTERNAL_BALANCER[name]].internal[name] for name in SERVICES_WITH_INTERNAL_API}
        environ = {f"ONSALE_{name.upper()}_URL": f"http://{address}" for name, address in internal.items()}
        environ |= {"ONSALE_DRAIN_DELAY_S": str(DRAIN_DELAY_S), "ONSALE_POSTGRES_POOL_MAX": "5"}
        environ |= {"GATEWAY_ADDRESS_JOINS_PER_S": "10000", "ONSALE_LOG_REQUESTS": "false"}
        self.fleet = Fleet(folder / "data", postgres_url, copies=2, environ=environ)
        self.urls: dict[Kind, str] = {kind: f"http://{plan.listen}" for kind, plan in plans.items()}
        self.balancers: dict[Kind, Program] = {}
        for kind, plan in plans.items():
            (folder / kind).mkdir()
            argv = command(kind, replace(plan, processes=self._processes()), folder / kind)
            self.balancers[kind] = Program(argv, folder / f"{kind}.log")

    def _processes(self) -> dict[Any, list[Process]]:
        ports = self.fleet.ports, self.fleet.internal_ports
        return {
            name: [Process(f"{HOST}:{public}", f"{HOST}:{internal}") for public, internal in zip(*both, strict=True)]
            for name in SERVICES
            for both in [[each[name] for each in ports]]
        }

    def start(self) -> "BalancedFleet":
        for balancer in self.balancers.values():
            balancer.start()
        self.fleet.start().wait_until_ready()
        for kind, url in self.urls.items():
            until(partial(_answers, url), what=kind)
        return self

    def end(self) -> None:
        for balancer in self.balancers.values():
            balancer.end(signal.SIGTERM)
        self.fleet.end()


def _answers(url: str) -> bool:
    return httpx.get(f"{url}/events", trust_env=False).is_success


@dataclass
class Answer:
    """One answer; `status` is 0 if none came."""

    at_s: float
    took_s: float
    call: str
    status: int
    retry_after: bool


class CountingTransport(httpx.AsyncHTTPTransport):
    """Counts how every request ended."""

    def __init__(self) -> None:
        super().__init__(limits=httpx.Limits(max_connections=300))
        self.answers: list[Answer] = []

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        began_s, status, retry_after = time.monotonic(), 0, False
        try:
            response = await super().handle_async_request(request)
            status, retry_after = response.status_code, "retry-after" in response.headers
            return response
        finally:
            now_s, path = time.monotonic(), request.url.path.rpartition("/")[2]
            self.answers.append(Answer(now_s, now_s - began_s, f"{request.method} …/{path}", status, retry_after))

    @property
    def lost(self) -> list[Answer]:
        """Requests without an answer, or with a server error."""
        return [answer for answer in self.answers if answer.status == 0 or answer.status >= 500]

    def failures(self) -> Counter[tuple[str, int]]:
        return Counter((answer.call, answer.status) for answer in self.lost)


def recording_browser(url: str, history: History) -> tuple[httpx.AsyncClient, CountingTransport]:
    transport = CountingTransport()
    recorded = RecordingTransport(transport, history)
    return httpx.AsyncClient(base_url=url, transport=recorded, timeout=30, cookies=no_cookies()), transport


class StreamReader:
    """Reads a stream as a page does: reconnects after the server's retry time with the last id."""

    def __init__(self, browser: httpx.AsyncClient, fan: Fan) -> None:
        self._browser, self._path, self._headers = (
            browser,
            f"/events/{fan.event_id}/sections/updates",
            bearer(fan.queue_token),
        )
        self.frames, self.ended_streams, self.longest_silence_s = 0, 0, 0.0
        self._last_id, self._retry_s = "", 0.5

    async def run(self, end: asyncio.Event) -> None:
        last_line_s = time.monotonic()
        while not end.is_set():
            headers = self._headers | ({"last-event-id": self._last_id} if self._last_id else {})
            try:
                async with self._browser.stream("GET", self._path, headers=headers) as stream:
                    assert stream.status_code == 200, stream.status_code
                    async for line in stream.aiter_lines():
                        if end.is_set():
                            return
                        if line:
                            self.longest_silence_s = max(self.longest_silence_s, time.monotonic() - last_line_s)
                            last_line_s = time.monotonic()
                        self._read(line)
            except httpx.TransportError:
                pass
            self.ended_streams += 1
            await asyncio.sleep(self._retry_s)

    def _read(self, line: str) -> None:
        name, _, value = line.partition(": ")
        if name == "id":
            self._last_id, self.frames = value, self.frames + 1
        elif name == "retry":
            self._retry_s = int(value) / 1000


class FansBehindBalancer:
    """Fans behind one balancer: `at_once` at any time, each followed by the next, and some streams. `fan` makes one."""

    def __init__(
        self, balanced: BalancedFleet, kind: Kind, event_id: str, fan: NewFan, *, at_once: int, readers: int
    ) -> None:
        history = balanced.fleet.history
        self.browser, self.answers = recording_browser(balanced.urls[kind], history)
        self.stream_browser, self.stream_answers = recording_browser(balanced.urls[kind], history)
        self._event_id, self._fan, self._at_once, self._reader_count = event_id, fan, at_once, readers
        self._end = asyncio.Event()
        self.order_statuses: list[str] = []
        self.readers: list[StreamReader] = []

    async def begin(self) -> None:
        fans = [await self._fan(self.browser, self._event_id).come_in() for _ in range(self._reader_count)]
        self.readers = [StreamReader(self.stream_browser, fan) for fan in fans]
        journeys = [self._buy_until_end() for _ in range(self._at_once)]
        self._running = asyncio.gather(*journeys, *(reader.run(self._end) for reader in self.readers))

    async def _buy_until_end(self) -> None:
        while not self._end.is_set():
            fan = await self._fan(self.browser, self._event_id).come_in()
            self.order_statuses.append(str((await fan.buy(await fan.hold(ONE_PLACE)))["status"]))

    def check(self) -> None:
        """Raises the error of a fan whose journey failed."""
        if self._running.done():
            self._running.result()

    async def end(self) -> None:
        """Waits until every fan has finished their journey."""
        self._end.set()
        try:
            await self._running
        finally:
            await self.browser.aclose()
            await self.stream_browser.aclose()
