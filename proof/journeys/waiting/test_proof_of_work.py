"""Proof of work in a running suite: an operator switches it on and off, and fans in the line are not affected."""

import altcha

from tests.support.running.suite import RunningSuite, bearer, fan_of, problem
from tests.support.wait import wait_until

ON = {"proof_of_work": "on", "least_hashes": 2_000, "most_hashes": 2_000}


async def test_an_operator_switches_proof_of_work_on_and_off_in_an_open_room(suite: RunningSuite) -> None:
    event_id = await suite.open_event(room={"rate_per_s": 0})
    path, room = f"/events/{event_id}/queue", f"/admin/events/{event_id}/room"
    async with suite.browser() as browser, suite.operator() as operator:
        early = fan_of(browser, event_id)
        await early.join()
        changed = await operator.patch(room, json={"friction": ON, "reason": "bots"})
        assert changed.json()["friction"]["proof_of_work"] == "on"

        async def challenge_is_required() -> bool:
            return (await browser.get(f"{path}/challenge")).status_code == 200

        await wait_until(challenge_is_required)
        refused = await browser.post(path)
        assert problem(refused) == (428, "proof-of-work-needed")
        assert (await browser.post(path, headers=bearer(early.queue_token))).json()["join_seq"] == early.join_seq
        challenge = altcha.Challenge.from_dict(refused.json()["challenge"])
        solution = altcha.solve_challenge(challenge)
        assert solution is not None
        proof = altcha.Payload(challenge, solution).to_base64()
        proven = [await browser.post(path, headers={"onsale-proof-of-work": proof}) for _ in range(2)]
        assert [(answer.status_code, answer.json()["join_seq"]) for answer in proven] == [(201, 2), (200, 2)]
        assert "holder" not in (await browser.get(path)).text
        for wrong in ({"proof_of_work": "maybe"}, {"most_hashes": 10**9}, {"bots": True}, None):
            assert (await operator.patch(room, json={"friction": wrong})).status_code == 422
        await operator.patch(room, json={"friction": {"proof_of_work": "off"}, "reason": "over"})

        async def no_challenge_is_required() -> bool:
            return (await browser.get(f"{path}/challenge")).status_code == 204

        await wait_until(no_challenge_is_required)
        assert (await browser.post(path)).status_code == 201
    assert await suite.wrong(event_id) == []
