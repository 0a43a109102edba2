"""Gathers one event: asks each service at most one question of a kind at a time, and makes the figures each second, and
at once when the line changes its state or obeys other settings; and what operators did to it, from the audit logs.

However many watch, there is one gatherer per process and event. A service that does not answer holds up nobody: its
last figures stay, and their age grows.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from functools import partial
from typing import Any

from features.console import streams
from features.console.approvals import Approvals
from features.console.gathering.admin_api import AdminApi
from features.console.gathering.alarms import AlarmClock, merged
from features.console.gathering.alertmanager import Alertmanager
from features.console.gathering.frames import FrameCache
from features.console.gathering.history import Ring
from features.console.gathering.vitals import Facts, Totals, make_vitals, proof_of, totals_of
from features.console.schemas import ActiveAlarm, ApprovalView, Change, Part, Process, ProcessState, Snapshot, Vitals
from features.console.tuning import Tuning
from shared.concurrency.background import stop
from shared.contracts.admin.audit import AuditEntry, AuditPage
from shared.contracts.catalogue import EventDetails
from shared.errors.problems import NotFound, Problem, UnknownEvent
from shared.postgres.engine import DB_AWAY, DBAPIError
from shared.report.invariants import check_invariants
from shared.runtime.clock import from_datetime, now_ms
from shared.runtime.logging import get_logger

log = get_logger("onsale.console")
ANSWERS_WITHIN_S = 0.4  # of a second; what comes later counts for the next one
FIRST_WITHIN_S = 1.5
RATE_SECONDS = 10
AGAIN_S = 0.25  # between two records of figures that do not wait for their second
PROCESSES_EVERY_MS = 5_000
NEVER = 0.0
QUIET_S = 60.0
FLOWS: Mapping[Part, tuple[str, str]] = {  # by part: the fact of its flow, and the operation that reads it
    "queue": ("flow", "read_queue_flow"), "inventory": ("holds", "read_inventory_flow"),
    "orders": ("orders", "read_order_flow"),
}  # fmt: skip
NOT_SHOWN = {"version", "at_ms", "after", "calls_per_s", "called_at_ms"}  # of a frame
KEPT_MAX, FIRST_PAGE, NEXT_PAGE = 200, 100, 20
LOGS = (
    ("queue", "list_queue_changes"), ("inventory", "list_inventory_changes"), ("orders", "list_audit_log"),
    ("orders", "list_price_changes"),
)  # fmt: skip


class EventGatherer:
    """Of one event. `active_s` is when it was watched or sampled last."""

    def __init__(
        self, event_id: str, admin: AdminApi, frames: FrameCache,
        alertmanager: Alertmanager | None, *, approvals: Approvals, tuning: Tuning,
    ) -> None:  # fmt: skip
        self.event_id, self._tuning, self._admin, self._frames = event_id, tuning, admin, frames
        self._alertmanager, self._approvals = alertmanager, approvals
        self.watchers = streams.Watchers(tuning.watcher_messages_max)
        self.ring = Ring()
        self.alarms: list[ActiveAlarm] = []
        self.approvals: list[ApprovalView] = []
        self.vitals: Vitals | None = None
        self.head: EventDetails | None = None
        self.active_s = asyncio.get_running_loop().time()
        self._facts = Facts(event_id=event_id)
        self._totals: deque[Totals] = deque(maxlen=RATE_SECONDS)
        self._clock, self._changes = AlarmClock(), Changes(event_id, admin)
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._processes: tuple[int, list[tuple[str, ProcessState]]] = (0, [])
        self._due_s: dict[str, float] = {}
        self._shown: object = None
        self._obeyed: object = None
        self._at_once: asyncio.TimerHandle | None = None
        self._at_once_s = NEVER

    async def read_head(self) -> None:
        """Reads the event's name. Raises `UnknownEvent`; without an answer the event keeps its id as name."""
        if self.head is None:
            try:
                self.head = await self._admin.read_event_on_sale(self.event_id)
            except UnknownEvent:
                raise
            except Problem as silent:
                log.info("console.event_unread", event_id=self.event_id, problem=silent.slug)

    async def tick(self, *, watched: bool = True) -> None:
        """Reads what is due, makes the figures of this second and sends them to those who watch. Unless somebody does,
        changes and invariants are not read.
        """
        self.active_s = asyncio.get_running_loop().time()
        questions = [self._start(part, partial(self._read_flow, part)) for part in FLOWS]
        first = watched and "changes" not in self._due_s
        if self._is_due("room", self._tuning.changes_interval_s):
            questions.append(self._start("room", self._read_room))
        if watched and self._is_due("changes", self._tuning.changes_interval_s):
            questions.append(self._start("changes", self._read_changes))
        if watched and self._approvals.controls:
            questions.append(self._start("approvals", self._read_approvals))
        if watched and self._is_due("proof", self._tuning.audit_interval_s):
            proof = self._start("proof", self._read_proof)
            questions += [proof] if first else []
        await asyncio.wait(questions, timeout=FIRST_WITHIN_S if first else ANSWERS_WITHIN_S)
        self._make()

    def take_line(self) -> None:
        """The line has a new frame: if it obeys other settings or its state is another, those who watch are told at
        once, without a question. What operators have set is then read in the next second.
        """
        if self._at_once is None and self._in_force() != self._obeyed:
            loop = asyncio.get_running_loop()
            self._at_once = loop.call_at(max(loop.time(), self._at_once_s + AGAIN_S), self._show_at_once)

    def repeat(self) -> bool:
        """Repeats the last figures if nothing can have changed since: then nobody waits, holds or pays, and the frames
        are the same. Whether it did; once a minute they are read nevertheless, because a refund may change no frame.
        """
        vitals, at_s = self.vitals, asyncio.get_running_loop().time()
        if (
            vitals is None
            or at_s - self.active_s >= QUIET_S
            or _is_moving(vitals)
            or self._frames_shown() != self._shown
        ):
            return False
        at_ms = now_ms()
        self.ring.repeat(at_ms)
        self._totals.append(self._totals[-1]._replace(at_ms=at_ms))
        return True

    def is_complete(self, *, at_ms: int) -> bool:
        """Whether a snapshot has everything, no older than `at_ms`."""
        return "changes" in self._due_s and self.vitals is not None and self.vitals.at_ms >= at_ms

    def snapshot(self) -> Snapshot:
        """All that a screen shows."""
        head = self.head
        vitals = self.vitals or make_vitals(self._facts, at_ms=now_ms())
        return Snapshot.model_validate({
            "name": head.name if head else self.event_id, "venue": head.venue if head else "",
            "starts_at": head.starts_at if head else None, "currency": head.currency if head else None,
            "vitals": vitals, "alarms": self.alarms, "processes": self._frames.processes(),
            "changes": self._changes.newest, "approvals": self.approvals,
        })  # fmt: skip

    async def close(self) -> None:
        """Ends its streams and its questions."""
        self.watchers.end()
        if self._at_once is not None:
            self._at_once.cancel()
        await stop(self._tasks.values())

    def _is_due(self, name: str, interval_s: float) -> bool:
        if self.active_s < self._due_s.get(name, NEVER):
            return False
        self._due_s[name] = self.active_s + interval_s
        return True

    def _start(self, name: str, question: Callable[[], Awaitable[None]]) -> asyncio.Task[None]:
        """The question as a task; the one under way if there is one."""
        task = self._tasks.get(name)
        if task is None or task.done():
            task = self._tasks[name] = asyncio.create_task(self._quietly(question), name=f"console {name}")
        return task

    async def _quietly(self, question: Callable[[], Awaitable[None]]) -> None:
        try:
            await question()
        except Problem as failed:
            log.info("console.question_failed", event_id=self.event_id, problem=failed.slug, detail=failed.detail)

    async def _read_flow(self, part: Part) -> None:
        fact, operation = FLOWS[part]
        flow: object = None
        with suppress(NotFound):  # it answers, but runs without the feature `reports`
            flow = await self._admin.call(operation, event_id=self.event_id)
        setattr(self._facts, fact, flow)
        self._facts.received_ms[part] = now_ms()

    async def _read_room(self) -> None:
        self._facts.room = await self._admin.read_room(self.event_id)

    async def _read_changes(self) -> None:
        for change in await self._changes.read():
            self.watchers.publish(streams.change(change))

    async def _read_approvals(self) -> None:
        """From the database, because another process of the console may have taken or decided them."""
        try:
            found = await self._approvals.of(self.event_id)
        except (*DB_AWAY, DBAPIError) as away:
            log.warning("console.approvals_unread", event_id=self.event_id, error=type(away).__name__)
            return
        if found != self.approvals:
            self.approvals = found
            self.watchers.publish(streams.approvals(found))

    async def _read_proof(self) -> None:
        self._facts.proof = proof_of(await check_invariants(self._admin, self.event_id), at_ms=now_ms())

    def _frames_shown(self) -> object:
        line, stock = self._frames.line(self.event_id), self._frames.stock(self.event_id)
        counts = [section.model_dump(exclude={"at_ms"}) for section in stock.sections] if stock else None
        return line and line.model_dump(exclude=NOT_SHOWN), counts

    def _in_force(self) -> object:
        line = self._frames.line(self.event_id)
        return line and (line.epoch, line.config_version, line.state)

    def _show_at_once(self) -> None:
        self._at_once, self._at_once_s = None, asyncio.get_running_loop().time()
        self._due_s["room"] = NEVER
        self._show(now_ms())

    def _make(self) -> None:
        at_ms, self._shown = now_ms(), self._frames_shown()
        vitals = self._show(at_ms)
        self._totals.append(totals_of(self._facts, at_ms=at_ms))
        self.ring.add(vitals)
        self._publish_alarms(vitals)
        self._publish_processes(at_ms)

    def _show(self, at_ms: int) -> Vitals:
        """Makes figures of what is known and sends them to those who watch."""
        facts, self._obeyed = self._facts, self._in_force()
        facts.line, facts.stock = self._frames.line(self.event_id), self._frames.stock(self.event_id)
        facts.notifiers, notifier_ms = self._frames.notifiers()
        if notifier_ms is not None:
            facts.received_ms["notifier"] = notifier_ms
        facts.earlier = list(self._totals)
        self.vitals = vitals = make_vitals(facts, at_ms=at_ms)
        self.watchers.publish(streams.vitals(vitals))
        return vitals

    def _publish_alarms(self, vitals: Vitals) -> None:
        others = self._alertmanager.alarms(self.event_id) if self._alertmanager else []
        before, self.alarms = self.alarms, merged(self._clock.update(vitals), others)
        if before != self.alarms:
            self.watchers.publish(streams.alarms(self.alarms))

    def _publish_processes(self, at_ms: int) -> None:
        last_ms, before = self._processes
        processes: list[Process] = self._frames.processes()
        states = [(process.process, process.state) for process in processes]
        if states != before or at_ms - last_ms >= PROCESSES_EVERY_MS:
            self._processes = at_ms, states
            self.watchers.publish(streams.processes(processes))


