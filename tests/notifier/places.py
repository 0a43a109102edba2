"""Places of the event that inventory keeps from sale."""

from features.stock.inventory.blocking import move_places
from features.stock.schemas import PlacesChange
from services.inventory.state import State
from tests.notifier.frames import EVENT


async def block(state: State, *seat_ids: str) -> None:
    """As an operator does."""
    places = PlacesChange(seats=list(seat_ids), reason="a test")
    await move_places(state, EVENT, "block", places, by="test")
