"""Stock by code: places of an allotment are sold to who names its code or came by its lane, and to nobody else, until
it opens; moves of places between allotments while others buy.
"""

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx
import pytest

from features.stock.inventory import blocking
from features.stock.inventory.allotments import open_due
from services.inventory.layout.layout import EventCache
from services.inventory.redis_stock.availability import CACHE_S
from services.inventory.reservations.code_tries import AT_ONCE
from tests.inventory.actions import audit_log, buy, rebuild, reconcile, report, sell, sql
from tests.inventory.conftest import EVENT, Inventory, event_file, make_pass
from tests.support.running.suite import bearer, problem

PARTNER = {"name": "Our partner", "kind": "presale", "codes": ["Partner-24"], "seats": ["A-1-1", "A-1-2"],
           "rows": [{"section_id": "B", "rows": ["2", "2"]}], "ga": [{"section_id": "GA1", "quantity": 5}]}  # fmt: skip
CODE: dict[str, Any] = {"code": "partner - 24"}
FLOOR: dict[str, Any] = {"ga_section": "GA1"}


@pytest.fixture(autouse=True)
async def many_tickets(inventory: Inventory) -> None:
    """Fans may have several reservations of many tickets."""
    file = event_file(tickets_per_order=20, tickets_per_customer=0, active_reservations_per_customer=0)
    assert (await inventory.put(file)).is_success


async def allot(inventory: Inventory, allotment_id: str = "partner", **body: Any) -> httpx.Response:
    return await inventory.operate("PUT", f"/allotments/{allotment_id}", **{**PARTNER, **body})


async def move(inventory: Inventory, source: str | None, target: str | None, **places: Any) -> httpx.Response:
    return await inventory.operate("POST", "/stock/move", from_allotment=source, to_allotment=target, **places)


def of_lane(lane: int, holder: str = "fan") -> str:
    return make_pass(holder, qty_max=20, lane=lane)


def floor(n: int, *, holder: str = "fan", **more: Any) -> dict[str, Any]:
    return {"holder": holder, "token": make_pass(holder, qty_max=20), "ga_quantity": n, **FLOOR, **more}


async def allotted(inventory: Inventory, allotment_id: str = "partner") -> dict[str, Any]:
    found = (await inventory.operate("GET", "/stock")).json()["allotments"]
    return next(each for each in found if each["allotment_id"] == allotment_id)


async def public(inventory: Inventory, section_id: str) -> tuple[int, int]:
    """Available to everybody and held, as published at this moment."""
    await asyncio.sleep(CACHE_S)
    return await inventory.counts(section_id)


async def states(inventory: Inventory, section_id: str, token: str, **query: Any) -> list[str]:
    path = f"/events/{EVENT}/sections/{section_id}/seats"
    answer = await inventory.fans.get(path, params=query, headers=bearer(token))
    return [seat["status"] for seat in answer.json()["seats"]]


async def test_seats_of_an_allotment_are_sold_to_who_names_its_code_and_are_reserved_for_others(
    inventory: Inventory,
) -> None:
    assert (await allot(inventory)).json()["changed"] is True
    assert (await allot(inventory)).json()["changed"] is False, "a repeat changes nothing"
    for code in ({}, {"code": "another"}):
        refused = await inventory.reserve(seats=["A-1-1", "A-1-3"], **code)
        assert problem(refused) == (409, "reserved-seats")
        assert refused.json()["seats"] == ["A-1-1"]
    assert await states(inventory, "A", make_pass("fan")) == ["reserved"] * 2 + ["available"] * 13
    assert await states(inventory, "A", make_pass("fan"), **CODE) == ["available"] * 15
    held = await inventory.reserve(seats=["A-1-1", "A-1-3"], **CODE)
    assert held.status_code == 201
    assert await public(inventory, "A") == (12, 2), "everybody can have neither A-1-2 nor what is held"
    mine = await allotted(inventory)
    assert (mine["available"], mine["held"], mine["sold"], mine["kept_aside"]) == (5 + 1 + 4, 1, 0, 0)
    assert await inventory.violations() == []


async def test_a_lane_opens_an_allotment(inventory: Inventory) -> None:
    await allot(inventory, codes=[], lanes=[2, 3])
    assert problem(await inventory.reserve(seats=["A-1-1"], token=of_lane(1))) == (409, "reserved-seats")
    assert await states(inventory, "A", of_lane(3)) == ["available"] * 15
    assert (await inventory.reserve(seats=["A-1-1"], token=of_lane(3))).status_code == 201
    got = await inventory.reserve(token=of_lane(2, "other"), best_available={"quantity": 1})
    assert got.json()["seats"] == ["A-1-2"], "its places first"


