"""Stock allotted for a house, a channel, a presale: out of the sale until its time or a hand, then in it, once."""

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from sqlalchemy import text

from services.inventory.reconcile.oversell import use_buffer
from services.inventory.redis_keys import Keys
from services.inventory.stock import allotments
from services.inventory.stock.allotments import AllotmentOpener
from shared.runtime.clock import now_ms
from tests.inventory.conftest import EVENT, Inventory, event_file
from tests.inventory.stock.test_blocking import left, report, statuses
from tests.support.wait import wait_until

KEYS = Keys.of(EVENT)
BAND = {"allotment_id": "band", "name": "The band's guests", "kind": "house", "seats": ["A-1-1", "A-1-2"],
        "rows": [{"section_id": "B", "rows": [2, 2]}], "ga": [{"section_id": "GA1", "quantity": 5}]}  # fmt: skip


def with_allotments(*wanted: dict[str, Any]) -> dict[str, Any]:
    return {**event_file(), "allotments": list(wanted)}


def in_a_minute() -> str:
    return (datetime.now(UTC) + timedelta(seconds=60)).isoformat()


async def test_an_event_file_keeps_places_aside_and_opening_sells_them(inventory: Inventory) -> None:
    epoch = inventory.state.catalogue.layout(EVENT).redis_epoch
    assert (await inventory.put(with_allotments(BAND))).json()["changed"] is True
    assert (await statuses(inventory), await statuses(inventory, "B")) == ("xx...|.....|.....", "....|xxxx")
    assert await left(inventory, "GA1") == (15, 0)
    section = await report(inventory, "GA1")
    assert (section["kept_aside_by"], section["blocked"], section["available"]) == ({"band": 5}, 0, 15)
    assert (await inventory.put(with_allotments(BAND))).json()["changed"] is False
    assert await inventory.broken() == []

    opened = await inventory.operate("POST", "/allotments/band/open", reason="the band is ill")
    assert (opened.json()["changed"], opened.json()["seats"]) == (True, 6)
    assert (await inventory.operate("POST", "/allotments/band/open")).json()["changed"] is False
    assert (await statuses(inventory), await left(inventory, "GA1")) == (".....|.....|.....", (20, 0))
    assert (await inventory.put(with_allotments(BAND))).json()["changed"] is False, "applying closes nothing again"
    assert (await inventory.reserve(seats=["A-1-1", "B-2-1"], ga_section="GA1", ga_quantity=4)).status_code == 201
    assert await inventory.broken() == []
    assert inventory.state.catalogue.layout(EVENT).redis_epoch == epoch, "Redis was never closed"


async def test_a_new_event_opens_its_redis_with_places_kept_aside(inventory: Inventory) -> None:
    file = {**with_allotments(BAND), "event_id": "show-2"}
    assert (await inventory.put(file)).status_code == 200
    counts = Keys.of("show-2").counts

    async def filled() -> bool:
        found = await inventory.state.redis_stock.redis.hmget(
            counts, "A:blocked", "B:blocked", "GA1:blocked", "GA1:available"
        )
        return found == [b"2", b"4", b"5", b"15"]

    await wait_until(filled)


async def test_what_is_held_or_promised_already_cannot_be_kept_aside(inventory: Inventory) -> None:
    await inventory.reserve(seats=["A-1-1"])
    await inventory.operate("POST", "/seats/block", seats=["A-1-2"])
    refused = await inventory.put(with_allotments(BAND))
    assert refused.json()["seats"] == {"held": ["A-1-1"], "blocked manually": ["A-1-2"]}
    promised = {**BAND, "seats": ["A-3-1"]}
    assert (await inventory.put(with_allotments(promised))).status_code == 200
    channel = {"name": "Radio", "kind": "channel", "seats": ["A-3-1"]}
    assert (await inventory.operate("PUT", "/allotments/radio", **channel)).json()["seats"] == {
        "allotted to band": ["A-3-1"]
    }
    by_hand = await inventory.operate("POST", "/seats/unblock", seats=["A-3-1"])
    assert by_hand.json()["seats"] == {"allotted to band": ["A-3-1"]}
    floor = await inventory.operate("POST", "/seats/unblock", ga=[{"section_id": "GA1", "quantity": 1}])
    assert (floor.status_code, floor.json()["blocked"]) == (409, 0)
    small = event_file()
    small["sections"][2]["capacity"] = 4
    assert (await inventory.put(small)).json()["blocked"] == 5
    assert await inventory.broken() == []


async def test_an_allotment_changes_until_it_is_open(inventory: Inventory) -> None:
    await inventory.put(with_allotments(BAND))
    other = {**BAND, "seats": ["A-1-2", "A-1-3"], "rows": [], "ga": [{"section_id": "GA1", "quantity": 3}]}
    assert (await inventory.put(with_allotments(other))).json()["changed"] is True
    assert (await statuses(inventory), await statuses(inventory, "B")) == (".xx..|.....|.....", "....|....")
    assert await left(inventory, "GA1") == (17, 0)
    assert (await inventory.put(event_file())).json()["changed"] is False, "one the file no longer names stays"
    await inventory.operate("POST", "/allotments/band/open")
    assert (await inventory.put(with_allotments(BAND))).json()["type"] == "/problems/stock-conflict"
    assert (await inventory.put(with_allotments({**other, "name": "Guests"}))).json()["changed"] is True
    assert await left(inventory, "GA1") == (20, 0), "a new name closes nothing"
    assert (await inventory.operate("POST", "/allotments/none/open")).json()["type"] == "/problems/unknown-allotment"
    assert await inventory.broken() == []


