"""Batches calls to inventory: the same step of concurrent orders is one call, and one transaction there."""

from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from typing import Self

from shared.concurrency.group_commit import GroupCommit
from shared.contracts.inventory import (
    BATCH_MAX,
    InventoryClient,
    PaymentStep,
    PaymentSteps,
    Reservation,
    ReturnStock,
    StepDone,
    StepsAnswer,
)

WAITING_MAX = 5000
IN_FLIGHT_MAX = 2
Call = Callable[[PaymentSteps], Awaitable[StepsAnswer]]


class InventoryBatcher(AsyncExitStack):
    """Every step is idempotent and has its own answer. Use inside `async with`. Returns are not batched: each is all or
    nothing.
    """

    def __init__(self, client: InventoryClient) -> None:
        super().__init__()
        self._client = client
        self._reads: GroupCommit[str, Reservation | None] = GroupCommit(
            self.read_many, name="orders-reservations", batch_max=BATCH_MAX, waiting_max=WAITING_MAX,
            in_flight_max=IN_FLIGHT_MAX,
        )  # fmt: skip
        self.begin_payment = self._batched("begin-payment", client.begin_payment)
        self.end_payment = self._batched("end-payment", client.end_payment)
        self.confirm = self._batched("confirm", client.confirm)
        self.release = self._batched("release", client.release)
        self.retake = self._batched("reacquire", client.reacquire)
        self.return_tickets = client.return_tickets
        self.consents = client.poll_consents

    async def __aenter__(self) -> Self:
        self.push_async_callback(self._reads.close)
        return self

    async def read(self, reservation_id: str) -> Reservation | None:
        return await self._reads.submit(reservation_id)

    async def return_stock(self, sold: PaymentStep, *, reason: str) -> StepDone:
        """Returns everything that this order bought to sale."""
        return (await self._client.return_stock(ReturnStock(steps=[sold], reason=reason))).steps[0]

    async def read_many(self, reservation_ids: list[str]) -> Sequence[Reservation | None]:
        """One reservation per id, in order; at most `BATCH_MAX`."""
        return (await self._client.read(reservation_ids)).reservations

    def _batched(self, name: str, call: Call) -> Callable[[PaymentStep], Awaitable[StepDone]]:
        async def work(steps: list[PaymentStep]) -> Sequence[StepDone]:
            return (await call(PaymentSteps(steps=steps))).steps

        group: GroupCommit[PaymentStep, StepDone] = GroupCommit(
            work, name=f"orders-{name}", batch_max=BATCH_MAX, waiting_max=WAITING_MAX, in_flight_max=IN_FLIGHT_MAX
        )
        self.push_async_callback(group.close)
        return group.submit
