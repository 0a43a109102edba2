"""Parts of a suite of processes fall silent or are killed while an operator watches: the screen says so and goes on."""

import time
from collections.abc import Iterator, Mapping
from contextlib import aclosing

import pytest

from onsale.watch.stream import watched
from shared.contracts.admin.console import Part
from tests.support.running.fans import fan_of
from tests.support.running.suite import RunningSuite, running_suite


@pytest.fixture(scope="module")
def processes() -> Iterator[RunningSuite]:
    """A suite with a process for each service."""
    with running_suite("--processes") as suite:
        yield suite


async def test_a_part_that_is_silent_grows_old_within_three_seconds_and_the_others_do_not(
    processes: RunningSuite,
) -> None:
    event_id = await processes.open_event()
    inventory = processes.process_of("inventory")
    states = watched(processes.url, processes.admin_key, event_id)
    async with aclosing(states):
        await anext(states)
        inventory.suspend()
        suspended_s = time.monotonic()
        try:
            ages: Mapping[Part, float | None] = {}
            async for state in states:
                ages = state.snapshot.vitals.ages
                if (ages["inventory"] or 0) > 1.5:
                    break
            assert time.monotonic() - suspended_s < 3.5
            assert all((ages[part] or 0) < 1.5 for part in ("queue", "orders", "notifier")), ages
        finally:
            inventory.resume()
        async for state in states:
            if (state.snapshot.vitals.ages["inventory"] or 0) < 1.5:
                break


async def test_a_killed_console_is_started_again_and_the_screen_goes_on(processes: RunningSuite) -> None:
    event_id = await processes.open_event()
    states = watched(processes.url, processes.admin_key, event_id)
    async with aclosing(states), processes.browser() as browser:
        before = await anext(states)
        processes.process_of("console").kill()
        await fan_of(browser, event_id).come_in()
        connected = []
        async for state in states:
            connected.append(state.connected)
            if state.connected and state.snapshot.vitals.line.claimed == 1:
                break
        assert False in connected, "the screen said that nobody answered"
        assert state.snapshot.vitals.at_ms > before.snapshot.vitals.at_ms
        assert processes.program.is_running
