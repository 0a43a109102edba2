"""Journeys of a fan from joining the line to a confirmed order, over HTTP and all five services.

A real purchase, recorded: the checker of histories finds nothing, and misses nothing.

An operator refunds one ticket, whose seat is sold again, and then all orders of a cancelled event.

A bought ticket is verified with the published keys alone, as a scanner does.

Every event and every Redis key that a sale writes stands in the reference pages.
"""

import asyncio
import json
import re
import uuid
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from pathlib import Path

import asyncpg
import httpx
import orjson
import pytest
from redis.asyncio import Redis

from onsale.client import Paying, Problem
from onsale.client.fan_documents import Payment
from tests.support.running.program import command_line
from tests.support.running.suite import RunningSuite, bearer, card, fan_of, problem, refusal
from tests.support.wait import wait_until
from tools.reference import events, redis_keys


async def test_a_fan_joins_waits_claims_chooses_pays_and_keeps_the_order(suite: RunningSuite) -> None:
    event_id = await suite.open_event()
    async with suite.browser() as browser:
        fan = fan_of(browser, event_id)
        place = await fan.join()
        assert (place["join_seq"], place["lane"], place["epoch"]) == (1, 0, 1)
        await fan.wait()
        await fan.claim()

        seats = (
            await browser.get(
                f"/events/{fan.event_id}/sections/A/seats?page=2&page_size=15", headers=bearer(fan.admission)
            )
        ).json()
        assert (seats["total_seats"], seats["page"], len(seats["seats"])) == (40, 2, 15)
        assert seats["seats"][0] == {
            "seat_id": "A-2-6",
            "row": "2",
            "number": 6,
            "label": "6",
            "status": "available",
            "price_minor": 5250,
            "prices": {},
            "traits": [],
        } | {"row": seats["seats"][0]["row"]}

        reservation = await fan.hold({"seats": ["A-2-6", "A-2-7"], "ga": [{"section_id": "GA1", "quantity": 2}]})
        assert reservation["status"] == "pending_payment"
        assert reservation["total_amount_minor_units"] == 2 * 5250 + 2 * 3100
        assert (sorted(reservation["seats"]), reservation["ga_quantity"]) == (["A-2-6", "A-2-7"], 2)

        assert (await fan.buy(reservation))["status"] == "confirmed"

        async def counts_are_updated() -> bool:
            sections = (await browser.get(f"/events/{fan.event_id}/sections")).json()["sections"]
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
        fan = fan_of(browser, event_id)
        fan.queue_token = joins[0].json()["queue_token"]
        again = await browser.post(f"/events/{event_id}/queue", headers=bearer(fan.queue_token))
        assert (again.status_code, again.json()["join_seq"]) == (200, 1)
        await fan.wait()
        assert await fan.claim() == await fan.claim()
        hold = {**bearer(fan.admission), "idempotency-key": str(uuid.uuid4())}
        path = f"/events/{event_id}/reservations"
        holds = await asyncio.gather(*(browser.post(path, json={"seats": ["A-1-1"]}, headers=hold) for _ in range(10)))
        assert len({answer.json()["reservation_id"] for answer in holds}) == 1
        other = await browser.post(path, json={"seats": ["A-1-2"]}, headers=hold)
        assert problem(other) == (422, "idempotency-key-reused")
        reservation = holds[0].json()
        orders = await asyncio.gather(*(fan.order(reservation) for _ in range(10)), return_exceptions=True)
        accepted = [answer for answer in orders if not isinstance(answer, BaseException)]
        refused = [answer for answer in orders if isinstance(answer, BaseException)]
        assert all(isinstance(problem, Problem) and problem.status == 409 for problem in refused), refused
        [reference] = {answer["reference"] for answer in accepted}
        assert (await fan.settled(accepted[0]))["status"] == "confirmed"
    async with httpx.AsyncClient() as provider:
        charges = await provider.get(f"{suite.engines['sandbox_url']}/charges", params={"reference": reference})
    assert len(charges.json()["charges"]) == 1
    assert await suite.wrong(event_id) == []


async def test_a_fan_buys_with_cookies_only(suite: RunningSuite) -> None:
    """As a browser does: HttpOnly cookies, and an Origin on every write."""
    event_id = await suite.open_event()
    headers = {"origin": suite.url}
    async with httpx.AsyncClient(base_url=suite.url, headers=headers, timeout=20) as browser:
        fan = fan_of(browser, event_id)
        await browser.post(f"/events/{fan.event_id}/queue")
        again = await browser.post(f"/events/{fan.event_id}/queue")
        assert again.status_code == 200

        async def called() -> bool:
            return (await browser.get(f"/events/{fan.event_id}/queue/status")).json()["status"] == "ready"

        await wait_until(called)
        checkout_key = (await browser.post(f"/events/{fan.event_id}/queue/pass")).json()["checkout_key"]
        held = await browser.post(f"/events/{fan.event_id}/reservations", json={"ga_section": "GA1", "ga_quantity": 1})
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
            f"/events/{fan.event_id}/reservations", json={"seats": ["A-1-1"]}, headers={"origin": "https://evil.test"}
        )
        assert problem(foreign) == (403, "foreign-origin")


