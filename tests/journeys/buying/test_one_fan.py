"""Journeys of a fan from joining the line to a confirmed order, over HTTP and all five services."""

import asyncio
import uuid

import httpx
import orjson

from tests.support.running.suite import Fan, RunningSuite, bearer, problem
from tests.support.wait import wait_until


async def test_a_fan_joins_waits_claims_chooses_pays_and_keeps_the_order(suite: RunningSuite) -> None:
    event_id = await suite.open_event()
    async with suite.browser() as browser:
        fan = Fan(browser, event_id)
        place = await fan.join()
        assert (place["join_seq"], place["lane"], place["epoch"]) == (1, 0, 1)
        await fan.wait_for_the_call()
        await fan.claim()

        seats = (
            await browser.get(f"{fan.path}/sections/A/seats?page=2&page_size=15", headers=bearer(fan.admission))
        ).json()
        assert (seats["total_seats"], seats["page"], len(seats["seats"])) == (40, 2, 15)
        assert seats["seats"][0] == {
            "seat_id": "A-2-6",
            "row": "2",
            "number": 6,
            "label": "6",
            "status": "available",
            "price_minor": 5250,
        } | {"row": seats["seats"][0]["row"]}

        reservation = await fan.hold(seats=["A-2-6", "A-2-7"], ga=[{"section_id": "GA1", "quantity": 2}])
        assert reservation["status"] == "pending_payment"
        assert reservation["total_amount_minor_units"] == 2 * 5250 + 2 * 3100
        assert (sorted(reservation["seats"]), reservation["ga_quantity"]) == (["A-2-6", "A-2-7"], 2)

        answer = await fan.order(reservation)
        assert (answer.status_code, answer.headers["location"]) == (202, f"/orders/{answer.json()['reference']}")
        order = await fan.wait_for_end(answer.json())
        assert order["status"] == "confirmed"

        async def counts_are_updated() -> bool:
            sections = (await browser.get(f"{fan.path}/sections")).json()["sections"]
            counts = {section["section_id"]: section["available_seats"] for section in sections}
            return counts == {"A": 38, "GA1": 48}

        await wait_until(counts_are_updated)

        async def session_is_completed() -> bool:
            return (await fan.status())["status"] == "completed"

        await wait_until(session_is_completed)
    await wait_until(lambda: suite.is_clean(event_id))


async def test_repeated_joins_holds_and_orders_have_the_effect_of_one(suite: RunningSuite) -> None:
    """The same join, hold and order, each sent several times at the same moment."""
    event_id = await suite.open_event()
    key = {"idempotency-key": str(uuid.uuid4())}
    async with suite.browser() as browser:
        joins = await asyncio.gather(*(browser.post(f"/events/{event_id}/queue", headers=key) for _ in range(20)))
        assert {answer.json()["join_seq"] for answer in joins} == {1}
        fan = Fan(browser, event_id)
        fan.token = joins[0].json()["queue_token"]
        again = await browser.post(f"/events/{event_id}/queue", headers=bearer(fan.token))
        assert (again.status_code, again.json()["join_seq"]) == (200, 1)
        await fan.wait_for_the_call()
        assert await fan.claim() == await fan.claim()
        hold = {**bearer(fan.admission), "idempotency-key": str(uuid.uuid4())}
        path = f"/events/{event_id}/reservations"
        holds = await asyncio.gather(*(browser.post(path, json={"seats": ["A-1-1"]}, headers=hold) for _ in range(10)))
        assert len({answer.json()["reservation_id"] for answer in holds}) == 1
        other = await browser.post(path, json={"seats": ["A-1-2"]}, headers=hold)
        assert problem(other) == (422, "idempotency-key-reused")
        reservation = holds[0].json()
        customer = {"name": "A fan", "email": "same@example.org"}
        orders = await asyncio.gather(*(fan.order(reservation, customer=customer) for _ in range(10)))
        accepted = [answer for answer in orders if answer.status_code == 202]
        assert all(answer.status_code in {202, 409} for answer in orders)
        assert len({answer.json()["reference"] for answer in accepted}) == 1
        assert (await fan.wait_for_end(accepted[0].json()))["status"] == "confirmed"
        reference = accepted[0].json()["reference"]
    async with httpx.AsyncClient() as provider:
        charges = await provider.get(f"{suite.engines['sandbox_url']}/charges", params={"reference": reference})
    assert len(charges.json()["charges"]) == 1
    assert await suite.audit(event_id) == []


async def test_a_fan_buys_with_cookies_only(suite: RunningSuite) -> None:
    """As a browser does: HttpOnly cookies, and an Origin on every write."""
    event_id = await suite.open_event()
    headers = {"origin": suite.url}
    async with httpx.AsyncClient(base_url=suite.url, headers=headers, timeout=20) as browser:
        fan = Fan(browser, event_id)
        await browser.post(f"{fan.path}/queue")
        again = await browser.post(f"{fan.path}/queue")
        assert again.status_code == 200

        async def called() -> bool:
            return (await browser.get(f"{fan.path}/queue/status")).json()["status"] == "ready"

        await wait_until(called)
        checkout_key = (await browser.post(f"{fan.path}/queue/pass")).json()["checkout_key"]
        held = await browser.post(f"{fan.path}/reservations", json={"ga_section": "GA1", "ga_quantity": 1})
        assert held.status_code == 201, held.text
        body = {
            "reservation_id": held.json()["reservation_id"], "expected_total_minor": 3100, "currency": "EUR",
            "customer": {"name": "A fan", "email": "cookie@example.org"},
            "payment": {"provider": "sandbox", "method": "ok"},
        }  # fmt: skip
        key = {"idempotency-key": f"{checkout_key}.{held.json()['reservation_id']}"}
        order = await browser.post("/orders", json=body, headers=key)
        assert order.status_code == 202, order.text

        async def confirmed() -> bool:
            return (await browser.get(f"/orders/{order.json()['reference']}")).json()["status"] == "confirmed"

        await wait_until(confirmed, timeout_s=15)
        foreign = await browser.post(
            f"{fan.path}/reservations", json={"seats": ["A-1-1"]}, headers={"origin": "https://evil.test"}
        )
        assert problem(foreign) == (403, "foreign-origin")


