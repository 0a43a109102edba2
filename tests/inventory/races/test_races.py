"""Concurrent steps on one hold: exactly one succeeds."""

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import pytest

from services.inventory.reservations.expiry import cancel_holds
from services.inventory.store import reservations
from services.inventory.store.reservations import Key, ReservationRow, read_reservations
from tests.inventory.actions import sql
from tests.inventory.conftest import EVENT, Inventory
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
