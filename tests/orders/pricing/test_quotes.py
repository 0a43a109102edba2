"""What was shown is what is charged: the quote, the order, the charge and the order's lines say the same."""

from shared.contracts.inventory import ReservedItem
from tests.orders.priced_event import FEES, TAXES, open_sale
from tests.orders.shop import ADMIN_SECRET, VIEWER_SECRET
from tests.support.wait import wait_until

SEATS = (
    ReservedItem(section_id="A", seat_id="A-1-1", unit_price_minor=3333),
    ReservedItem(section_id="GA1", quantity=3, unit_price_minor=2501),
)


async def test_a_quote_is_what_is_charged_and_kept(shop):
    sale = await open_sale(shop, fees=FEES, taxes=TAXES)
    await sale.code("EARLY", percent=10, section_ids=["GA1"])
    reservation = sale.hold(*SEATS)
    quote = (await sale.quote(reservation, "early")).json()
    # 3333 + 7503 - 750 (half up) = 10086; + 4 x 150 + 252 = 10938; + 164 city tax; VAT is 10938 x 19 / 119
    assert [tuple(extra.values()) for extra in quote["extras"]] == [
        ("discount", "EARLY", "10", -750, False),
        ("fee", "Booking fee", None, 600, False),
        ("fee", "Order fee", "2.5", 252, False),
        ("tax", "VAT", "19", 1746, True),
        ("tax", "City tax", "1.5", 164, False),
    ]
    assert quote["total_minor"] == 11102 == sum(line["paid_minor"] for line in quote["lines"])
    answer = await sale.order(reservation, 11102, "EARLY")
    assert answer.status_code == 202, answer.text
    reference = answer.json()["reference"]
    seen = await _confirmed(sale, reference)
    assert {name: seen[name] for name in ("lines", "extras", "total_minor")} == {
        name: quote[name] for name in ("lines", "extras", "total_minor")
    }
    [charge] = await shop.charges(reference)
    assert charge["captured_minor"] == 11102


async def _confirmed(sale, reference):
    async def confirmed() -> bool:
        return (await sale.see(reference))["status"] == "confirmed"

    await wait_until(confirmed)
    return await sale.see(reference)


async def test_another_price_is_refused_with_the_new_quote_and_nothing_is_touched(shop):
    sale = await open_sale(shop)
    reservation = sale.hold()
    assert (await sale.quote(reservation)).json()["total_minor"] == 10000
    await sale.describe(fees=FEES)
    answer = await sale.order(reservation, 10000)
    refused = answer.json()
    assert (answer.status_code, refused["type"]) == (409, "/problems/price-changed")
    now = (await sale.quote(reservation)).json()
    assert {name: refused[name] for name in now} == now
    assert now["total_minor"] == 10550
    held = shop.holds.reservations[reservation]
    assert (held.status, held.order_reference) == ("pending_payment", None)
    assert await shop.charges() == []
    assert (await sale.order(reservation, 10550)).status_code == 202


async def test_a_code_without_its_discount_in_the_total_is_refused(shop):
    sale = await open_sale(shop)
    await sale.code("HALF", percent=50)
    reservation = sale.hold()
    assert (await sale.order(reservation, 10000, "HALF")).status_code == 409
    assert (await sale.order(reservation, 5000)).status_code == 409
    assert (await sale.order(reservation, 5000, "HALF")).status_code == 202


async def test_a_quote_is_for_the_reservations_owner_and_changes_nothing(shop):
    sale = await open_sale(shop)
    await sale.code("ONCE", amount_minor=500, uses_max=1)
    reservation = sale.hold()
    before = shop.holds.reservations[reservation]
    for _ in range(3):
        assert (await sale.quote(reservation, "ONCE")).json()["total_minor"] == 9500
    assert (await sale.quote(reservation, holder="somebody")).status_code == 404
    assert (shop.holds.reservations[reservation], shop.holds.asked, await sale.uses("ONCE")) == (before, [], 0)
    shop.holds.change(reservation, status="expired")
    assert (await sale.quote(reservation)).json()["type"] == "/problems/hold-expired"


async def test_an_order_that_costs_nothing_is_confirmed_without_a_payment(shop):
    sale = await open_sale(shop, fees=FEES, taxes=TAXES)
    await sale.code("GUEST", percent=100, uses_max=1)
    reservation = sale.hold()
    answer = await sale.order(reservation, 0, "GUEST")
    assert answer.status_code == 202, answer.text
    seen = await _confirmed(sale, answer.json()["reference"])
    assert (seen["total_minor"], seen["attempt"], await shop.charges()) == (0, None, [])
    assert (shop.holds.reservations[reservation].status, await sale.uses("GUEST")) == ("confirmed", 1)


async def test_the_audit_sees_an_order_whose_parts_are_not_its_total(shop):
    reference = await shop.order()
    await shop.settled(reference, "confirmed")
    assert await shop.audit() == {}
    await shop.run("UPDATE orders.order_line SET paid_minor = paid_minor - 1 WHERE reference = :r", r=reference)
    assert list(await shop.audit()) == ["7 lines sum to the order's total"]


async def test_fees_and_taxes_are_an_administrators_and_for_anyone_to_see(shop):
    sale = await open_sale(shop, fees=FEES, taxes=TAXES)
    assert (await sale.describe(secret=ADMIN_SECRET)).status_code == 403
    again = await sale.describe(fees=FEES, taxes=TAXES)
    assert again.json()["changed"] is False
    told = (await shop.http.get(f"/orders/events/{sale.event_id}/prices")).json()
    assert [fee["name"] for fee in told["fees"]] == ["Booking fee", "Order fee"]
    assert told["taxes"][1] == {"name": "City tax", "percent": "1.5", "included": False}
    [change] = (await sale.operate("GET", "/price-changes", secret=VIEWER_SECRET)).json()["changes"]
    assert (told["all_in"], told["together_minor"]) == ({}, None)
    assert (change["actor"], change["action"], change["before"]) == ("root", "apply", None)
    wrong = await sale.describe(fees=[{"name": "both", "amount_minor": 1, "percent": 1}])
    assert (wrong.status_code, wrong.json()["type"]) == (422, "/problems/invalid-request")


async def test_what_a_price_comes_to_is_told_before_anything_is_held(shop):
    fees = [{"name": "Booking fee", "amount_minor": 500}, {"name": "Order fee", "per": "order", "amount_minor": 200}]
    sale = await open_sale(shop, fees=fees, taxes=[{"name": "VAT", "percent": "10", "included": False}])
    path = f"/orders/events/{sale.event_id}/prices"
    told = await shop.http.get(path, params={"each": [1000, 0], "line": ["1000x2", "500x1"]})
    assert told.headers["cache-control"] == "public, max-age=10"
    assert told.json()["all_in"] == {"1000": 1870, "0": 0}
    assert told.json()["together_minor"] == (2 * 1000 + 500 + 3 * 500 + 200) * 11 // 10
    for wrong in ({"each": [-1]}, {"line": ["x"]}, {"each": list(range(101))}):
        assert (await shop.http.get(path, params=wrong)).status_code == 422
