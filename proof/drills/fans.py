"""Fans of drills, who repeat a failed request, as a page in a browser does; the longest time without a good answer."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

import httpx

from onsale.client import Fan, NotCalled, Problem
from onsale.client.fan import NOT_WRITTEN
from proof.insistence import InsistentClient, Meetings, Unanswered
from tests.support.running.fans import EAGER, card, somebody

T = TypeVar("T")
PATIENCE_S = 60.0  # a service may take long to start on a busy machine
MET = Meetings(again=lambda problem: problem.slug != NOT_WRITTEN, patience_s=PATIENCE_S)
"""What the fans of the present drill met."""


def patient_fan(browser: httpx.AsyncClient, event_id: str) -> Fan:
    """A new fan, outside, whose every request is repeated until it succeeds; a hold by the fan, with another key."""
    client = InsistentClient(str(browser.base_url), MET, http=browser)
    return Fan(client, event_id, customer=somebody(), payment=card("ok"), pace=EAGER)


def longest_silence_s(*, reset: bool = False) -> float:
    """The longest time for which any fan of this drill had no good answer; `reset` begins the next drill."""
    longest_s = MET.longest_silence_s()
    if reset:
        MET.silences.clear()
    return longest_s


async def retry(work: Callable[[], Awaitable[T]], *, within_s: float = PATIENCE_S) -> T:
    """Repeats it until it succeeds; its result."""
    deadline_s = time.monotonic() + within_s
    while True:
        try:
            return await work()
        except (httpx.HTTPError, AssertionError, Problem, NotCalled, Unanswered):
            if time.monotonic() > deadline_s:
                raise
            await asyncio.sleep(0.1)
