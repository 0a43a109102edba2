"""Inventory's part: operators' changes of stock, allotments that open by themselves, and the oversell policy."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial

from features.stock.inventory import accessible, allotments, blocking, by_code, oversell
from services.inventory.state import State
from shared.concurrency.background import Loops
from shared.web.parts import Part

OPENINGS_S, REFUNDS_S = 1.0, 1.0  # between two looks for allotments that are due, and for refunds


@asynccontextmanager
async def open_stock(state: State, loops: Loops) -> AsyncIterator[allotments.Allotments]:
    of_files = allotments.Allotments()
    state.event_file_parts.append(of_files)
    state.catalogue.readers.append(by_code.read_stock_by_code)
    state.stock_checks.append(allotments.wrong)
    state.reconciler.oversell_policy = partial(oversell.apply_policy, state.db)
    loops.every(OPENINGS_S, partial(allotments.open_due, state), name="inventory.allotments")
    loops.every(REFUNDS_S, partial(oversell.request_refunds, state), name="inventory.oversell_refunds")
    yield of_files


PART = Part(routers=[blocking.router, allotments.router, accessible.router, oversell.router], open=open_stock)
