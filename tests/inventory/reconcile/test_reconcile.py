"""Reconciliation: the database against itself and Redis, by concurrent reconcilers, during concurrent sales and with
many buyers; and the invariants, which each fault violates that is written to the database on purpose.
"""

import asyncio
import tracemalloc
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any
from unittest.mock import AsyncMock

import pytest
from sqlalchemy import text

from services.inventory.reconcile import reconciler, redis_diff
from services.inventory.reconcile.reconciler import Reconciler
from services.inventory.reconcile.redis_diff import StockComparison, compare_stock, differences, read_redis_stock
from services.inventory.redis_keys import Keys
from services.inventory.reservations.partial_release import keep_only
from services.inventory.store import repair
from services.inventory.store.drift import Drift, SeatRow
from services.inventory.store.snapshot import EACH_HOLDER, read_stock
from shared.contracts.admin.inventory import ReconcilePass
from shared.redis.client import REDIS_AWAY
from tests.inventory.actions import buy, put_large_event, rebuild, reconcile, second_reconciler, sell, sql, usage
from tests.inventory.conftest import EVENT, Inventory
from tests.support.wait import wait_until

KEYS = Keys.of(EVENT)
ADD_DRIFT = "UPDATE inventory.section SET seats_remaining = seats_remaining - 3 WHERE event_id = :event_id"
REMAINING = "SELECT section_id, seats_remaining FROM inventory.section WHERE event_id = :event_id ORDER BY section_id"
FIRST_SEAT = "event_id = :event_id AND section_id = 'A' AND position = 0"
FREE_FIRST_SEAT = f"UPDATE inventory.seat SET status = 'available', reservation_id = NULL WHERE {FIRST_SEAT}"
SEATS = (
    "SELECT position, status, reservation_id FROM inventory.seat WHERE event_id = :event_id AND section_id = 'A' "
    "AND position < 3 ORDER BY position"
)


@pytest.mark.parametrize("change", ["block", "return", "partial release"])
async def test_a_change_that_redis_missed_is_applied(
    inventory: Inventory, monkeypatch: pytest.MonkeyPatch, change: str
) -> None:
    redis_stock = inventory.state.redis_stock
    held = await inventory.hold("fan", seats=["A-1-1", "A-1-2"], ga_section="GA1", ga_quantity=3)
    if change == "return":
        await buy(inventory, held, "order-1")
    before = await redis_stock.redis.hgetall(KEYS.counts)
    with monkeypatch.context() as lossy:
        lossy.setattr(redis_stock, "follow", AsyncMock(side_effect=REDIS_AWAY[0]))
        if change == "block":
            ga = [{"section_id": "GA1", "quantity": 3}]
            assert (await inventory.operate("POST", "/seats/block", seats=["A-2-1"], ga=ga)).is_success
        elif change == "return":
            steps = [{"reservation_id": held, "order_reference": "order-1"}]
            await inventory.post_internal("/reservations/returns", {"steps": steps, "reason": "refunded"})
        else:
            layout = inventory.state.catalogue.layout(EVENT)
            await keep_only(inventory.state.db, redis_stock, layout, held, ["A-1-1"], {("GA1", ""): 1})
    assert await redis_stock.redis.hgetall(KEYS.counts) == before
    assert (await reconcile(inventory, times=3)).differences == 0
    left = {"block": ((12, 2), (14, 3)), "return": ((15, 0), (20, 0)), "partial release": ((14, 1), (19, 1))}
    assert (await inventory.redis_counts("A"), await inventory.redis_counts("GA1")) == left[change]
    assert await inventory.violations() == []


@pytest.mark.parametrize("change", ["block", "sale"])
async def test_a_change_that_redis_missed_is_looked_for_in_seconds(
    inventory: Inventory, monkeypatch: pytest.MonkeyPatch, change: str
) -> None:
    state, now_s = inventory.state, [10.0]
    watching = Reconciler(
        state.db, state.redis_stock, state.catalogue, ready_since_s={EVENT: 0}, interval_s=60, clock=lambda: now_s[0]
    )
    held = await inventory.hold("fan", seats=["A-1-1"])
    await watching.run_once()
    with monkeypatch.context() as lossy:
        lossy.setattr(state.redis_stock, "follow", AsyncMock(side_effect=REDIS_AWAY[0]))
        if change == "block":
            assert (await inventory.operate("POST", "/seats/block", seats=["A-2-1"])).is_success
        else:
            await buy(inventory, held, "order-1")
    assert await inventory.violations() != []
    for now_s[0] in (16, 22):
        await watching.run_once()
    assert await inventory.violations() == []
    for now_s[0] in (28, 34):
        await watching.run_once()
    assert watching._last_pass[EVENT].started_s == 22, "nothing differs, so the next pass is a minute later"


