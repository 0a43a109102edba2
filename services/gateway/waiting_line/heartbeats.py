"""Signs of life: which places were heard of since the last report, told to the queue in batches.

An empty report matters too: a silent reporter would mean that we have gone deaf, and nobody is skipped while we are.
"""

import asyncio
import secrets
from collections.abc import Iterator

from services.gateway.metrics import SIGNS, SIGNS_DROPPED
from shared.contracts.queue import LifeReport, QueueClient, SignsOfLife

PLACES_PER_REPORT_MAX = 200_000
EVENTS_PER_REPORT_MAX = 1_000
PLACES_PER_LANE_MAX = 2_000_000
AGAIN_MIN_S, AGAIN_MAX_S = 0.2, 60.0


class Heartbeats:
    """Collects signs and reports them under a name of its own, which lasts as long as the process."""

    def __init__(self, queue: QueueClient) -> None:
        self._queue = queue
        self._reporter = f"gateway-{secrets.token_hex(8)}"
        self._heard: dict[tuple[str, int], dict[int, set[int]]] = {}
        self._again_s = AGAIN_MIN_S

    def heard(self, event_id: str, epoch: int, lane: int, join_seq: int) -> None:
        """The holder of this place gave a sign of life."""
        try:
            places = self._heard[event_id, epoch][lane]
        except KeyError:
            places = self._heard.setdefault((event_id, epoch), {}).setdefault(lane, set())
        if len(places) < PLACES_PER_LANE_MAX:
            places.add(join_seq)
        else:
            SIGNS_DROPPED.inc()

    async def run(self) -> None:
        """Reports for ever, as often as the queue wants."""
        while True:
            await self.report()
            await asyncio.sleep(self._again_s)

    async def report(self, *, goodbye: bool = False) -> None:
        """Tells everything heard so far, in as many reports as it takes, the last of them perhaps a goodbye."""
        reports = list(_reports(self._heard))
        self._heard = {}
        while reports:
            events = reports[-1]
            last = len(reports) == 1
            try:
                answer = await self._queue.report_life(
                    LifeReport(reporter=self._reporter, goodbye=goodbye and last, events=events)
                )
            except BaseException:
                self._keep(reports)
                raise
            reports.pop()
            SIGNS.inc(sum(len(seqs) for signs in events for seqs in signs.lanes.values()))
            self._again_s = min(AGAIN_MAX_S, max(AGAIN_MIN_S, answer.report_again_s))

    def _keep(self, reports: list[list[SignsOfLife]]) -> None:
        """What could not be told is told next time."""
        for signs in (signs for events in reports for signs in events):
            lanes = self._heard.setdefault((signs.event_id, signs.epoch), {})
            for lane, seqs in signs.lanes.items():
                lanes.setdefault(lane, set()).update(seqs)


def _reports(heard: dict[tuple[str, int], dict[int, set[int]]]) -> Iterator[list[SignsOfLife]]:
    """The signs in portions that fit a request; at least one portion, if an empty one."""
    portion: list[SignsOfLife] = []
    places_left = PLACES_PER_REPORT_MAX
    for (event_id, epoch), lanes in heard.items():
        for lane, places in lanes.items():
            seqs = sorted(places)
            for at in range(0, len(seqs), PLACES_PER_REPORT_MAX):
                some = seqs[at : at + PLACES_PER_REPORT_MAX]
                if len(some) > places_left or len(portion) == EVENTS_PER_REPORT_MAX:
                    yield portion
                    portion, places_left = [], PLACES_PER_REPORT_MAX
                portion.append(SignsOfLife(event_id=event_id, epoch=epoch, lanes={lane: some}))
                places_left -= len(some)
    yield portion
