"""A ticket is refunded in a running suite: the fan sees it, its seat is sold again, and operators see all of it."""

import asyncio
import json
from datetime import UTC, datetime
from pathlib import Path

from typer.testing import CliRunner

from onsale.cli import orders
from tests.support.running.suite import Fan, RunningSuite, bearer
from tests.support.wait import wait_until


async def test_one_ticket_goes_back_on_sale_and_then_the_whole_event_is_called_off(
    suite: RunningSuite, tmp_path: Path
) -> None:
    event_id = await suite.open_event()

    async def onsale(*words: str) -> str:
        ran = await asyncio.to_thread(CliRunner().invoke, orders.app, [*words, "--data-dir", str(suite.data_dir)])
        assert ran.exit_code == 0, ran.output + repr(ran.exception)
        return ran.output

    async with suite.browser() as browser, suite.operator() as operator:
        fan = await Fan(browser, event_id).come_in()
        held = await fan.hold(seats=["A-1-1", "A-1-2"], ga=[{"section_id": "GA1", "quantity": 2}])
        placed = (await fan.order(held)).json()
        assert (await fan.ending(placed))["status"] == "confirmed"
        reference = placed["reference"]

        async def is_now(status: str) -> bool:
            seen = await browser.get(f"/orders/{reference}", headers=bearer(placed["order_token"]))
            return bool(seen.json()["status"] == status)

        async def left() -> list[int]:
            sections = (await browser.get(f"/events/{event_id}/sections")).json()["sections"]
            return [section["available_seats"] for section in sections]

        async def left_is(*expected: int) -> bool:
            return await left() == list(expected)

        await onsale("refund", reference, "--seat", "A-1-1", "--return-to-sale", "--reason", "one fell ill")
        await wait_until(lambda: is_now("partially_refunded"))
        await wait_until(lambda: left_is(39, 48))
        other = await Fan(browser, event_id).come_in()
        assert (await other.buy(await other.hold(seats=["A-1-1"])))["status"] == "confirmed"
        await onsale("refund-event", event_id, "start", "--rate", "50", "--reason", "called off")

        async def done() -> bool:
            job = await operator.get(f"/admin/orders/events/{event_id}/refund")
            return job.json()["status"] == "done" and job.json()["orders"] == {"refunded": 2}

        await wait_until(done, timeout_s=20)
        await wait_until(lambda: left_is(38, 48))
        assert "fell ill" in await onsale("show", reference)
        assert reference in await onsale("find", "--event", event_id)
        await onsale("export", event_id, str(tmp_path / "orders.csv"))
        assert (tmp_path / "orders.csv").read_text().count(reference) == 3
        today = datetime.now(UTC).date().isoformat()
        assert "sandbox" in await onsale("settlement", "--from", today, "--to", today)
        stock = (await operator.get(f"/admin/inventory/events/{event_id}/stock")).json()
        assert (stock["total"]["sold"], stock["total"]["blocked"]) == (0, 4), json.dumps(stock["total"])
    assert await suite.audit(event_id) == []
