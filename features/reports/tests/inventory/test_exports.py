"""The CSV exports of stock: complete, as the stock report counts them, streamed page by page, with formulas escaped.

The flow of holds: what the forecast of the sell-out is told about those that began before the oldest open one.

The report of hold times: read from the stored reservations, with a fair comparison of two arms.
"""

from decimal import Decimal
from typing import Any

import pytest
from sqlalchemy import text

from features.reports.inventory import exports, hold_times
from features.reports.inventory.hold_times import newcombe_difference
from features.reports.reading import csv_file
from shared.report.csv_export import csv_lines, escape_formula
from shared.rules.sell_out import wilson_interval
from tests.inventory.actions import block, sell, sql
from tests.inventory.conftest import EVENT, Inventory, event_file
from tests.inventory.reservations.test_price_types import priced_file
from tests.support.running.suite import problem
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


@pytest.mark.parametrize("page_rows", [1, 1000])
async def test_every_price_type_of_a_section_is_exported_once(
    inventory: Inventory, monkeypatch: pytest.MonkeyPatch, page_rows: int
) -> None:
    monkeypatch.setattr(exports, "PAGE_ROWS", page_rows)
    assert (await inventory.put(priced_file())).status_code == 200
    floor = [
        {"section_id": "GA1", "quantity": n, "type_id": each} for n, each in ((2, "child"), (1, None), (2, "senior"))
    ]
    await sell(inventory, "one", seats=["A-2-1"], types={"A-2-1": "child"}, ga=floor)
    sales = await rows(inventory, "sales")
    assert [(row["section_id"], row["type_id"], row["quantity"]) for row in sales] == [
        ("A", "child", "1"), ("GA1", "adult", "1"), ("GA1", "child", "2"), ("GA1", "senior", "2")
    ]  # fmt: skip
    flow = (await inventory.operate("GET", "/flow")).json()
    assert [(s["section_id"], s["sold"]) for s in flow["sections"]] == [("A", 1), ("B", 0), ("GA1", 5)]


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


async def test_only_holds_begun_before_the_oldest_open_one_say_how_many_are_given_back(inventory: Inventory) -> None:
    """Those begun later that have ended are rather given back at once or paid fast: the slow ones are still open."""
    bought = await inventory.hold("ann", seats=["A-1-1"])
    released = await inventory.hold("bob", seats=["A-1-2"])
    being_paid = await inventory.hold("cat", seats=["A-1-3"])
    await inventory.hold("dan", seats=["A-1-4"])
    later = await inventory.hold("eve", seats=["A-1-5"])
    for hold, order in ((bought, "A1"), (being_paid, "A2")):
        assert await inventory.outcome("begin-payment", hold, order) == "done"
    assert await inventory.outcome("confirm", bought, "A1") == "done"
    for hold, fan in ((released, "bob"), (later, "eve")):
        assert (await inventory.fan_request("DELETE", hold, fan)).is_success
    flow = await inventory.admin("GET", f"/events/{EVENT}/flow")
    assert (flow["holds"], flow["earlier"], flow["earlier_given_back"]) == (5, 2, 1)
    assert flow["oldest_open_s"] > flow["oldest_hold_s"], "since the hold began, also if it is being paid"


async def test_without_an_open_hold_there_is_no_oldest_one(inventory: Inventory) -> None:
    hold = await inventory.hold("ann", seats=["A-1-1"])
    assert (await inventory.fan_request("DELETE", hold, "ann")).is_success
    flow = await inventory.admin("GET", f"/events/{EVENT}/flow")
    assert (flow["oldest_open_s"], flow["earlier"], flow["earlier_given_back"]) == (None, 0, 0)


INSERT = (  # with a deadline in the year 3000, so that no background loop expires one
    "INSERT INTO inventory.reservation (event_id, reservation_id, holder, total_minor, currency, status, "
    " reserved_until_ms, fingerprint, hold_ttl_s, variant, created_at, payment_begun_at, confirmed_at, ended_at) "
    "SELECT :event_id, :name || n, CAST(:name AS text) || n, 0, 'EUR', :status, 32503680000000, 'a.b', "
    " :hold_ttl_s, :arm, "
    " clock_timestamp() - :ago_s * interval '1 second', "
    " clock_timestamp() - (:ago_s - n * CAST(:begun_after_s AS float8)) * interval '1 second', "
    " CASE WHEN :status = 'confirmed' THEN clock_timestamp() - :ago_s * interval '0.5 second' END, "
    " CASE WHEN :status = 'expired' THEN clock_timestamp() - :ago_s * interval '0.5 second' END "
    "FROM generate_series(1, CAST(:count AS int)) AS n"
)


async def report(inventory: Inventory) -> Any:
    return await inventory.admin("GET", f"/events/{EVENT}/hold-times")


async def insert_fans(inventory: Inventory, name: str, count: int, status: str, **more: Any) -> None:
    """Inserts `count` fans with a hold each; the n-th began to pay after n × begun_after_s, or never."""
    values = {"hold_ttl_s": 600, "arm": None, "ago_s": 1000.0, "begun_after_s": None, **more}
    await sql(inventory, INSERT, name=name, count=count, status=status, **values)