async def test_fans_are_called_in_the_order_they_joined_and_an_operator_pauses_and_resumes_the_room(
    suite: RunningSuite,
) -> None:
    event_id = await suite.open_event(room={"rate_per_s": 0, "burst": 1})
    async with suite.browser() as browser, suite.operator() as operator:
        fans = [Fan(browser, event_id) for _ in range(5)]
        for fan in fans:
            await fan.join()
        assert [fan.join_seq for fan in fans] == [1, 2, 3, 4, 5]
        assert (await fans[4].status())["position_in_queue"] == 5
        assert problem(await browser.post(f"{fans[4].path}/queue/pass", headers=bearer(fans[4].token))) == (
            409,
            "not-admitted",
        )
        room = f"/admin/events/{event_id}/room"
        changed = await operator.patch(room, json={"rate_per_s": 20, "reason": "go"})
        assert changed.is_success, changed.text
        await fans[0].wait_for_the_call(within_s=3)
        await fans[4].wait_for_the_call(within_s=5)
        paused = await operator.post(f"{room}/pause", json={"reason": "stop"})
        assert paused.is_success
        late = Fan(browser, event_id)
        await late.join()
        line = (await browser.get(f"{late.path}/queue")).json()
        assert line["state"] == "paused"
        assert (await late.status())["status"] == "waiting"
        await operator.post(f"{room}/resume", json={"reason": "go on"})
        await late.wait_for_the_call(within_s=5)


async def test_the_seats_of_an_unpaid_hold_are_released(suite: RunningSuite) -> None:
    event_id = await suite.open_event(sales={"hold_ttl_s": 5, "grace_s": 0})
    async with suite.browser() as browser:
        first = await Fan(browser, event_id).come_in()
        held = await first.hold(seats=["A-1-1"])
        second = await Fan(browser, event_id).come_in()
        taken = await second.reserve(seats=["A-1-1", "A-1-2"])
        assert problem(taken) == (409, "seats-taken")
        assert taken.json()["seats"] == ["A-1-1"]

        async def seats_are_free() -> bool:
            return (await second.reserve(seats=["A-1-1", "A-1-2"])).status_code == 201

        await wait_until(seats_are_free, timeout_s=12, interval_s=0.25)
        late = await first.order(held)
        assert problem(late) == (410, "hold-expired")
    assert await suite.audit(event_id) == []


async def test_a_stream_shows_changes_of_sections_and_line(suite: RunningSuite) -> None:
    event_id = await suite.open_event()
    async with suite.browser() as browser:
        listener = await Fan(browser, event_id).come_in()
        received: list[dict] = []

        async def read_stream() -> None:
            url = f"{listener.path}/sections/updates"
            async with browser.stream("GET", url, headers=bearer(listener.token), timeout=30) as stream:
                assert stream.headers["content-type"].startswith("text/event-stream")
                kind = ""
                async for line in stream.aiter_lines():
                    if line.startswith("event:"):
                        kind = line[6:].strip()
                    elif line.startswith("data:"):
                        received.append({"kind": kind, **orjson.loads(line[5:])})

        task = asyncio.create_task(read_stream())
        await wait_until(lambda: {"line", "sections"} <= {frame["kind"] for frame in received})
        buyer = await Fan(browser, event_id).come_in()
        await buyer.hold(ga=[{"section_id": "GA1", "quantity": 3}])

        def ga_available() -> list[int]:
            frames = [frame for frame in received if frame["kind"] == "sections"]
            return [
                section["available_seats"]
                for frame in frames
                for section in frame["sections"]
                if section["section_id"] == "GA1"
            ]

        await wait_until(lambda: 47 in ga_available(), timeout_s=5)
        await wait_until(
            lambda: any(frame["kind"] == "line" and frame["head_seq"] == 2 for frame in received), timeout_s=7
        )
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def test_a_fan_pays_with_another_card_after_a_decline(suite: RunningSuite) -> None:
    event_id = await suite.open_event()
    async with suite.browser() as browser:
        fan = await Fan(browser, event_id).come_in()
        answer = await fan.order(await fan.hold(seats=["A-3-3"]), method="decline")
        order, owner = answer.json(), bearer(answer.json()["order_token"])

        async def declined() -> bool:
            now = (await browser.get(f"/orders/{order['reference']}", headers=owner)).json()
            return now["status"] == "pending" and (now["attempt"] or {}).get("status") == "failed"

        await wait_until(declined, timeout_s=10)
        again = await browser.post(
            f"/orders/{order['reference']}/payments",
            json={"payment": {"provider": "sandbox", "method": "ok"}},
            headers={**owner, "idempotency-key": str(uuid.uuid4())},
        )
        assert again.status_code == 202, again.text
        assert (await fan.wait_for_end(order))["status"] == "confirmed"
    assert await suite.audit(event_id) == []
