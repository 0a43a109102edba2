"""The part of inventory: maps, states of seats, brands and pictures of events."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from features.hall.inventory import api
from features.hall.inventory.api import HallParts
from features.hall.inventory.events import HallOfFile, halls
from features.hall.inventory.pictures import Pictures
from features.hall.inventory.seat_states import SeatStates
from services.inventory.state import State
from shared.concurrency.background import Loops
from shared.messaging.snapshots import SnapshotPublisher
from shared.web.parts import Part


@asynccontextmanager
async def open_hall(state: State, _: Loops) -> AsyncIterator[HallParts]:
    """Event files may have a map and a brand, and streams show seats."""
    seat_states = SeatStates(state.db, state.redis_stock, SnapshotPublisher(state.redis_stock.redis))
    state.event_file_parts.append(HallOfFile())
    state.catalogue.readers.append(halls)
    state.availability.watched = seat_states
    pictures = Pictures(state.db)
    try:
        yield HallParts(state.catalogue, pictures, seat_states)
    finally:
        await pictures.close()


PART = Part(routers=[api.router], fast_routes=api.FAST_ROUTES, internal_api=api.INTERNAL, open=open_hall)