async def test_best_available_offers_places_of_a_code_first_and_to_others_never(inventory: Inventory) -> None:
    await allot(inventory)
    best: dict[str, Any] = {"best_available": {"quantity": 2, "section_id": "A"}}
    for n in range(3):
        others = (await inventory.reserve(f"other{n}", **best)).json()["seats"]
        assert len(others) == 2
        assert set(others).isdisjoint({"A-1-1", "A-1-2"})
    assert (await inventory.reserve(**best, **CODE)).json()["seats"] == ["A-1-1", "A-1-2"]
    assert len((await inventory.reserve("second", **best, **CODE)).json()["seats"]) == 2, "then others"
    anywhere: dict[str, Any] = {"best_available": {"quantity": 4}}
    assert (await inventory.reserve("third", **anywhere, **CODE)).json()["seats"] == [f"B-2-{n}" for n in range(1, 5)]
    assert (await inventory.reserve("fourth", **anywhere, **CODE)).json()["ga"] == [
        {"section_id": "GA1", "quantity": 4}
    ], "its places of the floor come before dearer seats of general sale"
    assert await inventory.redis_counts("GA1~partner") == (1, 4)
    assert await inventory.violations() == []


async def test_tickets_of_general_admission_come_from_the_pool_and_then_from_the_section(inventory: Inventory) -> None:
    await allot(inventory)
    assert await inventory.redis_counts("GA1") == (15, 0)
    assert await public(inventory, "GA1") == (15, 0)
    assert (await inventory.reserve(**floor(3, **CODE))).json()["ga"] == [{"section_id": "GA1", "quantity": 3}]
    assert await inventory.redis_counts("GA1~partner") == (2, 3)
    tickets = (await inventory.reserve(**floor(3, holder="second", **CODE))).json()["tickets"]
    assert [(t["section_id"], t["quantity"], t["unit_price_minor"]) for t in tickets] == [("GA1", 3, 3100)]
    assert await inventory.redis_counts("GA1~partner") == (2, 3), "all of one reservation, from the section"
    assert await public(inventory, "GA1") == (12, 6)
    short = await inventory.reserve(**floor(13, holder="third", **CODE))
    assert (problem(short), short.json()["available"]) == ((409, "sold-out"), {"GA1": 12})
    nothing = await inventory.reserve(**floor(13, holder="fourth"))
    assert nothing.json()["available"] == {"GA1": 12}
    sections = (await inventory.fans.get(f"/events/{EVENT}/sections")).json()["sections"]
    shown = next(each for each in sections if each["section_id"] == "GA1")
    assert (shown["total_seats"], shown["available_seats"], shown["held_seats"]) == (20, 12, 6)
    assert shown["reserved_seats"] == 2
    assert [each["section_id"] for each in sections] == ["A", "B", "GA1"]
    assert await inventory.violations() == []


async def test_the_line_counts_what_somebody_can_have(inventory: Inventory) -> None:
    await allot(inventory)
    frame = await inventory.state.availability.frame(inventory.state.catalogue.layout(EVENT))
    assert [(each.section_id, each.available, each.reserved) for each in frame.sections] == [
        ("A", 13, 2), ("B", 4, 4), ("GA1", 15, 5)
    ]  # fmt: skip
    assert frame.available == 43
    stored = await inventory.state.availability.frame_from_db(EVENT)
    assert [each.model_dump(exclude={"at_ms"}) for each in stored.sections] == [
        each.model_dump(exclude={"at_ms"}) for each in frame.sections
    ]
    event = (await inventory.fans.get(f"/events/{EVENT}")).json()
    assert event["code_opens_places"] is True
    assert [each["capacity"] for each in event["sections"]] == [15, 8, 20]