async def test_fans_are_called_in_the_order_they_joined_and_an_operator_pauses_and_resumes_the_room(
    suite: RunningSuite,
) -> None:
    event_id = await suite.open_event(room={"rate_per_s": 0, "burst": 1})
    async with suite.browser() as browser, suite.operator() as operator:
        fans = [fan_of(browser, event_id) for _ in range(5)]
        for fan in fans:
            await fan.join()
        assert [fan.join_seq for fan in fans] == [1, 2, 3, 4, 5]
        assert (await fans[4].status())["position_in_queue"] == 5
        assert await refusal(fans[4].claim()) == (409, "not-admitted")
        room = f"/admin/events/{event_id}/room"
        changed = await operator.patch(room, json={"rate_per_s": 20, "reason": "go"})
        assert changed.is_success, changed.text
        async with asyncio.timeout(5):
            for fan in (fans[0], fans[4]):
                assert (await fan.wait())["status"] == "ready"
        paused = await operator.post(f"{room}/pause", json={"reason": "stop"})
        assert paused.is_success
        late = fan_of(browser, event_id)
        await late.join()
        line = (await browser.get(f"/events/{late.event_id}/queue")).json()
        assert line["state"] == "paused"
        assert (await late.status())["status"] == "waiting"
        await operator.post(f"{room}/resume", json={"reason": "go on"})
        async with asyncio.timeout(5):
            assert (await late.wait())["status"] == "ready"


async def test_a_stream_shows_changes_of_sections_and_line(suite: RunningSuite) -> None:
    event_id = await suite.open_event()
    async with suite.browser() as browser:
        listener = await fan_of(browser, event_id).come_in()
        received: list[dict] = []

        async def read_stream() -> None:
            url = f"/events/{listener.event_id}/sections/updates"
            async with browser.stream("GET", url, headers=bearer(listener.queue_token), timeout=30) as stream:
                assert stream.headers["content-type"].startswith("text/event-stream")
                kind = ""
                async for line in stream.aiter_lines():
                    if line.startswith("event:"):
                        kind = line[6:].strip()
                    elif line.startswith("data:"):
                        received.append({"kind": kind, **orjson.loads(line[5:])})

        task = asyncio.create_task(read_stream())
        await wait_until(lambda: {"line", "sections"} <= {frame["kind"] for frame in received})
        buyer = await fan_of(browser, event_id).come_in()
        await buyer.hold({"ga": [{"section_id": "GA1", "quantity": 3}]})

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
        fan = await fan_of(browser, event_id).come_in()
        order = await fan.order(await fan.hold({"seats": ["A-3-3"]}), payment=card("decline"))
        payments = list[int]()

        def another_card(number: int) -> Payment:
            payments.append(number)
            return card("ok")

        assert (await fan.see_through(order, Paying(again=another_card)))["status"] == "confirmed"
        assert payments == [2]
    assert await suite.wrong(event_id) == []


async def test_a_real_purchase_with_a_refund_is_clean(suite: RunningSuite) -> None:
    event_id = await suite.open_event()
    async with suite.browser() as browser:
        fan = await fan_of(browser, event_id).come_in()
        given_back = await fan.hold({"seats": ["A-1-2"]})
        await fan.release(given_back)
        held = await fan.hold({"seats": ["A-1-1"], "ga": [{"section_id": "GA1", "quantity": 2}]})
        first = await fan.buy(await fan.keep(held, {"seats": ["A-1-1"]}))
        left = await fan_of(browser, event_id).come_in()
        await left.leave()
        refunded = await browser.post(
            f"/admin/orders/{first['reference']}/refund", json={"reason": "ill"},
            headers={**bearer(suite.admin_key), "idempotency-key": "a-refund-of-the-test"},
        )  # fmt: skip
        assert refunded.status_code == 202, refunded.text

    async def refund_is_through() -> bool:
        return not (await suite.checked(event_id)).violations

    await wait_until(refund_is_through)
    report = await suite.checked(event_id)
    assert {"joined", "called", "claimed", "held", "kept", "released", "left", "ordered", "refund_requested"} <= {
        *report.read
    }


