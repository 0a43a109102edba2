"""The part of orders: the operators' API of support, and the loop that refunds events."""

from contextlib import nullcontext
from functools import partial

from features.support.orders import endpoints
from services.orders.state import State
from shared.concurrency.background import Loops
from shared.web.parts import Part


def open_support(state: State, loops: Loops) -> nullcontext[None]:
    """Event refunds go on, also those that another process began."""
    work = partial(endpoints.request_next_batch, state.store)
    loops.every(endpoints.EVERY_S, work, name="orders.event_refunds")
    return nullcontext()


PART = Part(routers=[endpoints.router, endpoints.event_refunds], open=open_support)
