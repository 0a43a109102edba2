"""Orders without background loops: a test runs the workers, moves the clocks and delivers the webhooks.

The provider and the real inventory run in this process and fail on command. A worker dies or sleeps at a failpoint.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any, TypeVar
from urllib.parse import urlsplit

import httpx
import pytest
from pydantic import BaseModel
from sqlalchemy import text
from starlette.types import ASGIApp

from onsale.sandbox.charges import ChargeService, ChargeStore, as_rfc3339
from onsale.sandbox.endpoints import app_of
from onsale.sandbox.settings import SandboxSettings
from onsale.sandbox.settings import Tuning as SandboxTuning
from onsale.sandbox.webhooks import WebhookSender
from services.orders import app as orders_app
from services.orders.settings import Settings
from services.orders.store import provider_reports
from services.orders.tables import metadata, outbox_cursor
from services.orders.tuning import Tuning
from services.orders.worker import worker
from shared.contracts.inventory import PaymentStep, PaymentSteps, ReturnStock, ReturnTickets
from shared.errors.problems import Unavailable
from shared.http.outgoing import ExternalResponse, NotReached, ResponseLost
from shared.rpc import HttpPoster, ServiceClient
from shared.runtime.clock import now_ms
from shared.security.auth import AdminKeys
from shared.security.tokens import Keyring
from shared.web.app import internal, public
from tests.orders.inventory import EVENT, open_inventory
from tests.orders.inventory import URL as INVENTORY_URL
from tests.orders.shop import ADMIN_SECRET, VIEWER_SECRET, Shop
from tests.support.neighbours import Connections
from tests.support.running.serving import borrowed_app, parted

TAKEOVER_S, RETRY_MAX_S, PAY_TTL_S = 5.0, 4.0, 600
SETTINGS: dict[str, Any] = {
    "retry_first_s": 1.0, "retry_max_s": RETRY_MAX_S, "takeover_s": TAKEOVER_S, "inline_slots_max": 0,
    "workers": 256, "webhook_linger_s": 0.0, "log_requests": False,
}  # fmt: skip
WORKERS = 256
WITHOUT_TRIGGERS = "SET LOCAL session_replication_role = replica"  # money entries are append-only
CLOCKS = {
    "order": ("created_at", "expires_at", "ended_at"),
    "open_order": ("due_at",),
    "provider_comparison": ("compared_until", "taken_until"),
    "webhook_inbox": ("due_at",),
    "money_entry": ("occurred_at", "created_at"),
}
Fault = Callable[[str, str], str | None]
Answer = TypeVar("Answer", bound=BaseModel)


def no_fault(call: str, key: str) -> str | None:
    """No call fails."""
    return None


@dataclass
class ScriptedFailpoint:
    """Stops an order's worker at one failpoint: it `dies` or `sleeps`. `at` names the failpoint of an order by its
    number (0 is the first one passed), `next` by its name, for the next order that passes it.
    """

    at: dict[str, tuple[int, str]] = field(default_factory=dict)
    next: tuple[str, str] | None = None
    passed: dict[str, list[str]] = field(default_factory=dict)
    triggered: set[str] = field(default_factory=set)
    stopped: set[str] = field(default_factory=set)
    asleep: dict["asyncio.Task[Any]", asyncio.Event] = field(default_factory=dict)

    async def __call__(self, name: str, reference: str) -> None:
        passed = self.passed.setdefault(reference, [])
        passed.append(name)
        number, how = self.at.get(reference, (-1, ""))
        if self.next and self.next[0] == name:
            (_, how), self.next = self.next, None
        elif number == len(passed) - 1 and reference not in self.triggered:
            self.triggered.add(reference)
        else:
            return
        self.stopped.add(reference)
        if how == "dies":
            raise asyncio.CancelledError
        await self._sleep()

    async def _sleep(self) -> None:
        task = asyncio.current_task()
        assert task is not None
        self.asleep[task] = awake = asyncio.Event()
        try:
            await awake.wait()
        finally:
            self.asleep.pop(task, None)

    async def wake(self) -> None:
        """All sleeping workers continue."""
        sleepers, self.asleep = self.asleep, {}
        for awake in sleepers.values():
            awake.set()
        await self.until_still(list(sleepers))

    async def until_still(self, tasks: Collection["asyncio.Task[Any]"]) -> None:
        """Waits until each task has ended or sleeps."""
        while busy := [task for task in tasks if task not in self.asleep and not task.done()]:
            await asyncio.wait(busy, timeout=0.02, return_when=asyncio.FIRST_COMPLETED)


class WebhookQueue(WebhookSender):
    """Keeps the sandbox's webhooks until the test delivers them, any number of times."""

    def __init__(self, settings: SandboxSettings) -> None:
        super().__init__(settings)
        self.webhooks: list[bytes] = []

    def send(self, body: bytes, *, after_s: float = 0.0, copies: int = 1, forged: bool = False) -> None:
        self.webhooks += [body] * copies


