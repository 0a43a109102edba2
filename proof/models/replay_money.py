"""The money's model on the real orders service: its runs stop before every call and every write, at its failpoints, and
while a charge is under way.

Inventory and provider are those of `tests/orders/manual_orders.py`. One process plays both of the model: what it has
lost to the other one it takes over itself, in the next epoch.
"""

import asyncio
from contextlib import AsyncExitStack
from typing import Any
from urllib.parse import urlsplit

from onsale.sandbox.charges import ChargeService
from proof.models.money import MoneyState
from proof.models.replays import View
from services.orders.model.order import Order
from shared.http.outgoing import ExternalResponse, NotReached, ResponseLost
from tests.orders.manual_orders import ManualShop, ScriptedFailpoint, open_manual_shop

GRACE_S = 300  # a late payment is in time
UNDER_WAY = "under way"
STOPS = ("after the provider", "after inventory", "after the refund", "after the return")
# Where a run stands: by the model, by the failpoint.
FAILPOINTS = {
    "the provider": "before the provider", "under way": UNDER_WAY, "after the provider": "after the provider",
    "after confirm": "after inventory", "after reacquire_stock": "after inventory",
    "after send_refund": "after the refund", "after return_tickets": "after the return",
}  # fmt: skip
METHODS = {"succeeded": "ok", "processing": "late_success", "failed": "decline"}
HOLDS = {"paying": "paying", "expired": "free", "cancelled": "free", "confirmed": "sold", "returned": "returned"}


class SteppedFailpoint(ScriptedFailpoint):
    """Every run sleeps wherever the model has a step."""

    def __init__(self) -> None:
        super().__init__()
        self.position: dict[asyncio.Task[Any], str] = {}

    async def __call__(self, name: str, reference: str) -> None:
        if name == "before charge" or (name.startswith("after ") and name not in STOPS):
            return  # nothing happens between this and the next one
        task = asyncio.current_task()
        assert task is not None
        self.position[task] = name
        await self._sleep()
        del self.position[task]


