"""A hold is bound to one order: an order that was never written gets a tombstone first, so that it cannot come late."""

import asyncio
from contextlib import asynccontextmanager

import httpx
from sqlalchemy import select

from services.orders.checkout.create_order import write_tombstone
from services.orders.order.customers import owner_id
from services.orders.order.references import order_reference
from services.orders.tables import order
from shared.contracts.inventory import PaymentStep
from shared.contracts.orders import OrdersClient, PaymentRef
from shared.rpc.client import ServiceClient
from shared.web.app import internal
from tests.orders.holds import EVENT
from tests.orders.shop import pass_of

GHOST = "GHQST0000000"


async def test_a_hold_of_an_order_that_never_came_is_taken_over(shop):
    reservation = shop.holds.hold()
    shop.holds.begin(PaymentStep(reservation_id=reservation, order_reference=GHOST))
    reference = await shop.order_of(reservation)
    await shop.settled(reference, "confirmed")
    assert ("end-payment", reservation, GHOST) in shop.holds.asked
    assert await _status(shop, GHOST) == "tombstone"


async def test_a_hold_of_a_real_order_is_not_taken_over(shop):
    reservation = shop.holds.hold()
    await shop.order_of(reservation, method="redirect")
    answer = await shop.post(shop.body(reservation), key="another")
    assert (answer.status_code, answer.json()["type"]) == (409, "/problems/payment-in-progress")
    assert "end-payment" not in {path for path, *_ in shop.holds.asked}


async def test_a_transaction_that_comes_after_its_tombstone_loses(shop):
    """The tombstone is written between the order's step at inventory and its own transaction."""
    reservation = shop.holds.hold()
    db = shop.app.state.deps.db
    buried: list[str] = []

    async def gate(path: str) -> None:
        if path == "begin-payment" and not buried:
            buried.append(order_reference(shop.settings.order_token_keys, owner_id(EVENT, "fan"), "a-key"))
            assert await write_tombstone(db, buried[0])

    shop.holds.gate = gate
    answer = await shop.post(shop.body(reservation))
    assert (answer.status_code, answer.json()["type"]) == (409, "/problems/reservation-taken")
    assert shop.holds.reservations[reservation].status == "pending_payment"
    reference = await shop.order_of(reservation)
    assert reference != buried[0]
    await shop.settled(reference, "confirmed")


async def test_inventory_learns_whether_a_payment_still_stands(shop):
    live = await shop.order(method="redirect")
    dead = await shop.order(method="redirect")
    held = {r.order_reference: r.reservation_id for r in shop.holds.reservations.values()}
    assert (await _cancel(shop, dead)).is_success
    await shop.settled(dead, "cancelled")
    async with _neighbour(shop) as orders:
        asked = [PaymentRef(reservation_id=held[r], order_reference=r) for r in (live, dead)]
        asked += [PaymentRef(reservation_id="gone", order_reference=GHOST)]
        asked += [PaymentRef(reservation_id="another", order_reference=live)]
        assert (await orders.payments(asked)).payments == ["live", "dead", "absent", "dead"]
        frames = (await orders.read([live, GHOST])).orders
    assert frames[0].reference == live
    assert frames[0].body["status"] == frames[0].status == "pending"
    assert frames[1] is None
    assert await _status(shop, GHOST) == "tombstone"


async def test_absent_is_said_only_once_the_late_transaction_has_lost(shop, monkeypatch):
    """While a transaction writes the order, the payment status waits for it and then finds the order."""
    reservation = shop.holds.hold()
    started, go_on = asyncio.Event(), asyncio.Event()
    jobs = shop.app.state.deps.job_queue
    accept = jobs.enqueue

    async def slow(connection, reference):
        started.set()
        await go_on.wait()
        await accept(connection, reference)

    monkeypatch.setattr(jobs, "enqueue", slow)
    posting = asyncio.create_task(shop.post(shop.body(reservation)))
    await started.wait()
    reference = shop.holds.reservations[reservation].order_reference
    async with _neighbour(shop) as orders:
        asked = PaymentRef(reservation_id=reservation, order_reference=reference)
        question = asyncio.create_task(orders.payments([asked]))
        done, _ = await asyncio.wait([question], timeout=0.2)
        assert not done
        go_on.set()
        assert (await question).payments == ["live"]
    assert (await posting).status_code == 202
    assert await _status(shop, reference) != "tombstone"


async def test_strangers_ask_nothing(shop):
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app=internal(shop.app)), base_url="http://in") as http:
        for path in ("/internal/reservations/status", "/internal/orders/read"):
            assert (await http.post(path, json={})).status_code == 401
            assert (await shop.http.post(path, json={})).status_code == 404


@asynccontextmanager
async def _neighbour(shop):
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app=internal(shop.app))) as http:
        yield OrdersClient(ServiceClient(http, "http://inside", shop.settings.service_keys, name="orders"))


async def _status(shop, reference):
    async with shop.app.state.deps.db.connect() as connection:
        return await connection.scalar(select(order.c.status).where(order.c.reference == reference))


async def _cancel(shop, reference):
    headers = {"authorization": f"Bearer {pass_of()}"}
    return await shop.http.post(f"/orders/{reference}/cancel", headers=headers)