async def test_the_report_counts_every_reservation_as_it_happened(inventory: Inventory) -> None:
    await sell(inventory, "buyer", seats=["A-1-1"])
    lost = await inventory.hold("loser", seats=["A-2-1"])
    for verb in ("begin-payment", "release"):
        await inventory.step(verb, lost, "order-2")
    await inventory.reserve("loser", seats=["A-2-2"])
    cancelled = await inventory.hold("leaver", seats=["A-3-1"])
    await inventory.fan_request("DELETE", cancelled, "leaver")
    result = await report(inventory)
    assert (result["holds"], result["fans"]) == (4, 3)
    assert (result["to_payment"]["holds"], result["to_confirmed"]["holds"]) == (2, 1)
    assert 0 <= result["to_payment"]["percentiles_s"]["50"] <= result["to_payment"]["percentiles_s"]["100"] < 10
    assert result["to_payment"]["histogram"][0] == {"from_s": 0, "to_s": 10, "holds": 2}
    returning = result["returning"]
    assert (returning["left"], returning["returned"], returning["bought"]) == (2, 1, 0)
    assert result["arms"] == []


async def test_the_suggested_hold_time_keeps_99_percent_of_the_buyers(inventory: Inventory) -> None:
    """Of 200 buyers, the n-th after n seconds, 198 began to pay within 198 s. Fans who did not buy do not count."""
    await insert_fans(inventory, "few", 99, "confirmed", begun_after_s=1.0)
    assert (await report(inventory))["suggestion"]["hold_ttl_s"] is None, "99 buyers have no 99th percentile"
    await sql(inventory, "DELETE FROM inventory.reservation")
    await insert_fans(inventory, "buyer", 200, "confirmed", begun_after_s=1.0)
    await insert_fans(inventory, "slow", 50, "expired", begun_after_s=11.0, hold_ttl_s=600)
    result = await report(inventory)
    assert result["suggestion"] == {
        "hold_ttl_s": 200, "now_s": 600, "kept_percent": 99, "buyers": 200, "buyers_min": 100, "late_percent": 0.0
    }  # fmt: skip
    percentiles = result["to_payment"]["percentiles_s"]
    assert (percentiles["10"], percentiles["100"]) == (23.0, 550.0)
    assert sum(bucket["holds"] for bucket in result["to_payment"]["histogram"]) == 250


async def test_the_report_shows_the_percentage_of_buyers_near_their_deadline(inventory: Inventory) -> None:
    await insert_fans(inventory, "buyer", 200, "confirmed", begun_after_s=0.5, hold_ttl_s=100)
    assert (await report(inventory))["suggestion"]["late_percent"] == 10.5


async def test_fans_whose_outcome_is_open_count_in_neither_arm(inventory: Inventory) -> None:
    """A buyer is known in seconds, a fan who does not buy only at the deadline, so counting at once would favour the
    longer arm. Fans who began after the first open one wait with it, up to the longest possible hold.
    """
    await inventory.put(event_file(hold_ttl_b_s=300, hold_ttl_b_percent=50))
    for arm, hold_ttl_s, bought in (("a", 600, 30), ("b", 300, 60)):
        arm_of = {"arm": arm, "hold_ttl_s": hold_ttl_s}
        await insert_fans(inventory, f"{arm}-yes", bought, "confirmed", begun_after_s=1.0, **arm_of)
        await insert_fans(inventory, f"{arm}-no", 100 - bought, "expired", **arm_of)
        await insert_fans(inventory, f"{arm}-new", 40, "confirmed", begun_after_s=1.0, **arm_of, ago_s=100.0)
    await insert_fans(inventory, "open", 1, "pending_payment", arm="a", ago_s=200.0)
    result = await report(inventory)
    assert [(a["arm"], a["fans"], a["bought"], a["open"]) for a in result["arms"]] == [
        ("a", 100, 30, 41), ("b", 100, 60, 40)
    ]  # fmt: skip
    assert result["b_minus_a"]["verdict"] == "b sells more"
    assert result["b_minus_a"]["low"] < result["b_minus_a"]["value"] == 0.3 < result["b_minus_a"]["high"]
    await insert_fans(inventory, "stuck", 1, "paying", arm="b", hold_ttl_s=300, ago_s=9_000.0)
    arms = (await report(inventory))["arms"]
    assert [arm["fans"] for arm in arms] == [100, 101], "a payment in review does not stop the count for ever"


async def test_a_changed_hold_time_is_a_separate_row_and_not_compared(inventory: Inventory) -> None:
    await inventory.put(event_file(hold_ttl_b_s=300, hold_ttl_b_percent=50))
    await insert_fans(inventory, "a", 50, "expired", arm="a", hold_ttl_s=600)
    await insert_fans(inventory, "old-b", 50, "confirmed", begun_after_s=1.0, arm="b", hold_ttl_s=200)
    result = await report(inventory)
    assert [(arm["arm"], arm["hold_ttl_s"]) for arm in result["arms"]] == [("a", 600), ("b", 200)]
    assert result["b_minus_a"] is None


async def test_a_report_that_takes_too_long_answers_503(inventory: Inventory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hold_times, "LIMIT_TIME", text("SET LOCAL statement_timeout = 50"))
    monkeypatch.setattr(hold_times, "RETURNING_HOLDERS", text("SELECT pg_sleep(2) WHERE :event_id <> ''"))
    answer = await inventory.operate("GET", "/hold-times")
    assert problem(answer) == (503, "unavailable")
    assert "more than 5 s" in answer.json()["detail"]


def test_intervals_equal_the_published_examples() -> None:
    """The examples of Newcombe: 81 of 263, and 56 of 70 against 48 of 80."""
    one = wilson_interval(81, 263)
    assert (round(one.low, 4), round(one.high, 4)) == (0.2553, 0.3662)
    two = newcombe_difference(wilson_interval(56, 70), wilson_interval(48, 80))
    assert (round(two.low, 4), round(two.high, 4)) == (0.0524, 0.3339)
    assert wilson_interval(0, 0).high == 1.0
    assert wilson_interval(0, 10).low == 0.0
