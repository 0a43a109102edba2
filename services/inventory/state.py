"""What the handlers and loops of inventory share, opened once by `app.py`."""

from dataclasses import dataclass, field
from functools import partial
from typing import Annotated

from fastapi import Depends, Request
from sqlalchemy.ext.asyncio import AsyncEngine

from services.inventory.api.address_limits import AddressHolds
from services.inventory.api.auth import Admissions
from services.inventory.catalogue.layout import Catalogue
from services.inventory.reconcile.oversell_refunds import Refunding
from services.inventory.reconcile.reconciler import Reconciler
from services.inventory.redis_stock.availability import Board
from services.inventory.redis_stock.client import Gate
from services.inventory.redis_stock.rebuild import Watcher
from services.inventory.reservations.expiry_worker import Sweeper
from services.inventory.reservations.payment import Payments
from services.inventory.reservations.reserve import Portions, Reserver
from services.inventory.reservations.returns import Returns, TicketReturns
from services.inventory.settings import Settings
from shared.security.token_buckets import Buckets


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
