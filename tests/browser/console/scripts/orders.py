"""The controls of orders: payments, refunds, promo codes, webhooks and the steps in the background."""

from typing import Any

from playwright.async_api import expect

from onsale.client.fan_documents import NewOrder, Payment, QuoteRequest
from tests.browser.console.desk import LATE_MS, Desk, script
from tests.support.providers.receiver import webhook_receiver
from tests.support.running.suite import card
from tests.support.wait import wait_until


async def pending_order(desk: Any) -> str:
    """An order whose buyer is on the provider's page."""
    fan = await desk.fan()
    held = await fan.hold({"ga": [{"section_id": "GA", "quantity": 1}]})
    payment: Payment = {**card("redirect"), "return_url": f"{desk.suite.url}/o/back"}
    return str((await fan.order(held, payment=payment))["reference"])


async def find(desk: Desk, reference: str) -> None:
    await desk.open("Orders")
    await desk.page.locator("dialog [name=search]").fill(reference)
    found = desk.page.locator(f"[data-order='{reference}'] button")
    await expect(found).to_be_visible()
    wide = "document.querySelector('dialog.drawer').scrollWidth > document.querySelector('dialog.drawer').clientWidth"
    assert not await desk.page.evaluate(wide), "a long address pushes nothing out of the drawer"
    await found.click()


async def two_pending_orders(desk: Any) -> list[str]:
    return [await pending_order(desk), await pending_order(desk)]


async def the_second_needs_a_person(desk: Any) -> None:
    _, second = desk.recording.given[0]
    await desk.execute(
        "WITH woken AS (UPDATE orders.open_order SET wakes = wakes + 1, due_at = now() + interval '1 h'"
        " WHERE reference = $1)"
        " UPDATE orders.\"order\" SET status = 'review', end_reason = 'unknown' WHERE reference = $1", second,
    )  # fmt: skip


@script("cancel_order", "retry_order", "resolve_order")
async def orders_are_retried_cancelled_and_resolved(desk: Desk) -> None:
    first, second = await desk.given(two_pending_orders)
    await find(desk, first)
    assert "tried again" in await desk.press("retry", "Retry now", reason="the fan calls")
    assert "Cancelled" in await desk.press("cancel", "Cancel the order", reason="a mistake")
    await expect(desk.page.locator("[data-order-status]")).to_have_text("Cancelled", timeout=LATE_MS)
    await expect(desk.page.locator("dialog ol.rows")).to_contain_text("a mistake")
    await desk.close()
    await desk.given(the_second_needs_a_person)
    review = desk.page.get_by_role("button", name="Review…")
    await desk.hears(expect(review).to_be_visible(timeout=LATE_MS))
    await review.click()
    await desk.page.locator(f"[data-order='{second}'] button").click()
    decided = await desk.press("resolve", "Resolve", decision="expire", reason="the bank has no such payment")
    assert "Decided." in decided
    await expect(desk.page.locator("[data-order-status]")).to_have_text("Expired", timeout=LATE_MS)
    await expect(desk.page.locator("dialog ol.rows")).to_contain_text("the bank has no such payment")


async def four_buy(desk: Any) -> str:
    """The reference of the last order."""
    fans = [await desk.fan() for _ in range(4)]
    bought = [await fan.buy(await fan.hold({"ga": [{"section_id": "GA", "quantity": 2}]})) for fan in fans]
    return str(bought[-1]["reference"])


@script(
    "refund_order", "start_event_refund", "pause_event_refund", "resume_event_refund",
)  # fmt: skip
async def tickets_are_refunded_and_then_the_event_with_a_pause(desk: Desk) -> None:
    await find(desk, await desk.given(four_buy))
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
    newest = desk.page.locator("[data-change]").first
    await desk.hears(expect(newest).to_contain_text("the bank agrees", timeout=LATE_MS))


async def two_are_named(desk: Any) -> str:
    """The reference of an order whose tickets have names."""
    await desk.execute("UPDATE orders.event SET names = 'ticket' WHERE event_id = $1", desk.event_id)
    fan = await desk.fan()
    held = await fan.hold({"ga": [{"section_id": "GA", "quantity": 2}]})
    question: QuoteRequest = {"reservation_id": held["reservation_id"]}

    async def quotes_ask() -> bool:
        return (await fan.client.quote(question, token=fan.admission)).get("names") == "ticket"

    await wait_until(quotes_ask, timeout_s=20, interval_s=0.2)
    order: NewOrder = {
        "reservation_id": held["reservation_id"], "expected_total_minor": held["total_amount_minor_units"],
        "currency": held["currency"], "customer": {"name": "Ada", "email": "ada@example.org"}, "payment": card("ok"),
        "names": ["Ada Lovelace", "Grace"],
    }  # fmt: skip
    answer = await fan.client.create_order(order, token=fan.admission)
    await fan.settled(answer)
    return str(answer["reference"])


