"""An event with fees, taxes and promo codes, and the requests of its fans and operators."""

import uuid
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote

import httpx

from shared.contracts.inventory import ReservedItem
from tests.orders.shop import ADMIN_SECRET, ROOT_SECRET, Shop, pass_header
from tests.support.wait import wait_until

FEES = [
    {"name": "Booking fee", "per": "ticket", "amount_minor": 150},
    {"name": "Order fee", "per": "order", "percent": 2.5},
]
PRICE_TYPES: list[dict[str, Any]] = [
    {"type_id": "adult", "name": "Adult"},
    {"type_id": "child", "name": "Child", "percent": 50, "proof": "A pupil's card"},
    {"type_id": "free", "name": "Under 3", "price_minor": 0},
]
TAXES = [{"name": "VAT", "percent": 19, "included": True}, {"name": "City tax", "percent": "1.5", "included": False}]


@dataclass
class Sale:
    """One event, at one orders process."""

    shop: Shop
    event_id: str = field(default_factory=lambda: f"e-{uuid.uuid4().hex[:12]}")

    async def apply_event_file(
        self, *, fees: Any = (), taxes: Any = (), currency: str = "EUR", price_minor: int = 5000,
        price_types: Any = (), secret: str = ROOT_SECRET, **more: Any,
    ) -> httpx.Response:  # fmt: skip
        """Applies an event file with the sections A and GA1; inventory has the price types of the first hold."""
        self.shop.inventory.price_types[self.event_id] = price_types
        section = {"name": "x", "kind": "ga", "capacity": 100, "price_minor": price_minor}
        file = {
            "event_id": self.event_id, "name": "A test", "venue": "A hall", "currency": currency,
            "starts_at": "2030-01-01T20:00:00Z", "fees": list(fees), "taxes": list(taxes),
            "price_types": list(price_types),
            "sections": [{"section_id": name, **section} for name in ("A", "GA1")], **more,
        }  # fmt: skip
        return await self.admin_request("PUT", body=file, secret=secret)

    async def admin_request(
        self, method: str, path: str = "", *, body: Any = None, secret: str = ADMIN_SECRET
    ) -> httpx.Response:
        headers = {"authorization": f"Bearer {secret}"}
        address = f"/admin/orders/events/{self.event_id}{path}"
        return await self.shop.http.request(method, address, json=body, headers=headers)

    async def put_code(self, code: str, **rule: Any) -> dict[str, Any]:
        answer = await self.admin_request("PUT", f"/promo-codes/{quote(code, safe='')}", body=rule)
        assert answer.status_code == 200, answer.text
        return dict(answer.json())

    async def hold(self, *lines: ReservedItem, holder: str = "fan", currency: str = "EUR") -> str:
        """A hold of these lines; by default two floor tickets of 50."""
        items = lines or [ReservedItem(section_id="GA1", quantity=2, unit_price_minor=5000)]
        return await self.shop.inventory.hold(holder, lines=items, event_id=self.event_id, currency=currency)

    async def quote(self, reservation_id: str, code: str | None = None, *, holder: str = "fan") -> httpx.Response:
        body = {"reservation_id": reservation_id, "promo_code": code}
        return await self.shop.http.post(
            "/orders/quote", json=body, headers=pass_header(holder, event_id=self.event_id)
        )

    async def order(
        self, reservation_id: str, total_minor: int, code: str | None = None, *,
        holder: str = "fan", key: str | None = None, email: str | None = None, method: str = "ok",
        currency: str = "EUR",
    ) -> httpx.Response:  # fmt: skip
        body = self.shop.body(reservation_id, total_minor=total_minor, method=method) | {
            "promo_code": code,
            "currency": currency,
        }
        body["customer"] = {"name": "Ada", "email": email or f"{uuid.uuid4().hex}@example.org"}
        headers = {**pass_header(holder, event_id=self.event_id), "idempotency-key": key or uuid.uuid4().hex}
        return await self.shop.http.post("/orders", json=body, headers=headers)

    async def post(self, body: dict[str, Any], *, holder: str = "fan") -> httpx.Response:
        headers = {**pass_header(holder, event_id=self.event_id), "idempotency-key": uuid.uuid4().hex}
        return await self.shop.http.post("/orders", json=body, headers=headers)

    async def view(self, reference: str, *, holder: str = "fan") -> dict[str, Any]:
        answer = await self.shop.http.get(f"/orders/{reference}", headers=pass_header(holder, event_id=self.event_id))
        assert answer.status_code == 200, answer.text
        return dict(answer.json())

    async def wait_for_status(self, reference: str, status: str) -> dict[str, Any]:
        """The order once it has this status."""

        async def reached() -> bool:
            return (await self.view(reference))["status"] == status

        await wait_until(reached)
        return await self.view(reference)

    async def uses(self, code: str) -> int:
        """By the admin API."""
        return int((await self.admin_request("GET", f"/promo-codes/{code}")).json()["uses"])


async def open_sale(shop: Shop, **rules: Any) -> Sale:
    sale = Sale(shop)
    answer = await sale.apply_event_file(**rules)
    assert answer.status_code == 200, answer.text
    return sale
