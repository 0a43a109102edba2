"""After a reset the passes of the old line die at inventory; until it has said so, no pass of the new line is given.

Each process asks once for each epoch and remembers the answer: a claim costs nothing more.
"""

from contextlib import suppress

from services.queue.room import Room
from shared.contracts.inventory import InventoryClient, PassFloor
from shared.problems import UnknownEvent


class Floors:
    """The epochs below which inventory takes no pass, as far as this process was told."""

    def __init__(self, inventory: InventoryClient) -> None:
        self._inventory = inventory
        self._told: dict[str, int] = {}

    async def raised(self, room: Room) -> None:
        """Returns once older passes are dead. Raises what asking raised. A room without stock has nothing to kill."""
        if room.epoch == 1 or self._told.get(room.event_id, 0) >= room.epoch:
            return
        with suppress(UnknownEvent):
            await self._inventory.raise_pass_floor(PassFloor(event_id=room.event_id, epoch=room.epoch))
        self._told[room.event_id] = room.epoch
