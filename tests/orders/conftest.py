"""Orders with real engines, the real sandbox on a port, and a neighbour that keeps its holds in memory."""

import asyncio
import socket
import uuid
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import httpx
import pytest
import uvicorn
from fastapi import APIRouter, FastAPI
from sqlalchemy import select

from onsale.sandbox import SandboxSettings, create_sandbox
from services.orders import ledger
from services.orders.app import create_app
from services.orders.settings import Settings
from services.orders.steps import Order
from services.orders.tables import money_entry
from services.orders.till import Failpoint, no_failpoint
from shared.auth import AdminKeys
from shared.clock import now_ms
from shared.contracts.inventory import (
    Line,
    PaymentStep,
    PaymentSteps,
    ReadReservations,
    Reservation,
    ReservationsAnswer,
    StepDone,
    StepsAnswer,
)
from shared.service import internal, public
from shared.settings import development_keys
from shared.tokens import Pass, b64, sign_pass
from tests.support.wait import wait_until

EVENT = "flash"
ADMIN_SECRET = "an operator's secret for tests"
VIEWER_SECRET = "a viewer's secret for tests only"


class GuestServer(uvicorn.Server):
    """Leaves signals alone."""

    def install_signal_handlers(self) -> None:
        return

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.servers[0].sockets[0].getsockname()[1]}"


@asynccontextmanager
async def serving(app: Any) -> AsyncIterator[str]:
    """The app on a port of its own."""
    bound = socket.create_server(("127.0.0.1", 0))
    config = uvicorn.Config(app, log_config=None, access_log=False, timeout_graceful_shutdown=1)
    server = GuestServer(config)
    task = asyncio.create_task(server._serve(sockets=[bound]))
    await wait_until(lambda: server.started)
    try:
        yield f"http://127.0.0.1:{bound.getsockname()[1]}"
    finally:
        server.should_exit = True
        await task


@dataclass
class Holds:
    """A neighbour that answers as inventory does, from memory. Whoever is in `taken` lost its stock for good."""

    reservations: dict[str, Reservation] = field(default_factory=dict)
    taken: set[str] = field(default_factory=set)
    customer_max: int = 100
    customers: dict[str, str] = field(default_factory=dict)
    asked: list[tuple[str, str, str]] = field(default_factory=list)
    pay_ttl_ms: int = 60_000
    gate: Callable[[str], Any] | None = None

    def hold(self, holder: str = "fan", *, total_minor: int = 6800, until_ms: int = 60_000, **fields: Any) -> str:
        reservation_id = fields.pop("reservation_id", None) or uuid.uuid4().hex
        lines = [Line(section_id="GA1", quantity=1, unit_price_minor=total_minor)]
        self.reservations[reservation_id] = Reservation(
            event_id=EVENT, reservation_id=reservation_id, holder=holder, status="pending_payment", join_seq=7,
            total_minor=total_minor, currency="EUR", reserved_until_ms=now_ms() + until_ms, lines=lines, **fields,
        )  # fmt: skip
        return reservation_id

    def change(self, reservation_id: str, **fields: Any) -> Reservation:
        changed = self.reservations[reservation_id].model_copy(update=fields)
        self.reservations[reservation_id] = changed
        return changed

    def begin(self, step: PaymentStep) -> StepDone:
        held = self.reservations.get(step.reservation_id)
        if held is None:
            return StepDone(word="unknown")
        if held.status == "paying" and held.order_reference != step.order_reference:
            return StepDone(word="being-paid", order_reference=held.order_reference, reservation=held)
        if held.status not in ("pending_payment", "paying"):
            return StepDone(word="ended", reservation=held)
        if held.status == "paying":
            return StepDone(word="done", reservation=held)
        if step.customer_key:
            self.customers[step.reservation_id] = step.customer_key
            if list(self.customers.values()).count(step.customer_key) > self.customer_max:
                return StepDone(word="limit-exceeded")
        until = max(held.reserved_until_ms, now_ms() + self.pay_ttl_ms) if self.pay_ttl_ms else held.reserved_until_ms
        changed = self.change(
            step.reservation_id, status="paying", order_reference=step.order_reference, reserved_until_ms=until
        )
        return StepDone(word="done", reservation=changed)

    def owned(self, step: PaymentStep, *, done: str, to: str, from_: tuple[str, ...]) -> StepDone:
        held = self.reservations.get(step.reservation_id)
        if held is None:
            return StepDone(word="unknown")
        if held.order_reference != step.order_reference:
            return StepDone(word="not-owner")
        if held.status == done:
            return StepDone(word="done", reservation=held)
        if held.status not in from_:
            return StepDone(word="ended")
        return StepDone(word="done", reservation=self.change(step.reservation_id, status=to))

    def end(self, step: PaymentStep) -> StepDone:
        done = self.owned(step, done="pending_payment", to="pending_payment", from_=("paying",))
        if done.word == "done":
            self.change(step.reservation_id, order_reference=None)
        return done

    def confirm(self, step: PaymentStep) -> StepDone:
        return self.owned(step, done="confirmed", to="confirmed", from_=("paying",))

    def release(self, step: PaymentStep) -> StepDone:
        return self.owned(step, done="cancelled", to="cancelled", from_=("paying",))

    def retake(self, step: PaymentStep) -> StepDone:
        if step.reservation_id in self.taken:
            return StepDone(word="taken")
        return self.owned(step, done="confirmed", to="confirmed", from_=("paying", "cancelled", "expired"))

    def app(self) -> FastAPI:
        router = APIRouter(prefix="/internal/reservations")

        @router.post("/read")
        async def read(question: ReadReservations) -> ReservationsAnswer:
            return ReservationsAnswer(reservations=[self.reservations.get(r) for r in question.reservation_ids])

        def verb(path: str, work: Callable[[PaymentStep], StepDone]) -> None:
            @router.post(f"/{path}")
            async def steps(question: PaymentSteps) -> StepsAnswer:
                if self.gate is not None:
                    await self.gate(path)
                self.asked += [(path, s.reservation_id, s.order_reference) for s in question.steps]
                return StepsAnswer(steps=[work(step) for step in question.steps])

        verb("begin-payment", self.begin)
        verb("end-payment", self.end)
        verb("confirm", self.confirm)
        verb("release", self.release)
        verb("retake", self.retake)
        app = FastAPI()
        app.include_router(router)
        return app


