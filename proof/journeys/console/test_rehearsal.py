"""Rehearsals that are stopped, killed or repeated, and one beside a sale: the event goes on, the copy is closed.

A rehearsal on a running suite: simulated fans buy the copy, and the event itself does not move.

Event files and comparisons stand in the audit log with their reason; others: proof/browser/console.

The console of a running suite: an operator's change is seen by another, and its link works for its owner alone.
"""

import signal
import stat
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import httpx
import psutil
import pytest

from features.console.schemas import STREAM_PATH, Snapshot
from onsale.local.engines import Engines
from onsale.server_sent_events import messages
from proof.drills.parts import SuiteOfParts, running_parts
from tests.journeys.console.test_screen_of_a_sale import FANS, path_of, room_state, start
from tests.support.running.suite import RunningSuite, fan_of, problem
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


SETTLED = ("at", "oldest_hold_s", "oldest_payment_s", "oldest_pending_s", "oldest_due_s", "recent")  # they age


async def figures(operator: httpx.AsyncClient, event_id: str) -> list[Any]:
    """All that the event has counted, and its changes."""
    found = []
    for service in ("queue", "inventory", "orders"):
        flow = (await operator.get(f"/admin/{service}/events/{event_id}/flow")).json()
        found.append({name: value for name, value in flow.items() if name not in SETTLED})
    paths = (f"queue/events/{event_id}/changes", f"inventory/events/{event_id}/changes")
    return found + [(await operator.get(f"/admin/{path}")).json() for path in paths]


async def test_a_copy_is_sold_to_simulated_fans_and_the_event_does_not_move(suite: RunningSuite) -> None:
    event_id = await suite.open_event(room={"friction": {"proof_of_work": "on"}})
    async with suite.browser() as browser, suite.operator() as operator:
        before = await figures(operator, event_id)
        await start(operator, event_id)

        async def over() -> bool:
            return bool((await operator.get(path_of(event_id))).json()["state"] != "running")

        await wait_until(over, timeout_s=WITHIN_S)
        found = (await operator.get(path_of(event_id))).json()
        result, copy_id = found["result"], found["copy_id"]
        assert found["state"] == "done", found
        assert (copy_id, result["fans"]) == (f"{event_id}-rehearsal", FANS)
        assert 0 < result["joined"] <= FANS, "who comes after the last ticket is sold is turned away"
        assert (result["oversold"], result["inversions"], result["duplicate_numbers"]) == (0, 0, 0)
        assert (result["failures"], result["broken"]) == ([], [])
        assert result["invariants"] > 20
        assert 0 < result["tickets_sold"] <= result["capacity"] == 90
        assert any("proof of work" in words for words in found["left_out"])
        assert await figures(operator, event_id) == before
        assert await room_state(operator, event_id) == "open"
        assert await room_state(operator, copy_id) == "closed"
        log = (await operator.get(f"/admin/queue/events/{copy_id}/changes")).json()["changes"]
        assert ("open", "operator", "the night before") in {(one["action"], one["actor"], one["reason"]) for one in log}
        listed: list[Any] = []
        page = "/events?page_size=500"
        while page:
            answer = (await browser.get(page)).json()
            listed, page = listed + answer["events"], answer["next"]
        ids = {event["event_id"] for event in listed}
        assert event_id in ids
        assert copy_id not in ids, "fans find it in no list"
        shown = {event["event_id"] for event in (await operator.get("/console/api/events")).json()["events"]}
        assert copy_id not in shown, "a closed copy is in no list of the console"
        assert (await operator.delete(path_of(event_id))).status_code == 204
        assert (await operator.get(path_of(event_id))).status_code == 404


async def test_an_event_file_and_a_comparison_are_logged_with_their_reason(suite: RunningSuite) -> None:
    event_id = await suite.open_event(reason="a new hall")
    async with suite.operator() as operator:
        compare = f"/admin/inventory/events/{event_id}/reconcile"
        for answer in (await operator.post(compare, json={"reason": "a rumour"}), await operator.post(compare)):
            assert answer.is_success, answer.text
        logs = {
            f"/admin/inventory/events/{event_id}/changes": {("apply", "a new hall"), ("reconcile", "a rumour")},
            f"/admin/queue/events/{event_id}/changes": {("create", "a new hall")},
            f"/admin/orders/events/{event_id}/price-changes": {("apply", "a new hall")},
        }
        for path, expected in logs.items():
            entries = (await operator.get(path)).json()["changes"]
            assert {(entry["action"], entry["reason"]) for entry in entries} >= expected, path


async def snapshot(client: httpx.AsyncClient, event_id: str) -> Snapshot:
    """The first message of a new stream."""
    async with client.stream("GET", STREAM_PATH.format(event_id=event_id)) as response:
        assert response.status_code == 200, await response.aread()
        _, first, *_ = await anext(messages(response.aiter_lines()))
        return Snapshot.model_validate_json(first)


async def test_an_operator_changes_the_rate_with_the_cookie_and_a_second_one_sees_it_first(suite: RunningSuite) -> None:
    event_id = await suite.open_event()
    room = f"/admin/events/{event_id}/room"
    own = {"origin": suite.url}
    async with httpx.AsyncClient(base_url=suite.url, timeout=20) as browser:
        signed_in = await browser.post("/console/session", json={"key": suite.admin_key}, headers=own)
        assert signed_in.status_code == 200, signed_in.text
        etag = (await browser.get(room)).headers["etag"]
        assert problem(await browser.patch(room, json={"rate_per_s": 7})) == (403, "foreign-origin")
        changed = await browser.patch(room, json={"rate_per_s": 7}, headers=own | {"if-match": etag})
        assert changed.json()["rate_per_s"] == 7
        late = await browser.patch(room, json={"rate_per_s": 9}, headers=own | {"if-match": etag})
        assert problem(late) == (412, "version-mismatch")
        vitals = (await snapshot(browser, event_id)).vitals
        assert (vitals.rate.set_per_s, vitals.room.version) == (7, changed.json()["version"])


def test_the_link_is_printed_and_only_its_owner_may_read_its_file(suite: RunningSuite) -> None:
    file = suite.data_dir / "console.link"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    address, _, secret = file.read_text().strip().partition("#link=")
    assert address == f"{suite.url}/console/"
    assert f"{address}#link={secret}\n" in suite.log_text(), "it is printed whole, however narrow the terminal is"
