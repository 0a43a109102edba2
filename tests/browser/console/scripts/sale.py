"""A sale under way, looked at from every drawer."""

from typing import Any

from playwright.async_api import expect

from tests.browser.console.desk import FLOOR, LANES, LATE_MS, Desk, script
from tests.support.running.suite import fan_of

BLOCK = {"section_id": "A", "name": "Block A", "kind": "seated", "rows": 2, "seats_per_row": 10, "price_minor": 5000}
CALLED, WAITING = 4, 3
ROOM = {"rate_per_s": 0.05, "burst": CALLED, "lanes": LANES}
SHOWN = {
    "What a fan sees": "[data-place]", "Lanes, pace, times": "[data-action=lanes]",
    "Access codes": "text=No access code yet.", "Promo codes": "text=No promo code yet.",
    "Lottery": "text=This event has no lottery", "Report and tables": "text=Save the report",
    "Webhooks": "[data-action=new-webhook]", "Checkouts, failed steps": "text=No step failed.",
    "Differences, oversells": "[data-action=reconcile]", "Rehearsal": "[data-action=start-rehearsal]",
}  # fmt: skip


async def fans_buy(desk: Any) -> dict[str, str]:
    """Two bought, one holds, one is at the bank, three wait; the references of a paid and of an unpaid order."""
    fans = [await desk.fan() for _ in range(CALLED)]
    first, _ = [await fan.buy(await fan.hold({"ga": [{"section_id": "GA", "quantity": 5}]})) for fan in fans[:2]]
    await fans[2].hold({"ga": [{"section_id": "GA", "quantity": 3}]})
    held = await fans[3].hold({"seats": ["A-1-1"]})
    payment = {"provider": "sandbox", "method": "redirect", "return_url": f"{desk.suite.url}/o/back"}
    pending = await fans[3].order(held, payment=payment)
    for _ in range(WAITING):
        await fan_of(desk.browser, desk.event_id).join()
    message = {"message": "Doors at eight.", "reason": "for a test"}
    assert (await desk.operator.post(f"/admin/events/{desk.event_id}/room/message", json=message)).is_success
    return {"paid": first["reference"], "pending": pending["reference"]}


@script(event=lambda: {"sections": [*FLOOR, BLOCK], "room": ROOM})
async def every_drawer_is_read(desk: Desk) -> None:
    references = await desk.given(fans_buy)
    page = desk.page
    await desk.hears(expect(page.locator("[data-step=confirmed] b")).to_have_text("2", timeout=LATE_MS))
    sold = page.locator("[data-tile='Sold'] [data-figure]")
    await desk.hears(expect(sold).to_have_text("16 %", timeout=LATE_MS))  # it comes after the orders
    for name in ("Rate", "Message", "Stock", "Pause…"):
        await desk.open(name)
        await expect(page.locator("dialog [data-action]").first).to_be_visible()
        if name == "Rate":
            await expect(page.locator("dialog [data-preview]")).to_be_visible()
        await desk.close()
    await desk.open("Orders")
    for reference in references.values():
        await page.locator("dialog [name=search]").fill(reference)
        await page.locator(f"[data-order='{reference}'] button").click()
        await expect(page.locator("[data-order-status]")).to_be_visible()
        await page.get_by_role("button", name="‹ All orders").click()
    await desk.close()
    for name, shown in SHOWN.items():
        await desk.open("More", name)
        await expect(page.locator(f"dialog >> {shown}").first).to_be_visible()
        await desk.close()
    async with page.expect_response("**/vitals?*"):
        await page.get_by_role("button", name="1 h").click()
    await page.get_by_role("link", name="All events").click()
    await expect(page.locator(f"[data-event={desk.event_id}]")).to_be_visible()
