"""The map shows other fans' holds as they happen, also without a stream, and says in words which seat was taken.

The map at each step: nothing that axe finds, targets of 24 px, no sideways scrolling, in light and dark, in forced
colours, and from right to left.
"""

import io
import re
from collections.abc import AsyncIterator
from typing import Any

import pytest
from PIL import Image
from playwright.async_api import expect

from features.hall import seat_codes
from shared.words.words import words
from tests.browser.hall_steps import (
    AVAILABLE,
    IN_A_BASKET,
    SECTIONS,
    another_fan,
    cursor,
    expect_cursor,
    open_hall,
    open_section,
    pixels,
    until_painted,
)
from tests.browser.readability import axe_problems, contrast_problems, layout_problems
from tests.browser.steps import CALL_TIMEOUT_MS, expect_connection, hold, put_on_sale
from tests.support.running.suite import RunningSuite
from tests.support.wait import wait_until

SEATS = 100  # of the event of `open_hall`
ROW_1 = {"section_id": "A", "rows": [1, 1]}
CLUB = {"allotment_id": "club", "name": "Club", "kind": "presale", "codes": ["FANCLUB"], "rows": [ROW_1]}
KEPT = "available, kept for you$"
STATE = re.compile(r"/map/state$")


async def seat_id(page: Any) -> str:
    """The seat of section A that the cursor stands on."""
    row, number = re.findall(r"\d+", (await cursor(page).get_attribute("aria-label")).split(":")[1])[:2]
    return f"A-{row}-{number}"


async def test_another_fans_hold_appears_and_what_is_given_back_reappears(page: Any, suite: RunningSuite) -> None:
    event_id = await open_hall(page, suite)
    await open_section(page, "A")
    await expect_cursor(page, "Block A: Row 1", AVAILABLE)
    free = await pixels(page)
    async with another_fan(suite, event_id) as other:
        held_by_other = await other.hold({"seats": [await seat_id(page)]})
        await expect_cursor(page, IN_A_BASKET)
        held = await until_painted(page, free)
        await other.release(held_by_other)
        await expect_cursor(page, AVAILABLE)
        assert await until_painted(page, held) == free


async def test_a_seat_that_somebody_else_takes_is_explained_in_words(page: Any, suite: RunningSuite) -> None:
    event_id = await open_hall(page, suite)
    await open_section(page, "A")
    await page.keyboard.press("Enter")
    await expect(page.locator("#basket-count")).to_have_text("1 ticket")
    async with another_fan(suite, event_id) as other:
        name = await page.locator("#basket-list").inner_text()
        await other.hold({"seats": [await seat_id(page)]})
        await expect(page.locator("#trouble-text")).to_have_text(f"Somebody was faster: {name}. Please pick again.")
    await expect(page.locator("#basket-count")).to_have_text("Nothing picked yet")
    await expect_cursor(page, IN_A_BASKET)


async def test_a_code_frees_its_seats_on_the_map_until_others_with_the_code_take_them(
    page: Any, suite: RunningSuite
) -> None:
    event_id = await open_hall(page, suite, allotments=[CLUB])
    await open_section(page, "A")
    await page.keyboard.press("ArrowUp")
    await page.keyboard.press("Home")
    await expect_cursor(page, "Block A: Row 1, seat 1, ", IN_A_BASKET)
    await page.locator("#type-code").fill("fan club")
    await page.locator("#type-code-form button").click()
    await expect_cursor(page, KEPT)
    free = await pixels(page)
    async with another_fan(suite, event_id) as other:
        held_by_other = await other.hold({"seats": ["A-1-1"], "code": "FANCLUB"})
        await expect_cursor(page, IN_A_BASKET)
        await until_painted(page, free)
        await other.release(held_by_other)
        await expect_cursor(page, KEPT)
    await cursor(page).focus()
    await page.keyboard.press("Enter")
    await hold(page)
    await expect(page.locator("#held-tickets")).to_contain_text("Block A, row 1, seat 1")


