"""The inventory service on real servers, with requests of fans, operators and other services."""

import json
from collections.abc import AsyncGenerator, AsyncIterator
from dataclasses import dataclass
from typing import Any

import httpx
import pytest

from services.inventory import app as inventory_app
from services.inventory.app import create_app
from services.inventory.redis_keys import Keys
from services.inventory.settings import Settings
from services.inventory.state import State
from services.inventory.tuning import Tuning
from shared.contracts.orders import PaymentRef, PaymentsAnswer, RefundsAnswer
from shared.rpc import sign_service_call
from shared.runtime.clock import now_s
from shared.security.auth import AdminKeys
from shared.security.tokens import Pass, development_keys, sign_pass
from shared.web import parts
from shared.web.app import internal, public
from shared.web.parts import with_settings_of_parts
from tests.support.running.services import StillLoops
from tests.support.running.serving import borrowed_app
from tests.support.running.suite import bearer
from tests.support.wait import wait_until

ADMIN = "tester:admin:a-long-enough-admin-secret"
OPERATOR = "hand:operator:a-long-enough-operator-secret"
ADMIN_KEY = bearer(ADMIN.split(":")[2])
OPERATOR_KEY = bearer(OPERATOR.split(":")[2])
EVENT = "show-1"
SEAT_AND_GA: dict[str, Any] = {"seats": ["A-1-1"], "ga_section": "GA1", "ga_quantity": 2}


def event_file(**sales: Any) -> dict[str, Any]:
    """A small venue: section A with 3 rows of 5 seats, section B with 2 rows of 4, and section GA1 with 20 tickets."""
    return {
        "event_id": EVENT, "name": "A Show", "venue": "A Hall", "currency": "EUR", "starts_at": "2027-03-05T19:30:00Z",
        "sales": {"tickets_per_order": 6, "tickets_per_customer": 6, **sales},
        "sections": [
            {"section_id": "A", "name": "Block A", "kind": "seated", "rows": 3, "seats_per_row": 5,
             "price_minor": 5000, "fee_minor": 250},
            {"section_id": "B", "name": "Block B", "kind": "seated", "rows": 2, "seats_per_row": 4,
             "price_minor": 4000},
            {"section_id": "GA1", "name": "Floor", "kind": "ga", "capacity": 20, "price_minor": 3000, "fee_minor": 100},
        ],
    }  # fmt: skip


def make_pass(
    holder: str, *, event_id: str = EVENT, lasts_s: int = 900, jti: str | None = None, qty_max: int = 6, epoch: int = 1,
    lane: int = 0,
) -> str:  # fmt: skip
    at = int(now_s())
    issued = min(at, at + lasts_s - 1)
    admission = Pass(event_id, holder, jti or f"jti-{holder}", epoch, lane, 7, qty_max, issued, at + lasts_s)
    return sign_pass(development_keys("pass"), admission)


# By the state of an order: the status of its payment, and the answer to a refund request.
ORDER_ANSWERS = {
    "sold": ("live", "asked"), "free": ("live", "free"), "pending": ("live", "later"), "cancelled": ("dead", "none"),
    "unknown": ("absent", "none"),
}  # fmt: skip


class Orders:
    """A double of the orders service. Every order is sold unless a test sets its state."""

    def __init__(self) -> None:
        self.states: dict[str, str] = {}
        self.refunds: list[str] = []

    def _answer(self, ref: PaymentRef) -> tuple[str, str]:
        return ORDER_ANSWERS[self.states.get(ref.order_reference, "sold")]

    async def payments(self, refs: list[PaymentRef]) -> PaymentsAnswer:
        return PaymentsAnswer.model_validate({"payments": [self._answer(ref)[0] for ref in refs]})

    async def refund(self, refs: list[PaymentRef], *, reason: str) -> RefundsAnswer:
        assert reason == "oversell"
        self.refunds += [ref.order_reference for ref in refs]
        return RefundsAnswer.model_validate({"refunds": [self._answer(ref)[1] for ref in refs]})


