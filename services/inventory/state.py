"""The state of a running inventory process: what its handlers and loops share, built once by `app.py`."""

from math import ceil
from typing import Annotated

from fastapi import Depends, Request
from sqlalchemy.ext.asyncio import AsyncEngine

from services.inventory.auth import HolderAuthenticator
from services.inventory.catalogue.apply_event_file import EventFilePart, EventFiles
from services.inventory.layout.layout import EventCache
from services.inventory.reconcile.invariants import StockCheck
from services.inventory.reconcile.reconciler import Reconciler
from services.inventory.redis_stock.availability import AvailabilityPublisher
from services.inventory.redis_stock.client import RedisStock
from services.inventory.redis_stock.rebuild import RedisStockMonitor
from services.inventory.reservations.code_tries import CodeTries
from services.inventory.reservations.expiry_worker import ExpiryWorker
from services.inventory.reservations.holds import Holds
from services.inventory.reservations.payment import Payments
from services.inventory.reservations.reserve import Batchers, BatchSizer
from services.inventory.reservations.returns import ReturnService
from services.inventory.reservations.sessions import SessionStock
from services.inventory.reservations.type_changes import TypeChanges
from services.inventory.settings import Settings
from services.inventory.tuning import DEFAULTS, Tuning
from shared.contracts.orders import OrdersClient
from shared.messaging.snapshots import SnapshotPublisher
from shared.redis.client import Redis
from shared.runtime.clock import Clocks
from shared.security.limits import AddressHolds, Buckets
from shared.web.answers import Documents


class State:
    """Everything in it stands on these connections; `autocommit_db` is the same pool as `db`, for single statements
    without a transaction.
    """

    def __init__(
        self,
        settings: Settings,
        db: AsyncEngine,
        cache: Redis,
        orders: OrdersClient,
        authenticator: HolderAuthenticator,
        *,
        tuning: Tuning = DEFAULTS,
    ) -> None:
        self.settings, self.tuning, self.db, self.authenticator = settings, tuning, db, authenticator
        self.orders = orders
        self.users, self.queue = authenticator.users, authenticator.pass_claimer.queue  # for features
        self.autocommit_db = db.execution_options(isolation_level="AUTOCOMMIT")
        self.redis_stock = stock = RedisStock(cache, clocks=Clocks("inventory"))
        self.catalogue = catalogue = EventCache(self.autocommit_db)
        self.availability = AvailabilityPublisher(self.autocommit_db, stock, catalogue, SnapshotPublisher(cache))
        self.redis_monitor = RedisStockMonitor(db, stock, catalogue)
        self.event_file_parts, self.stock_checks = list[EventFilePart](), list[StockCheck]()  # features add theirs
        self.event_files = EventFiles(db, stock, self.redis_monitor, self.event_file_parts)
        self.documents = Documents()
        keys_max = settings.cache_entries_max
        per_s, burst = 1 / tuning.given_back_pause_s, tuning.given_back_at_once
        self.given_back = Buckets(per_s=per_s, burst=burst, keys_max=keys_max, shared_by=settings.processes)
        self.code_tries = CodeTries(keys_max=keys_max, processes=settings.processes)
        self.holds = Holds(db, self.autocommit_db, stock, self.given_back)
        self.type_changes = TypeChanges(db, stock)
        self.sessions = SessionStock(db, stock, catalogue, self.given_back)
        self.payments = Payments(db, stock, catalogue, self.given_back)
        self.returns = ReturnService(db, stock)
        self.expiry_worker = ExpiryWorker(db, stock, catalogue, self.payments, orders)
        since_s, interval_s = self.redis_monitor.ready_since_s, tuning.reconcile_interval_s
        self.reconciler = Reconciler(db, stock, catalogue, ready_since_s=since_s, interval_s=interval_s)
        sizer = BatchSizer(batch_max=tuning.hold_batch_max, batch_max_contended=tuning.hold_batch_max_contended)
        self.batchers = Batchers(db, stock, sizer, waiting_max=tuning.hold_waiting_max)
        self.address_holds = AddressHolds(most=ceil(settings.address_holds_max / settings.processes), keys_max=keys_max)


async def state(request: Request) -> State:
    """For `Depends`; `async`, because FastAPI runs other dependencies in a thread."""
    deps: State = request.app.state.deps
    return deps


StateDep = Annotated[State, Depends(state)]
