"""The calls of other services: payment status of reservations, orders for streams, refunds of oversold tickets."""

from services.orders.model.view import order_frame
from services.orders.requests.requests import refund_oversold
from services.orders.state import State
from services.orders.store.store import payment_statuses
from shared.contracts.orders import (
    OrdersAnswer,
    OrdersQuestion,
    PaymentsAnswer,
    PaymentsQuestion,
    RefundsAnswer,
    RefundsQuestion,
)
from shared.web.internal_api import InternalApi

API = InternalApi()


@API.operation("/reservations/status", PaymentsQuestion)
async def payments(state: State, question: PaymentsQuestion) -> PaymentsAnswer:
    return PaymentsAnswer(payments=await payment_statuses(state.db, question.payments))


@API.operation("/orders/read", OrdersQuestion)
async def read(state: State, question: OrdersQuestion) -> OrdersAnswer:
    orders = {r: order for r in question.references if (order := state.worker.known(r))}
    if unknown := [r for r in question.references if r not in orders]:
        orders |= await state.store.read_all(unknown)
    return OrdersAnswer(orders=[order_frame(orders[r]) if r in orders else None for r in question.references])


@API.operation("/orders/refund", RefundsQuestion)
async def refund(state: State, question: RefundsQuestion) -> RefundsAnswer:
    return RefundsAnswer(
        refunds=[await refund_oversold(state.store, sale, question.reason) for sale in question.refunds]
    )
