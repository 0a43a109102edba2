"""The orders process is killed and frozen in the middle of purchases: everybody is charged once and has what they paid
for, by both books.
"""

import asyncio
import signal
from functools import partial
from typing import Any

import asyncpg
import httpx

from onsale.local.ports import free_port
from tests.drills.crowd import PatientFan, insist
from tests.drills.fleet import HOST, Fleet, Program, until
from tests.support.wait import wait_until

ROOM = {"rate_per_s": 50, "burst": 20, "max_active": 100}
FLOOR = [{"section_id": "GA", "name": "Floor", "kind": "ga", "capacity": 100, "price_minor": 3000}]
METHODS = ("ok", "slow", "double_success", "duplicate_webhooks", "error_then_ok", "ok")
FANS, KILLS = 8, 2
COUNT = 'SELECT count(*) FROM orders."order" WHERE event_id = $1'
LEASE_ENDS = "UPDATE orders.\"order\" SET lease_until = now() - interval '1 second' WHERE lease IS NOT NULL"


async def test_orders_are_killed_again_and_again_in_the_middle_of_purchases(
    fleet: Fleet, ledger: asyncpg.Connection
) -> None:
    """`kill -9` while payments of every kind are under way. Nobody gives up, and nobody pays twice."""
    event_id = await fleet.open_event(room=ROOM, sections=FLOOR)
    async with fleet.browser() as browser:

        async def live(number: int) -> dict[str, Any]:
            fan = await PatientFan(browser, event_id).come_in()
            return await fan.buys(METHODS[number % len(METHODS)], ga=[{"section_id": "GA", "quantity": 1}])

        buying = asyncio.gather(*(live(number) for number in range(FANS)))
        for kill in range(1, KILLS + 1):
            await wait_until(partial(_more_than, ledger, kill * FANS // (KILLS + 2), event_id), timeout_s=60)
            await fleet.restart("orders", signal.SIGKILL)
        bought = await buying
    assert [order["status"] for order in bought] == ["confirmed"] * FANS
    await wait_until(lambda: _books_agree(fleet, event_id), timeout_s=30, interval_s=0.3)
    for order in bought:
        kept = [c for c in await _charges(fleet, order["reference"]) if c["captured_minor"] > c["refunded_minor"]]
        assert [charge["captured_minor"] for charge in kept] == [order["total_minor"]]
    await wait_until(lambda: fleet.is_clean(event_id), timeout_s=15, interval_s=0.3)


async def test_a_worker_frozen_past_its_lease_does_not_charge_again(fleet: Fleet, ledger: asyncpg.Connection) -> None:
    """It is frozen while it waits for the provider, which has charged already; another process takes the order over and
    finishes it; then it wakes up with the answer in its hands.
    """
    event_id = await fleet.open_event(room=ROOM, sections=FLOOR)
    sandbox_url = fleet.urls["sandbox"]
    other, port = _another_orders(fleet)
    async with fleet.browser() as browser, httpx.AsyncClient(base_url=sandbox_url) as sandbox:
        fan = await PatientFan(browser, event_id).come_in()
        reservation = await fan.hold(ga=[{"section_id": "GA", "quantity": 1}])
        assert (await sandbox.post("/control", json={"latency_s": 3.0})).is_success
        try:
            reference = (await fan.order(reservation)).json()["reference"]
            await wait_until(lambda: _charges(fleet, reference), timeout_s=10)
            fleet.programs["orders"].send(signal.SIGSTOP)
            assert (
                await ledger.fetchval('SELECT status FROM orders."order" WHERE reference = $1', reference) == "pending"
            )
            assert (await sandbox.post("/control", json={"latency_s": 0.0})).is_success
            await ledger.execute(LEASE_ENDS)  # as it does after a while
            other.start()
            await asyncio.to_thread(until, lambda: httpx.get(f"http://{HOST}:{port}/readyz").is_success, what="orders")
            await wait_until(lambda: _is(ledger, reference, "confirmed"), timeout_s=20)
        finally:
            fleet.programs["orders"].send(signal.SIGCONT)
            await asyncio.to_thread(other.end, signal.SIGTERM)
            await sandbox.post("/control", json={"latency_s": 0.0})
        status = await insist(lambda: fan.ending({"reference": reference, "order_token": fan.admission}))
        assert status["status"] == "confirmed"
    [charge] = await _charges(fleet, reference)
    assert (charge["captured_minor"], charge["refunded_minor"]) == (status["total_minor"], 0)
    await wait_until(lambda: _books_agree(fleet, event_id), timeout_s=15, interval_s=0.3)
    await wait_until(lambda: fleet.is_clean(event_id), timeout_s=15, interval_s=0.3)


def _another_orders(fleet: Fleet) -> tuple[Program, int]:
    """A second process of the service on the same ledger, not yet started, and its port."""
    port = free_port()
    env = fleet.programs["orders"].env | {"ORDERS_PORT": str(port), "ORDERS_INTERNAL_PORT": str(free_port())}
    return Program(fleet.programs["orders"].command, fleet.data_dir / "orders-2.log", env=env), port


async def _charges(fleet: Fleet, reference: str | None = None) -> list[dict[str, Any]]:
    params = {"limit": "1000"} | ({"reference": reference} if reference else {})
    async with httpx.AsyncClient() as client:
        return list((await client.get(f"{fleet.urls['sandbox']}/charges", params=params)).json()["charges"])


async def _books_agree(fleet: Fleet, event_id: str) -> bool:
    """Charge by charge: what was taken and what went back."""
    async with fleet.operator() as operator:
        ours = (await operator.get(f"/admin/orders/events/{event_id}/charges")).json()["charges"]
    mine = {row["charge_ref"]: (row["charged_minor"], row["refunded_minor"]) for row in ours}
    references = {row["reference"] for row in ours}
    booked = [c for c in await _charges(fleet) if c["reference"] in references and c["captured_minor"]]
    theirs = {charge["id"]: (charge["captured_minor"], charge["refunded_minor"]) for charge in booked}
    return mine == theirs


async def _more_than(ledger: asyncpg.Connection, n: int, event_id: str) -> bool:
    return bool(await ledger.fetchval(COUNT, event_id) > n)


async def _is(ledger: asyncpg.Connection, reference: str, status: str) -> bool:
    return bool(await ledger.fetchval('SELECT status FROM orders."order" WHERE reference = $1', reference) == status)
