"""What orders answers its neighbours: whether a payment still stands, and an order for its stream."""

from typing import Literal

from pydantic import BaseModel, Field

from shared.contracts.frames import OrderFrame
from shared.rpc.client import ServiceClient

BATCH_MAX = 256


class PaymentRef(BaseModel):
    """A hold and the order that is said to pay for it."""

    reservation_id: str
    order_reference: str


class PaymentsQuestion(BaseModel):
    """Asked by inventory about holds in payment past their deadline."""

    payments: list[PaymentRef] = Field(min_length=1, max_length=BATCH_MAX)


class PaymentsAnswer(BaseModel):
    """`live`: leave it alone. `dead`: the order has ended unpaid. `absent`: there is no such order, and a tombstone now
    stands in its place so that a late transaction cannot make one.
    """

    payments: list[Literal["live", "dead", "absent"]]


class RefundsQuestion(BaseModel):
    """Asked by inventory: these were sold too often, so all their money goes back."""

    refunds: list[PaymentRef] = Field(min_length=1, max_length=BATCH_MAX)
    reason: str = Field(max_length=200)


class RefundsAnswer(BaseModel):
    """`asked`: the money is on its way back, also when it was before. `free`: nothing had been paid. `none`: there is
    no such sale, or it has ended. `later`: the order is not through yet; ask again.
    """

    refunds: list[Literal["asked", "free", "none", "later"]]


class OrdersQuestion(BaseModel):
    """Orders by their public reference."""

    references: list[str] = Field(min_length=1, max_length=BATCH_MAX)


class OrdersAnswer(BaseModel):
    """One frame per reference, in order; null for an unknown one."""

    orders: list[OrderFrame | None]


class OrdersClient:
    """Orders, asked over the wire."""

    def __init__(self, neighbour: ServiceClient) -> None:
        self._ask = neighbour.ask

    async def payments(self, payments: list[PaymentRef]) -> PaymentsAnswer:
        return await self._ask(
            "/reservations/status", PaymentsQuestion(payments=payments), PaymentsAnswer, deadline_s=5.0
        )

    async def refund(self, refunds: list[PaymentRef], *, reason: str) -> RefundsAnswer:
        question = RefundsQuestion(refunds=refunds, reason=reason)
        return await self._ask("/orders/refund", question, RefundsAnswer, deadline_s=5.0)

    async def read(self, references: list[str]) -> OrdersAnswer:
        return await self._ask("/orders/read", OrdersQuestion(references=references), OrdersAnswer)
