"""Forward-auth in front of another shop: a fan is sent to the waiting room and back, and the shop releases the slot."""

from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import httpx
import pytest

from tests.support.programs import needs
from tests.support.providers.shop import SCRIPT, browser, guarded_shop
from tests.support.running.suite import RunningSuite, bearer, fan_of
from tests.support.wait import wait_until

pytestmark = needs("nginx")


async def through_the_waiting_room(
    suite: RunningSuite, fan: httpx.AsyncClient, event_id: str, page: str
) -> httpx.Response:
    """Opens the shop's page, goes through the waiting room and returns to the page, with the fan's cookies."""
    redirect = await fan.get(page)
    assert redirect.status_code == 303, redirect.text
    assert redirect.headers["location"].startswith(f"{suite.url}/e/{event_id}#")
    return_data = {name: v[0] for name, v in parse_qs(urlsplit(redirect.headers["location"]).fragment).items()}
    origin, path = {"origin": suite.url}, f"{suite.url}/events/{event_id}/queue"
    joined = await fan.post(path, headers={**origin, "idempotency-key": return_data["gate"]})
    assert joined.status_code == 201, joined.text

    async def called() -> bool:
        return (await fan.get(f"{path}/status")).json()["status"] == "ready"

    await wait_until(called, timeout_s=20, interval_s=0.1)
    assert (await fan.post(f"{path}/pass", headers=origin)).status_code == 200
    handover = await fan.post(f"{path}/handover", headers=origin, json=return_data)
    assert handover.status_code == 201, handover.text
    returned = await fan.get(handover.json()["location"])
    assert (returned.status_code, returned.headers["location"]) == (303, page)
    return await fan.get(page)


@pytest.mark.proof
async def test_a_fan_waits_then_shops_and_the_shop_releases_the_slot(suite: RunningSuite, tmp_path: Path) -> None:
    event_id = await suite.open_event(room={"max_active": 1, "gate": {"waiting_room": suite.url}})
    async with guarded_shop(tmp_path, suite.port, event_id) as shop, suite.operator() as operator:
        room = f"/admin/events/{event_id}/room"
        rules = {"gate": {"waiting_room": suite.url, "return_to": [shop]}, "reason": "a shop was added"}
        patched = await operator.patch(room, json=rules)
        assert patched.json()["gate"]["return_to"] == [shop], patched.text

        async with browser() as ann, browser() as ben, suite.browser() as other:

            async def rules_are_known() -> bool:
                return "return_to" in (await ben.get(f"{shop}/")).headers["location"]

            await wait_until(rules_are_known)
            page = await through_the_waiting_room(suite, ann, event_id, f"{shop}/tickets?row=1")
            assert page.text.startswith("the shop: GET /tickets?row=1 for [")
            waiting = await fan_of(other, event_id).join()
            assert waiting["status"] == "waiting", "Ann has the only slot"
            cookie = ann.cookies.get(f"onsale_pass_{event_id}", domain="127.0.0.2") or ""
            released = await other.post(f"/gate/release?event={event_id}", headers=bearer(cookie))
            assert released.json() == {"status": "completed"}
            assert (await ann.get(f"{shop}/tickets?row=1")).status_code == 303
            assert (await ann.get(f"{shop}/api", headers=SCRIPT)).status_code == 401

            async def ready() -> bool:
                status = await other.get(f"/events/{event_id}/queue/status", headers=bearer(waiting["queue_token"]))
                return bool(status.json()["status"] == "ready")

            await wait_until(ready, timeout_s=10, interval_s=0.1)
    assert await suite.wrong(event_id) == []
