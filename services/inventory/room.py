"""What the handlers and loops of inventory share, opened once by `app.py`."""

from dataclasses import dataclass, field
from functools import partial
from typing import Annotated

from fastapi import Depends, Request
from sqlalchemy.ext.asyncio import AsyncEngine

from services.inventory.address_holds import AddressHolds
from services.inventory.admission import Admissions
from services.inventory.availability import Board
from services.inventory.gate import Gate
from services.inventory.holds import Reserver
from services.inventory.layout import Catalogue
from services.inventory.payment import Payments
from services.inventory.portions import Portions
from services.inventory.rebuild import Watcher
from services.inventory.reconcile import Reconciler
from services.inventory.refunding import Refunding
from services.inventory.returns import Returns
from services.inventory.settings import Settings
from services.inventory.sweeper import Sweeper
from services.inventory.ticket_returns import TicketReturns
from shared.buckets import Buckets


@dataclass(slots=True)
class Room:
    """Everything inventory works with. `reading` is the same pool for single statements: it opens no transaction."""

    settings: Settings
    engine: AsyncEngine
    reading: AsyncEngine
    gate: Gate
    catalogue: Catalogue
    board: Board
    payments: Payments
    watcher: Watcher
    sweeper: Sweeper
    reconciler: Reconciler
    returns: Returns
    ticket_returns: TicketReturns
    refunding: Refunding
    admissions: Admissions
    portions: Portions
    address_holds: AddressHolds
    given_back: Buckets
    reservers: dict[str, Reserver] = field(default_factory=dict)

    def reserver(self, event_id: str) -> Reserver:
        """Its events' batches never wait for another event's."""
        found = self.reservers.get(event_id)
        if found is None:
            found = self.reservers[event_id] = Reserver(
                self.engine, self.gate, event_id, batch_max=partial(self.portions.of, event_id),
                waiting_max=self.settings.hold_waiting_max,
            )  # fmt: skip
        return found


async def room(request: Request) -> Room:
    """For `Depends`; `async`, because another would be run in a thread."""
    found: Room = request.app.state.room
    return found


InRoom = Annotated[Room, Depends(room)]
