"""All gatherers of this process: each second those that are watched, and at once when their line obeys an operator;
every ten seconds every open sale, for charts.

While nobody watches, nothing else is asked.
"""

import asyncio

from features.console.approvals import Approvals
from features.console.gathering.admin_api import AdminApi
from features.console.gathering.alarms import SAMPLE_S
from features.console.gathering.alertmanager import Alertmanager
from features.console.gathering.frames import FrameCache
from features.console.gathering.gatherer import EventGatherer
from features.console.gathering.history import Sample, Samples
from features.console.metrics import EVENTS
from features.console.schemas import EventOverview
from features.console.settings import Settings
from features.console.tuning import DEFAULTS, Tuning
from shared.concurrency.background import Quiet
from shared.concurrency.coalescing import CachedReads
from shared.contracts.catalogue import EventCard
from shared.contracts.frames import RoomState
from shared.errors.problems import Overloaded, Problem
from shared.runtime.clock import now_ms
from shared.runtime.logging import get_logger

log = get_logger("onsale.console")
FORGOTTEN_S, TICK_MS = 3_600.0, 1_000
EVENTS_KEPT_S = 5.0
PAGE_SIZE = 100
IDLE_STATES: tuple[RoomState, ...] = ("draft", "closed")


class Gathering:
    """The gatherers by event."""

    def __init__(
        self, settings: Settings, admin: AdminApi, frames: FrameCache, samples: Samples,
        alertmanager: Alertmanager | None = None, *, approvals: Approvals, tuning: Tuning = DEFAULTS,
    ) -> None:  # fmt: skip
        self._settings, self._admin, self._frames, self._samples = settings, admin, frames, samples
        self._alertmanager, self._approvals, self._tuning = alertmanager, approvals, tuning
        self._gatherers: dict[str, EventGatherer] = {}
        self._heads: CachedReads[list[EventCard]] = CachedReads(kept_s=EVENTS_KEPT_S, keys_max=1)
        self._sampled_at_10s = 0
        frames.on_change = self._take_line

    async def watched(self, event_id: str) -> EventGatherer:
        """The gatherer of this event, with figures. Raises `UnknownEvent`, `Overloaded`."""
        gatherer = self._gatherer(event_id)
        try:
            await gatherer.read_head()
        except Problem:
            del self._gatherers[event_id]
            raise
        if not gatherer.is_complete(at_ms=now_ms() - TICK_MS):
            await gatherer.tick()
        return gatherer

    def known(self, event_id: str) -> EventGatherer | None:
        return self._gatherers.get(event_id)

    async def tick(self) -> Quiet:
        """One second of the watched events."""
        watched = self._watched()
        EVENTS.set(len(watched))
        if watched and self._alertmanager:
            self._alertmanager.refresh()
        for failed in await asyncio.gather(*(one.tick() for one in watched), return_exceptions=True):
            if isinstance(failed, Exception):
                log.error("console.tick_failed", exc_info=failed)
        return Quiet(0)

    async def sample(self) -> Quiet:
        """Every ten seconds keeps a sample of every sale that is under way; the unwatched are read one by one, unless
        nothing moves there.
        """
        at_10s = now_ms() // 1000 // SAMPLE_S * SAMPLE_S
        if at_10s == self._sampled_at_10s:
            return Quiet(0)
        self._sampled_at_10s, watched = at_10s, self._watched()
        under_way = {frame.event_id for frame in self._frames.lines() if frame.state not in IDLE_STATES}
        unwatched = sorted(under_way - {one.event_id for one in watched})
        others = [self._gatherer(event_id) for event_id in unwatched[: self._settings.events_max - len(watched)]]
        for one in others:
            if not one.repeat():
                await one.tick(watched=False)
        kept = [
            Sample(one.event_id, at_10s, one.ring.last, {alarm.name: alarm.summary for alarm in one.alarms})
            for one in (*watched, *others)
            if one.event_id in under_way and one.ring.last is not None
        ]
        await self._samples.keep(kept)
        return Quiet(0)

    async def overviews(self) -> list[EventOverview]:
        """Every event of the catalogue and rehearsals under way; those with a line while inventory does not answer."""
        lines = list(self._frames.lines())
        try:
            names = {head.event_id: head.name for head in await self._heads.get("events", self._read_heads)}
            lines = [frame for frame in lines if frame.state not in IDLE_STATES]
        except Problem:
            names = {}
        ids = [*names, *sorted({frame.event_id for frame in lines} - names.keys())]
        return [self._overview(event_id, names.get(event_id, event_id)) for event_id in ids]

    async def end_streams(self) -> None:
        """The process stops: screens reconnect elsewhere."""
        for gatherer in self._gatherers.values():
            gatherer.watchers.end()

    async def close(self) -> None:
        await asyncio.gather(*(gatherer.close() for gatherer in self._gatherers.values()))

    def _take_line(self, event_id: str) -> None:
        gatherer = self._gatherers.get(event_id)
        if gatherer and gatherer.watchers.count:
            gatherer.take_line()

    def _gatherer(self, event_id: str) -> EventGatherer:
        gatherer = self._gatherers.get(event_id)
        if gatherer is None:
            self._forget()
            if len(self._gatherers) >= self._settings.events_max:
                raise Overloaded(f"This console watches {self._settings.events_max} events already.")
            gatherer = EventGatherer(
                event_id, self._admin, self._frames, self._alertmanager, approvals=self._approvals, tuning=self._tuning
            )
            self._gatherers[event_id] = gatherer
        return gatherer

    def _forget(self) -> None:
        """Drops what nobody has watched for long and, while there are too many, what nobody watches."""
        now_s = asyncio.get_running_loop().time()
        idle = sorted((one for one in self._gatherers.values() if not one.watchers.count), key=lambda one: one.active_s)
        surplus = len(self._gatherers) - self._settings.events_max + 1
        for number, one in enumerate(idle):
            if number < surplus or now_s - one.active_s > FORGOTTEN_S:
                del self._gatherers[one.event_id]

    def _watched(self) -> list[EventGatherer]:
        return [one for one in self._gatherers.values() if one.watchers.count]

    async def _read_heads(self) -> list[EventCard]:
        found: list[EventCard] = []
        after: str | None = None
        while len(found) < self._settings.events_max * 2:
            page = await self._admin.list_events_on_sale(after=after, page_size=PAGE_SIZE)
            found += page.events
            if page.next is None or not page.events:
                break
            after = page.events[-1].event_id
        return found

    def _overview(self, event_id: str, name: str) -> EventOverview:
        line, stock = self._frames.line(event_id), self._frames.stock(event_id)
        gatherer = self._gatherers.get(event_id)
        sold = sum(section.sold for section in stock.sections) if stock else None
        return EventOverview(
            event_id=event_id, name=name, state=line.state if line else None,
            waiting=sum(max(0, lane.tail_seq - lane.head_seq) for lane in line.lanes.values()) if line else None,
            sold=sold, total=sold + stock.available + stock.held if stock and sold is not None else None,
            alarms=len(gatherer.alarms) if gatherer else 0,
        )  # fmt: skip
