"""The drawer of a rehearsal: started by mouse, watched, told how it went, removed; the event itself does not move."""

import re
from typing import Any

from playwright.async_api import Request, expect

from tests.browser.console.desk import LATE_MS, Desk, script
from tests.support.wait import wait_until

FANS, OVER_MS = 200, 90_000


async def it_is_gone(desk: Any) -> None:
    async def gone() -> bool:
        return bool((await desk.operator.get(f"/console/api/events/{desk.event_id}/rehearsal")).status_code == 404)

    await wait_until(gone)


@script()  # of the admin API nothing: the rehearsal is the console's own
async def a_rehearsal_is_started_watched_and_removed(desk: Desk) -> None:
    started: list[str] = []

    def record(request: Request) -> None:
        if request.method == "POST" and request.url.endswith("/rehearsal"):
            started.append(request.url)

    desk.page.on("request", record)
    before = await desk.stock()
    await desk.open("More", "Rehearsal")
    form = desk.action("start-rehearsal")
    await form.locator("[name=fans]").fill("20001")
    await expect(form).to_contain_text("A whole number from 1 to 20,000.")
    await form.locator("[name=fans]").fill(str(FANS))
    await form.locator("[name=reason]").fill("the night before")
    await form.get_by_role("button", name="Start the rehearsal", exact=True).dblclick()
    shown = desk.page.locator("[data-rehearsal]")
    await expect(shown).to_be_visible(timeout=LATE_MS)
    assert len(started) == 1, "a double click starts one"
    await expect(shown).to_contain_text("By operator: the night before")
    await expect(shown.locator("[data-copy]")).to_have_text(f"Watch its copy, {desk.event_id}-rehearsal")
    await expect(shown.get_by_text("fans runs.")).to_be_hidden(timeout=OVER_MS)
    assert await shown.get_attribute("data-rehearsal") == "done", await shown.inner_text()
    await expect(shown.locator("[data-result=sold]")).to_have_text(re.compile(r"[1-9][0-9]* of [0-9]+ tickets"))
    await expect(shown.locator("[data-result=proof]")).to_have_text("0 oversold, 0 duplicates, 0 inversions")
    await expect(shown.locator("[data-verdict]")).to_have_text(re.compile("^Nothing was sold twice"))
    assert await desk.stock() == before, "nothing of the event itself was sold"
    remove = desk.action("remove-rehearsal")
    await remove.get_by_role("button", name="Remove…", exact=True).click()
    await remove.get_by_role("button", name="Remove", exact=True).click()
    await expect(shown).to_be_hidden(timeout=LATE_MS)
    await desk.given(it_is_gone)