async def test_its_time_opens_an_allotment_by_the_engines_clock(inventory: Inventory) -> None:
    await inventory.put(with_allotments({**BAND, "opens_at": in_a_minute()}))
    opener = AllotmentOpener(inventory.state.db, inventory.state.redis_stock, inventory.state.catalogue)
    await opener.run_once()
    await opener._open(EVENT, "band", now_ms())  # its time was moved after it was looked at
    assert await left(inventory, "GA1") == (15, 0), "not yet"
    inventory.travel(61_000)

    async def opened() -> bool:
        return await left(inventory, "GA1") == (20, 0) and await statuses(inventory) == ".....|.....|....."

    await wait_until(opened)
    newest = (await inventory.operate("GET", "/changes")).json()["changes"][0]
    assert (newest["actor"], newest["action"], newest["after"]["opened"]) == (
        "system", "open", {"A": 2, "B": 4, "GA1": 5}
    )  # fmt: skip
    assert await inventory.broken() == []


async def open_by_many(inventory: Inventory) -> None:
    """Four processes and an operator find at once that its time has come."""
    state = inventory.state
    await inventory.put(with_allotments({**BAND, "opens_at": in_a_minute()}))
    await inventory.operate("POST", "/seats/block", ga=[{"section_id": "GA1", "quantity": 10}])
    inventory.travel(61_000)
    openers = [AllotmentOpener(state.db, state.redis_stock, state.catalogue) for _ in range(4)]
    await asyncio.gather(
        *(opener.run_once() for opener in openers), inventory.operate("POST", "/allotments/band/open"),
    )  # fmt: skip


async def test_many_processes_open_an_allotment_once(inventory: Inventory) -> None:
    await open_by_many(inventory)
    assert await left(inventory, "GA1") == (10, 0)
    lines = (await inventory.operate("GET", "/changes")).json()["changes"]
    assert [line["action"] for line in lines].count("open") == 1
    assert await inventory.broken() == []


async def test_without_the_compare_and_set_it_would_be_opened_again(
    inventory: Inventory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Proof that the test above would notice."""
    assert "AND opened_at IS NULL" in allotments.MARK_OPENED.text
    monkeypatch.setattr(
        allotments, "MARK_OPENED", text(allotments.MARK_OPENED.text.replace("AND opened_at IS NULL", ""))
    )
    await open_by_many(inventory)
    lines = (await inventory.operate("GET", "/changes")).json()["changes"]
    assert [line["action"] for line in lines].count("open") > 1


async def test_opening_while_a_crowd_waits_oversells_nothing(inventory: Inventory) -> None:
    everything = {**BAND, "rows": [{"section_id": "A", "rows": [1, 3]}], "seats": [],
                  "ga": [{"section_id": "GA1", "quantity": 20}]}  # fmt: skip
    await inventory.put(with_allotments(everything))
    answers: list[int] = []
    opened = asyncio.Event()

    async def fan(i: int) -> None:
        last = False
        while not last:
            last = opened.is_set()
            wish: dict[str, Any] = {"seats": [f"A-{i % 3 + 1}-{i % 5 + 1}"], "ga_section": "GA1", "ga_quantity": 2}
            answer = await inventory.reserve(f"fan-{i}", **wish)
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
    assert await left(inventory, "GA1") == (0, 20)
    assert await inventory.broken() == []


async def test_a_buffer_gives_places_for_what_was_sold_too_often(inventory: Inventory) -> None:
    """In the caller's transaction, buffers only, and nothing goes on sale."""
    state = inventory.state
    await inventory.put(with_allotments(
        {**BAND, "allotment_id": "spare-1", "kind": "buffer", "rows": [], "ga": [{"section_id": "GA1", "quantity": 2}]},
        {"allotment_id": "spare-2", "name": "More", "kind": "buffer", "ga": [{"section_id": "GA1", "quantity": 4}]},
        {"allotment_id": "band", "name": "Band", "kind": "house", "ga": [{"section_id": "GA1", "quantity": 4}]},
    ))  # fmt: skip
    async with state.db.begin() as connection:
        assert await use_buffer(connection, EVENT, "A", 5) == 0, "seats are chosen by a person"
        assert await use_buffer(connection, EVENT, "GA1", 3) == 3
    section = await report(inventory, "GA1")
    assert (section["kept_aside_by"], section["available"]) == ({"band": 4, "spare-2": 3}, 10)
    newest = (await inventory.operate("GET", "/changes")).json()["changes"][0]
    assert (newest["action"], newest["after"]["taken"]) == ("use buffer", {"spare-1": 2, "spare-2": 1})
    async with state.db.begin() as connection:
        assert await use_buffer(connection, EVENT, "GA1", 9) == 3, "as many as there are"
    assert (await inventory.operate("POST", "/allotments/spare-2/open")).json()["changed"] is True
    assert (await report(inventory, "GA1"))["available"] == 10, "it had nothing left to put on sale"


async def test_a_buffer_is_opened_or_taken_from_but_not_both(inventory: Inventory) -> None:
    state = inventory.state
    spare = {"allotment_id": "spare", "name": "Spare", "kind": "buffer", "ga": [{"section_id": "GA1", "quantity": 4}]}
    await inventory.put(with_allotments(spare))
    async with state.db.begin() as connection:
        assert await use_buffer(connection, EVENT, "GA1", 3) == 3
        opening = asyncio.create_task(inventory.operate("POST", "/allotments/spare/open"))

        async def waits() -> bool:
            query = text("SELECT count(*) FROM pg_locks WHERE NOT granted")
            async with state.db.connect() as other:
                return bool(await other.scalar(query))

        await wait_until(waits)
    assert (await opening).is_success
    section = await report(inventory, "GA1")
    assert (section["available"], section["kept_aside"], section["blocked"]) == (17, 0, 0)
