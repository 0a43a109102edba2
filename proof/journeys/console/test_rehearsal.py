"""Rehearsals that are stopped, killed or repeated, and one beside a sale: the event goes on, the copy is closed."""

import signal
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import httpx
import psutil
import pytest

from onsale.local.engines import Engines
from proof.drills.parts import SuiteOfParts, running_parts
from tests.journeys.console.rehearsing import path_of, room_state, start
from tests.support.running.fans import fan_of
from tests.support.running.suite import RunningSuite
from tests.support.wait import wait_until

Operate = Callable[..., Awaitable[str]]
WITHIN_S = 90


@pytest.fixture(scope="module")
def parts(engines: Engines, migrated: str) -> Iterator[SuiteOfParts]:
    with running_parts(engines, migrated, "rehearsals") as suite:
        yield suite


async def until_bought(operator: httpx.AsyncClient, event_id: str) -> dict[str, Any]:
    """The rehearsal once some fans have bought, and it still runs."""
    found: dict[str, Any] = {}

    async def some_bought() -> bool:
        nonlocal found
        found = (await operator.get(path_of(event_id))).json()
        return found["progress"].get("bought", 0) > 0

    await wait_until(some_bought, timeout_s=WITHIN_S)
    assert found["state"] == "running"
    return found


def simulators(event_id: str) -> list[psutil.Process]:
    """Processes that rehearse this event."""
    return [one for one in psutil.process_iter(["cmdline"]) if {"rehearse", event_id} <= set(one.info["cmdline"] or ())]


async def test_one_that_is_removed_half_way_closes_its_copy_and_leaves_no_process(suite: RunningSuite) -> None:
    event_id = await suite.open_event()
    async with suite.operator() as operator:
        await start(operator, event_id, fans=2000)
        found = await until_bought(operator, event_id)
        assert await room_state(operator, found["copy_id"]) == "open"
        shown = {event["event_id"] for event in (await operator.get("/console/api/events")).json()["events"]}
        assert found["copy_id"] in shown, "the console lists it while it runs"
        assert simulators(event_id)
        assert (await operator.delete(path_of(event_id))).status_code == 204
        assert not simulators(event_id)
        assert await room_state(operator, found["copy_id"]) == "closed"
        await wait_until(lambda: suite.is_clean(found["copy_id"]), timeout_s=30)


async def test_a_killed_console_leaves_no_process_and_no_open_copy(parts: SuiteOfParts) -> None:
    event_id = await parts.open_event()
    async with parts.operator() as operator:
        await start(operator, event_id, fans=2000)
        found = await until_bought(operator, event_id)
        await parts.restart("console", signal.SIGKILL)

        async def closed() -> bool:
            return not simulators(event_id) and await room_state(operator, found["copy_id"]) == "closed"

        await wait_until(closed, timeout_s=30)

        async def lost() -> bool:
            answer = await operator.get(path_of(event_id))
            return answer.status_code == 200 and answer.json()["state"] == "lost"

        await wait_until(lost, timeout_s=40, interval_s=0.5)
        assert (await operator.delete(path_of(event_id))).status_code == 204


async def test_the_command_makes_the_next_copy_and_refuses_the_copy_of_a_copy(
    suite: RunningSuite, operate: Operate
) -> None:
    event_id = await suite.open_event()
    for number in ("", "-2"):
        printed = await operate("rehearse", event_id, "--fans", "20", "--arrive-over", "0")
        assert f"The copy is {event_id}-rehearsal{number}." in printed
        assert "invariants that hold" in printed
    async with suite.operator() as operator:
        await start(operator, f"{event_id}-rehearsal", fans=5)

        async def failed() -> bool:
            answer = (await operator.get(path_of(f"{event_id}-rehearsal"))).json()
            return answer["state"] == "failed" and "copy of a rehearsal itself" in answer["detail"]

        await wait_until(failed, timeout_s=30)


async def test_a_fan_of_the_event_buys_while_it_is_rehearsed(suite: RunningSuite) -> None:
    event_id = await suite.open_event()
    async with suite.browser() as browser, suite.operator() as operator:
        await start(operator, event_id, fans=500)
        await until_bought(operator, event_id)
        fan = await fan_of(browser, event_id).come_in()
        order = await fan.buy(await fan.hold({"seats": ["A-1-1"]}))
        assert order["status"] == "confirmed"
        assert (await operator.delete(path_of(event_id))).status_code == 204
