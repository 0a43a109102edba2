"""Price types: who may buy which, where and at what price; and how many there are of one in all, decided with seats."""

import asyncio
from typing import Any

import pytest

from services.inventory.reconcile.invariants import check_invariants
from services.inventory.redis_keys import Keys
from tests.inventory.actions import buy, reconcile, record, sql
from tests.inventory.conftest import EVENT, Inventory, event_file, make_pass
from tests.support.running.suite import bearer

TYPES: list[dict[str, Any]] = [
    {"type_id": "adult", "name": "Adult"},
    {"type_id": "child", "name": "Child", "percent": 50, "fee_minor": 0, "per_order": 3, "quota": 4},
    {"type_id": "senior", "name": "Concession", "percent": 80, "proof": "Pension card", "sections": ["A", "GA1"]},
    {"type_id": "member", "name": "Member", "price_minor": 1000, "codes": ["Friends 26"]},
    {"type_id": "early", "name": "Early fan", "percent": 90, "lanes": [2]},
    {"type_id": "chair", "name": "Wheelchair", "percent": 50, "traits": ["wheelchair"]},
    {"type_id": "carer", "name": "Companion", "price_minor": 0, "companion_of": ["chair"], "traits": ["companion"]},
]


def priced_file(**sales: Any) -> dict[str, Any]:
    """Section A at 50 and 2.50, with a dearer first row that has its own price of a child; B at 40, the floor at 30."""
    file = event_file(tickets_per_order=10, tickets_per_customer=0, active_reservations_per_customer=0, **sales)
    a, b, floor = file["sections"]
    levels = [{"name": "Front", "rows": [1, 1], "price_minor": 8000, "fee_minor": 250, "prices": {"child": 3500}}]
    traits = {"wheelchair": ["3-1", "3-4"], "companion": ["3-2", "3-5"]}
    return {**file, "price_types": TYPES, "sections": [
        {**a, "prices": {"senior": 4100}, "price_levels": levels, "traits": traits}, b, floor,
    ]}  # fmt: skip


@pytest.fixture
async def priced(inventory: Inventory) -> Inventory:
    answer = await inventory.put(priced_file())
    assert answer.status_code == 200, answer.text
    return inventory


async def left(inventory: Inventory, type_id: str = "child") -> tuple[int, int]:
    """How many of a type are available in Redis and in PostgreSQL."""
    counts = await inventory.state.redis_stock.redis.hget(Keys.of(EVENT).counts, f"~{type_id}:available")
    (row,) = await sql(
        inventory, "SELECT seats_remaining FROM inventory.section WHERE event_id = :event_id AND section_id = :s",
        s=f"~{type_id}",
    )  # fmt: skip
    return int(counts or 0), int(row.seats_remaining)


def prices(answer: Any) -> list[tuple[str, str | None, int, int]]:
    """Place, type, quantity and price of each ticket of an answer."""
    return [
        (t["seat_id"] or t["section_id"], t["type_id"], t["quantity"], t["unit_price_minor"])
        for t in answer.json()["tickets"]
    ]


async def change(inventory: Inventory, held: str, holder: str = "fan", **body: Any) -> Any:
    path = f"/events/{EVENT}/reservations/{held}/types"
    return await inventory.fans.post(path, json=body, headers=bearer(make_pass(holder)))


async def require_sound(inventory: Inventory) -> None:
    state = inventory.state
    found = await check_invariants(state.db, state.redis_stock, state.catalogue.layout(EVENT), state.stock_checks)
    assert [each.detail for each in found.invariants if not each.holds] == []


# -- prices and requests -----------------------------------------------------------------------------------------------


