"""Inventory's requests to orders get the same answers from orders and from its double in the tests of inventory.
Tombstones: a hold is bound to one order, and an order that was never written cannot be written any more.
"""

import asyncio
from contextlib import asynccontextmanager

import httpx
import pytest
from sqlalchemy import select

from services.orders.store.store import write_tombstone
from services.orders.tables import open_order, order
from shared.contracts.inventory import PaymentSteps
from shared.contracts.orders import OrdersClient, PaymentRef
from shared.rpc import ServiceClient
from shared.web.app import internal
from tests.contracts.internal_calls import call_internal, client_of
from tests.inventory.conftest import ORDER_ANSWERS, Orders
from tests.orders.shop import Shop, reference_of
from tests.support.neighbours import Call
from tests.support.running.suite import problem
from tests.support.wait import wait_until


async def order_in_state(shop: Shop, state: str) -> PaymentRef:
    total_minor = 0 if state == "free" else 6800
    reservation_id = await shop.inventory.hold(total_minor=total_minor)
    if state == "unknown":
        return PaymentRef(reservation_id=reservation_id, order_reference="N0B0DY0000")
    method = {"pending": "redirect", "cancelled": "decline"}.get(state, "ok")
    payment = {"return_url": "http://shop/o/back"} if state == "pending" else {}
    reference = await shop.order_of(reservation_id, method=method, total_minor=total_minor, **payment)
    if state == "cancelled":
        await shop.expire(reference)
    await shop.wait_for_status(reference, {"pending": "pending", "cancelled": "expired"}.get(state, "confirmed"))
    return PaymentRef(reservation_id=reservation_id, order_reference=reference)


@pytest.mark.parametrize("state", ORDER_ANSWERS)
async def test_orders_and_its_double_answer_inventory_alike(state: str, shop: Shop) -> None:
    ref, double = await order_in_state(shop, state), Orders()
    double.states[ref.order_reference] = state
    async with client_of(internal(shop.app)) as client:
        refs = [ref.model_dump()]
        payments = await call_internal(client, "/reservations/status", payments=refs)
        refunds = [await call_internal(client, "/orders/refund", refunds=refs, reason="oversell") for _ in range(2)]
    assert payments == (200, (await double.payments([ref])).model_dump())
    assert refunds == [(200, (await double.refund([ref], reason="oversell")).model_dump())] * 2
    if state == "sold":
        await shop.wait_for_status(ref.order_reference, "refunded")


NEVER_WRITTEN = "NEVERMADE000"


async def test_a_hold_of_an_order_that_was_never_written_is_taken_over(shop):
    reservation = await shop.inventory.hold()
    await shop.inventory.begin(reservation, NEVER_WRITTEN)
    reference = await shop.order_of(reservation)
    await shop.wait_until_settled(reference, "confirmed")
    [ended] = shop.inventory.neighbour.received("/reservations/end-payment", PaymentSteps)
    assert [step.order_reference for step in ended.steps] == [NEVER_WRITTEN]
    assert await _status(shop, NEVER_WRITTEN) == "tombstone"


async def test_a_hold_of_an_existing_order_is_not_taken_over(shop):
    reservation = await shop.inventory.hold()
    await shop.order_of(reservation, method="redirect")
    answer = await shop.post(shop.body(reservation), key="another")
    assert problem(answer) == (409, "payment-in-progress")
    assert "end-payment" not in shop.inventory.steps


async def test_an_order_cannot_be_written_after_its_tombstone(shop):
    """The tombstone is written between the order's step at inventory and its own transaction."""
    reservation = await shop.inventory.hold()
    tombstoned = reference_of(shop, reservation, "a-key")

    async def tombstone_first(call: Call) -> None:
        if call.path == "/reservations/begin-payment":
            shop.inventory.neighbour.on_call = None
            assert await write_tombstone(shop.state.db, tombstoned)

    shop.inventory.neighbour.on_call = tombstone_first
    answer = await shop.post(shop.body(reservation))
    assert problem(answer) == (409, "reservation-taken")
    assert await shop.inventory.status(reservation) == "pending_payment"
    reference = await shop.order_of(reservation)
    assert reference != tombstoned
    await shop.wait_until_settled(reference, "confirmed")


async def test_the_payment_of_another_reservation_is_dead_and_that_of_an_unknown_order_absent(shop):
    """Orders in other states are above."""
    reservation = await shop.inventory.hold()
    live = await shop.order_of(reservation, method="redirect")
    payments = {(reservation, live): "live", ("another", live): "dead", ("gone", NEVER_WRITTEN): "absent"}
    async with _orders_client(shop) as orders:
        refs = [PaymentRef(reservation_id=held, order_reference=reference) for held, reference in payments]
        assert (await orders.payments(refs)).payments == list(payments.values())
        frames = (await orders.read([live, NEVER_WRITTEN])).orders
    assert frames[0].reference == live
    assert frames[0].body["status"] == frames[0].status == "pending"
    assert frames[1] is None
    assert await _status(shop, NEVER_WRITTEN) == "tombstone"


async def test_a_payment_status_waits_for_the_statement_that_writes_the_order(processes):
    """While the order is being written, the payment status waits for it and then finds the order."""
    shop = await processes.open(lock_timeout_ms=10_000)
    reservation = await shop.inventory.hold()
    reference = reference_of(shop, reservation, "a-key")
    ref = PaymentRef(reservation_id=reservation, order_reference=reference)
    async with shop.state.db.connect() as other, _orders_client(shop) as orders:
        row = {"reference": reference, "event_id": "e", "join_seq": 1, "owner": "another"}
        await other.execute(open_order.insert().values(row))  # what the statement writes last waits for this
        posting = asyncio.create_task(shop.post(shop.body(reservation)))
        await wait_until(lambda: _waiting_for_a_lock(shop))
        request = asyncio.create_task(orders.payments([ref]))
        await wait_until(lambda: _waiting_for_a_lock(shop, 2))
        assert not request.done()
        await other.rollback()
        assert (await request).payments == ["live"]
    assert (await posting).status_code == 202
    assert await _status(shop, reference) != "tombstone"


async def test_internal_endpoints_need_a_service_signature(shop):
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app=internal(shop.app)), base_url="http://in") as http:
        for path in ("/internal/reservations/status", "/internal/orders/read"):
            assert (await http.post(path, json={})).status_code == 401
            assert (await shop.http.post(path, json={})).status_code == 404


async def _waiting_for_a_lock(shop, n=1):
    waiting = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
    return await shop.scalar(waiting) == n


@asynccontextmanager
async def _orders_client(shop):
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app=internal(shop.app))) as http:
        yield OrdersClient(ServiceClient(http, "http://inside", shop.settings.service_keys, name="orders"))


async def _status(shop, reference):
    return await shop.scalar(select(order.c.status).where(order.c.reference == reference))
