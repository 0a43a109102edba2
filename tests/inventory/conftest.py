"""A running inventory over real servers, with fans, operators and neighbours to ask it."""

import json
from collections.abc import AsyncGenerator, AsyncIterator
from dataclasses import dataclass
from typing import Any

import httpx
import pytest

from services.inventory import app as app_room
from services.inventory.app import create_app
from services.inventory.settings import Settings
from services.inventory.state import State
from shared.contracts.orders import PaymentRef, PaymentsAnswer, RefundsAnswer
from shared.runtime.clock import now_s
from shared.runtime.settings import development_keys
from shared.security.auth import AdminKeys, sign_service_call
from shared.security.tokens import Pass, sign_pass
from shared.web.app import internal, public
from tests.support.wait import wait_until

ADMIN = "tester:admin:a-long-enough-admin-secret"
OPERATOR = "hand:operator:a-long-enough-operator-secret"
EVENT = "show-1"


def event_file(**sales: Any) -> dict[str, Any]:
    """A small venue: section A with 3 rows of 5, section B with 2 of 4, and 20 places on the floor."""
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
    holder: str, *, event_id: str = EVENT, lasts_s: int = 900, jti: str | None = None, qty_max: int = 6
) -> str:
    at = int(now_s())
    issued = min(at, at + lasts_s - 1)
    admission = Pass(event_id, holder, jti or f"jti-{holder}", 1, 0, 7, qty_max, issued, at + lasts_s)
    return sign_pass(development_keys("pass"), admission)


# What orders says of an order: whether its payment stands, and what becomes of a wish to refund it.
ORDER_ANSWERS = {
    "sold": ("live", "asked"), "free": ("live", "free"), "pending": ("live", "later"), "cancelled": ("dead", "none"),
    "unknown": ("absent", "none"),
}  # fmt: skip


class Orders:
    """What orders would say about payments; every order is sold unless a test says otherwise."""

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
    """One running inventory."""

    state: State
    fans: httpx.AsyncClient
    neighbours: httpx.AsyncClient
    orders: Orders

    async def put(self, file: dict[str, Any]) -> httpx.Response:
        key = {"authorization": f"Bearer {ADMIN.split(':')[2]}"}
        return await self.fans.put(f"/admin/inventory/events/{file['event_id']}", json=file, headers=key)

    async def admin(self, method: str, path: str, **body: Any) -> Any:
        key = {"authorization": f"Bearer {ADMIN.split(':')[2]}"}
        answer = await self.fans.request(method, f"/admin/inventory{path}", headers=key, json=body or None)
        return answer.json()

    async def operate(self, method: str, path: str, **body: Any) -> httpx.Response:
        """What an operator does with this event's stock."""
        key = {"authorization": f"Bearer {ADMIN.split(':')[2]}"}
        sent = body if method != "GET" else None
        return await self.fans.request(method, f"/admin/inventory/events/{EVENT}{path}", headers=key, json=sent)

    async def reserve(
        self,
        holder: str = "fan",
        *,
        key: str | None = None,
        token: str | None = None,
        event_id: str = EVENT,
        **body: Any,
    ) -> httpx.Response:
        headers = {"authorization": f"Bearer {token or make_pass(holder, event_id=event_id)}"}
        if key:
            headers["idempotency-key"] = key
        return await self.fans.post(f"/events/{event_id}/reservations", json=body, headers=headers)

    async def mine(
        self, method: str, reservation_id: str, holder: str = "fan", *, more: str = "", **kw: Any
    ) -> httpx.Response:
        headers = {"authorization": f"Bearer {make_pass(holder, **kw)}"}
        return await self.fans.request(method, f"/events/{EVENT}/reservations/{reservation_id}{more}", headers=headers)

    async def mine_by(self, token: str, reservation_id: str) -> httpx.Response:
        headers = {"authorization": f"Bearer {token}"}
        return await self.fans.get(f"/events/{EVENT}/reservations/{reservation_id}", headers=headers)

    async def ask(self, path: str, question: dict[str, Any]) -> Any:
        body = json.dumps(question).encode()
        headers = sign_service_call(development_keys("service"), "POST", f"/internal{path}", body)
        answer = await self.neighbours.post(f"/internal{path}", content=body, headers=headers)
        assert answer.status_code == 200, answer.text
        return answer.json()

    async def step(self, verb: str, reservation_id: str, reference: str, customer_key: str | None = None) -> Any:
        step = {"reservation_id": reservation_id, "order_reference": reference, "customer_key": customer_key}
        return (await self.ask(f"/reservations/{verb}", {"steps": [step]}))["steps"][0]

    async def left(self, section_id: str) -> tuple[int, int]:
        """Available and held, as everybody sees it."""
        frame = await self.state.availability.frame(self.state.catalogue.layout(EVENT))
        counts = next(s for s in frame.sections if s.section_id == section_id)
        return counts.available, counts.held

    async def broken(self, *, at_rest: bool = False) -> list[Any]:
        """Invariants that do not hold now."""
        findings = (await self.admin("GET", f"/events/{EVENT}/audit"))["invariants"]
        broken = [finding for finding in findings if not finding["holds"]]
        if at_rest:
            frame = await self.state.availability.frame(self.state.catalogue.layout(EVENT))
            broken += [f"{s.section_id} holds {s.held}" for s in frame.sections if s.held]
        return broken

    def travel(self, ms: int) -> None:
        """Moves the servers' clock."""
        self.state.redis_stock.clock_offset_ms += ms

    async def ready(self) -> None:
        async def is_ready() -> bool:
            redis_stock = await self.state.redis_stock.redis.hget(f"inventory:{{{EVENT}}}:meta", "ready")
            return bool(redis_stock == b"1")

        await wait_until(is_ready)


