"""The operator's screen alone: everything fits, it works by keyboard and for all, and says what it no longer hears;
and the page for signing in: a key, a link, and what it says when they do not work.
"""

import re

import pytest
from playwright.async_api import Page, expect

from features.console.gathering.alarms import active_alarm
from shared.errors.problems import BadCredential, TooManyWrongCodes
from tests.browser.console.conftest import DESKTOP, PHONE, WALL, OpenAlone, figure, violations
from tests.browser.console.recorded import URL, Alone, Answer, RecordedDesk

pytestmark = pytest.mark.browser
FOCUSED = "document.activeElement.getAttribute('aria-label')"
SCREENS = ((DESKTOP, "events/{event}"), (PHONE, "events/{event}"), (WALL, "wall/{event}"), (PHONE, ""))
SILENT_MS = 5_000
CONTRAST = ("color-contrast",)


async def figures_come(desk: RecordedDesk, seconds: int) -> None:
    """The figures of so many seconds, one after the other."""
    vitals = desk.alone.recording.heard[-1]["vitals"]
    last_ms = desk.alone.read(f"/console/api/events/{desk.event_id}/vitals")["at_ms"][-1]
    for second in range(1, seconds + 1):
        await desk.send("vitals", vitals | {"at_ms": last_ms + 1000 * second})


async def test_the_figures_are_those_of_the_stream(alone: OpenAlone) -> None:
    desk = await alone(heard=-1)
    page = desk.page
    await expect(figure(page, "Sold")).to_have_text("16 %")
    await expect(figure(page, "Waiting")).to_have_text("3")
    await expect(page.locator("[data-section=GA] td.num")).to_have_text(["27", "3", "10"])
    for name, fans in (("joined", 7), ("called", 4), ("claimed", 4), ("confirmed", 2)):
        await expect(page.locator(f"[data-step={name}] b")).to_have_text(str(fans))
    await expect(page.locator("[data-tile=Admitted]")).to_contain_text("of 0.1 set")
    await expect(page.locator("[data-state=open]")).to_have_text("Open")
    await expect(page.locator("[data-age]")).to_have_text(re.compile(r"figures \d\.\d s old"))
    await expect(page.locator("[data-change=open]")).to_contain_text("by operator")
    await expect(page.locator("#stock-table")).to_contain_text("46")


async def test_a_change_by_somebody_else_appears_on_the_screen(alone: OpenAlone) -> None:
    desk = await alone(heard=-1)
    [newest, *_] = desk.alone.recording.heard[-1]["changes"]
    rates = {"before": {"rate_per_s": 1000}, "after": {"rate_per_s": 7}}
    change = newest | rates | {"id": 77, "service": "queue", "action": "change", "reason": "the bar is full"}
    await desk.send("change", change | {"at_ms": newest["at_ms"] + 1000})
    shown = desk.page.locator("[data-change]").first
    await expect(shown).to_contain_text("rate per s 1000 → 7")
    await expect(shown).to_contain_text("the bar is full")


async def test_everything_fits_and_the_first_load_is_small(alone: OpenAlone) -> None:
    files: list[str] = []

    async def count(page: Page, _: Alone) -> None:
        page.on("request", lambda request: files.append(request.url.removeprefix(URL)))

    desk = await alone(path="", prepare=count)
    await expect(desk.page.locator(f"[data-event={desk.event_id}]")).to_be_visible()
    assert len([path for path in files if not path.startswith("/console/api/")]) <= 4, files
    for size, path in SCREENS:
        page = (await alone(path=path, size=size, heard=-1)).page
        high, wide = ("document.documentElement.scroll" + each for each in ("Height", "Width"))
        fits = f"{high} <= innerHeight" if size == DESKTOP else f"{wide} <= innerWidth"
        assert await page.evaluate(fits), (size, path)


