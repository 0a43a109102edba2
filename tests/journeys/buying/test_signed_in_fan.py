"""A signed-in fan buys over all five services with a user JWT instead of queue token and pass."""

import uuid

import httpx

from tests.support.providers.identity_provider import jwt_by_secret
from tests.support.running.suite import RunningSuite, bearer, problem
from tests.support.wait import wait_until


async def test_a_signed_in_fan_buys_with_the_user_jwt_only(suite: RunningSuite) -> None:
    event_id = await suite.open_event(room={"entry": {"signed_in_only": True}})
    jwt, path = bearer(jwt_by_secret("ada")), f"/events/{event_id}"
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
        answer = await phone.get(f"{path}/reservations/{reservation['reservation_id']}", headers=jwt)
        assert answer.json()["seats"] == ["A-1-1"]

        order = await place_order(browser, jwt, reservation, held.headers["onsale-checkout-key"])

        async def confirmed() -> bool:
            answer = await phone.get(f"/orders/{order['reference']}", headers=jwt)
            return answer.json()["status"] == "confirmed"

        await wait_until(confirmed)
        listed = (await phone.get("/orders", headers=jwt)).json()["orders"]
        assert order["reference"] in [listed_order["reference"] for listed_order in listed]

        async def completed() -> bool:
            return (await phone.get(f"{path}/queue/status", headers=jwt)).json()["status"] == "completed"

        await wait_until(completed, timeout_s=15)
        again = await phone.post(f"{path}/queue", headers=jwt)
        assert (again.status_code, again.json()["join_seq"]) == (201, 2)
    assert await suite.wrong(event_id) == []


async def place_order(browser: httpx.AsyncClient, jwt: dict[str, str], reservation: dict, checkout_key: str) -> dict:
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
