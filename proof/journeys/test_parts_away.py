"""Parts of a suite fall silent or are killed while an operator watches: the screen says so and goes on."""

import signal
import time
from collections.abc import Iterator, Mapping
from contextlib import aclosing

import pytest

from features.console.cli.watch import watched
from onsale.local.engines import Engines
from proof.drills.parts import SuiteOfParts, running_parts
from shared.contracts.admin.console import Part
from tests.support.running.fans import fan_of


@pytest.fixture(scope="module")
def parts(engines: Engines, migrated: str) -> Iterator[SuiteOfParts]:
    with running_parts(engines, migrated, "parts_away") as suite:
        yield suite


async def test_a_part_that_is_silent_grows_old_within_three_seconds_and_the_others_do_not(
    parts: SuiteOfParts,
) -> None:
    event_id = await parts.open_event()
    inventory = parts.programs["inventory"]
    states = watched(parts.url, parts.admin_key, event_id)
    async with aclosing(states):
        await anext(states)
        inventory.send(signal.SIGSTOP)
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
            inventory.send(signal.SIGCONT)
        async for state in states:
            if (state.snapshot.vitals.ages["inventory"] or 0) < 1.5:
                break


async def test_a_killed_console_leaves_the_sale_alone_and_the_screen_goes_on_when_it_is_back(
    parts: SuiteOfParts,
) -> None:
    event_id = await parts.open_event()
    states = watched(parts.url, parts.admin_key, event_id)
    async with aclosing(states), parts.browser() as browser:
        before = await anext(states)
        await parts.restart("console", signal.SIGKILL)
        await fan_of(browser, event_id).come_in()
        connected = []
        async for state in states:
            connected.append(state.connected)
            if state.connected and state.snapshot.vitals.line.claimed == 1:
                break
        assert False in connected, "the screen said that nobody answered"
        assert state.snapshot.vitals.at_ms > before.snapshot.vitals.at_ms
