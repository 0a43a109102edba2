"""The calls of other services: payment status of reservations, orders for streams, refunds of oversold tickets."""

from pydantic import ValidationError

from services.orders.api.orders import offered_providers
from services.orders.checkout.requests import QuoteRequest
from services.orders.model.order import Customer
from services.orders.model.view import order_frame, order_view
from services.orders.pricing.quote import all_in, quote_body
from services.orders.problems import AmountNotPayable, PromoCodeNotValid
from services.orders.requests.requests import refund_oversold
from services.orders.state import State
from services.orders.store.store import payment_statuses
from shared.contracts.orders import (
    CheckoutFacts,
    OrdersAnswer,
    OrdersQuestion,
    OrderView,
    OwnOrder,
    PaymentsAnswer,
    PaymentsQuestion,
    QuoteAnswer,
    ReadCheckout,
    ReadOwnOrder,
    ReadPrices,
    RefundsAnswer,
    RefundsQuestion,
)
from shared.contracts.prices import PricesAnswer
from shared.errors.problems import BadCredential, Problem, TooManyWrongCodes
from shared.security.tokens import read_order_token
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


@API.operation("/orders/own", ReadOwnOrder)
async def read_own(state: State, question: ReadOwnOrder) -> OwnOrder:
    if read_order_token(state.settings.order_token_keys, question.token) != question.reference:
        raise BadCredential
    order = await state.store.require(question.reference)
    return OwnOrder(order=OrderView.model_validate(order_view(order)), providers=offered_providers(state))


@API.operation("/checkout/read", ReadCheckout)
async def read_checkout(state: State, question: ReadCheckout) -> CheckoutFacts:
    """A promo code that is not valid is left out of the quote, and named as the refusal."""
    customers = [Customer(question.event_id, question.holder)]
    refusal, code = None, question.promo_code
    try:
        with_code = QuoteRequest(reservation_id=question.reservation_id, promo_code=code)
        quoted = await state.checkout.quote(customers, with_code, address=question.address)
    except (PromoCodeNotValid, TooManyWrongCodes, AmountNotPayable, ValidationError) as refused:
        refusal = refused.slug if isinstance(refused, Problem) else PromoCodeNotValid.slug
        plain = QuoteRequest(reservation_id=question.reservation_id)
        quoted = await state.checkout.quote(customers, plain, address=question.address)
    quote = QuoteAnswer.model_validate(quote_body(*quoted))
    return CheckoutFacts(quote=quote, providers=offered_providers(state), refusal=refusal)


@API.operation("/events/prices", ReadPrices)
async def read_prices(state: State, question: ReadPrices) -> PricesAnswer:
    rules, currency, _ = await state.prices.rules(question.event_id)
    each = {minor: all_in(rules, [(minor, 1)], currency) for minor in question.each}
    return PricesAnswer(**rules.model_dump(), all_in=each)


@API.operation("/orders/refund", RefundsQuestion)
async def refund(state: State, question: RefundsQuestion) -> RefundsAnswer:
    return RefundsAnswer(
        refunds=[await refund_oversold(state.store, sale, question.reason) for sale in question.refunds]
    )
