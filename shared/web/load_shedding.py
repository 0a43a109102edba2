"""Load shedding: a process with more work of fans than it does in a moment refuses newcomers at once.

Without it everybody's wait grows until nobody is answered in time. By Little's law a request waits as long as the
process takes for the work before it: as much may be in flight as was lately done in a second and a half. Requests that
only read, those that write, and what these leave to be done in the background are counted apart, each by their own
rate: who has chosen can pay while others look, and no more is accepted than is completed. A short crowd is let in
whole.
"""

import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NamedTuple

from shared.errors.problems import Overloaded
from shared.process.load_meter import NOT_FANS

READ_WITHIN_S, WRITE_WITHIN_S = 1.5, 3.0
QUIET, LEAST_MAX, CROWD_MAX = 128, 256, 4096
MEASURED_S = 2.0
RETRY_AFTER_MAX_S = 10
READS = ("GET", "HEAD", "OPTIONS")
QUOTE = "/orders/quote"  # a POST that only reads
NEVER_REFUSED = (*NOT_FANS, "/livez", "/readyz", "/version", "/metrics")


class LoadShedder:
    """Work of one kind in this process: how much is in flight, and how much was done lately. Newcomers are refused
    when what is in flight takes longer than `within_s`.
    """

    def __init__(self, within_s: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._within_s, self._clock, self._since_s = within_s, clock, clock()
        self.in_flight = self._outside = self._done = self._refused = self._waiting = 0
        self._per_s = math.inf  # how much is done a second, as last measured while there was much to do
        self._retry_after_s = 1

    def check(self, *, coming: int = 0) -> None:
        """Raises `Overloaded` if there is too much to do, with what is `coming` from elsewhere: the more are refused,
        the later they may come again.
        """
        to_do = self._to_do() + coming
        self._measure(to_do)
        if to_do >= min(max(LEAST_MAX, self._per_s * self._within_s), CROWD_MAX):
            self._refused += 1
            raise Overloaded(retry_after_s=self._retry_after_s)

    def begin(self) -> None:
        """Lets a newcomer in; `end` has to be called when it ends. Raises `Overloaded`."""
        self.check()
        self.in_flight += 1

    def end(self, *, accepted: bool = True) -> None:
        self.in_flight -= 1
        self._done += accepted

    def _to_do(self) -> float:
        """What is in flight or waits, without the share that a server outside the suite has."""
        inside = self.in_flight - self._outside
        return inside + self._waiting * inside / max(1, self.in_flight)

    def wait(self, count: int) -> None:
        """So much work waits to be begun."""
        self._waiting = count

    @contextmanager
    def work(self, *, accepted: bool = True) -> Iterator[None]:
        """Work in the background: what a newcomer left, or else what comes up later by itself and says nothing about
        how many newcomers can be served.
        """
        self.in_flight += 1
        try:
            yield
        finally:
            self.end(accepted=accepted)

    @contextmanager
    def outside(self) -> Iterator[None]:
        """Work in flight waits for a server outside the suite, which takes nothing of this process."""
        self._outside += 1
        try:
            yield
        finally:
            self._outside -= 1

    def _measure(self, to_do: float) -> None:
        """Takes the rate every `MEASURED_S` seconds in which there was always much to do; any, once there is little."""
        passed_s = self._clock() - self._since_s
        if to_do < QUIET:
            self._per_s, self._retry_after_s = math.inf, 1
        elif passed_s < MEASURED_S:
            return
        else:
            self._per_s = self._done / passed_s
            self._retry_after_s = min(1 + self._refused // max(1, self._done), RETRY_AFTER_MAX_S)
        self._since_s += passed_s
        self._done = self._refused = 0


class Load(NamedTuple):
    """Requests of fans that look, those that write, and the work that these leave behind."""

    reads: LoadShedder
    writes: LoadShedder
    background: LoadShedder

    def begin(self, method: str, path: str) -> LoadShedder:
        """Lets a request in; `end` has to be called on what this returns. Raises `Overloaded`."""
        shedder = self.reads if method in READS or path == QUOTE else self.writes
        if shedder is self.writes and self.background.in_flight:
            self.background.check(coming=self.writes.in_flight)
        shedder.begin()
        return shedder


def new_load() -> Load:
    """The load of a process, nothing of it measured yet."""
    return Load(*map(LoadShedder, (READ_WITHIN_S, WRITE_WITHIN_S, WRITE_WITHIN_S)))
