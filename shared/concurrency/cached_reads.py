"""Reads that many callers share: concurrent callers of a key wait for one read, and its result is kept for a moment.

However many ask, a key is read at most once in `kept_s`, and for at most `share_max` of the time: a result that took
long is kept longer.
"""

import asyncio
import time
from collections.abc import Callable, Coroutine
from contextlib import nullcontext
from functools import partial
from typing import Any, Generic, NamedTuple, TypeVar

from cachetools import TLRUCache

from shared.concurrency.single_flight import SingleFlight

Result = TypeVar("Result")
REPORT_KEPT_S, REPORT_SHARE_MAX, REPORTS_MAX = 1.0, 0.1, 200
REPORTS_AT_ONCE, REPORTS_IN_FLIGHT_MAX = 4, 100


class _Kept(NamedTuple, Generic[Result]):
    result: Result
    for_s: float


class CachedReads(Generic[Result]):
    """At most `keys_max` results are kept. At most `in_flight_max` reads are under way, others are refused; at most
    `at_once` of them run, the rest wait for their turn.
    """

    def __init__(
        self, *, kept_s: float, keys_max: int, in_flight_max: int | None = None, at_once: int | None = None,
        share_max: float = 1.0, timer: Callable[[], float] = time.monotonic,
    ) -> None:  # fmt: skip
        self._turns = nullcontext() if at_once is None else asyncio.Semaphore(at_once)
        self._kept_s, self._share_max, self._timer = kept_s, share_max, timer
        self._kept: TLRUCache[str, _Kept[Result]] = TLRUCache(keys_max, _expires, timer=timer)
        self._flights: SingleFlight[Result] = SingleFlight(in_flight_max=in_flight_max)

    @classmethod
    def for_reports(cls) -> "CachedReads[Result]":
        """Of reports for operators: kept for a second or, if reading took long, ten times as long."""
        return cls(
            kept_s=REPORT_KEPT_S, keys_max=REPORTS_MAX, in_flight_max=REPORTS_IN_FLIGHT_MAX,
            at_once=REPORTS_AT_ONCE, share_max=REPORT_SHARE_MAX,
        )  # fmt: skip

    async def get(self, key: str, read: Callable[[], Coroutine[Any, Any, Result]], *, known: bool = False) -> Result:
        """The kept result of this key, or that of the read under way, or of a new one. A failed read is not kept; a
        `known` key is never refused for those that callers invent. Raises `Overloaded`, and what the read raises.
        """
        kept = self._kept.get(key)
        if kept is not None:
            return kept.result
        return await self._flights.run(key, partial(self._read, key, read), known=known)

    async def _read(self, key: str, read: Callable[[], Coroutine[Any, Any, Result]]) -> Result:
        async with self._turns:
            begun_s = self._timer()
            result = await read()
        self._kept[key] = _Kept(result, max(self._kept_s, (self._timer() - begun_s) * (1 / self._share_max - 1)))
        return result

    async def close(self) -> None:
        """Cancels the reads under way."""
        await self._flights.close()


def _expires(_: str, kept: _Kept[Any], now_s: float) -> float:
    return now_s + kept.for_s