class RealMoney:
    """The orders service in the hands of the model."""

    def __init__(self, manual: ManualShop, failpoint: SteppedFailpoint) -> None:
        self.manual, self.failpoint = manual, failpoint
        self.runs: dict[int, asyncio.Task[Any]] = {}
        self.lost: set[int] = set()  # runs whose order another process has
        self.reference, self.method, self.silent, self.loses_answer = "", "ok", False, False
        manual.charge_service.create = self._create  # type: ignore[method-assign]
        self._request = manual.connection.request
        manual.connection.request = self._call  # type: ignore[method-assign]

    @classmethod
    async def open(cls, stack: AsyncExitStack, postgres_url: str, redis_url: str) -> "RealMoney":
        failpoint = SteppedFailpoint()
        shop = open_manual_shop(postgres_url, redis_url, failpoint=failpoint, inline_slots_max=0, inline_timeout_s=0.01)
        return cls(await stack.enter_async_context(shop), failpoint)

    async def begin(self) -> None:
        """A new order; nothing is done any more for the one before."""
        for w in list(self.runs):
            await self._kill(w)
        self.lost, self.silent = set(), False
        self._forget()
        await self.manual.run("DELETE FROM orders.open_order")
        await self.manual.inventory.clear()
        self.manual.inventory.sales["grace_s"] = GRACE_S
        self.reservation = await self.manual.inventory.hold()
        self.reference = await self.manual.order_of(self.reservation)

    def _forget(self) -> None:
        """The process knows of no order any more."""
        worker = self.manual.state.worker
        worker._held.clear()
        worker._ready.clear()

    async def do(self, label: str) -> None:
        actor, _, action = label.partition(" ")
        if actor == "charge":
            self._change_charge(action)
        elif actor not in ("w0", "w1"):
            await self._happen(label)
        elif action == "begins":
            await self._begin(int(actor[1]))
        elif action == "takes the order over":
            await self._take_over(int(actor[1]))
        elif action == "is silent":
            self.silent = True
        elif action.endswith(("dies", "die")):
            dead = [w for w in (0, 1) if f"w{w}" in label]
            if any(w not in self.lost for w in dead):
                self.silent = True
                self._forget()
            for w in dead:
                await self._kill(w)
        else:
            await self._advance(int(actor[1]), action)

    async def _happen(self, label: str) -> None:
        match label:
            case "the owner hands it over":
                self.silent = True
            case "the deadline passes":
                await self._set("expires_at = now() - interval '1 second'")
                self.manual.state.store.latest.clear()  # the deadline of the model comes later
            case "the fan cancels":
                assert (await self.manual.cancel(self.reference)).is_success
            case "an operator refunds":
                assert (await self.manual.admin_post(f"{self.reference}/refund", reason="rain")).status_code == 202
            case "a sync is due":  # what a webhook does
                await self.manual.state.store.wake([self.reference], sync=True)
            case "inventory gives up the hold":
                await self.manual.inventory.set_deadline(self.reservation, in_ms=-2 * GRACE_S * 1000)
                await self.manual.expire_overdue_holds()
            case "inventory loses the hold":
                await self.manual.inventory.expire(self.reservation)
            case "somebody else buys":
                await self.manual.inventory.sell_to_another(self.reservation)

    async def _begin(self, w: int) -> None:
        """The next run of the order's process."""
        await self.manual.run("UPDATE orders.open_order SET due_at = now()")
        worker = self.manual.state.worker
        held = worker._held[self.reference]
        worker._workers_max = len(self.runs) + 1
        if held.is_ready:
            worker.begin_ready()
        else:
            worker._make_ready(held)
        worker._workers_max = 0
        assert held.task is not None
        self.runs[w] = held.task
        await self._until_still(w)

    async def _take_over(self, w: int) -> None:
        """The order's process was silent for too long: another one has it."""
        self.lost |= self.runs.keys()
        self.silent = False
        await self.manual.lose(self.reference)
        await self.manual.state.worker.sweep()
        await self._begin(w)

    async def _advance(self, w: int, action: str) -> None:
        """The run goes on to where it stops next."""
        if action.startswith("charges: "):
            self._plan_charge(action.removeprefix("charges: "))
        self.failpoint.asleep.pop(self.runs[w]).set()
        await self._until_still(w)

    async def _until_still(self, w: int) -> None:
        await self.failpoint.until_still([self.runs[w]])
        if self.runs[w].done():
            self.lost.discard(w)
            await self.runs.pop(w)
        assert not self.manual.worker_errors, self.manual.worker_errors

    def _plan_charge(self, answer: str) -> None:
        """How the provider will answer the charge that is under way, which may be the first of any."""
        self.loses_answer = answer == "no answer"
        self.method = METHODS.get(answer, "ok")

    async def _call(self, method: str, url: str, **named: Any) -> ExternalResponse:
        """Calls the provider, unless this process was silent: then nothing is sent. A charge stops while under way."""
        task = asyncio.current_task()
        if any(run is task and (w in self.lost or self.silent) for w, run in self.runs.items()):
            raise NotReached("silent for too long")
        if (method, urlsplit(url).path) != ("POST", "/charges"):
            return await self._request(method, url, **named)
        await self.failpoint(UNDER_WAY, self.reference)
        answer = await self._request(method, url, **named)
        if self.loses_answer:
            self.loses_answer = False
            raise ResponseLost("no response")
        return answer

    def _create(self, request: Any, **named: Any) -> Any:
        """The provider begins a charge as the model says, whatever method the order names."""
        return ChargeService.create(
            self.manual.charge_service, request.model_copy(update={"method": self.method}), **named
        )

    def _change_charge(self, action: str) -> None:
        status: Any = "failed" if action.endswith("failed") else "succeeded"
        number = int(action.split(maxsplit=1)[0])
        charge = self._charges()[number]
        timer = self.manual.charge_service._timers.pop(charge.id, None)
        if timer is not None:
            timer.cancel()
        self.manual.charge_service._move(charge, status)

    def _charges(self) -> list[Any]:
        return [c for c in self.manual.charge_store._charges.values() if c.reference == self.reference]

    async def _kill(self, w: int) -> None:
        task = self.runs.pop(w)
        self.lost.discard(w)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    async def _set(self, assignments: str) -> None:
        statement = f'UPDATE orders."order" SET {assignments} WHERE reference = :reference'
        await self.manual.run(statement, reference=self.reference)

    # -- comparison ----------------------------------------------------------------------------------------------------

    def shown(self, state: MoneyState) -> View:
        at = {w: FAILPOINTS.get(run.at, f"before {run.at}") for w, run in enumerate(state.runs) if run.at}
        return {
            "status": state.status, "attempt": state.attempt, "charges": state.charges, "sale": state.sale,
            "requested": state.requested[: state.charges], "refunded": sum(state.refunded),
            "cancel requested": state.cancel_requested, "sync": state.sync, "open": state.is_open,
            "released": state.released, "end reason": state.end_reason, "runs": at,
            "hold": "free" if state.hold == "taken" else state.hold,
            "provider": [(charge.status, charge.refunds) for charge in state.provider],
        }  # fmt: skip

    async def read(self) -> View:
        order: Order = await self.manual.row(self.reference)
        is_open = await self.manual.query(f"SELECT 1 FROM orders.open_order WHERE reference = '{self.reference}'")
        self.silent = self.silent and bool(is_open)  # who opens it again is alive
        assert order.attempt is not None
        return {
            "status": order.status, "attempt": order.attempt.status, "charges": len(order.charges),
            "sale": order.charge_ref is not None, "requested": tuple(charge.refunds for charge in order.charges),
            "refunded": sum(charge.refunds for charge in order.charges) - len(order.refunds),
            "cancel requested": order.cancel_requested, "sync": order.sync_requested, "open": bool(is_open),
            "released": order.released, "end reason": order.end_reason or "",
            "runs": {w: self.failpoint.position[task] for w, task in sorted(self.runs.items())},
            "hold": HOLDS[await self.manual.inventory.status(self.reservation)],
            "provider": [(charge.status, charge.refunded_minor // charge.amount_minor) for charge in self._charges()],
        }  # fmt: skip


MISFORTUNES = ("dies", "die", "is silent", "no answer", "after all", "loses", "hands it over")
