"""Fans buy from the price lists of the examples: a wheelchair user with a companion and a student at the theatre, a
member from the club's block and a family after them, and two fans of a tour with a name on each ticket.
"""

import uuid
from typing import Any

import pytest
from playwright.async_api import expect

from onsale import event_files
from onsale.local.command import EXAMPLES
from tests.browser.steps import CALL_TIMEOUT_MS, enter, expect_confirmed, hold, put_on_sale
from tests.support.running.suite import RunningSuite

FOLDER = EXAMPLES[0].parent


async def on_sale(suite: RunningSuite, name: str) -> str:
    """The example, whose sale begins now, and for everybody at once."""
    event = event_files.read(FOLDER / f"{name}.yaml").model_dump(mode="json", exclude_none=True)
    event["room"]["lanes"][0].pop("opens_at", None)
    for time in ("queue_opens_at", "sale_starts_at"):
        event["room"].pop(time, None)
    for allotment in event.get("allotments", []):
        if not allotment["codes"]:
            allotment["opens_at"] = "2026-01-01T00:00:00Z"
    if "tour" in event["sales"]:
        event["sales"]["tour"]["tour_id"] = f"t-{uuid.uuid4().hex[:12]}"
    return await put_on_sale(suite, **{**event, "event_id": f"{name}-{uuid.uuid4().hex[:8]}"})


def plus(page: Any, name: str) -> Any:
    return page.get_by_role("button", name=f"One more ticket for {name}", exact=True)


async def without_usual(page: Any) -> None:
    """Asks for no ticket at the usual price."""
    fewer = page.locator("#best [data-of-type=normal] .step:first-child")
    for _ in range(2):
        if await fewer.is_enabled():
            await fewer.click()


async def pay(page: Any, *names: str) -> None:
    await page.locator("#name").fill("Ada Lovelace")
    await page.locator("#email").fill(f"ada-{uuid.uuid4().hex}@example.org")
    for field, name in zip(await page.locator("#names-fields input").all(), names, strict=True):
        await field.fill(name)
    await page.locator("#pay").click()
    await page.wait_for_url("**/o/*")
    await expect_confirmed(page)


async def bought(suite: RunningSuite, event_id: str) -> list[tuple[str, int]]:
    """Type and price of each line of the one order."""
    async with suite.operator() as admin:
        answer = await admin.get("/admin/orders", params={"event_id": event_id})
    [order] = answer.raise_for_status().json()["orders"]
    return sorted(
        (line["type_id"], line["unit_price_minor"]) for line in order["lines"] for _ in range(line["quantity"])
    )


async def test_a_wheelchair_user_comes_to_the_theatre_with_a_companion(page: Any, suite: RunningSuite) -> None:
    event_id = await on_sale(suite, "theatre")
    await page.goto(f"{suite.url}/e/{event_id}")
    await enter(page)
    await without_usual(page)
    await page.locator("#access summary").click()
    await page.locator("#access [data-of-type=wheelchair] .step:last-child").click()
    await page.locator("#access [data-of-type=companion] .step:last-child").click()
    await page.locator("#best-find").click()
    await expect(page.locator("#held-total")).to_have_text("€12.00")
    await pay(page)
    await expect(page.locator(".ticket .type")).to_have_text(["Wheelchair place", "Companion"])
    await expect(page.locator(".ticket .proof").last).to_contain_text("mark B")
    assert await bought(suite, event_id) == [("companion", 0), ("wheelchair", 1200)]


async def test_a_student_and_a_subscriber_choose_seats_of_the_circle(page: Any, suite: RunningSuite) -> None:
    event_id = await on_sale(suite, "theatre")
    await page.goto(f"{suite.url}/e/{event_id}")
    await enter(page)
    await page.locator("#section-CIRCLE button").click()
    for seat in ("CIRCLE-A-3", "CIRCLE-A-4"):
        await page.locator(f"#seats [data-seat={seat}]").click()
    chosen = page.locator("#basket-seats select")
    await chosen.nth(0).select_option("student")
    await chosen.nth(1).select_option("subscriber")
    await hold(page)
    await expect(page.locator("#held-total")).to_have_text("€51.70")
    await pay(page)
    assert await bought(suite, event_id) == [("student", 700), ("subscriber", 4320)]


async def test_a_member_of_the_club_buys_from_the_block_with_the_word(page: Any, suite: RunningSuite) -> None:
    event_id = await on_sale(suite, "club")
    await page.goto(f"{suite.url}/e/{event_id}")
    await enter(page)
    await page.locator("#section-BALCONY button").click()
    await expect(page.locator("#seats [data-seat=BALCONY-A-1]")).to_have_attribute("data-status", "reserved")
    await page.locator("#seats-back").click()
    await page.get_by_label("I have a code").fill("soap27")
    await page.get_by_role("button", name="Use code").click()
    await page.locator("#best-where").select_option(label="Balcony")
    await page.locator("#best [data-of-type=member] .step:last-child").click()
    await without_usual(page)
    await page.locator("#best-find").click()
    await expect(page.locator("#held-tickets li")).to_contain_text(["row A"])
    await pay(page)
    assert await bought(suite, event_id) == [("member", 3120)]


async def test_a_family_buys_at_the_club_in_the_general_sale(page: Any, suite: RunningSuite) -> None:
    event_id = await on_sale(suite, "club")
    await page.goto(f"{suite.url}/e/{event_id}")
    await enter(page)
    for name in ("Floor · Advance sale", "Floor · Up to 12", "Floor · 13 to 17"):
        await plus(page, name).click()
    await hold(page)
    await expect(page.locator("#held-tickets select")).to_have_count(3)
    await pay(page)
    assert await bought(suite, event_id) == [("child", 900), ("normal", 2800), ("youth", 1680)]


@pytest.mark.parametrize("shows", [("tour-hamburg", "tour-berlin")])
async def test_a_fan_of_the_tour_names_each_ticket(page: Any, suite: RunningSuite, shows: tuple[str, ...]) -> None:
    for show in shows:
        event_id = await on_sale(suite, show)
        await page.goto(f"{suite.url}/e/{event_id}")
        await enter(page)
        await plus(page, "Floor · Full price").click()
        await plus(page, "Floor · Early entry with poster").click()
        await hold(page)
        await expect(page.locator("#names-fields input")).to_have_count(2, timeout=CALL_TIMEOUT_MS)
        await pay(page, "Ada Lovelace", "Grace Hopper")
        await expect(page.locator(".ticket .type")).to_have_count(2, timeout=CALL_TIMEOUT_MS)
        assert await bought(suite, event_id) == [("early", 12590), ("normal", 7590)]
