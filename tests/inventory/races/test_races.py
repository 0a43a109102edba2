"""What is fought over: concurrent steps on one hold, of which exactly one succeeds; six hundred concurrent clients, who
hold no stock twice and are refused no free stock; batches of one event and of several; a commit whose response is lost;
and an isolation level with which a service does not start.
"""

import asyncio
import random
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import suppress
from typing import Any

import pytest
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine

from services.inventory.reservations.expiry import cancel_holds
from services.inventory.reservations.reserve import CONTENTION_WINDOW_S, BatchSizer
from services.inventory.settings import Settings
from services.inventory.store import reservations
from services.inventory.store.reservations import Key, ReservationRow, read_reservations
from shared.concurrency.coalescing import GroupCommit
from shared.process.preconditions import Preconditions, WrongIsolation
from shared.redis.client import Redis
from tests.inventory.actions import sql
from tests.inventory.conftest import EVENT, SEAT_AND_GA, Inventory, event_file, settings_of, start
from tests.support.engines.tcp_proxy import TcpProxy
from tests.support.running.suite import problem


class ReadBarrier:
    """Two readers wait for each other, at most 0.2 s: a lock may keep the second one out."""

    def __init__(self) -> None:
        self._readers, self._both = 0, asyncio.Event()

    async def read(self, connection: Any, keys: Sequence[Key]) -> dict[str, ReservationRow]:
        rows = await read_reservations(connection, keys)
        self._readers += 1
        if self._readers == 2:
            self._both.set()
        with suppress(TimeoutError):
            await asyncio.wait_for(self._both.wait(), 0.2)
        return rows


