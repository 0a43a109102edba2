"""The whole suite: `onsale up` in a process of its own, on a free port, in an empty directory.

Fans of tests: the client's own `Fan`, each with an address of their own, who asks often and repeats no request.

Runs nginx and HAProxy with the generated configuration, without writing outside a folder of the test.
"""

import json
import os
import signal
import socket
import sys
import tempfile
import uuid
from collections.abc import Awaitable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import cached_property
from http.cookiejar import CookieJar, DefaultCookiePolicy
from pathlib import Path
from typing import Any, Literal, Self, get_args

import httpx
import psutil
import pytest
import yaml

from onsale.admin_client import AdminClient
from onsale.client import Client, Fan, Pace, Problem
from onsale.client.fan_documents import CustomerDetails, Payment
from onsale.deploy.balancer_files import haproxy_cfg, nginx_conf
from onsale.deploy.balancers import SERVICES_WITH_INTERNAL_API, Limits, Plan, Process
from onsale.history.checker import Report, check
from onsale.history.checks.check import Sources
from onsale.history.transport import History, RecordingTransport
from onsale.local.engines import with_driver
from onsale.local.ports import HOST, free_port
from shared.report.invariants import CheckedInvariant
from shared.routes import SERVICES, Service
from tests.support.engines.engines import fast_directory
from tests.support.programs import need, needs
from tests.support.providers.identity_provider import AUDIENCE, ISSUER, SECRET
from tests.support.running.program import Program
from tests.support.wait import until

DATABASE_BINARIES = ("ONSALE_POSTGRES_BIN", "ONSALE_REDIS_BIN")  # `make matrix` chooses them