@pytest.mark.parametrize(("scheme", "rules"), [("light", ()), pytest.param("dark", CONTRAST, marks=pytest.mark.proof)])
async def test_axe_finds_nothing(alone: OpenAlone, scheme: str, rules: tuple[str, ...]) -> None:
    """The schemes differ in their colours alone."""
    for size, path in SCREENS:
        page = (await alone(path=path, size=size, scheme=scheme, heard=-1)).page
        assert await violations(page, *rules) == [], (size, path)
        if size == DESKTOP:
            await page.keyboard.press("?")
            assert await violations(page, *rules) == [], "help"

    async def nobody(_: Page, found: Alone) -> None:
        found.instead["GET", "/console/session"] = [Answer(401, None, {})]

    assert await violations((await alone(path="", scheme=scheme, prepare=nobody)).page, *rules) == [], "sign-in"


async def test_the_age_of_one_events_figures_is_not_told_of_another(alone: OpenAlone) -> None:
    async def timed(page: Page, _: Alone) -> None:
        await page.clock.install()

    desk = await alone(prepare=timed)
    page = desk.page
    await page.get_by_role("link", name="All events").click()
    await page.evaluate("window.first = null")  # no figures come
    await page.clock.fast_forward(3_500)
    await page.locator(f"[data-event={desk.event_id}] a").first.click()
    await expect(page.get_by_text("Waiting for the first figures")).to_be_visible()
    await expect(page.locator("[data-age]")).to_have_text("connecting…")


@pytest.mark.parametrize("scheme", [pytest.param("light", marks=pytest.mark.proof), "dark"])
async def test_the_figures_of_a_silent_part_are_grey_and_stay_readable(alone: OpenAlone, scheme: str) -> None:
    desk = await alone(heard=-1, scheme=scheme)
    sold, vitals = desk.page.locator("[data-tile=Sold]"), desk.alone.recording.heard[-1]["vitals"]
    for age_s, at_ms in ((4.0, 1000), (0.2, 2000)):
        ages = vitals["ages"] | {"inventory": age_s}
        await desk.send("vitals", vitals | {"ages": ages, "at_ms": vitals["at_ms"] + at_ms})
        if age_s < 1:
            await expect(sold).not_to_contain_text("not heard")
        else:
            await expect(sold).to_contain_text("inventory not heard for 4 s")
            assert "stale" in (await sold.get_attribute("class") or "").split()
            await expect(desk.page.locator("[data-tile=Waiting]")).not_to_contain_text("not heard")
            assert await violations(desk.page, *CONTRAST) == []


async def test_figures_that_nobody_counts_are_named_as_missing(alone: OpenAlone) -> None:
    desk = await alone(heard=-1)
    vitals = desk.alone.recording.heard[-1]["vitals"]
    unknown = {"wait": {"p50_s": None, "p95_s": None}, "without_reports": ["queue", "orders"]}
    await desk.send("vitals", vitals | unknown | {"at_ms": vitals["at_ms"] + 1000})
    await expect(desk.page.locator("[data-without-reports]")).to_contain_text("Reports are off in queue, orders")
    await expect(desk.page.locator("[data-tile=Wait]")).to_contain_text("not counted: reports are off")
    await expect(desk.page.locator("[data-tile=Waiting]")).not_to_contain_text("not counted")


@pytest.mark.parametrize("breaks", [True, False])
async def test_a_stream_that_is_cut_or_goes_silent_is_opened_again(alone: OpenAlone, breaks: bool) -> None:
    async def timed(page: Page, _: Alone) -> None:
        await page.clock.install()

    desk = await alone(heard=-1, prepare=timed)
    page, age = desk.page, desk.page.locator("[data-age]")
    await page.evaluate("window.before = window.stream; window.latest = window.first; window.first = null")
    if breaks:
        await page.evaluate("window.stream.dispatchEvent(new Event('error'))")
    await page.clock.fast_forward(SILENT_MS - 1_000)
    await expect(age).to_contain_text("connection lost, figures from")
    await expect(page.locator("[data-tile=Waiting]")).to_contain_text("console not heard for")
    await page.clock.run_for(2_000)
    assert await page.evaluate("window.stream !== null && window.stream !== window.before"), "another stream"
    await page.evaluate("window.send('snapshot', window.latest)")
    await expect(age).to_contain_text("s old")


