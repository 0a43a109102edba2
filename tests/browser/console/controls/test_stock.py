"""The controls of the stock: places, allotments and holds, and what is sold too often."""

import re
from typing import Any

import pytest
from playwright.async_api import expect

from shared.contracts.admin import inventory
from tests.browser.console.desk import FLOOR, Sit, presses
from tests.support.wait import wait_until

pytestmark = pytest.mark.browser
BLOCK = {"section_id": "A", "name": "Block A", "kind": "seated", "rows": 2, "seats_per_row": 10, "price_minor": 5000}


@presses(
    inventory.BLOCK_PLACES, inventory.UNBLOCK_PLACES, inventory.RESIZE_SECTION, inventory.PUT_ALLOTMENT,
    inventory.OPEN_ALLOTMENT, inventory.RELEASE_HOLD, inventory.RELEASE_ALL_HOLDS,
)  # fmt: skip
async def test_places_are_closed_opened_resized_kept_aside_and_released(sit: Sit) -> None:
    desk = await sit(sections=[*FLOOR, BLOCK])
    async with desk.suite.browser() as browser:
        one = await (await desk.fan(browser)).hold({"ga": [{"section_id": "GA", "quantity": 3}]})
        await (await desk.fan(browser)).hold({"seats": ["A-1-1"]})
    await desk.open("Stock")
    blocking = ("block", "Block or unblock places")
    second_row: dict[str, Any] = {"which": "rows", "section": "A", "first_row": 2, "last_row": 2}
    assert "10 places blocked." in await desk.press(*blocking, verb="Block", reason="cameras", **second_row)
    row = desk.page.locator("tr[data-stock=A] td.num")
    await expect(row).to_have_text(["9", "1", "0", "10", "0", "20"])
    assert "10 places unblocked." in await desk.press(*blocking, verb="Unblock", unblock=True, **second_row)
    await expect(row).to_have_text(["19", "1", "0", "0", "0", "20"])
    refused = await desk.press("resize", "Resize a standing section", section="GA", capacity=1, reason="a stage")
    assert re.search(r"\w+ \w+ \w+", refused)
    await expect(desk.action("resize").locator("[data-problem]")).to_be_visible()
    assert "GA has 30 places." in await desk.press("resize", "Resize a standing section", asks=False, capacity=30)
    await desk.undo("resize", "Back to 40")
    assert "5 places are kept aside." in await desk.press(
        "new-allotment",
        "Keep places aside",
        name="Guests of the band",
        kind="house",
        which="ga",
        section="GA",
        quantity=5,
    )
    await expect(desk.page.locator("tr[data-stock=GA] td.num")).to_have_text(["32", "3", "0", "0", "5", "40"])
    assert "5 places are on sale." in await desk.press("open-guests-of-the-band", "Open", reason="nobody came")
    unknown = await desk.press("release-one", "Release one hold", reason="a fan asked", reservation="f" * 32)
    assert re.search(r"\w+ \w+", unknown)
    await expect(desk.action("release-one").locator("[data-problem='404']")).to_be_visible()
    assert "The reservation is cancelled." in await desk.press(
        "release-one", "Release one hold", asks=False, reason="a fan asked", reservation=one["reservation_id"]
    )
    assert "Released 1 hold." in await desk.press(
        "release-all", "Release all holds", reason="wrong prices", typed=desk.event_id
    )
    left = {each["section_id"]: (each["available"], each["held"]) for each in (await desk.stock())["sections"]}
    assert left == {"A": (20, 0), "GA": (40, 0)}
    assert await desk.log() >= {("block", "operator", "cameras"), ("open", "operator", "nobody came")}


@presses(inventory.RECONCILE, inventory.APPROVE_OVERSELL)
async def test_an_oversell_is_found_and_waits_until_it_is_approved(sit: Sit) -> None:
    desk = await sit(sales={"oversell": {"policy": "cancel_latest", "review_percent": 0}})
    async with desk.suite.browser() as browser:
        for _ in range(2):
            fan = await desk.fan(browser)
            await fan.buy(await fan.hold({"ga": [{"section_id": "GA", "quantity": 2}]}))
    await desk.execute(
        "UPDATE inventory.section SET capacity = 3, seats_remaining = 0 WHERE event_id = $1", desk.event_id
    )
    await desk.open("More", "Differences, oversells")
    await desk.press("reconcile", "Reconcile now", asks=False)

    async def waits() -> bool:
        await desk.page.wait_for_timeout(700)
        await desk.action("reconcile").get_by_role("button", name="Reconcile now").click()
        return await desk.action("approve").get_by_role("button", name="Approve all that wait…").is_visible()

    await wait_until(waits, timeout_s=30)
    done = await desk.press("approve", "Approve all that wait", reason="the fire brigade", typed=desk.event_id)
    assert "1 reservation loses its tickets" in done
    await expect(desk.page.locator("dialog.drawer")).to_contain_text("Decided by operator: the fire brigade")
