"""Operators support buyers: orders are found by whatever a caller remembers, exported safely, and settled by day."""

import csv
import io
from datetime import UTC, date, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from services.orders.reports.settlement import date_range
from shared.contracts.inventory import ReservedItem
from shared.web.problems import InvalidRequest
from tests.orders.holds import EVENT
from tests.orders.shop import ADMIN_SECRET, VIEWER_SECRET, Shop
from tests.support.wait import wait_until

OPERATOR = {"authorization": f"Bearer {ADMIN_SECRET}"}
VIEWER = {"authorization": f"Bearer {VIEWER_SECRET}"}
TODAY = datetime.now(UTC).date()


async def bought(shop: Shop, seat_id: str = "A-1-1", *, name: str = "Ada", email: str = "ada@example.org") -> str:
    held = shop.holds.hold(lines=[ReservedItem(section_id="A", seat_id=seat_id, unit_price_minor=6800)])
    body = shop.body(held) | {"customer": {"name": name, "email": email, "phone": "+49 30 1"}}
    reference = str((await shop.post(body, key=held)).json()["reference"])
    await shop.is_now(reference, "confirmed")
    return reference


async def found(shop: Shop, **asked: Any) -> list[str]:
    return [order["reference"] for order in (await shop.look_up(**asked))["orders"]]


async def test_an_order_is_found_by_whatever_its_buyer_remembers(shop: Shop) -> None:
    mine = await bought(shop, "A-1-1", name="Ada Lovelace", email="ada@example.org")
    other = await bought(shop, "A-1-2", name="100% Bob_", email="bob@example.org")
    charge = (await shop.charges(mine))[0]["id"]
    for q in (mine, "ADA@example.org", "lovelace", "A-1-1", charge):
        assert await found(shop, q=q) == [mine], q
    assert await found(shop, q="0% b") == [other]
    assert await found(shop, q="_%") == await found(shop, q="' OR 1=1 --") == await found(shop, q="A-1-") == []
    assert await found(shop, event_id=EVENT, status="confirmed") == [other, mine]
    assert await found(shop, status="review") == await found(shop, event_id="another") == []
    now = datetime.now(UTC)
    assert await found(shop, since=(now - timedelta(hours=1)).isoformat()) == [other, mine]
    assert await found(shop, until=(now - timedelta(hours=1)).isoformat()) == []


async def test_pages_follow_each_other_and_are_bounded(shop: Shop) -> None:
    made = [await bought(shop, f"A-1-{n}") for n in range(1, 4)]
    first = await shop.look_up(page_size=2)
    assert ([o["reference"] for o in first["orders"]], first["next_after"]) == (made[:0:-1], made[1])
    assert await shop.look_up(page_size=2, after=made[1]) == {"orders": [first_of(await shop.look_up(q=made[0]))],
                                                              "next_after": None}  # fmt: skip
    for bad in ({"page_size": 101}, {"q": "x"}, {"q": "a\x00b"}, {"after": "'"}, {"since": "2027-01-01T00:00:00"}):
        assert (await shop.http.get("/admin/orders", params=bad, headers=OPERATOR)).status_code == 422, bad


def first_of(answer: dict[str, Any]) -> dict[str, Any]:
    return dict(answer["orders"][0])


async def test_a_timeline_tells_everything_in_the_order_of_time(shop: Shop) -> None:
    reference = await bought(shop)
    await wait_until(lambda: heard(shop, reference))
    await shop.operate(f"{reference}/refund", amount_minor=800, key="k")
    await shop.is_now(reference, "partially_refunded")
    rows = (await shop.look_up(f"/{reference}/timeline"))["timeline"]
    assert [row["at"] for row in rows] == sorted(row["at"] for row in rows)
    assert {row["kind"] for row in rows} == {"order", "command", "attempt", "money", "webhook", "desk", "refund"}
    assert [row["kind"] for row in rows if row["kind"] in ("desk", "refund")] == ["desk", "refund"]
    assert [row["amount_minor"] for row in rows if row["kind"] == "money"] == [6800, 800]
    assert (await shop.http.get("/admin/orders/ZZZZZZZZZZZZ/timeline", headers=OPERATOR)).status_code == 404
    assert (await shop.http.get(f"/admin/orders/{reference}/timeline")).status_code == 401


async def heard(shop: Shop, reference: str) -> bool:
    return any(row["kind"] == "webhook" for row in (await shop.look_up(f"/{reference}/timeline"))["timeline"])


