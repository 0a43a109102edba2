"""The open orders of this process, and the work on them: events in turn, of each event the lowest `join_seq` first.

An order belongs to the process that wrote it, in `orders.open_order`, until nothing is left to do for it. Each process
says a few times in `takeover_s` that it is alive; orders of one that is silent for so long are taken over by others.
No row is read or written to find the next order: what is due is in memory, what is asked by another process arrives as
a notification, and a sweep finds what was lost.

A beat counts from before it was sent, by the monotonic clock of this process. A provider is called only while the last
one is younger than half of what makes others take over. A process that was silent for longer begins anew: what it had
in work may be another's, and no run that began before calls a provider any more.
"""

import asyncio
import heapq
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from contextlib import suppress
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Literal

from services.orders.metrics import DUE, OLDEST_DUE, ORDERS_TAKEN_OVER, PROCESSED_INLINE, WORKERS_IN_TIME
from services.orders.model.order import Order
from services.orders.model.update import Ownership
from services.orders.settings import Settings
from services.orders.store.store import CHANNEL, OpenOrder, OrderStore, notify
from services.orders.store.webhook_inbox import apply_webhooks
from services.orders.tuning import DEFAULTS, Tuning
from services.orders.worker.processor import OrderProcessor, Result
from shared.concurrency.tasks import stop
from shared.http.outgoing import ExternalClient, ExternalResponse, NotReached
from shared.postgres.engine import DB_AWAY, Servers, statement
from shared.postgres.settings import WAITS
from shared.process.load import PurchaseWork
from shared.runtime.descriptors import descriptors_max
from shared.runtime.logging import get_logger

log = get_logger("onsale.orders")
Path = Literal["background", "request", "overflow", "late"]
LISTENER = "onsale-orders-listen"
SWEEP_S, QUIET_S = 0.5, 4.0
TAKEN_MAX = 1000  # orders that one sweep takes over
BEHIND_S = 0.5  # an order that waited so long for a worker is given to a process that has one
PROVIDER_AWAY_PAUSE_S = 0.5
DOUBT_S = 15.0  # longer than a statement of ours goes on after its connection broke
DB_AWAY_PAUSE_S, FAILED_PAUSE_S = 0.5, 9.0
_BEAT = statement("services.orders.store", "beat")
_TAKE_OVER = statement("services.orders.store", "take_over")
_READ_WOKEN = statement("services.orders.store", "read_woken")
_READ_UNKNOWN = statement("services.orders.store", "read_unknown")
_GIVE_UP = statement("services.orders.store", "give_up")

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
class HeldOrder:
    """An open order of this process. `order` is as it was just written, None once it has to be read. Once it is ready
    `begun` is set when its run begins, `task` while it runs; otherwise it is due at `due_s`. `away`: a payment provider
    could not be reached for it. `held_up`: or for one that waited when this one became due.
    """

    open_order: OpenOrder
    order: Order | None = None
    is_ready: bool = False
    since_s: float = 0.0
    due_s: float = 0.0
    woken: bool = False
    away: bool = False
    held_up: bool = False
    begun: asyncio.Event = field(default_factory=asyncio.Event)
    task: asyncio.Task[Result] | None = None