async def test_price_types_of_tickets_of_a_pool_change_as_others(inventory: Inventory) -> None:
    types = [{"type_id": "full", "name": "Full"}, {"type_id": "child", "name": "Child", "percent": 50, "quota": 9}]
    await inventory.put({**event_file(tickets_per_customer=0), "price_types": types})
    await allot(inventory)
    some = [{"section_id": "GA1", "quantity": 1}, {"section_id": "GA1", "quantity": 1, "type_id": "child"}]
    held = await inventory.reserve(ga=some, **CODE)
    assert held.status_code == 201, held.text
    assert await inventory.redis_counts("GA1~partner") == (3, 2)
    assert await inventory.redis_counts("~child") == (8, 1)
    path = f"/events/{EVENT}/reservations/{held.json()['reservation_id']}/types"
    all_child = {"ga": [{"section_id": "GA1", "quantity": 2, "type_id": "child"}]}
    changed = await inventory.fans.post(path, json=all_child, headers=bearer(make_pass("fan")))
    assert [(t["section_id"], t["quantity"], t["type_id"]) for t in changed.json()["tickets"]] == [("GA1", 2, "child")]
    assert await inventory.redis_counts("~child") == (7, 2)
    assert await inventory.redis_counts("GA1~partner") == (3, 2)
    assert await inventory.violations() == []


async def test_tickets_of_a_pool_are_kept_given_back_returned_and_expire_as_others(inventory: Inventory) -> None:
    await allot(inventory)
    held = (await inventory.reserve(**floor(4, **CODE))).json()["reservation_id"]
    keep = await inventory.fans.post(
        f"/events/{EVENT}/reservations/{held}/keep", json={"ga": [{"section_id": "GA1", "quantity": 3}]},
        headers=bearer(make_pass("fan")),
    )  # fmt: skip
    assert keep.json()["ga"] == [{"section_id": "GA1", "quantity": 3}]
    assert await inventory.redis_counts("GA1~partner") == (2, 3)
    await buy(inventory, held, "order-1")
    (line,) = (await inventory.post_internal("/reservations/read", {"reservation_ids": [held]}))["reservations"][0][
        "lines"
    ]
    assert (line["section_id"], line["quantity"]) == ("GA1", 3), "other services know no pools"
    returned = {"event_id": EVENT, "reservation_id": held, "order_reference": "order-1", "return_id": "r1",
                "seats": [], "ga": [{"section_id": "GA1", "quantity": 1}], "reason": "refund"}  # fmt: skip
    assert (await inventory.post_internal("/reservations/ticket-returns", returned))["outcome"] == "done"
    assert await inventory.redis_counts("GA1~partner") == (3, 0)
    mine = await allotted(inventory)
    assert (mine["available"], mine["sold"]) == (3 + 2 + 4, 2)
    blocked = {**returned, "return_id": "r2", "keep_blocked": True}
    assert (await inventory.post_internal("/reservations/ticket-returns", blocked))["outcome"] == "done"
    await open_due(inventory.state)
    assert (await report(inventory, "GA1"))["blocked"] == 1, "what is blocked when it comes back, is so in the section"
    assert await inventory.redis_counts("GA1~partner") == (3, 0)
    await inventory.hold("late", ga=[{"section_id": "GA1", "quantity": 3}], **CODE)
    assert await inventory.redis_counts("GA1~partner") == (0, 3)
    inventory.travel(3_600_000)
    await inventory.state.expiry_worker.sweep()
    assert await inventory.redis_counts("GA1~partner") == (3, 0)
    assert await inventory.violations() == []


async def test_seats_of_a_code_stay_so_after_a_hold_a_sale_and_a_return(inventory: Inventory) -> None:
    await allot(inventory)
    held = await inventory.hold(seats=["A-1-1"], **CODE)
    await inventory.fan_request("DELETE", held)
    assert problem(await inventory.reserve("other", seats=["A-1-1"])) == (409, "reserved-seats")
    sold = await sell(inventory, "buyer", seats=["A-1-1"], **CODE)
    mine = await allotted(inventory)
    assert (mine["sold"], (await report(inventory, "A"))["sold"]) == (1, 1)
    step = {"event_id": EVENT, "reservation_id": sold, "order_reference": "order-buyer"}
    answer = await inventory.post_internal("/reservations/returns", {"steps": [step], "reason": "refund"})
    assert answer["steps"][0]["outcome"] == "done"
    assert problem(await inventory.reserve("other", seats=["A-1-1"])) == (409, "reserved-seats")
    assert (await inventory.reserve("again", seats=["A-1-1"], **CODE)).status_code == 201
    assert await inventory.violations() == []


async def test_redis_is_rebuilt_with_pools_and_reconciliation_finds_nothing(inventory: Inventory) -> None:
    await allot(inventory)
    await inventory.reserve(**floor(2, **CODE))
    await sell(inventory, "buyer", ga=[{"section_id": "GA1", "quantity": 1}], **CODE)
    await rebuild(inventory)
    assert await inventory.redis_counts("GA1~partner") == (2, 2)
    assert await public(inventory, "GA1") == (15, 2)
    assert (await reconcile(inventory)).differences == 0
    assert problem(await inventory.reserve(seats=["A-1-1"])) == (409, "reserved-seats")
    assert await inventory.violations() == []


