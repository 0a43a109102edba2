"""Forged, foreign and missing credentials are refused, and what they were tried on can still be bought."""

from onsale.client.fan_documents import ReserveBody
from shared.security.tokens import QueueToken, QueueTokens, development_keys
from tests.support.running.fans import fan_of, refusal
from tests.support.running.suite import RunningSuite, bearer, problem


async def test_forged_foreign_and_missing_credentials_are_refused(suite: RunningSuite) -> None:
    event_id, other_event_id = await suite.open_event(), await suite.open_event()
    forged = QueueTokens(development_keys("queue-token")).sign(QueueToken(event_id, 1, 0, 1, "me", 0))
    async with suite.browser() as browser:
        fan, stranger = await fan_of(browser, event_id).come_in(), await fan_of(browser, other_event_id).come_in()
        status = f"/events/{event_id}/queue/status"
        selection: ReserveBody = {"seats": ["A-1-1"]}
        path = f"/events/{event_id}/reservations"
        assert problem(await browser.get(status)) == (401, "no-credential")
        assert problem(await browser.get(status, headers=bearer(forged))) == (401, "bad-credential")
        assert problem(await browser.get(status, headers=bearer(stranger.queue_token))) == (403, "wrong-event")
        assert problem(await browser.post(path, json=selection)) == (401, "no-credential")
        assert problem(await browser.post(path, json=selection, headers=bearer("a.b.c"))) == (401, "bad-credential")
        assert problem(await browser.post(path, json=selection, headers=bearer(stranger.admission))) == (
            403,
            "wrong-event",
        )
        hold = await fan.hold(selection)
        fans_hold = f"{path}/{hold['reservation_id']}"
        thief = await fan_of(browser, event_id).come_in()
        assert problem(await browser.get(fans_hold, headers=bearer(thief.admission))) == (404, "unknown-reservation")
        assert problem(await browser.delete(fans_hold, headers=bearer(thief.admission))) == (404, "unknown-reservation")
        assert await refusal(thief.order(hold)) == (404, "unknown-reservation")
        order = await fan.order(hold)
        order_answer = await browser.get(f"/orders/{order['reference']}", headers=bearer(thief.admission))
        assert order_answer.status_code in {401, 403, 404}
        assert (await fan.settled(order))["status"] == "confirmed"
