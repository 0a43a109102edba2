"""How much this process has to do: in flight, done a second, and how long it takes. Measured once, for two uses.

The queue is told twice a second, and lets no more fans in than checkout completes: the line is the place to wait. As a
last resort the process refuses newcomers at once when it has more to do than it does in a moment: without that
everybody's wait grows until nobody is answered in time. By Little's law a request waits as long as the process takes
for the work before it: those that only look are refused when what is in flight takes longer than a second and a half,
with a credential longer than three, and those that buy longer than three. A short crowd is let in whole.

A purchase is one piece of work from its request until what the request left in the background is done. Time in which it
waits for a server outside the suite, a payment provider, is nobody's load.
"""

import math
import random
import secrets
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from starlette.types import Scope

from shared.concurrency.background import Quiet, wake
from shared.contracts.frames import LoadFrame, load_channel
from shared.errors.problems import Overloaded
from shared.redis.client import REDIS_AWAY, Redis
from shared.runtime.clock import now_ms

NEWCOMERS_WITHIN_S, WITHIN_S = 1.5, 3.0
QUIET, LEAST_MAX, CROWD_MAX = 128, 256, 4096
MEASURED_S = 2.0
RETRY_AFTER_MAX_S = 10
READS = ("GET", "HEAD", "OPTIONS")
QUOTE = "/orders/quote"  # a POST that only reads
NOT_FANS = ("/internal", "/admin", "/webhooks", "/livez", "/readyz", "/version", "/metrics")
CREDENTIALS = (b"authorization", b"cookie")
LOAD_S, QUIET_S = 0.5, 5.0  # between two frames, and while there is nothing new
SLOTS, KEPT_MAX = 10, 512  # frames whose durations are kept for the p95, and durations kept of each
AVERAGED = 4  # frames over which work is averaged: done comes in batches
STUCK_S = 0.5
UNAVAILABLE = 503