async def test_each_ticket_costs_what_its_type_costs_at_its_place(priced: Inventory) -> None:
    answer = await priced.reserve(
        seats=["A-1-1", "A-1-2", "A-2-1", "B-1-1"], types={"A-1-1": "child", "A-2-1": "senior", "B-1-1": "child"},
        ga=[{"section_id": "GA1", "quantity": 1}, {"section_id": "GA1", "quantity": 1, "type_id": "senior"}],
    )  # fmt: skip
    assert answer.status_code == 201, answer.text
    assert prices(answer) == [
        ("A-1-1", "child", 1, 3500), ("A-1-2", "adult", 1, 8250), ("A-2-1", "senior", 1, 4350),
        ("B-1-1", "child", 1, 2000), ("GA1", "adult", 1, 3100), ("GA1", "senior", 1, 2500),
    ]  # fmt: skip
    body = answer.json()
    assert body["total_amount_minor_units"] == 3500 + 8250 + 4350 + 2000 + 3100 + 2500
    assert (body["ga_section"], body["ga_quantity"], body["ga"]) == ("GA1", 2, [{"section_id": "GA1", "quantity": 2}])
    lines = (await record(priced, body["reservation_id"]))["lines"]
    assert [(x["seat_id"], x["type_id"], x["quantity"]) for x in lines] == [
        ("A-1-1", "child", 1), ("A-1-2", "", 1), ("A-2-1", "senior", 1), ("B-1-1", "child", 1), (None, "", 1),
        (None, "senior", 1),
    ]  # fmt: skip
    await require_sound(priced)


async def test_a_request_without_types_means_the_usual_one(priced: Inventory) -> None:
    answer = await priced.reserve(seats=["A-2-1"], ga_section="GA1", ga_quantity=2)
    assert prices(answer) == [("A-2-1", "adult", 1, 5250), ("GA1", "adult", 2, 3100)]
    same = await priced.reserve("other", seats=["A-2-2"], types={"A-2-2": "adult"})
    assert prices(same) == [("A-2-2", "adult", 1, 5250)]
    assert await left(priced) == (4, 4)


async def test_each_ticket_says_what_every_type_costs_at_its_place(priced: Inventory) -> None:
    answer = await priced.reserve(seats=["A-1-1", "A-3-1"], ga=[{"section_id": "GA1", "quantity": 2}])
    front, chair, floor = (ticket["prices"] for ticket in answer.json()["tickets"])
    assert (front["adult"], front["child"], "chair" in front) == (8250, 3500, False)
    assert (chair["adult"], chair["child"], chair["chair"]) == (5250, 2500, 2750)
    assert (floor["adult"], floor["child"], "chair" in floor) == (3100, 1500, False)


async def test_an_event_without_types_has_none(inventory: Inventory) -> None:
    answer = await inventory.reserve(seats=["A-1-1"])
    assert prices(answer) == [("A-1-1", None, 1, 5250)]
    assert answer.json()["tickets"][0]["prices"] == {}
    refused = await inventory.reserve("other", seats=["A-1-2"], types={"A-1-2": "child"})
    assert (refused.status_code, refused.json()["type"].rsplit("/")[-1]) == (404, "unknown-price-type")


async def test_the_catalogue_says_types_and_prices_and_no_codes(priced: Inventory) -> None:
    event = (await priced.fans.get(f"/events/{EVENT}")).json()
    assert [each["type_id"] for each in event["price_types"]] == [each["type_id"] for each in TYPES]
    member = event["price_types"][3]
    assert member["code_required"]
    assert "Friends" not in str(event)
    section = event["sections"][0]
    assert section["prices"]["child"] == 2500
    assert section["price_levels"][0]["prices"]["child"] == 3500
    seats = await priced.fans.get(f"/events/{EVENT}/sections/A/seats", headers=bearer(make_pass("fan")))
    by_id = {seat["seat_id"]: seat for seat in seats.json()["seats"]}
    assert by_id["A-3-1"]["traits"] == ["wheelchair"]
    assert by_id["A-3-1"]["prices"]["chair"] == 2750
    assert "chair" not in by_id["A-3-3"]["prices"]
    await priced.hold(seats=["A-1-1"], types={"A-1-1": "child"})
    await asyncio.sleep(0.3)
    sections = (await priced.fans.get(f"/events/{EVENT}/sections")).json()
    assert sections["types"] == [{"type_id": "child", "available": 3}]


