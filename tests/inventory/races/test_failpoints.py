"""Every action on a hold fails once at every point between the database and Redis, with and without a retry.

A process dies when its next step raises; what it has done before stays done. The invariants must hold in the end.
"""

import itertools
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import pytest
from redis.exceptions import ConnectionError as RedisConnectionError

from services.inventory.redis_stock.client import RedisStock
from services.inventory.reservations import expiry, holds, payment, reserve
from services.inventory.reservations.expiry import expire_overdue
from shared.web.problems import Unavailable
from tests.inventory.actions import status
from tests.inventory.conftest import EVENT, Inventory

HOLD_MS = 600_000 + 5_000
VERBS = ("extend", "confirm_written", "begin_payment", "confirm", "release", "reacquire")


@dataclass
class Scenario:
    """One fan with one hold; each scenario has its own seat, holder and order."""

    inventory: Inventory
    n: int
    reservation_id: str = ""

    async def hold(self) -> None:
        seat = f"A-{self.n // 5 + 1}-{self.n % 5 + 1}"
        answer = await self.inventory.reserve(self.holder, key="key", seats=[seat], ga_section="GA1", ga_quantity=2)
        self.reservation_id = str(answer.json().get("reservation_id", ""))

    async def begin(self) -> None:
        await self.step("begin-payment")

    async def end(self) -> None:
        await self.step("end-payment")

    async def confirm(self) -> None:
        await self.step("confirm")

    async def release(self) -> None:
        await self.step("release")

    async def reacquire(self) -> None:
        await self.step("reacquire")

    async def extend(self) -> None:
        await self.inventory.fan_request("POST", self.reservation_id, self.holder, more="/extend")

    async def cancel(self) -> None:
        await self.inventory.fan_request("DELETE", self.reservation_id, self.holder)

    async def expire(self) -> None:
        self.inventory.travel(HOLD_MS + 1_000)
        with suppress(Unavailable):
            await self.inventory.state.expiry_worker.sweep()

    async def expire_by_scan(self) -> None:
        state = self.inventory.state
        self.inventory.travel(HOLD_MS + 2_000)
        with suppress(RedisConnectionError, Unavailable):
            await expire_overdue(state.db, state.redis_stock, EVENT, now_ms=state.redis_stock.slowest_ms())

    async def step(self, verb: str) -> None:
        with suppress(AssertionError):  # no answer
            await self.inventory.step(verb, self.reservation_id, self.order)

    @property
    def holder(self) -> str:
        return f"fan-{self.n}"

    @property
    def order(self) -> str:
        return f"order-{self.n}"


ACTIONS = {  # the actions before, and the status after the action
    "hold": ([], "pending_payment"),
    "extend": (["hold"], "pending_payment"),
    "cancel": (["hold"], "cancelled"),
    "begin": (["hold"], "paying"),
    "end": (["hold", "begin"], "pending_payment"),
    "confirm": (["hold", "begin"], "confirmed"),
    "release": (["hold", "begin"], "cancelled"),
    "reacquire": (["hold", "begin", "release"], "confirmed"),
    "expire": (["hold"], "expired"),
    "expire_by_scan": (["hold"], "expired"),
}
POINTS = ("before the database", "in the database transaction", "before Redis is updated", "before the answer")
NOT_APPLICABLE = [("extend", "in the database transaction")]  # its transaction is one statement


class Failpoint:
    """Fails the next call that reaches one point; `reached` says that a call did."""

    def __init__(self, patch: pytest.MonkeyPatch, redis_stock: RedisStock, point: str) -> None:
        self._patch, self._redis_stock, self.point, self.reached = patch, redis_stock, point, False

    def arm(self) -> None:
        postgres_died, redis_died = Unavailable("died"), RedisConnectionError("died")
        match self.point:
            case "before the database":
                self._break(reserve, "write_holds", postgres_died, first=True)
                self._break(payment, "_write", postgres_died, first=True)
                self._break(expiry, "release_stock", postgres_died, first=True)
                self._break(holds.Holds, "_slowest_clock_ms", postgres_died, first=True)
            case "in the database transaction":
                self._break(reserve, "write_holds", postgres_died, first=False)  # committed without an answer
                self._break(payment, "_write", postgres_died, first=False)
                self._break(expiry, "release_stock", postgres_died, first=False)
            case "before Redis is updated":
                for verb in VERBS:
                    self._break(self._redis_stock, verb, redis_died, first=True)
            case "before the answer":
                for verb in VERBS:
                    self._break(self._redis_stock, verb, redis_died, first=False)

    def _break(self, owner: Any, name: str, error: Exception, *, first: bool) -> None:
        """Raises the error instead of the call (`first`) or after it."""
        call = getattr(owner, name)

        async def broken(*args: Any, **named: Any) -> Any:
            if self.reached or (owner is self._redis_stock and not args[1]):  # nothing to update
                return await call(*args, **named)
            self.reached = True
            if not first:
                await call(*args, **named)
            raise error

        self._patch.setattr(owner, name, broken)


async def run_background_work(inventory: Inventory) -> None:
    """Runs what runs by itself: the expiry of due holds, and two passes of reconciliation six seconds apart."""
    state, at_s = inventory.state, 1_000.0
    state.reconciler._clock = lambda: at_s
    state.reconciler._last_pass.clear()
    inventory.travel(6_000)
    await state.expiry_worker.sweep()
    await state.expiry_worker.scan()
    await state.reconciler.reconcile(state.catalogue.layout(EVENT))
    at_s += 6
    await state.reconciler.reconcile(state.catalogue.layout(EVENT))


async def end_unsold(inventory: Inventory, order: str) -> None:
    """Ends every hold: its time is over, and its order is cancelled."""
    inventory.travel(4 * HOLD_MS)
    inventory.orders.states[order] = "cancelled"
    await inventory.state.expiry_worker.sweep()
    await inventory.state.expiry_worker.scan()
    await run_background_work(inventory)


@pytest.mark.parametrize("action", ACTIONS)
async def test_the_invariants_hold_after_a_failure_at_every_point(
    manual: Inventory, monkeypatch: pytest.MonkeyPatch, action: str
) -> None:
    cases = [case for case in itertools.product(POINTS, (True, False)) if (action, case[0]) not in NOT_APPLICABLE]
    for n, (point, retried) in enumerate(cases):
        with monkeypatch.context() as patch:
            await _fail(Scenario(manual, n), action, Failpoint(patch, manual.state.redis_stock, point), retried=retried)
        assert await manual.violations() == [], f"{action}, {point}, retried: {retried}"
        await end_unsold(manual, f"order-{n}")
        held = [s["held"] for s in (await manual.post_internal("/stock", {"event_id": EVENT}))["sections"]]
        assert (await manual.violations(), held) == ([], [0, 0, 0]), f"{action}, {point}, retried: {retried}, at rest"


async def _fail(scenario: Scenario, action: str, failpoint: Failpoint, *, retried: bool) -> None:
    before, expected = ACTIONS[action]
    for step in before:
        await getattr(scenario, step)()
    failpoint.arm()
    await getattr(scenario, action)()
    for batcher in scenario.inventory.state.batchers.values():
        await batcher.close()  # waits for the work after the answer
    scenario.inventory.state.batchers.clear()
    assert failpoint.reached, "no call reached the failpoint"
    if retried:
        await getattr(scenario, action)()
        outcome = await status(scenario.inventory, scenario.reservation_id)
        assert outcome == expected, f"{action}, {failpoint.point}: the retry succeeds"
    await run_background_work(scenario.inventory)