def _is_moving(vitals: Vitals) -> bool:
    """Whether somebody waits, holds or pays, as far as is known."""
    line, stock, orders = vitals.line, vitals.stock, vitals.orders
    moving = (line.waiting, vitals.room.active, stock.held, stock.paying, orders.pending, orders.due)
    return any(figure != 0 for figure in moving)


class Changes:
    """Of one event. `newest` has at most 200, the newest first."""

    def __init__(self, event_id: str, admin: AdminApi) -> None:
        self._event_id, self._admin = event_id, admin
        self._last_ids: dict[str, int] = {}
        self.newest: list[Change] = []

    async def read(self) -> list[Change]:
        """The changes since the last time, oldest first. A service that does not answer is asked again next time."""
        found = [change for log in await asyncio.gather(*(self._read(*log) for log in LOGS)) for change in log]
        found.sort(key=lambda change: (change.at_ms, change.id))
        self.newest = sorted([*found, *self.newest], key=lambda change: -change.at_ms)[:KEPT_MAX]
        return found

    async def _read(self, service: str, operation: str) -> list[Change]:
        last_id = self._last_ids.get(operation)
        query: dict[str, Any] = {"page_size": FIRST_PAGE if last_id is None else NEXT_PAGE}
        path: dict[str, Any] = {"event_id": self._event_id}
        if operation == "list_audit_log":  # of all events: this one is its subject
            query, path = {**query, "subject": f"event:{self._event_id}"}, {}
        try:
            page: AuditPage = await self._admin.call(operation, query=query, **path)
        except Problem:
            return []
        new = [entry for entry in page.changes if entry.id > (last_id or 0)]
        self._last_ids[operation] = max([last_id or 0, *(entry.id for entry in new)])
        return [_change(service, entry) for entry in new]


def _change(service: str, entry: AuditEntry) -> Change:
    return Change(
        service=service, id=entry.id, at_ms=from_datetime(entry.at), actor=entry.actor, action=entry.action,
        subject=entry.subject, reason=entry.reason, before=entry.before, after=entry.after,
    )  # fmt: skip
