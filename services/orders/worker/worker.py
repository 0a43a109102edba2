"""The open orders of this process, and the work on them: events in turn, of each event the lowest `join_seq` first.

An order belongs to the process that wrote it, in `orders.open_order`, until nothing is left to do for it. Each process
says a few times in `takeover_s` that it is alive; orders of one that is silent for so long are taken over by others.
No row is read or written to find the next order: what is due is in memory, what is asked by another process arrives as
a notification, and a sweep finds what was lost.

A run decides the next step of an order, does it, and repeats until nothing is due. Facts from outside are written
before anything follows from them, and no call is made inside a transaction. A step that fails is due again after a
pause; the provider's idempotency key makes a repeated charge the same charge. What was written by somebody else
meanwhile is read again, and the step repeated if it is still due.
"""

import asyncio
import heapq
from collections import OrderedDict
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from typing import Any, Literal, NamedTuple

from services.orders.metrics import (
    DUE,
    OLDEST_DUE,
    ORDERS_LOST,
    ORDERS_TAKEN_OVER,
    PROCESSED_INLINE,
    STEP_FAILURES,
    STEP_SECONDS,
    STEPS,
    WORKERS_IN_TIME,
)
from services.orders.model.order import SALE_STATUSES, OpenOrder, Order
from services.orders.model.rules import Step
from services.orders.model.update import Release
from services.orders.settings import Settings
from services.orders.steps import purchase, refund
from services.orders.steps.run import Heartbeat, OrderRun, Parts
from services.orders.store.provider_reports import apply_webhooks
from services.orders.store.store import CHANNEL, REOPENED, NotWritten, OrderLost, OrderStore, notify
from services.orders.tuning import DEFAULTS, Tuning
from shared.concurrency.background import retry_pause_s, stop
from shared.errors.problems import Problem
from shared.payment_provider import NotSent, OutcomeUnknown, ProviderTimeout, Unreachable
from shared.postgres.engine import DB_AWAY, Servers, statement
from shared.postgres.settings import WAITS
from shared.process.load import PurchaseWork
from shared.runtime import tracing
from shared.runtime.descriptors import descriptors_max
from shared.runtime.logging import get_logger
from shared.runtime.tracing import sale_log

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
STEPS_MAX = 20
RETRYABLE = (NotSent, OutcomeUnknown, Problem)
ERROR_MAX_CHARS = 500
STEP_COMMANDS: Mapping[Step, tuple[str, str | None]] = {
    "charge": ("checkout", None), "sync_provider": ("checkout", None), "cancel_charge": ("checkout", None),
    "confirm": ("confirm", "payment"), "reacquire_stock": ("reserve", "late payment"),
    "release_hold": ("cancel", "system"), "send_refund": ("refund", "system"),
}  # fmt: skip  # the command of a step, and its cause if no command is open
_METHODS: dict[Step, Callable[[OrderRun, Order], Awaitable[Any]]] = {
    "send_refund": refund.send, "return_tickets": refund.return_tickets, "confirm": purchase.confirm,
    "sync_provider": purchase.sync_provider, "cancel_charge": purchase.cancel_charge,
    "abandon_attempt": purchase.abandon_attempt, "cancel": purchase.cancel, "expire": purchase.expire,
    "release_hold": purchase.release_hold, "mark_paid_late": purchase.mark_paid_late, "capture": purchase.capture,
    "reacquire_stock": purchase.reacquire_stock, "request_refund": refund.request,
    "mark_refunded": refund.mark_refunded, "issue_tickets": purchase.issue_tickets, "review": purchase.review,
    "keep_sold": purchase.keep_sold, "revoke_unpaid_sale": purchase.revoke_unpaid_sale,
}  # fmt: skip


@asynccontextmanager
async def _counted(step: Step, run: OrderRun) -> AsyncIterator[None]:
    """Between the failpoints of a step: its time, and whether it failed."""
    await run.failpoint(f"before {step}")
    try:
        with STEP_SECONDS.labels(step).time():
            yield
    except RETRYABLE:
        STEP_FAILURES.labels(step).inc()
        raise
    STEPS.labels(step).inc()
    await run.failpoint(f"after {step}")


class Result(NamedTuple):
    """What is left of an order after a run: it is due again in `due_in_s`, or never (None), as it is closed or another
    process' order. `provider_away`: a payment provider could not be reached. `sold`: the order as it was sold and
    closed.
    """

    due_in_s: float | None
    provider_away: bool = False
    sold: Order | None = None