async def test_an_operator_refunds_one_ticket_and_later_the_whole_event(
    suite: RunningSuite, operate: Callable[..., Awaitable[str]], tmp_path: Path
) -> None:
    event_id = await suite.open_event()
    async with suite.browser() as browser, suite.operator() as operator:
        fan = await fan_of(browser, event_id).come_in()
        held = await fan.hold({"seats": ["A-1-1", "A-1-2"], "ga": [{"section_id": "GA1", "quantity": 2}]})
        order = await fan.order(held)
        assert (await fan.settled(order))["status"] == "confirmed"
        reference = order["reference"]

        async def status_is(status: str) -> bool:
            answer = await browser.get(f"/orders/{reference}", headers=bearer(order["order_token"]))
            return bool(answer.json()["status"] == status)

        async def available_are(*expected: int) -> bool:
            sections = (await browser.get(f"/events/{event_id}/sections")).json()["sections"]
            return [section["available_seats"] for section in sections] == list(expected)

        await operate("order", "refund", reference, "--seat", "A-1-1", "--return-to-sale", "--reason", "one fell ill")
        await wait_until(lambda: status_is("partially_refunded"))
        await wait_until(lambda: available_are(39, 48))
        other = await fan_of(browser, event_id).come_in()
        assert (await other.buy(await other.hold({"seats": ["A-1-1"]})))["status"] == "confirmed"
        await operate("order", "refund-event", event_id, "start", "--rate", "50", "--reason", "called off")

        async def job_is_done() -> bool:
            job = await operator.get(f"/admin/orders/events/{event_id}/refund")
            return job.json()["status"] == "done" and job.json()["orders"] == {"refunded": 2}

        await wait_until(job_is_done, timeout_s=20)
        await wait_until(lambda: available_are(38, 48))
        assert "fell ill" in await operate("order", "show", reference)
        assert reference in await operate("order", "find", "--event", event_id)
        await operate("order", "export", event_id, str(tmp_path / "orders.csv"))
        assert (tmp_path / "orders.csv").read_text().count(reference) == 3
        today = datetime.now(UTC).date().isoformat()
        assert "sandbox" in await operate("order", "settlement", "--from", today, "--to", today)
        stock = (await operator.get(f"/admin/inventory/events/{event_id}/stock")).json()
        assert (stock["total"]["sold"], stock["total"]["blocked"]) == (0, 4), json.dumps(stock["total"])
    assert await suite.audit(event_id) == []  # the history lacks the refunds, which its fans did not ask for


async def test_a_bought_ticket_is_verified_with_the_published_keys(
    suite: RunningSuite, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    event_id = await suite.open_event()
    async with suite.browser() as browser:
        fan = await fan_of(browser, event_id).come_in()
        answer = await fan.order(await fan.hold({"seats": ["A-2-3"]}))
        assert (await fan.settled(answer))["status"] == "confirmed"
        owner = bearer(answer["order_token"])
        order_tickets = (await browser.get(f"/orders/{answer['reference']}/tickets", headers=owner)).json()
        keys = tmp_path / "keys.json"
        keys.write_bytes((await browser.get("/.well-known/ticket-keys.json")).content)
    [ticket] = order_tickets["tickets"]
    assert (order_tickets["event"]["name"], ticket["place"]) == ("A test", "Block A, row 2, seat 3")
    result = command_line(monkeypatch, capsys)("tickets", "verify", ticket["code"], "--keys", str(keys))
    assert (result.returncode, "A-2-3" in result.stdout) == (0, True)
    assert await suite.wrong(event_id) == []


async def sell(suite: RunningSuite) -> str:
    """A sale in which fans buy, are declined, release what they hold, and leave."""
    event_id = await suite.open_event()
    async with suite.browser() as browser:
        buyer = await fan_of(browser, event_id).come_in()
        await buyer.buy(await buyer.hold({"seats": ["A-1-1", "A-1-2"]}))
        for_other = await fan_of(browser, event_id).come_in()
        hold = await for_other.hold({"ga": [{"section_id": "GA1", "quantity": 2}]})
        path = f"/events/{for_other.event_id}/reservations/{hold['reservation_id']}"
        assert (await browser.delete(path, headers=bearer(for_other.admission))).is_success
        leaver = fan_of(browser, event_id)
        await leaver.join()
        assert (await browser.delete(f"/events/{leaver.event_id}/queue", headers=bearer(leaver.queue_token))).is_success
    return event_id


def known_keys() -> re.Pattern[str]:
    """Of all keys on the page, whatever stands for their variable parts."""
    patterns = (key.pattern for part in redis_keys.keys().values() for key in part)
    parts = (re.sub(r"[A-Z]+(_[A-Z]+)?|0…2", "@", pattern) for pattern in patterns)
    return re.compile("|".join(re.escape(part).replace("@", r"[^:{}]+") for part in parts))


async def test_events_and_keys_of_a_sale_are_on_the_pages(suite: RunningSuite) -> None:
    event_id = await sell(suite)
    connection = await asyncpg.connect(suite.engines["postgres_url"].replace("+asyncpg", ""))
    seen: set[str] = set()
    for service in ("queue", "inventory", "orders"):
        written = f"SELECT event FROM {service}.outbox_batch, jsonb_array_elements(events) event"
        for (body,) in await connection.fetch(f"{written} WHERE event ->> 'event_id' = $1", event_id):
            event = json.loads(body)
            _, fields = events.TYPES[event["type"]]
            for part in event["after"].get("reservations", [event["after"]]):
                assert set(part) == set(fields), event["type"]
            seen.add(event["type"])
    await connection.close()
    assert seen >= {"order.created", "order.confirmed", "reservation.created", "reservation.cancelled", "place.left"}
    known = known_keys()
    async with Redis.from_url(suite.engines["redis_url"]) as client:
        names = [name.decode() async for name in client.scan_iter(count=1_000)]
    assert [name for name in names if not known.fullmatch(name)] == []
