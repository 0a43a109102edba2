"""A sale in the middle of which a drill breaks something: it begins, goes on, and must end with a clean audit.

Fans of drills, who repeat a failed request, as a page in a browser does; the longest time without a good answer.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Collection
from contextlib import asynccontextmanager
from typing import Any, TypeVar

import asyncpg
import httpx

from onsale.client import Fan, NotCalled, Problem
from onsale.client.fan import NOT_WRITTEN
from onsale.client.fan_documents import OrderView, ReserveBody
from onsale.simulate.observations import what_stays_wrong
from proof.drills.fleet import Fleet
from proof.insistence import InsistentClient, Meetings, Unanswered
from tests.support.running.suite import EAGER, card, somebody
from tests.support.wait import wait_until

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


ROOM = {"rate_per_s": 20, "burst": 5, "max_active": 200, "claim_window_s": 120}
FLOOR = [{"section_id": "GA1", "name": "Floor", "kind": "ga", "capacity": 500, "price_minor": 3000}]
SEATS = [{"section_id": "A", "name": "Block", "kind": "seated", "rows": 4, "seats_per_row": 10, "price_minor": 5000}]
ONE_TICKET: ReserveBody = {"ga": [{"section_id": "GA1", "quantity": 1}]}
RESERVATIONS = "SELECT count(*) FROM inventory.reservation WHERE event_id = $1"
INVENTORY_WAITS_FOR_A_LOCK = (
    "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'onsale-inventory' AND wait_event_type = 'Lock'"
)
Recorder = Callable[..., None]


def seat(number: int) -> str:
    """One of the forty seats, counted from 0."""
    return f"A-{1 + number // 10}-{1 + number % 10}"


class Sale:
    """An open event of a fleet, and the browser of its fans. `lost`: the names of what the drill's fault must lose."""

    def __init__(self, fleet: Fleet, event_id: str, browser: httpx.AsyncClient) -> None:
        self.fleet, self.event_id, self.browser = fleet, event_id, browser
        self.lost: set[str] = set()

    def fan(self) -> Fan:
        """A new fan, outside, who asks again."""
        return patient_fan(self.browser, self.event_id)

    async def come_in(self) -> Fan:
        return await self.fan().come_in()

    async def buy(self, selection: ReserveBody, method: str = "ok") -> OrderView:
        """A new fan comes in and buys; the order once it is no longer pending."""
        fan = await self.come_in()
        return await fan.buy(await fan.hold(selection), payment=card(method))


@asynccontextmanager
async def on_sale(fleet: Fleet, *, clean_within_s: float = 30, **event: Any) -> AsyncIterator[Sale]:
    """Opens an event; when the drill is over, the audit must become clean, and fans must have all that they were
    acknowledged but exactly what is `lost`.
    """
    event_id = await fleet.open_event(**{"room": ROOM, **event})
    async with fleet.browser() as browser:
        sale = Sale(fleet, event_id, browser)
        yield sale
    await wait_until(lambda: fleet.is_clean(event_id), timeout_s=clean_within_s, interval_s=0.3)
    await require_kept(fleet, event_id, sale.lost)


async def require_kept(fleet: Fleet, event_id: str, lost: Collection[str] = ()) -> None:
    """Fails unless fans have all that they were acknowledged, but all of these, once the last payments are through."""

    async def broken() -> list[str]:
        report = await fleet.checked(event_id)
        found = [violation.sentence for violation in report.violations]
        assert report.read["joined"], "the history has fans"
        kept = [f"not lost after all: {name}" for name in lost if not any(name in sentence for sentence in found)]
        return kept + [sentence for sentence in found if not any(name in sentence for name in lost)]

    assert not (wrong := await what_stays_wrong(broken, settle_s=30, quiet_s=0)), "\n".join(wrong)


async def until_count(database: asyncpg.Connection, minimum: int, query: str, *values: str) -> None:
    """Waits until the query counts so many."""

    async def is_reached() -> bool:
        return bool(await database.fetchval(query, *values) >= minimum)

    await wait_until(is_reached)
