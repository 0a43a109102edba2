"""Blocks, resizes and allotments: in the database first, then in Redis, which stays open for sale. An allotment is
opened once, at its time or by an operator.
"""

import asyncio
import random
from datetime import UTC, datetime, timedelta
from typing import Any
from unittest.mock import AsyncMock

import pytest

from features.stock.inventory import blocking
from features.stock.inventory.allotments import open_due, open_one
from features.stock.inventory.oversell import use_buffer
from features.stock.rules import EventAllotments
from services.inventory.redis_keys import Keys
from services.inventory.redis_stock import push
from services.inventory.redis_stock.client import ended
from shared.concurrency.background import Quiet
from shared.runtime.clock import now_ms
from tests.inventory.actions import audit_log, block, buy, is_clean, pause_after, report, seat_marks, sell, sql
from tests.inventory.conftest import ADMIN_KEY, EVENT, Inventory, event_file
from tests.inventory.races.test_guards import remove_database_checks
from tests.support.running.suite import problem
from tests.support.wait import wait_until

FANS, HOLDS_PER_FAN, CHANGES = 8, 6, 25
BAND = {"allotment_id": "band", "name": "The band's guests", "kind": "house", "seats": ["A-1-1", "A-1-2"],
        "rows": [{"section_id": "B", "rows": [2, 2]}], "ga": [{"section_id": "GA1", "quantity": 5}]}  # fmt: skip


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
    monkeypatch.setattr(blocking, "SEATS_MAX", 9)
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
        monkeypatch.setattr(blocking, "push_stock", AsyncMock())
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


def random_change(dice: random.Random, n: int) -> tuple[str, str, dict[str, Any]]:
    """A random request of an operator; about half are refused."""
    row = dice.randint(1, 3)
    selection: dict[str, Any] = {
        "seats": [f"A-{row}-{dice.randint(1, 5)}"], "ga": [{"section_id": "GA1", "quantity": dice.randint(1, 4)}],
    }  # fmt: skip
    return dice.choice([
        ("POST", f"/seats/{dice.choice(['block', 'unblock'])}", selection),
        ("POST", f"/seats/{dice.choice(['block', 'unblock'])}", {"rows": [{"section_id": "B", "rows": [1, 1]}]}),
        ("POST", "/sections/GA1/resize", {"capacity": dice.randint(5, 40)}),
        ("PUT", f"/allotments/a{n}", {"name": "Some", "kind": "house", **selection}),
        ("POST", f"/allotments/a{dice.randint(0, n)}/open", {}),
    ])  # fmt: skip


@pytest.mark.parametrize(("seed", "flushed"), [(1, False), pytest.param(2, True, marks=pytest.mark.proof)])
@pytest.mark.usefixtures("loops")
async def test_the_invariants_hold_after_concurrent_sales_and_stock_changes(
    inventory: Inventory, seed: int, flushed: bool
) -> None:
    dice, epoch = random.Random(seed), inventory.state.catalogue.layout(EVENT).redis_epoch
    answers: list[int] = []

    async def fan(i: int) -> None:
        for n in range(HOLDS_PER_FAN):
            body: dict[str, Any] = {"seats": [f"A-{dice.randint(1, 3)}-{dice.randint(1, 5)}"]}
            body |= {"ga_section": "GA1", "ga_quantity": 1} if n % 2 else {}
            answer = await inventory.reserve(f"fan-{i}", **body)
            answers.append(answer.status_code)
            if answer.status_code != 201:
                continue
            reservation_id = answer.json()["reservation_id"]
            if dice.random() < 0.5:
                await inventory.fan_request("DELETE", reservation_id, f"fan-{i}")
            else:
                await buy(inventory, reservation_id, f"order-{i}-{n}")

    async def operator() -> None:
        for n in range(CHANGES):
            method, path, body = random_change(dice, n)
            answer = await inventory.operate(method, path, **body)
            assert answer.status_code in (200, 404, 409, 422), answer.text
            if flushed and n == CHANGES // 2:
                await inventory.state.redis_stock.redis.flushall()

    await asyncio.gather(*(fan(i) for i in range(FANS)), operator())
    assert set(answers) <= {201, 409, 429, 503}, "429 follows repeated releases"
    assert answers.count(201) > 3
    if not flushed:
        assert await inventory.violations() == [], "nothing is left to reconcile"
        assert inventory.state.catalogue.layout(EVENT).redis_epoch == epoch, "Redis was never rebuilt"
    await inventory.until_ready()
    await wait_until(lambda: is_clean(inventory))
    total = (await inventory.operate("GET", "/stock")).json()["total"]
    parts = ("available", "held", "sold", "blocked", "kept_aside")
    assert sum(total[name] for name in parts) == total["capacity"]
    assert (await inventory.put(event_file())).status_code in (200, 409)