async def test_the_event_file_is_read_back_as_it_was(priced: Inventory) -> None:
    stored = await priced.admin("GET", f"/events/{EVENT}")
    file = priced_file()
    assert stored["sections"][0]["traits"] == file["sections"][0]["traits"]
    assert [each["type_id"] for each in stored["price_types"]] == [each["type_id"] for each in TYPES]
    assert (await priced.put(stored)).json()["changed"] is False


# -- what is refused ---------------------------------------------------------------------------------------------------

REFUSED: list[tuple[dict[str, Any], str, list[str]]] = [
    ({"seats": ["B-1-1"], "types": {"B-1-1": "senior"}}, "place", ["B-1-1"]),
    ({"seats": ["A-3-1", "A-3-3"], "types": {"A-3-1": "chair", "A-3-3": "chair"}}, "place", ["A-3-3"]),
    ({"seats": ["A-2-1"], "types": {"A-2-1": "member"}}, "code", ["A-2-1"]),
    ({"seats": ["A-2-1"], "types": {"A-2-1": "member"}, "code": "Friends 27"}, "code", ["A-2-1"]),
    ({"seats": ["A-2-1"], "types": {"A-2-1": "early"}}, "lane", ["A-2-1"]),
    ({"seats": ["A-3-2"], "types": {"A-3-2": "carer"}}, "companion", ["A-3-2"]),
    ({"ga": [{"section_id": "GA1", "quantity": 4, "type_id": "child"}]}, "per-order", ["GA1"]),
    ({"best_available": {"quantity": 2, "types": {"early": 1}}}, "lane", ["early"]),
    ({"best_available": {"quantity": 2, "types": {"chair": 1}}}, "place", []),
]


@pytest.mark.parametrize(("body", "reason", "tickets"), REFUSED)
async def test_a_ticket_that_breaks_a_rule_is_named_and_nothing_is_held(
    priced: Inventory, body: dict[str, Any], reason: str, tickets: list[str]
) -> None:
    answer = await priced.reserve(**body)
    assert (answer.status_code, answer.json()["type"].rsplit("/")[-1]) == (409, "price-type-refused"), answer.text
    assert (answer.json()["reason"], answer.json()["tickets"]) == (reason, tickets)
    assert (await sql(priced, "SELECT count(*) FROM inventory.reservation"))[0][0] == 0
    assert await left(priced) == (4, 4)


async def test_a_companion_comes_with_each_guest(priced: Inventory) -> None:
    both: dict[str, Any] = {"seats": ["A-3-1", "A-3-2"], "types": {"A-3-1": "chair", "A-3-2": "carer"}}
    answer = await priced.reserve(**both)
    assert prices(answer) == [("A-3-1", "chair", 1, 2750), ("A-3-2", "carer", 1, 0)]
    held = answer.json()["reservation_id"]
    kept = await priced.fans.post(
        f"/events/{EVENT}/reservations/{held}/keep", json={"seats": ["A-3-2"]}, headers=bearer(make_pass("fan"))
    )
    assert (kept.status_code, kept.json()["reason"]) == (409, "companion")
    two = await priced.reserve(
        "other", seats=["A-3-4", "A-3-5"], ga=[{"section_id": "GA1", "quantity": 1}],
        types={"A-3-4": "adult", "A-3-5": "carer"},
    )  # fmt: skip
    assert two.json()["reason"] == "companion"


async def test_a_code_opens_its_type_however_it_is_typed(priced: Inventory) -> None:
    answer = await priced.reserve(seats=["A-2-1"], types={"A-2-1": "member"}, code=" friends26 ")
    assert prices(answer) == [("A-2-1", "member", 1, 1250)]


async def test_types_of_seats_that_are_not_named_are_refused(priced: Inventory) -> None:
    answer = await priced.reserve(seats=["A-2-1"], types={"A-2-2": "child"})
    assert answer.status_code == 422