async def test_an_event_that_is_gone_is_said(alone: OpenAlone) -> None:
    desk = await alone()
    desk.alone.instead["GET", f"/console/api/events/{desk.event_id}/stream"] = [Answer(404, None, {})]
    await desk.page.evaluate("window.stream.readyState = 2; window.stream.dispatchEvent(new Event('error'))")
    await expect(desk.page.get_by_role("heading", name=f"No event {desk.event_id}")).to_be_visible()


async def test_what_a_fan_sees_is_told_in_the_words_of_the_fans_page(alone: OpenAlone) -> None:
    desk = await alone(heard=-1)
    path = f"/console/api/events/{desk.event_id}/fan-view"
    view = desk.alone.read(f"{path}?position=1")
    view |= {"position_in_queue": 3, "estimated_wait_low": 180, "estimated_wait_high": 300}
    desk.alone.instead["GET", path] = [Answer(200, None, view)]
    await desk.open("More", "What a fan sees")
    eye = desk.page.locator("[data-fan-eye]")
    await desk.page.get_by_label("Position in line").fill("3")
    await expect(eye.locator("[data-place]")).to_have_text("3")
    await expect(eye).to_contain_text("Doors at eight.")
    await expect(eye.locator("[data-estimate]")).to_contain_text(re.compile(r"Your turn in .*3.*5"))
    await desk.page.get_by_label("Position in line").fill("nothing")
    await expect(desk.page.get_by_text("Give a position from 1 on.")).to_be_visible()


async def test_an_alarm_from_before_the_page_was_opened_stands_in_the_timeline(alone: OpenAlone) -> None:
    desk = await alone()
    page, path = desk.page, f"/console/api/events/{desk.event_id}/vitals"
    now_ms: int = desk.alone.recording.heard[0]["vitals"]["at_ms"]
    alarm = active_alarm("QueueLong", summary="600,000 fans wait", since_ms=now_ms - 300_000).model_dump()
    desk.alone.change(path, alarms=[alarm | {"ended_ms": now_ms - 240_000}])
    await page.get_by_role("button", name="1 h").click()
    entry = page.get_by_role("region", name="Changes and alarms").get_by_text("QueueLong")
    await expect(entry).to_be_visible()
    await expect(page.get_by_role("listitem").filter(has_text="QueueLong")).to_contain_text("ended after 1 min")
    async with page.expect_response("**/vitals?*"):
        await page.get_by_role("button", name="24 h").click()
    await expect(entry).to_have_count(1)


async def test_an_alarm_brings_its_entry_of_the_runbook_and_stays_one_when_it_changes(alone: OpenAlone) -> None:
    desk = await alone(size=PHONE)
    page = desk.page
    now_ms: int = desk.alone.recording.heard[0]["vitals"]["at_ms"]
    notice = page.locator("[data-alarm=StepsFail]")
    timeline = page.get_by_role("region", name="Changes and alarms").get_by_text("StepsFail")

    async def send(*alarms: tuple[str, int]) -> None:
        found = [active_alarm("StepsFail", summary=text, since_ms=since_ms).model_dump() for text, since_ms in alarms]
        await desk.send("alarms", found)

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


async def test_keys_help_and_can_be_switched_off(alone: OpenAlone) -> None:
    page = (await alone()).page
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


async def test_a_keyboard_moves_the_cursor_of_both_charts(alone: OpenAlone) -> None:
    desk = await alone(heard=-1)
    page = desk.page
    await figures_come(desk, 4)
    await page.get_by_role("group", name="Line chart").focus()
    await page.keyboard.press("Home")
    first = await page.locator(".legend .at").first.inner_text()
    assert re.fullmatch(r"\d\d:\d\d:\d\d", first)
    assert await page.locator(".legend .at").all_inner_texts() == [first, first]
    await expect(page.locator(".charts > [aria-live]")).to_contain_text(f"{first}: Waiting ")
    for _ in range(3):
        await page.keyboard.press("ArrowRight")
    assert await page.locator(".legend .at").first.inner_text() > first
    assert await page.evaluate(f"{FOCUSED}.startsWith('Line chart')")


