"""The part of orders: codes that quotes and orders ask, and the operators' API of them."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from features.promo.orders import endpoints
from features.promo.orders.codes import PromoCodes
from services.orders.state import State
from shared.concurrency.background import Loops
from shared.web.parts import Part


@asynccontextmanager
async def open_promo(state: State, _: Loops) -> AsyncIterator[PromoCodes]:
    """Orders know the codes from now on."""
    async with PromoCodes(state.store.db, shared_by=state.settings.processes) as codes:
        state.prices.codes = codes
        yield codes


PART = Part(routers=[endpoints.router], open=open_promo)