@dataclass(frozen=True, slots=True)
class OrderProcessor:
    """Runs the due steps of an order. Who calls it, and when, is the worker's matter."""

    parts: Parts

    async def process(self, claim: OpenOrder, fresh: Order | None = None) -> Result:
        """Runs everything that is due for this order. `fresh` is the order as this process has just written it; without
        it the order is read.
        """
        run = OrderRun(self.parts, claim, is_first_call=fresh is not None)
        order = last = fresh
        step: Step = "wait"
        try:
            for n in range(STEPS_MAX):
                order = order or await self._read(claim, last)
                step = run.next_step(replace(order, sync_due=False) if n and order.sync_due else order)
                try:
                    if step == "wait":
                        return await self._finish(run, order)
                    sold = await self._run_step(step, run, order)
                    if run.is_released and sold is not None:
                        await self.parts.frames.publish(sold)
                        return Result(None, sold=sold)
                except NotWritten:
                    log.info("order.read_again", reference=claim.reference, step=step)
                order, last = None, order
            raise OutcomeUnknown("too many steps in one run")
        except OrderLost:
            ORDERS_LOST.inc()
            return Result(None)
        except RETRYABLE as failed:
            return await self._schedule_retry(run, order or last, step, failed)

    async def _read(self, claim: OpenOrder, last: Order | None) -> Order:
        """Reads the order, and publishes it if it has changed."""
        order = self.parts.store.latest[claim.reference] = await self.parts.store.read_claimed(claim)
        if last is None or order.version != last.version:
            await self.parts.frames.publish(order)
        return order

    async def _run_step(self, step: Step, run: OrderRun, order: Order) -> Order | None:
        """The order as it is sold if the step sold it."""
        traced = tracing.span(f"order {step}", parent=order.traceparent, attempt=order.errors + 1)
        logged = sale_log.timed("sale.payment_step", step=step, event_id=order.event_id, reference=order.reference)
        async with _counted(step, run):
            with traced, logged:
                return await (self._charge(run, order) if step == "charge" else _METHODS[step](run, order))

    async def _charge(self, run: OrderRun, order: Order) -> Order | None:
        """Writes the money and the sale it pays for together. A crash before that leaves an `unknown` attempt, which is
        repeated under its key, and a repeatable step of inventory. If the sale cannot follow at once, the money is
        written alone.
        """
        paid = await purchase.charge(run, order)
        if paid is None:
            return None
        order = paid.after()
        if run.next_step(order) == "confirm":
            with suppress(*RETRYABLE):
                async with _counted("confirm", run):
                    return await purchase.confirm(run, order, paid)
        await run.save(paid)
        return None

    async def _schedule_retry(self, run: OrderRun, order: Order | None, step: Step, failed: Exception) -> Result:
        tuning, away = self.parts.tuning, isinstance(failed, ProviderTimeout | Unreachable)
        if order is None:  # it could not even be read
            return Result(tuning.retry_first_s)
        errors, error = order.errors + 1, repr(failed)
        if sale_log.on and isinstance(failed, ProviderTimeout):
            sale_log.write(
                "sale.payment_timeout", event_id=order.event_id, reference=order.reference, step=step, tries=errors
            )
        pause_s = retry_pause_s(order.errors, first_s=tuning.retry_first_s, max_s=tuning.retry_max_s)
        log.info("order.retry_scheduled", reference=order.reference, error=error, errors=errors)
        if order.status == "pending" and not order.is_late:  # a hold must end on time
            pause_s = min(pause_s, (order.expires_at_ms - order.now_ms) / 1000)
        try:
            latest = await self.parts.store.read_claimed(run.claim)  # the step may have written before it failed
            update = run.update(latest, bumps_version=False)
            update.release = Release(pause_s, errors)
            if step in STEP_COMMANDS:
                kind, caused_by = STEP_COMMANDS[step]
                update.record_failed_try(kind, error=error[:ERROR_MAX_CHARS], caused_by=caused_by)
            await run.save(update)
        except OrderLost:
            return Result(None, away)
        except NotWritten:
            pause_s = 0.0
        except Problem:  # the database has too much to do
            pass
        return Result(pause_s, away)

    async def _finish(self, run: OrderRun, order: Order) -> Result:
        """Nothing more is due: ends replayed commands, unless the order is still pending, and a cancel that came after
        the sale. Raises `NotWritten`.
        """
        update = run.update(order, bumps_version=False)
        if order.status != "pending":
            update.finish_command("rerun", error="The order is still in review." if order.status == "review" else None)
        if order.status in SALE_STATUSES:
            update.finish_command("cancel", error="paid before")
        due_in_s = run.due_in_s(order)
        update.release = Release(due_in_s)
        await run.save(update)
        return Result(due_in_s)


