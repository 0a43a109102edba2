"""An operator makes a promo code at the command line, and a fan pays less by it, exactly what the page said."""

import asyncio
from typing import Any

from typer.testing import CliRunner

from onsale.cli.app import app
from tests.support.running.suite import Fan, RunningSuite, bearer

FEES = [{"name": "Booking fee", "per": "ticket", "amount_minor": 150}]
TAXES = [{"name": "VAT", "percent": 19, "included": True}]


async def test_a_fan_with_a_code_pays_what_the_quote_said(suite: RunningSuite) -> None:
    event_id = await suite.open_event(fees=FEES, taxes=TAXES)
    said = await promo(suite, "add", event_id, "welcome", "--percent", "10", "--uses", "1", "--reason", "newsletter")
    assert "WELCOME ready" in said
    async with suite.browser() as browser:
        fan = await Fan(browser, event_id).come_in()
        held = await fan.hold(seats=["A-1-1"], ga=[{"section_id": "GA1", "quantity": 2}])
        asked = {"reservation_id": held["reservation_id"], "promo_code": "Welcome"}
        quoted = await browser.post("/orders/quote", json=asked, headers=bearer(fan.admission))
        quote: dict[str, Any] = quoted.json()
        assert quote["total_minor"] == 5250 + 6200 - 1145 + 450, quote
        shown = {"expected_total_minor": quote["total_minor"], "promo_code": "Welcome"}
        order = (await fan.order(held, **shown)).json()
        ending = await fan.ending(order)
        assert (ending["status"], ending["total_minor"], ending["extras"]) == ("confirmed", 10755, quote["extras"])
    assert "WELCOME" in await promo(suite, "list", event_id)
    assert order["reference"] in await promo(suite, "uses", event_id, "WELCOME")
    assert "WELCOME stopped" in await promo(suite, "stop", event_id, "welcome", "--reason", "over")
    assert await suite.audit(event_id) == []


async def promo(suite: RunningSuite, *words: str) -> str:
    """What `onsale promo` prints."""
    asked = ["promo", *words, "--data-dir", str(suite.data_dir)]
    ran = await asyncio.to_thread(CliRunner().invoke, app, asked)  # a command runs a loop of its own
    assert ran.exit_code == 0, ran.output
    return ran.output
