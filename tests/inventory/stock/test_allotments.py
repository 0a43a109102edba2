"""Allotments: stock blocked for a purpose until a time or until an operator opens it, then put on sale once."""

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from services.inventory.reconcile.oversell import use_buffer
from services.inventory.redis_keys import Keys
from services.inventory.stock.allotments import AllotmentOpener
from shared.concurrency.background import Quiet
from shared.runtime.clock import now_ms
from tests.inventory.actions import sql
from tests.inventory.conftest import EVENT, Inventory, event_file
from tests.inventory.stock.reports import audit_log, block, report, seat_marks
from tests.support.running.suite import problem
from tests.support.wait import wait_until

KEYS = Keys.of(EVENT)
BAND = {"allotment_id": "band", "name": "The band's guests", "kind": "house", "seats": ["A-1-1", "A-1-2"],
        "rows": [{"section_id": "B", "rows": [2, 2]}], "ga": [{"section_id": "GA1", "quantity": 5}]}  # fmt: skip


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
    opener = AllotmentOpener(inventory.state.db, inventory.state.redis_stock, inventory.state.catalogue)
    await opener.run_once()
    await opener._open(EVENT, "band", now_ms())  # called too early, as if its time had moved after it was read
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
    openers = [AllotmentOpener(state.db, state.redis_stock, state.catalogue) for _ in range(4)]
    by_operator = inventory.operate("POST", "/allotments/band/open")
    await asyncio.gather(by_operator, *(opener.run_once() for opener in openers))
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
    opener = AllotmentOpener(inventory.state.db, inventory.state.redis_stock, inventory.state.catalogue)
    assert await opener.run_once() == Quiet()
    await inventory.put(with_allotments({**BAND, "opens_at": in_a_minute()}))
    assert "inventory" in woken, "it may be due soon"
    assert await opener.run_once() == Quiet()
    inventory.travel(55_000)
    assert 0 < (await opener.run_once()).for_s <= 5