class Work:
    """Work of one kind: how much is in flight, and how much was done lately."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock, self._since_s = clock, clock()
        self.in_flight = self.done = self.refused = 0
        self._done_before = self._refused_before = 0
        self._per_s = math.inf  # how much is done a second, as last measured while there was much to do
        self._retry_after_s = 1

    def begin(self, *, within_s: float) -> None:
        """Lets a newcomer in. Raises `Overloaded` if what is to be done takes longer than `within_s`: the more are
        refused, the later they may come again.
        """
        to_do = self.newcomers_wait_for()
        self._measure(to_do)
        if to_do >= min(max(LEAST_MAX, self._per_s * within_s), CROWD_MAX):
            self.refused += 1
            raise Overloaded(retry_after_s=self._retry_after_s)
        self.in_flight += 1

    def end(self) -> None:
        self.in_flight -= 1
        self.done += 1

    def newcomers_wait_for(self) -> float:
        """How much is to be done before a newcomer's turn."""
        return self.in_flight

    def _measure(self, to_do: float) -> None:
        """Takes the rate every `MEASURED_S` seconds in which there was always much to do; any, once there is little."""
        passed_s, done = self._clock() - self._since_s, self.done - self._done_before
        if to_do < QUIET:
            self._per_s, self._retry_after_s = math.inf, 1
        elif passed_s < MEASURED_S:
            return
        else:
            self._per_s = done / passed_s
            refused = self.refused - self._refused_before
            self._retry_after_s = min(1 + refused // max(1, done), RETRY_AFTER_MAX_S)
        self._since_s += passed_s
        self._done_before, self._refused_before = self.done, self.refused


def _each_second(before: tuple[float, float, int], now: tuple[float, float, int]) -> tuple[float, float]:
    passed_s = max(1e-3, now[0] - before[0])
    return (now[1] - before[1]) / passed_s, (now[2] - before[2]) / passed_s


def _nothing() -> tuple[int, int]:
    return 0, 0


class PurchaseWork(Work):
    """Requests that write for fans, and what they leave to be done in the background."""

    def __init__(self, clock: Callable[[], float]) -> None:
        super().__init__(clock)
        self._background: Callable[[], tuple[int, int]] = _nothing
        self._went_outside: Callable[[], object] = _nothing
        self._working = self.outside_now = 0
        self._level = self._area = 0.0
        self._moved_s = clock()
        self._taken: deque[tuple[float, float, int]] = deque([(self._moved_s, 0.0, 0)], maxlen=AVERAGED + 1)

    def begin(self, *, within_s: float) -> None:
        super().begin(within_s=within_s)
        self._move()

    def end(self) -> None:
        """A request is answered. What it left in the background says how much is done."""
        self.in_flight -= 1
        self.done += self._background is _nothing
        self._move()

    def follow(self, background: Callable[[], tuple[int, int]], went_outside: Callable[[], object] = _nothing) -> None:
        """Requests leave work in the background from now on: how much of it waits to be begun, and how much of what
        waits or is in work a server outside the suite has held up. No newcomer is refused for that. `went_outside` is
        called when some of it begins to wait for such a server.
        """
        self._background, self._went_outside = background, went_outside

    @contextmanager
    def left(self) -> Iterator[None]:
        """A request waits for what it has left in the background, which is counted there."""
        self.in_flight -= 1
        try:
            yield
        finally:
            self.in_flight += 1

    @contextmanager
    def work(self, *, accepted: bool = True) -> Iterator[None]:
        """Work in the background: what a newcomer left, or else what comes up later by itself and says nothing about
        how many newcomers can be served.
        """
        self._working += 1
        self._move()
        try:
            yield
        finally:
            self._working -= 1
            self.done += accepted
            self._move()

    @contextmanager
    def outside(self) -> Iterator[None]:
        """Work in the background waits for a server outside the suite, which takes nothing of this process."""
        self.outside_now += 1
        self._move()
        self._went_outside()
        try:
            yield
        finally:
            self.outside_now -= 1
            self._move()

    def to_do(self) -> float:
        """What is in flight or waits, without the share that a server outside the suite has."""
        waiting, _ = self._background()
        return self.in_flight + (self._working + waiting) * self._inside()

    def newcomers_wait_for(self) -> float:
        waiting, held_up = self._background()
        return self.in_flight + max(0, self._working + waiting - held_up) * self._inside()

    def take(self) -> tuple[float, float, float]:
        """How much was in work on average since the last call of this; and that over the last `AVERAGED` calls, and how
        much was done a second in these.
        """
        self._move()
        taken = self._moved_s, self._area, self.done
        self._taken.append(taken)
        (work, _), (average, done_per_s) = (_each_second(one, taken) for one in (self._taken[-2], self._taken[0]))
        return work, average, done_per_s

    def _inside(self) -> float:
        return (self._working - self.outside_now) / self._working if self._working else 1.0

    def _move(self) -> None:
        """Something began or ended: until now as much was to be done as after the last such moment."""
        now_s = self._clock()
        self._area += self._level * (now_s - self._moved_s)
        self._moved_s, self._level = now_s, self.to_do()


class _Slot:
    """The answers between two frames."""

    __slots__ = ("refused", "seconds", "writes")

    def __init__(self) -> None:
        self.writes = self.refused = 0
        self.seconds: list[float] = []


class Load:
    """The load of this process. Operators, providers, probes and the other services are neither counted nor refused: a
    crowd must not keep the operator from ending it.
    """

    def __init__(self, service: str, clock: Callable[[], float] = time.perf_counter) -> None:
        self._service, self._process, self._clock = service, f"{service}-{secrets.token_hex(6)}", clock
        self.looks, self.purchases = Work(clock), PurchaseWork(clock)
        self._slots: deque[_Slot] = deque([_Slot()], maxlen=SLOTS)
        self._open: dict[int, tuple[Work, float]] = {}
        self._last_number = 0
        self._is_quiet = False
        self._shown: dict[str, int] | None = None

    def before(self, scope: Scope) -> int:
        """Lets a request in; `after` has to be called when it is answered, with the number that this returns: 0 for
        requests that do not count. Raises `Overloaded`.
        """
        path = scope["path"]
        if path.startswith(NOT_FANS):
            return 0
        if scope["method"] in READS or path == QUOTE:
            work: Work = self.looks
            work.begin(within_s=WITHIN_S if _has_credential(scope) else NEWCOMERS_WITHIN_S)
        else:
            work = self.purchases
            work.begin(within_s=WITHIN_S)
            if self._is_quiet:
                self._is_quiet = False
                wake(self._service)
        self._last_number += 1
        self._open[self._last_number] = work, self._clock()
        return self._last_number

    def after(self, number: int, status: int) -> None:
        """A request is answered, or was refused; `number` is what `before` returned."""
        slot = self._slots[-1]
        if status == UNAVAILABLE:
            slot.refused += 1
        if not number:
            return
        work, started_s = self._open.pop(number)
        work.end()
        if work is self.looks:
            return
        seconds = self._clock() - started_s
        slot.writes += 1
        if len(slot.seconds) < KEPT_MAX:
            slot.seconds.append(seconds)
        elif (at := random.randrange(slot.writes)) < KEPT_MAX:  # noqa: S311 - a fair sample, not a secret
            slot.seconds[at] = seconds

    def frame(self) -> LoadFrame:
        """The load since the last frame and over the last four; the p95 of the last ten, in which a write that is not
        answered yet counts with its age: a service that has stopped answering is slow, not idle.
        """
        now_s = self._clock()
        ages = (now_s - at_s for work, at_s in self._open.values() if work is self.purchases)
        seconds = sorted([*(one for slot in self._slots for one in slot.seconds), *(s for s in ages if s >= STUCK_S)])
        work, average_work, done_per_s = self.purchases.take()
        frame = LoadFrame(
            service=self._service,
            process=self._process,
            at_ms=now_ms(),
            work=round(work, 1),
            average_work=round(average_work, 1),
            done_per_s=round(done_per_s, 1),
            refused=sum(slot.refused for slot in self._slots),
            p95_ms=round(seconds[int(0.95 * (len(seconds) - 1))] * 1000, 1) if seconds else 0.0,
        )
        self._slots.append(_Slot())
        return frame

    async def publish(self, redis: Redis, counts: Callable[[], dict[str, int]] = dict) -> Quiet | None:
        """Publishes the frame on the service's channel, with the counts of a notifier's streams. Redis away is
        reported by whoever needs it.
        """
        before, self._shown = self._shown, counts()
        frame = self.frame().model_copy(update=self._shown)
        is_new = frame.average_work or frame.done_per_s or frame.refused or self._open or before != self._shown
        self._is_quiet = not is_new
        frame = frame if is_new else frame.model_copy(update={"rests_ms": round(QUIET_S * 1000)})
        with suppress(*REDIS_AWAY):
            await redis.publish(load_channel(self._service), frame.model_dump_json(exclude_none=True))
        return None if is_new else Quiet(QUIET_S)


def _has_credential(scope: Scope) -> bool:
    return any(name in CREDENTIALS for name, _ in scope["headers"])
