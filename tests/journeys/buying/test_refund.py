"""An operator refunds one ticket, whose seat is sold again, and then all orders of a cancelled event."""

import json
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from pathlib import Path

from tests.support.running.fans import fan_of
from tests.support.running.suite import RunningSuite, bearer
from tests.support.wait import wait_until


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
