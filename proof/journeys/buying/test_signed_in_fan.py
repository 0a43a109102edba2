"""Signed-in fans: one place on many devices, calls claimed once, a room that is restricted while it is open."""

import asyncio

from tests.support.providers.identity_provider import jwt_by_secret
from tests.support.running.suite import RunningSuite, bearer, fan_of, problem
from tests.support.wait import wait_until


async def test_a_user_who_joins_on_twenty_devices_at_once_has_one_place(suite: RunningSuite) -> None:
    event_id = await suite.open_event(room={"rate_per_s": 0, "burst": 1})
    async with suite.browser() as browser:
        jwts = [bearer(jwt_by_secret("ada", device=device)) for device in range(20)]
        answers = await asyncio.gather(*(browser.post(f"/events/{event_id}/queue", headers=jwt) for jwt in jwts))
        assert len({answer.json()["join_seq"] for answer in answers}) == 1
        line = (await browser.get(f"/events/{event_id}/queue")).json()
        assert line["tail_seq"] <= 1
    assert await suite.wrong(event_id) == []


async def test_twenty_simultaneous_requests_with_the_queue_token_claim_the_call_once(suite: RunningSuite) -> None:
    event_id = await suite.open_event()
    async with suite.browser() as browser, suite.operator() as operator:
        fan = fan_of(browser, event_id)
        await fan.join()
        await fan.wait()
        seats = f"/events/{fan.event_id}/sections/A/seats"
        answers = await asyncio.gather(*(browser.get(seats, headers=bearer(fan.queue_token)) for _ in range(20)))
        assert {answer.status_code for answer in answers} == {200}
        assert {answer.headers["onsale-pass"] for answer in answers} == {(await fan.claim())["pass"]}
        assert {answer.headers["onsale-checkout-key"] for answer in answers} == {fan.checkout_key}
        room = (await operator.get(f"/admin/events/{event_id}/room")).json()
        assert (room["called"], room["active"]) == (0, 1)
    assert await suite.wrong(event_id) == []


async def test_a_waiting_fans_token_and_a_token_of_another_event_or_epoch_are_refused(suite: RunningSuite) -> None:
    first, second = await suite.open_event(room={"max_active": 0}), await suite.open_event()
    async with suite.browser() as browser, suite.operator() as operator:
        waiting, other = fan_of(browser, first), fan_of(browser, second)
        await waiting.join()
        await other.join()
        seats = f"/events/{waiting.event_id}/sections/A/seats"
        refused = await browser.get(seats, headers=bearer(waiting.queue_token))
        assert problem(refused) == (403, "not-admitted")
        assert int(refused.headers["retry-after"]) >= 1
        assert problem(await browser.get(seats, headers=bearer(other.queue_token))) == (403, "wrong-event")
        await operator.post(f"/admin/events/{first}/room/reset", json={"reason": "test"})

        async def token_is_stale() -> bool:
            return problem(await browser.get(seats, headers=bearer(waiting.queue_token))) == (410, "stale-epoch")

        await wait_until(token_is_stale)


async def test_an_operator_restricts_an_open_room_to_signed_in_fans(suite: RunningSuite) -> None:
    event_id = await suite.open_event()
    async with suite.browser() as browser, suite.operator() as operator:
        early = fan_of(browser, event_id)
        await early.join()
        changes = {"entry": {"signed_in_only": True}, "reason": "bots"}
        room = await operator.patch(f"/admin/events/{event_id}/room", json=changes)
        assert room.json()["entry"] == {"signed_in_only": True}
        assert problem(await browser.post(f"/events/{event_id}/queue")) == (401, "sign-in-needed")
        back = await browser.post(f"/events/{event_id}/queue", headers=bearer(early.queue_token))
        assert (back.status_code, back.json()["join_seq"]) == (200, 1)
        assert (await browser.post(f"/events/{event_id}/queue", headers=bearer(jwt_by_secret()))).status_code == 201
        public = (await browser.get(f"/events/{event_id}/queue")).json()
        assert "entry" not in public
