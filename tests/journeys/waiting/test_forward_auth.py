"""The gate in front of a shop that knows nothing of us, the whole suite behind it: one fan's way there and back, and a
slot that the shop gives back.
"""

from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import httpx
import pytest

from tests.support.providers.shop import NGINX, SCRIPT, browser, guarded_shop
from tests.support.running.suite import Fan, RunningSuite, bearer
from tests.support.wait import wait_until

pytestmark = pytest.mark.skipif(not Path(NGINX).exists(), reason="nginx is not installed")


async def to_the_shop(suite: RunningSuite, fan: httpx.AsyncClient, event_id: str, page: str) -> httpx.Response:
    """From the shop's page through the room and back, with the fan's own cookies all the way."""
    sent = await fan.get(page)
    assert sent.status_code == 303, sent.text
    assert sent.headers["location"].startswith(f"{suite.url}/e/{event_id}#")
    way_back = {name: v[0] for name, v in parse_qs(urlsplit(sent.headers["location"]).fragment).items()}
    ours, path = {"origin": suite.url}, f"{suite.url}/events/{event_id}/queue"
    joined = await fan.post(path, headers={**ours, "idempotency-key": way_back["gate"]})
    assert joined.status_code == 201, joined.text

    async def called() -> bool:
        return (await fan.get(f"{path}/status")).json()["status"] == "ready"

    await wait_until(called, timeout_s=20, interval_s=0.1)
    assert (await fan.post(f"{path}/pass", headers=ours)).status_code == 200
    handed = await fan.post(f"{path}/handover", headers=ours, json=way_back)
    assert handed.status_code == 201, handed.text
    landed = await fan.get(handed.json()["location"])
    assert (landed.status_code, landed.headers["location"]) == (303, page)
    return await fan.get(page)


async def test_a_fan_waits_shops_and_the_shop_gives_the_slot_back(suite: RunningSuite, tmp_path: Path) -> None:
    event_id = await suite.open_event(room={"max_active": 1, "gate": {"waiting_room": suite.url}})
    async with guarded_shop(tmp_path, suite.port, event_id) as shop, suite.operator() as operator:
        room = f"/admin/events/{event_id}/room"
        rules = {"gate": {"waiting_room": suite.url, "return_to": [shop]}, "reason": "the shop moved in"}
        patched = await operator.patch(room, json=rules)
        assert patched.json()["gate"]["return_to"] == [shop], patched.text

        async with browser() as ann, browser() as ben, suite.browser() as anybody:

            async def heard() -> bool:
                return "return_to" in (await ben.get(f"{shop}/")).headers["location"]

            await wait_until(heard)
            page = await to_the_shop(suite, ann, event_id, f"{shop}/tickets?row=1")
            assert page.text.startswith("the shop: GET /tickets?row=1 for [")
            next_up = await Fan(anybody, event_id).join()
            assert next_up["status"] == "waiting", "one slot, and Ann has it"
            text = ann.cookies.get(f"onsale_pass_{event_id}", domain="127.0.0.2") or ""
            released = await anybody.post(f"/gate/release?event={event_id}", headers=bearer(text))
            assert released.json() == {"status": "completed"}
            assert (await ann.get(f"{shop}/tickets?row=1")).status_code == 303
            assert (await ann.get(f"{shop}/api", headers=SCRIPT)).status_code == 401

            async def ready() -> bool:
                status = await anybody.get(f"/events/{event_id}/queue/status", headers=bearer(next_up["queue_token"]))
                return bool(status.json()["status"] == "ready")

            await wait_until(ready, timeout_s=10, interval_s=0.1)
    assert await suite.audit(event_id) == []


async def test_a_share_of_fans_goes_through_the_room_and_it_changes_live(suite: RunningSuite) -> None:
    event_id = await suite.open_event(room={"rate_per_s": 0, "rollout_percent": 0})
    async with suite.browser() as anybody, suite.operator() as operator:
        fan = Fan(anybody, event_id)
        assert (await fan.join())["status"] == "ready"
        assert (await fan.status())["status"] == "ready"
        await fan.claim()
        room = f"/admin/events/{event_id}/room"
        patched = await operator.patch(room, json={"rollout_percent": 100, "reason": "all of them"})
        assert patched.json()["rollout_percent"] == 100
        waiting = Fan(anybody, event_id)
        assert (await waiting.join())["status"] == "waiting"
        with_pass = {"cookie": f"onsale_pass_{event_id}={fan.admission}", **bearer(fan.token)}
        status = await anybody.get(f"/events/{event_id}/queue/status", headers=with_pass)
        assert status.json()["status"] == "admitted", "whoever came in stays in"
        await operator.patch(room, json={"rollout_percent": 0, "reason": "taken back"})

        async def ready() -> bool:
            return bool((await waiting.status())["status"] == "ready")

        await wait_until(ready, timeout_s=10, interval_s=0.1)
    assert await suite.audit(event_id) == []
