"""Every write of the admin API has a control that an operator can press: it does what it says, says what came of it,
acts once for a double click, and stands in the audit log with who did it and why.

Each test beside this names the endpoints whose controls it presses, and fails if the pages did not call one of them.
"""

from importlib import import_module
from pathlib import Path

import pytest

from shared.contracts.admin import inventory, prices, queue
from tests.browser.console.conftest import Open
from tests.browser.console.desk import FLOOR, PRESSED, Desk, Row, writes
from tests.support.running.fans import fan_of
from tests.support.running.suite import RunningSuite

pytestmark = pytest.mark.browser
NO_CONTROL: dict[Row, str] = {
    **{
        (
            endpoint.method,
            endpoint.path,
        ): "an event is made from its file, which the organiser keeps: `onsale events apply`"
        for endpoint in (queue.APPLY_EVENT, inventory.APPLY_EVENT, inventory.PUT_PICTURE, prices.APPLY_EVENT)
    },
    (
        "POST",
        "/admin/events/{event_id}/room/gate",
    ): "where a gate sends visitors is set up before the sale, by an admin",
}


def test_every_write_of_the_admin_api_has_a_control_or_a_reason_why_not() -> None:
    for theme in Path(__file__).parent.glob("test_*.py"):
        import_module(f"tests.browser.console.controls.{theme.stem}")
    assert PRESSED | NO_CONTROL.keys() == writes()
    assert not PRESSED & NO_CONTROL.keys()


async def test_the_report_is_saved_and_read_without_a_shell(suite: RunningSuite, open_page: Open) -> None:
    event_id = await suite.open_event(sections=FLOOR)
    async with suite.browser() as browser:
        fan = await fan_of(browser, event_id).come_in()
        await fan.buy(await fan.hold({"ga": [{"section_id": "GA", "quantity": 2}]}))
    page = await open_page(suite, f"events/{event_id}")
    desk = Desk(page, suite, event_id)
    await desk.open("More", "Report and tables")
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
    answer = await page.context.request.get(f"{suite.url}/console/api/events/{event_id}/report")
    assert (answer.status, answer.headers["cache-control"]) == (200, "no-store")
    assert "sandbox" in answer.headers["content-security-policy"]
    unknown = await page.context.request.get(f"{suite.url}/console/api/events/none-such/report")
    assert unknown.status == 404
    async with suite.browser() as stranger:
        assert (await stranger.get(f"/console/api/events/{event_id}/report")).status_code == 401