async def test_comparisons_take_a_tenth_of_the_time_at_most_while_anything_differs(
    inventory: Inventory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While it sells a few changes are always under way."""
    state, now_s, took_s = inventory.state, [10.0], 2.0
    watching = Reconciler(
        state.db, state.redis_stock, state.catalogue, ready_since_s={EVENT: 0}, interval_s=60, clock=lambda: now_s[0]
    )

    async def slow_comparison(*args: Any, **options: Any) -> StockComparison:
        now_s[0] += took_s
        return await compare_stock(*args, **options)

    monkeypatch.setattr(reconciler, "compare_stock", slow_comparison)
    await state.redis_stock.redis.hset(KEYS.usage, "t:nobody", "1")
    await watching.run_once()
    now_s[0] = 10 + 9.9 * took_s
    await watching.run_once()
    assert watching._last_pass[EVENT].started_s == 10
    now_s[0] = 10 + 10 * took_s
    await watching.run_once()
    assert watching._last_pass[EVENT].started_s == 30
    assert await inventory.violations() == []


async def remaining(inventory: Inventory) -> dict[str, int]:
    return {row.section_id: row.seats_remaining for row in await sql(inventory, REMAINING)}


async def test_the_database_is_corrected_from_its_live_reservations(inventory: Inventory) -> None:
    """The faults: a wrong counter, a sold seat without its buyer, and a seat held by an unknown reservation."""
    buyer = await sell(inventory, "buyer", seats=["A-1-1"], ga_section="GA1", ga_quantity=2)
    await sql(
        inventory, ADD_DRIFT, FREE_FIRST_SEAT,
        "UPDATE inventory.seat SET status = 'held', reservation_id = 'nobody' "
        "WHERE event_id = :event_id AND section_id = 'A' AND position = 1",
    )  # fmt: skip
    first = await reconcile(inventory, times=1)
    assert (first.corrected, (await remaining(inventory))["GA1"]) == (0, 15), "one pass corrects nothing"
    result = await reconcile(inventory, times=1)
    assert result.corrected >= 5
    assert await remaining(inventory) == {"A": 14, "B": 8, "GA1": 18}
    assert [tuple(row) for row in await sql(inventory, SEATS)] == [
        (0, "sold", buyer), (1, "available", None), (2, "available", None)
    ]  # fmt: skip
    assert (await reconcile(inventory, times=1)).differences == 0
    assert await inventory.violations() == []
    found = (await inventory.admin("GET", f"/events/{EVENT}/reconcile"))["found"]
    assert {row["done"] for row in found} == {"corrected"}
    assert all(row["since"] < row["done_at"] for row in found)
    assert {"database-remaining GA1", "database-seat A 0"} <= {row["what"] for row in found}


async def test_concurrent_reconcilers_correct_everything_once(inventory: Inventory) -> None:
    """Three reconcilers have found the same drift for long enough and correct it concurrently."""
    await sell(inventory, "buyer", ga_section="GA1", ga_quantity=2)
    await sql(inventory, ADD_DRIFT)
    await inventory.state.redis_stock.redis.hincrby(KEYS.counts, "GA1:available", 7)
    reconcilers = [inventory.state.reconciler, second_reconciler(inventory), second_reconciler(inventory)]
    await asyncio.gather(*(reconcile(inventory, each, times=1) for each in reconcilers))
    results = await asyncio.gather(*(reconcile(inventory, each, times=1) for each in reconcilers))
    assert sum(result.corrected for result in results) == 4, "three counters of the database and one of Redis"
    assert await inventory.counts("GA1") == (18, 0)
    assert (await remaining(inventory))["GA1"] == 18
    assert [(await reconcile(inventory, each, times=1)).differences for each in reconcilers] == [0, 0, 0]


async def _inconsistencies(inventory: Inventory) -> list[Drift]:
    return list(repair.inconsistencies(await read_stock(inventory.state.db, EVENT, check=True)))


async def test_section_counters_are_checked_against_seats_and_tickets(inventory: Inventory) -> None:
    await sell(inventory, "buyer", ga_section="GA1", ga_quantity=2)
    await sql(
        inventory,
        "UPDATE inventory.section SET overbooked_accepted = 3 WHERE event_id = :event_id AND section_id = 'GA1'",
    )
    assert await _inconsistencies(inventory) == [], "honoured oversold tickets are no inconsistency"
    await sql(inventory, "UPDATE inventory.section SET blocked = 1 WHERE event_id = :event_id AND section_id = 'A'")
    assert await _inconsistencies(inventory) == [Drift("database-blocked", "A", None, 1, 0)]


@pytest.mark.parametrize("begun", [True, False])
async def test_a_disputed_seat_goes_to_the_buyer_then_the_payer_then_the_older_hold(
    inventory: Inventory, begun: bool
) -> None:
    """Three reservations claim the seat, and the seat row names none of them."""
    older, paying = [
        await inventory.hold(name, seats=[seat]) for name, seat in (("older", "A-1-2"), ("paying", "A-1-3"))
    ]
    if begun:
        assert await inventory.outcome("begin-payment", paying, "order-paying") == "done"
    await sql(
        inventory,
        "UPDATE inventory.reservation_seat SET position = 0 WHERE reservation_id = ANY(:ids)",
        "UPDATE inventory.seat SET status = 'available', reservation_id = NULL WHERE reservation_id = ANY(:ids)",
        ids=[older, paying],
    )
    assert _owner_of_first_seat(await _inconsistencies(inventory)) == SeatRow("held", paying if begun else older)
    bought = await sell(inventory, "buyer", seats=["A-1-4"])
    await sql(
        inventory,
        "UPDATE inventory.reservation_seat SET position = 0 WHERE reservation_id = :bought",
        f"UPDATE inventory.seat SET status = 'held', reservation_id = :older WHERE {FIRST_SEAT} AND :bought <> ''",
        bought=bought, older=older,
    )  # fmt: skip
    assert _owner_of_first_seat(await _inconsistencies(inventory)) == SeatRow("sold", bought)


def _owner_of_first_seat(found: list[Drift]) -> object:
    return next(drift.expected for drift in found if drift[:3] == ("database-seat", "A", 0))


@asynccontextmanager
async def locked_section(inventory: Inventory, section_id: str) -> AsyncIterator[None]:
    """A sale has locked this section."""
    lock = text("SELECT 1 FROM inventory.section WHERE event_id = :e AND section_id = :s FOR UPDATE")
    async with inventory.state.db.begin() as sale:
        await sale.execute(lock, {"e": EVENT, "s": section_id})
        yield


async def test_a_locked_row_is_left_for_the_next_pass(inventory: Inventory) -> None:
    """A repair neither waits for a sale nor makes a sale wait."""
    await sql(inventory, ADD_DRIFT)
    found = await _inconsistencies(inventory)
    async with locked_section(inventory, "GA1"), asyncio.timeout(3):
        repaired = await repair.repair(inventory.state.db, EVENT, found)
    assert repaired == {("A", -1), ("B", -1)}
    assert await repair.repair(inventory.state.db, EVENT, found) == {("GA1", -1)}
    assert await _inconsistencies(inventory) == []


async def test_redis_is_not_corrected_while_the_database_contradicts_itself(inventory: Inventory) -> None:
    """A seat row lost its buyer, and its locked section prevents the repair: Redis, which is right, stays unchanged."""
    await sell(inventory, "buyer", seats=["A-1-1"])
    await sql(inventory, FREE_FIRST_SEAT)
    await reconcile(inventory, times=1)
    async with locked_section(inventory, "A"):
        await reconcile(inventory, times=1)
        assert await inventory.state.redis_stock.redis.getrange(KEYS.map + "A", 0, 0) == b"s"
    await reconcile(inventory, times=1)
    assert await inventory.violations() == []


async def test_a_hold_made_between_the_two_reads_is_no_drift_of_counts(inventory: Inventory) -> None:
    """A hold that is missing once may be in progress; missing for longer it is lost, and its tickets count as drift."""
    layout = inventory.state.catalogue.layout(EVENT)
    before = await read_redis_stock(inventory.state.redis_stock.redis, EVENT, layout, holders=EACH_HOLDER)
    reservation_id = await inventory.hold("fan", ga_section="GA1", ga_quantity=2)
    stock = await read_stock(inventory.state.db, EVENT)
    missing = Drift("hold", reservation_id, None, "missing", "there")
    assert set(differences(before, stock, lost=())) == {missing}
    assert set(differences(before, stock, lost={reservation_id})) == {
        missing, Drift("count", "GA1", "available", 2, 0), Drift("count", "GA1", "held", -2, 0),
        Drift("usage", "fan", None, 0, 2),
    }  # fmt: skip


async def test_a_row_that_changed_since_it_was_counted_is_not_overwritten(inventory: Inventory) -> None:
    await sql(inventory, ADD_DRIFT)
    async with inventory.state.db.begin() as connection:
        assert await repair.repair_sections(connection, EVENT, {"GA1": 41}) == {}
        assert await repair.repair_sections(connection, EVENT, {"GA1": 1}) == {"GA1": 3}


def _all_fans_proceed(done: Counter[int]) -> Callable[[], bool]:
    """A predicate: every fan has finished or made at least one more complete step than now."""
    before = done.copy()
    return lambda: len(done) >= 4 and all(n >= 100 or n > before[fan] + 1 for fan, n in done.items())


async def test_reconciliation_finds_no_false_drift_during_concurrent_sales(inventory: Inventory) -> None:
    """Fans hold, release and buy without a pause. Between two passes every fan makes a step or two, which stands for
    five seconds: every difference is a change in progress, and none may count as drift.
    """
    await put_large_event(inventory, capacity=1000)
    done = Counter[int]()

    async def fan(n: int) -> None:
        for attempt in range(12):
            done[n] += 1
            seats: dict[str, Any] = {"seats": [f"A-{n % 3 + 1}-{attempt % 5 + 1}"]} if n % 2 else {}
            holder = f"fan-{n}-{attempt}"  # who gives back and holds again at once is refused
            answer = await inventory.reserve(holder, **seats, ga_section="GA1", ga_quantity=1)
            if answer.status_code != 201:
                continue
            reservation_id = answer.json()["reservation_id"]
            if attempt % 4 == 3:
                await buy(inventory, reservation_id, f"order-{n}-{attempt}")
            else:
                await inventory.fan_request("DELETE", reservation_id, holder)
        done[n] += 100

    async def reconcile_repeatedly() -> list[ReconcilePass]:
        results: list[ReconcilePass] = []
        while min(done.values(), default=0) < 100:
            results.append(await reconcile(inventory, times=1))
            await wait_until(_all_fans_proceed(done))
        return results

    reconciling = asyncio.create_task(reconcile_repeatedly())
    await asyncio.gather(*(fan(n) for n in range(12)))
    results = await reconciling
    assert len(results) >= 4
    assert sum(result.differences for result in results) > 0, "a pass has met a change in progress"
    assert [result for result in results if result.old] == []
    assert await inventory.violations() == []


async def test_drift_is_corrected_during_concurrent_sales(inventory: Inventory) -> None:
    """The counts change all the time; their drift is found nevertheless, and corrected by its amount."""
    await put_large_event(inventory, capacity=500)
    await inventory.state.redis_stock.redis.hincrby(KEYS.counts, "GA1:available", 5)
    await sql(inventory, f"{ADD_DRIFT} AND section_id = 'GA1'")
    stopped, done = asyncio.Event(), Counter[int]()

    async def fan(n: int) -> None:
        while not stopped.is_set():
            done[n] += 1
            holder = f"fan-{n}-{done[n]}"  # who gives back and holds again at once is refused
            held = await inventory.hold(holder, ga_section="GA1", ga_quantity=1)
            await inventory.fan_request("DELETE", held, holder)

    fans = [asyncio.create_task(fan(n)) for n in range(4)]
    corrected = 0
    for _ in range(20):  # a pass skips a section that a sale has locked
        corrected += (await reconcile(inventory, times=1)).corrected
        if corrected >= 2:
            break
        await wait_until(_all_fans_proceed(done))
    stopped.set()
    await asyncio.gather(*fans)
    assert corrected == 2
    assert await inventory.counts("GA1") == (500, 0)
    assert await inventory.violations() == []


OWNER, AT_MOST_ONE = "7 confirmed ⇒ its seats are sold to it", "2 a seat has at most one live owner"
SEAT = "event_id = :event_id AND section_id = 'A' AND position = 0"
FAULTS = {
    "a buyer's seat is somebody else's": (
        f"UPDATE inventory.seat SET reservation_id = :held WHERE {SEAT}", {AT_MOST_ONE, OWNER}
    ),
    "a buyer's seat is only held": (f"UPDATE inventory.seat SET status = 'held' WHERE {SEAT}", {AT_MOST_ONE, OWNER}),
    "a buyer's seat is free": (
        f"UPDATE inventory.seat SET status = 'available', reservation_id = NULL WHERE {SEAT}", {AT_MOST_ONE, OWNER}
    ),
    "a seat is sold to a reservation that ended": (
        "UPDATE inventory.reservation SET status = 'refunded', confirmed_at = NULL WHERE reservation_id = :bought",
        {AT_MOST_ONE},
    ),
    "a seat is sold to a reservation without it": (
        "DELETE FROM inventory.reservation_seat WHERE reservation_id = :bought", {AT_MOST_ONE}
    ),
    "a seat is sold and held": (
        "INSERT INTO inventory.reservation_seat SELECT event_id, :held, section_id, position, unit_price_minor "
        "FROM inventory.reservation_seat WHERE reservation_id = :bought",
        {AT_MOST_ONE},
    ),
    "a seat is sold twice": (
        "INSERT INTO inventory.reservation_seat SELECT event_id, :twice, section_id, position, unit_price_minor "
        "FROM inventory.reservation_seat WHERE reservation_id = :bought",
        {AT_MOST_ONE, OWNER},
    ),
    "a sale has no order": (
        "UPDATE inventory.reservation SET order_reference = NULL WHERE reservation_id = :bought", {OWNER}
    ),
}  # fmt: skip


@pytest.mark.parametrize("fault", FAULTS)
async def test_every_fault_of_seat_ownership_breaks_its_invariant(inventory: Inventory, fault: str) -> None:
    bought = await sell(inventory, "buyer", seats=["A-1-1"])
    twice = await sell(inventory, "other", seats=["A-1-2"])
    held = await inventory.hold("holder", seats=["A-1-3"])
    assert await inventory.violations() == []
    statement, invariants = FAULTS[fault]
    named = {"bought": bought, "twice": twice, "held": held}
    await sql(inventory, statement, **{name: value for name, value in named.items() if f":{name}" in statement})
    violated = {violation["invariant"]: violation["detail"] for violation in await inventory.violations()}
    assert {name for name in violated if name[:2] in ("2 ", "7 ")} == invariants
    if AT_MOST_ONE in violated:
        assert violated[AT_MOST_ONE].startswith("1 violated: A:0 "), violated


MORE = "generate_series(CAST(:bought AS int) + 1, CAST(:more AS int)) AS n"
HOLDER = "translate(encode(substr(sha256(CAST('h' || n AS bytea)), 1, 24), 'base64'), '+/', '-_')"  # as of a real fan
BUY = (
    "INSERT INTO inventory.reservation (event_id, reservation_id, holder, total_minor, currency, status, "
    "order_reference, reserved_until_ms, fingerprint, confirmed_at) SELECT :event_id, md5('r' || n), "
    f"{HOLDER}, 1, 'EUR', 'confirmed', 'order-' || n, 0, 'stock.body', now() FROM {MORE}"
)
BUY_GA = (
    "INSERT INTO inventory.reservation_ga (event_id, reservation_id, section_id, quantity, unit_price_minor) "
    f"SELECT :event_id, md5('r' || n), 'GA1', 1, 1 FROM {MORE}"
)
REVOKE = (
    "INSERT INTO inventory.revoked_pass (event_id, jti, expires_at_ms) SELECT :event_id, md5('p' || n), "
    f"(extract(epoch FROM now()) * 1000)::bigint + 600000 FROM {MORE}"
)
LOWER = (
    "UPDATE inventory.section SET seats_remaining = seats_remaining - (SELECT count(*) FROM "
    f"{MORE}) WHERE event_id = :event_id AND section_id = 'GA1'"
)


async def buy_up_to(inventory: Inventory, more: int, *, bought: int = 0) -> None:
    """As many fans have bought a ticket each as `more`, of whom `bought` had one before; their passes are revoked."""
    await sql(inventory, BUY, BUY_GA, REVOKE, LOWER, bought=bought, more=more)
    await rebuild(inventory)


async def peak_of_a_comparison(inventory: Inventory, *, differing: int) -> int:
    """The most bytes that Python had at a time, beyond those before: the least of three, as one may prepare its
    statements.
    """
    peaks = []
    for _ in range(3):
        tracemalloc.start()
        try:
            before, _ = tracemalloc.get_traced_memory()
            assert len((await compared(inventory)).drift) == differing
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        peaks.append(peak - before)
    return min(peaks)


async def compared(inventory: Inventory) -> StockComparison:
    """Both stocks as they are now."""
    return await compare_stock(
        inventory.state.db, inventory.state.redis_stock.redis, inventory.state.catalogue.layout(EVENT)
    )


@pytest.mark.proof
@pytest.mark.parametrize("differing", [1, 0])
async def test_the_memory_of_a_comparison_does_not_grow_with_the_buyers(inventory: Inventory, differing: int) -> None:
    """Also if somebody's tickets differ, as they do for a moment nearly always while it sells."""
    peaks = []
    await put_large_event(inventory, capacity=100_000)
    for bought, more in ((0, 10_000), (10_000, 60_000)):
        await buy_up_to(inventory, more, bought=bought)
        if differing:
            await inventory.state.redis_stock.redis.hset(KEYS.usage, "t:nobody", "1")
        peaks.append(await peak_of_a_comparison(inventory, differing=differing))
    few, many = peaks
    assert many < 1.3 * few, (few, many)


@pytest.mark.parametrize("buyers", [200, pytest.param(5_000, marks=pytest.mark.proof)])
async def test_holders_whose_tickets_differ_are_found_by_name(inventory: Inventory, buyers: int) -> None:
    """Among thousands some are in the same groups."""
    await put_large_event(inventory, capacity=100_000)
    await buy_up_to(inventory, buyers)
    [(holder,)] = await sql(inventory, "SELECT min(holder) FROM inventory.reservation WHERE event_id = :event_id")
    await inventory.state.redis_stock.redis.hset(KEYS.usage, mapping={f"t:{holder}": 3, "t:nobody": 4})
    assert set((await compared(inventory)).drift) == {
        Drift("usage", holder, None, 3, 1),
        Drift("usage", "nobody", None, 4, 0),
    }
    assert (await reconcile(inventory)).corrected == 2
    assert [(await usage(inventory, name))[0] for name in (holder, "nobody")] == [1, 0]
    assert await inventory.violations() == []


@pytest.mark.parametrize("change", ["begins", "ends"])
async def test_a_hold_that_changes_while_tickets_are_counted_is_no_drift(
    inventory: Inventory, monkeypatch: pytest.MonkeyPatch, change: str
) -> None:
    """It is in the holds and not in the tickets that were counted, or the other way round."""
    fans = [f"{n}-fan" for n in range(3)]
    held = {fan: await inventory.hold(fan, ga_section="GA1", ga_quantity=1) for fan in fans if change == "ends"}
    count = redis_diff._usage

    async def meanwhile(*args: Any) -> Counter[str]:
        counted, fan = await count(*args), fans.pop()
        if held:
            assert (await inventory.fan_request("DELETE", held[fan], fan)).is_success
        else:
            await inventory.hold(fan, ga_section="GA1", ga_quantity=1)
        return counted

    monkeypatch.setattr(redis_diff, "_usage", meanwhile)
    assert (await compared(inventory)).drift == []
