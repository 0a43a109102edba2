"""Blocking, unblocking and resizing by an operator: in the database first, then in Redis, which stays open for sale."""

import asyncio
from typing import Any
from unittest.mock import AsyncMock

import pytest
from sqlalchemy import text

from services.inventory.redis_keys import EPOCH, Keys
from services.inventory.redis_stock import push
from services.inventory.stock import blocking, change
from shared.redis.scripts import Script
from tests.inventory.conftest import EVENT, Inventory, event_file
from tests.inventory.races.test_guards import remove_database_checks
from tests.inventory.stock.reports import audit_log, report, seat_marks
from tests.support.wait import wait_until

KEYS = Keys.of(EVENT)


async def test_blocked_seats_are_not_for_sale_until_unblocked(inventory: Inventory) -> None:
    selection = {"seats": ["A-1-2"], "rows": [{"section_id": "A", "rows": [3, 3]}]}
    answer = await inventory.operate("POST", "/seats/block", reason="camera", **selection)
    assert (answer.status_code, answer.json()["changed"], answer.json()["seats"]) == (200, True, 6)
    assert await seat_marks(inventory) == ".x...|.....|xxxxx"
    refused = await inventory.reserve(seats=["A-3-1"])
    assert refused.json()["type"] == "/problems/seats-taken"
    section = await report(inventory, "A")
    assert (section["available"], section["blocked"], section["kept_aside"]) == (9, 6, 0)
    assert await inventory.violations() == []
    assert (await inventory.operate("POST", "/seats/block", **selection)).json()["changed"] is False, (
        "a repeat changes nothing"
    )
    assert (await inventory.operate("POST", "/seats/unblock", **selection)).json()["seats"] == 6
    assert await seat_marks(inventory) == ".....|.....|....."
    assert (await inventory.reserve(seats=["A-3-1"])).status_code == 201
    assert await inventory.violations() == []


async def test_blocking_held_or_sold_seats_is_refused_and_names_them(inventory: Inventory) -> None:
    await inventory.reserve("one", seats=["A-1-1"])
    bought = await inventory.hold("two", seats=["A-1-2"])
    await inventory.step("begin-payment", bought, "order-1")
    await inventory.step("confirm", bought, "order-1")
    for verb in ("block", "unblock"):
        answer = await inventory.operate("POST", f"/seats/{verb}", rows=[{"section_id": "A", "rows": [1, 2]}])
        assert (answer.status_code, answer.json()["type"]) == (409, "/problems/stock-conflict")
        assert answer.json()["seats"] == {"held": ["A-1-1"], "sold": ["A-1-2"]}
    assert (await report(inventory, "A"))["blocked"] == 0
    assert await inventory.violations() == []


async def test_ga_tickets_are_blocked_by_quantity(inventory: Inventory) -> None:
    await inventory.reserve(ga_section="GA1", ga_quantity=6)
    assert (await inventory.operate("POST", "/seats/block", ga=[{"section_id": "GA1", "quantity": 14}])).is_success
    assert await inventory.redis_counts("GA1") == (0, 6)
    assert (await inventory.reserve("late", ga_section="GA1", ga_quantity=1)).json()["type"] == "/problems/sold-out"
    more = await inventory.operate("POST", "/seats/block", ga=[{"section_id": "GA1", "quantity": 1}])
    assert (more.status_code, more.json()["available"]) == (409, 0)
    over = await inventory.operate("POST", "/seats/unblock", ga=[{"section_id": "GA1", "quantity": 15}])
    assert (over.status_code, over.json()["blocked"]) == (409, 14)
    assert (await inventory.operate("POST", "/seats/unblock", ga=[{"section_id": "GA1", "quantity": 4}])).is_success
    assert await inventory.redis_counts("GA1") == (4, 6)
    assert await inventory.violations() == []


