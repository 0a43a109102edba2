"""Reconcile: the database against itself, by several at once, under a crowd, and told to the operator."""

import asyncio
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from sqlalchemy import text

from services.inventory.reconcile import db_repair
from services.inventory.reconcile.redis_diff import differences, read_redis_stock
from services.inventory.redis_keys import Keys
from services.inventory.stock.snapshot import read_stock
from shared.contracts.admin.inventory import ReconcilePass
from tests.inventory.conftest import EVENT, Inventory, event_file
from tests.inventory.selling import another, reconciled, sold, sql
from tests.support.wait import wait_until

KEYS = Keys.of(EVENT)
DRIFTED = "UPDATE inventory.section SET seats_remaining = seats_remaining - 3 WHERE event_id = :event_id"
LEFT = "SELECT section_id, seats_remaining FROM inventory.section WHERE event_id = :event_id ORDER BY section_id"
SEATS = (
    "SELECT position, status, reservation_id FROM inventory.seat WHERE event_id = :event_id AND section_id = 'A' "
    "AND position < 3 ORDER BY position"
)


async def left(inventory: Inventory) -> dict[str, int]:
    return {row.section_id: row.seats_remaining for row in await sql(inventory, LEFT)}


async def test_the_database_is_set_right_by_its_live_reservations(still: Inventory) -> None:
    """A counter that is off, a seat that forgot its buyer, one that remembers nobody's, and one held by a dead hold."""
    buyer = await sold(still, "buyer", seats=["A-1-1"], ga_section="GA1", ga_quantity=2)
    await sql(
        still, DRIFTED,
        "UPDATE inventory.seat SET status = 'available', reservation_id = NULL "
        "WHERE event_id = :event_id AND section_id = 'A' AND position = 0",
        "UPDATE inventory.seat SET status = 'held', reservation_id = 'nobody' "
        "WHERE event_id = :event_id AND section_id = 'A' AND position = 1",
    )  # fmt: skip
    first = await reconciled(still, times=1)
    assert (first.corrected, (await left(still))["GA1"]) == (0, 15), "one look is not enough"
    said = await reconciled(still, times=1)
    assert said.corrected >= 5
    assert await left(still) == {"A": 14, "B": 8, "GA1": 18}
    assert [tuple(row) for row in await sql(still, SEATS)] == [
        (0, "sold", buyer), (1, "available", None), (2, "available", None)
    ]  # fmt: skip
    assert (await reconciled(still, times=1)).differences == 0
    assert await still.broken() == []
    found = (await still.admin("GET", f"/events/{EVENT}/reconcile"))["found"]
    assert {row["done"] for row in found} == {"corrected"}
    assert all(row["since"] < row["done_at"] for row in found)
    assert {"database-remaining GA1", "database-seat A 0"} <= {row["what"] for row in found}


async def test_two_reconcilers_at_once_correct_everything_once(still: Inventory) -> None:
    """Both have seen the same for long enough and act in the same moment."""
    await sold(still, "buyer", ga_section="GA1", ga_quantity=2)
    await sql(still, DRIFTED)
    await still.state.redis_stock.redis.hincrby(KEYS.counts, "GA1:available", 7)
    both = [still.state.reconciler, another(still), another(still)]
    await asyncio.gather(*(reconciled(still, reconciler, times=1) for reconciler in both))
    said = await asyncio.gather(*(reconciled(still, reconciler, times=1) for reconciler in both))
    assert sum(each.corrected for each in said) == 4, "three counters of the database and one of Redis"
    assert await still.left("GA1") == (18, 0)
    assert (await left(still))["GA1"] == 18
    for reconciler in both:
        assert (await reconciled(still, reconciler, times=1)).differences == 0


