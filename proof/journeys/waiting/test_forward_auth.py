"""An operator changes the share of fans who are sent to the waiting room while the room is open."""

from tests.support.programs import needs
from tests.support.running.suite import RunningSuite, bearer, fan_of
from tests.support.wait import wait_until

pytestmark = needs("nginx")


async def test_an_operator_changes_the_rollout_of_an_open_room(suite: RunningSuite) -> None:
    event_id = await suite.open_event(room={"rate_per_s": 0, "rollout_percent": 0})
    async with suite.browser() as other, suite.operator() as operator:
        fan = fan_of(other, event_id)
        assert (await fan.join())["status"] == "ready"
        assert (await fan.status())["status"] == "ready"
        await fan.claim()
        room = f"/admin/events/{event_id}/room"
        patched = await operator.patch(room, json={"rollout_percent": 100, "reason": "all of them"})
        assert patched.json()["rollout_percent"] == 100
        waiting = fan_of(other, event_id)
        assert (await waiting.join())["status"] == "waiting"
        with_pass = {"cookie": f"onsale_pass_{event_id}={fan.admission}", **bearer(fan.queue_token)}
        status = await other.get(f"/events/{event_id}/queue/status", headers=with_pass)
        assert status.json()["status"] == "admitted", "an admitted fan stays admitted"
        await operator.patch(room, json={"rollout_percent": 0, "reason": "taken back"})

        async def ready() -> bool:
            return bool((await waiting.status())["status"] == "ready")

        await wait_until(ready, timeout_s=10, interval_s=0.1)
    assert await suite.wrong(event_id) == []