async def test_an_own_hold_is_never_explained_as_somebody_elses(page: Any, suite: RunningSuite) -> None:
    event_id = await open_hall(page, suite)
    await open_section(page, "A")
    await page.keyboard.press("Enter")
    answers: list[tuple[Any, Any]] = []

    async def keep_answer(route: Any) -> None:
        answers.append((route, await route.fetch()))

    await page.route("**/reservations", keep_answer)
    await page.locator("#hold").click()
    await wait_until(lambda: answers)
    async with another_fan(suite, event_id) as other:
        await other.hold({"seats": ["A-1-1"]})
        await cursor(page).focus()
        await page.keyboard.press("Home")
        await expect_cursor(page, "Row 1, seat 1,", IN_A_BASKET)  # so the own hold was heard, too
    await expect(page.locator("#trouble")).to_be_hidden()
    await expect(page.locator("#basket-count")).to_have_text("1 ticket")
    [(route, answer)] = answers
    await route.fulfill(response=answer)
    await expect(page.locator("#held")).to_be_visible()


async def test_without_a_stream_the_map_asks_for_the_states(page: Any, suite: RunningSuite) -> None:
    await page.route("**/sections/updates*", lambda route: route.abort())
    event_id = await open_hall(page, suite)
    await expect_connection(page, "polling")
    await open_section(page, "A")
    await expect_cursor(page, AVAILABLE)
    async with another_fan(suite, event_id) as other:
        await other.hold({"seats": [await seat_id(page)]})
        await expect_cursor(page, IN_A_BASKET)


async def test_what_happened_while_the_stream_was_cut_is_seen_afterwards(page: Any, suite: RunningSuite) -> None:
    event_id = await open_hall(page, suite)
    await open_section(page, "A")
    await expect_cursor(page, AVAILABLE)
    seat = await seat_id(page)
    await page.context.set_offline(True)
    async with another_fan(suite, event_id) as other:
        await other.hold({"seats": [seat]})
        await expect_cursor(page, AVAILABLE)
        await page.context.set_offline(False)
        await expect_cursor(page, IN_A_BASKET)


async def test_a_hall_that_has_other_seats_by_now_leaves_the_list(page: Any, suite: RunningSuite) -> None:
    asked: list[Any] = []
    await page.route("**/sections/updates*", lambda route: route.abort())
    await page.route(STATE, lambda route: asked.append(route))
    await open_hall(page, suite)
    await wait_until(lambda: asked)
    body = seat_codes.encode_state(1, 20, bytes(SEATS + 4))
    await asked[0].fulfill(body=body, content_type="application/octet-stream")
    await expect(page.locator("#hall")).to_be_hidden(timeout=CALL_TIMEOUT_MS)
    await page.locator("#section-A button").click()
    await expect(page.locator("#seats .seat")).to_have_count(60)


WIDTHS = (320, 390, 1440)
TARGET_PX = 24
SMALL_TARGETS = """() => [...document.querySelectorAll("#journey :is(button, a, input:not([type=checkbox]), select)")]
    .filter((node) => node.checkVisibility({visibilityProperty: true}))
    .map((node) => [node.id || node.className || node.textContent, node.getBoundingClientRect()])
    .filter(([, { width, height }]) => Math.min(width, height) < 24)
    .map(([name, { width, height }]) => `${name}: ${width} x ${height}`)"""

STRAY_LABELS = """() => {
    const box = (selector) => document.querySelector(selector).getBoundingClientRect();
    const lies = (label) => {
        const one = label.getBoundingClientRect();
        const all = box(`path.hall-section[data-section="${label.dataset.section}"]`);
        return one.left >= all.left && one.right <= all.right && one.top >= all.top && one.bottom <= all.bottom;
    };
    return [...document.querySelectorAll("button.hall-label")]
        .filter((label) => !label.dataset.lines || (label.dataset.lines !== "none" && !lies(label)))
        .map((label) => label.dataset.section);
}"""


@pytest.fixture(scope="module", params=["en", "ar"])
async def still(request: Any, chromium: Any) -> AsyncIterator[Any]:
    """A page without motion, in English and in Arabic."""
    locale = {"en": "en-GB", "ar": "ar-EG"}[request.param]
    context = await chromium.new_context(viewport={"width": 390, "height": 844}, locale=locale, reduced_motion="reduce")
    yield await context.new_page()
    await context.close()


async def problems(page: Any) -> list[str]:
    """Of every width and both schemes."""
    found = list[str]()
    for width in WIDTHS:
        await page.set_viewport_size({"width": width, "height": 844})
        found += [
            f"{width}: {problem}" for problem in [*await layout_problems(page), *await page.evaluate(SMALL_TARGETS)]
        ]
        if await page.evaluate("document.documentElement.scrollWidth > document.documentElement.clientWidth"):
            found.append(f"{width}: scrolls sideways")
    await page.set_viewport_size({"width": 390, "height": 844})
    height = await page.evaluate("document.documentElement.scrollHeight")
    await page.set_viewport_size({"width": 390, "height": height})
    for scheme in ("light", "dark"):
        await page.emulate_media(color_scheme=scheme)
        found += [f"{scheme}: {problem}" for problem in [*await axe_problems(page), *await contrast_problems(page)]]
    await page.emulate_media(color_scheme="light")
    await page.set_viewport_size({"width": 390, "height": 844})
    return found


