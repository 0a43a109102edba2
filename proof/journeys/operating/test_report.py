"""After a simulated sale `onsale flow` and `onsale report` say what the simulator counted and the database has.

With `ONSALE_FEATURES_OFF=reports` a suite sells and rehearses, and says on its screens what is not counted.

A purchase through nginx and HAProxy with the generated configuration, in front of `onsale up`.

Invalid requests of fans and operators are answered with the fitting problem document and change nothing.
"""

import asyncio
import re
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import asyncpg
import httpx
import pytest

from features.console.cli.rehearse import Rehearsal
from features.reports.page import write_page
from features.reports.sale import Sale, read_sale
from onsale.admin_client import AdminClient
from onsale.errors import OperatorError
from onsale.simulate.command import Crowd
from tests.journeys.console.test_screen_of_a_sale import snapshot
from tests.support.running.suite import (
    Kind,
    RunningSuite,
    balancer_parameters,
    bearer,
    fan_of,
    no_cookies,
    plan_for_ports,
    problem,
    refusal,
    running_balancer,
    running_suite,
)
from tests.support.wait import wait_until

FANS = 60
SECTIONS = [
    {
        "section_id": "A",
        "name": "<i>Block & Co</i>",
        "kind": "seated",
        "rows": 4,
        "seats_per_row": 10,
        "price_minor": 5000,
        "traits": {"easy_access": ["1", "2-1..5"]},
    },
    {"section_id": "GA", "name": "Floor", "kind": "ga", "capacity": 40, "price_minor": 3000},
]
COUNTS = {
    "joined": "SELECT count(*) FROM queue.place WHERE event_id = $1",
    "called": "SELECT count(DISTINCT (lane, join_seq)) FROM queue.admission WHERE event_id = $1",
    "claimed": "SELECT count(DISTINCT (lane, join_seq)) FROM queue.admission WHERE event_id = $1 AND jti IS NOT NULL",
    "held": "SELECT count(DISTINCT holder) FROM inventory.reservation WHERE event_id = $1",
    "ordered": 'SELECT count(DISTINCT owner_id) FROM orders."order" WHERE event_id = $1',
    "confirmed": 'SELECT count(DISTINCT owner_id) FROM orders."order" WHERE event_id = $1 AND confirmed_at IS NOT NULL',
}
SOLD = """
    SELECT (SELECT count(*) FROM inventory.seat WHERE event_id = $1 AND status = 'sold')
        + (SELECT coalesce(sum(quantity), 0) FROM inventory.reservation_ga JOIN inventory.reservation
           USING (event_id, reservation_id) WHERE event_id = $1 AND status = 'confirmed')"""
EASY = """
    SELECT count(*) FROM inventory.seat WHERE event_id = $1 AND status = 'sold'
        AND (position BETWEEN 0 AND 9 OR position BETWEEN 11 AND 15)"""
DECLINES = """
    SELECT count(*) FROM orders.payment_attempt JOIN orders."order" USING (reference)
    WHERE event_id = $1 AND payment_attempt.status = 'failed'"""
CHARGED = 'SELECT sum(amount_minor) FROM orders.money_entry JOIN orders."order" USING (reference) WHERE event_id = $1'


async def test_flow_and_report_say_what_the_database_and_the_simulator_say(
    suite: RunningSuite, operate: Any, tmp_path: Path
) -> None:
    event_id = await suite.open_event(sections=SECTIONS)
    crowd = Crowd(suite.url, event_id, fans=FANS, arrive_over_s=1, seed=7, streams=10)
    await crowd.run(lambda _: None)

    async def read() -> Sale:
        async with suite.operator() as operator:
            return await read_sale(AdminClient(operator, suite.url, suite.admin_key), event_id, failure=OperatorError)

    async def nothing_is_open() -> bool:
        flow = (await read()).flow
        return not flow.orders.by_status["pending"] and not flow.holds.by_status["paying"]

    await wait_until(nothing_is_open, timeout_s=30)
    sale, seen = await read(), crowd.observations
    funnel = {step.name: step.fans for step in sale.flow.funnel}
    connection = await asyncpg.connect(suite.engines["postgres_url"])
    try:
        assert funnel == {name: await connection.fetchval(sql, event_id) for name, sql in COUNTS.items()}
        assert sale.flow.sold == await connection.fetchval(SOLD, event_id)
        easy = sale.traits["easy_access"]
        assert (easy.capacity, easy.sold) == (15, await connection.fetchval(EASY, event_id))
        assert sum(sale.flow.orders.declines.values()) == await connection.fetchval(DECLINES, event_id)
        assert sale.orders.money[0].charged_minor == await connection.fetchval(CHARGED, event_id)
    finally:
        await connection.close()
    assert (funnel["joined"], funnel["held"], funnel["confirmed"]) == (seen.joined, seen.held, seen.bought)
    assert sale.flow.sold == seen.tickets_sold == sum(step.tickets for step in sale.orders.steps)
    assert sum(step.called for step in sale.line.steps) == funnel["called"]
    assert sum(step.joined for step in sale.line.steps) == funnel["joined"]
    assert sum(step.held for step in sale.holds.steps) == sale.flow.holds.holds
    assert sum(sale.suggested.values()) == sale.flow.on_sale == 80

    shown = await operate("flow", event_id)
    for name, fans in funnel.items():
        assert re.search(rf"{name}\W+{fans}\b", shown), name
    file = tmp_path / "sale.html"
    await operate("report", event_id, "--out", str(file))
    page = await asyncio.to_thread(file.read_text)
    assert "All " in page
    assert "could not be checked" not in page
    assert "<script" not in page
    assert not re.search(r"(src|href)=|url\(", page), "a page that loads something"
    assert "&lt;i&gt;Block &amp; Co&lt;/i&gt;" in page
    assert "<i>Block" not in page
    assert f"<td>easy access</td><td class=n>15</td><td class=n>{easy.sold}</td>" in page
    for name, fans in funnel.items():
        assert re.search(rf"<td>{name}</td><td class=\"bar\">.*?</td><td class=n>{fans:,}</td>", page), name


