"""A worker may die anywhere: the rest follows from the rows, and the money is right in the end."""

import asyncio

from services.orders.order.next_step import next_step
from services.orders.order.updates import Lease, LeaseLost, OrderUpdate
from tests.orders.shop import pass_of, reference_of
from tests.support.wait import wait_until

PAID = (
    "before charge", "before the provider", "after the provider", "after charge", "before confirm", "after inventory",
    "after confirm",
)  # fmt: skip
TWICE_PAID = (
    "before request_refund",
    "after request_refund",
    "before send_refund",
    "after the refund",
    "after send_refund",
)
BACK = ("before send_refund", "after the refund", "before return_tickets", "after the return", "after return_tickets")
LATE = (
    "before cancel_charge", "after cancel_charge", "before expire", "after expire", "before release_hold",
    "after release_hold", "before mark_paid_late", "after mark_paid_late", "before reacquire_stock", "after inventory",
    "after reacquire_stock",
)  # fmt: skip


class Killer:
    """Kills an order's worker once, at the failpoint chosen for that order; its lease is not released."""

    def __init__(self) -> None:
        self.points: dict[str, str] = {}
        self.killed: set[str] = set()

    async def __call__(self, name: str, reference: str) -> None:
        if self.points.get(reference) == name:
            del self.points[reference]
            self.killed.add(reference)
            raise asyncio.CancelledError


async def test_a_worker_killed_at_any_point_of_any_flow_converges(processes):
    """One order for each failpoint, all at once; the next worker finishes each."""
    killer = Killer()
    shop = await processes.open(failpoint=killer, webhooks=True)
    flows = [("ok", p) for p in PAID] + [("double_success", p) for p in TWICE_PAID]
    flows += [("success_after_cancel", p) for p in LATE]

    async def flow(number: int, method: str, point: str) -> None:
        key = f"flow-{number}"
        reference = reference_of(shop, key)
        killer.points[reference] = point
        assert await shop.order_of(processes.holds.hold(), method=method, key=key) == reference
        if method == "success_after_cancel":
            await wait_until(lambda: shop.attempt_is(reference, "processing"), timeout_s=20)
            await shop.expire(reference)
        await wait_until(lambda: reference in killer.killed, timeout_s=20)
        await lease_runs_out(shop, reference)
        await shop.settled(reference, "confirmed", "refunded", timeout_s=20)
        assert len(await shop.charges(reference)) == (2 if method == "double_success" else 1)

    await asyncio.gather(*(flow(number, *each) for number, each in enumerate(flows)))
    assert not killer.points, "every point was reached"
    assert await shop.audit() == {}
    assert await shop.entries() == await shop.booked()


async def test_a_worker_killed_while_it_gives_back_gives_back_once(processes):
    killer = Killer()
    shop = await processes.open(failpoint=killer)

    async def flow(point: str) -> None:
        held = processes.holds.hold()
        reference = await shop.order_of(held)
        await shop.is_now(reference, "confirmed")
        killer.points[reference] = point
        assert (await shop.operate(f"{reference}/refund")).status_code == 202
        await wait_until(lambda: reference in killer.killed, timeout_s=20)
        await lease_runs_out(shop, reference)
        await shop.is_now(reference, "refunded")
        assert (processes.holds.back(held), await shop.net_minor(reference)) == (["GA1"], 0)

    await asyncio.gather(*map(flow, BACK))
    assert await shop.audit() == {}
    assert await shop.entries() == await shop.booked()


async def test_a_worker_that_died_in_the_call_leaves_the_attempt_unknown(processes):
    """The fan's cancellation therefore syncs with the provider first, which has the money."""
    killer = Killer()
    shop = await processes.open(failpoint=killer)
    reference = reference_of(shop, "a-key")
    killer.points[reference] = "after the provider"
    await shop.post(shop.body(processes.holds.hold()))
    await wait_until(lambda: killer.killed)
    headers = {"authorization": f"Bearer {pass_of()}"}
    assert (await shop.http.post(f"/orders/{reference}/cancel", headers=headers)).status_code == 202
    await lease_runs_out(shop, reference)
    await shop.settled(reference, "confirmed")
    assert "release" not in {path for path, *_ in processes.holds.asked}


async def test_a_worker_that_slept_past_its_lease_writes_nothing(processes):
    """It wakes up with an answer of the provider; another worker has the lease by then."""
    asleep, wake = asyncio.Event(), asyncio.Event()

    async def nap(name: str, reference: str) -> None:
        if name == "after the provider" and not asleep.is_set():
            asleep.set()
            await wake.wait()

    shop = await processes.open(failpoint=nap)
    reference = await shop.order()
    await asleep.wait()
    await lease_runs_out(shop, reference)
    await shop.settled(reference, "confirmed")
    version = (await shop.row(reference)).version
    wake.set()
    await wait_until(lambda: not shop.app.state.deps.worker_pool.queue.rows)
    assert (await shop.row(reference)).version == version
    assert len(await shop.charges(reference)) == 1


async def test_what_a_stopped_worker_had_sold_of_an_order_that_ended_goes_back_on_sale(processes):
    """It stopped between inventory's confirmation and its own update, while another worker ended the order unpaid."""
    shop = await processes.open()
    await shop.sandbox.post("/control", json={"down_for_s": 60})
    held = processes.holds.hold()
    reference = await shop.order_of(held)
    processes.holds.change(held, status="confirmed")
    headers = {"authorization": f"Bearer {pass_of()}"}
    assert (await shop.http.post(f"/orders/{reference}/cancel", headers=headers)).status_code in (200, 202)
    await shop.sandbox.post("/control", json={"down_for_s": 0})
    await shop.is_now(reference, "cancelled")
    await wait_until(lambda: processes.holds.reservations[held].status == "returned")


async def test_a_change_without_the_lease_is_refused(shop):
    reference = await shop.order()
    await shop.settled(reference, "confirmed")
    book = shop.app.state.deps.repository
    seen = await shop.row(reference)
    stranger = Lease(reference, "nobody", 1.0)
    refused = False
    try:
        await book.write(OrderUpdate(stranger, seen))
    except LeaseLost:
        refused = True
    assert refused
    assert next_step(seen, review_after_s=60) in ("wait", "sync_provider")


async def lease_runs_out(shop, reference):
    """The lease expires now."""
    await shop.run(
        "UPDATE orders.\"order\" SET lease_until = now() - interval '1 second' WHERE reference = :reference",
        reference=reference,
    )
