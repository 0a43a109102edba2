"""The operator's screen at a running suite: changes of others, what a fan sees, the replay of what was kept, and what
it says when something fails.

A screen that stays open: eight hours of figures, sent as fast as the page takes them, leave heap and work flat.

The page reads them from streams of its own `EventSource`: each ends after some minutes of figures and is opened again.
"""

import asyncio
import math
import signal
import time
from collections.abc import Callable, Iterator
from statistics import median
from typing import Any

import orjson
import pytest
from playwright.async_api import CDPSession, Route, expect

from onsale.local.engines import Engines
from proof.drills.parts import SuiteOfParts, running_parts
from tests.browser.console.conftest import Open, figure, violations
from tests.browser.console.desk import FLOOR
from tests.support.engines.tcp_proxy import Mode, TcpProxy
from tests.support.running.suite import RunningSuite, fan_of, has_status
from tests.support.wait import wait_until

SECTIONS = [{"section_id": "GA", "name": "Floor", "kind": "ga", "capacity": 40, "price_minor": 3000}]
WAITS_MS = 15_000


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


SESSION = "**/console/session"


async def test_a_key_signs_in_and_the_screen_signs_out(suite: RunningSuite, open_page: Open) -> None:
    page = await open_page(suite, signed_in=False)
    key = page.get_by_label("Operator's key")
    await expect(key).to_be_focused()
    assert await key.get_attribute("autocomplete") == "current-password"
    await key.fill("a wrong key")
    await page.keyboard.press("Enter")
    await expect(page.get_by_role("alert")).to_have_text("This key is not known.")
    await key.fill(suite.admin_key)
    await page.keyboard.press("Enter")
    await page.locator("[data-event=arena-2026] a").click()
    await expect(page).to_have_url(f"{suite.url}/console/events/arena-2026")
    await page.get_by_role("button", name="Sign out").click()
    await expect(key).to_be_visible()
    await page.reload()
    await expect(key).to_be_visible()


async def test_after_too_many_wrong_keys_the_right_one_still_signs_in(suite: RunningSuite, open_page: Open) -> None:
    page = await open_page(suite, signed_in=False)
    await page.set_extra_http_headers({"x-forwarded-for": "203.0.113.29"})  # not the address of the other tests
    key, alert = page.get_by_label("Operator's key"), page.get_by_role("alert")
    for _ in range(6):
        await key.fill("not the key of anybody")
        async with page.expect_response(SESSION):
            await page.keyboard.press("Enter")
        await expect(alert).not_to_be_empty()
    await expect(alert).to_contain_text("Too many wrong keys")
    await key.fill(suite.admin_key)
    await page.keyboard.press("Enter")
    await expect(page.locator("[data-event=arena-2026]")).to_be_visible()


async def test_a_link_signs_in_and_leaves_the_address(suite: RunningSuite, open_page: Open) -> None:
    link = (suite.data_dir / "console.link").read_text().strip()
    path = link.removeprefix(f"{suite.url}/console/")
    page = await open_page(suite, path, signed_in=False)
    await expect(page.locator("[data-event=arena-2026]")).to_be_visible()
    assert page.url == f"{suite.url}/console/"
    used = await open_page(suite, path, signed_in=False)
    await expect(used.get_by_role("alert")).to_contain_text("used before")
    assert used.url == f"{suite.url}/console/"


WITHIN_S = 3.0
SLACK_S = 2.5  # a figure is heard each second, and a loaded machine is late
AGAIN_MS = 20_000


@pytest.fixture(scope="module")
def parts(engines: Engines, migrated: str) -> Iterator[SuiteOfParts]:
    with running_parts(engines, migrated, "failing_parts") as suite:
        yield suite


@pytest.mark.parametrize("scheme", ["light", "dark"])
async def test_the_figures_of_a_silent_part_grey_within_three_seconds_and_stay_readable(
    parts: SuiteOfParts, open_page: Open, scheme: str
) -> None:
    event_id = await parts.open_event(sections=SECTIONS)
    page = await open_page(parts, f"events/{event_id}", scheme=scheme)
    inventory = parts.programs["inventory"]
    sold, waiting = page.locator("[data-tile=Sold]"), page.locator("[data-tile=Waiting]")
    await expect(sold).not_to_contain_text("not heard")
    inventory.send(signal.SIGSTOP)
    try:
        await expect(sold).to_contain_text("inventory not heard for", timeout=(WITHIN_S + SLACK_S) * 1000)
        assert "stale" in (await sold.get_attribute("class") or "").split()
        await expect(waiting).not_to_contain_text("not heard")
        assert await violations(page) == []
    finally:
        inventory.send(signal.SIGCONT)
    await expect(sold).not_to_contain_text("not heard", timeout=AGAIN_MS)


async def test_after_the_console_was_killed_the_screen_goes_on_by_itself(parts: SuiteOfParts, open_page: Open) -> None:
    event_id = await parts.open_event(sections=SECTIONS)
    page = await open_page(parts, f"events/{event_id}")
    async with parts.browser() as browser:
        await parts.restart("console", signal.SIGKILL)
        await (await fan_of(browser, event_id).come_in()).hold({"ga": [{"section_id": "GA", "quantity": 4}]})
        await wait_until_it_answers(parts)
        answers_s = time.monotonic()
        await expect(page.locator("[data-age]")).to_contain_text("s old", timeout=AGAIN_MS)
        assert time.monotonic() - answers_s < WITHIN_S
        await expect(page.locator("[data-section=GA] td.num").nth(1)).to_have_text("4", timeout=AGAIN_MS)
    await expect(figure(page, "Sold")).to_have_text("0 %")