async def test_one_of_a_concurrent_sale_and_release_succeeds(
    inventory: Inventory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The guard is the lock of the reservation. Without it both are decided on the same state: sold and released."""
    reservation_id = await inventory.hold()
    await inventory.step("begin-payment", reservation_id, "order-1")
    monkeypatch.setattr(reservations, "read_reservations", ReadBarrier().read)
    steps = (inventory.outcome(verb, reservation_id, "order-1") for verb in ("confirm", "release"))
    outcomes = sorted(await asyncio.gather(*steps))
    assert outcomes == ["done", "ended"]
    assert await inventory.violations() == []


async def test_concurrent_cancellations_release_a_hold_once(inventory: Inventory) -> None:
    """The guard: the database cancels only a pending hold. Without it, stock is released that another fan holds."""
    state = inventory.state
    for i, seat in enumerate([f"A-3-{n}" for n in range(1, 6)] + ["B-1-1"]):
        await inventory.hold(f"other-{i}", seats=[seat], ga_section="GA1", ga_quantity=2)
    reservation_id = await inventory.hold()
    cancellations = (
        cancel_holds(state.db, state.redis_stock, EVENT, [reservation_id], reason="cancelled", now_ms=0, actor="fan")
        for _ in range(10)
    )
    cancelled = [ids for ids in await asyncio.gather(*cancellations) if ids]
    assert len(cancelled) == 1
    assert await inventory.violations() == []
    assert (await inventory.counts("A"), await inventory.counts("GA1")) == ((10, 5), (8, 12))


async def test_concurrent_releases_by_fan_operator_order_and_deadline_release_a_hold_once(inventory: Inventory) -> None:
    state, reservation_id = inventory.state, await inventory.hold()
    inventory.travel(606_000)
    await asyncio.gather(
        inventory.fan_request("DELETE", reservation_id), inventory.fan_request("DELETE", reservation_id),
        inventory.admin("POST", f"/reservations/{reservation_id}/release", reason="a fan asked"),
        inventory.admin("POST", f"/events/{EVENT}/release-all", reason="the wrong prices"),
        inventory.step("release", reservation_id, "order-1"), state.expiry_worker.sweep(), state.expiry_worker.scan(),
    )  # fmt: skip
    assert (await inventory.counts("A"), await inventory.counts("GA1")) == ((15, 0), (20, 0))
    assert await inventory.violations(at_rest=True) == []
    assert len(await sql(inventory, "SELECT 1 FROM inventory.release_log")) == 2, "one row for each section"


async def test_one_of_five_concurrent_extensions_succeeds(inventory: Inventory) -> None:
    held = (await inventory.reserve(seats=["A-1-1"])).json()
    inventory.travel(300_000)
    extensions = (inventory.fan_request("POST", held["reservation_id"], more="/extend") for _ in range(5))
    answers = await asyncio.gather(*extensions)
    [longer] = [answer.json()["reserved_until"] for answer in answers if answer.status_code == 200]
    assert longer > held["reserved_until"]
    refused = {problem(answer) for answer in answers if answer.status_code != 200}
    assert refused == {(409, "already-extended")}


CLIENTS = 600


@pytest.fixture(autouse=True)
def nobody_is_refused_for_the_load(monkeypatch: pytest.MonkeyPatch) -> None:
    """However slow this machine is."""
    monkeypatch.setattr("shared.process.load.LEAST_MAX", CLIENTS)


async def put_on_sale(inventory: Inventory, **rows: int) -> None:
    """Sections with so many rows of ten seats, and a hundred GA tickets."""
    floor = {"section_id": "GA1", "name": "Floor", "kind": "ga", "capacity": 100, "price_minor": 3000}
    seated = {"kind": "seated", "seats_per_row": 10, "price_minor": 5000}
    sections = [{"section_id": name, "name": name, "rows": n, **seated} for name, n in rows.items()]
    assert (await inventory.put({**event_file(), "sections": [*sections, floor]})).is_success
    await inventory.state.redis_monitor.check()


async def test_six_hundred_mixed_selections_are_held_whole_or_not_at_all(inventory: Inventory) -> None:
    """Each selection has seats of two sections and GA tickets; every fifth takes the best available instead. Afterwards
    all free stock can be held, and all of it be released.
    """
    await put_on_sale(inventory, A=6, B=4)
    dice = random.Random(200)
    selections = [_mixed(dice) if i % 5 else _best(dice) for i in range(CLIENTS)]
    requests = (inventory.reserve(f"fan-{i}", **selection) for i, selection in enumerate(selections))
    answers = await asyncio.gather(*requests)
    assert {answer.status_code for answer in answers} == {201, 409}
    held = [
        (selection, answer.json()) for selection, answer in zip(selections, answers, strict=True) if answer.is_success
    ]
    seats = [seat for _, body in held for seat in body["seats"]]
    assert len(seats) == len(set(seats))
    for selection, body in held:
        if best := selection.get("best_available"):
            assert (len(body["seats"]), body["ga"]) == (best["quantity"], [])
        else:
            assert sorted(body["seats"]) == sorted(selection["seats"])
            assert body["ga_quantity"] == selection["ga_quantity"]
    seats_held = {section: sum(seat.startswith(section) for seat in seats) for section in "AB"}
    tickets_held = sum(body["ga_quantity"] for _, body in held)
    stock = await inventory.post_internal("/stock", {"event_id": EVENT})
    assert [s["held"] for s in stock["sections"]] == [seats_held["A"], seats_held["B"], tickets_held]
    assert await inventory.violations() == []
    await _all_free_stock_can_be_held(inventory, stock)
    assert (await inventory.admin("POST", f"/events/{EVENT}/release-all", reason="the wrong prices"))["released"] > len(
        held
    )
    free = [await inventory.redis_counts(section) for section in ("A", "B", "GA1")]
    assert (free, await inventory.violations()) == ([(60, 0), (40, 0), (100, 0)], [])


def _mixed(dice: random.Random) -> dict[str, Any]:
    seats = [f"A-{row}-{n}" for row in range(1, 7) for n in range(1, 11)]
    seats += [f"B-{row}-{n}" for row in range(1, 5) for n in range(1, 11)]
    return {"seats": dice.sample(seats, dice.randint(1, 4)), "ga_section": "GA1", "ga_quantity": dice.randint(1, 2)}


def _best(dice: random.Random) -> dict[str, Any]:
    return {"best_available": {"quantity": dice.randint(1, 3), "split": True, "section_id": "A"}}


async def _all_free_stock_can_be_held(inventory: Inventory, stock: dict[str, Any]) -> None:
    available = {s["section_id"]: s["available"] for s in stock["sections"]}
    selections: list[dict[str, Any]] = [{"ga_section": "GA1", "ga_quantity": 1}] * available["GA1"]
    for section in "AB":
        selections += [{"best_available": {"quantity": 1, "section_id": section}}] * available[section]
    late = (inventory.reserve(f"late-{i}", **selection) for i, selection in enumerate(selections))
    assert {answer.status_code for answer in await asyncio.gather(*late)} == {201}
    assert [await inventory.counts(section) for section in ("A", "B", "GA1")] == [(0, 60), (0, 40), (0, 100)]


LEVEL = "repeatable read"


@pytest.fixture
async def repeatable(postgres_url: str) -> AsyncIterator[AsyncEngine]:
    settings = {"server_settings": {"default_transaction_isolation": LEVEL}}
    db = create_async_engine(postgres_url, connect_args=settings)
    yield db
    await db.dispose()


async def test_inventory_neither_starts_nor_is_ready_with_another_isolation_level(
    settings: Settings, repeatable: AsyncEngine, redis: Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(WrongIsolation, match=f"{LEVEL.upper()}; it needs READ COMMITTED"):
        await Preconditions("inventory", settings, repeatable, redis).checks()["postgres"]()
    monkeypatch.setattr("services.inventory.app.postgres_engine.connect", lambda *_, **__: repeatable)
    with pytest.raises(WrongIsolation):
        await anext(start(settings))


def test_batches_are_smaller_while_several_events_sell() -> None:
    now_s = 100.0
    sizer = BatchSizer(batch_max=256, batch_max_contended=24, clock=lambda: now_s)
    assert [sizer.next_max(event_id) for event_id in ("hot", "hot", "quiet", "hot")] == [256, 256, 24, 24]
    now_s += CONTENTION_WINDOW_S / 2
    assert sizer.next_max("hot") == 24
    now_s += CONTENTION_WINDOW_S
    assert sizer.next_max("hot") == 256, "the other event has stopped selling"


async def test_a_batch_has_the_size_allowed_when_it_begins() -> None:
    sizes, allowed = [], iter((2, 3, 100))

    async def work(items: list[int]) -> list[int]:
        sizes.append(len(items))
        return items

    commit = GroupCommit(work, name="test", batch_max=lambda: next(allowed), waiting_max=100)
    assert await asyncio.gather(*(commit.submit(n) for n in range(10))) == list(range(10))
    assert sizes == [2, 3, 5]
    await commit.close()


@pytest.fixture
def wire(postgres_url: str) -> Iterator[TcpProxy]:
    with TcpProxy(postgres_url) as wire:
        yield wire


@pytest.fixture
def settings(redis_url: str, wire: TcpProxy) -> Settings:
    return settings_of(redis_url, wire.url)


async def test_a_retry_after_a_lost_commit_response_returns_the_same_hold(inventory: Inventory, wire: TcpProxy) -> None:
    wire.lose_next = 1
    unknown = await inventory.reserve("ann", key="key", **SEAT_AND_GA)
    assert (unknown.status_code, unknown.headers["retry-after"], wire.lost) == (503, "1", 1)
    retried = await inventory.hold("ann", key="key")
    assert (await inventory.reserve("ben", seats=["A-1-1"])).status_code == 409
    assert await inventory.counts("GA1") == (18, 2)
    assert await inventory.violations() == []
    read = await inventory.fan_request("GET", retried, "ann")
    assert read.json()["status"] == "pending_payment"