class RunningSuite:
    """A process of `onsale up`, with its address and its admin key. `processes`: None for a release that has one."""

    def __init__(self, data_dir: Path, *options: str, processes: int | str | None = 1, **environ: str) -> None:
        self.data_dir, self.port, self._admin_key = data_dir, free_port(), environ.get("ONSALE_ADMIN_KEY")
        self.url = f"http://localhost:{self.port}"
        self.opened: list[str] = []  # events of the current test
        address = ["--port", str(self.port), "--data-dir", str(data_dir)]
        address += ["--processes", str(processes)] if processes else []
        kept = {k: v for k, v in os.environ.items() if not k.startswith("ONSALE_") or k in DATABASE_BINARIES}
        settings = {
            "ONSALE_USER_JWT_SECRET": SECRET, "ONSALE_USER_JWT_ISSUER": ISSUER, "ONSALE_USER_JWT_AUDIENCE": AUDIENCE,
            "ORDERS_PROVIDER_TIMEOUT_S": "4",
        }  # fmt: skip
        self.program = Program(
            [sys.executable, "-P", "-m", "onsale", "up", *address, *options], data_dir.with_suffix(".log"),
            env=kept | settings | environ,
        )  # fmt: skip

    def start(self) -> Self:
        self.program.start()
        return self

    def wait_until_ready(self) -> Self:
        def ready() -> bool:
            assert self.program.is_running, f"onsale up has ended: {self.log_text()}"
            return httpx.get(f"{self.url}/readyz", timeout=5).status_code == 200

        until(ready, what="onsale up")
        return self

    def log_text(self) -> str:
        return self.program.log_text()

    def stop(self, number: signal.Signals = signal.SIGINT, *, within_s: float = 60) -> int:
        """Stops the process; its exit code."""
        self.opened.clear()
        return self.program.end(number, within_s=within_s)

    @property
    def admin_key(self) -> str:
        return self._admin_key or (self.data_dir / "admin.key").read_text().strip()

    @property
    def engines(self) -> dict[str, str]:
        return dict(json.loads((self.data_dir / "engines.json").read_text()))

    def processes(self) -> dict[str, psutil.Process]:
        """The processes of services with `--processes`, not their supervisors, by addresses of their own."""
        found = {}
        for child in psutil.Process(self.program.process.pid).children(recursive=True):
            with suppress(psutil.Error):
                words = child.cmdline()
                if "onsale.server.suite_process" in words and "--parent-fd" not in words:
                    found[f"http://127.0.0.1:{words[words.index('--own-port') + 1]}"] = child
        return found

    @cached_property
    def history(self) -> History:
        """What fans and operators were told."""
        return History(self.data_dir.with_suffix(".history.jsonl"))

    @property
    def sources(self) -> Sources:
        """Where its books are."""
        postgres_url = with_driver(self.engines["postgres_url"])
        return Sources(postgres_url, postgres_url, postgres_url, self.engines["sandbox_url"])

    def operator(self) -> httpx.AsyncClient:
        headers = {"authorization": f"Bearer {self.admin_key}"}
        return httpx.AsyncClient(base_url=self.url, transport=self._recorded(), headers=headers, timeout=20)

    def browser(self) -> httpx.AsyncClient:
        """A client without cookies: a test passes credentials with each request."""
        return httpx.AsyncClient(base_url=self.url, transport=self._recorded(), timeout=20, cookies=no_cookies())

    def _recorded(self) -> httpx.AsyncBaseTransport:
        """A transport whose answers are lines of the history."""
        return RecordingTransport(self._transport(), self.history)

    def _transport(self) -> httpx.AsyncBaseTransport:
        return httpx.AsyncHTTPTransport(limits=httpx.Limits(max_connections=100))

    async def open_event(self, *, reason: str = "test", **changes: Any) -> str:
        """A new event with an open room; `changes` are fields of the small venue: `room`, `sections`, `fees` …"""
        event_id = f"t-{uuid.uuid4().hex[:12]}"
        event = {
            "event_id": event_id, "name": "A test", "venue": "A hall", "currency": "EUR",
            "starts_at": changes.get("starts_at", "2030-01-01T20:00:00Z"),
            "room": {"rate_per_s": 1000, "burst": 1000, "max_active": 5000, **changes.get("room", {})},
            "sales": {"tickets_per_order": 6, "tickets_per_customer": 6, **changes.get("sales", {})},
            "sections": changes.get("sections") or [
                {"section_id": "A", "name": "Block A", "kind": "seated", "rows": 4, "seats_per_row": 10,
                 "price_minor": 5000, "fee_minor": 250},
                {"section_id": "GA1", "name": "Floor", "kind": "ga", "capacity": 50,
                 "price_minor": 3000, "fee_minor": 100},
            ],
            "fees": changes.get("fees", []), "taxes": changes.get("taxes", []),
        }  # fmt: skip
        async with self.operator() as operator:
            for service in ("inventory", "orders", "queue"):
                answer = await operator.put(
                    f"/admin/{service}/events/{event_id}", json=event, params={"reason": reason}
                )
                assert answer.is_success, answer.text
            if changes.get("open", True):
                answer = await operator.post(f"/admin/events/{event_id}/room/open", json={"reason": "test"})
                assert answer.is_success, answer.text
                self.opened.append(event_id)
        return event_id

    def close_rooms(self) -> None:
        """Closes the rooms the current test opened: a hundred open rooms keep a third of a core busy."""
        if not self.opened:
            return
        with httpx.Client(
            base_url=self.url, headers={"authorization": f"Bearer {self.admin_key}"}, timeout=20
        ) as operator:
            while self.opened:
                path = f"/admin/events/{self.opened.pop()}/room/close"
                operator.post(path, json={"reason": "The test is over"})

    async def audit(self, event_id: str) -> list[CheckedInvariant]:
        """Invariants that do not hold, as `onsale audit` finds them; an empty list is a clean audit."""
        async with self.operator() as operator:
            rows = await AdminClient(operator, self.url, self.admin_key).audit(event_id)
        assert {row.service for row in rows} == {"queue", "inventory", "orders", "both"}, "a service checks nothing"
        return [row for row in rows if not row.holds]

    async def checked(self, event_id: str) -> Report:
        """What the history of this event, the databases and the provider's book say together."""
        return await check(self.history.path, self.sources, [event_id])

    async def wrong(self, event_id: str) -> list[str]:
        """The invariants that do not hold, and the promises to fans that were broken; empty if all is well."""
        broken = [f"{row.service}: {row.invariant}: {row.detail}" for row in await self.audit(event_id)]
        return broken + [violation.sentence for violation in (await self.checked(event_id)).violations]

    async def is_clean(self, event_id: str) -> bool:
        """Whether the audit finds nothing, for `wait_until`."""
        return await self.audit(event_id) == []


def no_cookies() -> CookieJar:
    """A jar that stores no cookie: a test passes credentials with each request."""
    return CookieJar(DefaultCookiePolicy(allowed_domains=[]))


def bearer(token: str | None) -> dict[str, str]:
    return {"authorization": f"Bearer {token}"}


def problem(answer: httpx.Response) -> tuple[int, str]:
    """Status and slug of a problem document."""
    assert answer.headers["content-type"] == "application/problem+json", answer.text
    assert answer.json()["request_id"] or answer.status_code == 404
    return answer.status_code, answer.json()["type"].removeprefix("/problems/")


@contextmanager
def running_suite(*options: str, processes: int | str = 1, **environ: str) -> Iterator[RunningSuite]:
    """A ready suite in a data directory of its own; it must stop with exit code 0."""
    with tempfile.TemporaryDirectory(prefix="onsale-suite-", dir=fast_directory()) as folder:
        running = RunningSuite(Path(folder) / "data", *options, processes=processes, **environ).start()
        try:
            yield running.wait_until_ready()
        finally:
            assert running.stop() == 0, running.log_text()


