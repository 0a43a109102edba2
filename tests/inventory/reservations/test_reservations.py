"""A reservation over HTTP, from the request of the fan to the confirmed payment."""

from tests.inventory.conftest import EVENT, Inventory


async def test_a_fan_reserves_seats_and_ga_tickets_together(inventory: Inventory) -> None:
    answer = await inventory.reserve(seats=["A-1-1", "A-1-2"], ga=[{"section_id": "GA1", "quantity": 2}])
    assert answer.status_code == 201, answer.text
    body = answer.json()
    assert body["seats"] == ["A-1-1", "A-1-2"]
    assert body["ga"] == [{"section_id": "GA1", "quantity": 2}]
    assert (body["ga_section"], body["ga_quantity"]) == ("GA1", 2)
    assert (body["total_amount_minor_units"], body["currency"]) == (2 * 5250 + 2 * 3100, "EUR")
    assert body["status"] == "pending_payment"
    read = await inventory.fan_request("GET", body["reservation_id"])
    assert read.json() == body
    assert await inventory.counts("A") == (13, 2)
    assert await inventory.violations() == []


async def test_a_confirmed_payment_sells_the_reserved_stock(inventory: Inventory) -> None:
    reservation_id = await inventory.hold(seats=["A-1-1"], ga_section="GA1", ga_quantity=1)
    begun = await inventory.step("begin-payment", reservation_id, "order-1", "customer-1")
    assert (begun["outcome"], begun["status"]) == ("done", "paying")
    done = await inventory.step("confirm", reservation_id, "order-1")
    assert (done["outcome"], done["status"]) == ("done", "confirmed")
    stock = await inventory.post_internal("/stock", {"event_id": EVENT})
    assert [(s["section_id"], s["sold"]) for s in stock["sections"]] == [("A", 1), ("B", 0), ("GA1", 1)]
    assert await inventory.violations(at_rest=True) == []
