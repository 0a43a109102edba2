"""A worker that dies anywhere leaves rows from which the rest is done, and the money is right in the end."""

import asyncio
from collections import Counter

from services.orders import ledger
from services.orders.callers import principal
from services.orders.ledger import LeaseLost
from services.orders.references import order_reference
from services.orders.steps import next_step
from tests.orders.conftest import EVENT, pass_of
from tests.support.wait import wait_until

PAID = (
    "before charge", "before the provider", "after the provider", "after charge", "before confirm", "after inventory",
    "after confirm",
)  # fmt: skip
TWICE_PAID = ("before refund", "after refund", "before send_refund", "after the refund", "after send_refund")
LATE = (
    "before cancel_charge", "after cancel_charge", "before expire", "after expire", "before release", "after release",
    "before own_up", "after own_up", "before retake", "after inventory", "after retake",
)  # fmt: skip


class Killer:
    """Stops an order's worker dead, once, at the point chosen for that order."""

    def __init__(self) -> None:
        self.points: dict[str, str] = {}
        self.killed: Counter[str] = Counter()

    async def __call__(self, name: str, reference: str) -> None:
        if self.points.get(reference) == name:
            del self.points[reference]
            self.killed[name] += 1
            raise asyncio.CancelledError


async def test_a_worker_killed_at_any_point_of_any_flow_converges(rooms):
    """One order for each point; each is killed there, leased out, taken up by the next worker, and settled."""
    killer = Killer()
    shop = await rooms.open(failpoint=killer, workers=32, lease_margin_s=1.0, webhooks=True)
    flows = [("ok", p) for p in PAID] + [("double_success", p) for p in TWICE_PAID]
    flows += [("success_after_cancel", p) for p in LATE]
    references = {}
    for number, (method, point) in enumerate(flows):
        reservation = rooms.holds.hold(until_ms=2500 if point in LATE else 60_000)
        rooms.holds.pay_ttl_ms = 0
        key = f"flow-{number}"
        reference = reference_of(shop, key)
        killer.points[reference] = point
        references[reference] = method, point
        assert await shop.order_of(reservation, method=method, key=key) == reference
    for reference in references:
        await shop.settled(reference, "confirmed", "refunded", timeout_s=20)
    assert not killer.points, "every point was reached"
    assert await shop.audit() == {}
    assert await shop.entries() == await shop.booked()
    for reference, (method, _) in references.items():
        assert len(await shop.charges(reference)) == (2 if method == "double_success" else 1)


async def test_a_worker_that_died_in_the_call_leaves_the_attempt_unknown(rooms):
    """So the fan's cancellation asks the provider first, and hears that the money has moved."""
    killer = Killer()
    shop = await rooms.open(failpoint=killer)
    reference = reference_of(shop, "a-key")
    killer.points[reference] = "after the provider"
    await shop.post(shop.body(rooms.holds.hold()))
    await wait_until(lambda: killer.killed)
    headers = {"authorization": f"Bearer {pass_of()}"}
    assert (await shop.http.post(f"/orders/{reference}/cancel", headers=headers)).status_code == 202
    await shop.settled(reference, "confirmed")
    assert "release" not in {path for path, *_ in rooms.holds.asked}


async def test_a_worker_that_slept_past_its_lease_writes_nothing(rooms):
    """It wakes up with an answer from the provider; somebody else has the order by then."""
    asleep, wake = asyncio.Event(), asyncio.Event()

    async def nap(name: str, reference: str) -> None:
        if name == "after the provider" and not asleep.is_set():
            asleep.set()
            await wake.wait()

    shop = await rooms.open(failpoint=nap, lease_margin_s=1.0)
    reference = await shop.order()
    await asleep.wait()
    await shop.settled(reference, "confirmed")
    version = (await shop.row(reference)).version
    wake.set()
    await wait_until(lambda: not shop.app.state.room.workers.busy)
    assert (await shop.row(reference)).version == version
    assert len(await shop.charges(reference)) == 1


async def test_a_change_without_the_lease_is_refused(shop):
    reference = await shop.order()
    await shop.settled(reference, "confirmed")
    engine = shop.app.state.room.engine
    seen = await shop.row(reference)
    stranger = ledger.Lease(reference, "nobody", 1.0)
    refused = False
    try:
        async with engine.begin() as connection:
            await ledger.change(connection, stranger, seen)
    except LeaseLost:
        refused = True
    assert refused
    assert next_step(seen, review_after_s=60) in ("wait", "look")


def reference_of(shop, key, holder="fan"):
    return order_reference(shop.settings.order_token_keys, principal(EVENT, holder), key)
