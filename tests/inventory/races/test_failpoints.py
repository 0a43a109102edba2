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
from shared.errors.problems import Unavailable
from tests.inventory.actions import reconcile, status
from tests.inventory.conftest import EVENT, Inventory

HOLD_MS = 600_000 + 5_000


@dataclass
class Scenario:
    """One fan with one hold; each scenario has its own seat, holder and order."""

    inventory: Inventory
    n: int
    reservation_id: str = ""

    async def act(self, action: str) -> None:
        """One action of the fan, of the order, or of time; an answer may be missing."""
        state = self.inventory.state
        match action:
            case "hold":
                seat = f"A-{self.n // 5 + 1}-{self.n % 5 + 1}"
                body: dict[str, Any] = {"seats": [seat], "ga_section": "GA1", "ga_quantity": 2}
                answer = await self.inventory.reserve(self.holder, key="key", **body)
                self.reservation_id = str(answer.json().get("reservation_id", ""))
            case "extend":
                await self.inventory.fan_request("POST", self.reservation_id, self.holder, more="/extend")
            case "cancel":
                await self.inventory.fan_request("DELETE", self.reservation_id, self.holder)
            case "expire":
                self.inventory.travel(HOLD_MS + 1_000)
                with suppress(Unavailable):
                    await state.expiry_worker.sweep()
            case "expire by scan":
                self.inventory.travel(HOLD_MS + 2_000)
                with suppress(RedisConnectionError, Unavailable):
                    await expire_overdue(state.db, state.redis_stock, EVENT, now_ms=state.redis_stock.slowest_ms())
            case step:
                with suppress(AssertionError):
                    await self.inventory.step(step, self.reservation_id, f"order-{self.n}")

    @property
    def holder(self) -> str:
        return f"fan-{self.n}"


ACTIONS = {  # the actions before, and the status after the action
    "hold": ([], "pending_payment"),
    "extend": (["hold"], "pending_payment"),
    "cancel": (["hold"], "cancelled"),
    "begin-payment": (["hold"], "paying"),
    "end-payment": (["hold", "begin-payment"], "pending_payment"),
    "confirm": (["hold", "begin-payment"], "confirmed"),
    "release": (["hold", "begin-payment"], "cancelled"),
    "reacquire": (["hold", "begin-payment", "release"], "confirmed"),
    "expire": (["hold"], "expired"),
    "expire by scan": (["hold"], "expired"),
}
POINTS = ("before the database", "in the database transaction", "before Redis is updated", "before the answer")
NOT_APPLICABLE = [("extend", "in the database transaction")]  # its transaction is one statement


class Failpoint:
    """Fails the next call that reaches one point; `reached` says that a call did."""

    def __init__(self, patch: pytest.MonkeyPatch, redis_stock: RedisStock, point: str) -> None:
        self._patch, self._redis_stock, self.point, self.reached = patch, redis_stock, point, False

    def arm(self) -> None:
        postgres_died, redis_died = Unavailable("died"), RedisConnectionError("died")
        writes: list[tuple[Any, str]] = [
            (reserve, "write_holds"), (payment, "_in_turns"), (payment, "_write"), (expiry, "release_stock")
        ]  # fmt: skip
        match self.point:
            case "before the database":
                for owner, name in [*writes, (holds.Holds, "_slowest_clock_ms")]:
                    self._break(owner, name, postgres_died, first=True)
            case "in the database transaction":
                for owner, name in writes:  # `write_holds` has committed without an answer
                    self._break(owner, name, postgres_died, first=False)
            case _:
                self._break(self._redis_stock, "follow", redis_died, first=self.point == "before Redis is updated")

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
    inventory.state.reconciler._last_pass.clear()
    inventory.travel(6_000)
    await inventory.state.expiry_worker.sweep()
    await inventory.state.expiry_worker.scan()
    await reconcile(inventory)


async def end_unsold(inventory: Inventory, order: str) -> None:
    """Ends every hold: its time is over, and its order is cancelled."""
    inventory.travel(4 * HOLD_MS)
    inventory.orders.states[order] = "cancelled"
    await inventory.state.expiry_worker.sweep()
    await inventory.state.expiry_worker.scan()
    await run_background_work(inventory)


@pytest.mark.parametrize("both", [False, pytest.param(True, marks=pytest.mark.proof)])
@pytest.mark.parametrize("action", ACTIONS)
async def test_the_invariants_hold_after_a_failure_at_every_point(
    inventory: Inventory, monkeypatch: pytest.MonkeyPatch, action: str, both: bool
) -> None:
    """With and without a retry at each point, or one of `both`: over all actions each point has either."""
    of_action = list(ACTIONS).index(action)
    cases = [
        (point, retried)
        for (n, point), retried in itertools.product(enumerate(POINTS), (True, False))
        if (action, point) not in NOT_APPLICABLE and (both or retried == bool((n + of_action) % 2))
    ]
    for n, (point, retried) in enumerate(cases):
        with monkeypatch.context() as patch:
            await _fail(
                Scenario(inventory, n), action, Failpoint(patch, inventory.state.redis_stock, point), retried=retried
            )
        assert await inventory.violations() == [], f"{action}, {point}, retried: {retried}"
        await end_unsold(inventory, f"order-{n}")
        held = [s["held"] for s in (await inventory.post_internal("/stock", {"event_id": EVENT}))["sections"]]
        assert (await inventory.violations(), held) == ([], [0, 0, 0]), (
            f"{action}, {point}, retried: {retried}, at rest"
        )


async def _fail(scenario: Scenario, action: str, failpoint: Failpoint, *, retried: bool) -> None:
    before, expected = ACTIONS[action]
    for earlier in before:
        await scenario.act(earlier)
    failpoint.arm()
    await scenario.act(action)
    for batcher in scenario.inventory.state.batchers.values():
        await batcher.close()  # waits for the work after the answer
    scenario.inventory.state.batchers.clear()
    assert failpoint.reached, "no call reached the failpoint"
    if retried:
        await scenario.act(action)
        outcome = await status(scenario.inventory, scenario.reservation_id)
        assert outcome == expected, f"{action}, {failpoint.point}: the retry succeeds"
    await run_background_work(scenario.inventory)
