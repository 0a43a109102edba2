"""Places leave the sale and come back by an operator's hand: ledger first, then Redis, which never stops."""

import asyncio
from typing import Any

import pytest
from sqlalchemy import text

from services.inventory.redis_keys import EPOCH, Keys
from services.inventory.redis_stock import push
from services.inventory.stock import blocking, change
from shared.redis.scripts import Script
from tests.inventory.conftest import EVENT, Inventory, event_file
from tests.inventory.races.test_guards import let_the_database_check_nothing
from tests.support.wait import wait_until

KEYS = Keys.of(EVENT)


async def statuses(inventory: Inventory, section_id: str = "A") -> str:
    """The section's map, as Redis has it."""
    found = await inventory.state.redis_stock.redis.get(KEYS.map + section_id)
    return found.decode()


async def left(inventory: Inventory, section_id: str) -> tuple[int, int]:
    """Available and held, as Redis counts at this moment."""
    found = await inventory.state.redis_stock.redis.hmget(KEYS.counts, f"{section_id}:available", f"{section_id}:held")
    return int(found[0] or 0), int(found[1] or 0)


async def report(inventory: Inventory, section_id: str) -> dict[str, Any]:
    sections = (await inventory.operate("GET", "/stock")).json()["sections"]
    return next(section for section in sections if section["section_id"] == section_id)


async def test_blocked_seats_are_not_for_sale_until_unblocked(inventory: Inventory) -> None:
    places = {"seats": ["A-1-2"], "rows": [{"section_id": "A", "rows": [3, 3]}]}
    answer = await inventory.operate("POST", "/seats/block", reason="camera", **places)
    assert (answer.status_code, answer.json()["changed"], answer.json()["seats"]) == (200, True, 6)
    assert await statuses(inventory) == ".x...|.....|xxxxx"
    refused = await inventory.reserve(seats=["A-3-1"])
    assert refused.json()["type"] == "/problems/seats-taken"
    section = await report(inventory, "A")
    assert (section["available"], section["blocked"], section["kept_aside"]) == (9, 6, 0)
    assert await inventory.broken() == []
    assert (await inventory.operate("POST", "/seats/block", **places)).json()["changed"] is False, "again, nothing"
    assert (await inventory.operate("POST", "/seats/unblock", **places)).json()["seats"] == 6
    assert await statuses(inventory) == ".....|.....|....."
    assert (await inventory.reserve(seats=["A-3-1"])).status_code == 201
    assert await inventory.broken() == []


async def test_held_and_sold_seats_are_named_and_nothing_is_blocked(inventory: Inventory) -> None:
    await inventory.reserve("one", seats=["A-1-1"])
    bought = (await inventory.reserve("two", seats=["A-1-2"])).json()["reservation_id"]
    await inventory.step("begin-payment", bought, "order-1")
    await inventory.step("confirm", bought, "order-1")
    for verb in ("block", "unblock"):
        answer = await inventory.operate("POST", f"/seats/{verb}", rows=[{"section_id": "A", "rows": [1, 2]}])
        assert (answer.status_code, answer.json()["type"]) == (409, "/problems/stock-conflict")
        assert answer.json()["seats"] == {"held": ["A-1-1"], "sold": ["A-1-2"]}
    assert (await report(inventory, "A"))["blocked"] == 0
    assert await inventory.broken() == []


async def test_places_of_a_floor_are_blocked_by_number(inventory: Inventory) -> None:
    await inventory.reserve(ga_section="GA1", ga_quantity=6)
    assert (await inventory.operate("POST", "/seats/block", ga=[{"section_id": "GA1", "quantity": 14}])).is_success
    assert await left(inventory, "GA1") == (0, 6)
    assert (await inventory.reserve("stale", ga_section="GA1", ga_quantity=1)).json()["type"] == "/problems/sold-out"
    more = await inventory.operate("POST", "/seats/block", ga=[{"section_id": "GA1", "quantity": 1}])
    assert (more.status_code, more.json()["available"]) == (409, 0)
    over = await inventory.operate("POST", "/seats/unblock", ga=[{"section_id": "GA1", "quantity": 15}])
    assert (over.status_code, over.json()["blocked"]) == (409, 14)
    assert (await inventory.operate("POST", "/seats/unblock", ga=[{"section_id": "GA1", "quantity": 4}])).is_success
    assert await left(inventory, "GA1") == (4, 6)
    assert await inventory.broken() == []


async def test_what_does_not_exist_is_refused_and_what_is_half_wrong_changes_nothing(inventory: Inventory) -> None:
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
    assert await left(inventory, "A") == (15, 0)
    assert (await inventory.operate("GET", "/changes")).json()["changes"][0]["action"] == "apply"