@pytest.mark.parametrize("fault", ["resets", "swallows"])
async def test_a_stream_that_is_cut_or_goes_silent_is_opened_again(
    suite: RunningSuite, open_page: Open, fault: Mode
) -> None:
    with TcpProxy(suite.url) as proxy:
        page = await open_page(suite, "events/arena-2026", url=proxy.url)
        proxy.set_mode(fault)
        await expect(page.locator("[data-age]")).to_contain_text("connection lost, figures from", timeout=10_000)
        await expect(page.locator("[data-tile=Waiting]")).to_contain_text("console not heard for", timeout=10_000)
        proxy.set_mode("resets")
        proxy.set_mode("passes")
        again_s = time.monotonic()
        await expect(page.locator("[data-age]")).to_contain_text("s old", timeout=AGAIN_MS)
        assert time.monotonic() - again_s < WITHIN_S + SLACK_S


async def wait_until_it_answers(suite: RunningSuite) -> None:
    async with suite.operator() as operator:

        async def answers() -> bool:
            return (await operator.get("/console/api/events")).status_code == 200

        await wait_until(answers, timeout_s=20, interval_s=0.1)


HOURS, PER_HOUR, PART_S, KEPT_S = 8, 3_600, 1_800, 900  # figures an hour, sent at once, and kept by the page
CHANGES_MAX = 200
SAMPLES, REOPENS_WITHIN_S = 3, 60
HEAP_MORE_MB, WORK_MORE = 0.7, 1.5


def message(name: str, data: object) -> bytes:
    return b"event: %b\ndata: %b\n\n" % (name.encode(), orjson.dumps(data))


def figures_of(snapshot: dict[str, Any], seconds: int) -> Callable[[int], bytes]:
    """Makes the next part of the stream from the event's snapshot: figures of each second, a change each minute, and an
    alarm that comes and goes.
    """
    vitals = snapshot["vitals"]

    def part(first: int) -> bytes:
        body = [message("snapshot", snapshot)]
        for n in range(first, first + seconds):
            vitals["at_ms"] += 1000
            vitals["line"]["waiting"] = 50_000 + round(40_000 * math.sin(n / 700))
            vitals["rate"]["called_per_s"] = 50 + n % 7
            vitals["stock"]["sold"] = n // 40
            body.append(message("vitals", vitals))
            if n % 60 == 0:
                change = {
                    "service": "queue", "id": n, "at_ms": vitals["at_ms"], "actor": "ann", "action": "set",
                    "subject": "event:x", "reason": None, "before": {"rate_per_s": n}, "after": {"rate_per_s": n + 1},
                }  # fmt: skip
                snapshot["changes"] = [change, *snapshot["changes"]][:CHANGES_MAX]
                body.append(message("change", change))
            if n % 150 == 0:
                alarm = {
                    "name": "QueueLong", "severity": "warning", "summary": "many", "meaning": "many",
                    "check_first": "all", "do": "wait",
                    "since_ms": vitals["at_ms"],
                }  # fmt: skip
                snapshot["alarms"] = [] if n % 300 else [alarm]
                body.append(message("alarms", snapshot["alarms"]))
        return b"".join(body)

    return part


async def heap_mb(session: CDPSession) -> float:
    """The page's heap after a full collection."""
    await session.send("HeapProfiler.collectGarbage")
    return float((await session.send("Runtime.getHeapUsage"))["usedSize"]) / 1e6


async def worked_ms(session: CDPSession) -> float:
    """The page's processor time so far."""
    metrics = (await session.send("Performance.getMetrics"))["metrics"]
    return 1000 * next(float(one["value"]) for one in metrics if one["name"] == "TaskDuration")


@pytest.mark.timeout(900)
async def test_heap_and_work_stay_flat(suite: RunningSuite, open_page: Open) -> None:
    page = await open_page(suite, "events/arena-2026")
    snapshot = await page.evaluate(
        """() => new Promise((found) => {
            const stream = new EventSource("/console/api/events/arena-2026/stream");
            stream.addEventListener("snapshot", (event) => { stream.close(); found(JSON.parse(event.data)); });
        })"""
    )
    next_part = figures_of(snapshot, PART_S)
    opened: asyncio.Queue[Route] = asyncio.Queue()
    await page.route("**/api/events/arena-2026/stream", opened.put)
    session = await page.context.new_cdp_session(page)
    await session.send("Performance.enable", {"timeDomain": "threadTicks"})  # processor time, not that of the clock
    await page.reload()
    heaps: list[float] = []
    works_ms: list[float] = []
    before_ms = 0.0
    for first in range(0, HOURS * PER_HOUR + 1, PART_S):
        async with asyncio.timeout(REOPENS_WITHIN_S):
            stream = await opened.get()  # it has taken all that the last one brought
        works_ms.append((await worked_ms(session) - before_ms) / PART_S)
        heaps.append(await heap_mb(session))
        before_ms = await worked_ms(session)
        await stream.fulfill(body=next_part(first), content_type="text/event-stream")
    del works_ms[0], heaps[0]  # of a page without figures
    assert await page.evaluate("document.querySelectorAll('*').length") < 3_000
    found = f"heap in MB {heaps}, work for each second of figures in ms {works_ms}"
    parts = math.ceil(KEPT_S / PART_S)
    full = slice(parts, parts + SAMPLES)
    assert median(heaps[-SAMPLES:]) < median(heaps[full]) + HEAP_MORE_MB, found
    assert median(works_ms[-SAMPLES:]) < WORK_MORE * median(works_ms[full]), found
