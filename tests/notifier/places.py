"""Places of the event that inventory keeps from sale."""

from services.inventory.state import State
from services.inventory.stock.blocking import block_places
from shared.contracts.admin.inventory import PlacesChange
from tests.notifier.frames import EVENT


async def block(state: State, *seat_ids: str) -> None:
    """As an operator does."""
    places = PlacesChange(seats=list(seat_ids), reason="a test")
    await state.stock_editor.apply(EVENT, "block", places, lambda change: block_places(change, places), by="test")
