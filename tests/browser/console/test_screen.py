"""The operator's screen: its figures are the API's, everything fits, and it works by keyboard and for all."""

import re
from typing import Any

import pytest
from playwright import async_api
from playwright.async_api import expect

from services.console.history.alarms import active_alarm
from tests.browser.console.conftest import DESKTOP, PHONE, WALL, Open, fake_stream, figure
from tests.browser.readability import AXE
from tests.support.running.fans import fan_of, has_status
from tests.support.running.suite import RunningSuite
from tests.support.wait import wait_until

SECTIONS = [{"section_id": "GA", "name": "Floor", "kind": "ga", "capacity": 40, "price_minor": 3000}]
WAITS_MS = 15_000
LOST_MS = 3_500
FOCUSED = "document.activeElement.getAttribute('aria-label')"


async def test_the_figures_are_those_of_the_api(suite: RunningSuite, open_page: Open) -> None:
    event_id = await suite.open_event(sections=SECTIONS, room={"rate_per_s": 20})
    async with suite.browser() as browser, suite.operator() as operator:
        for _ in range(2):
            fan = await fan_of(browser, event_id).come_in()
            await fan.buy(await fan.hold({"ga": [{"section_id": "GA", "quantity": 5}]}))
        await (await fan_of(browser, event_id).come_in()).hold({"ga": [{"section_id": "GA", "quantity": 3}]})
        page = await open_page(suite, f"events/{event_id}")
        await expect(figure(page, "Sold")).to_have_text("25 %", timeout=WAITS_MS)
        flow = (await operator.get(f"/admin/queue/events/{event_id}/flow")).json()
        room = (await operator.get(f"/admin/events/{event_id}/room")).json()
    await expect(page.locator("[data-section=GA] td.num")).to_have_text(["27", "3", "10"], timeout=WAITS_MS)
    steps = {name: page.locator(f"[data-step={name}] b") for name in ("joined", "called", "claimed", "confirmed")}
    await expect(steps["confirmed"]).to_have_text("2")
    for name in ("joined", "called", "claimed"):
        await expect(steps[name]).to_have_text(str(flow[name]))
    await expect(figure(page, "Waiting")).to_have_text(str(flow["waiting"]))
    await expect(page.locator("[data-tile=Admitted]")).to_contain_text(f"of {room['rate_per_s']:g} set")
    await expect(page.locator("[data-state=open]")).to_have_text("Open")
    await expect(page.locator("[data-proof]")).to_have_attribute("data-proof", "held", timeout=WAITS_MS)
    await expect(page.locator("[data-age]")).to_have_text(re.compile(r"figures [0-2]\.\d s old"))
    await expect(page.locator("[data-change=open]")).to_contain_text("by operator")
    await expect(page.locator("#stock-table")).to_contain_text("27", timeout=WAITS_MS)


async def test_a_change_by_somebody_else_appears_on_the_screen(suite: RunningSuite, open_page: Open) -> None:
    event_id = await suite.open_event(sections=SECTIONS)
    page = await open_page(suite, f"events/{event_id}")
    async with suite.operator() as operator:
        room = f"/admin/events/{event_id}/room"
        etag = (await operator.get(room)).headers["etag"]
        answer = await operator.patch(
            room, json={"rate_per_s": 7, "reason": "the bar is full"}, headers={"if-match": etag}
        )
        assert answer.is_success, answer.text
    await expect(page.locator("[data-tile=Admitted]")).to_contain_text("of 7 set", timeout=WAITS_MS)
    await expect(page.locator(".legend").first).to_contain_text("Set 7", timeout=WAITS_MS)
    change = page.locator("[data-change]").first
    await expect(change).to_contain_text("rate per s 1000 → 7", timeout=WAITS_MS)
    await expect(change).to_contain_text("the bar is full")


async def test_everything_fits_and_the_first_load_is_small(suite: RunningSuite, open_page: Open) -> None:
    desktop = await open_page(suite, "events/arena-2026")
    assert await desktop.evaluate("document.documentElement.scrollHeight <= innerHeight"), "without scrolling"
    files: list[str] = []
    desktop.on("request", lambda request: files.append(request.url.removeprefix(suite.url)))
    await desktop.goto(f"{suite.url}/console/")
    await expect(desktop.locator("[data-event=arena-2026]")).to_be_visible()
    assert len([path for path in files if not path.startswith("/console/api/")]) <= 4, files
    for size, path in ((PHONE, "events/arena-2026"), (WALL, "wall/arena-2026"), (PHONE, "")):
        page = await open_page(suite, path, size=size)
        assert await page.evaluate("document.documentElement.scrollWidth <= innerWidth"), (size, path)