# -- a number in all ---------------------------------------------------------------------------------------------------


async def test_a_number_in_all_is_sold_out_by_name(priced: Inventory) -> None:
    await priced.hold("one", ga=[{"section_id": "GA1", "quantity": 3, "type_id": "child"}])
    answer = await priced.reserve("two", seats=["A-1-1", "A-1-2"], types={"A-1-1": "child", "A-1-2": "child"})
    assert (answer.status_code, answer.json()["type"].rsplit("/")[-1]) == (409, "sold-out")
    assert answer.json()["available"] == {"~child": 1}
    assert answer.json()["detail"] == "Only 1 of Child is left."
    assert await left(priced) == (1, 1)
    await require_sound(priced)


async def test_a_crowd_never_gets_more_of_a_type_than_there_are(priced: Inventory) -> None:
    async def one(n: int) -> int:
        return (
            await priced.reserve(f"fan{n}", ga=[{"section_id": "GA1", "quantity": 1, "type_id": "child"}])
        ).status_code

    answers = await asyncio.gather(*(one(n) for n in range(12)))
    assert sorted(answers) == [201] * 4 + [409] * 8
    assert await left(priced) == (0, 0)
    await require_sound(priced)


async def test_what_is_given_back_expires_or_is_returned_frees_its_type(priced: Inventory) -> None:
    child: dict[str, Any] = {"ga": [{"section_id": "GA1", "quantity": 2, "type_id": "child"}]}
    held = await priced.hold("one", **child)
    assert (await priced.fan_request("DELETE", held, "one")).status_code == 204
    assert await left(priced) == (4, 4)
    held = await priced.hold("two", seats=["A-1-1"], types={"A-1-1": "child"}, **child)
    kept = await priced.fans.post(
        f"/events/{EVENT}/reservations/{held}/keep",
        json={"ga": [{"section_id": "GA1", "quantity": 1, "type_id": "child"}]}, headers=bearer(make_pass("two")),
    )  # fmt: skip
    assert kept.status_code == 200, kept.text
    assert await left(priced) == (3, 3)
    await buy(priced, held, "order-two")
    assert await left(priced) == (3, 3)
    step = {"event_id": EVENT, "reservation_id": held, "order_reference": "order-two"}
    returned = await priced.post_internal("/reservations/returns", {"steps": [step], "reason": "refund"})
    assert returned["steps"][0]["outcome"] == "done"
    assert await left(priced) == (4, 4)
    await require_sound(priced)


async def test_one_ticket_of_a_type_is_returned(priced: Inventory) -> None:
    held = await priced.hold(
        seats=["A-1-1"],
        ga=[{"section_id": "GA1", "quantity": 2, "type_id": "child"}, {"section_id": "GA1", "quantity": 1}],
    )
    await buy(priced, held, "order-fan")
    part = {
        "return_id": "r1", "event_id": EVENT, "reservation_id": held, "order_reference": "order-fan",
        "reason": "refund",
        "ga": [{"section_id": "GA1", "quantity": 1, "type_id": "child"}],
    }  # fmt: skip
    assert (await priced.post_internal("/reservations/ticket-returns", part))["outcome"] == "done"
    assert await left(priced) == (3, 3)
    lines = (await record(priced, held))["lines"]
    assert [(x["type_id"], x["quantity"]) for x in lines] == [("", 1), ("", 1), ("child", 1)]
    none = {**part, "return_id": "r2", "ga": [{"section_id": "GA1", "quantity": 1, "type_id": "senior"}]}
    assert (await priced.post_internal("/reservations/ticket-returns", none))["outcome"] == "ended"
    await require_sound(priced)


