"""The admin API for support: search, timeline, export and settlement."""

import re
from datetime import UTC, date, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from sqlalchemy import text

from services.orders.reports.settlement import date_range
from shared.contracts.inventory import ReservedItem
from shared.errors.problems import InvalidRequest
from tests.orders.inventory import EVENT
from tests.orders.shop import OPERATOR, VIEWER, Shop
from tests.support.running.suite import problem
from tests.support.spreadsheets import csv_rows
from tests.support.wait import wait_until

TODAY = datetime.now(UTC).date()


async def bought(shop: Shop, seat_id: str = "A-1-1", *, name: str = "Ada", email: str = "ada@example.org") -> str:
    reservation_id = await shop.inventory.hold(
        lines=[ReservedItem(section_id="A", seat_id=seat_id, unit_price_minor=6800)]
    )
    body = shop.body(reservation_id) | {"customer": {"name": name, "email": email, "phone": "+49 30 1"}}
    reference = str((await shop.post(body, key=reservation_id)).json()["reference"])
    await shop.wait_for_status(reference, "confirmed")
    return reference


async def partially_refunded(shop: Shop, **customer: str) -> str:
    reference = await bought(shop, **customer)
    await shop.admin_post(f"{reference}/refund", amount_minor=800, key="k")
    await shop.wait_for_status(reference, "partially_refunded")
    return reference


async def search(shop: Shop, **params: Any) -> list[str]:
    return [order["reference"] for order in (await shop.admin_get(**params))["orders"]]


async def timeline(shop: Shop, reference: str) -> list[dict[str, Any]]:
    return list((await shop.admin_get(f"/{reference}/timeline"))["timeline"])


async def sandbox_settlement(shop: Shop, first: date) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """The totals from this day until today, and the comparison with the sandbox."""
    report = await shop.admin_get("/settlement", **{"from": str(first), "to": str(TODAY), "compare": True})
    (compared,) = [each for each in report["compared"] if each["provider"] == "sandbox"]
    return report["totals"], compared


async def test_orders_are_found_by_reference_email_name_seat_charge_event_status_and_time(shop: Shop) -> None:
    mine = await bought(shop, "A-1-1", name="Ada Lovelace", email="ada@example.org")
    other = await bought(shop, "A-1-2", name="100% Bob_", email="bob@example.org")
    charge = (await shop.charges(mine))[0]["id"]
    for q in (mine, "ADA@example.org", "lovelace", "A-1-1", charge):
        assert await search(shop, q=q) == [mine], q
    assert await search(shop, q="0% b") == [other]
    assert await search(shop, q="_%") == await search(shop, q="' OR 1=1 --") == await search(shop, q="A-1-") == []
    assert await search(shop, event_id=EVENT, status="confirmed") == [other, mine]
    assert await search(shop, status="review") == await search(shop, event_id="another") == []
    now = datetime.now(UTC)
    assert await search(shop, since=(now - timedelta(hours=1)).isoformat()) == [other, mine]
    assert await search(shop, until=(now - timedelta(hours=1)).isoformat()) == []


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


async def test_the_search_returns_bounded_pages_with_a_cursor(shop: Shop) -> None:
    bought_orders = [await bought(shop, f"A-1-{n}") for n in range(1, 4)]
    first = await shop.admin_get(page_size=2, event_id=EVENT)
    assert [order["reference"] for order in first["orders"]] == bought_orders[:0:-1]
    assert first["next"] == f"/admin/orders?event_id={EVENT}&before={bought_orders[1]}&page_size=2"
    oldest = await shop.admin_get(q=bought_orders[0])
    second = (await shop.http.get(first["next"], headers=OPERATOR)).json()
    assert second == {"orders": oldest["orders"][:1], "next": None}
    assert (await shop.admin_get(page_size=3))["next"] is None, "no empty page is offered"
    for bad in ({"page_size": 201}, {"q": "x"}, {"q": "a\x00b"}, {"before": "'"}, {"since": "2027-01-01T00:00:00"}):
        assert (await shop.http.get("/admin/orders", params=bad, headers=OPERATOR)).status_code == 422, bad


async def test_a_timeline_lists_everything_about_an_order_by_time(shop: Shop) -> None:
    reference = await bought(shop)
    await wait_until(lambda: received_webhook(shop, reference))
    await shop.admin_post(f"{reference}/refund", amount_minor=800, key="k")
    await shop.wait_for_status(reference, "partially_refunded")
    rows = await timeline(shop, reference)
    assert [row["at"] for row in rows] == sorted(row["at"] for row in rows)
    assert {row["kind"] for row in rows} == {"order", "command", "attempt", "money", "webhook", "desk", "refund"}
    assert [row["kind"] for row in rows if row["kind"] in ("desk", "refund")] == ["desk", "refund"]
    assert [row["amount_minor"] for row in rows if row["kind"] == "money"] == [6800, 800]
    assert (await shop.http.get("/admin/orders/ZZZZZZZZZZZZ/timeline", headers=OPERATOR)).status_code == 404
    assert (await shop.http.get(f"/admin/orders/{reference}/timeline")).status_code == 401


async def received_webhook(shop: Shop, reference: str) -> bool:
    return any(row["kind"] == "webhook" for row in await timeline(shop, reference))


async def test_the_export_escapes_formulas_that_fans_typed(shop: Shop) -> None:
    reference = await partially_refunded(shop, name='=HYPERLINK("http://evil")', email="+1@example.org")
    (row,) = csv_rows(await shop.admin_export())
    assert (row["customer_name"], row["customer_email"]) == ('\'=HYPERLINK("http://evil")', "'+1@example.org")
    assert row["customer_phone"] == "'+49 30 1"
    assert (row["reference"], row["seat_id"], row["charged_minor"], row["refunded_minor"]) == (
        reference, "A-1-1", "6800", "800"
    )  # fmt: skip


async def test_the_settlement_agrees_with_the_provider_or_names_missing_extra_and_different_charges(
    processes: Any,
) -> None:
    shop = await processes.open()
    one, two = await partially_refunded(shop), await bought(shop, "A-1-2")
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
    day = date_range(date(2027, 3, 28), date(2027, 3, 28), "Europe/Berlin", compare=False).span()
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
        date_range(first, last, zone, compare=compare)


async def test_only_operators_read_the_names_and_addresses_of_buyers(shop: Shop) -> None:
    reference = await shop.order()
    for path in ("", f"/export.csv?event_id={EVENT}", f"/{reference}/timeline"):
        assert (await shop.http.get(f"/admin/orders{path}", headers=VIEWER)).status_code == 403, path
        assert (await shop.http.get(f"/admin/orders{path}", headers=OPERATOR)).status_code == 200, path