def with_allotments(*allotments: dict[str, Any]) -> dict[str, Any]:
    return {**event_file(), "allotments": list(allotments)}


def in_a_minute() -> str:
    return (datetime.now(UTC) + timedelta(seconds=60)).isoformat()


async def test_an_event_file_allots_stock_and_opening_puts_it_on_sale(inventory: Inventory) -> None:
    epoch = inventory.state.catalogue.layout(EVENT).redis_epoch
    assert (await inventory.put(with_allotments(BAND))).json()["changed"] is True
    assert (await seat_marks(inventory), await seat_marks(inventory, "B")) == ("xx...|.....|.....", "....|xxxx")
    assert await inventory.redis_counts("GA1") == (15, 0)
    section = await report(inventory, "GA1")
    assert (section["kept_aside_by"], section["blocked"], section["available"]) == ({"band": 5}, 0, 15)
    assert (await inventory.put(with_allotments(BAND))).json()["changed"] is False
    assert await inventory.violations() == []

    opened = await inventory.operate("POST", "/allotments/band/open", reason="the band is ill")
    assert (opened.json()["changed"], opened.json()["seats"]) == (True, 6)
    assert (await inventory.operate("POST", "/allotments/band/open")).json()["changed"] is False
    assert (await seat_marks(inventory), await inventory.redis_counts("GA1")) == (".....|.....|.....", (20, 0))
    again = await inventory.put(with_allotments(BAND))
    assert again.json()["changed"] is False, "the event file does not close an open allotment"
    assert (await inventory.reserve(seats=["A-1-1", "B-2-1"], ga_section="GA1", ga_quantity=4)).status_code == 201
    assert await inventory.violations() == []
    assert inventory.state.catalogue.layout(EVENT).redis_epoch == epoch, "Redis was never rebuilt"


async def test_the_redis_stock_of_a_new_event_excludes_its_allotments(inventory: Inventory) -> None:
    assert (await inventory.put({**with_allotments(BAND), "event_id": "show-2"})).status_code == 200
    counts, names = Keys.of("show-2").counts, ("A:blocked", "B:blocked", "GA1:blocked", "GA1:available")

    async def rebuilt() -> bool:
        return bool(await inventory.state.redis_stock.redis.hmget(counts, *names) == [b"2", b"4", b"5", b"15"])

    await wait_until(rebuilt)


async def test_held_blocked_or_allotted_stock_cannot_be_allotted(inventory: Inventory) -> None:
    await inventory.reserve(seats=["A-1-1"])
    await block(inventory, "A-1-2")
    refused = await inventory.put(with_allotments(BAND))
    assert refused.json()["seats"] == {"held": ["A-1-1"], "blocked manually": ["A-1-2"]}
    other_seat = {**BAND, "seats": ["A-3-1"]}
    assert (await inventory.put(with_allotments(other_seat))).status_code == 200
    channel = {"name": "Radio", "kind": "channel", "seats": ["A-3-1"]}
    allotted_again = await inventory.operate("PUT", "/allotments/radio", **channel)
    unblocked = await block(inventory, "A-3-1", verb="unblock")
    assert allotted_again.json()["seats"] == unblocked.json()["seats"] == {"allotted to band": ["A-3-1"]}
    ga = await block(inventory, ga=1, verb="unblock")
    assert (ga.status_code, ga.json()["blocked"]) == (409, 0)
    small = event_file()
    small["sections"][2]["capacity"] = 4
    assert (await inventory.put(small)).json()["blocked"] == 5
    assert await inventory.violations() == []