async def test_redis_that_lost_all_counts_types_again(priced: Inventory) -> None:
    await priced.hold("one", seats=["A-1-1"], types={"A-1-1": "child"})
    sold = await priced.hold("two", ga=[{"section_id": "GA1", "quantity": 2, "type_id": "child"}])
    await buy(priced, sold, "order-two")
    await priced.state.redis_stock.redis.flushall()
    await priced.state.redis_monitor.check()
    assert await left(priced) == (1, 1)
    await require_sound(priced)


async def test_a_wrong_count_of_a_type_is_repaired(priced: Inventory) -> None:
    await priced.hold("one", seats=["A-1-1"], types={"A-1-1": "child"})
    await sql(priced, "UPDATE inventory.section SET seats_remaining = 1 WHERE section_id = '~child'")
    await priced.state.redis_stock.redis.hincrby(Keys.of(EVENT).counts, "~child:available", 1)
    await reconcile(priced)
    await reconcile(priced)
    assert await left(priced) == (3, 3)


async def test_the_number_in_all_changes_while_it_sells(priced: Inventory) -> None:
    await priced.hold("one", ga=[{"section_id": "GA1", "quantity": 3, "type_id": "child"}])
    file = priced_file()
    fewer = {**file, "price_types": [{**t, "quota": 2} if t["type_id"] == "child" else t for t in TYPES]}
    assert (await priced.put(fewer)).status_code == 409
    more = {**file, "price_types": [{**t, "quota": 9} if t["type_id"] == "child" else t for t in TYPES]}
    assert (await priced.put(more)).status_code == 200
    assert await left(priced) == (6, 6)
    gone = {**file, "price_types": [t for t in TYPES if t["type_id"] != "child"]}
    gone["sections"][0]["price_levels"][0]["prices"] = {}
    answer = await priced.put(gone)
    assert answer.status_code == 409
    assert "3 tickets of the price type Child are held or sold" in answer.json()["detail"]
    await require_sound(priced)


# -- best available ----------------------------------------------------------------------------------------------------


async def test_the_best_places_are_held_at_the_types_that_were_asked_for(priced: Inventory) -> None:
    answer = await priced.reserve(best_available={"quantity": 3, "section_id": "B", "types": {"child": 2}})
    assert [(t, p) for _, t, _, p in prices(answer)] == [("adult", 4000), ("child", 2000), ("child", 2000)]
    assert await left(priced) == (2, 2)
    floor = await priced.reserve("two", best_available={"quantity": 3, "section_id": "GA1", "types": {"child": 1}})
    assert prices(floor) == [("GA1", "adult", 2, 3100), ("GA1", "child", 1, 1500)]
    none = await priced.reserve("three", best_available={"quantity": 2, "types": {"child": 2}})
    assert none.json()["available"] == {"~child": 1}
    await require_sound(priced)


async def test_a_repeated_request_gets_its_own_hold_and_another_choice_is_another_request(priced: Inventory) -> None:
    body: dict[str, Any] = {"seats": ["A-2-1"], "types": {"A-2-1": "child"}}
    first = await priced.reserve(key="k", **body)
    assert (await priced.reserve(key="k", **body)).json() == first.json()
    other = await priced.reserve(key="k", seats=["A-2-1"], types={"A-2-1": "senior"})
    assert (other.status_code, other.json()["type"].rsplit("/")[-1]) == (422, "idempotency-key-reused")


# -- changes of a live hold --------------------------------------------------------------------------------------------


async def test_the_types_of_a_hold_are_changed_and_its_places_and_time_stay(priced: Inventory) -> None:
    first = await priced.reserve(seats=["A-1-1", "A-2-1"], ga=[{"section_id": "GA1", "quantity": 3}])
    held = first.json()["reservation_id"]
    wanted: dict[str, Any] = {
        "types": {"A-1-1": "child"},
        "ga": [
            {"section_id": "GA1", "quantity": 2, "type_id": "child"}, {"section_id": "GA1", "quantity": 1},
        ],
    }  # fmt: skip
    answer = await change(priced, held, **wanted)
    assert prices(answer) == [
        ("A-1-1", "child", 1, 3500), ("A-2-1", "adult", 1, 5250), ("GA1", "adult", 1, 3100), ("GA1", "child", 2, 1500),
    ]  # fmt: skip
    assert answer.json()["total_amount_minor_units"] == 3500 + 5250 + 3100 + 3000
    assert answer.json()["reserved_until"] == first.json()["reserved_until"]
    assert await left(priced) == (1, 1)
    assert (await change(priced, held, **wanted)).json() == answer.json()
    back = await change(priced, held, ga=[{"section_id": "GA1", "quantity": 3}])
    assert back.json()["tickets"] == first.json()["tickets"]
    assert await left(priced) == (4, 4)
    await require_sound(priced)