@script("rename_tickets")
async def a_name_on_a_ticket_is_changed(desk: Desk) -> None:
    await find(desk, await desk.given(two_are_named))
    ticket = desk.action("rename").locator("[name=ticket] option")
    facts = desk.page.locator("dialog dl.facts")
    await expect(facts).to_contain_text("Ada Lovelace Grace")
    await desk.action("rename").get_by_role("button", name="Change a name…").click()
    await expect(ticket).to_have_text(["GA: Ada Lovelace", "GA: Grace"])
    second = await ticket.nth(1).get_attribute("value")
    changed = await desk.press(
        "rename", "Change a name", asks=False, ticket=second, new_name="Grace Hopper", reason="misspelt"
    )
    assert "Changed." in changed
    await expect(facts).to_contain_text("Ada Lovelace Grace Hopper")
    assert "misspelt" in {reason for _, _, reason in await desk.log()}


@script("put_promo_code", "deactivate_promo_code")
async def a_promo_code_is_made_and_stopped(desk: Desk) -> None:
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


async def somebody_listens(desk: Any) -> str:
    """The address of a receiver that is gone when the first message comes."""
    desk.receiver = await desk.stack.enter_async_context(webhook_receiver())
    desk.receiver.faults = ["gone"]
    return str(desk.receiver.url)


async def a_message_finds_nobody(desk: Any) -> str:
    """The webhook that is off then."""
    fan = await desk.fan()
    await fan.buy(await fan.hold({"ga": [{"section_id": "GA", "quantity": 1}]}))

    async def off() -> list[str]:
        found = (await desk.read("/admin/orders/webhooks"))["endpoints"]
        return [one["endpoint_id"] for one in found if one["event_id"] == desk.event_id and one["disabled_at"]]

    await wait_until(off, timeout_s=20, interval_s=0.3)
    [endpoint] = await off()
    return endpoint


def it_comes_signed_with(secret: str) -> Any:
    async def it_comes(desk: Any) -> bool:
        await wait_until(lambda: len(desk.receiver.received) > 1, timeout_s=20)
        return bool(desk.receiver.received[-1].verified(secret))

    return it_comes


@script(
    "create_webhook_endpoint", "resend_webhook", "enable_webhook_endpoint",
    "delete_webhook_endpoint",
)  # fmt: skip
async def a_webhook_is_made_sent_again_enabled_and_deleted(desk: Desk) -> None:
    url = await desk.given(somebody_listens)
    await desk.open("More", "Webhooks")
    assert "Made." in await desk.press("new-webhook", "New webhook", url=url, reason="the accounts")
    secret = await desk.page.locator("[data-once] textarea").input_value()
    endpoint = await desk.given(a_message_finds_nobody)
    await desk.close()
    await desk.open("More", "Webhooks")
    row = desk.page.locator(f"[data-webhook='{endpoint}']")
    await expect(row).to_contain_text("Off since")
    enabled = desk.action(f"enable-{endpoint}")
    await enabled.get_by_role("button", name="Enable…").click()
    await enabled.locator("[name=reason]").fill("it is there again")
    await enabled.get_by_role("button", name="Enable", exact=True).click()
    await expect(enabled).to_contain_text("Messages are sent again.")
    await expect(row).not_to_contain_text("Off since")
    await row.get_by_role("button", name="Deliveries").click()
    name = await row.locator("section li [data-action]").first.get_attribute("data-action")
    assert "sent again" in await desk.press(name or "", "Send again", reason="they lost it")
    assert await desk.given(it_comes_signed_with(secret))
    await desk.action(f"delete-{endpoint}").get_by_role("button", name="Delete…").click()
    await desk.action(f"delete-{endpoint}").locator("[name=reason]").fill("another address")
    await desk.action(f"delete-{endpoint}").get_by_role("button", name="Delete", exact=True).click()
    await expect(row).to_have_count(0)
    await expect(desk.page.locator("[data-deleted]")).to_contain_text(url)
    assert "another address" in {reason for _, _, reason in await desk.log()}


async def a_card_is_declined(desk: Any) -> None:
    fan = await desk.fan()
    await fan.order(await fan.hold({"ga": [{"section_id": "GA", "quantity": 1}]}), payment=card("decline"))

    async def failed() -> bool:
        path = f"/admin/orders/commands?event_id={desk.event_id}&status=failed"
        return bool((await desk.read(path))["commands"])

    await wait_until(failed, timeout_s=20, interval_s=0.2)


@script("set_background_share", "replay_command")
async def the_background_share_is_set_and_a_failed_command_runs_again(desk: Desk) -> None:
    await desk.given(a_card_is_declined)
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