async def start(settings: Settings) -> AsyncGenerator[Inventory, None]:
    app = create_app(settings)
    async with app.router.lifespan_context(app):
        state: State = app.state.deps
        orders = Orders()
        state.expiry_worker._orders = orders  # type: ignore[assignment]
        state.oversell_refunds._orders = orders  # type: ignore[assignment]
        outside = httpx.ASGITransport(public(app), raise_app_exceptions=False)
        inside = httpx.ASGITransport(internal(app), raise_app_exceptions=False)
        async with (
            httpx.AsyncClient(transport=outside, base_url="http://fans") as fans,
            httpx.AsyncClient(transport=inside, base_url="http://neighbours") as neighbours,
        ):
            yield Inventory(state, fans, neighbours, orders)


def settings_of(redis_url: str, postgres_url: str) -> Settings:
    """As inventory runs in tests: every loop turns fast."""
    return Settings(
        redis_url=redis_url, postgres_url=postgres_url, admin_keys=AdminKeys(f"{ADMIN},{OPERATOR}"), log_requests=False,
        redis_check_interval_ms=50, allotment_interval_ms=50, expiry_interval_ms=50, expiry_scan_interval_ms=200,
        publish_interval_ms=50,
    )  # fmt: skip


@pytest.fixture
def settings(redis_url: str, postgres_url: str) -> Settings:
    return settings_of(redis_url, postgres_url)


@pytest.fixture
async def still(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Inventory]:
    """On sale, but without its loops: a test makes every turn by hand."""
    monkeypatch.setattr(app_room, "_start", lambda *_: None)
    async for running in start(settings):
        assert (await running.put(event_file())).status_code == 200
        await running.state.redis_monitor.check()
        yield running


@pytest.fixture
async def inventory(settings: Settings) -> AsyncIterator[Inventory]:
    """Running, with the small venue on sale."""
    async for running in start(settings):
        assert (await running.put(event_file())).status_code == 200
        await running.ready()
        yield running