async def test_what_a_fan_typed_is_no_formula_in_the_export(shop: Shop) -> None:
    reference = await bought(shop, name='=HYPERLINK("http://evil")', email="+1@example.org")
    await shop.operate(f"{reference}/refund", amount_minor=800, key="k")
    await shop.is_now(reference, "partially_refunded")
    answer = await shop.http.get("/admin/orders/export.csv", params={"event_id": EVENT}, headers=OPERATOR)
    assert answer.headers["content-type"] == "text/csv; charset=utf-8"
    (row,) = csv.DictReader(io.StringIO(answer.text))
    assert (row["customer_name"], row["customer_email"]) == ('\'=HYPERLINK("http://evil")', "'+1@example.org")
    assert row["customer_phone"] == "'+49 30 1"
    assert (row["reference"], row["seat_id"], row["charged_minor"], row["refunded_minor"]) == (
        reference, "A-1-1", "6800", "800"
    )  # fmt: skip


async def test_a_day_settles_by_provider_and_agrees_with_the_providers_list(shop: Shop) -> None:
    reference = await bought(shop)
    await bought(shop, "A-1-2")
    await shop.operate(f"{reference}/refund", amount_minor=800, key="k")
    await shop.is_now(reference, "partially_refunded")
    asked = {"from": (TODAY - timedelta(days=1)).isoformat(), "to": TODAY.isoformat(), "compare": True}
    report = await shop.look_up("/settlement", **asked)
    sums = {"provider": "sandbox", "currency": "EUR", "charges": 2, "charged_minor": 13600, "refunds": 1,
            "refunded_minor": 800, "net_minor": 12800}  # fmt: skip
    assert report["totals"] == [sums]
    told = [one for one in report["compared"] if one["provider"] == "sandbox"]
    assert told == [{"provider": "sandbox", "compared": 2, "missing": [], "extra": [], "different": []}]


async def test_what_differs_from_the_providers_list_is_named(processes: Any) -> None:
    shop = await processes.open(post_end_sync_delays_s=(60.0,))
    one, two = await bought(shop), await bought(shop, "A-1-2")
    stranger = {"reference": "NOBODYSORDER", "amount_minor": 5, "currency": "EUR", "method": "ok"}
    taken = await shop.sandbox.post("/charges", json=stranger, headers={"idempotency-key": "stranger"})
    await shop.run("ALTER TABLE orders.money_entry DISABLE TRIGGER USER")
    await shop.run("UPDATE orders.money_entry SET amount_minor = 1 WHERE reference = :one", one=one)
    await shop.run("UPDATE orders.money_entry SET provider_ref = 'ch_nowhere' WHERE reference = :two", two=two)
    await shop.run("ALTER TABLE orders.money_entry ENABLE TRIGGER USER")
    charges = {c["reference"]: c["id"] for c in await shop.charges()}
    report = await shop.look_up("/settlement", **{"from": TODAY.isoformat(), "to": TODAY.isoformat(), "compare": True})
    (told,) = [one for one in report["compared"] if one["provider"] == "sandbox"]
    assert {each["charge_ref"] for each in told["missing"]} == {taken.json()["id"], charges[two]}
    assert [each["charge_ref"] for each in told["extra"]] == ["ch_nowhere"]
    assert [(each["amount_minor"], each["theirs_minor"]) for each in told["different"]] == [(1, 6800)]


async def test_a_provider_that_is_silent_is_not_compared_with(shop: Shop) -> None:
    await shop.sandbox.post("/control", json={"down_for_s": 60})
    asked = {"from": TODAY.isoformat(), "to": TODAY.isoformat(), "compare": "true"}
    answer = await shop.http.get("/admin/orders/settlement", params=asked, headers=VIEWER)
    assert (answer.status_code, answer.json()["type"]) == (503, "/problems/unavailable")


def test_a_day_is_as_long_as_its_time_zone_says() -> None:
    """The clocks of Berlin went forward on 28 March 2027."""
    (day,) = date_range(date(2027, 3, 28), date(2027, 3, 28), "Europe/Berlin", compare=False).bounds()
    name, begins, ends = day
    assert (name, ends.astimezone(UTC) - begins.astimezone(UTC)) == ("2027-03-28", timedelta(hours=23))
    assert begins.tzinfo == ZoneInfo("Europe/Berlin")


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
def test_days_that_cannot_be_settled_are_refused(first: date, last: date, zone: str, compare: bool) -> None:
    with pytest.raises(InvalidRequest):
        date_range(first, last, zone, compare=compare)


async def test_names_and_addresses_of_buyers_are_for_operators_alone(shop: Shop) -> None:
    reference = await shop.order()
    for path in ("", f"/export.csv?event_id={EVENT}", f"/{reference}/timeline"):
        assert (await shop.http.get(f"/admin/orders{path}", headers=VIEWER)).status_code == 403, path
        assert (await shop.http.get(f"/admin/orders{path}", headers=OPERATOR)).status_code == 200, path
