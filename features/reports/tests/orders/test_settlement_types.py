"""Settlement by event and price type: its rows sum to the totals whatever happened to the money, and say of each type
what the tickets of its refunds say.
"""

import io
import uuid
from datetime import date, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console
from sqlalchemy import text

from features.reports import cli
from features.reports.orders import settlement_types
from features.reports.orders.settlement_types import divide
from features.reports.schemas import Settlement
from features.reports.tests.orders.test_types_in_reports import SPAN
from onsale.cli.context import DATA_DIR
from services.orders.model.order import OrderLine
from services.orders.model.rules import ticket_value_minor
from shared.contracts.inventory import ReservedItem
from shared.payment_provider import ProviderRejected
from tests.orders.manual_orders import WITHOUT_TRIGGERS
from tests.orders.priced_event import PRICE_TYPES, open_sale
from tests.orders.pricing.test_price_types import FLOOR, bought_of
from tests.orders.shop import Shop, require_types_sum_to_totals
from tests.support.wait import wait_until

ORDER_FEE = [{"name": "Order fee", "per": "order", "amount_minor": 100}]
TOTAL_MINOR = 20100  # of FLOOR with the fee: a child's seat 2513, two adults 10050, three children 2513 and twice 2512


async def today(shop: Shop) -> date:
    """Of the database, whose clock enters refunds."""
    return date.fromisoformat(await shop.scalar("SELECT to_char(now() AT TIME ZONE 'UTC', 'YYYY-MM-DD')"))


async def settled(shop: Shop, first: date, last: date) -> list[dict[str, Any]]:
    """The rows by type, which sum to the totals."""
    report = await shop.admin_get("/settlement", **{"from": str(first), "to": str(last)})
    require_types_sum_to_totals(report)
    return list(report["types"])


def told(rows: list[dict[str, Any]], event_id: str | None) -> dict[str | None, tuple[int, ...]]:
    """By type: tickets, charged, returned, refunded, disputed, reinstated, net."""
    names = (
        "tickets",
        "charged_minor",
        "returned",
        "refunded_minor",
        "disputed_minor",
        "reinstated_minor",
        "net_minor",
    )
    return {row["type_id"]: tuple(row[name] for name in names) for row in rows if row["event_id"] == event_id}


async def entered_earlier(shop: Shop, kind: str, reference: str) -> None:
    """The first entry of this kind was made a day before."""
    async with shop.state.db.begin() as connection:
        await connection.execute(text(WITHOUT_TRIGGERS))
        first = "SELECT min(id) FROM orders.money_entry WHERE reference = :reference AND kind = :kind"
        moved = f"UPDATE orders.money_entry SET occurred_at = occurred_at - interval '1 day' WHERE id = ({first})"
        await connection.execute(text(moved), {"reference": reference, "kind": kind})


async def refunded(shop: Shop, reference: str, **what: Any) -> None:
    answer = await shop.admin_post(f"{reference}/refund", key=uuid.uuid4().hex, **what)
    assert answer.status_code == 202, answer.text

    async def done() -> bool:
        return not (await shop.row(reference)).refunds

    await wait_until(done)


async def at_provider(shop: Shop, reference: str, what: str, **body: Any) -> None:
    """Moves money at the provider itself, and waits until our ledger has it."""
    [charge] = await shop.charges(reference)
    before = len(await shop.money_entries())
    headers = {"idempotency-key": uuid.uuid4().hex}
    answer = await shop.sandbox.post(f"/charges/{charge['id']}/{what}", json=body, headers=headers)
    assert answer.is_success, answer.text

    async def entered() -> bool:
        return len(await shop.money_entries()) > before

    await wait_until(entered)


def floor(seat_id: str) -> tuple[ReservedItem, ...]:
    return FLOOR[0].model_copy(update={"seat_id": seat_id}), *FLOOR[1:]