@dataclass(slots=True, eq=False)
class HeldOrder:
    """An open order of this process; no run of one that `is_new` has begun. Once it is ready `begun` is set when its
    run begins, `task` while it runs; otherwise `timer` makes it ready when it is due. `away`: a payment provider could
    not be reached for it.
    """

    open_order: OpenOrder
    is_new: bool = False
    is_ready: bool = False
    since_s: float = 0.0
    woken: bool = False
    away: bool = False
    begun: asyncio.Event = field(default_factory=asyncio.Event)
    timer: asyncio.TimerHandle | None = None
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
        self._running, self._pausing, self._free_slots = 0, 0, tuning.inline_slots_max
        # Of those that are due or in work: for which a provider could not be reached, and those behind them, too.
        self._away, self._held_up = set[HeldOrder](), set[HeldOrder]()
        self._nudged, self._reviving = asyncio.Event(), asyncio.Lock()
        self._sweep_pause_s = SWEEP_S
        self._is_stopping, self._hears, self._doubt_until_s = False, False, 0.0
        self.owner = store.owner
        store.on_wake = self.wake
        load.follow(lambda: (self.waiting, len(self._held_up)), self.begin_ready)

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
            held = HeldOrder(OpenOrder(order.reference, self.owner, 0, order.event_id, order.join_seq), is_new=True)
            self._held[order.reference], self._store.latest[order.reference] = held, order
            self._make_ready(held)

    def wake(self, open_order: OpenOrder) -> None:
        """Something was asked of this order of ours: it is read and processed now, again if it is just in work."""
        self._sweep_pause_s = SWEEP_S
        held = self._held.get(open_order.reference)
        if held is None or held.open_order.epoch != open_order.epoch:
            if held is not None and held.is_ready:
                self._is_due_no_more(held)
            held = self._held[open_order.reference] = HeldOrder(open_order)
        self._store.latest.pop(open_order.reference, None)
        self._store.sold.pop(open_order.reference, None)
        if held.task is not None:
            held.woken = True
        elif not held.is_ready:
            self._make_ready(held)

    def known(self, reference: str) -> Order | None:
        """A pending order of this process, or one that it sold a moment ago, as the database has it, without asking it;
        None if that is not certain. What another process asks of it is seen once its notification has arrived.
        """
        if self._hears and (sold := self._store.sold.get(reference)) is not None:
            return sold
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

    async def settle(self, reference: str, *, in_background: bool = False) -> Path:
        """Waits until an order that was written or woken here just now was processed, up to `inline_timeout_s`; it is
        begun at once, beside the workers, if an inline slot is free. One for the background is left to the worker that
        begins it, unless none does within `begin_within_s`. Returns who processes it, as a label of the metrics:
        `overflow` if no slot is free, or if it is another process' order.
        """
        held = self._held.get(reference)
        path: Path = "late" if in_background else "request"
        if in_background:
            if held is None or held.begun.is_set():
                WORKERS_IN_TIME.set(1)
                return "background"
            if self._free_slots > 0:
                with suppress(TimeoutError):
                    async with asyncio.timeout(self._tuning.begin_within_s):
                        await held.begun.wait()
                    return "background"
                WORKERS_IN_TIME.set(0)
        if held is None or (held.task is None and held.is_ready and self._free_slots <= 0):
            return "overflow"
        if held.task is None and held.is_ready:
            self._begin(held, inline=True)
        PROCESSED_INLINE.inc(path == "late")
        if held.task is not None:
            await asyncio.wait([held.task], timeout=self._tuning.inline_timeout_s)
        return path

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
        DUE.set(self.waiting)
        OLDEST_DUE.set(self._oldest_wait_s(asyncio.get_running_loop().time()))

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
            self._store.sold.clear()
            self._hears = True
            await closed.wait()
        finally:
            self._hears = False
            connection.terminate()

    def _on_message(self, _: Any, __: int, ___: str, message: str) -> None:
        if not message:
            self._nudged.set()
        references = message.split(",")
        for reference in references:
            self._store.sold.pop(reference, None)
            if references[0] != REOPENED and (held := self._held.get(reference)):
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
        if held.timer is not None:
            held.timer.cancel()
        if held.away:
            self._away.add(held)
        if self._away:
            self._held_up.add(held)
        one = held.open_order
        heapq.heappush(self._ready.setdefault(one.event_id, []), (one.join_seq, one.reference))
        self.begin_ready()

    def _hold(self, one: OpenOrder) -> None:
        self._held[one.reference] = held = HeldOrder(one)
        self._schedule(held, one.due_in_s)

    def _schedule(self, held: HeldOrder, due_in_s: float) -> None:
        if due_in_s <= 0:
            self._make_ready(held)
        else:
            held.timer = asyncio.get_running_loop().call_later(due_in_s, self._come_due, held)

    def _come_due(self, held: HeldOrder) -> None:
        if self._held.get(held.open_order.reference) is held:
            self._make_ready(held)

    def begin_ready(self) -> None:
        """Starts as many orders as there are free workers: events take turns."""
        while self._free > 0 and not self._is_stopping and (held := self._next()):
            self._begin(held)

    @property
    def _free(self) -> int:
        """How many orders may begin. One that waits for a provider takes no worker, only a place among those in work;
        one that its request processes takes one, though it did not wait for it. A worker that pauses is taken.
        """
        in_work = self._running + self._tuning.inline_slots_max - self._free_slots
        here = in_work - self._load.outside_now + self._pausing
        return min(self._workers_max - here, self._in_work_max - in_work)

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
        self._running += 1
        self._free_slots -= inline
        held.task = asyncio.create_task(self._work(held))
        held.task.add_done_callback(lambda task: self._ended(held, task, inline=inline))

    def _is_due_no_more(self, held: HeldOrder) -> None:
        self._away.discard(held)
        self._held_up.discard(held)

    async def _work(self, held: HeldOrder) -> Result:
        claim = held.open_order
        try:
            await self.require_alive()
            self._heartbeat.enter()
            order = self._store.latest.get(claim.reference) if held.is_new else None
            held.is_new = held.woken = False
            with self._load.work(accepted=order is not None or held in self._held_up):
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
        self._is_due_no_more(held)
        self._running -= 1
        self._free_slots += inline
        if self._held.get(held.open_order.reference) is held:
            due_in_s = FAILED_PAUSE_S if task.cancelled() else task.result().due_in_s
            if held.woken and not self._is_stopping:
                self._make_ready(held)
            elif due_in_s is None:
                self._drop(held)
                if not task.cancelled() and (sold := task.result().sold) is not None:
                    self._store.sold[sold.reference] = sold
            else:
                self._schedule(held, due_in_s)
        self.begin_ready()

    def _drop(self, held: HeldOrder) -> None:
        del self._held[held.open_order.reference]
        self._store.latest.pop(held.open_order.reference, None)

    async def _wait(self) -> None:
        """Until the next sweep. Without a new order and without anything that is asked of one, each pause is twice the
        last: a process with orders beats often enough to keep them.
        """
        pause_s = self._sweep_pause_s
        most_s = self._tuning.takeover_s / 2.5 if self._held else QUIET_S
        self._sweep_pause_s = max(SWEEP_S, min(2 * self._sweep_pause_s, most_s))
        self._nudged.clear()
        with suppress(TimeoutError):
            async with asyncio.timeout(pause_s):
                await self._nudged.wait()

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
        return found

    async def _fetch(self, query: Any, **bound: Any) -> list[OpenOrder]:
        async with self._store.db.connect() as connection:
            return [OpenOrder(*row) for row in await connection.execute(query, {"owner": self.owner, **bound})]

    async def _give_to_others(self, free: int) -> None:
        """The orders that would be next here, as many as the others have workers for."""
        now_s, given = asyncio.get_running_loop().time(), list[str]()
        while len(given) < free and self._oldest_wait_s(now_s) > BEHIND_S and (held := self._next()):
            given.append(held.open_order.reference)
            self._is_due_no_more(held)
            self._drop(held)
        if given:
            async with self._store.db.connect() as connection:
                await connection.execute(_GIVE_UP, {"owner": self.owner, "all": False, "references": given})
            await notify(self._store.db, "")

    def _oldest_wait_s(self, now_s: float) -> float:
        firsts = (self._held.get(waiting[0][1]) for waiting in self._ready.values())
        return max((now_s - held.since_s for held in firsts if held is not None and held.is_ready), default=0.0)
