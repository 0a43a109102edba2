"""Signs of life: a fan whose stream is open is there. Reported to the queue in batches, also when there is nothing to
report: a silent reporter would mean that we have gone deaf.
"""

import asyncio
import secrets
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator

from shared.contracts.queue import LifeReport, QueueClient, SignsOfLife
from shared.security.tokens import QueueToken

EVENTS_PER_REPORT_MAX = 1_000
AGAIN_MIN_S, AGAIN_MAX_S = 0.2, 60.0
Place = tuple[str, int, int, int]


def place_of(token: QueueToken) -> Place:
    return (sys.intern(token.event_id), token.epoch, token.lane, token.join_seq)


class Heartbeats:
    """The places whose fans listen here, or did since the last report."""

    def __init__(self, queue: QueueClient) -> None:
        self._queue = queue
        self._reporter = f"notifier-{secrets.token_hex(8)}"
        self._open: Counter[Place] = Counter()
        self._heard: set[Place] = set()
        self._again_s = AGAIN_MIN_S

    def begins(self, place: Place) -> None:
        """The fan of this place listens; others (a pass, an order) have no place that needs signs."""
        self._open[place] += 1
        self._heard.add(place)

    def ends(self, place: Place) -> None:
        """And does so no longer; told once more, as they were here since the last report."""
        self._open[place] -= 1
        if not self._open[place]:
            del self._open[place]

    async def run(self) -> None:
        """Reports for ever, as often as the queue wants."""
        while True:
            await self.report()
            await asyncio.sleep(self._again_s)

    async def report(self, *, goodbye: bool = False) -> None:
        """Tells of everyone heard of since the last report; what could not be told is told next time."""
        heard, self._heard = self._heard, set()
        try:
            portions = list(_portions(heard | self._open.keys()))
            for n, events in enumerate(portions, 1):
                last = n == len(portions)
                answer = await self._queue.report_life(
                    LifeReport(reporter=self._reporter, goodbye=goodbye and last, events=events)
                )
                self._again_s = min(AGAIN_MAX_S, max(AGAIN_MIN_S, answer.report_again_s))
        except BaseException:
            self._heard |= heard
            raise


def _portions(places: set[Place]) -> Iterator[list[SignsOfLife]]:
    """By event, epoch and lane, in portions that fit a request; at least one, if an empty one."""
    by_room: defaultdict[tuple[str, int], defaultdict[int, list[int]]] = defaultdict(lambda: defaultdict(list))
    for event_id, epoch, lane, join_seq in places:
        by_room[event_id, epoch][lane].append(join_seq)
    signs = [
        SignsOfLife(event_id=event_id, epoch=epoch, lanes={lane: sorted(seqs) for lane, seqs in lanes.items()})
        for (event_id, epoch), lanes in by_room.items()
    ]
    for at in range(0, max(1, len(signs)), EVENTS_PER_REPORT_MAX):
        yield signs[at : at + EVENTS_PER_REPORT_MAX]
