"""What the steps of an order have in common: the parts of the process that they use, and their run."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

from services.orders.model.next_step import Step, next_due_s, next_step
from services.orders.model.order import Order
from services.orders.model.update import OrderUpdate, Ownership, Release
from services.orders.providers.provider import Provider
from services.orders.settings import Settings
from services.orders.steps.inventory_client import InventoryBatcher
from services.orders.store.frames import Frames
from services.orders.store.store import OrderStore
from services.orders.tickets.show import ShowCache
from services.orders.tuning import DEFAULTS, Tuning

Failpoint = Callable[[str, str], Awaitable[None]]


async def no_failpoint(name: str, reference: str) -> None:
    """A failpoint is where a test may stop an order's processing; this one does nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """The parts of a process that work on orders uses."""

    store: OrderStore
    frames: Frames
    inventory: InventoryBatcher
    providers: Mapping[str, Provider]
    settings: Settings
    shows: ShowCache
    failpoint: Failpoint = no_failpoint
    tuning: Tuning = DEFAULTS


@dataclass(slots=True)
class OrderRun:
    """One run over the due steps of an order. With `is_first_call` no provider was called for its attempt yet;
    `is_released` once an update has ended it.
    """

    parts: Parts
    claim: Ownership
    is_first_call: bool = False
    is_released: bool = False

    def update(self, order: Order, *, bumps_version: bool = True) -> OrderUpdate:
        """An update of this order that is written only while the order is ours."""
        at_ms = max(order.now_ms, self.parts.store.clocks.slowest_ms())
        return OrderUpdate(order, self.claim, at_ms=at_ms, bumps_version=bumps_version)

    async def save(self, update: OrderUpdate) -> Order:
        """Writes it and returns the order as it is then. Raises `NotWritten`."""
        if update.bumps_version:
            self.parts.store.latest.pop(update.order.reference, None)
        written = await self.parts.store.save(update)
        self.is_released = self.is_released or update.release is not None
        return update.after(*written)

    def next_step(self, order: Order) -> Step:
        return next_step(order, review_after_s=self.parts.settings.review_after_s)

    def release_if_done(self, update: OrderUpdate, after: Order) -> None:
        """Ends the run with this update if nothing more is due for the order as it is then, nor a sync requested."""
        if self.next_step(after) == "wait" and (update.synced or not update.order.sync_requested):
            update.release = Release(self.due_in_s(after))

    def due_in_s(self, order: Order) -> float | None:
        """When it is due without being woken, if nothing is to be done now; None: never."""
        return next_due_s(order, sync_interval_s=self.parts.settings.provider_sync_interval_s)

    async def failpoint(self, name: str) -> None:
        await self.parts.failpoint(name, self.claim.reference)

    def queue_mail(self, update: OrderUpdate, kind: str, **facts: Any) -> None:
        """Without a mail server no mail is queued: otherwise all would go out on the day one is configured."""
        if self.parts.settings.smtp_url is not None:
            update.queue_mail(kind, **facts)