async def test_every_step_of_the_map_is_readable(still: Any, suite: RunningSuite) -> None:
    event_id = await open_hall(still, suite)
    found = [f"overview: {problem}" for problem in await problems(still)]
    await open_section(still, "B")
    await still.keyboard.press("Enter")
    async with another_fan(suite, event_id) as other:
        await other.hold({"seats": ["B-1-1", "B-1-2"]})
        found += [f"seats: {problem}" for problem in await problems(still)]
    await still.locator("#hall-list").click()
    await expect(still.locator("#seats .seat")).to_have_count(40)
    found += [f"list: {problem}" for problem in await problems(still)]
    await hold(still)
    await expect(still.locator("#held-hall")).to_be_visible()
    found += [f"held: {problem}" for problem in await problems(still)]
    assert found == [], "\n".join(found)
    await still.locator("#give-back").click()
    text = words(await still.locator("html").get_attribute("lang"))
    await expect(still.locator("#hall-title")).to_have_text(text("hall_title"))


async def colours(page: Any) -> set[tuple[int, int, int]]:
    """The colours of the canvas that at least one in five hundred of its points has."""
    image = Image.open(io.BytesIO(await page.locator(".hall-view").screenshot())).convert("RGB")
    counted = image.getcolors(image.width * image.height) or []
    return {colour for n, colour in counted if n > image.width * image.height / 500}  # type: ignore[misc]


async def test_the_canvas_follows_the_colours_of_the_page(page: Any, suite: RunningSuite) -> None:
    await open_hall(page, suite)
    await open_section(page, "B")
    light = await pixels(page)
    await page.emulate_media(color_scheme="dark")
    await until_painted(page, light)
    await page.emulate_media(color_scheme="light", forced_colors="active")
    await cursor(page).blur()
    forced = await colours(page)
    assert {(0, 0, 0), (255, 255, 255)} <= forced, forced
    assert not [colour for colour in forced if max(colour) - min(colour) > 100], "text and paper only"
    await page.emulate_media(color_scheme="light", forced_colors="none")

    async def is_light() -> bool:
        return await pixels(page) == light

    await wait_until(is_light)


async def test_focus_is_seen_and_not_hidden(page: Any, suite: RunningSuite) -> None:
    """WCAG 2.4.11: tab through the map; what has the focus is under its own middle."""
    await open_hall(page, suite)
    await open_section(page, "A")
    await page.locator("#hall-list").focus()
    names = list[str]()
    for _ in range(9):
        hidden = await page.evaluate("""() => { const node = document.activeElement;
            const { left, top, width, height } = node.getBoundingClientRect();
            const style = node.style.pointerEvents; node.style.pointerEvents = "auto";
            const found = document.elementFromPoint(left + width / 2, top + height / 2);
            node.style.pointerEvents = style;
            return found === node || node.contains(found) ? null : node.className; }""")  # fmt: skip
        assert hidden is None
        names.append(await page.evaluate("document.activeElement.className + document.activeElement.id"))
        await page.keyboard.press("Tab")
    assert names[:2] == ["plainhall-list", "hall-cursor"], "the list comes first"
    assert names[2:] == ["step"] * 7, "then the seats, then the buttons"


async def test_each_label_lies_in_its_section_after_the_wait(page: Any, suite: RunningSuite) -> None:
    """The hall is drawn while the fan waits; its labels become buttons once the fan is called."""
    event_id = await put_on_sale(suite, room={"max_active": 0}, sections=SECTIONS)
    await page.goto(f"{suite.url}/e/{event_id}")
    await page.locator("#join").click()
    await expect(page.locator("p.hall-label[data-lines]")).to_have_count(len(SECTIONS), timeout=CALL_TIMEOUT_MS)
    async with suite.operator() as admin:
        (
            await admin.patch(f"/admin/events/{event_id}/room", json={"max_active": 10, "reason": "test"})
        ).raise_for_status()
    await expect(page.locator("button.hall-label")).to_have_count(len(SECTIONS), timeout=CALL_TIMEOUT_MS)
    assert await page.evaluate(STRAY_LABELS) == []