@pytest.fixture(scope="session")
def suite() -> Iterator[RunningSuite]:
    """One suite for all tests of this process; every test opens an event of its own."""
    arena = Path(__file__).parents[3] / "deploy" / "events" / "arena.yaml"
    assert yaml.safe_load(arena.read_text())["event_id"] == "arena-2026"
    with running_suite("--event", str(arena)) as running:
        yield running


@pytest.fixture(autouse=True)
def rooms_close_afterwards(request: pytest.FixtureRequest) -> Iterator[None]:
    yield
    if running := request.node.funcargs.get("suite"):
        running.close_rooms()


EAGER = Pace(poll_max_s=0.1, order_first_s=0.05, order_max_s=0.2)


def fan_of(browser: httpx.AsyncClient, event_id: str) -> Fan:
    """A new fan, outside."""
    return Fan(client_of(browser), event_id, customer=somebody(), payment=card("ok"), pace=EAGER)


def client_of(browser: httpx.AsyncClient) -> Client:
    """The client whose requests this browser sends, each once."""
    return Client(str(browser.base_url), http=browser, attempts_max=1)


def somebody() -> CustomerDetails:
    """A customer whom no limit knows."""
    return {"name": "A fan", "email": f"{uuid.uuid4().hex}@example.org"}


def card(method: str) -> Payment:
    """A card of the sandbox, which behaves as the method says."""
    return {"provider": "sandbox", "method": method}


async def has_status(fan: Fan, status: str) -> bool:
    """Whether the place has this status, for `wait_until`."""
    return bool((await fan.status())["status"] == status)


async def refusal(request: Awaitable[object]) -> tuple[int, str]:
    """Status and slug of the problem that the request is refused with."""
    try:
        answer = await request
    except Problem as problem:
        return problem.status, problem.slug
    raise AssertionError(f"not refused: {answer}")


@contextmanager
def may_be_refused(*slugs: str) -> Iterator[None]:
    """One of these problems ends the block and is no error."""
    try:
        yield
    except Problem as problem:
        if problem.slug not in slugs:
            raise


Kind = Literal["nginx", "haproxy"]
KINDS: tuple[Kind, ...] = get_args(Kind)
UNLIMITED = Limits(10_000, 10_000, 10_000)


def balancer_parameters() -> list[object]:
    """Parameters for both balancers; one that is not installed is skipped."""
    return [pytest.param(kind, marks=needs(kind)) for kind in KINDS]


def command(kind: Kind, plan: Plan, folder: Path) -> list[str]:
    """Writes the configuration for this plan; the command that runs it in the foreground."""
    if kind == "haproxy":
        (folder / "haproxy.cfg").write_text(haproxy_cfg(plan).replace("global\n", "global\n    nbthread 1\n", 1))
        return [need(kind), "-db", "-f", f"{folder}/haproxy.cfg"]
    names = ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    temp_paths = "".join(f"    {name}_temp_path {folder}/{name};\n" for name in names)
    conf = nginx_conf(replace(plan, cache_folder=f"{folder}/cache")).replace("http {\n", "http {\n" + temp_paths, 1)
    conf = conf.replace("worker_processes auto", "worker_processes 1")
    (folder / "nginx.conf").write_text(("user root;\n" if os.geteuid() == 0 else "") + conf)
    options = f"pid {folder}/pid; daemon off;"
    return [need(kind), "-e", f"{folder}/error.log", "-c", f"{folder}/nginx.conf", "-g", options]


def plan_for_ports(*ports: int, limits: Limits = UNLIMITED, trusted: tuple[str, ...] = ()) -> Plan:
    """A plan in which every service listens on each of these ports, for public and internal requests."""
    processes = {service: [Process(f"{HOST}:{port}", f"{HOST}:{port}") for port in ports] for service in SERVICES}
    return on_free_ports(Plan(processes=processes, limits=limits, trusted=trusted))


def on_free_ports(plan: Plan) -> Plan:
    """The same plan on free ports."""
    internal: dict[Service, str] = {service: f"{HOST}:{free_port()}" for service in SERVICES_WITH_INTERNAL_API}
    return replace(
        plan, listen=f"{HOST}:{free_port()}", listen_tls=f"{HOST}:{free_port()}", internal=internal
    )  # fmt: skip


@contextmanager
def running_balancer(kind: Kind, plan: Plan, folder: Path) -> Iterator[str]:
    """The URL of a balancer that runs inside this context."""
    folder.mkdir(parents=True, exist_ok=True)
    balancer = Program(command(kind, plan, folder), folder / f"{kind}.log")
    balancer.start()
    host, _, port = plan.listen.rpartition(":")

    def listens() -> bool:
        assert balancer.is_running, balancer.log_text()
        with socket.create_connection((host, int(port))):
            return True

    try:
        until(listens, what=kind)
        yield f"http://{plan.listen}"
    finally:
        balancer.end(signal.SIGTERM)
