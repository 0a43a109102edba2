"""What the steps of an order have in common: the parts of the process that they use, calls to inventory and, while its
heartbeat is fresh, to providers, and their run.

A beat counts from before it was sent, by the monotonic clock of this process. A provider is called only while the last
one is younger than half of what makes others take over. A process that was silent for longer begins anew: what it had
in work may be another's, and no run that began before calls a provider any more.
"""

import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

from services.orders.model.order import OpenOrder, Order
from services.orders.model.rules import Step, next_due_s, next_step
from services.orders.model.update import OrderUpdate, Release
from services.orders.settings import Settings
from services.orders.store.store import Frames, OrderStore
from services.orders.tickets.show import ShowCache
from services.orders.tuning import DEFAULTS, Tuning
from shared.concurrency.coalescing import GroupCommits
from shared.contracts.inventory import (
    BATCH_MAX,
    InventoryClient,
    PaymentStep,
    PaymentSteps,
    ReadReservations,
    Reservation,
    ReturnStock,
    StepDone,
    StepsAnswer,
)
from shared.http.outgoing import ExternalClient, ExternalResponse, NotReached
from shared.payment_provider import Provider
from shared.process.load import PurchaseWork

Failpoint = Callable[[str, str], Awaitable[None]]
InventoryStep = Callable[[PaymentStep], Awaitable[StepDone]]
WAITING_MAX = 5000
IN_FLIGHT_MAX = 2


async def no_failpoint(name: str, reference: str) -> None:
    """A failpoint is where a test may stop an order's processing; this one does nothing."""


def payment_step(order: Order) -> PaymentStep:
    """A step of this order on its hold."""
    return PaymentStep(event_id=order.event_id, reservation_id=order.reservation_id, order_reference=order.reference)


class InventoryBatcher(GroupCommits):
    """The same step of concurrent orders is one call, and one transaction there. Every step is idempotent and has its
    own answer. Returns are not batched: each is all or nothing. Use inside `async with`.
    """

    def __init__(self, client: InventoryClient) -> None:
        super().__init__(batch_max=BATCH_MAX, waiting_max=WAITING_MAX, in_flight_max=IN_FLIGHT_MAX)
        self._client = client
        self._read_one = self.grouped("orders-reservations", self._read)
        self.begin_payment = self._step("begin-payment", client.begin_payment)
        self.extend_payment = self._step("extend-payment", client.extend_payment)
        self.end_payment = self._step("end-payment", client.end_payment)
        self.confirm = self._step("confirm", client.confirm, rests=True)
        self.release = self._step("release", client.release)
        self.retake = self._step("reacquire", client.reacquire)
        self.return_tickets = client.return_tickets
        self.consents = client.poll_consents

    async def return_stock(self, sold: PaymentStep, *, reason: str) -> StepDone:
        """Returns everything that this order bought to sale."""
        return (await self._client.return_stock(ReturnStock(steps=[sold], reason=reason))).steps[0]

    async def read(self, reservation_id: str, event_id: str | None = None) -> Reservation | None:
        """A reservation of this event; without an event all are searched."""
        return await self._read_one((event_id, reservation_id))

    async def _read(self, named: list[tuple[str | None, str]]) -> Sequence[Reservation | None]:
        event_ids, reservation_ids = map(list, zip(*named, strict=True))
        question = ReadReservations.model_construct(event_ids=event_ids, reservation_ids=reservation_ids)
        return (await self._client.read(question)).reservations

    def _step(
        self, name: str, call: Callable[[PaymentSteps], Awaitable[StepsAnswer]], *, rests: bool = False
    ) -> InventoryStep:
        async def work(steps: list[PaymentStep]) -> Sequence[StepDone]:
            return (await call(PaymentSteps(steps=steps))).steps

        return self.grouped(f"orders-{name}", work, rests=rests)


_began_in: ContextVar[int | None] = ContextVar("began_in", default=None)