async def test_a_change_has_a_limit(inventory: Inventory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(change, "SEATS_MAX", 9)
    refused = await inventory.operate("POST", "/seats/block", rows=[{"section_id": "A", "rows": [1, 2]}])
    assert refused.json()["type"] == "/problems/stock-conflict"
    named = [f"A-1-{n}" for n in range(1, 5001)] + ["A-1-1"]
    assert (await inventory.operate("POST", "/seats/block", seats=named)).status_code == 422
    assert await left(inventory, "A") == (15, 0)


async def crowd(inventory: Inventory, fans: int = 25) -> list[int]:
    """Everybody wants the first row and the floor while an operator blocks them."""

    async def fan(i: int) -> int:
        wish: dict[str, Any] = {"seats": [f"A-1-{i % 5 + 1}"], "ga_section": "GA1", "ga_quantity": 1}
        return (await inventory.reserve(f"fan-{i}", **wish)).status_code

    async def operator() -> None:
        for n in range(1, 6):
            await inventory.operate("POST", "/seats/block", seats=[f"A-1-{n}"])
            await inventory.operate("POST", "/seats/block", ga=[{"section_id": "GA1", "quantity": 4}])

    answers, _ = await asyncio.gather(asyncio.gather(*(fan(i) for i in range(fans))), operator())
    assert set(answers) <= {201, 409}
    return answers


async def sold_though_blocked(inventory: Inventory) -> int:
    """Places of live reservations that an operator was told are blocked."""
    query = text(
        "SELECT count(*) FROM inventory.reservation_seat x "
        "JOIN inventory.reservation r USING (event_id, reservation_id) "
        "JOIN inventory.seat s USING (event_id, section_id, position) "
        "WHERE r.status = 'pending_payment' AND s.reservation_id IS DISTINCT FROM x.reservation_id"
    )
    async with inventory.state.db.connect() as connection:
        return int(await connection.scalar(query) or 0)


async def test_blocking_under_a_crowd_leaves_redis_and_database_agreed(inventory: Inventory) -> None:
    epoch = inventory.state.catalogue.layout(EVENT).redis_epoch
    answers = await crowd(inventory)
    assert await sold_though_blocked(inventory) == 0
    assert answers.count(201) == (await report(inventory, "A"))["held"]
    assert await inventory.broken() == []
    assert inventory.state.catalogue.layout(EVENT).redis_epoch == epoch, "Redis was never closed"


def deafen_the_gate(monkeypatch: pytest.MonkeyPatch) -> None:
    """Redis that is never told what is blocked."""
    assert "if not is_ready" in push.BLOCK.source
    monkeypatch.setattr(push, "BLOCK", Script("deaf", push.BLOCK.source.replace("if not is_ready", "if is_ready")))


async def takes_what_is_blocked(inventory: Inventory) -> int:
    """How many of a crowd got a seat or a place that was blocked before they came."""
    everything = {"rows": [{"section_id": "A", "rows": [1, 1]}], "ga": [{"section_id": "GA1", "quantity": 20}]}
    assert (await inventory.operate("POST", "/seats/block", **everything)).is_success
    seats = [inventory.reserve(f"s{i}", seats=[f"A-1-{i % 5 + 1}"]) for i in range(15)]
    floor = [inventory.reserve(f"f{i}", ga_section="GA1", ga_quantity=1) for i in range(15)]
    answers = [answer.status_code for answer in await asyncio.gather(*seats, *floor)]
    assert set(answers) <= {201, 409}
    return answers.count(201)


async def test_without_the_gates_word_the_database_refuses_what_is_blocked(
    inventory: Inventory, monkeypatch: pytest.MonkeyPatch
) -> None:
    deafen_the_gate(monkeypatch)
    assert await takes_what_is_blocked(inventory) == 0
    assert await statuses(inventory) == "xxxxx|.....|.....", "the refusals taught Redis"


async def test_without_the_database_redis_refuses_what_is_blocked(
    inventory: Inventory, monkeypatch: pytest.MonkeyPatch
) -> None:
    await let_the_database_check_nothing(inventory, monkeypatch)
    assert await takes_what_is_blocked(inventory) == 0
    assert await inventory.broken() == []


async def test_without_both_blocked_places_are_sold_and_the_audit_says_so(
    inventory: Inventory, monkeypatch: pytest.MonkeyPatch
) -> None:
    deafen_the_gate(monkeypatch)
    await let_the_database_check_nothing(inventory, monkeypatch)
    assert await takes_what_is_blocked(inventory) == 20
    assert await inventory.broken() != []


async def test_without_the_ledgers_compare_and_set_the_crowd_loses_seats(
    inventory: Inventory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Proof that the test above would notice: an operator who overwrites what is held."""
    for name, check in (("LOCK_SEATS", "s.status, s"), ("BLOCK_SEATS", "s.status = CASE")):
        source = getattr(blocking, name).text
        assert check in source
        source = source.replace("s.status, s", "'available' AS status, s")
        source = source.replace("AND s.status = CASE", "AND 'x' <> CASE")
        source = source.replace("SET status =", "SET reservation_id = NULL, status =")
        monkeypatch.setattr(blocking, name, text(source))
    await inventory.reserve(seats=["A-1-1"])
    assert (await inventory.operate("POST", "/seats/block", seats=["A-1-1"])).is_success
    assert await sold_though_blocked(inventory) == 1
    assert await inventory.broken() != []


@pytest.mark.parametrize("flushed", [False, True])
async def test_words_that_overtake_each_other_end_right(
    inventory: Inventory, monkeypatch: pytest.MonkeyPatch, flushed: bool
) -> None:
    """Redis refuses an older word than the last it heard; then the database is read again."""
    read, waiting, go = push._read, asyncio.Event(), asyncio.Event()

    async def slowly(*asked: Any) -> Any:
        found = await read(*asked)
        if not waiting.is_set():
            waiting.set()
            await go.wait()
        return found

    monkeypatch.setattr(push, "_read", slowly)
    slow = asyncio.create_task(inventory.operate("POST", "/seats/block", seats=["A-1-1", "A-1-3"]))
    await waiting.wait()
    await inventory.operate("POST", "/seats/unblock", seats=["A-1-1"])
    if flushed:
        await inventory.state.redis_stock.redis.flushall()
        await inventory.ready()
    go.set()
    await slow
    assert await statuses(inventory) == "..x..|.....|....."
    assert (await inventory.reserve(seats=["A-1-1"])).status_code == 201
    assert await inventory.broken() == []


async def test_a_refusal_before_redis_heard_of_a_block_is_not_counted_twice(
    inventory: Inventory, monkeypatch: pytest.MonkeyPatch
) -> None:
    tell, waiting, go = push._apply, asyncio.Event(), asyncio.Event()

    async def slowly(*told: Any) -> str:
        waiting.set()
        await go.wait()
        return await tell(*told)

    monkeypatch.setattr(push, "_apply", slowly)
    slow = asyncio.create_task(inventory.operate("POST", "/seats/block", ga=[{"section_id": "GA1", "quantity": 16}]))
    await waiting.wait()
    refused = await inventory.reserve(ga_section="GA1", ga_quantity=6)
    assert (refused.status_code, refused.json()["available"]) == (409, {"GA1": 4})
    go.set()
    await slow
    assert await left(inventory, "GA1") == (4, 0)
    assert await inventory.broken() == []


async def test_fans_never_see_less_than_nothing(inventory: Inventory) -> None:
    """Holds that the database will refuse and a block: below zero for a moment."""
    await inventory.state.redis_stock.redis.hset(KEYS.counts, "GA1:available", "-4")
    frame = await inventory.state.availability.frame(inventory.state.catalogue.layout(EVENT))
    assert next(section.available for section in frame.sections if section.section_id == "GA1") == 0


async def test_a_flushed_redis_learns_again_what_is_blocked_and_kept_aside(inventory: Inventory) -> None:
    await inventory.operate("POST", "/seats/block", seats=["A-1-1"], ga=[{"section_id": "GA1", "quantity": 3}])
    kept = {"name": "Band", "kind": "house", "seats": ["B-1-1"], "ga": [{"section_id": "GA1", "quantity": 5}]}
    assert (await inventory.operate("PUT", "/allotments/band", **kept)).is_success
    counts = await inventory.state.redis_stock.redis.hgetall(KEYS.counts)
    counts[EPOCH] = str(int(counts[EPOCH]) + 1).encode()
    await inventory.state.redis_stock.redis.flushall()
    await inventory.ready()
    assert await inventory.state.redis_stock.redis.hgetall(KEYS.counts) == counts
    assert (await statuses(inventory), await statuses(inventory, "B")) == ("x....|.....|.....", "x...|....")
    assert await left(inventory, "GA1") == (12, 0)
    assert await inventory.broken() == []


async def test_reconcile_tells_redis_what_it_missed(inventory: Inventory) -> None:
    reconciler, layout, at_s = inventory.state.reconciler, inventory.state.catalogue.layout(EVENT), 1_000.0
    reconciler._clock = lambda: at_s
    await inventory.operate("POST", "/seats/block", seats=["A-1-1"], ga=[{"section_id": "GA1", "quantity": 3}])
    redis = inventory.state.redis_stock.redis
    await redis.setrange(KEYS.map + "A", 0, ".")
    await redis.hset(KEYS.counts, mapping={"A:available": 15, "A:blocked": 0, "GA1:available": 20, "GA1:blocked": 0})
    await reconciler.reconcile(layout)
    at_s += 6
    assert (await reconciler.reconcile(layout)).corrected >= 3
    assert (await statuses(inventory), await left(inventory, "GA1")) == ("x....|.....|.....", (17, 0))
    assert await inventory.broken() == []


async def test_a_floor_is_resized_while_it_sells_but_never_below_what_is_taken(inventory: Inventory) -> None:
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
    assert await left(inventory, "GA1") == (25 - 2 - answers.count(201), answers.count(201))
    refused = await inventory.operate("POST", "/sections/GA1/resize", capacity=answers.count(201) + 1)
    assert (refused.status_code, refused.json()["capacity_min"]) == (409, answers.count(201) + 2)
    assert await inventory.broken() == []
    assert inventory.state.catalogue.layout(EVENT).redis_epoch == epoch, "Redis was never closed"
    assert (await inventory.operate("POST", "/sections/A/resize", capacity=9)).json()["type"].endswith("section")


async def test_an_event_file_resizes_a_floor_without_closing_the_gate(inventory: Inventory) -> None:
    epoch = inventory.state.catalogue.layout(EVENT).redis_epoch
    file = event_file()
    file["sections"][2]["capacity"] = 30
    assert (await inventory.put(file)).json()["changed"] is True
    assert await left(inventory, "GA1") == (30, 0)
    assert inventory.state.catalogue.layout(EVENT).redis_epoch == epoch
    assert await inventory.broken() == []


async def test_an_event_file_adds_and_takes_away_rows_but_names_seats_it_would_orphan(inventory: Inventory) -> None:
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
    await inventory.ready()
    assert (await left(inventory, "A"), await left(inventory, "B")) == ((9, 1), (11, 1))
    file["currency"] = "USD"
    assert (await inventory.put(file)).json()["type"] == "/problems/stock-conflict"
    assert await inventory.broken() == []


async def test_every_change_is_kept_with_who_what_and_why(inventory: Inventory) -> None:
    version = (await inventory.operate("GET", "/stock")).json()["version"]
    await inventory.operate("POST", "/seats/block", seats=["A-1-1"], reason="camera", version=version)
    late = await inventory.operate("POST", "/seats/block", seats=["A-1-2"], version=version)
    assert (late.status_code, late.json()["type"]) == (412, "/problems/version-mismatch")
    await inventory.operate("POST", "/sections/GA1/resize", capacity=25, reason="fire marshal")
    resized, blocked, applied = (await inventory.operate("GET", "/changes")).json()["changes"]
    assert (blocked["actor"], blocked["action"], blocked["reason"]) == ("tester", "block", "camera")
    assert blocked["after"]["seats"] == ["A-1-1"]
    assert blocked["before"]["sections"]["A"] == {"capacity": 15, "seats_remaining": 15, "blocked": 0}
    assert blocked["after"]["sections"]["A"] == {"capacity": 15, "seats_remaining": 14, "blocked": 1}
    assert (resized["reason"], resized["after"]["sections"]["GA1"]["capacity"]) == ("fire marshal", 25)
    assert (applied["action"], resized["version"]) == ("apply", version + 2)


async def test_a_hold_that_is_released_late_does_not_free_a_blocked_seat(
    inventory: Inventory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The database released and blocked the seat before Redis heard of the release."""
    made = (await inventory.reserve(seats=["A-1-1"])).json()["reservation_id"]
    monkeypatch.setattr(inventory.state.redis_stock, "release", _nobody)
    assert (await inventory.mine("DELETE", made)).status_code == 204
    monkeypatch.undo()
    assert (await inventory.operate("POST", "/seats/block", seats=["A-1-1"])).is_success
    await inventory.state.redis_stock.release(EVENT, [made])

    async def still_blocked() -> bool:
        return await statuses(inventory) == "x....|.....|....."

    await wait_until(still_blocked)
    assert await inventory.broken() == []


async def _nobody(*_: Any) -> None:
    """Redis that hears nothing."""


async def test_the_last_page_of_changes_offers_no_other(inventory: Inventory) -> None:
    for seat in ("A-1-1", "A-1-2", "A-1-3"):
        await inventory.operate("POST", "/seats/block", seats=[seat], reason="kept")
    first = (await inventory.operate("GET", "/changes?page_size=2")).json()
    assert (len(first["changes"]), first["next"]) == (2, f"/admin/inventory/events/{EVENT}/changes?page=2&page_size=2")
    last = (await inventory.operate("GET", "/changes?page=2&page_size=2")).json()
    assert (len(last["changes"]), last["next"]) == (2, None), "the file and three blocks"
