"""The controls of orders: payments, refunds, promo codes, webhooks and the steps in the background."""

from typing import Any

import pytest
from playwright.async_api import expect

from onsale.client.fan_documents import Payment
from shared.contracts.admin import orders, prices
from tests.browser.console.desk import LATE_MS, Desk, Sit, presses
from tests.support.providers.receiver import webhook_receiver
from tests.support.running.fans import card
from tests.support.wait import wait_until

pytestmark = pytest.mark.browser


async def pending_order(desk: Desk, browser: Any) -> str:
    """An order whose buyer is on the provider's page."""
    fan = await desk.fan(browser)
    held = await fan.hold({"ga": [{"section_id": "GA", "quantity": 1}]})
    payment: Payment = {**card("redirect"), "return_url": f"{desk.suite.url}/o/back"}
    return (await fan.order(held, payment=payment))["reference"]


async def find(desk: Desk, reference: str) -> None:
    await desk.open("Orders")
    await desk.page.locator("dialog [name=search]").fill(reference)
    found = desk.page.locator(f"[data-order='{reference}'] button")
    await expect(found).to_be_visible()
    wide = "document.querySelector('dialog.drawer').scrollWidth > document.querySelector('dialog.drawer').clientWidth"
    assert not await desk.page.evaluate(wide), "a long address pushes nothing out of the drawer"
    await found.click()


@presses(orders.CANCEL_ORDER, orders.RETRY_ORDER, orders.RESOLVE_ORDER)
async def test_orders_are_retried_cancelled_and_resolved(sit: Sit) -> None:
    desk = await sit()
    async with desk.suite.browser() as browser:
        first, second = await pending_order(desk, browser), await pending_order(desk, browser)
    await find(desk, first)
    assert "tried again" in await desk.press("retry", "Retry now", reason="the fan calls")
    assert "Cancelled" in await desk.press("cancel", "Cancel the order", reason="a mistake")
    await expect(desk.page.locator("[data-order-status]")).to_have_text("Cancelled", timeout=LATE_MS)
    await expect(desk.page.locator("dialog ol.rows")).to_contain_text("a mistake")
    await desk.close()
    await desk.execute(
        "UPDATE orders.\"order\" SET status = 'review', end_reason = 'unknown', due_at = NULL,"
        " wake_count = wake_count + 1 WHERE reference = $1", second,
    )  # fmt: skip
    await desk.page.get_by_role("button", name="Review…").click()
    await desk.page.locator(f"[data-order='{second}'] button").click()
    decided = await desk.press("resolve", "Resolve", decision="expire", reason="the bank has no such payment")
    assert "Decided." in decided
    await expect(desk.page.locator("[data-order-status]")).to_have_text("Expired", timeout=LATE_MS)
    await expect(desk.page.locator("dialog ol.rows")).to_contain_text("the bank has no such payment")


@presses(
    orders.REFUND_ORDER, orders.START_EVENT_REFUND, orders.PAUSE_EVENT_REFUND, orders.RESUME_EVENT_REFUND,
)  # fmt: skip
async def test_tickets_are_refunded_and_then_the_event_with_a_pause(sit: Sit) -> None:
    desk = await sit()
    async with desk.suite.browser() as browser:
        fans = [await desk.fan(browser) for _ in range(4)]
        bought = [await fan.buy(await fan.hold({"ga": [{"section_id": "GA", "quantity": 2}]})) for fan in fans]
    await find(desk, bought[-1]["reference"])
    await desk.action("refund").get_by_role("button", name="Refund…").click()
    await desk.action("refund").locator("[name=what]").select_option("tickets")
    await desk.action("refund").locator("fieldset.group input[type=number]").fill("1")
    refunded = await desk.press("refund", "Refund", asks=False, return_to_sale=True, reason="one fell ill")
    assert "€30.00" in refunded
    await expect(desk.page.locator("[data-order-status]")).to_have_text("Partially refunded", timeout=LATE_MS)
    await desk.page.get_by_role("button", name="‹ All orders").click()
    started = await desk.press(
        "refund-all", "Refund the whole event", rate_per_s=1, reason="called off", typed=desk.event_id
    )
    assert "Begun" in started
    assert "Paused" in await desk.press("pause-refund", "Pause the refund", reason="the bank asks")
    await expect(desk.page.locator("[data-event-refund]")).to_have_attribute("data-event-refund", "paused")
    await expect(desk.page.locator("[data-event-refund]")).to_contain_text("called off")
    assert "Resumed" in await desk.press("resume-refund", "Resume the refund", rate_per_s=50, reason="the bank agrees")
    await expect(desk.page.locator("[data-event-refund=done]")).to_be_visible(timeout=LATE_MS)
    await desk.close()
    await expect(desk.page.locator("[data-change]").first).to_contain_text("the bank agrees", timeout=LATE_MS)


