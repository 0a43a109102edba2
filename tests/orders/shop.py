"""An orders process, and the calls that customers and operators make."""

import uuid
from dataclasses import dataclass
from typing import Any

import httpx
from fastapi import FastAPI
from sqlalchemy import select, text

from services.orders.order import leases
from services.orders.order.customers import owner_id
from services.orders.order.next_step import Order
from services.orders.order.references import order_reference
from services.orders.settings import Settings
from services.orders.tables import money_entry
from shared.runtime.clock import now_ms
from shared.runtime.settings import development_keys
from shared.security.tokens import Pass, sign_pass
from tests.orders.holds import EVENT, Holds
from tests.support.wait import wait_until

ADMIN_SECRET = "an operator's secret for tests"
ROOT_SECRET = "an admin's secret for tests only"
VIEWER_SECRET = "a viewer's secret for tests only"


def pass_of(holder: str = "fan", *, event_id: str = EVENT, expires_in_s: int = 600) -> str:
    now = now_ms() // 1000
    admission = Pass(event_id, holder, f"0-0-{holder}", 0, 0, 7, 6, now - 700, now + expires_in_s)
    return sign_pass(development_keys("pass"), admission)


@dataclass
class Shop:
    """An orders process with its providers and inventory, and the calls that customers and operators make."""

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
        """Makes a hold and orders it; the reference."""
        return await self.order_of(self.holds.hold(), method=method, key=key, **payment)

    async def order_of(self, reservation_id: str, *, method: str = "ok", key: str | None = None, **payment: Any) -> str:
        answer = await self.post(self.body(reservation_id, method=method, **payment), key=key or uuid.uuid4().hex)
        assert answer.status_code == 202, answer.text
        return str(answer.json()["reference"])

    async def row(self, reference: str) -> Order:
        """The order as the database has it."""
        order = await leases.read(self.app.state.deps.db, reference)
        assert order is not None
        return order

    async def see(self, reference: str, holder: str = "fan") -> dict[str, Any]:
        answer = await self.http.get(f"/orders/{reference}", headers={"authorization": f"Bearer {pass_of(holder)}"})
        assert answer.status_code == 200, answer.text
        return dict(answer.json())

    async def status(self, reference: str) -> str:
        return str((await self.see(reference))["status"])

    async def charges(self, reference: str | None = None) -> list[dict[str, Any]]:
        params = {"limit": "1000"} | ({"reference": reference} if reference else {})
        return list((await self.sandbox.get("/charges", params=params)).json()["charges"])

    async def net_minor(self, reference: str) -> int:
        """What the provider kept of this order's money, by its own records."""
        charges = await self.charges(reference)
        return sum(c["captured_minor"] - c["refunded_minor"] for c in charges)

    async def settled(self, reference: str, *statuses: str, timeout_s: float = 15.0) -> str:
        """Waits for one of these statuses with the provider's records agreeing; returns the status."""

        async def agrees() -> bool:
            status = await self.status(reference)
            owed = 6800 if status == "confirmed" else 0
            return status in statuses and await self.net_minor(reference) == owed

        await wait_until(agrees, timeout_s=timeout_s, interval_s=0.03)
        return await self.status(reference)

    async def attempt_is(self, reference: str, status: str) -> bool:
        """By the database: outside, an attempt is `processing` before the provider was called."""
        attempt = (await self.row(reference)).attempt
        return attempt is not None and attempt.status == status

    async def operate(self, path: str, *, key: str | None = None, **body: Any) -> httpx.Response:
        """An operator's action on an order or an event."""
        headers = {"authorization": f"Bearer {ADMIN_SECRET}"} | ({"idempotency-key": key} if key else {})
        asked = {"reason": "the show moved", **body}
        return await self.http.post(f"/admin/orders/{path}", json=asked, headers=headers)

    async def look_up(self, path: str = "", **params: Any) -> dict[str, Any]:
        """An operator's read of orders."""
        operator = {"authorization": f"Bearer {ADMIN_SECRET}"}
        answer = await self.http.get(f"/admin/orders{path}", params=params, headers=operator)
        assert answer.status_code == 200, answer.text
        return dict(answer.json())

    async def is_now(self, reference: str, *statuses: str) -> None:
        """Waits for one of these statuses with no refund or return pending."""

        async def settled() -> bool:
            seen = await self.row(reference)
            return seen.status in statuses and not (seen.refunds or seen.returns or seen.review_decision)

        await wait_until(settled, timeout_s=10, interval_s=0.02)

    async def expire(self, reference: str, *, ago_s: int = 0) -> None:
        """Moves the order's deadline to now, or to `ago_s` before, and wakes its worker, which may have read the old
        one.
        """
        await self.run(
            'UPDATE orders."order" SET expires_at = now() - make_interval(secs => :ago_s), due_at = now(),'
            " wake_count = wake_count + 1"
            " WHERE reference = :reference",
            reference=reference, ago_s=ago_s,
        )  # fmt: skip

    async def run(self, statement: str, **values: Any) -> None:
        async with self.app.state.deps.db.begin() as connection:
            await connection.execute(text(statement), values)

    async def entries(self) -> list[tuple[str, str, int]]:
        """Every money entry of orders: kind, reference, amount."""
        async with self.app.state.deps.db.connect() as connection:
            rows = await connection.execute(
                select(money_entry.c.kind, money_entry.c.reference, money_entry.c.amount_minor)
            )
            return sorted((row.kind, row.reference, row.amount_minor) for row in rows)

    async def booked(self) -> list[tuple[str, str, int]]:
        """The same by the provider's records."""
        charges = await self.charges()
        taken = [("charge", c["reference"], c["captured_minor"]) for c in charges if c["captured_minor"]]
        given = [("refund", c["reference"], c["refunded_minor"]) for c in charges if c["refunded_minor"]]
        return sorted(taken + given)

    async def audit(self) -> dict[str, str]:
        """The invariants that are violated."""
        answer = await self.http.get(
            f"/admin/orders/events/{EVENT}/audit", headers={"authorization": f"Bearer {VIEWER_SECRET}"}
        )
        assert answer.status_code == 200, answer.text
        return {line["invariant"]: line["detail"] for line in answer.json()["invariants"] if not line["holds"]}


def reference_of(shop: Shop, key: str, holder: str = "fan") -> str:
    """The reference that an order of this holder with this key has."""
    return order_reference(shop.settings.order_token_keys, owner_id(EVENT, holder), key)
