"""Every flow of a hold fails at every point between ledger and gate, once, and is asked again or not: clean in the end.

A process that dies is one whose next step raises; what it had done by then stays done.
"""

import itertools
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import pytest
from redis.exceptions import ConnectionError as Away

from services.inventory.redis_stock.client import RedisStock
from services.inventory.reservations import expiry, holds, payment, reserve
from services.inventory.reservations.expiry import expire_overdue
from shared.web.problems import Unavailable
from tests.inventory.conftest import EVENT, Inventory

HOLD_MS = 600_000 + 5_000
VERBS = ("extend", "confirm_written", "begin_payment", "end_payment", "confirm", "release", "reacquire")


@dataclass
class Try:
    """One fan with one hold in one flow; each try has a seat, a holder and an order of its own."""

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
        await self.inventory.mine("POST", self.reservation_id, self.holder, more="/extend")

    async def give_back(self) -> None:
        await self.inventory.mine("DELETE", self.reservation_id, self.holder)

    async def expire(self) -> None:
        self.inventory.travel(HOLD_MS + 1_000)
        with suppress(Unavailable):
            await self.inventory.state.expiry_worker.sweep()

    async def expire_by_scan(self) -> None:
        state = self.inventory.state
        self.inventory.travel(HOLD_MS + 2_000)
        with suppress(Away, Unavailable):
            await expire_overdue(state.db, state.redis_stock, EVENT, now_ms=state.redis_stock.slowest_ms())

    async def step(self, verb: str) -> None:
        with suppress(AssertionError):  # no answer came
            await self.inventory.step(verb, self.reservation_id, self.order)

    @property
    def holder(self) -> str:
        return f"fan-{self.n}"

    @property
    def order(self) -> str:
        return f"order-{self.n}"

    async def status(self) -> str:
        question = {"reservation_ids": [self.reservation_id]}
        return str((await self.inventory.ask("/reservations/read", question))["reservations"][0]["status"])


FLOWS = {  # what was before, and what it is when the flow's last step is done
    "hold": ([], "pending_payment"),
    "extend": (["hold"], "pending_payment"),
    "give_back": (["hold"], "cancelled"),
    "begin": (["hold"], "paying"),
    "end": (["hold", "begin"], "pending_payment"),
    "confirm": (["hold", "begin"], "confirmed"),
    "release": (["hold", "begin"], "cancelled"),
    "reacquire": (["hold", "begin", "release"], "confirmed"),
    "expire": (["hold"], "expired"),
    "expire_by_scan": (["hold"], "expired"),
}
POINTS = ("before the database", "in the database's transaction", "before Redis follows", "before the answer")
NOT_THERE = [("extend", "in the database's transaction")]  # its transaction is one statement


class Failpoint:
    """Armed at one point for the next one who passes; `passed` says that somebody did."""

    def __init__(self, patch: pytest.MonkeyPatch, redis_stock: RedisStock, point: str) -> None:
        self._patch, self._redis_stock, self.point, self.passed = patch, redis_stock, point, False

    def arm(self) -> None:
        died: dict[str, Exception] = {"ledger": Unavailable("died"), "gate": Away("died")}
        match self.point:
            case "before the database":
                self._break(reserve, "write_holds", died["ledger"], first=True)
                self._break(payment, "_write", died["ledger"], first=True)
                self._break(expiry, "release_stock", died["ledger"], first=True)
                self._break(holds.Holds, "_slowest_clock_ms", died["ledger"], first=True)
            case "in the database's transaction":
                self._break(reserve, "write_holds", died["ledger"], first=False)  # committed, and nobody heard
                self._break(payment, "_write", died["ledger"], first=False)
                self._break(expiry, "release_stock", died["ledger"], first=False)
            case "before Redis follows":
                for verb in VERBS:
                    self._break(self._redis_stock, verb, died["gate"], first=True)
            case "before the answer":
                for verb in VERBS:
                    self._break(self._redis_stock, verb, died["gate"], first=False)

    def _break(self, state: Any, name: str, died: Exception, *, first: bool) -> None:
        real = getattr(state, name)

        async def broken(*args: Any, **named: Any) -> Any:
            if self.passed or (state is self._redis_stock and not args[1]):  # nothing to follow
                return await real(*args, **named)
            self.passed = True
            if not first:
                await real(*args, **named)
            raise died

        self._patch.setattr(state, name, broken)


async def healed(inventory: Inventory) -> None:
    """What runs by itself has run: due holds are asked about, and two looks of reconcile, six seconds apart."""
    state, at_s = inventory.state, 1_000.0
    state.reconciler._clock = lambda: at_s
    state.reconciler._last_pass.clear()
    inventory.travel(6_000)
    await state.expiry_worker.sweep()
    await state.expiry_worker.scan()
    await state.reconciler.reconcile(state.catalogue.layout(EVENT))
    at_s += 6
    await state.reconciler.reconcile(state.catalogue.layout(EVENT))


async def over(inventory: Inventory, order: str) -> None:
    """Everything unsold ends: its time is up, and its order is dead."""
    inventory.travel(4 * HOLD_MS)
    inventory.orders.states[order] = "cancelled"
    await inventory.state.expiry_worker.sweep()
    await inventory.state.expiry_worker.scan()
    await healed(inventory)


@pytest.mark.parametrize("flow", FLOWS)
async def test_whatever_fails_wherever_the_audit_is_clean(
    still: Inventory, monkeypatch: pytest.MonkeyPatch, flow: str
) -> None:
    tries = [pair for pair in itertools.product(POINTS, (True, False)) if (flow, pair[0]) not in NOT_THERE]
    for n, (point, again) in enumerate(tries):
        with monkeypatch.context() as patch:
            await _try(Try(still, n), flow, Failpoint(patch, still.state.redis_stock, point), again=again)
        assert await still.broken() == [], f"{flow}, {point}, asked again: {again}"
        await over(still, f"order-{n}")
        held = [s["held"] for s in (await still.ask("/stock", {"event_id": EVENT}))["sections"]]
        assert (await still.broken(), held) == ([], [0, 0, 0]), f"{flow}, {point}, asked again: {again}, at rest"


async def _try(fan: Try, flow: str, failpoint: Failpoint, *, again: bool) -> None:
    before, wanted = FLOWS[flow]
    for step in before:
        await getattr(fan, step)()
    failpoint.arm()
    await getattr(fan, flow)()
    for reserver in fan.inventory.state.batchers.values():
        await reserver.close()  # what follows behind a hold's answer has followed
    fan.inventory.state.batchers.clear()
    assert failpoint.passed, "nobody came by the failpoint: this tests nothing"
    if again:
        await getattr(fan, flow)()
        assert await fan.status() == wanted, f"{flow}, {failpoint.point}: asked again, it is done"
    await healed(fan.inventory)
