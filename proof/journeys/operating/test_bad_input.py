"""Invalid requests of fans and operators are answered with the fitting problem document and change nothing."""

import uuid
from typing import Any

from tests.support.running.fans import fan_of, refusal
from tests.support.running.suite import RunningSuite, bearer, problem


async def test_an_unknown_event_is_not_found(suite: RunningSuite) -> None:
    async with suite.browser() as browser:
        for method, path in (("POST", "/queue"), ("GET", "/queue"), ("GET", ""), ("GET", "/sections")):
            answer = await browser.request(method, f"/events/nowhere{path}")
            assert problem(answer) == (404, "unknown-event"), (method, path)


async def test_a_closed_room_refuses_joins(suite: RunningSuite) -> None:
    event_id = await suite.open_event()
    async with suite.browser() as browser, suite.operator() as operator:
        fan = fan_of(browser, event_id)
        await fan.join()
        closed = await operator.post(f"/admin/events/{event_id}/room/close", json={"reason": "over"})
        assert closed.is_success
        assert problem(await browser.post(f"/events/{event_id}/queue")) == (410, "room-closed")


async def test_holds_over_the_ticket_limits_are_refused(suite: RunningSuite) -> None:
    event_id = await suite.open_event(sales={"tickets_per_order": 3, "tickets_per_customer": 4})
    async with suite.browser() as browser:
        fan = await fan_of(browser, event_id).come_in()
        assert await refusal(fan.hold({"ga": [{"section_id": "GA1", "quantity": 4}]})) == (409, "limit-exceeded")
        held = await fan.hold({"ga": [{"section_id": "GA1", "quantity": 3}]})
        assert await refusal(fan.hold({"seats": ["A-1-1", "A-1-2"]})) == (409, "limit-exceeded")
        await fan.buy(held)
    assert await suite.wrong(event_id) == []


async def test_an_invalid_selection_is_refused_and_holds_nothing(suite: RunningSuite) -> None:
    invalid: list[Any] = [
        [], {}, {"seats": []}, {"seats": "A-1-1"}, {"seats": ["A-1-1"], "extra": 1}, {"seats": ["A-1-1", "A-1-1"]},
        {"seats": ["A-1-1\x00"]}, {"seats": ["Z-99-99"]}, {"ga": [{"section_id": "GA1", "quantity": 0}]},
        {"ga": [{"section_id": "GA1", "quantity": 10**30}]}, {"ga": [{"section_id": "A", "quantity": 1}]},
    ]  # fmt: skip
    event_id = await suite.open_event()
    async with suite.browser() as browser:
        fan = await fan_of(browser, event_id).come_in()
        for body in invalid:
            answer = await browser.post(
                f"/events/{fan.event_id}/reservations", json=body, headers=bearer(fan.admission)
            )
            assert problem(answer)[0] in {404, 422}, body
        sections = (await browser.get(f"/events/{fan.event_id}/sections")).json()["sections"]
    assert all(section["held_seats"] == 0 for section in sections)


async def test_invalid_orders_are_refused_and_the_hold_can_still_be_bought(suite: RunningSuite) -> None:
    event_id = await suite.open_event()
    async with suite.browser() as browser:
        fan = await fan_of(browser, event_id).come_in()
        hold = await fan.hold({"seats": ["A-1-1"]})
        payment = {"provider": "sandbox", "method": "ok"}
        body = {"reservation_id": hold["reservation_id"], "expected_total_minor": 5250, "currency": "EUR",
                "customer": {"name": "x", "email": "x@example.org"}, "payment": payment}  # fmt: skip

        async def refused(**changes: Any) -> tuple[int, str]:
            key = {"idempotency-key": str(uuid.uuid4())}
            return problem(await browser.post("/orders", json=body | changes, headers=bearer(fan.admission) | key))

        assert await refused(expected_total_minor=1) == (409, "price-changed")
        assert (await refused(payment={**payment, "token": "4242424242424242"}))[0] == 422
        assert (await refused(payment={"provider": "nobody", "method": "ok"}))[0] == 422
        assert (await refused(customer={"name": "x", "email": "no"}))[0] == 422
        assert (await refused(surprise=1))[0] == 422
        assert (await refused(reservation_id=uuid.uuid4().hex))[0] in {404, 422}
        answer = await browser.post("/orders", json=body, headers=bearer(fan.admission))
        assert problem(answer) == (400, "idempotency-key-missing")
        assert (await fan.buy(hold))["status"] == "confirmed"
    assert await suite.wrong(event_id) == []


async def test_malformed_and_oversized_bodies_are_refused(suite: RunningSuite) -> None:
    event_id = await suite.open_event()
    async with suite.browser() as browser:
        fan = await fan_of(browser, event_id).come_in()
        for path in (f"/events/{fan.event_id}/reservations", "/orders"):
            headers = {
                **bearer(fan.admission),
                "idempotency-key": str(uuid.uuid4()),
                "content-type": "application/json",
            }
            assert problem(await browser.post(path, content=b"{", headers=headers)) == (400, "malformed-request")
            large = b'{"a": "' + b"x" * 300_000 + b'"}'
            answer = await browser.post(path, content=large, headers=headers)
            assert problem(answer) == (413, "body-too-large"), f"{path} {answer.text}"


async def test_internal_paths_are_not_found_and_admin_paths_need_a_key(suite: RunningSuite) -> None:
    event_id = await suite.open_event()
    async with suite.browser() as browser:
        for path in ("/internal/joins", "/internal/reservations/confirm", "/gateway/internal/joins"):
            assert (await browser.post(path, json={})).status_code == 404
        room = f"/admin/events/{event_id}/room"
        assert problem(await browser.get(room)) == (401, "no-credential")
        assert problem(await browser.get(room, headers=bearer("x" * 40))) == (401, "bad-credential")


async def test_invalid_operator_requests_change_nothing(suite: RunningSuite) -> None:
    event_id = await suite.open_event()
    path = f"/admin/events/{event_id}/room"
    async with suite.operator() as operator:
        before = (await operator.get(path)).json()
        for values in ({"rate_per_s": -1}, {"rate_per_s": "fast"}, {"speed": 3}, {"max_active": 10**12}, {}):
            assert problem(await operator.patch(path, json={**values, "reason": "oops"}))[0] == 422
        stale = await operator.patch(path, json={"rate_per_s": 1, "reason": "x"}, headers={"if-match": '"0"'})
        assert problem(stale)[0] == 412
        after = (await operator.get(path)).json()
        assert after["rate_per_s"] == before["rate_per_s"]
        assert problem(await operator.put(f"/admin/inventory/events/{event_id}", json={"event_id": event_id}))[0] == 422