async def test_the_rows_of_types_sum_to_the_totals(shop: Shop) -> None:
    """Two events, one with three types; a charge of the day before with two refunds of today, one of tickets and one of
    an amount; a refund outside in part and one in full; a dispute that was won and one that is open.
    """
    day = await today(shop)
    typed, plain = await open_sale(shop, price_types=PRICE_TYPES, fees=ORDER_FEE), await open_sale(shop)
    earlier = await bought_of(typed, *floor("A-1-1"), total_minor=TOTAL_MINOR)
    await entered_earlier(shop, "charge", earlier)
    await refunded(shop, earlier, tickets={"ga": [{"section_id": "GA1", "quantity": 2, "type_id": "child"}]})
    await refunded(shop, earlier, amount_minor=500)
    free = ReservedItem(section_id="GA1", unit_price_minor=0, type_id="free")
    in_part = await bought_of(typed, *floor("A-1-2"), free, total_minor=TOTAL_MINOR)
    await at_provider(shop, in_part, "refunds", amount_minor=1000)
    in_full = await bought_of(typed, *floor("A-1-3"), total_minor=TOTAL_MINOR)
    await at_provider(shop, in_full, "refunds", amount_minor=TOTAL_MINOR)
    for decided in ("won", "open"):
        disputed = await bought_of(plain, total_minor=10000)
        await at_provider(shop, disputed, "dispute", status="open")
        if decided == "won":
            await at_provider(shop, disputed, "dispute", status="won")
    before, now = day - timedelta(days=1), day
    adults, children = (2, 10050), (4, 10050)
    assert told(await settled(shop, before, before), typed.event_id) == {
        "adult": (*adults, 0, 0, 0, 0, 10050), "child": (*children, 0, 0, 0, 0, 10050)
    }  # fmt: skip
    rows = await settled(shop, now, now)
    assert told(rows, typed.event_id) == {
        "adult": (4, 20100, 2, 10050, 0, 0, 10050), "child": (8, 20100, 6, 15075, 0, 0, 5025),
        "free": (1, 0, 0, 0, 0, 0, 0), None: (0, 0, 0, 1500, 0, 0, -1500),
    }  # fmt: skip
    assert told(rows, plain.event_id) == {None: (4, 20000, 0, 0, 20000, 10000, 10000)}
    names = [row["name"] for row in rows if row["event_id"] == typed.event_id]
    assert names == ["Adult", "Child", "Under 3", None], "as in the event file, last what has no type"
    whole = await settled(shop, before, now)
    assert told(whole, typed.event_id)["child"] == (12, 30150, 6, 15075, 0, 0, 15075)
    history = (await typed.admin_request("GET", f"/flow/history{SPAN}")).json()["types"]
    assert [(each["type_id"], each["sold"], each["paid_minor"], each["returned"]) for each in history] == [
        (row["type_id"], row["tickets"], row["charged_minor"], row["returned"])
        for row in whole if row["event_id"] == typed.event_id and row["type_id"]
    ], "the report of the sale counts the same, as every order was paid"  # fmt: skip
    assert await settled(shop, before - timedelta(days=1), before - timedelta(days=1)) == []


async def test_refunds_of_the_same_amount_are_told_apart_by_their_requests(shop: Shop) -> None:
    """One adult, then two children, cost the same; a day is between the refunds."""
    sale = await open_sale(shop, price_types=PRICE_TYPES)
    reference = await bought_of(sale, *FLOOR, total_minor=20000)
    for quantity, type_id in ((1, "adult"), (2, "child")):
        tickets = {"ga": [{"section_id": "GA1", "quantity": quantity, "type_id": type_id}]}
        await refunded(shop, reference, tickets=tickets)
    await entered_earlier(shop, "refund", reference)
    day = await today(shop)
    earlier = told(await settled(shop, day - timedelta(days=1), day - timedelta(days=1)), sale.event_id)
    assert earlier == {"adult": (0, 0, 1, 5000, 0, 0, -5000)}
    assert told(await settled(shop, day, day), sale.event_id) == {
        "adult": (2, 10000, 0, 0, 0, 0, 10000), "child": (4, 10000, 2, 5000, 0, 0, 5000)
    }  # fmt: skip