def pass_of(holder: str = "fan", *, event_id: str = EVENT, expires_in_s: int = 600) -> str:
    now = now_ms() // 1000
    admission = Pass(event_id, holder, f"0-0-{holder}", 0, 0, 7, 6, now - 700, now + expires_in_s)
    return sign_pass(development_keys("pass"), admission)


@dataclass
class Shop:
    """Orders with its surroundings, and the calls a fan makes."""

    app: FastAPI
    http: httpx.AsyncClient
    sandbox: httpx.AsyncClient
    holds: Holds
    settings: Settings

    def body(
        self, reservation_id: str, *, method: str = "ok", total_minor: int = 6800, **payment: Any
    ) -> dict[str, Any]:
        return {
            "reservation_id": reservation_id,
            "expected_total_minor": total_minor,
            "currency": "EUR",
            "customer": {"name": "Ada", "email": "ada@example.org"},
            "payment": {"provider": "sandbox", "method": method, **payment},
        }

    async def post(
        self, body: dict[str, Any], *, key: str | None = "a-key", holder: str = "fan", **headers: str
    ) -> httpx.Response:
        sent = {"authorization": f"Bearer {pass_of(holder)}", **headers}
        if key is not None:
            sent["idempotency-key"] = key
        return await self.http.post("/orders", json=body, headers=sent)

    async def order(self, *, method: str = "ok", key: str | None = None, **payment: Any) -> str:
        """Holds and orders; the reference."""
        return await self.order_of(self.holds.hold(), method=method, key=key, **payment)

    async def order_of(self, reservation_id: str, *, method: str = "ok", key: str | None = None, **payment: Any) -> str:
        answer = await self.post(self.body(reservation_id, method=method, **payment), key=key or uuid.uuid4().hex)
        assert answer.status_code == 202, answer.text
        return str(answer.json()["reference"])

    async def row(self, reference: str) -> Order:
        """The order as the ledger has it."""
        order = await ledger.read(self.app.state.room.engine, reference)
        assert order is not None
        return order

    async def see(self, reference: str, holder: str = "fan") -> dict[str, Any]:
        answer = await self.http.get(f"/orders/{reference}", headers={"authorization": f"Bearer {pass_of(holder)}"})
        assert answer.status_code == 200, answer.text
        return dict(answer.json())

    async def status(self, reference: str) -> str:
        return str((await self.see(reference))["status"])

    async def charges(self, reference: str | None = None) -> list[dict[str, Any]]:
        params = {"reference": reference} if reference else {}
        return list((await self.sandbox.get("/charges", params=params)).json()["charges"])

    async def net_minor(self, reference: str) -> int:
        """What the provider kept of this order's money, by its own books."""
        charges = await self.charges(reference)
        return sum(c["captured_minor"] - c["refunded_minor"] for c in charges)

    async def settled(self, reference: str, *statuses: str, timeout_s: float = 15.0) -> str:
        """Waits for one of these statuses with the provider's books agreeing; the status it is."""

        async def agrees() -> bool:
            status = await self.status(reference)
            owed = 6800 if status == "confirmed" else 0
            return status in statuses and await self.net_minor(reference) == owed

        await wait_until(agrees, timeout_s=timeout_s)
        return await self.status(reference)

    async def entries(self) -> list[tuple[str, str, int]]:
        """Every cent by our books: which way, whose, how much."""
        async with self.app.state.room.engine.connect() as connection:
            rows = await connection.execute(
                select(money_entry.c.kind, money_entry.c.reference, money_entry.c.amount_minor)
            )
            return sorted((row.kind, row.reference, row.amount_minor) for row in rows)

    async def booked(self) -> list[tuple[str, str, int]]:
        """The same by the provider's books."""
        charges = await self.charges()
        taken = [("charge", c["reference"], c["captured_minor"]) for c in charges if c["captured_minor"]]
        given = [("refund", c["reference"], c["refunded_minor"]) for c in charges if c["refunded_minor"]]
        return sorted(taken + given)

    async def audit(self) -> dict[str, str]:
        """The promises that are broken."""
        answer = await self.http.get(
            f"/admin/orders/events/{EVENT}/audit", headers={"authorization": f"Bearer {VIEWER_SECRET}"}
        )
        assert answer.status_code == 200, answer.text
        return {line["invariant"]: line["detail"] for line in answer.json()["invariants"] if not line["holds"]}