class Worker:
    """Use `run` and `listen` as loops of the process, and `close` at its end."""

    def __init__(
        self, store: OrderStore, processor: OrderProcessor, settings: Settings, load: PurchaseWork,
        heartbeat: Heartbeat, tuning: Tuning = DEFAULTS,
    ) -> None:  # fmt: skip
        self._store, self._processor, self._load, self._tuning = store, processor, load, tuning
        self._heartbeat, self._postgres_url = heartbeat, settings.postgres_url
        self._workers_max, self._in_work_max = tuning.workers, min(tuning.in_work_max, descriptors_max() // 2)
        self._held: dict[str, HeldOrder] = {}
        self._ready: OrderedDict[str, list[tuple[int, str]]] = OrderedDict()  # of each event, by join_seq
        self._timers: list[tuple[float, str]] = []
        self._running, self._pausing, self._free_slots = 0, 0, tuning.inline_slots_max
        self._away = self._held_up = 0  # of those that are due or in work
        self._nudged, self._reviving = asyncio.Event(), asyncio.Lock()
        self._sweep_pause_s = SWEEP_S
        self._is_stopping, self._hears, self._doubt_until_s = False, False, 0.0
        self.owner = store.owner
        store.on_wake = self.wake
        load.follow(lambda: (self.waiting, self._held_up), self._begin_ready)

    def in_work(self) -> list[str]:
        """The orders that are being processed."""
        return [reference for reference, held in self._held.items() if held.task is not None]

    @property
    def waiting(self) -> int:
        """Orders that are due and find no free worker."""
        return sum(map(len, self._ready.values()))

    def add(self, order: Order) -> None:
        """Takes an order that this process has just written; its first run begins at once if a worker is free."""
        self._sweep_pause_s = SWEEP_S
        if order.reference not in self._held:  # else a sweep in doubt was first
            held = HeldOrder(OpenOrder(order.reference, order.event_id, order.join_seq, 0), order)
            self._held[order.reference], self._store.latest[order.reference] = held, order
            self._make_ready(held)

    def wake(self, open_order: OpenOrder) -> None:
        """Something was asked of this order of ours: it is read and processed now, again if it is just in work."""
        self._sweep_pause_s = SWEEP_S
        held = self._held.get(open_order.reference)
        if held is None or held.open_order.epoch != open_order.epoch:
            if held is not None and held.is_ready:
                self._is_due_no_more(away=held.away, held_up=held.held_up)
            held = self._held[open_order.reference] = HeldOrder(open_order)
        held.order = None
        self._store.latest.pop(open_order.reference, None)
        if held.task is not None:
            held.woken = True
        elif not held.is_ready:
            self._make_ready(held)

    def known(self, reference: str) -> Order | None:
        """A pending order of this process as the database has it, without asking it; None if that is not certain. What
        another process asks of it is seen once its notification has arrived.
        """
        held, order = self._held.get(reference), self._store.latest.get(reference)
        if held is None or held.woken or order is None or order.status != "pending":
            return None
        if not (self._hears and self._heartbeat.is_fresh):
            return None
        return replace(order, now_ms=max(order.now_ms, self._store.clocks.slowest_ms()))

    def doubt(self) -> None:
        """The answer of the database was lost: orders may be ours that we do not know of. The next sweeps find them."""
        self._doubt_until_s = asyncio.get_running_loop().time() + DOUBT_S

    async def require_alive(self) -> None:
        """Beats if the last beat is not fresh: what this process writes now is its own at once."""
        async with self._reviving:
            if not self._heartbeat.is_fresh:
                await self._beat()

    async def settle(self, reference: str) -> bool:
        """Waits until this order was processed, up to `inline_timeout_s`; it is begun at once, beside the workers, if
        an inline slot is free. False if it is another process' order, or no slot is free.
        """
        held = self._held.get(reference)
        if held is None:
            return False
        if held.task is None and held.is_ready:
            if self._free_slots <= 0:
                return False
            self._begin(held, inline=True)
        if held.task is not None:
            await asyncio.wait([held.task], timeout=self._tuning.inline_timeout_s)
        return True

    async def settle_or_leave(self, reference: str, *, in_background: bool) -> Path:
        """Leaves an order that was written or woken here just now to the worker that begins it, or waits until it was
        processed: if it is not for the background, or if no worker begins it within `begin_within_s`. Returns who
        processes it, as a label of the metrics.
        """
        if not in_background:
            return "request" if await self.settle(reference) else "overflow"
        held = self._held.get(reference)
        if held is None or held.begun.is_set():
            WORKERS_IN_TIME.set(1)
            return "background"
        if self._free_slots <= 0:
            return "overflow"
        with suppress(TimeoutError):
            async with asyncio.timeout(self._tuning.begin_within_s):
                await held.begun.wait()
            return "background"
        WORKERS_IN_TIME.set(0)
        if not await self.settle(reference):
            return "overflow"
        PROCESSED_INLINE.inc()
        return "late"

    # --- the loops

    async def run(self) -> None:
        """Sweeps until cancelled; orders in work go on until `close`."""
        while True:
            await self.sweep()
            await self._wait()

    async def sweep(self) -> None:
        """Beats, and takes what has become ours: orders of processes that are silent, and what was asked of ours while
        a notification was lost. An order that waits for a worker goes to a process that has one free.
        """
        try:
            await self._sweep()
        except DB_AWAY:
            self.doubt()
            raise
        self._count()

    async def _sweep(self) -> None:
        found = await self._beat()
        if found.woken:
            for one in await self._fetch(_READ_WOKEN):
                self.wake(one)
        if found.dead and not self._is_stopping:
            bound = {"dead": found.dead, "takeover_s": self._tuning.takeover_s, "many": TAKEN_MAX}
            for one in await self._fetch(_TAKE_OVER, **bound):
                self._hold(one)
                ORDERS_TAKEN_OVER.inc()
        if asyncio.get_running_loop().time() < self._doubt_until_s:
            for one in await self._fetch(_READ_UNKNOWN, known=list(self._held)):
                if one.reference not in self._held:
                    self._hold(one)
        await self._give_to_others(int(found.free_elsewhere))
        if found.has_webhooks:
            await apply_webhooks(self._store, self.in_work())

    async def listen(self) -> None:
        """Hears what other processes ask of our orders, on a connection of its own, until it fails."""
        servers = Servers(self._postgres_url, connect_timeout_s=WAITS.connect_timeout_s)
        connection = await servers.connect(name=LISTENER, answer_timeout_s=WAITS.answer_timeout_s)
        closed = asyncio.Event()
        connection.add_termination_listener(lambda _: closed.set())
        try:
            await connection.add_listener(CHANNEL, self._on_message)
            self._store.latest.clear()  # what was asked until now was not heard
            self._hears = True
            await closed.wait()
        finally:
            self._hears = False
            connection.terminate()

    def _on_message(self, _: Any, __: int, ___: str, message: str) -> None:
        if not message:
            self._nudged.set()
        for reference in message.split(","):
            if held := self._held.get(reference):
                self.wake(held.open_order)

    async def close(self) -> None:
        """Hands over: no order begins any more, those in work are finished, and all that is open is left to others."""
        self._is_stopping = True
        if tasks := [held.task for held in self._held.values() if held.task is not None]:
            _, late = await asyncio.wait(tasks, timeout=self._tuning.handover_s)
            await stop(late)
        with suppress(*DB_AWAY):
            async with self._store.db.connect() as connection:
                await connection.execute(_GIVE_UP, {"owner": self.owner, "all": True, "references": []})
            await notify(self._store.db, "")

    # --- what is due

    def _make_ready(self, held: HeldOrder) -> None:
        held.is_ready, held.since_s, held.begun = True, asyncio.get_running_loop().time(), asyncio.Event()
        held.held_up = held.away or self._away > 0
        self._away += held.away
        self._held_up += held.held_up
        one = held.open_order
        heapq.heappush(self._ready.setdefault(one.event_id, []), (one.join_seq, one.reference))
        self._begin_ready()

    def _hold(self, one: OpenOrder) -> None:
        self._held[one.reference] = held = HeldOrder(one)
        self._schedule(held, one.due_in_s)

    def _schedule(self, held: HeldOrder, due_in_s: float) -> None:
        if due_in_s <= 0:
            self._make_ready(held)
            return
        held.due_s = asyncio.get_running_loop().time() + due_in_s
        heapq.heappush(self._timers, (held.due_s, held.open_order.reference))
        if self._timers[0][1] == held.open_order.reference:
            self._nudged.set()

    def _begin_ready(self) -> None:
        """Starts as many orders as there are free workers: events take turns."""
        while self._free > 0 and not self._is_stopping and (held := self._next()):
            self._begin(held)

    @property
    def _free(self) -> int:
        """How many orders may begin: one that waits for a provider takes no worker, only a place among those in work.
        A worker that pauses is taken.
        """
        here = self._running - self._load.outside_now + self._pausing
        return min(self._workers_max - here, self._in_work_max - self._running)

    def _next(self) -> HeldOrder | None:
        while self._ready:
            event_id, waiting = next(iter(self._ready.items()))
            self._ready.move_to_end(event_id)
            _, reference = heapq.heappop(waiting)
            if not waiting:
                del self._ready[event_id]
            held = self._held.get(reference)
            if held is not None and held.is_ready:
                return held
        return None

    def _begin(self, held: HeldOrder, *, inline: bool = False) -> None:
        held.is_ready = False
        held.begun.set()
        self._running += not inline
        self._free_slots -= inline
        held.task = asyncio.create_task(self._work(held))
        due_no_more = partial(self._is_due_no_more, away=held.away, held_up=held.held_up)
        held.task.add_done_callback(lambda _: due_no_more())
        held.task.add_done_callback(lambda task: self._ended(held, task, inline=inline))

    def _is_due_no_more(self, *, away: bool, held_up: bool) -> None:
        self._away -= away
        self._held_up -= held_up

    async def _work(self, held: HeldOrder) -> Result:
        claim = Ownership(held.open_order.reference, self.owner, held.open_order.epoch)
        try:
            await self.require_alive()
            self._heartbeat.enter()
            order, held.order, held.woken = held.order, None, False
            with self._load.work(accepted=order is not None or held.held_up):
                result = await self._processor.process(claim, order)
                held.away = result.provider_away
                if held.away:
                    await self._pause()
        except DB_AWAY:
            return Result(due_in_s=DB_AWAY_PAUSE_S)
        except Exception:
            log.exception("order.processing_failed", reference=claim.reference)
            return Result(due_in_s=FAILED_PAUSE_S)
        return result

    async def _pause(self) -> None:
        self._pausing += 1
        try:
            with self._load.outside():
                await asyncio.sleep(PROVIDER_AWAY_PAUSE_S)
        finally:
            self._pausing -= 1

    def _ended(self, held: HeldOrder, task: asyncio.Task[Result], *, inline: bool) -> None:
        held.task = None
        self._running -= not inline
        self._free_slots += inline
        if self._held.get(held.open_order.reference) is held:
            due_in_s = FAILED_PAUSE_S if task.cancelled() else task.result().due_in_s
            if held.woken and not self._is_stopping:
                self._make_ready(held)
            elif due_in_s is None:
                self._drop(held)
            else:
                self._schedule(held, due_in_s)
        self._begin_ready()

    def _drop(self, held: HeldOrder) -> None:
        del self._held[held.open_order.reference]
        self._store.latest.pop(held.open_order.reference, None)

    async def _wait(self) -> None:
        """Until the next sweep; orders that become due meanwhile are begun. Without a new order and without anything
        that is asked of one, each pause is twice the last: a process with orders beats often enough to keep them.
        """
        clock = asyncio.get_running_loop().time
        until_s = clock() + self._sweep_pause_s
        most_s = self._tuning.takeover_s / 2.5 if self._held else QUIET_S
        self._sweep_pause_s = max(SWEEP_S, min(2 * self._sweep_pause_s, most_s))
        while (left_s := until_s - clock()) > 0:
            self._nudged.clear()
            self.begin_due()
            next_s = self._timers[0][0] - clock() if self._timers else left_s
            with suppress(TimeoutError):
                async with asyncio.timeout(max(0.0, min(left_s, next_s))):
                    await self._nudged.wait()
                    return

    def begin_due(self) -> None:
        """Begins the orders whose time has come."""
        while self._timers and self._timers[0][0] <= asyncio.get_running_loop().time():
            due_s, reference = heapq.heappop(self._timers)
            held = self._held.get(reference)
            if held is not None and held.task is None and not held.is_ready and held.due_s == due_s:
                self._make_ready(held)
        self._begin_ready()

    async def _beat(self) -> Any:
        begun_s = self._heartbeat.begin()
        free = 0 if self._is_stopping else self._free - self.waiting
        bound = {"owner": self.owner, "free": free, "takeover_s": self._tuning.takeover_s}
        async with self._store.db.connect() as connection:
            found = (await connection.execute(_BEAT, bound)).one()
        life = self._heartbeat.life
        self._heartbeat.record(begun_s)
        if self._heartbeat.life != life:  # whatever we had in mind may be another's by now
            self._store.latest.clear()
            for held in self._held.values():
                held.order = None
        return found

    async def _fetch(self, query: Any, **bound: Any) -> list[OpenOrder]:
        async with self._store.db.connect() as connection:
            return [OpenOrder(*row) for row in await connection.execute(query, {"owner": self.owner, **bound})]

    async def _give_to_others(self, free: int) -> None:
        """The orders that would be next here, as many as the others have workers for."""
        now_s, given = asyncio.get_running_loop().time(), list[str]()
        while len(given) < free and self._oldest_wait_s(now_s) > BEHIND_S and (held := self._next()):
            given.append(held.open_order.reference)
            self._is_due_no_more(away=held.away, held_up=held.held_up)
            self._drop(held)
        if given:
            async with self._store.db.connect() as connection:
                await connection.execute(_GIVE_UP, {"owner": self.owner, "all": False, "references": given})
            await notify(self._store.db, "")

    def _oldest_wait_s(self, now_s: float) -> float:
        firsts = (self._held.get(waiting[0][1]) for waiting in self._ready.values())
        return max((now_s - held.since_s for held in firsts if held is not None and held.is_ready), default=0.0)

    def _count(self) -> None:
        DUE.set(self.waiting)
        OLDEST_DUE.set(self._oldest_wait_s(asyncio.get_running_loop().time()))
