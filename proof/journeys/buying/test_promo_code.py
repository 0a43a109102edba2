"""An operator adds a promo code at the command line, and a fan pays the quoted price with it."""

from collections.abc import Awaitable, Callable
from typing import Any

from tests.support.running.suite import RunningSuite, bearer, fan_of

FEES = [{"name": "Booking fee", "per": "ticket", "amount_minor": 150}]
TAXES = [{"name": "VAT", "percent": 19, "included": True}]


async def test_a_fan_with_a_promo_code_pays_the_quoted_price(
    suite: RunningSuite, operate: Callable[..., Awaitable[str]]
) -> None:
    event_id = await suite.open_event(fees=FEES, taxes=TAXES)
    options = ("--percent", "10", "--uses", "1", "--reason", "newsletter")
    assert "WELCOME ready" in await operate("promo", "add", event_id, "welcome", *options)
    async with suite.browser() as browser:
        fan = await fan_of(browser, event_id).come_in()
        held = await fan.hold({"seats": ["A-1-1"], "ga": [{"section_id": "GA1", "quantity": 2}]})
        body = {"reservation_id": held["reservation_id"], "promo_code": "Welcome"}
        quoted = await browser.post("/orders/quote", json=body, headers=bearer(fan.admission))
        quote: dict[str, Any] = quoted.json()
        assert quote["total_minor"] == 5250 + 6200 - 1145 + 450, quote
        order = await fan.order(held, promo_code="Welcome")
        bought = await fan.settled(order)
        assert (bought["status"], bought["total_minor"], bought["extras"]) == ("confirmed", 10755, quote["extras"])
    assert "WELCOME" in await operate("promo", "list", event_id)
    assert order["reference"] in await operate("promo", "uses", event_id, "WELCOME")
    assert "WELCOME stopped" in await operate("promo", "stop", event_id, "welcome", "--reason", "over")
    assert await suite.wrong(event_id) == []
