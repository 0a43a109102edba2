"""Settlement by day and provider, the comparison with the provider's own list, and the export of orders."""

import re
from datetime import UTC, date, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from sqlalchemy import text

from features.reports.orders.settlement import span_of
from shared.contracts.inventory import ReservedItem
from shared.errors.problems import InvalidRequest
from tests.orders.conftest import OrdersProcesses
from tests.orders.inventory import EVENT
from tests.orders.shop import OPERATOR, VIEWER, Shop
from tests.support.running.suite import problem
from tests.support.spreadsheets import csv_rows

TODAY = datetime.now(UTC).date()


async def partially_refunded(shop: Shop, **customer: str) -> str:
    reference = await shop.bought(**customer)
    await shop.admin_post(f"{reference}/refund", amount_minor=800, key="k")
    await shop.wait_for_status(reference, "partially_refunded")
    return reference


async def sandbox_settlement(shop: Shop, first: date) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """The totals from this day until today, and the comparison with the sandbox."""
    report = await shop.admin_get("/settlement", **{"from": str(first), "to": str(TODAY), "compare": True})
    (compared,) = [each for each in report["compared"] if each["provider"] == "sandbox"]
    return report["totals"], compared


async def test_round_amounts_leave_as_integers(shop: Shop) -> None:
    """Sums of 100.00 and 100,000.00 and their refund, in the export, the settlement and the list of charges."""
    for seats, price_minor in ((1, 10_000), (10, 1_000_000)):
        lines = [
            ReservedItem(section_id="A", seat_id=f"A-{seats}-{n}", unit_price_minor=price_minor)
            for n in range(1, seats + 1)
        ]
        total_minor = seats * price_minor
        body = shop.body(await shop.inventory.hold(lines=lines, total_minor=total_minor), total_minor=total_minor)
        answer = await shop.post(body, key=f"{seats}")
        assert answer.status_code == 202, answer.text
        reference = answer.json()["reference"]
        await shop.wait_for_status(reference, "confirmed")
        await shop.admin_post(f"{reference}/refund", reason="rain")
        await shop.wait_for_status(reference, "refunded")
        rows = [row for row in csv_rows(await shop.admin_export()) if row["reference"] == reference]
        amounts = {(row["total_minor"], row["charged_minor"], row["refunded_minor"]) for row in rows}
        assert amounts == {(str(total_minor),) * 3}
    path = f"/admin/orders/settlement?from={TODAY}&to={TODAY}"
    settled = (await shop.http.get(path, headers=OPERATOR)).text
    charges = (await shop.http.get(f"/admin/orders/events/{EVENT}/charges", headers=OPERATOR)).text
    assert '"charged_minor":10010000,' in settled
    assert '"charged_minor":10000,' in charges
    assert not re.search(r":-?\d+(\.\d+|[eE])", settled + charges)


async def test_the_export_escapes_formulas_that_fans_typed(shop: Shop) -> None:
    reference = await partially_refunded(shop, name='=HYPERLINK("http://evil")', email="+1@example.org")
    (row,) = csv_rows(await shop.admin_export())
    assert (row["customer_name"], row["customer_email"]) == ('\'=HYPERLINK("http://evil")', "'+1@example.org")
    assert row["customer_phone"] == "'+49 30 1"
    assert (row["reference"], row["seat_id"], row["charged_minor"], row["refunded_minor"]) == (
        reference, "A-1-1", "6800", "800"
    )  # fmt: skip


async def test_the_settlement_agrees_with_the_provider_or_names_missing_extra_and_different_charges(
    processes: OrdersProcesses,
) -> None:
    shop = await processes.open()
    one, two = await partially_refunded(shop), await shop.bought("A-1-2")
    totals, compared = await sandbox_settlement(shop, TODAY - timedelta(days=1))
    assert totals == [{"provider": "sandbox", "currency": "EUR", "charges": 2, "charged_minor": 13600, "refunds": 1,
                       "refunded_minor": 800, "refunded_outside_minor": 0, "disputes": 0, "disputed_minor": 0,
                       "reinstated_minor": 0, "net_minor": 12800}]  # fmt: skip
    assert compared == {"provider": "sandbox", "compared": 2, "missing": [], "extra": [], "different": [], "moved": []}
    unknown = await shop.charge_at_sandbox("NOBODYSORDER", amount_minor=5, key="unknown")
    async with shop.state.db.begin() as connection:
        await connection.execute(text("SET LOCAL session_replication_role = replica"))  # the entries are append-only
        for change, reference in (("amount_minor = 1", one), ("provider_ref = 'ch_nowhere'", two)):
            changed = f"UPDATE orders.money_entry SET {change} WHERE kind = 'charge' AND reference = '{reference}'"
            await connection.execute(text(changed))
    charges = {c["reference"]: c["id"] for c in await shop.charges()}
    _, compared = await sandbox_settlement(shop, TODAY)
    assert {each["charge_ref"] for each in compared["missing"]} == {unknown, charges[two]}
    assert [each["charge_ref"] for each in compared["extra"]] == ["ch_nowhere"]
    assert [(each["amount_minor"], each["theirs_minor"]) for each in compared["different"]] == [(1, 6800)]


async def test_the_settlement_is_unavailable_while_a_provider_is_down(shop: Shop) -> None:
    await shop.sandbox.post("/control", json={"down_for_s": 60})
    params = {"from": TODAY.isoformat(), "to": TODAY.isoformat(), "compare": "true"}
    answer = await shop.http.get("/admin/orders/settlement", params=params, headers=VIEWER)
    assert problem(answer) == (503, "unavailable")


def test_a_day_of_the_settlement_begins_and_ends_in_its_time_zone() -> None:
    """In Berlin, 28 March 2027 has 23 hours: summer time begins."""
    day = span_of(date(2027, 3, 28), date(2027, 3, 28), "Europe/Berlin", compare=False)
    assert day["stop"].astimezone(UTC) - day["start"].astimezone(UTC) == timedelta(hours=23)
    assert day["start"].tzinfo == ZoneInfo("Europe/Berlin")


@pytest.mark.parametrize(
    ("first", "last", "zone", "compare"),
    [
        (date(2027, 1, 2), date(2027, 1, 1), "UTC", False),
        (date(2027, 1, 1), date(2028, 1, 2), "UTC", False),
        (date(2027, 1, 1), date(2027, 2, 1), "UTC", True),
        (date(2027, 1, 1), date(2027, 1, 1), "Mars/Olympus", False),
        (date(2027, 1, 1), date(2027, 1, 1), "../etc/passwd", False),
        (date(1, 1, 1), date(1, 1, 1), "UTC", False),
    ],
)
def test_the_settlement_refuses_invalid_date_ranges_and_time_zones(
    first: date, last: date, zone: str, compare: bool
) -> None:
    with pytest.raises(InvalidRequest):
        span_of(first, last, zone, compare=compare)
