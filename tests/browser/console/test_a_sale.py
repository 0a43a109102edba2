"""The console of a running suite: an operator signs in, sees a sale, tunes its rate and refunds an order."""

import re

import pytest
from playwright.async_api import expect

from tests.browser.console.conftest import Open, figure
from tests.browser.console.desk import FLOOR, LATE_MS
from tests.support.running.suite import RunningSuite, fan_of

pytestmark = pytest.mark.browser


async def test_an_operator_signs_in_sees_a_sale_tunes_its_rate_and_refunds_an_order(
    suite: RunningSuite, open_page: Open
) -> None:
    event_id = await suite.open_event(sections=FLOOR, room={"rate_per_s": 20})
    async with suite.browser() as browser, suite.operator() as operator:
        fans = [await fan_of(browser, event_id).come_in() for _ in range(2)]
        order, _ = [await fan.buy(await fan.hold({"ga": [{"section_id": "GA", "quantity": 5}]})) for fan in fans]
        await (await fan_of(browser, event_id).come_in()).hold({"ga": [{"section_id": "GA", "quantity": 3}]})
        page = await open_page(suite, f"events/{event_id}", signed_in=False)
        await page.get_by_label("Operator's key").fill(suite.admin_key)
        await page.keyboard.press("Enter")
        await expect(figure(page, "Sold")).to_have_text("25 %", timeout=LATE_MS)
        await expect(page.locator("[data-section=GA] td.num")).to_have_text(["27", "3", "10"], timeout=LATE_MS)
        flow = (await operator.get(f"/admin/queue/events/{event_id}/flow")).json()
        for name in ("joined", "called", "claimed"):
            await expect(page.locator(f"[data-step={name}] b")).to_have_text(str(flow[name]))
        await expect(page.locator("[data-proof]")).to_have_attribute("data-proof", "held", timeout=LATE_MS)
        await expect(page.locator("[data-age]")).to_have_text(re.compile(r"figures \d\.\d s old"))
        await page.get_by_role("navigation", name="Controls").get_by_role("button", name="Rate").click()
        form, obeyed = page.locator("dialog [data-action=set-rate]"), page.locator("[data-obeyed]")
        room = f"/admin/events/{event_id}/room"
        await form.locator("input[name=rate_per_s]").first.fill("12")
        await form.get_by_role("button", name="Set the rate", exact=True).click()
        await expect(obeyed).to_have_text(re.compile("^Obeyed after"), timeout=LATE_MS)
        assert (await operator.get(room)).json()["effective_rate_per_s"] <= 12
        await form.get_by_role("button", name="Back to 20/s").click()
        await expect(form).to_contain_text("Taken back.")
        assert (await operator.get(room)).json()["rate_per_s"] == 20
        await page.keyboard.press("Escape")
        await expect(page.locator("dialog.drawer")).to_be_hidden()
        change = page.locator("[data-change]", has_text="rate per s 20 → 12")
        await expect(change).to_be_visible(timeout=LATE_MS)
        await page.keyboard.press("/")
        await page.locator("dialog [name=search]").fill(order["reference"])
        await page.locator(f"[data-order='{order['reference']}'] button").click()
        refund = page.locator("dialog [data-action=refund]")
        await refund.get_by_role("button", name="Refund…").click()
        await refund.locator("[name=what]").select_option("amount")
        await refund.locator("[name=amount]").fill("12.50")
        await refund.locator("[name=reason]").fill("a seat behind a pillar")
        await refund.get_by_role("button", name="Refund", exact=True).click()
        await expect(refund.locator("[data-done]")).to_contain_text("€12.50")
        await expect(page.locator("[data-order-status]")).to_have_text("Partially refunded", timeout=LATE_MS)
        report = f"/console/api/events/{event_id}/report"
        answer = await operator.get(report, params={"download": True})
        assert "A test: report of the sale" in answer.text
        assert "could not be checked" not in answer.text
        assert "@example.org" not in answer.text, "it names no fan"
        assert answer.headers["content-disposition"] == f'attachment; filename="{event_id}-report.html"'
        assert answer.headers["cache-control"] == "no-store"
        assert "sandbox" in answer.headers["content-security-policy"]
        assert (await operator.get(report.replace(event_id, "none-such"))).status_code == 404
        assert (await browser.get(report)).status_code == 401
