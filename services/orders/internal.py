"""The calls of other services: payment status of reservations, orders for streams, refunds of oversold tickets."""

from fastapi import APIRouter, Request

from services.orders.order import leases
from services.orders.order.payment_status import payment_statuses
from services.orders.order.view import order_frame
from services.orders.pricing.calculator import all_in
from services.orders.refunds.request import refund_oversold
from services.orders.state import state_of
from shared.contracts.orders import (
    OrdersAnswer,
    OrdersQuestion,
    PaymentsAnswer,
    PaymentsQuestion,
    ReadPrices,
    RefundsAnswer,
    RefundsQuestion,
)
from shared.contracts.prices import PricesAnswer

router = APIRouter()


@router.post("/reservations/status")
async def payments(question: PaymentsQuestion, request: Request) -> PaymentsAnswer:
    return PaymentsAnswer(payments=await payment_statuses(state_of(request).db, question.payments))


@router.post("/orders/read")
async def read(question: OrdersQuestion, request: Request) -> OrdersAnswer:
    orders = await leases.read_many(state_of(request).repository.db, question.references)
    return OrdersAnswer(orders=[order_frame(orders[r]) if r in orders else None for r in question.references])


@router.post("/events/prices")
async def read_prices(question: ReadPrices, request: Request) -> PricesAnswer:
    rules = await state_of(request).price_rules.rules(question.event_id)
    return PricesAnswer(**rules.model_dump(), all_in={minor: all_in(rules, [(minor, 1)]) for minor in question.each})


@router.post("/orders/refund")
async def refund(question: RefundsQuestion, request: Request) -> RefundsAnswer:
    state = state_of(request)
    return RefundsAnswer(
        refunds=[
            await refund_oversold(state.db, state.repository, state.job_queue, sale, question.reason)
            for sale in question.refunds
        ]
    )
