"""Heartbeats: reports to the queue, in batches, which places were active since the last report.

An empty report is sent too: when a reporter falls silent, the queue knows that heartbeats may be missing and skips
nobody meanwhile. Places of a report that failed are sent with the next one.
"""

import asyncio
import secrets
from collections import Counter
from collections.abc import Callable, Iterator, Mapping

from shared.contracts.queue import EventHeartbeats, HeartbeatReport, QueueClient

PLACES_PER_REPORT_MAX = 200_000
EVENTS_PER_REPORT_MAX = 1_000
PLACES_PER_LANE_MAX = 2_000_000
INTERVAL_MIN_S, INTERVAL_MAX_S = 0.2, 60.0
Place = tuple[str, int, int, int]  # event_id, epoch, lane, join_seq
Lanes = dict[int, set[int]]


class HeartbeatReporter:
    """Collects places of one process and reports them under a random name that lasts as long as the process.

    `sent` and `dropped` count places, for metrics; dropped is one beyond `PLACES_PER_LANE_MAX`.
    """

    def __init__(
        self,
        queue: QueueClient,
        *,
        service: str,
        sent: Callable[[int], object] = lambda _: None,
        dropped: Callable[[], object] = lambda: None,
    ) -> None:
        self._queue, self._sent, self._dropped = queue, sent, dropped
        self._reporter = f"{service}-{secrets.token_hex(8)}"
        self._active: dict[tuple[str, int], Lanes] = {}
        self._connected: Counter[Place] = Counter()
        self._interval_s = INTERVAL_MIN_S

    def record(self, event_id: str, epoch: int, lane: int, join_seq: int) -> None:
        """The holder of this place was active just now."""
        try:
            places = self._active[event_id, epoch][lane]
        except KeyError:
            places = self._active.setdefault((event_id, epoch), {}).setdefault(lane, set())
        if len(places) < PLACES_PER_LANE_MAX:
            places.add(join_seq)
        else:
            self._dropped()

    def connect(self, place: Place) -> None:
        """The holder opened a connection: every report names this place until as many were closed."""
        self._connected[place] += 1
        self.record(*place)

    def disconnect(self, place: Place) -> None:
        self._connected[place] -= 1
        if not self._connected[place]:
            del self._connected[place]

    async def run(self) -> None:
        """Reports for ever, as often as the queue asks for."""
        while True:
            await self.report()
            await asyncio.sleep(self._interval_s)

    async def report(self, *, final: bool = False) -> None:
        """Sends all collected places, in as many reports as it takes; `final` marks the last as this process' last."""
        for place in self._connected:
            self.record(*place)
        reports = list(_reports(self._active))
        self._active = {}
        for n, events in enumerate(reports, 1):
            report = HeartbeatReport(reporter=self._reporter, final=final and n == len(reports), events=events)
            try:
                answer = await self._queue.report_heartbeats(report)
            except BaseException:
                self._restore(reports[n - 1 :])
                raise
            self._sent(sum(len(numbers) for event in events for numbers in event.lanes.values()))
            self._interval_s = min(INTERVAL_MAX_S, max(INTERVAL_MIN_S, answer.report_again_s))

    def _restore(self, reports: list[list[EventHeartbeats]]) -> None:
        """Keeps the places of these reports for the next one."""
        for event in (event for events in reports for event in events):
            lanes = self._active.setdefault((event.event_id, event.epoch), {})
            for lane, numbers in event.lanes.items():
                lanes.setdefault(lane, set()).update(numbers)


def _reports(active: Mapping[tuple[str, int], Lanes]) -> Iterator[list[EventHeartbeats]]:
    """The places in portions that fit a request; at least one portion, which may be empty."""
    events: list[EventHeartbeats] = []
    places_left = PLACES_PER_REPORT_MAX
    for (event_id, epoch), lanes in active.items():
        open_event: EventHeartbeats | None = None
        for lane, places in lanes.items():
            numbers = sorted(places)
            for at in range(0, len(numbers), PLACES_PER_REPORT_MAX):
                some = numbers[at : at + PLACES_PER_REPORT_MAX]
                if len(some) > places_left or (open_event is None and len(events) == EVENTS_PER_REPORT_MAX):
                    yield events
                    events, places_left, open_event = [], PLACES_PER_REPORT_MAX, None
                if open_event is None:
                    open_event = EventHeartbeats(event_id=event_id, epoch=epoch, lanes={})
                    events.append(open_event)
                open_event.lanes[lane] = some
                places_left -= len(some)
    yield events