async def test_an_invalid_block_request_is_refused_and_changes_nothing(inventory: Inventory) -> None:
    for body, slug in (
        ({"seats": ["A-1-1", "A-9-1"]}, "unknown-seat"),
        ({"rows": [{"section_id": "A", "rows": [3, 4]}]}, "unknown-seat"),
        ({"ga": [{"section_id": "A", "quantity": 1}]}, "unknown-section"),
        ({"seats": ["Z-1-1"]}, "unknown-section"),
        ({}, "invalid-request"),
        ({"seats": ["A-1-1"], "ga": [{"section_id": "GA1", "quantity": 21}]}, "stock-conflict"),
    ):
        answer = await inventory.operate("POST", "/seats/block", **body)
        assert answer.json()["type"] == f"/problems/{slug}", body
    assert await inventory.redis_counts("A") == (15, 0)
    assert (await audit_log(inventory))[0]["action"] == "apply"


async def test_a_stock_change_has_a_size_limit(inventory: Inventory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(change, "SEATS_MAX", 9)
    refused = await inventory.operate("POST", "/seats/block", rows=[{"section_id": "A", "rows": [1, 2]}])
    assert refused.json()["type"] == "/problems/stock-conflict"
    too_many = [f"A-1-{n}" for n in range(1, 5001)] + ["A-1-1"]
    assert (await inventory.operate("POST", "/seats/block", seats=too_many)).status_code == 422
    assert await inventory.redis_counts("A") == (15, 0)


async def reserve_while_blocking(inventory: Inventory, fans: int = 25) -> list[int]:
    """Fans request the first row and GA tickets while an operator blocks both; returns the statuses of the answers."""

    async def fan(i: int) -> int:
        selection: dict[str, Any] = {"seats": [f"A-1-{i % 5 + 1}"], "ga_section": "GA1", "ga_quantity": 1}
        return (await inventory.reserve(f"fan-{i}", **selection)).status_code

    async def operator() -> None:
        for n in range(1, 6):
            await inventory.operate("POST", "/seats/block", seats=[f"A-1-{n}"])
            await inventory.operate("POST", "/seats/block", ga=[{"section_id": "GA1", "quantity": 4}])

    answers, _ = await asyncio.gather(asyncio.gather(*(fan(i) for i in range(fans))), operator())
    assert set(answers) <= {201, 409}
    return answers


async def held_though_blocked(inventory: Inventory) -> int:
    """The number of seats of live reservations whose rows have another owner or status."""
    query = text(
        "SELECT count(*) FROM inventory.reservation_seat x "
        "JOIN inventory.reservation r USING (event_id, reservation_id) "
        "JOIN inventory.seat s USING (event_id, section_id, position) "
        "WHERE r.status = 'pending_payment' AND s.reservation_id IS DISTINCT FROM x.reservation_id"
    )
    async with inventory.state.db.connect() as connection:
        return int(await connection.scalar(query) or 0)


async def test_redis_and_database_agree_after_blocking_during_concurrent_requests(inventory: Inventory) -> None:
    epoch = inventory.state.catalogue.layout(EVENT).redis_epoch
    answers = await reserve_while_blocking(inventory)
    assert await held_though_blocked(inventory) == 0
    assert answers.count(201) == (await report(inventory, "A"))["held"]
    assert await inventory.violations() == []
    assert inventory.state.catalogue.layout(EVENT).redis_epoch == epoch, "Redis was never rebuilt"


def skip_block_in_redis(inventory: Inventory) -> None:
    """Redis ignores every block."""
    scripts, check = inventory.state.redis_stock.scripts, "if not is_ready"
    assert check in scripts["block"].source
    scripts["block"] = Script("block without effect", scripts["block"].source.replace(check, "if is_ready"))


async def hold_blocked_stock(inventory: Inventory) -> int:
    """The number of holds on stock that was blocked before the requests."""
    blocked = {"rows": [{"section_id": "A", "rows": [1, 1]}], "ga": [{"section_id": "GA1", "quantity": 20}]}
    assert (await inventory.operate("POST", "/seats/block", **blocked)).is_success
    seats = [inventory.reserve(f"s{i}", seats=[f"A-1-{i % 5 + 1}"]) for i in range(15)]
    ga = [inventory.reserve(f"f{i}", ga_section="GA1", ga_quantity=1) for i in range(15)]
    answers = [answer.status_code for answer in await asyncio.gather(*seats, *ga)]
    assert set(answers) <= {201, 409}
    return answers.count(201)


async def test_the_database_alone_refuses_blocked_stock(inventory: Inventory) -> None:
    skip_block_in_redis(inventory)
    assert await hold_blocked_stock(inventory) == 0
    assert await seat_marks(inventory) == "xxxxx|.....|.....", "the refusals corrected Redis"


@pytest.mark.own_database
async def test_redis_alone_refuses_blocked_stock(inventory: Inventory, monkeypatch: pytest.MonkeyPatch) -> None:
    await remove_database_checks(inventory, monkeypatch)
    assert await hold_blocked_stock(inventory) == 0
    assert await inventory.violations() == []


@pytest.mark.own_database
async def test_without_both_guards_blocked_stock_is_sold_and_breaks_the_invariants(
    inventory: Inventory, monkeypatch: pytest.MonkeyPatch
) -> None:
    skip_block_in_redis(inventory)
    await remove_database_checks(inventory, monkeypatch)
    assert await hold_blocked_stock(inventory) == 20
    assert await inventory.violations() != []


async def test_without_the_compare_and_set_a_block_takes_a_held_seat(
    inventory: Inventory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Proof that the guard is needed: the block overwrites a held seat."""
    for name, check in (("LOCK_SEATS", "s.status, s"), ("BLOCK_SEATS", "s.status = CASE")):
        source = getattr(blocking, name).text
        assert check in source
        source = source.replace("s.status, s", "'available' AS status, s")
        source = source.replace("AND s.status = CASE", "AND 'x' <> CASE")
        source = source.replace("SET status =", "SET reservation_id = NULL, status =")
        monkeypatch.setattr(blocking, name, text(source))
    await inventory.reserve(seats=["A-1-1"])
    assert (await inventory.operate("POST", "/seats/block", seats=["A-1-1"])).is_success
    assert await held_though_blocked(inventory) == 1
    assert await inventory.violations() != []


@pytest.mark.parametrize("flushed", [False, True])
async def test_updates_of_redis_out_of_order_end_in_the_right_state(
    inventory: Inventory, monkeypatch: pytest.MonkeyPatch, flushed: bool
) -> None:
    """Redis refuses an update that is older than its version; then the database is read again."""
    read, waiting, proceed = push._read, asyncio.Event(), asyncio.Event()

    async def slow_read(*args: Any) -> Any:
        stock = await read(*args)
        if not waiting.is_set():
            waiting.set()
            await proceed.wait()
        return stock

    monkeypatch.setattr(push, "_read", slow_read)
    slow = asyncio.create_task(inventory.operate("POST", "/seats/block", seats=["A-1-1", "A-1-3"]))
    await waiting.wait()
    await inventory.operate("POST", "/seats/unblock", seats=["A-1-1"])
    if flushed:
        await inventory.state.redis_stock.redis.flushall()
        await inventory.until_ready()
    proceed.set()
    await slow
    assert await seat_marks(inventory) == "..x..|.....|....."
    assert (await inventory.reserve(seats=["A-1-1"])).status_code == 201
    assert await inventory.violations() == []


async def test_a_refused_hold_before_redis_applies_a_block_is_not_counted_twice(
    inventory: Inventory, monkeypatch: pytest.MonkeyPatch
) -> None:
    apply, waiting, proceed = push._apply, asyncio.Event(), asyncio.Event()

    async def slow_apply(*args: Any) -> str:
        waiting.set()
        await proceed.wait()
        return await apply(*args)

    monkeypatch.setattr(push, "_apply", slow_apply)
    slow = asyncio.create_task(inventory.operate("POST", "/seats/block", ga=[{"section_id": "GA1", "quantity": 16}]))
    await waiting.wait()
    refused = await inventory.reserve(ga_section="GA1", ga_quantity=6)
    assert (refused.status_code, refused.json()["available"]) == (409, {"GA1": 4})
    proceed.set()
    await slow
    assert await inventory.redis_counts("GA1") == (4, 0)
    assert await inventory.violations() == []


async def test_published_availability_is_never_negative(inventory: Inventory) -> None:
    """A block and holds that the database will refuse can bring the counter below zero for a moment."""
    await inventory.state.redis_stock.redis.hset(KEYS.counts, "GA1:available", "-4")
    frame = await inventory.state.availability.frame(inventory.state.catalogue.layout(EVENT))
    assert next(section.available for section in frame.sections if section.section_id == "GA1") == 0


async def test_a_rebuild_restores_blocked_and_allotted_stock(inventory: Inventory) -> None:
    await inventory.operate("POST", "/seats/block", seats=["A-1-1"], ga=[{"section_id": "GA1", "quantity": 3}])
    allotment = {"name": "Band", "kind": "house", "seats": ["B-1-1"], "ga": [{"section_id": "GA1", "quantity": 5}]}
    assert (await inventory.operate("PUT", "/allotments/band", **allotment)).is_success
    counts = await inventory.state.redis_stock.redis.hgetall(KEYS.counts)
    counts[EPOCH] = str(int(counts[EPOCH]) + 1).encode()
    await inventory.state.redis_stock.redis.flushall()
    await inventory.until_ready()
    assert await inventory.state.redis_stock.redis.hgetall(KEYS.counts) == counts
    assert (await seat_marks(inventory), await seat_marks(inventory, "B")) == ("x....|.....|.....", "x...|....")
    assert await inventory.redis_counts("GA1") == (12, 0)
    assert await inventory.violations() == []


async def test_reconciliation_applies_a_block_that_redis_missed(inventory: Inventory) -> None:
    reconciler, layout, at_s = inventory.state.reconciler, inventory.state.catalogue.layout(EVENT), 1_000.0
    reconciler._clock = lambda: at_s
    await inventory.operate("POST", "/seats/block", seats=["A-1-1"], ga=[{"section_id": "GA1", "quantity": 3}])
    redis = inventory.state.redis_stock.redis
    await redis.setrange(KEYS.map + "A", 0, ".")
    await redis.hset(KEYS.counts, mapping={"A:available": 15, "A:blocked": 0, "GA1:available": 20, "GA1:blocked": 0})
    await reconciler.reconcile(layout)
    at_s += 6
    assert (await reconciler.reconcile(layout)).corrected >= 3
    assert (await seat_marks(inventory), await inventory.redis_counts("GA1")) == ("x....|.....|.....", (17, 0))
    assert await inventory.violations() == []


async def test_a_ga_section_is_resized_during_a_sale_but_never_below_its_used_capacity(inventory: Inventory) -> None:
    await inventory.operate("POST", "/seats/block", ga=[{"section_id": "GA1", "quantity": 2}])
    epoch = inventory.state.catalogue.layout(EVENT).redis_epoch

    async def fan(i: int) -> int:
        return (await inventory.reserve(f"fan-{i}", ga_section="GA1", ga_quantity=1)).status_code

    async def operator() -> list[int]:
        sizes = (40, 4, 30, 3, 25)
        return [(await inventory.operate("POST", "/sections/GA1/resize", capacity=n)).status_code for n in sizes]

    answers, sizes = await asyncio.gather(asyncio.gather(*(fan(i) for i in range(35))), operator())
    assert set(answers) == {201, 409}
    assert (sizes[0], sizes[4]) == (200, 200)
    section = await report(inventory, "GA1")
    assert (section["capacity"], section["held"], section["blocked"]) == (25, answers.count(201), 2)
    assert await inventory.redis_counts("GA1") == (25 - 2 - answers.count(201), answers.count(201))
    refused = await inventory.operate("POST", "/sections/GA1/resize", capacity=answers.count(201) + 1)
    assert (refused.status_code, refused.json()["capacity_min"]) == (409, answers.count(201) + 2)
    assert await inventory.violations() == []
    assert inventory.state.catalogue.layout(EVENT).redis_epoch == epoch, "Redis was never rebuilt"
    assert (await inventory.operate("POST", "/sections/A/resize", capacity=9)).json()["type"].endswith("section")


async def test_an_event_file_resizes_a_ga_section_without_closing_the_redis_stock(inventory: Inventory) -> None:
    epoch = inventory.state.catalogue.layout(EVENT).redis_epoch
    file = event_file()
    file["sections"][2]["capacity"] = 30
    assert (await inventory.put(file)).json()["changed"] is True
    assert await inventory.redis_counts("GA1") == (30, 0)
    assert inventory.state.catalogue.layout(EVENT).redis_epoch == epoch
    assert await inventory.violations() == []


async def test_an_event_file_changes_rows_but_cannot_remove_held_seats(inventory: Inventory) -> None:
    await inventory.reserve(seats=["A-2-2", "B-1-1"])
    file = event_file()
    file["sections"][0]["rows"] = 1
    answer = await inventory.put(file)
    assert (answer.status_code, answer.json()["seats"]) == (409, {"held": ["A-2-2"]})
    del file["sections"][1]
    file["sections"][0]["rows"] = 2
    assert (await inventory.put(file)).json()["seats"] == {"held": ["B-1-1"]}
    file = event_file()
    file["sections"][0]["rows"], file["sections"][1]["rows"] = 2, 3
    assert (await inventory.put(file)).json()["changed"] is True
    await inventory.until_ready()
    assert (await inventory.redis_counts("A"), await inventory.redis_counts("B")) == ((9, 1), (11, 1))
    file["currency"] = "USD"
    assert (await inventory.put(file)).json()["type"] == "/problems/stock-conflict"
    assert await inventory.violations() == []


async def test_every_stock_change_is_logged_with_actor_action_and_reason(inventory: Inventory) -> None:
    version = (await inventory.operate("GET", "/stock")).json()["version"]
    await inventory.operate("POST", "/seats/block", seats=["A-1-1"], reason="camera", version=version)
    outdated = await inventory.operate("POST", "/seats/block", seats=["A-1-2"], version=version)
    assert (outdated.status_code, outdated.json()["type"]) == (412, "/problems/version-mismatch")
    await inventory.operate("POST", "/sections/GA1/resize", capacity=25, reason="fire marshal")
    resized, blocked, applied = await audit_log(inventory)
    assert (blocked["actor"], blocked["action"], blocked["reason"]) == ("tester", "block", "camera")
    assert blocked["after"]["seats"] == ["A-1-1"]
    assert blocked["before"]["sections"]["A"] == {"capacity": 15, "seats_remaining": 15, "blocked": 0}
    assert blocked["after"]["sections"]["A"] == {"capacity": 15, "seats_remaining": 14, "blocked": 1}
    assert (resized["reason"], resized["after"]["sections"]["GA1"]["capacity"]) == ("fire marshal", 25)
    assert (applied["action"], resized["version"]) == ("apply", version + 2)


async def test_a_late_release_in_redis_does_not_free_a_blocked_seat(
    inventory: Inventory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The database released and blocked the seat before Redis applied the release."""
    reservation_id = await inventory.hold(seats=["A-1-1"])
    with monkeypatch.context() as lossy:
        lossy.setattr(inventory.state.redis_stock, "release", AsyncMock())
        assert (await inventory.fan_request("DELETE", reservation_id)).status_code == 204
    assert (await inventory.operate("POST", "/seats/block", seats=["A-1-1"])).is_success
    await inventory.state.redis_stock.release(EVENT, [reservation_id])

    async def still_blocked() -> bool:
        return await seat_marks(inventory) == "x....|.....|....."

    await wait_until(still_blocked)
    assert await inventory.violations() == []


async def test_the_last_page_of_changes_has_no_next_link(inventory: Inventory) -> None:
    for seat in ("A-1-1", "A-1-2", "A-1-3"):
        await inventory.operate("POST", "/seats/block", seats=[seat], reason="kept")
    first = (await inventory.operate("GET", "/changes?page_size=2")).json()
    before = first["changes"][-1]["id"]
    assert (len(first["changes"]), first["next"]) == (
        2, f"/admin/inventory/events/{EVENT}/changes?before={before}&page_size=2"
    )  # fmt: skip
    last = (await inventory.operate("GET", f"/changes?before={before}&page_size=2")).json()
    assert (len(last["changes"]), last["next"]) == (2, None), "one event file and three blocks"
