"""Blocking, unblocking and resizing by an operator: in the database first, then in Redis, which stays open for sale."""

import asyncio
from unittest.mock import AsyncMock

import pytest

from services.inventory.redis_keys import Keys
from services.inventory.redis_stock import push
from services.inventory.redis_stock.client import ended
from services.inventory.stock import editor
from services.inventory.store import change
from tests.inventory.actions import pause_after, sell
from tests.inventory.conftest import ADMIN_KEY, EVENT, Inventory, event_file
from tests.inventory.races.test_guards import remove_database_checks
from tests.inventory.stock.reports import audit_log, block, report, seat_marks
from tests.support.running.suite import problem

KEYS = Keys.of(EVENT)


async def test_blocked_seats_are_not_for_sale_until_unblocked(inventory: Inventory) -> None:
    rows = [{"section_id": "A", "rows": [3, 3]}]
    answer = (await block(inventory, "A-1-2", rows=rows)).json()
    assert (answer["changed"], answer["seats"]) == (True, 6)
    assert await seat_marks(inventory) == ".x...|.....|xxxxx"
    assert problem(await inventory.reserve(seats=["A-3-1"])) == (409, "seats-taken")
    section = await report(inventory, "A")
    assert (section["available"], section["blocked"], section["kept_aside"]) == (9, 6, 0)
    assert await inventory.violations() == []
    assert (await block(inventory, "A-1-2", rows=rows)).json()["changed"] is False, "a repeat changes nothing"
    assert (await block(inventory, "A-1-2", rows=rows, verb="unblock")).json()["seats"] == 6
    assert await seat_marks(inventory) == ".....|.....|....."
    assert (await inventory.reserve(seats=["A-3-1"])).status_code == 201
    assert await inventory.violations() == []


async def test_blocking_held_or_sold_seats_is_refused_and_names_them(inventory: Inventory) -> None:
    await inventory.reserve("one", seats=["A-1-1"])
    await sell(inventory, "two", seats=["A-1-2"])
    for verb in ("block", "unblock"):
        answer = await block(inventory, verb=verb, rows=[{"section_id": "A", "rows": [1, 2]}])
        assert problem(answer) == (409, "stock-conflict")
        assert answer.json()["seats"] == {"held": ["A-1-1"], "sold": ["A-1-2"]}
    assert (await report(inventory, "A"))["blocked"] == 0
    assert await inventory.violations() == []


async def test_ga_tickets_are_blocked_by_quantity(inventory: Inventory) -> None:
    await inventory.reserve(ga_section="GA1", ga_quantity=6)
    assert (await block(inventory, ga=14)).is_success
    assert await inventory.redis_counts("GA1") == (0, 6)
    assert problem(await inventory.reserve("late", ga_section="GA1", ga_quantity=1)) == (409, "sold-out")
    more = await block(inventory, ga=1)
    assert (more.status_code, more.json()["available"]) == (409, 0)
    over = await block(inventory, ga=15, verb="unblock")
    assert (over.status_code, over.json()["blocked"]) == (409, 14)
    assert (await block(inventory, ga=4, verb="unblock")).is_success
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
    assert problem(await block(inventory, rows=[{"section_id": "A", "rows": [1, 2]}])) == (409, "stock-conflict")
    too_many = [f"A-1-{n}" for n in range(1, 5001)] + ["A-1-1"]
    assert (await block(inventory, *too_many)).status_code == 422
    assert await inventory.redis_counts("A") == (15, 0)


async def hold_blocked_stock(inventory: Inventory) -> int:
    """The number of holds on stock that was blocked before the requests."""
    assert (await block(inventory, ga=20, rows=[{"section_id": "A", "rows": [1, 1]}])).is_success
    seats = [inventory.reserve(f"s{i}", seats=[f"A-1-{i % 5 + 1}"]) for i in range(15)]
    ga = [inventory.reserve(f"f{i}", ga_section="GA1", ga_quantity=1) for i in range(15)]
    answers = [answer.status_code for answer in await asyncio.gather(*seats, *ga)]
    assert set(answers) <= {201, 409, 410}, "granted, denied, or written too late"
    return answers.count(201)


@pytest.mark.usefixtures("own_database")
@pytest.mark.parametrize(("in_redis", "in_database"), [(True, False), (False, True), (False, False)])
async def test_either_guard_alone_refuses_blocked_stock(
    inventory: Inventory, monkeypatch: pytest.MonkeyPatch, in_redis: bool, in_database: bool
) -> None:
    if not in_redis:  # every block is ignored
        monkeypatch.setattr(editor, "push_stock", AsyncMock())
    if not in_database:
        await remove_database_checks(inventory, monkeypatch)
    if not in_redis and not in_database:
        assert await hold_blocked_stock(inventory) == 20
        assert await inventory.violations() != []
        return
    assert await hold_blocked_stock(inventory) == 0
    assert await seat_marks(inventory) == "xxxxx|.....|.....", "the refusals of the database corrected Redis"
    assert not in_redis or await inventory.violations() == []


