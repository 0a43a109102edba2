"""The part of orders: codes that quotes and orders ask, and the operators' API of them."""

from features.promo.orders import endpoints
from features.promo.orders.codes import PromoCodes
from services.orders.state import State
from shared.concurrency.background import Loops
from shared.web.parts import Part


def open_promo(state: State, _: Loops) -> PromoCodes:
    """Quotes and orders know the codes from now on."""
    state.prices.codes = codes = PromoCodes(state.store.db, shared_by=state.settings.processes)
    return codes


PART = Part(routers=[endpoints.router], open=open_promo)