async def test_an_allotment_can_change_until_it_is_opened(inventory: Inventory) -> None:
    await inventory.put(with_allotments(BAND))
    other = {**BAND, "seats": ["A-1-2", "A-1-3"], "rows": [], "ga": [{"section_id": "GA1", "quantity": 3}]}
    assert (await inventory.put(with_allotments(other))).json()["changed"] is True
    assert (await seat_marks(inventory), await seat_marks(inventory, "B")) == (".xx..|.....|.....", "....|....")
    assert await inventory.redis_counts("GA1") == (17, 0)
    without = await inventory.put(event_file())
    assert without.json()["changed"] is False, "an allotment that the file no longer names stays"
    await inventory.operate("POST", "/allotments/band/open")
    assert problem(await inventory.put(with_allotments(BAND))) == (409, "stock-conflict")
    assert (await inventory.put(with_allotments({**other, "name": "Guests"}))).json()["changed"] is True
    assert await inventory.redis_counts("GA1") == (20, 0), "a new name does not close it"
    assert problem(await inventory.operate("POST", "/allotments/none/open")) == (404, "unknown-allotment")
    assert await inventory.violations() == []


@pytest.mark.usefixtures("loops")
async def test_an_allotment_opens_at_its_time_by_the_clock_of_redis(inventory: Inventory) -> None:
    await inventory.put(with_allotments({**BAND, "opens_at": in_a_minute()}))
    await open_due(inventory.state)
    await open_one(
        inventory.state, EVENT, "band", now_ms()
    )  # called too early, as if its time had moved after it was read
    assert await inventory.redis_counts("GA1") == (15, 0), "not yet"
    inventory.travel(61_000)

    async def opened() -> bool:
        return await inventory.redis_counts("GA1") == (20, 0) and await seat_marks(inventory) == ".....|.....|....."

    await wait_until(opened)
    newest = (await audit_log(inventory))[0]
    assert (newest["actor"], newest["action"]) == ("system", "open")
    assert newest["after"]["opened"] == {"A": 2, "B": 4, "GA1": 5}
    assert await inventory.violations() == []


async def test_concurrent_openers_open_an_allotment_once(inventory: Inventory) -> None:
    """Four processes and an operator do. The guard is a compare-and-set: without it they open it repeatedly."""
    state = inventory.state
    await inventory.put(with_allotments({**BAND, "opens_at": in_a_minute()}))
    await block(inventory, ga=10)
    inventory.travel(61_000)
    by_operator = inventory.operate("POST", "/allotments/band/open")
    await asyncio.gather(by_operator, *(open_due(state) for _ in range(4)))
    assert [entry["action"] for entry in await audit_log(inventory)].count("open") == 1
    assert await inventory.redis_counts("GA1") == (10, 0)
    assert await inventory.violations() == []


async def test_opening_an_allotment_during_concurrent_requests_oversells_nothing(inventory: Inventory) -> None:
    whole_stock = {**BAND, "rows": [{"section_id": "A", "rows": [1, 3]}], "seats": [],
                  "ga": [{"section_id": "GA1", "quantity": 20}]}  # fmt: skip
    await inventory.put(with_allotments(whole_stock))
    answers: list[int] = []
    opened = asyncio.Event()

    async def fan(i: int) -> None:
        is_last = False
        while not is_last:
            is_last = opened.is_set()
            selection: dict[str, Any] = {"seats": [f"A-{i % 3 + 1}-{i % 5 + 1}"], "ga_section": "GA1", "ga_quantity": 2}
            answer = await inventory.reserve(f"fan-{i}", **selection)
            answers.append(answer.status_code)
            if answer.status_code == 201:
                return

    async def operator() -> None:
        await wait_until(lambda: len(answers) > 20)
        assert (await inventory.operate("POST", "/allotments/band/open")).is_success
        opened.set()

    await asyncio.gather(*(fan(i) for i in range(20)), operator())
    assert set(answers) == {201, 409}
    assert answers.count(201) == 10
    assert await inventory.redis_counts("GA1") == (0, 20)
    assert await inventory.violations() == []


