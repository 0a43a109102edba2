"""Quotes: an order is charged exactly the quote that the fan read, and is refused at any other price."""

from shared.contracts.inventory import ReservedItem
from tests.orders.priced_event import FEES, TAXES, open_sale
from tests.orders.shop import ADMIN_SECRET, VIEWER_SECRET
from tests.support.running.suite import problem

SEATS = (
    ReservedItem(section_id="A", seat_id="A-1-1", unit_price_minor=3333),
    ReservedItem(section_id="GA1", quantity=3, unit_price_minor=2501),
)


async def test_an_order_charges_exactly_its_quote(shop):
    sale = await open_sale(shop, fees=FEES, taxes=TAXES)
    await sale.put_code("EARLY", percent=10, section_ids=["GA1"])
    reservation = await sale.hold(*SEATS)
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
    order = await sale.wait_for_status(reference, "confirmed")
    assert {name: order[name] for name in ("lines", "extras", "total_minor")} == {
        name: quote[name] for name in ("lines", "extras", "total_minor")
    }
    [charge] = await shop.charges(reference)
    assert charge["captured_minor"] == 11102


async def test_an_order_at_an_old_price_is_refused_with_the_new_quote(shop):
    sale = await open_sale(shop)
    reservation = await sale.hold()
    assert (await sale.quote(reservation)).json()["total_minor"] == 10000
    await sale.apply_event_file(fees=FEES)
    answer = await sale.order(reservation, 10000)
    refused = answer.json()
    assert (answer.status_code, refused["type"]) == (409, "/problems/price-changed")
    quote = (await sale.quote(reservation)).json()
    assert {name: refused[name] for name in quote} == quote
    assert quote["total_minor"] == 10550
    held = await shop.inventory.read(reservation)
    assert (held.status, held.order_reference) == ("pending_payment", None)
    assert await shop.charges() == []
    assert (await sale.order(reservation, 10550)).status_code == 202


async def test_an_order_whose_total_does_not_match_its_code_is_refused(shop):
    sale = await open_sale(shop)
    await sale.put_code("HALF", percent=50)
    reservation = await sale.hold()
    assert (await sale.order(reservation, 10000, "HALF")).status_code == 409
    assert (await sale.order(reservation, 5000)).status_code == 409
    assert (await sale.order(reservation, 5000, "HALF")).status_code == 202


async def test_only_the_holder_gets_a_quote_and_it_changes_nothing(shop):
    sale = await open_sale(shop)
    await sale.put_code("ONCE", amount_minor=500, uses_max=1)
    reservation = await sale.hold()
    before = await shop.inventory.read(reservation)
    for _ in range(3):
        assert (await sale.quote(reservation, "ONCE")).json()["total_minor"] == 9500
    assert (await sale.quote(reservation, holder="somebody")).status_code == 404
    assert await shop.inventory.read(reservation) == before
    assert (shop.inventory.steps, await sale.uses("ONCE")) == ([], 0)
    await shop.inventory.expire(reservation)
    assert (await sale.quote(reservation)).json()["type"] == "/problems/hold-expired"
    sold = await sale.hold()
    await shop.inventory.sell(sold)
    assert (await sale.quote(sold)).json()["type"] == "/problems/payment-in-progress"


async def test_a_fully_discounted_order_is_confirmed_without_a_payment(shop):
    sale = await open_sale(shop, fees=FEES, taxes=TAXES)
    await sale.put_code("GUEST", percent=100, uses_max=1)
    reservation = await sale.hold()
    answer = await sale.order(reservation, 0, "GUEST")
    assert answer.status_code == 202, answer.text
    order = await sale.wait_for_status(answer.json()["reference"], "confirmed")
    assert (order["total_minor"], order["attempt"], await shop.charges()) == (0, None, [])
    assert (await shop.inventory.status(reservation), await sale.uses("GUEST")) == ("confirmed", 1)


async def test_the_audit_finds_an_order_whose_lines_do_not_sum_to_its_total(shop):
    reference = await shop.order()
    await shop.wait_until_settled(reference, "confirmed")
    assert await shop.violated_invariants() == {}
    await shop.change_parts(reference, "lines", lambda lines: lines[0].update(paid_minor=6799))
    assert list(await shop.violated_invariants()) == ["7 lines sum to the order's total"]


async def test_admins_set_fees_and_taxes_and_anyone_reads_them(shop):
    sale = await open_sale(shop, fees=FEES, taxes=TAXES)
    assert (await sale.apply_event_file(secret=ADMIN_SECRET)).status_code == 403
    again = await sale.apply_event_file(fees=FEES, taxes=TAXES)
    assert again.json()["changed"] is False
    prices = (await shop.http.get(f"/orders/events/{sale.event_id}/prices")).json()
    assert [fee["name"] for fee in prices["fees"]] == ["Booking fee", "Order fee"]
    assert prices["taxes"][1] == {"name": "City tax", "percent": "1.5", "included": False}
    [change] = (await sale.admin_request("GET", "/price-changes", secret=VIEWER_SECRET)).json()["changes"]
    assert (prices["all_in"], prices["together_minor"]) == ({}, None)
    assert (change["actor"], change["action"], change["before"]) == ("root", "apply", None)
    wrong = await sale.apply_event_file(fees=[{"name": "both", "amount_minor": 1, "percent": 1}])
    assert problem(wrong) == (422, "invalid-request")


async def test_all_in_prices_are_public_before_a_hold(shop):
    fees = [{"name": "Booking fee", "amount_minor": 500}, {"name": "Order fee", "per": "order", "amount_minor": 200}]
    sale = await open_sale(shop, fees=fees, taxes=[{"name": "VAT", "percent": "10", "included": False}])
    path = f"/orders/events/{sale.event_id}/prices"
    prices = await shop.http.get(path, params={"each": [1000, 0], "line": ["1000x2", "500x1"]})
    assert prices.headers["cache-control"] == "public, max-age=10"
    assert prices.json()["all_in"] == {"1000": 1870, "0": 0}
    assert prices.json()["together_minor"] == (2 * 1000 + 500 + 3 * 500 + 200) * 11 // 10
    for wrong in ({"each": [-1]}, {"line": ["x"]}, {"each": list(range(101))}):
        assert (await shop.http.get(path, params=wrong)).status_code == 422