@pytest.mark.parametrize("flushed", [False, True])
@pytest.mark.usefixtures("loops")
async def test_updates_of_redis_out_of_order_end_in_the_right_state(
    inventory: Inventory, monkeypatch: pytest.MonkeyPatch, flushed: bool
) -> None:
    """Redis refuses an update that is older than its version; then the database is read again."""
    waiting, proceed = pause_after(monkeypatch, push, "_read")
    slow = asyncio.create_task(block(inventory, "A-1-1", "A-1-3"))
    await waiting.wait()
    await block(inventory, "A-1-1", verb="unblock")
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
    waiting, proceed = pause_after(monkeypatch, push, "_read")
    slow = asyncio.create_task(block(inventory, ga=16))
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


async def test_a_ga_section_is_resized_during_a_sale_but_never_below_its_used_capacity(inventory: Inventory) -> None:
    await block(inventory, ga=2)
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
    assert problem(await inventory.operate("POST", "/sections/A/resize", capacity=9)) == (404, "unknown-section")
    file = event_file()
    file["sections"][2]["capacity"] = 50
    assert (await inventory.put(file)).json()["changed"] is True
    assert await inventory.redis_counts("GA1") == (50 - 2 - answers.count(201), answers.count(201))
    assert inventory.state.catalogue.layout(EVENT).redis_epoch == epoch, "Redis was never rebuilt"


async def test_an_event_file_changes_rows_and_adds_sections_but_cannot_remove_held_stock(inventory: Inventory) -> None:
    await inventory.reserve(seats=["A-2-2", "B-1-1"], ga_section="GA1", ga_quantity=3)
    in_a, in_b, no_seats = {"held": ["A-2-2"]}, {"held": ["B-1-1"]}, None
    for n, fields, seats in (
        (0, {"rows": 1}, in_a), (0, {"seats_per_row": 4}, in_a), (2, {"capacity": 2}, no_seats), (1, None, in_b)
    ):  # fmt: skip
        file = event_file()
        file["sections"][n : n + 1] = [{**file["sections"][n], **fields}] if fields else []
        answer = await inventory.put(file)
        assert (problem(answer), answer.json().get("seats")) == ((409, "stock-conflict"), seats), fields
    file = event_file()
    file["sections"][0]["rows"], file["sections"][1]["rows"] = 2, 3
    file["sections"].append({**file["sections"][0], "section_id": "C"})
    assert (await inventory.put(file)).json()["changed"] is True
    await inventory.until_ready()
    assert [await inventory.redis_counts(section) for section in "ABC"] == [(9, 1), (11, 1), (10, 0)]
    assert (await inventory.reserve("other", seats=["C-1-1", "B-3-4"])).status_code == 201
    file["currency"] = "USD"
    assert problem(await inventory.put(file)) == (409, "stock-conflict")
    assert await inventory.violations() == []


async def test_every_stock_change_is_logged_with_actor_action_and_reason(inventory: Inventory) -> None:
    version = (await inventory.operate("GET", "/stock")).json()["version"]
    await block(inventory, "A-1-1", reason="camera", version=version)
    assert problem(await block(inventory, "A-1-2", version=version)) == (412, "version-mismatch")
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
        lossy.setattr(inventory.state.redis_stock, "follow", AsyncMock())
        assert (await inventory.fan_request("DELETE", reservation_id)).status_code == 204
    assert (await block(inventory, "A-1-1")).is_success
    await inventory.state.redis_stock.follow(EVENT, [ended(reservation_id, 2)])
    assert await seat_marks(inventory) == "x....|.....|....."
    assert await inventory.violations() == []


async def test_the_last_page_of_changes_has_no_next_link(inventory: Inventory) -> None:
    for seat in ("A-1-1", "A-1-2", "A-1-3"):
        await block(inventory, seat, reason="kept")
    first = (await inventory.operate("GET", "/changes?page_size=2")).json()
    before = first["changes"][-1]["id"]
    assert len(first["changes"]) == 2
    assert first["next"] == f"/admin/inventory/events/{EVENT}/changes?before={before}&page_size=2"
    last = (await inventory.operate("GET", f"/changes?before={before}&page_size=2")).json()
    assert (len(last["changes"]), last["next"]) == (2, None), "one event file and three blocks"


async def test_the_report_of_an_unknown_event_is_not_found(inventory: Inventory) -> None:
    unknown = await inventory.fans.get("/admin/inventory/events/none/stock", headers=ADMIN_KEY)
    assert problem(unknown) == (404, "unknown-event")