async def test_a_buffer_covers_oversold_tickets(inventory: Inventory) -> None:
    """In the transaction of the caller; only allotments of the kind buffer are used, and nothing goes on sale."""
    state = inventory.state
    await inventory.put(with_allotments(
        {**BAND, "allotment_id": "spare-1", "kind": "buffer", "rows": [], "ga": [{"section_id": "GA1", "quantity": 2}]},
        {"allotment_id": "spare-2", "name": "More", "kind": "buffer", "ga": [{"section_id": "GA1", "quantity": 4}]},
        {"allotment_id": "band", "name": "Band", "kind": "house", "ga": [{"section_id": "GA1", "quantity": 4}]},
    ))  # fmt: skip
    async with state.db.begin() as connection:
        assert await use_buffer(connection, EVENT, "A", 5) == 0, "only GA tickets are taken automatically"
        assert await use_buffer(connection, EVENT, "GA1", 3) == 3
    section = await report(inventory, "GA1")
    assert (section["kept_aside_by"], section["available"]) == ({"band": 4, "spare-2": 3}, 10)
    newest = (await audit_log(inventory))[0]
    assert (newest["action"], newest["after"]["taken"]) == ("use buffer", {"spare-1": 2, "spare-2": 1})
    async with state.db.begin() as connection:
        assert await use_buffer(connection, EVENT, "GA1", 9) == 3, "no more than the buffer has"
    assert (await inventory.operate("POST", "/allotments/spare-2/open")).json()["changed"] is True
    assert (await report(inventory, "GA1"))["available"] == 10, "the buffer had nothing left"


async def test_concurrent_opening_and_use_of_a_buffer_count_each_ticket_once(inventory: Inventory) -> None:
    state = inventory.state
    spare = {"allotment_id": "spare", "name": "Spare", "kind": "buffer", "ga": [{"section_id": "GA1", "quantity": 4}]}
    await inventory.put(with_allotments(spare))
    async with state.db.begin() as connection:
        assert await use_buffer(connection, EVENT, "GA1", 3) == 3
        opening = asyncio.create_task(inventory.operate("POST", "/allotments/spare/open"))

        async def waits() -> bool:
            return bool(await sql(inventory, "SELECT 1 FROM pg_locks WHERE NOT granted"))

        await wait_until(waits)
    assert (await opening).is_success
    section = await report(inventory, "GA1")
    assert (section["available"], section["kept_aside"], section["blocked"]) == (17, 0, 0)


async def test_the_opener_is_quiet_until_the_next_opening(inventory: Inventory, woken: list[str]) -> None:
    assert await open_due(inventory.state) == Quiet()
    await inventory.put(with_allotments({**BAND, "opens_at": in_a_minute()}))
    assert "inventory" in woken, "it may be due soon"
    assert await open_due(inventory.state) == Quiet()
    inventory.travel(55_000)
    assert 0 < (await open_due(inventory.state)).for_s <= 5


@pytest.mark.parametrize(
    ("opens_in_h", "ends_in_h", "found"),
    [
        (None, 4, []), (1, 4, []), (5, 4, ["opens after the sale has ended"]),
        (5, None, ["opens after the show has begun"]), (-1, 4, ["was to open at 2026-06-01 11:00"]),
    ],
)  # fmt: skip
def test_an_allotment_that_opens_too_late_is_found(
    opens_in_h: int | None, ends_in_h: int | None, found: list[str]
) -> None:
    now = datetime(2026, 6, 1, 12, tzinfo=UTC)
    opens_at, ends_at = (None if h is None else now + timedelta(hours=h) for h in (opens_in_h, ends_in_h))
    part = EventAllotments.model_validate({"allotments": [{**BAND, "opens_at": opens_at}]})
    checks = part.findings(sale_ends_at=ends_at, starts_at=now + timedelta(hours=5), now=now)
    assert [check.found for check in checks] == found
