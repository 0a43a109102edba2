"""Orders with real PostgreSQL, Redis, sandbox and inventory.

The sandbox starts once for all tests of a process; each test finds it empty, and has an inventory of its own.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest
from fastapi import FastAPI
from starlette.applications import Starlette

from onsale.local.ports import free_port
from onsale.sandbox.endpoints import create_sandbox
from onsale.sandbox.settings import SandboxSettings
from onsale.sandbox.settings import Tuning as SandboxTuning
from services.orders import app as orders_app
from services.orders.app import create_app
from services.orders.settings import Settings
from services.orders.steps.run import Failpoint, no_failpoint
from services.orders.store import provider_reports
from services.orders.tuning import Tuning
from shared import rpc
from shared.concurrency.background import Loops
from shared.http.outgoing import ExternalResponse, external_http_client
from shared.security.auth import AdminKeys
from shared.security.tokens import b64, development_keys
from shared.web import parts
from shared.web.app import public
from shared.web.listener import ServiceListener
from shared.web.parts import with_settings_of_parts
from tests.orders.inventory import URL as INVENTORY_URL
from tests.orders.inventory import Inventory, open_inventory
from tests.orders.manual_orders import ManualShop, open_manual_shop
from tests.orders.provider_setups import ProviderSetup, SandboxSetup
from tests.orders.shop import ADMIN_SECRET, ROOT_SECRET, VIEWER_SECRET, Mailbox, Shop
from tests.support.neighbours import Connections
from tests.support.running.serving import borrowed_app, parted, serving

SANDBOX_QUICK: dict[str, Any] = {
    "slow_s": 0.1,
    "hang_s": 1.0,
    "late_after_s": 0.1,
    "reorder_gap_s": 0.05,
    "webhook_retry_delays_s": (0.05,) * 7,
}
ORDERS_QUICK: dict[str, Any] = {
    "provider_timeout_s": 5.0,
    "retry_first_s": 0.05,
    "retry_max_s": 0.2,
    "provider_sync_interval_s": 0.1,
    "takeover_s": 3.0,
    "webhook_linger_s": 0.01,
    "log_requests": False,
    "fan_calls_per_s": 1e6,  # tests poll without a pause
}
PROCESSING = {"orders.comparison", "orders.listen", "orders.workers", "orders.mail"}
KEEP_ALIVE_S = 2.0  # shorter than the servers' 5 s, which would otherwise close a connection as it is reused
FOLDERS = {Path(__file__).parent, Path(__file__).parents[2] / "features"}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if FOLDERS & {*item.path.parents} and "environment" in getattr(item, "fixturenames", ()):
            item.add_marker("postgres")
            item.add_marker("redis")


@asynccontextmanager
async def running(app: Starlette) -> AsyncIterator[str]:
    """The URL of the app, with its lifespan."""
    async with app.router.lifespan_context(app), serving(app) as port:
        yield f"http://127.0.0.1:{port}"


@dataclass
class Environment:
    """The sandbox, and the apps that receive webhooks of providers; only the last of them does, by `shop`."""

    sandbox_url: str
    sandbox: httpx.AsyncClient
    shop: httpx.AsyncClient
    webhook_receivers: list[ServiceListener] = field(default_factory=list)

    async def clear(self) -> None:
        """Removes all charges and webhook receivers."""
        self.webhook_receivers.clear()
        defaults = {"down_for_s": 0, "latency_s": 0, "rate_limit_per_s": 0, "reset": True}
        assert (await self.sandbox.post("/control", json=defaults)).is_success


@pytest.fixture(scope="session")
async def environment() -> AsyncIterator[Environment]:
    class WebhookTransport(httpx.AsyncBaseTransport):
        async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
            if not opened.webhook_receivers:
                return httpx.Response(503)
            return await httpx.ASGITransport(app=opened.webhook_receivers[-1]).handle_async_request(request)

    class WebhookClient:
        async def request(
            self, method: str, url: str, *, headers: Mapping[str, str], content: bytes | None = None, timeout_s: float
        ) -> ExternalResponse:
            answer = await shop.request(method, url, headers=headers, content=content)
            return ExternalResponse(answer.status_code, answer.headers, answer.content)

    secret = b64(next(iter(development_keys("sandbox-webhook").keys.values())))
    sandbox_tuning, delays = parted(SandboxTuning, SANDBOX_QUICK)
    settings = SandboxSettings(webhook_secret=secret, webhook_url="http://shop/webhooks/sandbox", **delays)
    async with (
        running(create_sandbox(settings, sandbox_tuning, webhook_client=WebhookClient())) as sandbox_url,
        httpx.AsyncClient(transport=WebhookTransport(), base_url="http://shop") as shop,
        httpx.AsyncClient(
            base_url=sandbox_url, trust_env=False, verify=False, limits=httpx.Limits(keepalive_expiry=KEEP_ALIVE_S)
        ) as sandbox,
    ):
        opened = Environment(sandbox_url, sandbox, shop)
        yield opened


@pytest.fixture
async def setup(environment: Environment) -> AsyncIterator[ProviderSetup]:
    """The provider of the tests that every provider passes."""
    await environment.clear()
    async with external_http_client(connections_max=8) as client:
        yield SandboxSetup(client, environment.sandbox_url, environment.sandbox)


class ProcessingLoops(Loops):
    """Only the loops that process orders."""

    def every(self, interval_s: float, work: Callable[[], Awaitable[object]], *, name: str) -> None:
        if name in PROCESSING:
            super().every(interval_s, work, name=name)


class OrdersProcesses:
    """Opens orders processes, which share a database that was empty."""

    def __init__(
        self, stack: AsyncExitStack, environment: Environment, inventory: Inventory, postgres_url: str, redis_url: str,
        *, loops: type[Loops] = ProcessingLoops, of_providers: Mapping[str, Any] | None = None,
    ) -> None:  # fmt: skip
        self._stack, self._environment, self.inventory, self._loops = stack, environment, inventory, loops
        self._of_providers = of_providers or {}
        self._connections = Connections({"inventory": inventory.neighbour})
        self._postgres_url, self._redis_url = postgres_url, redis_url

    async def open(
        self, *, failpoint: Failpoint = no_failpoint, webhooks: bool = False, stack: AsyncExitStack | None = None,
        **fields: Any,
    ) -> Shop:  # fmt: skip
        """An orders process. A test that closes it before its own end passes a `stack`."""
        stack = stack or self._stack
        tuning, rest = parted(Tuning, {**ORDERS_QUICK, **fields})
        settings = with_settings_of_parts(Settings, "orders")(
            postgres_url=self._postgres_url, redis_url=self._redis_url, inventory_url=INVENTORY_URL,
            admin_keys=AdminKeys(f"root:admin:{ROOT_SECRET},ops:operator:{ADMIN_SECRET},eye:viewer:{VIEWER_SECRET}"),
            **{"sandbox_url": self._environment.sandbox_url, **self._of_providers, **rest},
        )  # fmt: skip
        if failpoint is no_failpoint:
            app = stack.enter_context(borrowed_app(create_app, settings, tuning))
        else:
            app = create_app(settings, tuning, failpoint=failpoint)
        if webhooks:
            self._environment.webhook_receivers.append(public(app))
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(rpc, "client", self._connections)
            patch.setattr(orders_app, "Loops", self._loops)
            patch.setattr(parts, "Loops", self._loops)
            await stack.enter_async_context(app.router.lifespan_context(app))
        http = await stack.enter_async_context(browser(app))
        return Shop(app, http, self._environment.sandbox, self.inventory, settings)


def browser(app: FastAPI) -> httpx.AsyncClient:
    return httpx.AsyncClient(transport=httpx.ASGITransport(app=public(app)), base_url="http://shop", trust_env=False)


@pytest.fixture
async def inventory(postgres_url: str, redis_url: str) -> AsyncIterator[Inventory]:
    async with open_inventory(postgres_url, redis_url) as inventory:
        yield inventory


@pytest.fixture
def loops() -> None:
    """The orders processes of a test that asks for this run all their loops; any other, those that process orders."""


@pytest.fixture
def of_providers() -> dict[str, Any]:
    """Settings of the processes that tests open; those of a feature have its provider."""
    return {}


@pytest.fixture
async def processes(
    request: pytest.FixtureRequest, environment: Environment, inventory: Inventory, of_providers: dict[str, Any],
    postgres_url: str, redis_url: str,
) -> AsyncIterator[OrdersProcesses]:  # fmt: skip
    await environment.clear()
    kind = Loops if "loops" in request.fixturenames else ProcessingLoops
    async with AsyncExitStack() as stack:
        yield OrdersProcesses(
            stack, environment, inventory, postgres_url, redis_url, loops=kind, of_providers=of_providers
        )


@pytest.fixture
async def shop(processes: OrdersProcesses) -> Shop:
    """An orders process with the default settings."""
    return await processes.open(webhooks=True)


@pytest.fixture
async def manual(postgres_url: str, redis_url: str) -> AsyncIterator[ManualShop]:
    """Orders without background loops, with the default settings."""
    async with open_manual_shop(postgres_url, redis_url) as manual:
        yield manual


@pytest.fixture(scope="session")
def mail_port() -> int:
    """One for all tests, so that their shops have the same settings and use the same app."""
    return free_port()


@pytest.fixture
async def mailbox(mail_port: int) -> AsyncIterator[Mailbox]:
    async with Mailbox(port=mail_port).open() as mailbox:
        yield mailbox


@pytest.fixture
async def mail_shop(processes: OrdersProcesses, mailbox: Mailbox, monkeypatch: pytest.MonkeyPatch) -> Shop:
    """An orders process that sends mail only when a test runs the dispatcher."""
    monkeypatch.setattr("features.mail.orders.MAIL_INTERVAL_S", 3600.0)
    monkeypatch.setattr("features.mail.orders.dispatcher.RETRY_FIRST_S", 3600.0)
    return await processes.open(smtp_url=mailbox.url, public_url="https://shop.test", mails_per_s=5, webhooks=True)


@pytest.fixture
def early_comparison(monkeypatch: pytest.MonkeyPatch) -> None:
    """Processes opened from now on compare charges with the provider a second after they were made, and ten."""
    monkeypatch.setattr(provider_reports, "AFTER_S", (1, 10))
    monkeypatch.setattr(provider_reports, "COMPARISON_S", 0.3)
