"""A signed-in fan, over HTTP and all five services, with nothing in hand but a JWT."""

import asyncio
import uuid

import httpx

from tests.support.providers.identity_provider import by_secret
from tests.support.running.suite import Fan, RunningSuite, bearer, problem
from tests.support.wait import wait_until


async def test_a_signed_in_fan_buys_with_nothing_but_the_jwt(suite: RunningSuite) -> None:
    event_id = await suite.open_event(room={"entry": {"signed_in_only": True}})
    jwt, path = bearer(by_secret("ada")), f"/events/{event_id}"
    async with suite.browser() as browser, suite.browser() as phone:
        assert problem(await browser.post(f"{path}/queue")) == (401, "sign-in-needed")
        joined = await browser.post(f"{path}/queue", headers=jwt)
        assert (joined.status_code, joined.json()["queue_token"]) == (201, None)
        assert (await phone.post(f"{path}/queue", headers=jwt)).json()["join_seq"] == joined.json()["join_seq"]

        async def called() -> bool:
            return (await phone.get(f"{path}/queue/status", headers=jwt)).json()["status"] == "ready"

        await wait_until(called)
        seats = await browser.get(f"{path}/sections/A/seats", headers=jwt)
        assert seats.status_code == 200
        held = await browser.post(f"{path}/reservations", json={"seats": ["A-1-1"]}, headers=jwt)
        assert (held.status_code, held.headers["onsale-pass"]) == (201, seats.headers["onsale-pass"])
        reservation = held.json()
        seen = await phone.get(f"{path}/reservations/{reservation['reservation_id']}", headers=jwt)
        assert seen.json()["seats"] == ["A-1-1"]

        order = await _order(browser, jwt, reservation, held.headers["onsale-checkout-key"])

        async def confirmed() -> bool:
            answer = await phone.get(f"/orders/{order['reference']}", headers=jwt)
            return answer.json()["status"] == "confirmed"

        await wait_until(confirmed)
        listed = (await phone.get("/orders", headers=jwt)).json()["orders"]
        assert order["reference"] in [one["reference"] for one in listed]

        async def completed() -> bool:
            return (await phone.get(f"{path}/queue/status", headers=jwt)).json()["status"] == "completed"

        await wait_until(completed, timeout_s=15)
        again = await phone.post(f"{path}/queue", headers=jwt)
        assert (again.status_code, again.json()["join_seq"]) == (201, 2)
    assert await suite.audit(event_id) == []


async def _order(browser: httpx.AsyncClient, jwt: dict[str, str], reservation: dict, checkout_key: str) -> dict:
    body = {
        "reservation_id": reservation["reservation_id"], "currency": reservation["currency"],
        "expected_total_minor": reservation["total_amount_minor_units"],
        "customer": {"name": "Ada", "email": f"{uuid.uuid4().hex}@example.org"},
        "payment": {"provider": "sandbox", "method": "ok"},
    }  # fmt: skip
    key = {"idempotency-key": f"{checkout_key}.{reservation['reservation_id']}"}
    answer = await browser.post("/orders", json=body, headers={**jwt, **key})
    assert answer.status_code == 202, answer.text
    return dict(answer.json())


async def test_a_user_who_joins_from_everywhere_at_once_has_one_place(suite: RunningSuite) -> None:
    event_id = await suite.open_event(room={"rate_per_s": 0, "burst": 1})
    async with suite.browser() as browser:
        jwts = [bearer(by_secret("ada", device=device)) for device in range(20)]
        answers = await asyncio.gather(*(browser.post(f"/events/{event_id}/queue", headers=jwt) for jwt in jwts))
        assert len({answer.json()["join_seq"] for answer in answers}) == 1
        line = (await browser.get(f"/events/{event_id}/queue")).json()
        assert line["tail_seq"] <= 1
    assert await suite.audit(event_id) == []


async def test_the_call_is_claimed_once_by_twenty_requests_with_the_queue_token(suite: RunningSuite) -> None:
    event_id = await suite.open_event()
    async with suite.browser() as browser, suite.operator() as operator:
        fan = Fan(browser, event_id)
        await fan.join()
        await fan.wait_for_the_call()
        seats = f"{fan.path}/sections/A/seats"
        answers = await asyncio.gather(*(browser.get(seats, headers=bearer(fan.token)) for _ in range(20)))
        assert {answer.status_code for answer in answers} == {200}
        assert {answer.headers["onsale-pass"] for answer in answers} == {await fan.claim()}
        assert {answer.headers["onsale-checkout-key"] for answer in answers} == {fan.checkout_key}
        room = (await operator.get(f"/admin/events/{event_id}/room")).json()
        assert (room["called"], room["active"]) == (0, 1)
    assert await suite.audit(event_id) == []


async def test_a_waiting_fan_is_refused_and_nobody_gets_in_by_another_lines_token(suite: RunningSuite) -> None:
    first, second = await suite.open_event(room={"max_active": 0}), await suite.open_event()
    async with suite.browser() as browser, suite.operator() as operator:
        waiting, other = Fan(browser, first), Fan(browser, second)
        await waiting.join()
        await other.join()
        seats = f"{waiting.path}/sections/A/seats"
        refused = await browser.get(seats, headers=bearer(waiting.token))
        assert problem(refused) == (403, "not-admitted")
        assert int(refused.headers["retry-after"]) >= 1
        assert problem(await browser.get(seats, headers=bearer(other.token))) == (403, "wrong-event")
        await operator.post(f"/admin/events/{first}/room/reset", json={"reason": "test"})

        async def stale() -> bool:
            return problem(await browser.get(seats, headers=bearer(waiting.token))) == (410, "stale-epoch")

        await wait_until(stale)


async def test_a_room_is_told_live_to_take_signed_in_fans_only(suite: RunningSuite) -> None:
    event_id = await suite.open_event()
    async with suite.browser() as browser, suite.operator() as operator:
        early = Fan(browser, event_id)
        await early.join()
        told = {"entry": {"signed_in_only": True}, "reason": "bots"}
        room = await operator.patch(f"/admin/events/{event_id}/room", json=told)
        assert room.json()["entry"] == {"signed_in_only": True}
        assert problem(await browser.post(f"/events/{event_id}/queue")) == (401, "sign-in-needed")
        back = await browser.post(f"/events/{event_id}/queue", headers=bearer(early.token))
        assert (back.status_code, back.json()["join_seq"]) == (200, 1)
        assert (await browser.post(f"/events/{event_id}/queue", headers=bearer(by_secret()))).status_code == 201
        public = (await browser.get(f"/events/{event_id}/queue")).json()
        assert "entry" not in public