async def test_a_replay_is_marked_and_ends_with_escape(alone: OpenAlone) -> None:
    desk = await alone(heard=-1)
    page, path = desk.page, f"/console/api/events/{desk.event_id}/vitals"
    kept = desk.alone.read(path)
    series = {name: values[-3:] for name, values in kept["series"].items()}
    desk.alone.change(path, at_ms=kept["at_ms"][-3:], series=series)  # three seconds, of however many
    await page.get_by_role("button", name="Replay").click()
    replay = page.get_by_role("region", name="Replay")
    await expect(replay).to_be_visible()
    await expect(page.get_by_text("replayed figures")).to_be_visible()
    await expect(figure(page, "Sold")).to_have_text("16 %")
    await page.keyboard.press("Escape")
    await expect(replay).to_be_hidden()
    await expect(page.locator("[data-age]")).to_contain_text("s old")


PATH = "/console/session"


async def nobody(page: Page, alone: Alone) -> None:
    """Nobody is signed in, and the first credential is wrong."""
    wrong = Answer(401, None, BadCredential().document())
    alone.instead["GET", PATH] = [wrong]
    alone.instead["POST", PATH] = [wrong, Answer(200, None, alone.read(PATH))]
    alone.instead["DELETE", PATH] = [Answer(204, None, None)]


async def test_a_key_signs_in_and_the_screen_signs_out(alone: OpenAlone) -> None:
    desk = await alone(path="", prepare=nobody)
    page, key = desk.page, desk.page.get_by_label("Operator's key")
    await expect(key).to_be_focused()
    assert await key.get_attribute("autocomplete") == "current-password"
    await key.fill("a wrong key")
    await page.keyboard.press("Enter")
    await expect(page.get_by_role("alert")).to_have_text("This key is not known.")
    await key.fill("the right one")
    await page.keyboard.press("Enter")
    await page.locator(f"[data-event={desk.event_id}] a").click()
    await expect(page).to_have_url(f"{URL}/console/events/{desk.event_id}")
    await page.get_by_role("button", name="Sign out").click()
    await expect(key).to_be_visible()
    assert [sent.body for sent in desk.alone.sent] == [{"key": "a wrong key"}, {"key": "the right one"}, None]


async def test_too_many_wrong_keys_are_told_in_words(alone: OpenAlone) -> None:
    desk = await alone(path="", prepare=nobody)
    desk.alone.refuse("POST", PATH, TooManyWrongCodes("Too many wrong keys. Try yours again in a moment."))
    await desk.page.get_by_label("Operator's key").fill("not the key of anybody")
    await desk.page.keyboard.press("Enter")
    await expect(desk.page.get_by_role("alert")).to_contain_text("Too many wrong keys")


async def test_a_link_signs_in_and_leaves_the_address(alone: OpenAlone) -> None:
    async def right(page: Page, found: Alone) -> None:
        await nobody(page, found)
        found.instead["POST", PATH] = [Answer(200, None, found.read(PATH))]

    desk = await alone(path="#link=a-secret", prepare=right)
    await expect(desk.page.locator(f"[data-event={desk.event_id}]")).to_be_visible()
    assert desk.page.url == f"{URL}/console/"
    assert [sent.body for sent in desk.alone.sent] == [{"link": "a-secret"}]


async def test_a_used_link_says_so(alone: OpenAlone) -> None:
    async def used(page: Page, found: Alone) -> None:
        await nobody(page, found)
        found.refuse("POST", PATH, BadCredential("This link was used before."))

    desk = await alone(path="#link=a-secret", prepare=used)
    await expect(desk.page.get_by_role("alert")).to_have_text(re.compile("used before"))
    assert desk.page.url == f"{URL}/console/"
