"""Single flight: one request for concurrent callers, bounded in number, independent of callers that leave."""

import asyncio

import pytest

from shared.concurrency.coalescing import SingleFlight
from shared.errors.problems import Overloaded


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
