"""The five services as processes that drills can kill, freeze and restart one by one, with Valkey and the sandbox.

Two processes of every service behind nginx and HAProxy, and fans who record every answer meanwhile.
"""

import asyncio
import itertools
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import redis

from onsale.client import Fan
from onsale.client.fan_documents import ReserveBody
from onsale.data_dir import admin_key
from onsale.deploy.balancers import SERVICES_WITH_INTERNAL_API, Plan, Process
from onsale.history.checks.check import Sources
from onsale.history.transport import History, RecordingTransport
from onsale.local import key_file
from onsale.local.binaries import find_redis
from onsale.local.engines import Engines
from onsale.local.ports import HOST, free_port, free_ports
from shared.process.secrets_dir import postgres_urls
from shared.routes import SERVICES, Service, route
from tests.support.engines.engines import fast_directory, in_database, run_in_thread, sql
from tests.support.programs import find_program
from tests.support.running.program import Program
from tests.support.running.suite import KINDS, UNLIMITED, Kind, RunningSuite, bearer, command, no_cookies, on_free_ports
from tests.support.wait import until


def environ_without_settings() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if not name.startswith("ONSALE_")}


async def migrate(environ: Mapping[str, str]) -> None:
    """Runs `onsale migrate` with these settings and no others."""
    command = [sys.executable, "-P", "-m", "onsale", "migrate"]
    result = await asyncio.to_thread(
        subprocess.run, command, env=environ_without_settings() | dict(environ),
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert result.returncode == 0, result.stderr


class Valkey(Program):
    """A Valkey with an append-only file, as `onsale up` configures it."""

    def __init__(self, home: Path) -> None:
        self.home, self.port = home, free_port()
        self.url = f"redis://{HOST}:{self.port}/0"
        options = {"port": str(self.port), "bind": HOST, "dir": str(home), "appendonly": "yes", "save": ""}
        flat = [part for name, value in options.items() for part in (f"--{name}", value)]
        super().__init__([str(find_redis(os.environ)), *flat], home / "valkey.log")

    def wait(self) -> None:
        """Returns once it answers."""
        client = redis.Redis.from_url(self.url)
        until(client.ping, what="Valkey")
        client.close()

    def copy_to(self, folder: Path) -> None:
        shutil.copytree(self.home / "appendonlydir", folder)

    def put_back(self, folder: Path) -> None:
        shutil.rmtree(self.home / "appendonlydir")
        shutil.copytree(folder, self.home / "appendonlydir")


class _ByRoute(httpx.AsyncBaseTransport):
    """A load balancer: routes each request to a process of its service, in rotation; skips processes that refuse to
    connect.
    """

    def __init__(self, ports: Mapping[Service, list[int]]) -> None:
        self._ports = ports
        self._pool = httpx.AsyncHTTPTransport(limits=httpx.Limits(max_connections=200))
        self._next = itertools.count()

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        row = route(request.url.path)
        assert row is not None, request.url.path
        ports, first = self._ports[row.service], next(self._next)
        for attempt in range(len(ports)):
            request.url = request.url.copy_with(host=HOST, port=ports[(first + attempt) % len(ports)])
            try:
                return await self._pool.handle_async_request(request)
            except httpx.ConnectError:
                if attempt + 1 == len(ports):
                    raise
        raise AssertionError("every service has a process")

    async def aclose(self) -> None:
        await self._pool.aclose()


class Fleet(RunningSuite):
    """A suite whose processes can be ended one by one.

    With `copies` every service, or each as it says, has so many processes: "queue", "queue-2" and so on in `programs`,
    their public ports in `ports[service]`, their internal ports in `internal_ports[service]`. Without `redis_url` it
    has a Valkey of its own. `environ` overrides the settings made here.
    """

    program_class: type[Program] = Program

    def __init__(
        self, data_dir: Path, postgres_url: str, *, redis_url: str | None = None,
        copies: int | Mapping[Service, int] = 1, environ: Mapping[str, str] = {},
    ) -> None:  # fmt: skip
        super().__init__(data_dir)
        data_dir.mkdir()
        self.postgres_url = postgres_url
        self.programs: dict[str, Program] = {}
        if redis_url is None:
            self.valkey = Valkey(data_dir)
            self.programs["valkey"] = self.valkey
        self.redis_url = redis_url or self.valkey.url
        each = {name: copies if isinstance(copies, int) else copies.get(name, 0) for name in SERVICES}
        self.ports: dict[Service, list[int]] = {name: free_ports(count) for name, count in each.items() if count}
        self.internal_ports: dict[Service, list[int]] = {name: free_ports(each[name]) for name in self.ports}
        self.urls: dict[str, str] = {}
        self._plan(free_port(), environ)

    def _plan(self, sandbox_port: int, environ: Mapping[str, str]) -> None:
        secrets = key_file.service_secrets(self.data_dir)
        env = environ_without_settings() | secrets | {
            "ONSALE_POSTGRES_URL": self.postgres_url, "ONSALE_REDIS_URL": self.redis_url,
            "ONSALE_SANDBOX_URL": f"http://{HOST}:{sandbox_port}", "ONSALE_PUBLIC_URL": self.url,
            "ONSALE_ADMIN_KEYS": f"operator:admin:{admin_key(self.data_dir, {})}",
            "ONSALE_SANDBOX_WEBHOOK_SECRET": secrets["ONSALE_SANDBOX_WEBHOOK_KEYS"].partition(":")[2],
        }  # fmt: skip
        env |= {
            f"ONSALE_{name.upper()}_URL": f"http://{HOST}:{ports[0]}" for name, ports in self.internal_ports.items()
        }
        env |= environ
        self.urls["sandbox"] = env["ONSALE_SANDBOX_URL"]
        urls = postgres_urls(env)
        self._sources = Sources(urls["queue"], urls["inventory"], urls["orders"], self.urls["sandbox"])
        hook = f"http://{HOST}:{self.ports['orders'][0]}/webhooks/sandbox"
        python = [sys.executable, "-P", "-m"]
        sandbox = [*python, "onsale.sandbox", "--port", str(sandbox_port), "--webhook-url", hook]
        self.programs["sandbox"] = self.program_class(sandbox, self.data_dir / "sandbox.log", env=env)
        for service in self.ports:
            for name, port, internal in zip(
                self.copies(service), self.ports[service], self.internal_ports[service], strict=True
            ):
                own_ports = {f"{service.upper()}_PORT": str(port), f"{service.upper()}_INTERNAL_PORT": str(internal)}
                command = [*python, "onsale", "serve", service]
                self.programs[name] = self.program_class(command, self.data_dir / f"{name}.log", env=env | own_ports)

    def copies(self, service: Service) -> list[str]:
        """The names of its processes."""
        return [service, *(f"{service}-{number}" for number in range(2, len(self.ports[service]) + 1))]

    def start(self) -> "Fleet":
        if "valkey" in self.programs:
            self.valkey.start()
            self.valkey.wait()
        for name, program in self.programs.items():
            if name != "valkey":
                program.start()
        return self

    def wait_until_ready(self) -> "Fleet":
        for service in self.ports:
            for name in self.copies(service):
                self.wait_for(name)
        return self

    async def restart(self, name: str, number: signal.Signals) -> None:
        """Ends the process with this signal and starts it again; returns when it is ready."""
        await asyncio.to_thread(self.programs[name].end, number)
        self.programs[name].start()
        await asyncio.to_thread(self.wait_for, name)

    def wait_for(self, name: str) -> None:
        url = f"http://{HOST}:{self._port(name)}/readyz"

        def ready() -> bool:
            assert self.programs[name].is_running, f"{name} has ended"
            return httpx.get(url, timeout=5, trust_env=False).status_code == 200

        try:
            until(ready, what=name)
        except AssertionError as timed_out:
            raise AssertionError(f"{timed_out}: {self.programs[name].log_tail()}") from None

    def _port(self, name: str) -> int:
        return next(
            port
            for service in self.ports
            for copy, port in zip(self.copies(service), self.ports[service], strict=True)
            if copy == name
        )

    def end(self) -> None:
        for program in reversed(self.programs.values()):
            program.end(signal.SIGKILL)
        self.history.close()

    @property
    def sources(self) -> Sources:
        return self._sources

    def _transport(self) -> httpx.AsyncBaseTransport:
        return _ByRoute(self.ports)


@contextmanager
def running_fleet(engines: Engines, migrated: str, database: str, **options: Any) -> Iterator[Fleet]:
    """A ready fleet on a copy, named `database`, of the migrated database."""
    run_in_thread(sql(engines, f"create database {database} template {migrated}"))
    with tempfile.TemporaryDirectory(prefix="onsale-fleet-", dir=fast_directory()) as folder:
        fleet = Fleet(Path(folder) / "data", in_database(engines, database), **options)
        try:
            yield fleet.start().wait_until_ready()
        finally:
            fleet.end()


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
