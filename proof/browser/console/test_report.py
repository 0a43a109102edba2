"""The report and the tables of a sale, saved from the console of a running suite."""

from playwright.async_api import expect

from tests.browser.console.conftest import Open
from tests.browser.console.desk import FLOOR
from tests.support.running.fans import fan_of
from tests.support.running.suite import RunningSuite


async def test_the_report_is_saved_and_read_without_a_shell(suite: RunningSuite, open_page: Open) -> None:
    event_id = await suite.open_event(sections=FLOOR)
    async with suite.browser() as browser:
        fan = await fan_of(browser, event_id).come_in()
        await fan.buy(await fan.hold({"ga": [{"section_id": "GA", "quantity": 2}]}))
    page = await open_page(suite, f"events/{event_id}")
    await page.get_by_role("button", name="More").click()
    await page.get_by_role("button", name="Report and tables").click()
    await expect(page.get_by_role("link", name="Save the report")).to_be_focused()
    async with page.expect_download() as saved:
        await page.get_by_role("link", name="Save the report").click()
    file = await saved.value
    assert file.suggested_filename == f"{event_id}-report.html"
    text = (await file.path()).read_text()
    assert "A test: report of the sale" in text
    assert "could not be checked" not in text
    assert "@example.org" not in text, "it names no fan"
    async with page.expect_download() as saved:
        await page.get_by_role("link", name="Orders", exact=True).click()
    assert "@example.org" in (await (await saved.value).path()).read_text()
