"""The seats of a hold that nobody pays are free again after its time."""

from contextlib import suppress

import pytest

from onsale.client import Problem
from tests.support.running.fans import fan_of, refusal
from tests.support.running.suite import RunningSuite
from tests.support.wait import wait_until


async def test_the_seats_of_an_unpaid_hold_are_released(suite: RunningSuite) -> None:
    event_id = await suite.open_event(sales={"hold_ttl_s": 5, "grace_s": 0})
    async with suite.browser() as browser:
        first = await fan_of(browser, event_id).come_in()
        held = await first.hold({"seats": ["A-1-1"]})
        second = await fan_of(browser, event_id).come_in()
        with pytest.raises(Problem) as taken:
            await second.hold({"seats": ["A-1-1", "A-1-2"]})
        assert (taken.value.slug, taken.value.members["seats"]) == ("seats-taken", ["A-1-1"])

        async def seats_are_free() -> bool:
            with suppress(Problem):
                return bool(await second.hold({"seats": ["A-1-1", "A-1-2"]}))
            return False

        await wait_until(seats_are_free, timeout_s=12, interval_s=0.25)
        assert await refusal(first.order(held)) == (410, "hold-expired")
    assert await suite.wrong(event_id) == []