async def test_a_report_without_the_check_of_invariants_says_why(
    suite: RunningSuite, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As without Redis: everything else is from the databases."""

    async def fail(*_: Any) -> None:
        raise OperatorError("Redis is <away>.")

    event_id = await suite.open_event(starts_at="2030-01-01T20:00:00+09:00")
    monkeypatch.setattr("features.reports.sale.check_invariants", fail)
    async with suite.operator() as operator:
        page = write_page(
            await read_sale(AdminClient(operator, suite.url, suite.admin_key), event_id, failure=OperatorError)
        )
    assert "could not be checked when this report was made: Redis is &lt;away&gt;." in page
    assert "Nothing was charged." in page
    assert "01 January 2030, 20:00 (+09:00)" in page, "a zone that is an offset has no name to look up"


async def test_twenty_who_watch_make_one_count_a_second(suite: RunningSuite) -> None:
    event_id = await suite.open_event()
    async with suite.operator() as operator:

        async def ask(service: str) -> str:
            answer = await operator.get(f"/admin/{service}/events/{event_id}/flow")
            assert answer.status_code == 200, answer.text
            return str(answer.json()["at"])

        for service in ("queue", "inventory", "orders"):
            times = await asyncio.gather(*(ask(service) for _ in range(20)))
            assert len(set(times)) == 1, service


async def test_a_history_of_too_many_steps_or_of_no_time_is_refused(suite: RunningSuite) -> None:
    event_id = await suite.open_event()
    async with suite.operator() as operator:
        for query in ("steps=401", "step_s=0", "from=1000-01-01T00:00:00Z"):
            url = httpx.URL(f"/admin/queue/events/{event_id}/flow/history?from=2026-01-01T00:00:00Z&step_s=60")
            name, _, value = query.partition("=")
            assert (await operator.get(url.copy_set_param(name, value))).status_code == 422


async def test_without_reports_a_sale_goes_on_and_the_console_says_what_is_not_counted() -> None:
    with running_suite(ONSALE_FEATURES_OFF="reports") as suite:
        event_id = await suite.open_event()
        async with suite.browser() as browser, suite.operator() as operator:
            fan = await fan_of(browser, event_id).come_in()
            assert (await fan.buy(await fan.hold({"seats": ["A-1-1"]})))["status"] == "confirmed"
            assert (await operator.get(f"/admin/orders/events/{event_id}/flow")).status_code == 404

            async def is_said() -> bool:
                found = await snapshot(operator, event_id)
                assert "ServiceDown" not in {alarm.name for alarm in found.alarms}
                stock, without = found.vitals.stock, found.vitals.without_reports
                return (without, stock.sold, stock.paying) == (["queue", "inventory", "orders"], 1, None)

            await wait_until(is_said, timeout_s=10)
            admin = AdminClient(operator, suite.url, suite.admin_key)
            rehearsal = Rehearsal(
                admin=admin, url=suite.url, event_id=event_id, fans=1, seed=1, arrive_over_s=0, reason="a test"
            )
            crowd = Crowd(suite.url, event_id, fans=1, arrive_over_s=0, seed=1, streams=0)
            assert (await rehearsal._result(event_id, crowd)).wait_p50_s is None
        assert await suite.audit(event_id) == []


@pytest.fixture(params=balancer_parameters())
def balancer_url(request: pytest.FixtureRequest, suite: RunningSuite, tmp_path: Path) -> Iterator[str]:
    """The address of a balancer in front of the suite, whose services all answer on one port."""
    kind: Kind = request.param
    with running_balancer(kind, plan_for_ports(suite.port), tmp_path) as url:
        yield url


async def test_a_fan_buys_through_a_balancer_and_internal_paths_are_not_found(
    suite: RunningSuite, balancer_url: str
) -> None:
    event_id = await suite.open_event()
    async with httpx.AsyncClient(base_url=balancer_url, timeout=20, cookies=no_cookies()) as browser:
        fan = await fan_of(browser, event_id).come_in()
        assert (await fan.buy(await fan.hold({"seats": ["A-1-1"]})))["status"] == "confirmed"
        async with browser.stream(
            "GET", f"/events/{fan.event_id}/sections/updates", headers=bearer(fan.queue_token)
        ) as stream:
            first = await anext(stream.aiter_lines())
        assert first
        for path in ("/internal/joins", "/metrics", "/queue/metrics"):
            assert problem(await browser.get(path)) == (404, "not-found")


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