class ProviderConnection:
    """The connection to the provider. `fault` says how a call (method and path, key) fails."""

    def __init__(self, provider: httpx.AsyncClient) -> None:
        self._provider = provider
        self.fault: Fault = no_fault

    async def request(
        self, method: str, url: str, *, headers: Mapping[str, str], content: bytes | None = None, timeout_s: float
    ) -> ExternalResponse:
        match self.fault(f"{method} {urlsplit(url).path.split('/')[-1]}", headers.get("idempotency-key", "")):
            case "unreachable":
                raise NotReached("unreachable")
            case "error":
                return ExternalResponse(503, {}, b"")
            case "busy":
                return ExternalResponse(429, {}, b"")
            case "refused":
                return ExternalResponse(409, {}, b'{"error": {"code": "charge_disputed"}}')
            case fault:
                answer = await self._provider.request(method, url, headers=headers, content=content)
        if fault == "answer lost":
            raise ResponseLost("no response")
        return ExternalResponse(answer.status_code, answer.headers, answer.content)


class InventoryConnection(ServiceClient):
    """The connection to inventory. `fault` says how the call of a step (its path's end, order) fails: `unreachable`, or
    done and the `answer lost`. `batches` are the calls: how many steps each had.
    """

    def __init__(self, client: HttpPoster, keys: Keyring) -> None:
        super().__init__(client, INVENTORY_URL, keys, name="inventory")
        self.fault: Fault = no_fault
        self.batches = list[tuple[str, int]]()

    async def call(self, path: str, request: Any, answer: type[Answer], *, deadline_s: float = 2.0) -> Answer:
        steps = _steps(request)
        verb = path.rpartition("/")[2]
        faults = {self.fault(verb, step.order_reference) for step in steps}
        if "unreachable" in faults:
            raise Unavailable
        self.batches.append((verb, len(steps)))
        answered = await super().call(path, request, answer, deadline_s=deadline_s)
        if "answer lost" in faults:
            raise Unavailable
        return answered


def _steps(request: object) -> Sequence[PaymentStep | ReturnTickets]:
    match request:
        case PaymentSteps(steps=steps) | ReturnStock(steps=steps):
            return steps
        case ReturnTickets():
            return [request]
    return []


@dataclass
class ManualShop(Shop):
    """A shop whose loops the test runs. `worker_errors` are exceptions that workers logged."""

    failpoint: ScriptedFailpoint
    connection: ProviderConnection
    inventory_connection: InventoryConnection
    outgoing_webhooks: WebhookQueue
    charge_service: ChargeService
    charge_store: ChargeStore
    worker_errors: list[str]

    @property
    def running(self) -> list["asyncio.Task[Any]"]:
        """The workers that process an order, asleep or not."""
        return [held.task for held in self.state.worker._held.values() if held.task]

    async def work(self) -> None:
        """Processes all due orders, and those that become due thereby."""
        workers = self.state.worker
        workers._workers_max = WORKERS
        await workers.sweep()
        self._let_come_due()
        workers.begin_ready()
        while tasks := [task for task in self.running if task not in self.failpoint.asleep]:
            await self.failpoint.until_still(tasks)
            await asyncio.sleep(0)
        workers._workers_max = 0
        assert not self.worker_errors, self.worker_errors

    async def compare(self) -> list[str]:
        """Compares the provider's charges with the ledger, as the loop does; returns the orders that differ."""
        return await provider_reports.compare(self.state.store, self.state.providers)

    async def lose_stopped(self) -> None:
        """The processes of workers that were stopped are silent for too long: their orders are anybody's."""
        stopped, self.failpoint.stopped = list(self.failpoint.stopped), set()
        await self.lose(*stopped)

    async def travel(self, seconds: float) -> None:
        """Lets time pass in orders, at the provider and in inventory, by moving all their times into the past."""
        await self.lose_stopped()
        self._let_come_due(seconds)
        past = timedelta(seconds=seconds)
        async with self.state.db.begin() as connection:
            await connection.execute(text(WITHOUT_TRIGGERS))
            for table, columns in CLOCKS.items():
                shifts = ", ".join(f"{column} = {column} - CAST(:past AS interval)" for column in columns)
                await connection.execute(text(f'UPDATE orders."{table}" SET {shifts}'), {"past": past})
        for charge in list(self.charge_store._charges.values()):
            first_answer = charge.first_answer
            if first_answer:
                first_answer = first_answer | {"occurred_at": _earlier(first_answer["occurred_at"], past)}
            created_at, occurred_at = _earlier(charge.created_at, past), _earlier(charge.occurred_at, past)
            earlier = replace(charge, created_at=created_at, occurred_at=occurred_at, first_answer=first_answer)
            self.charge_store.put(earlier)
        await self.inventory.travel(seconds)

    def _let_come_due(self, after_s: float = 0.0) -> None:
        """Makes ready what is due by then, and brings all else that much nearer."""
        workers, now_s = self.state.worker, asyncio.get_running_loop().time()
        for held in workers._held.values():
            if held.timer is not None and not held.is_ready and held.task is None:
                held.timer.cancel()
                workers._schedule(held, held.timer.when() - now_s - after_s)

    async def deliver_all(self) -> None:
        webhooks, self.outgoing_webhooks.webhooks = self.outgoing_webhooks.webhooks, []
        for webhook in webhooks:
            await self.deliver(webhook)

    def finish_delayed_charges(self) -> None:
        """Every charge that succeeds later succeeds now."""
        for charge_id in list(self.charge_service._timers):
            self.charge_service._succeed_later(charge_id)

    async def expire_overdue_holds(self) -> None:
        """Inventory reads the payment status of overdue holds in payment, and expires those without a payment."""
        await self.inventory.state.expiry_worker.check_paying(EVENT, now_ms=now_ms())