async def test_the_age_of_one_events_figures_is_not_told_of_another(suite: RunningSuite, open_page: Open) -> None:
    page = await open_page(suite, f"events/{await suite.open_event(sections=SECTIONS)}")
    await page.get_by_role("link", name="All events").click()
    await page.route("**/arena-2026/stream", lambda route: None)  # no figures come
    await page.wait_for_timeout(LOST_MS)
    await page.locator("[data-event=arena-2026] a").first.click()
    await expect(page.get_by_text("Waiting for the first figures")).to_be_visible()
    await expect(page.locator("[data-age]")).to_have_text("connecting…")


@pytest.mark.parametrize("scheme", ["light", "dark"])
async def test_axe_finds_nothing(suite: RunningSuite, open_page: Open, scheme: str) -> None:
    for size, path in (
        (DESKTOP, "events/arena-2026"), (PHONE, "events/arena-2026"), (WALL, "wall/arena-2026"), (PHONE, ""),
    ):  # fmt: skip
        page = await open_page(suite, path, size=size, scheme=scheme)
        assert await violations(page) == [], (size, path)
        if size == DESKTOP:
            await page.keyboard.press("?")
            assert await violations(page) == [], "help"
        await page.context.close()
    assert await violations(await open_page(suite, signed_in=False, scheme=scheme)) == [], "sign-in"


async def violations(page: async_api.Page) -> list[Any]:
    """What axe complains about: the rule, and the first elements."""
    await page.evaluate(AXE)
    found = await page.evaluate("axe.run({resultTypes: ['violations']})")
    return [(one["id"], [node["html"][:200] for node in one["nodes"]][:3]) for one in found["violations"]]


async def test_what_a_fan_sees_is_what_the_fans_page_says(suite: RunningSuite, open_page: Open) -> None:
    event_id = await suite.open_event(sections=SECTIONS, room={"rate_per_s": 0.05, "burst": 1})
    fans = []
    async with (
        suite.browser() as first,
        suite.browser() as second,
        suite.browser() as third,
        suite.operator() as operator,
    ):
        for browser in (first, second, third):
            fans.append(fan := fan_of(browser, event_id))
            await fan.join()
        message = f"/admin/events/{event_id}/room/message"
        assert (await operator.post(message, json={"message": "Doors at eight.", "reason": "x"})).is_success
        last = fans[-1]
        await wait_until(lambda: has_status(last, "waiting"))
        place = (await last.status())["position_in_queue"]
        page = await open_page(suite, f"events/{event_id}")
        await page.get_by_role("button", name="More").click()
        await page.get_by_role("button", name="What a fan sees").click()
        eye = page.locator("[data-fan-eye]")
        await page.get_by_label("Position in line").fill(str(place))
        await expect(eye.locator("[data-place]")).to_have_text(str(place))
        await expect(eye).to_contain_text("Doors at eight.", timeout=WAITS_MS)
        fans_page = await page.context.new_page()
        host = suite.url.partition("//")[2].partition(":")[0]
        await page.context.add_cookies(
            [{"name": f"onsale_queue_{event_id}", "value": str(last.queue_token), "domain": host, "path": "/"}]
        )
        await fans_page.goto(f"{suite.url}/e/{event_id}")
        estimate = fans_page.locator("#estimate")
        await expect(estimate).to_contain_text("Your turn in", timeout=WAITS_MS)
        await expect(eye.locator("[data-estimate]")).to_have_text(await estimate.inner_text(), timeout=WAITS_MS)
    await page.get_by_label("Position in line").fill("nothing")
    await expect(page.get_by_text("Give a position from 1 on.")).to_be_visible()


async def test_an_alarm_from_before_the_page_was_opened_stands_in_the_timeline(
    suite: RunningSuite, open_page: Open
) -> None:
    page = await open_page(suite, "events/arena-2026")
    now_ms: int = await page.evaluate("Date.now()")
    alarm = {
        "name": "QueueLong", "severity": "warning", "summary": "600,000 fans wait", "do": "Nothing.",
        "since_ms": now_ms - 300_000, "ended_ms": now_ms - 240_000,
    }  # fmt: skip

    async def with_alarm(route: Any) -> None:
        answer = await route.fetch()
        await route.fulfill(response=answer, json={**await answer.json(), "alarms": [alarm]})

    await page.route("**/vitals?*", with_alarm)
    await page.get_by_role("button", name="1 h").click()
    entry = page.get_by_role("region", name="Changes and alarms").get_by_text("QueueLong")
    await expect(entry).to_be_visible()
    await expect(page.get_by_role("listitem").filter(has_text="QueueLong")).to_contain_text("ended after 1 min")
    await page.get_by_role("button", name="24 h").click()
    await page.wait_for_timeout(500)
    await expect(entry).to_have_count(1)


