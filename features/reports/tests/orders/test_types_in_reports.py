"""Exports, the scanners' list and the report of a sale tell the price types of its tickets."""

from types import SimpleNamespace
from typing import Any, cast

from features.reports.page import _types
from features.reports.sale import Sale as ReportedSale
from features.reports.schemas import TypeSales
from tests.orders.priced_event import PRICE_TYPES, Sale, open_sale
from tests.orders.pricing.test_price_types import FLOOR, bought_of
from tests.orders.shop import OPERATOR, Shop
from tests.support.spreadsheets import csv_rows

SPAN = "?from=2020-01-01T00:00:00Z&step_s=2592000&steps=240"


async def exported(sale: Sale) -> list[tuple[str, str]]:
    path, params = "/admin/orders/export.csv", {"event_id": sale.event_id}
    answer = await sale.shop.http.get(path, params=params, headers=OPERATOR)
    return [(row["type_id"], row["type_name"]) for row in csv_rows(answer.content)]


async def listed(sale: Sale) -> set[tuple[Any, ...]]:
    tickets = (await sale.admin_request("GET", "/tickets.json")).json()["tickets"]
    return {(each["section_id"], each["type_id"], each["type_name"], each["proof"]) for each in tickets}


async def test_exports_and_the_history_of_a_sale_tell_its_types(shop: Shop) -> None:
    sale = await open_sale(shop, price_types=PRICE_TYPES)
    reference = await bought_of(sale, *FLOOR, total_minor=20000)
    await shop.admin_post(f"{reference}/refund", tickets={"seats": ["A-1-1"]}, key="k")
    await shop.wait_for_status(reference, "partially_refunded")
    assert await exported(sale) == [("child", "Child"), ("adult", "Adult"), ("child", "Child")]
    assert await listed(sale) == {
        ("GA1", "adult", "Adult", None), ("GA1", "child", "Child", "A pupil's card"),
        ("A", "child", "Child", "A pupil's card"),
    }  # fmt: skip
    rows = csv_rows((await sale.admin_request("GET", "/tickets.csv")).content)
    assert {(row["section_id"], row["type_id"]) for row in rows} == {("GA1", "adult"), ("GA1", "child"), ("A", "child")}
    history = (await sale.admin_request("GET", f"/flow/history{SPAN}")).json()
    assert history["types"] == [
        {"type_id": "adult", "name": "Adult", "sold": 2, "returned": 0, "paid_minor": 10000, "currency": "EUR"},
        {"type_id": "child", "name": "Child", "sold": 4, "returned": 1, "paid_minor": 10000, "currency": "EUR"},
        {"type_id": "free", "name": "Under 3", "sold": 0, "returned": 0, "paid_minor": 0, "currency": "EUR"},
    ]
    await sale.apply_event_file(price_types=[{"type_id": "full", "name": "Full price"}])
    assert await exported(sale) == [("child", "child"), ("full", "Full price"), ("child", "child")]
    later = SPAN.replace("steps=240", "steps=239")  # another question: answers are kept for a second
    history = (await sale.admin_request("GET", f"/flow/history{later}")).json()
    assert [(each["type_id"], each["name"], each["sold"]) for each in history["types"]] == [
        ("full", "Full price", 2), ("child", "child", 4)
    ]  # fmt: skip


async def test_without_price_types_exports_and_history_have_none(shop: Shop) -> None:
    sale = await open_sale(shop)
    await bought_of(sale, total_minor=10000)
    assert await exported(sale) == [("", "")]
    assert await listed(sale) == {("GA1", None, None, None)}
    assert (await sale.admin_request("GET", f"/flow/history{SPAN}")).json()["types"] == []


def test_the_report_has_a_row_for_each_price_type() -> None:
    def table(*types: TypeSales) -> str:
        return _types(cast(ReportedSale, SimpleNamespace(orders=SimpleNamespace(types=types))))

    child = TypeSales(type_id="child", name="<Child>", sold=4, returned=1, paid_minor=10000, currency="EUR")
    page = table(child)
    assert "&lt;Child&gt;" in page
    assert "EUR 100.00" in page
    assert table() == ""