async def test_without_taking_turns_two_reconcilers_correct_redis_twice(
    still: Inventory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The guard shown to matter: both read, then both correct by what they read."""
    monkeypatch.setattr(
        "services.inventory.reconcile.reconciler.TRY_EXCLUSIVE_LOCK", text("SELECT length(:event_id) > 0")
    )
    await still.state.redis_stock.redis.hincrby(KEYS.counts, "GA1:available", 7)
    both = [still.state.reconciler, another(still)]
    read, real = asyncio.Barrier(2), still.state.redis_stock.set_positions

    async def together(event_id: str, places: Any) -> int:
        await read.wait()
        return await real(event_id, places)

    monkeypatch.setattr(still.state.redis_stock, "set_positions", together)
    await asyncio.gather(*(reconciled(still, reconciler) for reconciler in both))
    assert await still.left("GA1") == (13, 0)


async def _wrongs(still: Inventory) -> list[db_repair.Inconsistency]:
    return db_repair.inconsistencies(await read_stock(still.state.db, EVENT, check=True))


async def test_what_a_section_says_is_held_against_its_seats_and_tickets(still: Inventory) -> None:
    await sold(still, "buyer", ga_section="GA1", ga_quantity=2)
    await sql(
        still, "UPDATE inventory.section SET overbooked_accepted = 3 WHERE event_id = :event_id AND section_id = 'GA1'"
    )
    assert await _wrongs(still) == [], "what was honoured is not for sale"
    await sql(still, "UPDATE inventory.section SET blocked = 1 WHERE event_id = :event_id AND section_id = 'A'")
    assert [(w.kind, w.section_id, w.delta, w.expected) for w in await _wrongs(still)] == [("blocked", "A", 1, "0")]


@pytest.mark.parametrize("begun", [True, False])
async def test_a_seat_goes_to_its_buyer_then_to_who_pays_then_to_the_older_hold(still: Inventory, begun: bool) -> None:
    """Three own it by their reservations, and the seat has forgotten all of them."""
    older, paying = [
        (await still.reserve(name, seats=[seat])).json()["reservation_id"]
        for name, seat in (("older", "A-1-2"), ("paying", "A-1-3"))
    ]
    if begun:
        assert (await still.step("begin-payment", paying, "order-paying"))["outcome"] == "done"
    await sql(
        still,
        "UPDATE inventory.reservation_seat SET position = 0 WHERE reservation_id = ANY(:ids)",
        "UPDATE inventory.seat SET status = 'available', reservation_id = NULL WHERE reservation_id = ANY(:ids)",
        ids=[older, paying],
    )
    assert _first_seat(await _wrongs(still)) == f"held:{paying if begun else older}"
    bought = await sold(still, "buyer", seats=["A-1-4"])
    await sql(
        still,
        "UPDATE inventory.reservation_seat SET position = 0 WHERE reservation_id = :bought",
        "UPDATE inventory.seat SET status = 'held', reservation_id = :older WHERE event_id = :event_id "
        "AND section_id = 'A' AND position = 0 AND :bought <> ''",
        bought=bought, older=older,
    )  # fmt: skip
    assert _first_seat(await _wrongs(still)) == f"sold:{bought}"


def _first_seat(wrong: list[db_repair.Inconsistency]) -> str:
    return next(w.expected for w in wrong if (w.kind, w.section_id, w.position) == ("seat", "A", 0))


async def test_a_row_somebody_is_changing_is_left_for_the_next_look(still: Inventory) -> None:
    """Reconcile neither waits for a sale nor makes one wait."""
    await sql(still, DRIFTED)
    wrong = await _wrongs(still)
    lock = text("SELECT 1 FROM inventory.section WHERE event_id = :e AND section_id = 'GA1' FOR UPDATE")
    async with still.state.db.begin() as sale:
        await sale.execute(lock, {"e": EVENT})
        async with asyncio.timeout(1):
            done = await db_repair.repair(still.state.db, EVENT, wrong)
    assert done == {("A", -1), ("B", -1)}
    assert await db_repair.repair(still.state.db, EVENT, wrong) == {("GA1", -1)}
    assert await _wrongs(still) == []


async def test_redis_is_not_corrected_by_a_database_that_is_itself_in_doubt(still: Inventory) -> None:
    """The database forgot a buyer, and somebody has the section in hand: Redis, which knows better, is left alone."""
    await sold(still, "buyer", seats=["A-1-1"])
    await sql(still, "UPDATE inventory.seat SET status = 'available', reservation_id = NULL "
              "WHERE event_id = :event_id AND section_id = 'A' AND position = 0")  # fmt: skip
    await reconciled(still, times=1)
    lock = text("SELECT 1 FROM inventory.section WHERE event_id = :e AND section_id = 'A' FOR UPDATE")
    async with still.state.db.begin() as sale:
        await sale.execute(lock, {"e": EVENT})
        await reconciled(still, times=1)
        assert await still.state.redis_stock.redis.getrange(KEYS.map + "A", 0, 0) == b"s"
    await reconciled(still, times=1)
    assert await still.broken() == []


async def test_a_hold_made_between_the_two_readings_is_no_drift_of_counts(still: Inventory) -> None:
    """Seen once it is on its way; seen missing for a while it is lost, and its tickets count."""
    layout = still.state.catalogue.layout(EVENT)
    before = await read_redis_stock(still.state.redis_stock.redis, EVENT, layout)
    made = (await still.reserve("fan", ga_section="GA1", ga_quantity=2)).json()["reservation_id"]
    stock = await read_stock(still.state.db, EVENT)
    assert {what for what, _, _ in differences(before, stock, lost=frozenset())} == {f"hold {made}"}
    lost = {what for what, _, _ in differences(before, stock, lost=frozenset({made}))}
    assert lost == {f"hold {made}", "count GA1 available", "count GA1 held", "usage fan"}


async def test_a_row_that_changed_since_it_was_counted_is_not_overwritten(still: Inventory) -> None:
    await sql(still, DRIFTED)
    async with still.state.db.begin() as connection:
        assert await db_repair.repair_sections(connection, EVENT, {"GA1": 41}) == {}
        assert await db_repair.repair_sections(connection, EVENT, {"GA1": 1}) == {"GA1": 3}


def _everybody_got_on(done: Counter[int]) -> Callable[[], bool]:
    """Every fan is a step or two further than now, or through."""
    before = done.copy()
    return lambda: len(done) >= 8 and all(n >= 100 or n > before[fan] + 1 for fan, n in done.items())


async def test_under_a_crowd_reconcile_finds_no_false_drift(still: Inventory) -> None:
    """Fans take, give back and buy without a pause. Between two looks every fan gets on by a step or two, which stands
    for five seconds: whatever differs is on its way, and none of it may look old.
    """
    big = event_file(tickets_per_customer=0)
    big["sections"][2]["capacity"] = 1000
    await still.put(big)
    await still.state.redis_monitor.check()
    done = Counter[int]()

    async def fan(n: int) -> None:
        for turn in range(20):
            done[n] += 1
            wish: dict[str, Any] = {"seats": [f"A-{n % 3 + 1}-{turn % 5 + 1}"]} if n % 2 else {}
            made = await still.reserve(f"fan-{n}", **wish, ga_section="GA1", ga_quantity=1)
            if made.status_code != 201:
                continue
            reservation_id = made.json()["reservation_id"]
            if turn % 4 == 3:
                await still.step("begin-payment", reservation_id, f"order-{n}-{turn}")
                await still.step("confirm", reservation_id, f"order-{n}-{turn}")
            else:
                await still.mine("DELETE", reservation_id, f"fan-{n}")
        done[n] += 100

    async def look() -> list[ReconcilePass]:
        said: list[ReconcilePass] = []
        while min(done.values(), default=0) < 100:
            said.append(await reconciled(still, times=1))
            await wait_until(_everybody_got_on(done), timeout_s=20)
        return said

    looking = asyncio.create_task(look())
    await asyncio.gather(*(fan(n) for n in range(24)))
    said = await looking
    assert len(said) >= 4
    assert sum(each.differences for each in said) > 0, "nothing was ever on its way: this proves nothing"
    assert [each for each in said if each.old] == []
    assert await still.broken() == []


async def test_drift_is_healed_while_fans_go_on_buying(still: Inventory) -> None:
    """The counts never stand still, and yet what is wrong with them is seen, and corrected by as much as it is off."""
    big = event_file(tickets_per_customer=0)
    big["sections"][2]["capacity"] = 500
    await still.put(big)
    await still.state.redis_monitor.check()
    await still.state.redis_stock.redis.hincrby(KEYS.counts, "GA1:available", 5)
    await sql(still, "UPDATE inventory.section SET seats_remaining = seats_remaining - 4 WHERE section_id = 'GA1' "
              "AND event_id = :event_id")  # fmt: skip
    over, done = asyncio.Event(), Counter[int]()

    async def fan(n: int) -> None:
        while not over.is_set():
            done[n] += 1
            made = await still.reserve(f"fan-{n}", ga_section="GA1", ga_quantity=1)
            if made.status_code == 201:
                await still.mine("DELETE", made.json()["reservation_id"], f"fan-{n}")

    fans = [asyncio.create_task(fan(n)) for n in range(8)]
    corrected = 0
    for _ in range(20):  # a section that sells is tried for a moment in each look, and may be in somebody's hands
        corrected += (await reconciled(still, times=1)).corrected
        if corrected >= 2:
            break
        await wait_until(_everybody_got_on(done), timeout_s=20)
    over.set()
    await asyncio.gather(*fans)
    assert corrected == 2
    assert await still.left("GA1") == (500, 0)
    assert await still.broken() == []