async def test_a_refund_outside_is_told_apart_from_one_of_the_same_amount(shop: Shop) -> None:
    """Two children cost what was refunded outside before: that is no type's."""
    sale = await open_sale(shop, price_types=PRICE_TYPES)
    reference = await bought_of(sale, *FLOOR, total_minor=20000)
    await at_provider(shop, reference, "refunds", amount_minor=5000)
    await shop.admin_post(f"{reference}/resolve", decision="confirm")
    await shop.wait_for_status(reference, "partially_refunded")
    tickets = {"ga": [{"section_id": "GA1", "quantity": 2, "type_id": "child"}]}
    await refunded(shop, reference, tickets=tickets)
    await entered_earlier(shop, "refund", reference)
    day = await today(shop)
    assert told(await settled(shop, day, day), sale.event_id)["child"] == (4, 10000, 2, 5000, 0, 0, 5000)
    earlier = await settled(shop, day - timedelta(days=1), day - timedelta(days=1))
    assert told(earlier, sale.event_id) == {None: (0, 0, 0, 5000, 0, 0, -5000)}


async def test_the_rest_of_an_order_is_divided_in_proportion_and_a_second_charge_sells_nothing(shop: Shop) -> None:
    sale = await open_sale(shop, price_types=PRICE_TYPES, fees=ORDER_FEE)
    reference = await bought_of(sale, *FLOOR, total_minor=TOTAL_MINOR)
    second = await shop.charge_at_sandbox(reference, amount_minor=TOTAL_MINOR, key="second")
    assert second

    async def given_back() -> bool:
        entries = [kind for kind, _, _ in await shop.money_entries()]
        return entries == ["charge", "charge", "refund"]

    await wait_until(given_back)
    await refunded(shop, reference, amount_minor=15000)
    await refunded(shop, reference)
    day = await today(shop)
    assert told(await settled(shop, day, day), sale.event_id) == {
        "adult": (2, 10050, 2, 2550, 0, 0, 7500), "child": (4, 10050, 4, 2550, 0, 0, 7500),
        None: (0, 20100, 0, 35100, 0, 0, -15000),
    }  # fmt: skip


