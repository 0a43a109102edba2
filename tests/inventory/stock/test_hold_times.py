"""Hold times: measured when they happen, read from the database, and two arms compared fairly."""

from typing import Any

import pytest
from sqlalchemy import text

from services.inventory.stock import hold_times as state
from services.inventory.stock.hold_times import newcombe_difference, wilson_interval
from shared.contracts.event_file import SalesPart
from shared.rules.rollout import outside, within
from tests.inventory.conftest import EVENT, Inventory, event_file

ROWS = text(  # held until the year 3000: no loop ends one in between
    "INSERT INTO inventory.reservation (event_id, reservation_id, holder, total_minor, currency, status, "
    " reserved_until_ms, fingerprint, hold_ttl_s, variant, created_at, payment_begun_at, confirmed_at, ended_at) "
    "SELECT :event_id, :name || n, CAST(:name AS text) || n, 0, 'EUR', :status, 32503680000000, 'a.b', "
    " :hold_ttl_s, :arm, "
    " clock_timestamp() - :ago_s * interval '1 second', "
    " clock_timestamp() - (:ago_s - n * CAST(:begun_after_s AS float8)) * interval '1 second', "
    " CASE WHEN :status = 'confirmed' THEN clock_timestamp() - :ago_s * interval '0.5 second' END, "
    " CASE WHEN :status = 'expired' THEN clock_timestamp() - :ago_s * interval '0.5 second' END "
    "FROM generate_series(1, CAST(:count AS int)) AS n"
)


async def report(inventory: Inventory) -> Any:
    return await inventory.admin("GET", f"/events/{EVENT}/hold-times")


async def rows(inventory: Inventory, name: str, count: int, status: str, **more: Any) -> None:
    """So many fans with a hold each; the n-th began to pay after n × begun_after_s, or never."""
    values = {"hold_ttl_s": 600, "arm": None, "ago_s": 1000.0, "begun_after_s": None, **more}
    async with inventory.state.db.begin() as connection:
        await connection.execute(ROWS, {"event_id": EVENT, "name": name, "count": count, "status": status, **values})


async def test_what_the_report_needs_is_stored_when_it_happens(inventory: Inventory) -> None:
    for holder, row, verbs in (("buyer", 1, ("begin-payment", "confirm")), ("loser", 2, ("begin-payment", "release"))):
        made = (await inventory.reserve(holder, seats=[f"A-{row}-1"])).json()["reservation_id"]
        for verb in verbs:
            await inventory.step(verb, made, f"order-{row}")
    await inventory.reserve("loser", seats=["A-2-2"])
    left = (await inventory.reserve("leaver", seats=["A-3-1"])).json()["reservation_id"]
    await inventory.mine("DELETE", left, "leaver")
    found = await report(inventory)
    assert (found["holds"], found["fans"]) == (4, 3)
    assert (found["to_payment"]["holds"], found["to_confirmed"]["holds"]) == (2, 1)
    assert 0 <= found["to_payment"]["percentiles_s"]["50"] <= found["to_payment"]["percentiles_s"]["100"] < 10
    assert found["to_payment"]["histogram"][0] == {"from_s": 0, "to_s": 10, "holds": 2}
    returning = found["returning"]
    assert (returning["left"], returning["returned"], returning["bought"]) == (2, 1, 0)
    assert found["arms"] == []


async def test_the_first_beginning_of_a_payment_counts(inventory: Inventory) -> None:
    made = (await inventory.reserve(seats=["A-1-1"])).json()["reservation_id"]
    query = text("SELECT payment_begun_at FROM inventory.reservation")
    seen = []
    for order in ("order-1", "order-2"):
        await inventory.step("begin-payment", made, order)
        await inventory.step("end-payment", made, order)
        async with inventory.state.autocommit_db.connect() as connection:
            seen.append((await connection.execute(query)).scalar_one())
    assert seen[0] == seen[1] is not None


async def test_the_suggestion_keeps_99_of_100_buyers(inventory: Inventory) -> None:
    """200 buyers, the n-th after n seconds: 198 had begun to pay within 198 s. Who did not buy does not count."""
    await rows(inventory, "few", 99, "confirmed", begun_after_s=1.0)
    assert (await report(inventory))["suggestion"]["hold_ttl_s"] is None, "99 buyers have no 99th percentile"
    async with inventory.state.db.begin() as connection:
        await connection.execute(text("DELETE FROM inventory.reservation"))
    await rows(inventory, "buyer", 200, "confirmed", begun_after_s=1.0)
    await rows(inventory, "slow", 50, "expired", begun_after_s=11.0, hold_ttl_s=600)
    found = await report(inventory)
    assert found["suggestion"] == {
        "hold_ttl_s": 200, "now_s": 600, "kept_percent": 99, "buyers": 200, "buyers_min": 100, "late_percent": 0.0
    }  # fmt: skip
    percentiles = found["to_payment"]["percentiles_s"]
    assert (percentiles["10"], percentiles["100"]) == (23.0, 550.0)
    assert sum(bucket["holds"] for bucket in found["to_payment"]["histogram"]) == 250


async def test_buyers_near_their_deadline_are_told_of(inventory: Inventory) -> None:
    await rows(inventory, "buyer", 200, "confirmed", begun_after_s=0.5, hold_ttl_s=100)
    assert (await report(inventory))["suggestion"]["late_percent"] == 10.5