async def test_an_opened_allotment_is_on_sale_to_all_and_its_pool_goes_back(inventory: Inventory) -> None:
    await allot(inventory)
    await sell(inventory, "buyer", seats=["A-1-1"], ga=[{"section_id": "GA1", "quantity": 2}], **CODE)
    held = await inventory.hold(ga=[{"section_id": "GA1", "quantity": 1}], **CODE)
    opened = await inventory.operate("POST", "/allotments/partner/open")
    assert opened.json()["changed"] is True
    assert (await inventory.operate("POST", "/allotments/partner/open")).json()["changed"] is False
    assert (await inventory.reserve("other", seats=["A-1-2"])).status_code == 201
    assert await inventory.redis_counts("GA1") == (17, 0)
    await inventory.fan_request("DELETE", held)

    await open_due(inventory.state)
    assert await inventory.redis_counts("GA1") == (18, 0)
    mine, section = await allotted(inventory), await report(inventory, "GA1")
    assert (mine["sold"], mine["available"]) == (3, 0)
    assert (section["capacity"], section["available"], section["reserved"], section["sold"]) == (20, 18, 0, 2)
    assert await inventory.violations() == []


async def test_an_allotment_opens_at_its_time(inventory: Inventory) -> None:
    soon = datetime.now(UTC) + timedelta(seconds=30)
    await allot(inventory, opens_at=soon.isoformat())
    inventory.travel(31_000)

    await open_due(inventory.state)
    assert (await inventory.reserve(seats=["A-1-1"])).status_code == 201
    assert await inventory.violations() == []


async def test_blocked_stock_becomes_stock_by_code_and_back(inventory: Inventory) -> None:
    await allot(inventory, codes=[])
    assert problem(await inventory.reserve(seats=["A-1-1"], **CODE)) == (409, "seats-taken")
    await allot(inventory)
    assert await inventory.redis_counts("GA1~partner") == (5, 0)
    first = await inventory.hold(seats=["A-1-1"], **CODE)
    refused = await allot(inventory, codes=[])
    assert (problem(refused), refused.json()["seats"]) == ((409, "stock-conflict"), {"held": ["A-1-1"]})
    await inventory.fan_request("DELETE", first)
    assert (await allot(inventory, codes=[])).is_success
    assert (await report(inventory, "GA1"))["kept_aside_by"] == {"partner": 5}
    assert problem(await inventory.reserve(seats=["A-1-1"], **CODE)) == (409, "seats-taken")
    assert await inventory.violations() == []


