"""Every report of how much an order was charged and refunded, compared with the provider's records."""

from collections import defaultdict
from datetime import UTC, datetime, timedelta
from typing import Any

from services.orders.model.view import order_frame
from tests.orders.inventory import EVENT
from tests.orders.shop import Shop
from tests.support.spreadsheets import csv_rows

EVENTS = """
    SELECT e.event AS body FROM orders.outbox_batch b, jsonb_array_elements(b.events) WITH ORDINALITY AS e (event, n)
    WHERE e.event ->> 'aggregate' = :aggregate ORDER BY b.id, e.n"""


async def provider_amounts(shop: Shop) -> dict[str, tuple[int, int]]:
    """Charged and refunded at the provider, by order."""
    sums: dict[str, tuple[int, int]] = {}
    for charge in await shop.charges():
        charged, refunded = sums.get(charge["reference"], (0, 0))
        sums[charge["reference"]] = charged + charge["captured_minor"], refunded + charge["refunded_minor"]
    return sums


async def check_reported_amounts(shop: Shop, *references: str) -> None:
    """Customers, streams, operators, exports and event consumers get the amounts that the provider has."""
    provider = await provider_amounts(shop)
    exported = {row["reference"]: row for row in csv_rows(await shop.admin_export())}
    charges = (await shop.admin_get(f"/events/{EVENT}/charges"))["charges"]
    for reference in references:
        expected, order = provider.get(reference, (0, 0)), await shop.row(reference)
        reports: dict[str, dict[str, Any]] = {
            "order": await shop.view(reference), "frame": order_frame(order).body, "export": exported[reference],
            "search": (await shop.admin_get(q=reference))["orders"][0],
        }  # fmt: skip
        if mine := [charge for charge in charges if charge["reference"] == reference]:
            reports["charges"] = {
                amount: sum(charge[amount] for charge in mine) for amount in ("charged_minor", "refunded_minor")
            }
        events = await events_of(shop, reference)
        refunds = [event["after"] for event in events if event["type"] == "order.refunded"]
        if refunds:
            reports["events"] = refunds[-1]
            assert sum(refund["amount_minor"] for refund in refunds) == expected[1], "each refund has one event"
        assert bool(refunds) or order.status != "refunded"
        reported = {name: (int(each["charged_minor"]), int(each["refunded_minor"])) for name, each in reports.items()}
        assert reported == dict.fromkeys(reports, expected)
        assert reports["order"]["refunding_minor"] == 0
        versions = [event["version"] for event in events]
        assert sorted(set(versions)) == versions, "each event has a version of its own, higher than the last"
        assert versions[-1] <= order.version


def summed(entries: list[tuple[str, str, int]]) -> dict[tuple[str, str], int]:
    """Sums by kind and order, of disputes what was withdrawn and did not come back."""
    sums: dict[tuple[str, str], int] = defaultdict(int)
    for kind, reference, amount_minor in entries:
        back = kind == "reinstatement"
        sums["dispute" if back else kind, reference] += -amount_minor if back else amount_minor
    return {key: minor for key, minor in sums.items() if minor}


async def events_of(shop: Shop, reference: str) -> list[dict[str, Any]]:
    """The events of this order, oldest first."""
    return [row.body for row in await shop.query(EVENTS, aggregate=f"order:{reference}")]


async def settlement_amounts(shop: Shop) -> list[int]:
    """Charged and refunded in all, by the settlement."""
    today = datetime.now(UTC).date()
    days = {"from": str(today - timedelta(days=2)), "to": str(today + timedelta(days=1))}
    totals = (await shop.admin_get("/settlement", **days))["totals"]
    return [sum(total[amount] for total in totals) for amount in ("charged_minor", "refunded_minor")]
