"""After a simulated sale `onsale flow` and `onsale report` say what the simulator counted and the database has."""

import asyncio
import re
from pathlib import Path
from typing import Any

import asyncpg
import httpx
import pytest

from features.reports.page import write_page
from features.reports.sale import Sale, read_sale
from onsale.admin_client import AdminClient
from onsale.errors import OperatorError
from onsale.simulate.command import Crowd
from tests.support.running.suite import RunningSuite
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
