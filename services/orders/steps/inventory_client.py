"""Batches calls to inventory: the same step of concurrent orders is one call, and one transaction there."""

from collections.abc import Awaitable, Callable, Sequence

from services.orders.model.order import Order
from shared.concurrency.group_commit import GroupCommits
from shared.contracts.inventory import (
    BATCH_MAX,
    InventoryClient,
    PaymentStep,
    PaymentSteps,
    ReadReservations,
    Reservation,
    ReturnStock,
    StepDone,
    StepsAnswer,
)

WAITING_MAX = 5000
IN_FLIGHT_MAX = 2
Step = Callable[[PaymentStep], Awaitable[StepDone]]


def payment_step(order: Order) -> PaymentStep:
    """A step of this order on its hold."""
    return PaymentStep(event_id=order.event_id, reservation_id=order.reservation_id, order_reference=order.reference)


class InventoryBatcher(GroupCommits):
    """Every step is idempotent and has its own answer. Use inside `async with`. Returns are not batched: each is all or
    nothing.
    """

    def __init__(self, client: InventoryClient) -> None:
        super().__init__(batch_max=BATCH_MAX, waiting_max=WAITING_MAX, in_flight_max=IN_FLIGHT_MAX)
        self._client = client
        self._read_one = self.grouped("orders-reservations", self._read)
        self.begin_payment = self._step("begin-payment", client.begin_payment)
        self.extend_payment = self._step("extend-payment", client.extend_payment)
        self.end_payment = self._step("end-payment", client.end_payment)
        self.confirm = self._step("confirm", client.confirm, rests=True)
        self.release = self._step("release", client.release)
        self.retake = self._step("reacquire", client.reacquire)
        self.return_tickets = client.return_tickets
        self.consents = client.poll_consents

    async def return_stock(self, sold: PaymentStep, *, reason: str) -> StepDone:
        """Returns everything that this order bought to sale."""
        return (await self._client.return_stock(ReturnStock(steps=[sold], reason=reason))).steps[0]

    async def read(self, reservation_id: str, event_id: str | None = None) -> Reservation | None:
        """A reservation of this event; without an event all are searched."""
        return await self._read_one((event_id, reservation_id))

    async def _read(self, named: list[tuple[str | None, str]]) -> Sequence[Reservation | None]:
        event_ids, reservation_ids = map(list, zip(*named, strict=True))
        question = ReadReservations.model_construct(event_ids=event_ids, reservation_ids=reservation_ids)
        return (await self._client.read(question)).reservations

    def _step(self, name: str, call: Callable[[PaymentSteps], Awaitable[StepsAnswer]], *, rests: bool = False) -> Step:
        async def work(steps: list[PaymentStep]) -> Sequence[StepDone]:
            return (await call(PaymentSteps(steps=steps))).steps

        return self.grouped(f"orders-{name}", work, rests=rests)
