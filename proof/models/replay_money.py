"""The money's model on the real orders service: its workers stop before every call and every write, at its failpoints.

Inventory and provider are those of `tests/orders/manual_orders.py`.
"""

import asyncio
from contextlib import AsyncExitStack
from typing import Any

from onsale.sandbox.charges import ChargeService
from proof.models.money import MoneyState
from proof.models.replays import View
from services.orders.order.next_step import Order
from tests.orders.manual_orders import ManualShop, ScriptedFailpoint, open_manual_shop

GRACE_S = 300  # a late payment is in time
STOPS = ("after the provider", "after inventory", "after the refund", "after the return")
# Where a worker stands: by the model, by the failpoint.
FAILPOINTS = {
    "the provider": "before the provider", "after the provider": "after the provider",
    "after confirm": "after inventory", "after reacquire_stock": "after inventory",
    "after send_refund": "after the refund", "after return_tickets": "after the return",
}  # fmt: skip
METHODS = {"succeeded": "ok", "processing": "late_success", "failed": "decline"}
HOLDS = {"paying": "paying", "expired": "free", "cancelled": "free", "confirmed": "sold", "returned": "returned"}


class SteppedFailpoint(ScriptedFailpoint):
    """Every worker sleeps wherever the model has a step."""

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
        self.workers: dict[int, asyncio.Task[Any]] = {}
        self.reference, self.method = "", "ok"
        manual.charge_service.create = self._create  # type: ignore[method-assign]

    @classmethod
    async def open(cls, stack: AsyncExitStack, postgres_url: str, redis_url: str) -> "RealMoney":
        failpoint = SteppedFailpoint()
        shop = open_manual_shop(postgres_url, redis_url, failpoint=failpoint, inline_slots_max=0)
        return cls(await stack.enter_async_context(shop), failpoint)

    async def begin(self) -> None:
        """A new order; nothing is done any more for the one before."""
        for w in list(self.workers):
            await self._kill(w)
        await self._set("due_at = NULL")
        await self.manual.inventory.clear()
        self.manual.inventory.sales["grace_s"] = GRACE_S
        self.reservation = await self.manual.inventory.hold()
        self.reference = await self.manual.order_of(self.reservation)

    async def do(self, label: str) -> None:
        actor, _, action = label.partition(" ")
        if actor == "charge":
            self._change_charge(action)
        elif actor not in ("w0", "w1"):
            await self._happen(label)
        elif action == "takes the order":
            await self._take(int(actor[1]))
        elif action == "dies":
            await self._kill(int(actor[1]))
        elif action == "oversleeps":
            await self._end_lease()
        else:
            await self._advance(int(actor[1]), action)

    async def _happen(self, label: str) -> None:
        match label:
            case "the lease ends":
                await self._end_lease()
            case "the deadline passes":
                await self._set("expires_at = now() - interval '1 second', due_at = now()")
            case "the fan cancels":
                assert (await self.manual.cancel(self.reference)).is_success
            case "an operator refunds":
                assert (await self.manual.admin_post(f"{self.reference}/refund", reason="rain")).status_code == 202
            case "a sync is due":  # what a webhook does
                await self._set("sync_requested = true, wake_count = wake_count + 1, due_at = now()")
            case "inventory gives up the hold":
                await self.manual.inventory.set_deadline(self.reservation, in_ms=-2 * GRACE_S * 1000)
                await self.manual.expire_overdue_holds()
            case "inventory loses the hold":
                await self.manual.inventory.expire(self.reservation)
            case "somebody else buys":
                await self.manual.inventory.sell_to_another(self.reservation)

    async def _take(self, w: int) -> None:
        await self._set("due_at = now()")
        before = set(self.manual.state.worker_pool.queue._running)
        await self.manual.state.worker_pool.queue.run_once()
        [task] = set(self.manual.state.worker_pool.queue._running) - before
        self.workers[w] = task
        await self._until_still(w)

    async def _advance(self, w: int, action: str) -> None:
        """The worker goes on to where it stops next."""
        if action.startswith("charges: "):
            self._plan_charge(action.removeprefix("charges: "))
        self.failpoint.asleep.pop(self.workers[w]).set()
        await self._until_still(w)

    async def _until_still(self, w: int) -> None:
        await self.failpoint.until_still([self.workers[w]])
        if self.workers[w].done():
            await self.workers.pop(w)
        assert not self.manual.worker_errors, self.manual.worker_errors

    def _plan_charge(self, answer: str) -> None:
        """How the provider will answer the worker's next call, which may be the first of any."""
        connection, faults = self.manual.connection, ["answer lost"] if answer == "no answer" else []
        connection.fault = lambda call, key: faults.pop() if call == "POST charges" and faults else None
        self.method = METHODS.get(answer, "ok")

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
        task = self.workers.pop(w)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    async def _end_lease(self) -> None:
        await self._set("lease_until = now() - interval '1 second'")

    async def _set(self, assignments: str) -> None:
        statement = f'UPDATE orders."order" SET {assignments} WHERE reference = :reference'
        await self.manual.run(statement, reference=self.reference)

    # -- comparison ----------------------------------------------------------------------------------------------------

    def shown(self, state: MoneyState) -> View:
        at = {
            w: FAILPOINTS.get(worker.at, f"before {worker.at}") for w, worker in enumerate(state.workers) if worker.at
        }
        return {
            "status": state.status, "attempt": state.attempt, "charges": state.charges, "sale": state.sale,
            "requested": state.requested[: state.charges], "refunded": sum(state.refunded),
            "cancel requested": state.cancel_requested, "sync": state.sync, "lease": state.lease is not None,
            "released": state.released, "end reason": state.end_reason, "workers": at,
            "hold": "free" if state.hold == "taken" else state.hold,
            "provider": [(charge.status, charge.refunds) for charge in state.provider],
        }  # fmt: skip

    async def read(self) -> View:
        order: Order = await self.manual.row(self.reference)
        [lease] = (await self.manual.query(f"SELECT lease FROM orders.\"order\" WHERE reference = '{self.reference}'"))[
            0
        ]
        assert order.attempt is not None
        return {
            "status": order.status, "attempt": order.attempt.status, "charges": len(order.charges),
            "sale": order.charge_ref is not None, "requested": tuple(charge.refunds for charge in order.charges),
            "refunded": sum(charge.refunds for charge in order.charges) - len(order.refunds),
            "cancel requested": order.cancel_requested, "sync": order.sync_requested, "lease": lease is not None,
            "released": order.released, "end reason": order.end_reason or "",
            "workers": {w: self.failpoint.position[task] for w, task in sorted(self.workers.items())},
            "hold": HOLDS[await self.manual.inventory.status(self.reservation)],
            "provider": [(charge.status, charge.refunded_minor // charge.amount_minor) for charge in self._charges()],
        }  # fmt: skip


MISFORTUNES = ("dies", "oversleeps", "no answer", "after all", "loses", "the lease ends")
