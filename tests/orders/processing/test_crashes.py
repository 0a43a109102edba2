"""Workers that die or sleep at a failpoint: another worker continues from the database, and the money is right."""

import asyncio

import pytest

from services.orders.order.next_step import next_step
from services.orders.order.updates import Lease, LeaseLost, OrderUpdate
from tests.orders.shop import reference_of
from tests.orders.worker_killer import WorkerKiller
from tests.support.wait import wait_until

PAID_POINTS = (
    "before charge", "before the provider", "after the provider", "after charge", "before confirm", "after inventory",
    "after confirm",
)  # fmt: skip
PAID_TWICE_POINTS = (
    "before request_refund",
    "after request_refund",
    "before send_refund",
    "after the refund",
    "after send_refund",
)
REFUND_POINTS = (
    "before send_refund",
    "after the refund",
    "before return_tickets",
    "after the return",
    "after return_tickets",
)
PAID_LATE_POINTS = (
    "before cancel_charge", "after cancel_charge", "before expire", "after expire", "before release_hold",
    "after release_hold", "before mark_paid_late", "after mark_paid_late", "before reacquire_stock", "after inventory",
    "after reacquire_stock",
)  # fmt: skip


async def test_a_worker_killed_at_any_failpoint_is_replaced(processes):
    """One order for each failpoint, all at the same time; another worker finishes each."""
    killer = WorkerKiller()
    shop = await processes.open(failpoint=killer, webhooks=True)
    flows = [("ok", p) for p in PAID_POINTS] + [("double_success", p) for p in PAID_TWICE_POINTS]
    flows += [("success_after_cancel", p) for p in PAID_LATE_POINTS]

    async def flow(number: int, method: str, point: str) -> None:
        key = f"flow-{number}"
        reference = reference_of(shop, key)
        killer.points[reference] = point
        assert await shop.order_of(processes.holds.hold(), method=method, key=key) == reference
        if method == "success_after_cancel":
            await wait_until(lambda: shop.attempt_is(reference, "processing"))
            await shop.expire(reference)
        await wait_until(lambda: reference in killer.killed)
        await shop.expire_lease(reference)
        await shop.wait_until_settled(reference, "confirmed", "refunded", timeout_s=20)
        assert len(await shop.charges(reference)) == (2 if method == "double_success" else 1)

    await asyncio.gather(*(flow(number, *flow_case) for number, flow_case in enumerate(flows)))
    assert not killer.points, "every point was reached"
    assert await shop.violated_invariants() == {}
    assert await shop.money_entries() == await shop.provider_entries()


async def test_a_worker_killed_during_a_refund_refunds_once(processes):
    killer = WorkerKiller()
    shop = await processes.open(failpoint=killer)

    async def flow(point: str) -> None:
        reservation_id = processes.holds.hold()
        reference = await shop.order_of(reservation_id)
        await shop.wait_for_status(reference, "confirmed")
        killer.points[reference] = point
        assert (await shop.admin_post(f"{reference}/refund")).status_code == 202
        await wait_until(lambda: reference in killer.killed)
        await shop.expire_lease(reference)
        await shop.wait_for_status(reference, "refunded")
        assert (processes.holds.returned_tickets(reservation_id), await shop.net_minor(reference)) == (["GA1"], 0)

    await asyncio.gather(*map(flow, REFUND_POINTS))
    assert await shop.violated_invariants() == {}
    assert await shop.money_entries() == await shop.provider_entries()


async def test_a_worker_that_died_during_the_charge_leaves_the_attempt_unknown(processes):
    """A cancel request therefore reads the charge from the provider first, and finds it paid."""
    killer = WorkerKiller()
    shop = await processes.open(failpoint=killer)
    reference = reference_of(shop, "a-key")
    killer.points[reference] = "after the provider"
    await shop.post(shop.body(processes.holds.hold()))
    await wait_until(lambda: killer.killed)
    assert (await shop.cancel(reference)).status_code == 202
    await shop.expire_lease(reference)
    await shop.wait_until_settled(reference, "confirmed")
    assert "release" not in processes.holds.called_paths


async def test_a_worker_that_slept_past_its_lease_writes_nothing(processes):
    """It wakes up with the provider's response when another worker has the lease."""
    asleep, wake = asyncio.Event(), asyncio.Event()

    async def sleep(name: str, reference: str) -> None:
        if name == "after the provider" and not asleep.is_set():
            asleep.set()
            await wake.wait()

    shop = await processes.open(failpoint=sleep, post_end_sync_delays_s=(3600.0,))
    reference = await shop.order()
    await asleep.wait()
    await shop.expire_lease(reference)
    await shop.wait_until_settled(reference, "confirmed")
    await wait_until(lambda: len(shop.app.state.deps.worker_pool.queue.rows) == 1)  # only the one that sleeps
    version = (await shop.row(reference)).version
    wake.set()
    await shop.wait_until_idle()
    assert (await shop.row(reference)).version == version
    assert len(await shop.charges(reference)) == 1


async def test_stock_sold_by_a_stopped_worker_is_returned_if_the_order_ended(processes):
    """The worker stopped between inventory's confirmation and its own update; another worker ended the order unpaid."""
    shop = await processes.open()
    await shop.sandbox.post("/control", json={"down_for_s": 60})
    reservation_id = processes.holds.hold()
    reference = await shop.order_of(reservation_id)
    processes.holds.change(reservation_id, status="confirmed")
    assert (await shop.cancel(reference)).status_code in (200, 202)
    await shop.sandbox.post("/control", json={"down_for_s": 0})
    await shop.wait_for_status(reference, "cancelled")
    await wait_until(lambda: processes.holds.reservations[reservation_id].status == "returned")


async def test_an_update_without_the_lease_is_refused(shop):
    reference = await shop.order()
    await shop.wait_until_settled(reference, "confirmed")
    order = await shop.row(reference)
    with pytest.raises(LeaseLost):
        await shop.state.repository.write(OrderUpdate(Lease(reference, "nobody", 1.0), order))
    assert next_step(order, review_after_s=60) in ("wait", "sync_provider")
