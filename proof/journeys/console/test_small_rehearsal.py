"""A rehearsal on a running suite: simulated fans buy the copy, and the event itself does not move."""

from typing import Any

import httpx

from tests.journeys.console.rehearsing import FANS, path_of, room_state, start
from tests.support.running.suite import RunningSuite
from tests.support.wait import wait_until

WITHIN_S = 90
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