def _earlier(at: str, past: timedelta) -> str:
    return as_rfc3339(datetime.fromisoformat(at) - past)


@asynccontextmanager
async def open_manual_shop(
    postgres_url: str, redis_url: str, *, failpoint: ScriptedFailpoint | None = None, **fields: Any
) -> AsyncIterator[ManualShop]:
    """A shop on this database, emptied."""
    errors, apps = list[str](), dict[str, ASGIApp]()
    failpoint = failpoint or ScriptedFailpoint()
    sandbox_settings = SandboxSettings(webhook_url="http://nobody", slow_s=0, hang_s=0, late_after_s=3600)
    store, outgoing_webhooks = ChargeStore(charges_max=10_000), WebhookQueue(sandbox_settings)
    charges = ChargeService(sandbox_settings, store, outgoing_webhooks, SandboxTuning(reorder_gap_s=0))
    provider = app_of(charges)
    tuning, rest = parted(Tuning, {**SETTINGS, **fields})
    settings = Settings(
        postgres_url=postgres_url, redis_url=redis_url,
        admin_keys=AdminKeys(f"ops:operator:{ADMIN_SECRET},eye:viewer:{VIEWER_SECRET}"), **rest,
    )  # fmt: skip
    with pytest.MonkeyPatch.context() as patch:
        connections = Connections(apps)
        inventory_connection = InventoryConnection(connections, settings.service_keys)
        patch.setattr(orders_app, "ServiceClient", lambda *_, **__: inventory_connection)
        patch.setattr(worker, "PROVIDER_AWAY_PAUSE_S", 0.0)
        patch.setattr(worker.log, "exception", lambda event, **fields: errors.append(f"{event} {fields}"))
        async with AsyncExitStack() as stack:
            inventory = await stack.enter_async_context(open_inventory(postgres_url, redis_url, connections))
            app = stack.enter_context(borrowed_app(orders_app.create_app, settings, tuning))
            apps.update(inventory=inventory.neighbour, orders=internal(app))
            inventory.sales["pay_ttl_s"] = PAY_TTL_S
            await inventory.clear()
            state = app.state.deps = await orders_app._open(
                stack, settings, tuning, failpoint, app.state.load.purchases
            )
            state.worker._workers_max = 0  # until `work`
            patch.setattr(state.worker, "_come_due", lambda held: None)  # until `travel`
            state.worker._heartbeat._clock = lambda: 0.0  # the loop that beats is off, however long a test works
            async with state.db.begin() as transaction:
                tables = ", ".join(f'orders."{t.name}"' for t in metadata.sorted_tables if t is not outbox_cursor)
                await transaction.execute(text(WITHOUT_TRIGGERS))
                await transaction.execute(text(f"TRUNCATE {tables}"))
            http, sandbox = [
                await stack.enter_async_context(
                    httpx.AsyncClient(transport=httpx.ASGITransport(app=target), base_url=url, trust_env=False)
                )
                for url, target in (("http://shop", public(app)), ("http://provider", provider))
            ]
            provider_client: Any = state.providers["sandbox"]
            provider_client._client = connection = ProviderConnection(sandbox)
            manual = ManualShop(
                app=app, http=http, sandbox=sandbox, inventory=inventory, settings=settings, failpoint=failpoint,
                connection=connection, inventory_connection=inventory_connection,
                outgoing_webhooks=outgoing_webhooks, charge_service=charges, charge_store=store, worker_errors=errors,
            )  # fmt: skip
            try:
                yield manual
            finally:
                for task in list(failpoint.asleep):
                    task.cancel()
                await asyncio.gather(*list(failpoint.asleep), return_exceptions=True)
                charges.close()