async def test_a_process_that_knows_an_older_allotment_sells_none_of_its_seats(
    inventory: Inventory, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def later(self: EventCache) -> None:
        """The layout of another process, which has not read the change yet."""

    monkeypatch.setattr(EventCache, "refresh", later)
    await allot(inventory)
    refused = await inventory.reserve(seats=["A-1-1"])
    assert problem(refused) == (503, "unavailable")
    assert (await inventory.reserve("other", seats=["A-1-3"])).status_code == 201
    assert await sql(inventory, "SELECT 1 FROM inventory.seat WHERE allotment_id IS NOT NULL AND status = 'held'") == []


# -- moves -------------------------------------------------------------------------------------------------------------


async def test_places_move_between_allotments_and_general_sale(inventory: Inventory) -> None:
    await allot(inventory)
    await allot(inventory, "house", kind="house", codes=[], seats=["A-3-1"], rows=[], ga=[])
    gone = await move(inventory, "partner", "house", seats=["A-1-1"], ga=[{"section_id": "GA1", "quantity": 2}])
    assert (gone.status_code, gone.json()["changed"]) == (200, True)
    assert problem(await inventory.reserve(seats=["A-1-1"], **CODE)) == (409, "seats-taken")
    assert await inventory.redis_counts("GA1~partner") == (3, 0)
    kept = await allotted(inventory, "house")
    assert (kept["kept_aside"], kept["seats"]) == (4, ["A-1-1", "A-3-1"])
    whole = [{"section_id": "B", "rows": [1, 1]}]
    assert (await move(inventory, None, "partner", rows=whole)).is_success
    assert (await allotted(inventory))["rows"] == [{"section_id": "B", "rows": ["1", "2"]}]
    assert problem(await inventory.reserve(seats=["B-1-1"])) == (409, "reserved-seats")
    assert (await move(inventory, "partner", None, seats=["B-1-1"])).is_success
    assert (await inventory.reserve(seats=["B-1-1"])).status_code == 201
    here = await allotted(inventory)
    assert (here["seats"], here["ga"]) == (["A-1-2", "B-1-2", "B-1-3", "B-1-4"], [{"section_id": "GA1", "quantity": 3}])
    all_of_it = {"seats": here["seats"], "rows": here["rows"], "ga": here["ga"]}
    assert (await move(inventory, "partner", None, **all_of_it)).is_success
    assert (await allotted(inventory))["available"] == 0, "it stays, and waits for others"
    assert (await move(inventory, None, "partner", seats=["A-2-1"])).is_success
    assert (await audit_log(inventory))[0]["action"] == "move"
    assert await inventory.violations() == []


async def test_what_is_held_sold_or_elsewhere_does_not_move_and_is_named(inventory: Inventory) -> None:
    await allot(inventory)
    await allot(inventory, "other", codes=["OTHER"], seats=["A-2-1"], rows=[], ga=[])
    await inventory.hold(seats=["A-1-1"], ga=[{"section_id": "GA1", "quantity": 4}], **CODE)
    await sell(inventory, "buyer", seats=["A-1-2"], **CODE)
    seats = ["A-1-1", "A-1-2"]
    refused = await move(inventory, "partner", "other", seats=seats)
    assert problem(refused) == (409, "stock-conflict")
    assert refused.json()["seats"] == {"held": ["A-1-1"], "sold": ["A-1-2"]}
    few = await move(inventory, "partner", "other", ga=[{"section_id": "GA1", "quantity": 2}])
    assert (few.status_code, few.json()["available"]) == (409, 1)
    assert (await move(inventory, "other", None, seats=["A-3-1"])).json()["seats"] == {"not in other": ["A-3-1"]}
    assert (await move(inventory, None, "partner", seats=["A-2-1"])).json()["seats"] == {"allotted to other": ["A-2-1"]}
    assert problem(await move(inventory, "none", None, seats=["A-2-1"])) == (404, "unknown-allotment")
    assert (await move(inventory, None, None, seats=["A-2-1"])).status_code == 422
    assert (await move(inventory, "other", "other", seats=["A-2-1"])).status_code == 422
    assert (await move(inventory, "other", None)).status_code == 422
    await inventory.operate("POST", "/allotments/other/open")
    assert problem(await move(inventory, None, "other", seats=["A-3-1"])) == (409, "stock-conflict")
    assert await inventory.violations() == []


async def test_moves_while_fans_buy_sell_nothing_twice_and_to_nobody_without_the_code(inventory: Inventory) -> None:
    """Fans with and without the code take seats and tickets while they move back and forth."""
    await allot(inventory)
    answers: list[httpx.Response] = []

    async def buy_some(n: int) -> None:
        code = CODE if n % 2 else {}
        places = (
            {"seats": [f"A-{n % 3 + 1}-{n % 5 + 1}"]} if n % 4 < 2 else {"ga": [{"section_id": "GA1", "quantity": 2}]}
        )
        answers.append(await inventory.reserve(f"f{n}", **places, **code))

    async def move_some(n: int) -> None:
        ways = [("partner", None), (None, "partner")]
        source, target = ways[n % 2]
        answers.append(await move(inventory, source, target, ga=[{"section_id": "GA1", "quantity": 2}]))
        answers.append(await move(inventory, source, target, seats=["A-1-2", "A-2-2"][n % 2 :]))

    await asyncio.gather(*map(buy_some, range(40)), *map(move_some, range(12)))
    assert {answer.status_code for answer in answers} <= {200, 201, 409, 410, 503}
    assert await sql(inventory, "SELECT 1 FROM inventory.section WHERE seats_remaining < 0 OR capacity < 0") == []
    rows = await sql(
        inventory, "SELECT sum(capacity) FROM inventory.section WHERE section_id = 'GA1' OR section_id LIKE 'GA1~%'"
    )
    assert rows[0][0] == 20
    assert (await reconcile(inventory)).differences == 0
    assert await inventory.violations() == []


# -- files, limits -----------------------------------------------------------------------------------------------------


async def test_places_of_a_trait_are_counted_with_those_of_pools(inventory: Inventory) -> None:
    file = event_file()
    floor_with_trait = {**file["sections"][2], "traits": ["easy_access"]}
    await inventory.put({**file, "sections": [*file["sections"][:2], floor_with_trait]})
    await allot(inventory)
    await inventory.reserve(**floor(2, **CODE))
    counts = (await report(inventory, "GA1"))["traits"]["easy_access"]
    assert (counts["capacity"], counts["available"], counts["held"], counts["sold"]) == (20, 18, 2, 0)


async def test_an_event_file_with_stock_by_code_is_read_back_and_changes_nothing(inventory: Inventory) -> None:
    file = {**event_file(), "allotments": [{"allotment_id": "partner", "lanes": [4], **PARTNER}]}
    assert (await inventory.put(file)).json()["changed"] is True
    assert (await inventory.put(file)).json()["changed"] is False
    await inventory.reserve(seats=["A-1-1"], ga=[{"section_id": "GA1", "quantity": 2}], **CODE)
    read = (await inventory.operate("GET", "")).json()
    assert read["allotments"][0]["codes"] == ["Partner-24"]
    assert next(s for s in read["sections"] if s["section_id"] == "GA1")["capacity"] == 20
    again = {**file, "sections": read["sections"], "allotments": read["allotments"]}
    assert (await inventory.put(again)).json()["changed"] is False
    larger = {**file, "sections": [*file["sections"][:2], {**file["sections"][2], "capacity": 30}]}
    assert (await inventory.put(larger)).json()["changed"] is True
    assert await inventory.redis_counts("GA1") == (25, 0)
    assert await inventory.redis_counts("GA1~partner") == (3, 2)
    small = {**file, "sections": [*file["sections"][:2], {**file["sections"][2], "capacity": 4}]}
    refused = await inventory.put(small)
    assert (problem(refused), refused.json()["by_code"]) == ((409, "stock-conflict"), 5)
    without = {**event_file(), "sections": file["sections"][:2]}
    assert problem(await inventory.put(without)) == (409, "stock-conflict")
    resized = await inventory.operate("POST", "/sections/GA1/resize", capacity=25)
    assert resized.is_success
    assert (await report(inventory, "GA1"))["capacity"] == 25
    assert await inventory.violations() == []


async def test_a_buffer_is_sold_to_nobody(inventory: Inventory) -> None:
    assert problem(await allot(inventory, kind="buffer")) == (422, "invalid-request")
    assert (await allot(inventory, codes=[], lanes=[16])).status_code == 422
    assert (await allot(inventory, codes=["x" * 65])).status_code == 422
    assert (await allot(inventory, codes=[f"C{n}" for n in range(501)])).status_code == 422


async def test_guessing_codes_ends_with_a_refusal_and_the_right_code_is_not_tried_either(inventory: Inventory) -> None:
    await allot(inventory)
    seats: dict[str, Any] = {"seats": ["A-1-1"]}
    for n in range(AT_ONCE):
        assert problem(await inventory.reserve(**seats, code=f"guess {n}")) == (409, "reserved-seats")
    refused = await inventory.reserve(**seats, **CODE)
    assert problem(refused) == (429, "too-many-wrong-codes")
    assert int(refused.headers["retry-after"]) > 0
    assert (await inventory.reserve(**seats, code=f"guess {AT_ONCE - 1}")).status_code == 409, "no new guess"
    path = f"/events/{EVENT}/sections/A/seats"
    hidden = await inventory.fans.get(path, params={"code": "guess z"}, headers=bearer(make_pass("fan")))
    assert hidden.status_code == 429
    assert (await inventory.reserve("other", **seats, **CODE)).status_code == 201, "others are not limited"
    assert (await inventory.reserve(seats=["A-1-3"])).status_code == 201, "nor is a request without a code"


async def test_a_promo_code_that_opens_nothing_here_is_sent_as_often_as_a_page_likes(inventory: Inventory) -> None:
    await allot(inventory)
    for n in range(2 * AT_ONCE):
        answer = await inventory.reserve(f"fan{n % 2}", seats=[f"A-{n // 5 % 3 + 1}-{n % 5 + 1}"], code="SUMMER")
        assert answer.status_code in (201, 409)


async def test_too_many_seats_at_a_time_are_refused(inventory: Inventory, monkeypatch: pytest.MonkeyPatch) -> None:
    await allot(inventory)
    monkeypatch.setattr(blocking, "SEATS_MAX", 4)
    rows = [{"section_id": "A", "rows": [2, 3]}]
    assert problem(await move(inventory, None, "partner", rows=rows)) == (409, "stock-conflict")
