"""A fan's way through inventory over HTTP."""

from tests.inventory.conftest import EVENT, Inventory


async def test_a_fan_reserves_seats_and_floor_together(inventory: Inventory) -> None:
    answer = await inventory.reserve(seats=["A-1-1", "A-1-2"], ga=[{"section_id": "GA1", "quantity": 2}])
    assert answer.status_code == 201, answer.text
    body = answer.json()
    assert body["seats"] == ["A-1-1", "A-1-2"]
    assert body["ga"] == [{"section_id": "GA1", "quantity": 2}]
    assert (body["ga_section"], body["ga_quantity"]) == ("GA1", 2)
    assert (body["total_amount_minor_units"], body["currency"]) == (2 * 5250 + 2 * 3100, "EUR")
    assert body["status"] == "pending_payment"
    seen = await inventory.mine("GET", body["reservation_id"])
    assert seen.json() == body
    assert await inventory.left("A") == (13, 2)
    assert await inventory.broken() == []


async def test_payment_begins_confirms_and_the_places_are_sold(inventory: Inventory) -> None:
    made = (await inventory.reserve(seats=["A-1-1"], ga_section="GA1", ga_quantity=1)).json()
    begun = await inventory.step("begin-payment", made["reservation_id"], "order-1", "customer-1")
    assert (begun["outcome"], begun["status"]) == ("done", "paying")
    done = await inventory.step("confirm", made["reservation_id"], "order-1")
    assert (done["outcome"], done["status"]) == ("done", "confirmed")
    stock = await inventory.ask("/stock", {"event_id": EVENT})
    assert [(s["section_id"], s["sold"]) for s in stock["sections"]] == [("A", 1), ("B", 0), ("GA1", 1)]
    assert await inventory.broken(at_rest=True) == []
