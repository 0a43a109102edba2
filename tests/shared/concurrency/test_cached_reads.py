"""Single flight: one request for concurrent callers, bounded in number, independent of callers that leave.

Cached reads: its answer is kept for a moment, and longer if it took long.
"""

import asyncio

import pytest

from shared.concurrency.coalescing import CachedReads, SingleFlight
from shared.errors.problems import Overloaded


class Source:
    """Counts its reads; each takes `takes_s` on the test's own clock."""

    def __init__(self, takes_s: float = 0.0) -> None:
        self.now_s, self.takes_s, self.reads = 0.0, takes_s, 0

    async def read(self) -> int:
        self.reads += 1
        await asyncio.sleep(0)
        self.now_s += self.takes_s
        return self.reads


async def test_twenty_who_ask_at_once_share_one_read_a_second() -> None:
    source = Source()
    cached: CachedReads[int] = CachedReads(kept_s=1, keys_max=10, timer=lambda: source.now_s)
    for second in range(1, 4):
        for _ in range(5):
            assert await asyncio.gather(*(cached.get("key", source.read) for _ in range(20))) == [second] * 20
        source.now_s = second


@pytest.mark.parametrize(("passed_s", "reads"), [(17.9, 1), (18.1, 2)])
async def test_a_slow_read_is_under_way_at_most_a_tenth_of_the_time(passed_s: float, reads: int) -> None:
    source = Source(takes_s=2)
    cached: CachedReads[int] = CachedReads(kept_s=1, keys_max=10, share_max=0.1, timer=lambda: source.now_s)
    await cached.get("key", source.read)
    source.now_s += passed_s
    assert await cached.get("key", source.read) == reads


async def test_a_failed_read_is_not_kept() -> None:
    async def fail() -> int:
        raise ConnectionError

    source = Source()
    cached: CachedReads[int] = CachedReads(kept_s=1, keys_max=10)
    with pytest.raises(ConnectionError):
        await cached.get("key", fail)
    assert await cached.get("key", source.read) == 1


async def test_reports_wait_for_their_turn_instead_of_being_refused() -> None:
    running = most = 0

    async def read() -> int:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0.01)
        running -= 1
        return 1

    cached: CachedReads[int] = CachedReads.for_reports()
    assert await asyncio.gather(*(cached.get(str(key), read) for key in range(20))) == [1] * 20
    assert most == 4
    asked = await asyncio.gather(*(cached.get(f"other {key}", read) for key in range(101)), return_exceptions=True)
    assert [type(each) for each in asked if each != 1] == [Overloaded]


async def test_invented_keys_do_not_keep_known_ones_from_being_read() -> None:
    go_on = asyncio.Event()

    async def read() -> str:
        await go_on.wait()
        return "read"

    cached: CachedReads[str] = CachedReads(kept_s=1, keys_max=10, in_flight_max=2)
    invented = [asyncio.create_task(cached.get(f"invented-{n}", read)) for n in range(2)]
    await asyncio.sleep(0)
    with pytest.raises(Overloaded):
        await cached.get("invented-2", read)
    known = asyncio.create_task(cached.get("show", read, known=True))
    await asyncio.sleep(0)
    go_on.set()
    assert await asyncio.gather(*invented, known) == ["read"] * 3


async def test_concurrent_callers_share_one_request_that_survives_a_cancelled_caller() -> None:
    flights: SingleFlight[str] = SingleFlight()
    requests, answer = 0, asyncio.Event()

    async def request() -> str:
        nonlocal requests
        requests += 1
        await answer.wait()
        return "answer"

    callers = [asyncio.create_task(flights.run("key", request)) for _ in range(10)]
    await asyncio.sleep(0)
    callers[0].cancel()
    answer.set()
    assert await asyncio.gather(*callers[1:]) == ["answer"] * 9
    assert (requests, len(flights)) == (1, 0)


async def test_more_keys_than_the_limit_are_refused_and_close_cancels_the_rest() -> None:
    flights: SingleFlight[object] = SingleFlight(in_flight_max=2)
    started = [flights.start(key, asyncio.Event().wait) for key in ("a", "b")]
    with pytest.raises(Overloaded):
        await flights.run("c", lambda: asyncio.sleep(0))
    assert flights.start("a", lambda: asyncio.sleep(0)) is started[0]
    await flights.close()
    assert all(task.cancelled() for task in started)
