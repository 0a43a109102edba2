"""The container of everything that inventory's handlers and loops share, built once by `app.py`."""

from dataclasses import dataclass, field
from functools import partial
from typing import Annotated

from fastapi import Depends, Request
from sqlalchemy.ext.asyncio import AsyncEngine

from services.inventory.api.address_limits import AddressHolds
from services.inventory.api.auth import HolderAuthenticator
from services.inventory.catalogue.apply_event_file import EventFiles
from services.inventory.catalogue.event_cache import EventCache
from services.inventory.reconcile.oversell_refunds import OversellRefunds
from services.inventory.reconcile.reconciler import Reconciler
from services.inventory.redis_stock.availability import AvailabilityPublisher
from services.inventory.redis_stock.client import RedisStock
from services.inventory.redis_stock.rebuild import RedisStockMonitor
from services.inventory.reservations.expiry_worker import ExpiryWorker
from services.inventory.reservations.holds import Holds
from services.inventory.reservations.payment import Payments
from services.inventory.reservations.reserve import BatchSizer, ReservationBatcher
from services.inventory.reservations.returns import ReturnService
from services.inventory.reservations.sessions import SessionStock
from services.inventory.settings import Settings
from services.inventory.stock.editor import StockEditor
from shared.security.token_buckets import Buckets


@dataclass(slots=True)
class State:
    """`autocommit_db` is the same pool as `db`, for single statements without a transaction."""

    settings: Settings
    db: AsyncEngine
    autocommit_db: AsyncEngine
    redis_stock: RedisStock
    catalogue: EventCache
    availability: AvailabilityPublisher
    event_files: EventFiles
    holds: Holds
    sessions: SessionStock
    payments: Payments
    redis_monitor: RedisStockMonitor
    expiry_worker: ExpiryWorker
    stock_editor: StockEditor
    reconciler: Reconciler
    returns: ReturnService
    oversell_refunds: OversellRefunds
    authenticator: HolderAuthenticator
    batch_sizer: BatchSizer
    address_holds: AddressHolds
    release_limit: Buckets
    batchers: dict[str, ReservationBatcher] = field(default_factory=dict)

    def batcher_of(self, event_id: str) -> ReservationBatcher:
        """One batcher per event, so that no event waits for the batches of another."""
        batcher = self.batchers.get(event_id)
        if batcher is None:
            batcher = self.batchers[event_id] = ReservationBatcher(
                self.db, self.redis_stock, event_id, batch_max=partial(self.batch_sizer.next_max, event_id),
                waiting_max=self.settings.hold_waiting_max,
            )  # fmt: skip
        return batcher


async def state(request: Request) -> State:
    """For `Depends`; `async`, because FastAPI runs other dependencies in a thread."""
    deps: State = request.app.state.deps
    return deps


StateDep = Annotated[State, Depends(state)]
