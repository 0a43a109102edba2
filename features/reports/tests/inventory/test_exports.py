"""The CSV exports of stock: complete, as the stock report counts them, streamed page by page, with formulas escaped."""

from decimal import Decimal

import pytest

from features.reports.inventory import exports
from features.reports.reading import csv_file
from shared.report.csv_export import csv_lines, escape_formula
from tests.inventory.actions import block, sell
from tests.inventory.conftest import EVENT, Inventory
from tests.support.spreadsheets import csv_rows


async def rows(inventory: Inventory, name: str) -> list[dict[str, str]]:
    answer = await inventory.operate("GET", f"/{name}.csv")
    assert (answer.status_code, answer.headers["content-type"]) == (200, "text/csv; charset=utf-8")
    return csv_rows(answer.content)


@pytest.mark.parametrize("page_rows", [1, 1000])
async def test_every_seat_and_every_sale_is_exported_once(
    inventory: Inventory, monkeypatch: pytest.MonkeyPatch, page_rows: int
) -> None:
    monkeypatch.setattr(exports, "PAGE_ROWS", page_rows)
    await block(inventory, "A-1-5")
    one = await sell(inventory, "one", seats=["A-1-1", "B-1-1"], ga_section="GA1", ga_quantity=2)
    await sell(inventory, "two", ga_section="GA1", ga_quantity=3)
    await inventory.reserve("three", seats=["A-2-1"])
    seats = await rows(inventory, "seats")
    assert len(seats) == 23
    states = {row["seat_id"]: row["status"] for row in seats if row["status"] != "available"}
    assert states == {"A-1-1": "sold", "A-1-5": "blocked", "A-2-1": "held", "B-1-1": "sold"}
    sales = await rows(inventory, "sales")
    assert [(row["section_id"], row["seat_id"]) for row in sales if row["reservation_id"] == one] == [
        ("A", "A-1-1"), ("B", "B-1-1"), ("GA1", "")
    ]  # fmt: skip
    assert sum(int(row["quantity"]) * int(row["unit_price_minor"]) for row in sales) == 5250 + 4000 + 5 * 3100
    assert len(sales) == 4
    total = (await inventory.operate("GET", "/stock")).json()["total"]
    assert (total["sold"], total["revenue_minor"]) == (7, 5250 + 4000 + 5 * 3100)
    assert total["available"] + total["held"] + total["sold"] + total["blocked"] == total["capacity"] == 43


async def test_cells_that_begin_a_formula_are_escaped(inventory: Inventory) -> None:
    email = "=1+cmd|x@example.org"
    await sell(inventory, "one", seats=["A-1-1"], email=email)
    (sale,) = await rows(inventory, "sales")
    assert sale["email"] == f"'{email}"
    assert [escape_formula(cell) for cell in ("+1", "-1", "@x", "\tx", "＝1", 7, "a=b", None)] == [
        "'+1", "'-1", "'@x", "'\tx", "'＝1", 7, "a=b", None
    ]  # fmt: skip


def test_no_number_has_an_exponent() -> None:
    assert csv_lines([[Decimal("1E+4"), Decimal("-1E+4"), Decimal("12.5"), 10**20]]) == (
        b"10000,-10000,12.5,100000000000000000000\r\n"
    )


async def test_an_export_is_streamed_page_by_page(inventory: Inventory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exports, "PAGE_ROWS", 4)
    seats = exports.seats(inventory.state.autocommit_db, inventory.state.catalogue.layout(EVENT))
    sizes = [page.count(b"\n") async for page in csv_file(exports.SEAT_COLUMNS, seats)]
    assert sizes == [1, 4, 4, 4, 4, 4, 3]