async def test_each_arm_gets_its_own_deadline_also_when_extended(inventory: Inventory) -> None:
    await inventory.put(event_file(hold_ttl_b_s=60, hold_ttl_b_percent=50))
    layout = inventory.state.catalogue.layout(EVENT)
    long, short = next_of(layout, "a"), next_of(layout, "b")
    inventory.state.expiry_worker.sweep = None  # type: ignore[method-assign, assignment]
    untils = {}
    for row, holder in enumerate((long, short)):
        made = (await inventory.reserve(holder, seats=[f"A-{row + 1}-1"])).json()["reservation_id"]
        inventory.travel(30_000)
        await inventory.mine("POST", made, holder, more="/extend")
        record = (await inventory.ask("/reservations/read", {"reservation_ids": [made]}))["reservations"][0]
        now_ms, _ = await inventory.state.redis_stock.list_due(EVENT, count_max=1)
        untils[holder] = round((record["reserved_until_ms"] - now_ms) / 1000)
    assert untils == {long: pytest.approx(600, abs=3), short: pytest.approx(60, abs=3)}
    arms = {arm["arm"]: (arm["hold_ttl_s"], arm["fans"] + arm["open"]) for arm in (await report(inventory))["arms"]}
    assert arms == {"a": (600, 1), "b": (60, 1)}


def next_of(layout: Any, arm: str) -> str:
    return next(name for i in range(100) if layout.variant_for(name := f"fan-{i}").name == arm)


async def test_fans_whose_outcome_is_open_count_in_neither_arm(inventory: Inventory) -> None:
    """A buyer is known in seconds, a loser at the deadline: counting at once would flatter the longer arm's buyers. Who
    began after the first open one waits with it, and nobody is waited for past the time everything takes.
    """
    await inventory.put(event_file(hold_ttl_b_s=300, hold_ttl_b_percent=50))
    for arm, hold_ttl_s, bought in (("a", 600, 30), ("b", 300, 60)):
        of = {"arm": arm, "hold_ttl_s": hold_ttl_s}
        await rows(inventory, f"{arm}-yes", bought, "confirmed", begun_after_s=1.0, **of)
        await rows(inventory, f"{arm}-no", 100 - bought, "expired", **of)
        await rows(inventory, f"{arm}-new", 40, "confirmed", begun_after_s=1.0, **of, ago_s=100.0)
    await rows(inventory, "open", 1, "pending_payment", arm="a", ago_s=200.0)
    found = await report(inventory)
    assert [(a["arm"], a["fans"], a["bought"], a["open"]) for a in found["arms"]] == [
        ("a", 100, 30, 41), ("b", 100, 60, 40)
    ]  # fmt: skip
    assert found["b_minus_a"]["verdict"] == "b sells more"
    assert found["b_minus_a"]["low"] < found["b_minus_a"]["value"] == 0.3 < found["b_minus_a"]["high"]
    await rows(inventory, "stuck", 1, "paying", arm="b", hold_ttl_s=300, ago_s=9_000.0)
    again = (await report(inventory))["arms"]
    assert [arm["fans"] for arm in again] == [100, 101], "a payment in review does not stop the count for good"


async def test_a_length_that_was_changed_is_another_row_and_not_compared(inventory: Inventory) -> None:
    await inventory.put(event_file(hold_ttl_b_s=300, hold_ttl_b_percent=50))
    await rows(inventory, "a", 50, "expired", arm="a", hold_ttl_s=600)
    await rows(inventory, "old-b", 50, "confirmed", begun_after_s=1.0, arm="b", hold_ttl_s=200)
    found = await report(inventory)
    assert [(arm["arm"], arm["hold_ttl_s"]) for arm in found["arms"]] == [("a", 600), ("b", 200)]
    assert found["b_minus_a"] is None


async def test_a_report_that_takes_too_long_says_so(inventory: Inventory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state, "LIMIT_TIME", text("SET LOCAL statement_timeout = 50"))
    monkeypatch.setattr(state, "RETURNING_HOLDERS", text("SELECT pg_sleep(2) WHERE :event_id <> ''"))
    key = {"authorization": "Bearer a-long-enough-admin-secret"}
    answer = await inventory.fans.get(f"/admin/inventory/events/{EVENT}/hold-times", headers=key)
    assert (answer.status_code, answer.json()["type"]) == (503, "/problems/unavailable")
    assert "more than 5 s" in answer.json()["detail"]


def test_an_arm_needs_a_length() -> None:
    with pytest.raises(ValueError, match="needs hold_ttl_b_s"):
        SalesPart(hold_ttl_b_percent=50)


def test_who_is_in_which_arm_says_nothing_of_the_waiting_rooms_share() -> None:
    fans = [f"fan-{i}" for i in range(4000)]
    in_b = {fan for fan in fans if within("hold_ttl", "e", fan, 50)}
    outside_room = {fan for fan in fans if outside("e", fan, 50)}
    assert 900 < len(in_b & outside_room) < 1100
    assert in_b <= {fan for fan in fans if within("hold_ttl", "e", fan, 60)}
    assert not any(within("hold_ttl", "e", fan, 0) for fan in fans)


def test_intervals_are_the_published_ones() -> None:
    """Newcombe's own examples: 81 of 263, and 56 of 70 against 48 of 80."""
    one = wilson_interval(81, 263)
    assert (round(one.low, 4), round(one.high, 4)) == (0.2553, 0.3662)
    two = newcombe_difference(wilson_interval(56, 70), wilson_interval(48, 80))
    assert (round(two.low, 4), round(two.high, 4)) == (0.0524, 0.3339)
    assert wilson_interval(0, 0).high == 1.0
    assert wilson_interval(0, 10).low == 0.0