class Heartbeat:
    """The last beat of this process that the database has. `life` rises each time that the process was silent for too
    long.
    """

    def __init__(self, takeover_s: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._fresh_s, self._clock = takeover_s / 2, clock
        self._beat_s: float | None = None
        self.life = 0

    def begin(self) -> float:
        """To be read before a beat is sent, and passed to `record`."""
        return self._clock()

    def record(self, begun_s: float) -> None:
        """The beat that began so is written."""
        if self._beat_s is not None and begun_s - self._beat_s >= self._fresh_s:
            self.life += 1
        self._beat_s = max(begun_s, self._beat_s or begun_s)

    @property
    def is_fresh(self) -> bool:
        """Whether nobody can have taken over our orders, nor will in the next moments."""
        return self._beat_s is not None and self._clock() - self._beat_s < self._fresh_s

    def enter(self) -> None:
        """A run of an order begins in this task."""
        _began_in.set(self.life)

    @property
    def may_call(self) -> bool:
        """Whether this task may call a provider: for the run that it has entered, or for no order at all."""
        return self.is_fresh and _began_in.get() in (None, self.life)


class ProviderClient:
    """The external client of providers. A call waits for a server outside the suite, so meanwhile the order is no load
    of this process. Without a fresh heartbeat nothing is sent, as if the provider could not be reached.
    """

    def __init__(self, client: ExternalClient, load: PurchaseWork, heartbeat: Heartbeat) -> None:
        self._client, self._load, self._heartbeat = client, load, heartbeat

    async def request(
        self, method: str, url: str, *, headers: Mapping[str, str], content: bytes | None = None, timeout_s: float
    ) -> ExternalResponse:
        """As `ExternalClient.request`."""
        if not self._heartbeat.may_call:
            raise NotReached("this process was silent for too long: its orders may be another's")
        with self._load.outside():
            return await self._client.request(method, url, headers=headers, content=content, timeout_s=timeout_s)


@dataclass(slots=True)
class MailPort:
    """What a feature that sends mail offers, as it fills it in; without one no mail is queued, and every address is
    fine. `check_address` raises a problem for an address that can never be mailed.
    """

    is_sent: bool = False
    check_address: Callable[[str], None] = lambda _address: None


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """The parts of a process that work on orders uses."""

    store: OrderStore
    frames: Frames
    inventory: InventoryBatcher
    providers: dict[str, Provider]
    settings: Settings
    shows: ShowCache
    mail: MailPort = field(default_factory=MailPort)
    failpoint: Failpoint = no_failpoint
    tuning: Tuning = DEFAULTS


@dataclass(slots=True)
class OrderRun:
    """One run over the due steps of an order. With `is_first_call` no provider was called for its attempt yet;
    `is_released` once an update has ended it.
    """

    parts: Parts
    claim: OpenOrder
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
        after = await self.parts.store.save(update)
        self.is_released = self.is_released or update.release is not None
        return after

    def next_step(self, order: Order) -> Step:
        return next_step(order, review_after_s=self.parts.settings.review_after_s)

    def release_if_done(self, update: OrderUpdate) -> None:
        """Ends the run with this update if nothing more is due for the order as it is then."""
        after = update.after()
        if self.next_step(after) == "wait":
            update.release = Release(self.due_in_s(after))

    def due_in_s(self, order: Order) -> float | None:
        """When it is due without being woken, if nothing is to be done now; None: never."""
        return next_due_s(order, sync_interval_s=self.parts.settings.provider_sync_interval_s)

    async def failpoint(self, name: str) -> None:
        await self.parts.failpoint(name, self.claim.reference)

    def queue_mail(self, update: OrderUpdate, kind: str, **facts: Any) -> None:
        """Where no mail is sent none is queued: otherwise all would go out on the day a server is configured."""
        if self.parts.mail.is_sent:
            update.queue_mail(kind, **facts)
