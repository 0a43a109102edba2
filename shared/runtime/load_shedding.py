"""Load shedding: a process with more requests of fans than it answers in a moment refuses newcomers at once.

Without it everybody's wait grows until nobody is answered in time. By Little's law a request waits as long as the
process takes to answer those before it: as many may be in flight as were lately answered in `READ_WITHIN_S` seconds,
and more of those that write, so that who has chosen can pay while others look. A short crowd is let in whole.
"""

import math
import time
from collections.abc import Callable

from fastapi import FastAPI
from starlette.types import ASGIApp, Receive, Scope, Send

from shared.runtime.load_meter import NOT_FANS
from shared.web.exception_handlers import REQUEST_ID_KEY, send_problem
from shared.web.problems import Overloaded

READ_WITHIN_S, WRITE_WITHIN_S = 1.5, 3.0
QUIET, LEAST_MAX, CROWD_MAX = 128, 256, 4096
MEASURED_S = 2.0
RETRY_AFTER_MAX_S = 10
READS = ("GET", "HEAD", "OPTIONS")
NEVER_REFUSED = (*NOT_FANS, "/livez", "/readyz", "/version")


class LoadShedder:
    """Counts requests of fans that are in flight and those that were answered."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock, self._since_s = clock, clock()
        self._in_flight = self._answered = self._refused = 0
        self._per_s = math.inf  # requests answered a second, as last measured while there was much to do
        self._retry_after_s = 1

    def begin(self, method: str) -> None:
        """Lets a request in; `end` has to be called when it ends. Raises `Overloaded`: the more are refused, the later
        they may come again.
        """
        self._measure()
        within_s = READ_WITHIN_S if method in READS else WRITE_WITHIN_S
        if self._in_flight >= min(max(LEAST_MAX, self._per_s * within_s), CROWD_MAX):
            self._refused += 1
            raise Overloaded(retry_after_s=self._retry_after_s)
        self._in_flight += 1

    def end(self) -> None:
        self._in_flight -= 1
        self._answered += 1

    def _measure(self) -> None:
        """Takes the rate every `MEASURED_S` seconds in which there was always much to do; any, once there is little."""
        passed_s = self._clock() - self._since_s
        if self._in_flight < QUIET:
            self._per_s, self._retry_after_s = math.inf, 1
        elif passed_s < MEASURED_S:
            return
        else:
            self._per_s = self._answered / passed_s
            self._retry_after_s = min(1 + self._refused // max(1, self._answered), RETRY_AFTER_MAX_S)
        self._since_s += passed_s
        self._answered = self._refused = 0


def shed_load(app: FastAPI, fast_routes: ASGIApp) -> ASGIApp:
    """Adds load shedding to the app, and the same to its fast routes, which are returned with it."""
    shedder = LoadShedder()
    app.add_middleware(LoadSheddingMiddleware, shedder)
    return LoadSheddingMiddleware(fast_routes, shedder)


class LoadSheddingMiddleware:
    """Refuses requests of fans as a shedder says. Operators, providers, probes and the other services are let in."""

    def __init__(self, app: ASGIApp, shedder: LoadShedder) -> None:
        self._app, self._shedder = app, shedder
        self.answer_now = getattr(app, "answer_now", None)  # takes no time, so nothing is refused

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"].startswith(NEVER_REFUSED):
            await self._app(scope, receive, send)
            return
        try:
            self._shedder.begin(scope["method"])
        except Overloaded as refused:
            await send_problem(refused, scope[REQUEST_ID_KEY], send)
            return
        try:
            await self._app(scope, receive, send)
        finally:
            self._shedder.end()
