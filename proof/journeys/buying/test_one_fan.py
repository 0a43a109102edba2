"""The seats of a hold that nobody pays are free again after its time.

A fan releases a part of a hold and buys the rest; the tour's ticket limit counts it at its other events. Every command
of the pages of `docs/start` runs against the suite, in the order of the page.
"""

from contextlib import suppress
from pathlib import Path

import pytest

from onsale.client import Problem
from onsale.client.fan_documents import CustomerDetails
from tests.journeys.buying.test_examples import PAGES, ROOT, folder, run_page  # noqa: F401 - a fixture
from tests.support.running.fans import card, fan_of, refusal
from tests.support.running.suite import RunningSuite
from tests.support.wait import wait_until


async def test_the_seats_of_an_unpaid_hold_are_released(suite: RunningSuite) -> None:
    event_id = await suite.open_event(sales={"hold_ttl_s": 5, "grace_s": 0})
    async with suite.browser() as browser:
        first = await fan_of(browser, event_id).come_in()
        held = await first.hold({"seats": ["A-1-1"]})
        second = await fan_of(browser, event_id).come_in()
        with pytest.raises(Problem) as taken:
            await second.hold({"seats": ["A-1-1", "A-1-2"]})
        assert (taken.value.slug, taken.value.members["seats"]) == ("seats-taken", ["A-1-1"])

        async def seats_are_free() -> bool:
            with suppress(Problem):
                return bool(await second.hold({"seats": ["A-1-1", "A-1-2"]}))
            return False

        await wait_until(seats_are_free, timeout_s=12, interval_s=0.25)
        assert await refusal(first.order(held)) == (410, "hold-expired")
    assert await suite.wrong(event_id) == []


SAME: CustomerDetails = {"name": "A fan", "email": "same@example.org"}


async def test_a_fan_releases_part_of_a_hold_and_the_rest_counts_towards_the_tour_limit(suite: RunningSuite) -> None:
    tour = {"tour": {"tour_id": "tour-1", "tickets_per_customer": 3}}
    first, second = await suite.open_event(sales=tour), await suite.open_event(sales=tour)
    async with suite.browser() as browser:
        fan = await fan_of(browser, first).come_in()
        hold = await fan.hold({"seats": ["A-1-1", "A-1-2"], "ga": [{"section_id": "GA1", "quantity": 3}]})
        kept = await fan.keep(hold, {"seats": ["A-1-2"], "ga": [{"section_id": "GA1", "quantity": 1}]})
        at_the_price_before = fan.client.create_order(
            {
                "reservation_id": hold["reservation_id"], "expected_total_minor": hold["total_amount_minor_units"],
                "currency": "EUR", "customer": SAME, "payment": card("ok"),
            },
            token=fan.admission,
        )  # fmt: skip
        assert await refusal(at_the_price_before) == (409, "price-changed")
        bought = await fan.buy(kept, SAME)
        assert (bought["status"], sum(line["quantity"] for line in bought["lines"])) == ("confirmed", 2)
    async with suite.browser() as browser:
        again = await fan_of(browser, second).come_in()
        with pytest.raises(Problem) as refused:
            await again.order(await again.hold({"seats": ["A-1-1", "A-1-2"]}), SAME)
        assert (refused.value.status, refused.value.slug) == (409, "limit-exceeded")
        shown = {name: refused.value.members[name] for name in ("limit", "allowed", "used")}
        assert shown == {"limit": "tour_tickets_per_customer", "allowed": 3, "used": 2}
    assert await suite.wrong(first) == await suite.wrong(second) == []


LONG = sorted({*(ROOT / "docs" / "start").glob("*.md")} - {*PAGES})


@pytest.mark.parametrize("path", LONG, ids=lambda path: path.stem)
def test_every_command_of_the_page_runs(folder: Path, suite: RunningSuite, path: Path) -> None:  # noqa: F811
    run_page(folder, suite, path)