SANDBOX_QUICK: dict[str, Any] = {
    "slow_s": 0.1,
    "hang_s": 1.0,
    "late_after_s": 0.1,
    "reorder_gap_s": 0.05,
    "webhook_retry_delays_s": (0.05,) * 7,
}
ORDERS_QUICK: dict[str, Any] = {
    "provider_timeout_s": 0.5,
    "retry_first_s": 0.05,
    "retry_max_s": 0.2,
    "poll_s": 0.1,
    "sweep_s": 0.2,
    "look_again_s": (0.3, 0.6),
    "lease_margin_s": 1.0,
    "log_requests": False,
    "workers": 8,
}


class Rooms:
    """Opens shops; several may share one ledger, one sandbox and one neighbour."""

    def __init__(self, stack: AsyncExitStack, postgres_url: str, redis_url: str) -> None:
        self._stack, self._postgres_url, self._redis_url = stack, postgres_url, redis_url
        self.holds = Holds()
        self._inventory_url = ""
        self._sandbox_url = ""
        self._target: list[FastAPI] = []

    async def _neighbours(self, webhooks: bool) -> None:
        rooms = self

        class ToTheShop(httpx.AsyncBaseTransport):
            async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
                return await httpx.ASGITransport(app=public(rooms._target[-1])).handle_async_request(request)

        self._inventory_url = await self._stack.enter_async_context(serving(self.holds.app()))
        secret = b64(next(iter(development_keys("sandbox-webhook").keys.values())))
        settings = SandboxSettings(
            webhook_secret=secret, webhook_url="http://shop/webhooks/sandbox" if webhooks else None, **SANDBOX_QUICK
        )
        sandbox = create_sandbox(settings, webhook_transport=ToTheShop())
        self._sandbox_url = await self._stack.enter_async_context(serving(sandbox))

    async def open(
        self, *, failpoint: Failpoint = no_failpoint, webhooks: bool = False, stack: AsyncExitStack | None = None,
        **fields: Any,
    ) -> Shop:  # fmt: skip
        """An orders process. With a `stack` of the test's own it can be closed before the test ends."""
        if not self._inventory_url:
            await self._neighbours(webhooks)
        stack = stack or self._stack
        settings = Settings(
            postgres_url=self._postgres_url, redis_url=self._redis_url, inventory_url=self._inventory_url,
            admin_keys=AdminKeys(f"ops:operator:{ADMIN_SECRET},eye:viewer:{VIEWER_SECRET}"),
            **{"sandbox_url": self._sandbox_url, **ORDERS_QUICK, **fields},
        )  # fmt: skip
        app = create_app(settings, failpoint=failpoint)
        self._target.append(app)
        await stack.enter_async_context(app.router.lifespan_context(app))
        http = await stack.enter_async_context(
            httpx.AsyncClient(transport=httpx.ASGITransport(app=public(app)), base_url="http://shop")
        )
        sandbox = await stack.enter_async_context(httpx.AsyncClient(base_url=self._sandbox_url, trust_env=False))
        return Shop(app, http, sandbox, self.holds, settings)

    def inside(self, app: FastAPI) -> httpx.AsyncClient:
        return httpx.AsyncClient(transport=httpx.ASGITransport(app=internal(app)), base_url="http://inside")


@pytest.fixture
async def rooms(postgres_url: str, redis_url: str) -> AsyncIterator[Rooms]:
    async with AsyncExitStack() as stack:
        yield Rooms(stack, postgres_url, redis_url)


@pytest.fixture
async def shop(rooms: Rooms) -> Shop:
    return await rooms.open(webhooks=True)
