"""Every place that shows how much was charged and refunded, compared with the provider's records."""

import csv
import io
from datetime import UTC, datetime, timedelta
from typing import Any

from sqlalchemy import text

from services.orders.order.view import order_frame
from tests.orders.holds import EVENT
from tests.orders.shop import ADMIN_SECRET, Shop

EVENTS = text("SELECT body FROM orders.outbox WHERE body ->> 'aggregate' = :aggregate ORDER BY id")


async def booked_of(shop: Shop) -> dict[str, tuple[int, int]]:
    """What the provider charged and refunded, by order."""
    sums: dict[str, tuple[int, int]] = {}
    for charge in await shop.charges():
        charged, refunded = sums.get(charge["reference"], (0, 0))
        sums[charge["reference"]] = charged + charge["captured_minor"], refunded + charge["refunded_minor"]
    return sums


async def books_agree(shop: Shop, reference: str) -> None:
    """The order as customers, streams, operators, exports and event consumers see it, and the provider."""
    booked = (await booked_of(shop)).get(reference, (0, 0))
    seen = await shop.row(reference)
    shown = {
        "order": await shop.see(reference), "frame": order_frame(seen).body,
        "search": (await shop.look_up("", q=reference))["orders"][0], "export": await _exported(shop, reference),
    }  # fmt: skip
    for charge in (await shop.look_up(f"/events/{EVENT}/charges"))["charges"]:
        if charge["reference"] == reference:
            sums = shown.setdefault("charges", {"charged_minor": 0, "refunded_minor": 0})
            sums["charged_minor"] += charge["charged_minor"]
            sums["refunded_minor"] += charge["refunded_minor"]
    events = await events_of(shop, reference)
    refunds = [event["after"] for event in events if event["type"] == "order.refunded"]
    if refunds:
        shown["events"] = refunds[-1]
        assert sum(refund["amount_minor"] for refund in refunds) == booked[1], "each refund has one event"
    assert bool(refunds) or seen.status != "refunded"
    assert {place: (int(each["charged_minor"]), int(each["refunded_minor"])) for place, each in shown.items()} == (
        dict.fromkeys(shown, booked)
    )
    assert shown["order"]["refunding_minor"] == 0
    versions = [event["version"] for event in events]
    assert sorted(set(versions)) == versions, "each event has a version of its own, higher than the last"
    assert versions[-1] <= seen.version


async def events_of(shop: Shop, reference: str) -> list[dict[str, Any]]:
    """The events of this order, oldest first."""
    async with shop.app.state.deps.db.connect() as connection:
        return list(await connection.scalars(EVENTS, {"aggregate": f"order:{reference}"}))


async def _exported(shop: Shop, reference: str) -> dict[str, Any]:
    operator = {"authorization": f"Bearer {ADMIN_SECRET}"}
    answer = await shop.http.get("/admin/orders/export.csv", params={"event_id": EVENT}, headers=operator)
    assert answer.status_code == 200, answer.text
    return next(row for row in csv.DictReader(io.StringIO(answer.text)) if row["reference"] == reference)


async def settled_minor(shop: Shop) -> list[int]:
    """What was charged and refunded in all, by the settlement."""
    today = datetime.now(UTC).date()
    span = {"from": str(today - timedelta(days=2)), "to": str(today + timedelta(days=1))}
    report = await shop.look_up("/settlement", **span)
    sums = [0, 0]
    for total in report["totals"]:
        sums = [sums[0] + total["charged_minor"], sums[1] + total["refunded_minor"]]
    return sums