async def test_a_change_takes_no_more_of_a_type_than_there_are(priced: Inventory) -> None:
    await priced.hold("one", ga=[{"section_id": "GA1", "quantity": 3, "type_id": "child"}])
    held = await priced.hold("two", seats=["A-1-1", "A-1-2"])
    answer = await change(priced, held, "two", types={"A-1-1": "child", "A-1-2": "child"})
    assert (answer.status_code, answer.json()["available"]) == (409, {"~child": 1})
    assert await left(priced) == (1, 1)
    wrong = await change(priced, held, "two", ga=[{"section_id": "GA1", "quantity": 1}])
    assert (wrong.status_code, wrong.json()["type"].rsplit("/")[-1]) == (409, "not-same-tickets")
    rule = await change(priced, held, "two", types={"A-1-1": "carer"})
    assert rule.json()["reason"] == "place"
    await require_sound(priced)


async def test_what_the_database_refuses_is_as_it_was_in_redis(priced: Inventory) -> None:
    held = await priced.hold("two", seats=["A-1-1"])
    await sql(priced, "UPDATE inventory.section SET seats_remaining = 0 WHERE section_id = '~child'")
    answer = await change(priced, held, "two", types={"A-1-1": "child"})
    assert (answer.status_code, answer.json()["type"].rsplit("/")[-1]) == (409, "sold-out")
    hold = await priced.state.redis_stock.redis.hget(Keys.of(EVENT).holds, held)
    assert b'"A:0"' in hold
    assert (await left(priced))[0] == 4


async def test_a_change_whose_process_died_before_it_was_written_is_taken_back(priced: Inventory) -> None:
    held = await priced.hold("two", seats=["A-1-1"])
    request = {"reservation_id": held, "holder": "two", "change": "A:0;~child*1"}
    assert (await priced.state.redis_stock.hold(EVENT, [request]))[0].outcome == "held"
    assert await left(priced) == (3, 4)
    await reconcile(priced, times=3)
    assert await left(priced) == (4, 4)
    await require_sound(priced)
    changed = await change(priced, held, "two", types={"A-1-1": "child"})
    assert prices(changed) == [("A-1-1", "child", 1, 3500)]


async def test_a_hold_that_is_being_paid_keeps_its_types(priced: Inventory) -> None:
    held = await priced.hold(seats=["A-1-1"])
    assert (await priced.step("begin-payment", held, "order-1"))["outcome"] == "done"
    answer = await change(priced, held, types={"A-1-1": "child"})
    assert (answer.status_code, answer.json()["type"].rsplit("/")[-1]) == (409, "payment-in-progress")


async def test_concurrent_changes_and_holds_share_what_is_left(priced: Inventory) -> None:
    held = [await priced.hold(f"fan{n}", seats=[f"A-2-{n}"]) for n in range(1, 6)]
    changes = (change(priced, one, f"fan{n}", types={f"A-2-{n}": "child"}) for n, one in enumerate(held, 1))
    holds = (priced.reserve(f"new{n}", ga=[{"section_id": "GA1", "quantity": 1, "type_id": "child"}]) for n in range(5))
    answers = await asyncio.gather(*changes, *holds)
    assert sum(a.status_code in (200, 201) for a in answers) == 4
    assert await left(priced) == (0, 0)
    await require_sound(priced)