async def test_an_alarm_brings_its_entry_of_the_runbook_and_stays_one_when_it_changes(
    suite: RunningSuite, open_page: Open
) -> None:
    page = await open_page(suite, "events/arena-2026", size=PHONE)
    now_ms: int = (await fake_stream(page))["vitals"]["at_ms"]
    notice = page.locator("[data-alarm=StepsFail]")
    timeline = page.get_by_role("region", name="Changes and alarms").get_by_text("StepsFail")

    async def send(*alarms: tuple[str, int]) -> None:
        found = [active_alarm("StepsFail", summary=text, since_ms=since_ms).model_dump() for text, since_ms in alarms]
        await page.evaluate("found => window.send('alarms', found)", found)

    await send(("7 % of the steps fail", now_ms - 60_000))
    await expect(notice).to_contain_text("Provider away: nothing")
    log = notice.get_by_text("orders_step_failures_total")
    await expect(log).to_be_hidden()
    entry = notice.get_by_text("Runbook")
    box = await entry.bounding_box()
    assert box is not None
    assert box["height"] >= 44, "for a thumb"
    await entry.click()
    await expect(log).to_be_visible()
    await expect(notice).to_contain_text("the payment provider, inventory or the database does not answer")
    await send(("9 % of the steps fail", now_ms - 90_000))
    await expect(notice).to_contain_text("9 % of the steps fail")
    await expect(log).to_be_visible()
    await expect(timeline).to_have_count(1)
    assert await page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    assert await violations(page) == []
    await send()
    await expect(notice).to_have_count(0)
    await expect(page.get_by_text("ended after 1 min 30 s")).to_be_visible()


async def test_keys_help_and_can_be_switched_off(suite: RunningSuite, open_page: Open) -> None:
    page = await open_page(suite, "events/arena-2026")
    dialog = page.get_by_role("dialog", name="Keys")
    await page.keyboard.press("?")
    await expect(dialog).to_be_visible()
    await dialog.get_by_role("checkbox").uncheck()
    await page.keyboard.press("Escape")
    await expect(dialog).to_be_hidden()
    await page.reload()
    await page.locator("[data-tile]").first.wait_for()
    await page.keyboard.press("?")
    await expect(dialog).to_be_hidden()
    await page.get_by_role("button", name="Help and keys, off").click()
    await dialog.get_by_role("checkbox").check()
    await page.keyboard.press("Escape")
    await page.keyboard.press("?")
    await expect(dialog).to_be_visible()


async def test_a_keyboard_moves_the_cursor_of_both_charts(suite: RunningSuite, open_page: Open) -> None:
    page = await open_page(suite, "events/arena-2026")
    await expect(page.locator("#line-table tbody tr").nth(1)).to_be_attached(timeout=WAITS_MS)
    await page.get_by_role("group", name="Line chart").focus()
    await page.keyboard.press("Home")
    first = await page.locator(".legend .at").first.inner_text()
    assert re.fullmatch(r"\d\d:\d\d:\d\d", first)
    assert await page.locator(".legend .at").all_inner_texts() == [first, first]
    await expect(page.locator(".charts > [aria-live]")).to_contain_text(f"{first}: Waiting ")
    await expect(page.locator("#line-table tbody tr").nth(3)).to_be_attached(
        timeout=WAITS_MS
    )  # two may be of one second
    for _ in range(3):
        await page.keyboard.press("ArrowRight")
    assert await page.locator(".legend .at").first.inner_text() > first
    assert await page.evaluate(f"{FOCUSED}.startsWith('Line chart')")


async def test_a_replay_is_marked_and_ends_with_escape(suite: RunningSuite, open_page: Open) -> None:
    event_id = await suite.open_event(sections=SECTIONS)
    async with suite.browser() as browser:
        fan = await fan_of(browser, event_id).come_in()
        page = await open_page(suite, f"events/{event_id}")
        await fan.buy(await fan.hold({"ga": [{"section_id": "GA", "quantity": 4}]}))
    await expect(figure(page, "Sold")).to_have_text("10 %", timeout=WAITS_MS)
    await page.get_by_role("button", name="Replay").click()
    replay = page.get_by_role("region", name="Replay")
    await expect(replay).to_be_visible()
    await expect(page.get_by_text("replayed figures")).to_be_visible()
    await expect(figure(page, "Sold")).to_have_text("10 %", timeout=WAITS_MS)
    await page.keyboard.press("Escape")
    await expect(replay).to_be_hidden()
    await expect(page.locator("[data-age]")).to_contain_text("s old")
