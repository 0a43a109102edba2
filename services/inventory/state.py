"""What the handlers and loops of inventory share, opened once by `app.py`."""

from dataclasses import dataclass, field
from functools import partial
from typing import Annotated

from fastapi import Depends, Request
from sqlalchemy.ext.asyncio import AsyncEngine

from services.inventory.api.address_limits import AddressHolds
from services.inventory.api.auth import HolderAuthenticator
from services.inventory.catalogue.layout import EventCache
from services.inventory.reconcile.oversell_refunds import OversellRefunds
from services.inventory.reconcile.reconciler import Reconciler
from services.inventory.redis_stock.availability import AvailabilityPublisher
from services.inventory.redis_stock.client import RedisStock
from services.inventory.redis_stock.rebuild import RedisStockMonitor
from services.inventory.reservations.expiry_worker import ExpiryWorker
from services.inventory.reservations.payment import Payments
from services.inventory.reservations.reserve import BatchSizer, ReservationBatcher
from services.inventory.reservations.returns import ReturnService, TicketReturns
from services.inventory.settings import Settings
from shared.security.token_buckets import Buckets


@dataclass(slots=True)
class State:
    """Everything inventory works with. `reading` is the same pool for single statements: it opens no transaction."""

    settings: Settings
    db: AsyncEngine
    reading: AsyncEngine
    redis_stock: RedisStock
    catalogue: EventCache
    board: AvailabilityPublisher
    payments: Payments
    watcher: RedisStockMonitor
    sweeper: ExpiryWorker
    reconciler: Reconciler
    returns: ReturnService
    ticket_returns: TicketReturns
    refunding: OversellRefunds
    admissions: HolderAuthenticator
    portions: BatchSizer
    address_holds: AddressHolds
    given_back: Buckets
    reservers: dict[str, ReservationBatcher] = field(default_factory=dict)

    def reserver(self, event_id: str) -> ReservationBatcher:
        """Its events' batches never wait for another event's."""
        found = self.reservers.get(event_id)
        if found is None:
            found = self.reservers[event_id] = ReservationBatcher(
                self.db, self.redis_stock, event_id, batch_max=partial(self.portions.of, event_id),
                waiting_max=self.settings.hold_waiting_max,
            )  # fmt: skip
        return found


async def state(request: Request) -> State:
    """For `Depends`; `async`, because another would be run in a thread."""
    found: State = request.app.state.deps
    return found


InRoom = Annotated[State, Depends(state)]