@presses(prices.PUT_PROMO_CODE, prices.DEACTIVATE_PROMO_CODE)
async def test_a_promo_code_is_made_and_stopped(sit: Sit) -> None:
    desk = await sit()
    await desk.open("More", "Promo codes")
    made = await desk.press(
        "new-promo", "New promo code", code="EARLY", off="12.5", uses_max=100, customer_uses_max=1,
        until="2030-01-01T10:00", reason="radio",
    )  # fmt: skip
    assert "EARLY is valid." in made
    code = await desk.get(f"/admin/orders/events/{desk.event_id}/promo-codes/EARLY")
    assert (code["percent"], code["uses_max"], code["customer_uses_max"]) == ("12.5", 100, 1)
    await expect(desk.page.locator("[data-promo=EARLY]")).to_contain_text("12.5 % off")
    assert "Stopped." in await desk.press("stop-EARLY", "Stop", reason="leaked")
    await expect(desk.page.locator("[data-promo=EARLY]")).to_contain_text("stopped")
    assert "leaked" in {reason for _, _, reason in await desk.log()}


@presses(
    orders.CREATE_WEBHOOK_ENDPOINT, orders.RESEND_WEBHOOK, orders.ENABLE_WEBHOOK_ENDPOINT,
    orders.DELETE_WEBHOOK_ENDPOINT,
)  # fmt: skip
async def test_a_webhook_is_made_sent_again_enabled_and_deleted(sit: Sit) -> None:
    desk = await sit()
    await desk.open("More", "Webhooks")
    async with webhook_receiver() as receiver, desk.suite.browser() as browser:
        receiver.faults = ["gone"]
        assert "Made." in await desk.press("new-webhook", "New webhook", url=receiver.url, reason="the accounts")
        secret = await desk.page.locator("[data-once] textarea").input_value()
        [endpoint] = [
            one["endpoint_id"] for one in (await desk.get("/admin/orders/webhooks"))["endpoints"]
            if one["event_id"] == desk.event_id
        ]  # fmt: skip
        fan = await desk.fan(browser)
        await fan.buy(await fan.hold({"ga": [{"section_id": "GA", "quantity": 1}]}))
        await wait_until(lambda: receiver.received, timeout_s=20)
        row = desk.page.locator(f"[data-webhook='{endpoint}']")

        async def is_off() -> bool:
            await desk.close()
            await desk.open("More", "Webhooks")
            await expect(row).to_be_visible()
            return "Off since" in await row.inner_text()

        await wait_until(is_off, timeout_s=20, interval_s=0.3)
        enabled = desk.action(f"enable-{endpoint}")
        await enabled.get_by_role("button", name="Enable…").click()
        await enabled.locator("[name=reason]").fill("it is there again")
        await enabled.get_by_role("button", name="Enable", exact=True).click()
        await expect(enabled).to_contain_text("Messages are sent again.")
        await expect(row).not_to_contain_text("Off since")
        await row.get_by_role("button", name="Deliveries").click()
        delivery = row.locator("section li").first
        name = await delivery.locator("[data-action]").get_attribute("data-action")
        before = len(receiver.received)
        assert "sent again" in await desk.press(name or "", "Send again", reason="they lost it")
        await wait_until(lambda: len(receiver.received) > before, timeout_s=20)
        assert receiver.received[-1].verified(secret)
        await desk.action(f"delete-{endpoint}").get_by_role("button", name="Delete…").click()
        await desk.action(f"delete-{endpoint}").locator("[name=reason]").fill("another address")
        await desk.action(f"delete-{endpoint}").get_by_role("button", name="Delete", exact=True).click()
        await expect(row).to_have_count(0)
        await expect(desk.page.locator("[data-deleted]")).to_contain_text(receiver.url)
    assert "another address" in {reason for _, _, reason in await desk.log()}


@presses(orders.SET_BACKGROUND_SHARE, orders.REPLAY_COMMAND)
async def test_the_background_share_is_set_and_a_failed_command_runs_again(sit: Sit) -> None:
    desk = await sit()
    async with desk.suite.browser() as browser:
        fan = await desk.fan(browser)
        await fan.order(await fan.hold({"ga": [{"section_id": "GA", "quantity": 1}]}), payment=card("decline"))

        async def failed() -> bool:
            path = f"/admin/orders/commands?event_id={desk.event_id}&status=failed"
            return bool((await desk.get(path))["commands"])

        await wait_until(failed, timeout_s=20, interval_s=0.2)
    await desk.open("More", "Checkouts, failed steps")
    share = f"/admin/orders/events/{desk.event_id}/background-share"
    before = (await desk.get(share))["background_percent"]
    wanted = 30 if before != 30 else 40
    assert f"{wanted} % of the checkouts" in await desk.press(
        "background-share", "Set the share", asks=False, background_percent=wanted, reason="a slow bank"
    )
    assert (await desk.get(share))["background_percent"] == wanted
    assert ("background", "operator", "a slow bank") in await desk.log()
    await desk.undo("background-share", f"Back to {before:g} %")
    row = desk.page.locator("dialog [data-command]").first
    await expect(row).to_contain_text("Checkout")
    name = await row.locator("[data-action]").get_attribute("data-action")
    await row.get_by_role("button", name="Run again…").click()
    async with desk.page.expect_response(lambda one: one.url.endswith("/rerun") and one.status == 202):
        await desk.action(name or "").locator("[name=reason]").fill("the fan calls")
        await desk.action(name or "").get_by_role("button", name="Run again", exact=True).dblclick()