@dataclass
class Inventory:
    """A running inventory, with a client of its public and one of its internal routes."""

    state: State
    fans: httpx.AsyncClient
    internal: httpx.AsyncClient
    orders: Orders

    async def put(self, file: dict[str, Any]) -> httpx.Response:
        return await self.fans.put(f"/admin/inventory/events/{file['event_id']}", json=file, headers=ADMIN_KEY)

    async def admin(self, method: str, path: str, **body: Any) -> Any:
        answer = await self.fans.request(method, f"/admin/inventory{path}", headers=ADMIN_KEY, json=body or None)
        return answer.json()

    async def operate(self, method: str, path: str, **body: Any) -> httpx.Response:
        """An admin request about the stock of the event."""
        sent = body if method != "GET" else None
        return await self.fans.request(method, f"/admin/inventory/events/{EVENT}{path}", headers=ADMIN_KEY, json=sent)

    async def reserve(
        self,
        holder: str = "fan",
        *,
        key: str | None = None,
        token: str | None = None,
        event_id: str = EVENT,
        **body: Any,
    ) -> httpx.Response:
        headers = bearer(token or make_pass(holder, event_id=event_id))
        if key:
            headers["idempotency-key"] = key
        return await self.fans.post(f"/events/{event_id}/reservations", json=body, headers=headers)

    async def hold(self, holder: str = "fan", *, key: str | None = None, event_id: str = EVENT, **body: Any) -> str:
        """Reserves, by default a seat and two GA tickets, and returns the id of the reservation."""
        answer = await self.reserve(holder, key=key, event_id=event_id, **(body or SEAT_AND_GA))
        assert answer.status_code == 201, answer.text
        return str(answer.json()["reservation_id"])

    async def fan_request(
        self, method: str, reservation_id: str, holder: str = "fan", *, more: str = "", body: Any = None,
        **pass_fields: Any,
    ) -> httpx.Response:  # fmt: skip
        """A fan's request about a reservation."""
        path, headers = f"/events/{EVENT}/reservations/{reservation_id}{more}", bearer(make_pass(holder, **pass_fields))
        return await self.fans.request(method, path, headers=headers, json=body)

    async def read_as(self, token: str, reservation_id: str) -> httpx.Response:
        return await self.fans.get(f"/events/{EVENT}/reservations/{reservation_id}", headers=bearer(token))

    async def post_internal(self, path: str, request: dict[str, Any]) -> Any:
        """A signed request of another service."""
        body = json.dumps(request).encode()
        headers = sign_service_call(development_keys("service"), "POST", f"/internal{path}", body)
        answer = await self.internal.post(f"/internal{path}", content=body, headers=headers)
        assert answer.status_code == 200, answer.text
        return answer.json()

    async def step(
        self, verb: str, reservation_id: str, reference: str, customer_key: str | None = None, *,
        event_id: str = EVENT, binding: Any = None,
    ) -> Any:  # fmt: skip
        step = {
            "event_id": event_id, "reservation_id": reservation_id, "order_reference": reference,
            "customer_key": customer_key, "binding": binding,
        }  # fmt: skip
        return (await self.post_internal(f"/reservations/{verb}", {"steps": [step]}))["steps"][0]

    async def outcome(
        self, verb: str, reservation_id: str, reference: str, customer_key: str | None = None, *, binding: Any = None
    ) -> str:
        """The outcome of one step of an order."""
        return str((await self.step(verb, reservation_id, reference, customer_key, binding=binding))["outcome"])

    async def counts(self, section_id: str) -> tuple[int, int]:
        """Available and held, as published."""
        frame = await self.state.availability.frame(self.state.catalogue.layout(EVENT))
        counts = next(s for s in frame.sections if s.section_id == section_id)
        return counts.available, counts.held

    async def redis_counts(self, section_id: str) -> tuple[int, int]:
        """Available and held, as Redis counts at this moment."""
        names = [f"{section_id}:{name}" for name in ("available", "held")]
        available, held = await self.state.redis_stock.redis.hmget(Keys.of(EVENT).counts, *names)
        return int(available or 0), int(held or 0)

    async def violations(self, *, at_rest: bool = False) -> list[Any]:
        """The invariants that do not hold now. At rest, every section that holds stock is a violation, too."""
        invariants = (await self.admin("GET", f"/events/{EVENT}/audit"))["invariants"]
        violated = [invariant for invariant in invariants if not invariant["holds"]]
        if at_rest:
            frame = await self.state.availability.frame(self.state.catalogue.layout(EVENT))
            violated += [f"{s.section_id} holds {s.held}" for s in frame.sections if s.held]
        return violated

    def travel(self, ms: int) -> None:
        """Moves the clock of the servers."""
        self.state.redis_stock.clock_offset_ms += ms

    async def until_ready(self) -> None:
        async def is_ready() -> bool:
            return bool(await self.state.redis_stock.redis.hget(Keys.of(EVENT).meta, "ready") == b"1")

        await wait_until(is_ready)


QUICK = Tuning(
    redis_check_interval_ms=50, expiry_interval_ms=50, expiry_scan_interval_ms=200, publish_interval_ms=50
)  # fmt: skip


async def start(settings: Settings) -> AsyncGenerator[Inventory, None]:
    """Inventory whose background loops run every 50 ms."""
    with borrowed_app(create_app, settings, QUICK) as app:
        async with app.router.lifespan_context(app):
            state: State = app.state.deps
            orders = Orders()
            state.expiry_worker._orders = state.orders = orders  # type: ignore[assignment]
            public_routes = httpx.ASGITransport(public(app), raise_app_exceptions=False)
            internal_routes = httpx.ASGITransport(internal(app), raise_app_exceptions=False)
            async with (
                httpx.AsyncClient(transport=public_routes, base_url="http://fans") as fans,
                httpx.AsyncClient(transport=internal_routes, base_url="http://internal") as services,
            ):
                yield Inventory(state, fans, services, orders)


def settings_of(redis_url: str, postgres_url: str) -> Settings:
    return with_settings_of_parts(Settings, "inventory")(
        redis_url=redis_url, postgres_url=postgres_url, admin_keys=AdminKeys(f"{ADMIN},{OPERATOR}"), log_requests=False,
        fan_calls_per_s=1e6,
    )  # fmt: skip


@pytest.fixture
def settings(redis_url: str, postgres_url: str) -> Settings:
    return settings_of(redis_url, postgres_url)


@pytest.fixture
def loops() -> None:
    """The inventory of a test that asks for this runs its background loops; any other one, what the test runs."""


@pytest.fixture
async def inventory(
    settings: Settings, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Inventory]:
    """On sale."""
    with_loops = "loops" in request.fixturenames
    if not with_loops:
        monkeypatch.setattr(inventory_app, "_start", lambda *_: None)
        monkeypatch.setattr(parts, "Loops", StillLoops)
    async for running in start(settings):
        assert (await running.put(event_file())).status_code == 200
        await (running.until_ready() if with_loops else running.state.redis_monitor.check())
        yield running