async def test_tickets_of_a_line_are_divided_as_they_were_refunded(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of three children for 7537 the first is worth a cent more; a refund that the provider refused took none."""
    sale = await open_sale(shop, price_types=PRICE_TYPES, fees=ORDER_FEE)
    reference = await bought_of(sale, *FLOOR, total_minor=TOTAL_MINOR)

    async def reject(*_: Any, **__: Any) -> str:
        raise ProviderRejected("charge_disputed")

    def tickets(**quantities: int) -> dict[str, Any]:
        return {"ga": [{"section_id": "GA1", "quantity": n, "type_id": type_id} for type_id, n in quantities.items()]}

    with monkeypatch.context() as patched:
        patched.setattr(shop.state.providers["sandbox"], "refund", reject)
        await refunded(shop, reference, tickets=tickets(child=2))
    await shop.admin_post(f"{reference}/resolve", decision="confirm")
    await shop.wait_for_status(reference, "confirmed")
    day, child = await today(shop), [0]
    for worth in (2513, 2512):
        await refunded(shop, reference, tickets=tickets(child=1, adult=1))
        child.append(child[-1] + worth)
        of_types = told(await settled(shop, day, day), sale.event_id)
        times = len(child) - 1
        assert of_types["child"][2:4] == (times, child[-1])
        assert of_types["adult"][2:4] == (times, times * 5025)
        assert None not in of_types


LINES = st.lists(
    st.tuples(st.integers(0, 30_000), st.integers(1, 6), st.integers(0, 5)).filter(lambda line: line[2] < line[1]),
    min_size=1, max_size=5,
)  # fmt: skip


@given(LINES, st.integers(0, 200_000), st.sampled_from(["EUR", "JPY", "KWD"]))
def test_no_type_has_more_than_its_tickets_are_worth_and_nothing_is_lost(
    lines: list[tuple[int, int, int]], amount_minor: int, currency: str
) -> None:
    """What the refund of these tickets is planned to be is divided without a rest."""
    order_lines = [
        OrderLine(section_id="A", quantity=quantity, unit_price_minor=0, paid_minor=paid_minor, returned=before)
        for paid_minor, quantity, before in lines
    ]
    worths = [ticket_value_minor(line, line.remaining, currency) for line in order_lines]
    tickets = [
        (f"t{n}", each.paid_minor, each.quantity, each.returned, each.remaining) for n, each in enumerate(order_lines)
    ]
    assert [minor for *_, minor in divide(sum(worths), currency, tickets)] == worths
    parts = list(divide(amount_minor, currency, tickets))
    assert sum(minor for *_, minor in parts) == min(amount_minor, sum(worths))
    assert all(0 <= minor <= worth for (*_, minor), worth in zip(parts, worths, strict=True))
    assert [count for _, count, _ in parts] == [line.remaining for line in order_lines]


async def test_types_that_the_file_has_no_more_are_called_by_their_id(shop: Shop) -> None:
    sale = await open_sale(shop, price_types=PRICE_TYPES)
    await bought_of(sale, *FLOOR, total_minor=20000)
    await sale.apply_event_file(price_types=[{"type_id": "full", "name": "Full price"}])
    day = await today(shop)
    rows = await settled(shop, day, day)
    assert [(row["type_id"], row["name"], row["tickets"]) for row in rows] == [
        ("full", "Full price", 2), ("child", "child", 4)
    ]  # fmt: skip


async def test_rows_are_limited_and_still_sum_to_the_totals(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a large ledger each statement reads a page."""
    sales = [await open_sale(shop, price_types=PRICE_TYPES) for _ in range(3)]
    for n, sale in enumerate(sales):
        await bought_of(sale, *floor(f"A-1-{n + 1}"), total_minor=20000)
    day = await today(shop)
    whole = await settled(shop, day, day)
    monkeypatch.setattr(settlement_types, "ENTRIES_PAGE", 1)
    assert await settled(shop, day, day) == whole
    monkeypatch.setattr(settlement_types, "ROWS_MAX", 5)
    rows = await settled(shop, day, day)
    assert rows[:4] == whole[:4]
    assert told(rows[4:], None) == {None: (6, 20000, 0, 0, 0, 0, 20000)}


def test_the_command_prints_a_table_by_type(monkeypatch: pytest.MonkeyPatch) -> None:
    of_type = {"event_id": "hall", "type_id": "child", "name": "Child [6+]", "currency": "EUR", "tickets": 3,
               "charged_minor": 7537, "returned": 1, "refunded_minor": 2513, "disputed_minor": 0, "reinstated_minor": 0,
               "net_minor": 5024}  # fmt: skip
    rest = {**dict.fromkeys(of_type, 0), "event_id": "hall", "type_id": None, "name": None, "currency": "EUR",
            "refunded_minor": 800, "net_minor": -800}  # fmt: skip
    report = {"from": "2027-03-01", "to": "2027-03-31", "tz": "UTC", "days": [], "totals": []}
    printed = Console(record=True, width=200, file=io.StringIO())
    monkeypatch.setattr(cli, "out", printed)
    for types in ([of_type, rest, {**rest, "event_id": None}], []):
        answer = Settlement.model_validate({**report, "types": types})
        monkeypatch.setattr(cli, "with_admin", lambda _, answer=answer: answer)
        cli.settlement(
            first="2027-03-01", last="2027-03-31", tz="UTC", compare=False, url=None, data_dir=DATA_DIR
        )  # fmt: skip
        cells = [[cell.strip() for cell in line.split("│")[1:-1]] for line in printed.export_text().splitlines()]
        assert [row for row in cells if "EUR" in row] == [
            ["hall", "Child [6+]", "EUR", "3", "7537", "1", "2513", "0", "0", "5024"],
            ["hall", "-", "EUR", "0", "0", "0", "800", "0", "0", "-800"],
            ["other events", "-", "EUR", "0", "0", "0", "800", "0", "0", "-800"],
        ][: len(types)]  # fmt: skip
